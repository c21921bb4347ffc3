//! Copies heads between the `http` crate's types and ours.

use cardea_http::{
    BodyLength, Fields, HeadError, Known, Method, RequestError, ResponseHead, Scheme, TrailerError,
    TrailerLimits, Version, h1::HeadLimits,
};
use h2::RecvStream;
use http::{HeaderMap, HeaderName, HeaderValue, request::Parts};

use super::queued::Room;
use crate::{
    body::{BodyError, MalformedBody},
    exchange::Exchange,
    refusal::Reason,
};

const MALFORMED: Reason = Reason::Malformed { code: "http2_head_malformed", status: 400 };

/// Copies the head of a request into the arena of `exchange`.
///
/// # Errors
/// What HTTP/1.1 would refuse as well, by the same codes.
pub(super) fn read(parts: &Parts, limits: &HeadLimits, exchange: &mut Exchange) -> Result<(), Reason> {
    exchange.scheme = Scheme::Https;
    let head = &mut exchange.head;
    head.version = Version::Http2;
    head.method = Method::parse(parts.method.as_str().as_bytes()).map_err(|_| MALFORMED)?;
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).as_bytes();
    if target.len() > limits.target_bytes_max {
        return Err(Reason::from(RequestError::TargetTooLong));
    }
    head.set_target(target);
    if parts.headers.len() > limits.fields_max {
        return Err(Reason::from(RequestError::from(HeadError::TooManyFields)));
    }
    if parts.uri.scheme().is_some_and(|scheme| *scheme != http::uri::Scheme::HTTPS) {
        return Err(Reason::from(RequestError::SchemeDisagrees));
    }
    // `:authority` is what HTTP/1.1 calls `Host`; where both came they must agree (RFC 9113 §8.3.1).
    if let Some(authority) = parts.uri.authority() {
        head.fields.append_known(Known::Host, authority.as_str().as_bytes()).map_err(|_| MALFORMED)?;
    }
    for (name, value) in &parts.headers {
        if name == http::header::HOST {
            match parts.uri.authority() {
                Some(authority) if authority.as_str().as_bytes().eq_ignore_ascii_case(value.as_bytes()) => {
                    continue;
                }
                Some(_) => return Err(Reason::from(RequestError::HostDisagrees)),
                None => {}
            }
        }
        // Cookies may come in pieces, which HTTP/1.1 does not know (RFC 9113 §8.2.3).
        if name == http::header::COOKIE && head.fields.get(Known::Cookie).is_some() {
            continue;
        }
        let joined;
        let bytes = if name == http::header::COOKIE {
            joined = parts
                .headers
                .get_all(name)
                .iter()
                .map(HeaderValue::as_bytes)
                .collect::<Vec<_>>()
                .join(&b"; "[..]);
            joined.as_slice()
        } else {
            value.as_bytes()
        };
        head.fields.append(name.as_str().as_bytes(), bytes).map_err(|_| MALFORMED)?;
    }
    Ok(())
}

/// How long the request's body is, as far as its head says.
pub(super) fn body_length(stated: BodyLength, body: &RecvStream) -> Result<BodyLength, Reason> {
    match stated {
        BodyLength::Exact(1..) if body.is_end_stream() => {
            // RFC 9113 §8.1.1; h2 checks it too, but what is forwarded by it must not rest on that.
            Err(BodyError::from(MalformedBody::LengthDisagrees).into())
        }
        BodyLength::Exact(length) => Ok(BodyLength::Exact(length)),
        _ if body.is_end_stream() => Ok(BodyLength::None),
        _ => Ok(BodyLength::Unknown),
    }
}

/// Our head in the `http` crate's types, which takes `room`.
pub(super) fn write(head: &ResponseHead, room: Option<Room>) -> Option<http::Response<()>> {
    let mut response = http::Response::new(());
    *response.status_mut() = http::StatusCode::from_u16(head.status).ok()?;
    *response.headers_mut() = write_fields(&head.fields, room)?;
    Some(response)
}

/// Fields in the `http` crate's types. One of the values carries `room`.
pub(super) fn write_fields(fields: &Fields, mut room: Option<Room>) -> Option<HeaderMap> {
    let carrier = carrier(fields);
    let mut map = HeaderMap::try_with_capacity(fields.len()).ok()?;
    for (at, field) in fields.iter().enumerate() {
        let name = HeaderName::from_bytes(field.name).ok()?;
        let value = match room.take_if(|_| at == carrier) {
            Some(room) => room.carried_by(field.value)?,
            None => HeaderValue::from_bytes(field.value).ok()?,
        };
        map.append(name, value);
    }
    Some(map)
}

/// Which of `fields` is encoded without the encoder's table at the least cost: a length hardly ever repeats itself, and a
/// date not for long.
fn carrier(fields: &Fields) -> usize {
    let position = |known| fields.iter().position(|field| field.known == Some(known));
    position(Known::ContentLength).or_else(|| position(Known::Date)).unwrap_or(0)
}

/// A trailer section in our types, held to the limits that it has over HTTP/1.1.
///
/// One without fields is refused: the codec drops pseudo-header fields, which make a section malformed (RFC 9113 §8.1),
/// and fields beyond the size of a whole head, and does not say so.
///
/// # Errors
/// It is malformed, or larger than the limits.
pub(super) fn read_trailers(map: &HeaderMap) -> Result<Fields, TrailerError> {
    if map.is_empty() {
        return Err(TrailerError(HeadError::FieldNameInvalid));
    }
    TrailerLimits::default()
        .collect(map.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())))
}

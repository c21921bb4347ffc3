//! The length of a body (RFC 9112 §6.3), and the persistence of the connection (§9.3).

#[cfg(test)]
mod tests;

use crate::chars::list_members;
use crate::length::parse_length;
use crate::names::folds_to;
use crate::{
    BodyLength, Fields, FramingError, Known, Method, RequestError, RequestHead, ResponseError, ResponseHead,
    Version,
};

/// The framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No body. In HTTP/2: no declared length, so that the end of the stream ends it.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunked (RFC 9112 §7.1).
    Chunked,
    /// Until the end of the connection; responses only.
    UntilClose,
}

impl From<Framing> for BodyLength {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::None,
            Framing::Length(length) => Self::Exact(length),
            Framing::Chunked | Framing::UntilClose => Self::Unknown,
        }
    }
}

/// How the body of a request is delimited (RFC 9112 §6.3, RFC 9113 §8.1.1, §8.2.2).
///
/// Refused, beside what the RFCs demand: `Content-Length` with `Transfer-Encoding`, `Transfer-Encoding` in
/// HTTP/1.0, any other value than one `chunked`, `Content-Length` twice or as a list even if the values are equal
/// (RFC 9110 §8.6 leaves the choice), and field names that fold to one of both (`Content_Length`, `Transfer.Encoding`).
///
/// # Errors
/// [`RequestError::Framing`].
pub fn request_framing(head: &RequestHead) -> Result<Framing, RequestError> {
    let fields = &head.fields;
    if fields.may_have_odd_names()
        && fields.iter().any(|field| field.known.is_none() && is_lookalike(field.name))
    {
        return Err(FramingError::FramingFieldLookalike.into());
    }
    if head.version == Version::Http2 && has_connection_fields(fields) {
        return Err(FramingError::ConnectionFieldInHttp2.into());
    }
    Ok(declared(fields, head.version)?.unwrap_or(Framing::None))
}

/// How the body of a response to `request_method` is delimited (RFC 9112 §6.3). A 2xx to CONNECT begins a tunnel
/// and is not asked about here.
///
/// # Errors
/// [`ResponseError::Framing`] if it is ambiguous, as for requests; also for a body's length in a 1xx or 204
/// (a `Content-Length` of 0 is let pass: many origins send it).
pub fn response_framing(head: &ResponseHead, request_method: Method) -> Result<Framing, ResponseError> {
    let declared = declared(&head.fields, head.version)?;
    match head.status {
        100..=199 | 204 => match declared {
            None | Some(Framing::Length(0)) => Ok(Framing::None),
            _ => Err(FramingError::BodyNotAllowed.into()),
        },
        // The field describes the body of the corresponding GET.
        304 => Ok(Framing::None),
        _ if request_method == Method::Head => Ok(Framing::None),
        _ => Ok(declared.unwrap_or(if head.version == Version::Http2 {
            Framing::None
        } else {
            Framing::UntilClose
        })),
    }
}

/// Whether the sender of this head keeps the connection open (RFC 9112 §9.3).
#[must_use]
pub fn wants_keep_alive(version: Version, fields: &Fields) -> bool {
    let has = |token: &[u8]| has_connection_option(fields, token);
    match version {
        Version::Http10 => has(b"keep-alive") && !has(b"close"),
        Version::Http11 => !has(b"close"),
        Version::Http2 => true,
    }
}

/// Whether `Connection` contains this option, case-insensitive.
pub(crate) fn has_connection_option(fields: &Fields, option: &[u8]) -> bool {
    fields.get_all(Known::Connection).flat_map(list_members).any(|member| member.eq_ignore_ascii_case(option))
}

/// The framing that the fields declare, if any.
fn declared(fields: &Fields, version: Version) -> Result<Option<Framing>, FramingError> {
    if fields.contains(Known::TransferEncoding) {
        return transfer_encoding(fields, version).map(|()| Some(Framing::Chunked));
    }
    let mut lengths = fields.get_all(Known::ContentLength);
    let Some(length) = lengths.next() else {
        return Ok(None);
    };
    if lengths.next().is_some() {
        return Err(FramingError::ContentLengthRepeated);
    }
    parse_length(length).map(|length| Some(Framing::Length(length)))
}

fn transfer_encoding(fields: &Fields, version: Version) -> Result<(), FramingError> {
    match version {
        Version::Http10 => return Err(FramingError::TransferEncodingInHttp10),
        Version::Http2 => return Err(FramingError::ConnectionFieldInHttp2),
        Version::Http11 => {}
    }
    if fields.contains(Known::ContentLength) {
        return Err(FramingError::ContentLengthWithTransferEncoding);
    }
    let mut values = fields.get_all(Known::TransferEncoding);
    let value = values.next().unwrap_or_default();
    if values.next().is_some() || value.contains(&b',') {
        return Err(FramingError::TransferEncodingRepeated);
    }
    if value.eq_ignore_ascii_case(b"chunked") { Ok(()) } else { Err(FramingError::TransferEncodingUnknown) }
}

fn is_lookalike(name: &[u8]) -> bool {
    folds_to(name, b"content-length") || folds_to(name, b"transfer-encoding")
}

/// Whether there are fields that HTTP/2 forbids (RFC 9113 §8.2.2): all of connections, except `TE: trailers`.
pub(crate) fn has_connection_fields(fields: &Fields) -> bool {
    let set = Known::Connection.bit()
        | Known::KeepAlive.bit()
        | Known::ProxyConnection.bit()
        | Known::TransferEncoding.bit()
        | Known::Upgrade.bit();
    fields.known_set() & set != 0
        || fields.get_all(Known::Te).any(|value| !value.eq_ignore_ascii_case(b"trailers"))
}

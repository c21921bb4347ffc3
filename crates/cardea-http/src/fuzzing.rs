//! Properties that hold for any bytes: the bodies of the fuzz targets, run by the fuzzers and by a test that replays
//! their corpus.

mod grpc;
mod h2;
mod lines;
#[cfg(test)]
mod tests;

pub use grpc::grpc;
pub use h2::{connection as http2_connection, hpack};

use core::net::{IpAddr, Ipv4Addr};

use crate::chars::{is_field_value, is_token};
use crate::h1::{
    ChunkedDecoder, ChunkedError, ChunkedLimits, HeadLimits, KeepAlive, RequestDecoder, ResponseDecoder,
    Step, request_framing, response_framing, wants_keep_alive, write_chunk_size, write_last_chunk,
    write_request_head, write_response_head,
};
use crate::{
    Authority, Fields, ForwardedHeader, LastAuthority, Method, RequestHead, ResponseHead, Scheme,
    TrailerLimits, client_address, filter_trailers, normalize_path, parse_target, proxy_protocol as proxy,
    request_authority, strip_hop_by_hop, strip_hop_by_hop_response, upgrade_websocket,
};

/// Larger than the encoding of any accepted head.
const ROOMY: HeadLimits = HeadLimits { head_bytes_max: 1 << 19, target_bytes_max: 1 << 18, fields_max: 256 };

/// A request head is decoded identically at once and byte by byte, and again after encoding. Its field lines are those that a
/// plain reader finds.
pub fn request_head(data: &[u8]) {
    lines::check(data);
    let mut head = RequestHead::default();
    let whole = RequestDecoder::new(HeadLimits::default()).decode(data, &mut head);
    let mut decoder = RequestDecoder::new(HeadLimits::default());
    let mut again = RequestHead::default();
    let pieces = first_answer(data, |prefix| decoder.decode(prefix, &mut again));
    assert_eq!(whole.is_err(), pieces.is_err());
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
    }
    let Ok(Some(_)) = whole else {
        return;
    };
    assert_eq!(head, again);
    check_fields(&head.fields);
    let mut written = Vec::new();
    write_request_head(&mut written, head.method, head.target(), &head.fields);
    let length = RequestDecoder::new(ROOMY).decode(&written, &mut again);
    assert_eq!(length, Ok(Some(written.len())));
    assert_eq!((head.method, head.target(), &head.fields), (again.method, again.target(), &again.fields));

    let framing = request_framing(&head);
    let _ = (wants_keep_alive(head.version, &head.fields), upgrade_websocket(&head));
    if let Ok(target) = parse_target(head.method, head.target()) {
        let _ = request_authority(&head, &target, Scheme::Http, &mut LastAuthority::default());
    }
    for header in [ForwardedHeader::XForwarded, ForwardedHeader::Forwarded] {
        let _ = client_address(
            &head.fields,
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            |address| address.is_ipv4(),
            header,
        );
    }
    if strip_hop_by_hop(&mut head.fields).is_ok() && framing.is_ok() {
        let before = head.fields.len();
        assert!(strip_hop_by_hop(&mut head.fields).is_ok());
        assert_eq!(head.fields.len(), before);
    }
}

/// A response head is decoded identically at once and byte by byte, and again after encoding. Its field lines are those that a
/// plain reader finds.
pub fn response_head(data: &[u8]) {
    lines::check(data);
    let mut head = ResponseHead::default();
    let whole = ResponseDecoder::new(HeadLimits::default()).decode(data, &mut head);
    let mut decoder = ResponseDecoder::new(HeadLimits::default());
    let mut again = ResponseHead::default();
    let pieces = first_answer(data, |prefix| decoder.decode(prefix, &mut again));
    assert_eq!(whole.is_err(), pieces.is_err());
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
    }
    let Ok(Some(_)) = whole else {
        return;
    };
    assert_eq!(head, again);
    assert!((100..=599).contains(&head.status));
    check_fields(&head.fields);
    let mut written = Vec::new();
    write_response_head(&mut written, head.status, &head.fields);
    let length = ResponseDecoder::new(ROOMY).decode(&written, &mut again);
    assert_eq!(length, Ok(Some(written.len())));
    assert_eq!((head.status, &head.fields), (again.status, &again.fields));
    let _ = (response_framing(&head, Method::Get), response_framing(&head, Method::Head));
    let _ = KeepAlive::of(&head.fields);
    strip_hop_by_hop_response(&mut head.fields);
}

/// A chunked body is decoded identically however it is split, and again after encoding.
pub fn chunked(data: &[u8]) {
    let limits =
        ChunkedLimits { extension_bytes_max: 64, trailers: TrailerLimits { bytes_max: 256, fields_max: 8 } };
    let Some((&cut, data)) = data.split_first() else {
        return;
    };
    let whole = decode_chunked(data, data.len(), limits);
    for size in [1, usize::from(cut).max(1)] {
        let pieces = decode_chunked(data, size, limits);
        assert_eq!(whole.is_err(), pieces.is_err());
        if whole.is_ok() {
            assert_eq!(whole, pieces);
        }
    }
    let Ok(Body { content, mut trailers, complete, .. }) = whole else {
        return;
    };
    if !complete {
        return;
    }
    let mut written = Vec::new();
    for chunk in content.chunks(usize::from(cut).max(1)) {
        write_chunk_size(&mut written, chunk.len());
        written.extend_from_slice(chunk);
        written.extend_from_slice(b"\r\n");
    }
    write_last_chunk(&mut written, trailers.as_ref());
    let roomy = ChunkedLimits { trailers: TrailerLimits { bytes_max: 1024, ..limits.trailers }, ..limits };
    let again = decode_chunked(&written, written.len(), roomy);
    let again = again.unwrap_or_else(|_| Body::default());
    assert_eq!((&content, &trailers, written.len()), (&again.content, &again.trailers, again.taken));
    assert!(again.complete);
    if let Some(trailers) = &mut trailers {
        check_fields(trailers);
        filter_trailers(trailers);
        assert_eq!(filter_trailers(trailers), 0);
    }
}

/// The parts of a target form the target, and an authority is its own normal form.
pub fn target(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let method = match choice % 3 {
        0 => Method::Get,
        1 => Method::Options,
        _ => Method::Connect,
    };
    let scheme = if choice & 128 == 0 { Scheme::Http } else { Scheme::Https };
    for bytes in
        [data, parse_target(method, data).ok().and_then(|target| target.authority).unwrap_or_default()]
    {
        if let Ok(authority) = Authority::parse(bytes, scheme) {
            assert_eq!(Authority::parse(authority.as_str().as_bytes(), scheme).as_ref(), Ok(&authority));
            assert!(!authority.host().is_empty() && authority.as_str().is_ascii());
        }
    }
    let Ok(target) = parse_target(method, data) else {
        return;
    };
    assert!(data.iter().all(u8::is_ascii_graphic));
    if target.scheme.is_none() && target.authority.is_none() {
        let mut joined = target.path.to_vec();
        if let Some(query) = target.query {
            joined.push(b'?');
            joined.extend_from_slice(query);
        }
        assert_eq!(joined, data);
    }
    if target.path.starts_with(b"/") {
        normalize(target.path);
    }
}

/// A normalised path is its own normal form and contains nothing that another parser could resolve.
pub fn normalize(data: &[u8]) {
    let mut normal = Vec::new();
    if normalize_path(data, &mut normal).is_err() {
        return;
    }
    let mut again = Vec::new();
    assert!(normalize_path(&normal, &mut again).is_ok());
    assert_eq!(normal, again);
    let text = String::from_utf8_lossy(&normal);
    assert!(text.is_ascii() && text.starts_with('/'));
    assert!(!text.contains("//") && !text.contains("%2E") && !text.contains("%2e"), "{text}");
    // Whatever an origin treats as a segment separator, it finds no dot segment.
    let separated = ["%2F", "%5C", "%3B", "%00", "\\", ";"]
        .iter()
        .fold(text.into_owned(), |text, end| text.replace(end, "/"));
    assert!(separated.split('/').all(|segment| segment != "." && segment != ".."), "{separated}");
}

/// A PROXY header is decoded or refused identically however it is split.
pub fn proxy_protocol(data: &[u8]) {
    let whole = proxy::decode(data);
    let pieces = first_answer(data, proxy::decode);
    assert_eq!(whole, pieces);
    if let Ok(Some((length, _))) = whole {
        assert!(length <= data.len() && length <= 16 + proxy::BINARY_LEN_MAX);
    }
}

/// The first result of `decode` for a growing prefix of `data`.
fn first_answer<T, E>(
    data: &[u8],
    mut decode: impl FnMut(&[u8]) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    for end in 0..data.len() {
        if let Some(found) = decode(data.get(..end).unwrap_or_default())? {
            return Ok(Some(found));
        }
    }
    decode(data)
}

fn check_fields(fields: &Fields) {
    for field in fields.iter() {
        assert!(is_token(field.name) && is_field_value(field.value));
        assert_eq!(field.known, crate::Known::of(field.name));
        assert!(fields.get_by_name(field.name).is_some());
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Body {
    content: Vec<u8>,
    trailers: Option<Fields>,
    taken: usize,
    complete: bool,
}

/// Decodes a body that arrives in pieces of `size` bytes.
fn decode_chunked(data: &[u8], size: usize, limits: ChunkedLimits) -> Result<Body, ChunkedError> {
    let mut decoder = ChunkedDecoder::new(limits);
    let mut body = Body::default();
    for piece in data.chunks(size.max(1)) {
        let mut rest = piece;
        loop {
            let (taken, is_data) = match decoder.step(rest)? {
                Step::NeedMore => break,
                Step::Skip(taken) => (taken, false),
                Step::Data(taken) => (taken, true),
                Step::Done(taken) => {
                    body.taken += taken;
                    body.trailers = decoder.take_trailers();
                    body.complete = decoder.is_done();
                    return Ok(body);
                }
            };
            assert!(taken > 0, "a step without progress");
            let (now, after) = rest.split_at(taken);
            if is_data {
                body.content.extend_from_slice(now);
            }
            body.taken += taken;
            rest = after;
        }
    }
    Ok(body)
}

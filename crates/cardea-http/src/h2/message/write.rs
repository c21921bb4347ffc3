//! Writes heads and trailers.

use super::super::hpack::Encoder;
use crate::{Field, Fields, Known, Method, RequestHead, ResponseHead, Scheme};

/// A request that is sent.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingRequest<'a> {
    /// The method.
    pub method: Method,
    /// Path and query; for CONNECT, the authority.
    pub target: &'a [u8],
    /// The fields. `Host` is sent as `:authority`, and those that concern a connection of HTTP/1.1 are left out.
    pub fields: &'a Fields,
    /// Whether the peer is told that trailers are accepted (`TE: trailers`, RFC 9110 §10.1.4), whatever the fields say.
    pub accepts_trailers: bool,
}

impl<'a> From<&'a RequestHead> for OutgoingRequest<'a> {
    fn from(head: &'a RequestHead) -> Self {
        Self { method: head.method, target: head.target(), fields: &head.fields, accepts_trailers: false }
    }
}

/// Appends the block of a request. `Host` becomes `:authority`. With a `protocol`, it is an extended CONNECT.
pub(crate) fn write_request(
    encoder: &mut Encoder,
    head: OutgoingRequest<'_>,
    scheme: Scheme,
    protocol: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    encoder.begin(out);
    encoder.method(if protocol.is_some() { Method::Connect } else { head.method }, out);
    if let Some(protocol) = protocol {
        encoder.protocol(protocol, out);
    }
    if head.method == Method::Connect && protocol.is_none() {
        encoder.authority(head.target, out);
    } else {
        encoder.scheme(scheme, out);
        if let Some(host) = head.fields.get(Known::Host) {
            encoder.authority(host, out);
        }
        encoder.path(head.target, out);
    }
    for field in head.fields.iter().filter(|field| field.known != Some(Known::Host)) {
        write_field(encoder, &field, out);
    }
    if head.accepts_trailers && head.fields.get(Known::Te).is_none() {
        let field = Field { known: Some(Known::Te), name: b"te", value: b"trailers", never_indexed: false };
        encoder.field(&field, out);
    }
}

/// Appends the block of a response.
pub(crate) fn write_response(encoder: &mut Encoder, head: &ResponseHead, out: &mut Vec<u8>) {
    encoder.begin(out);
    encoder.status(head.status, out);
    for field in head.fields.iter() {
        write_field(encoder, &field, out);
    }
}

/// Appends the block of a trailer section.
pub(crate) fn write_trailers(encoder: &mut Encoder, fields: &Fields, out: &mut Vec<u8>) {
    encoder.begin(out);
    for field in fields.iter() {
        write_field(encoder, &field, out);
    }
}

/// Appends a field line, unless it concerns a connection of HTTP/1.1 (RFC 9113 §8.2.2).
fn write_field(encoder: &mut Encoder, field: &Field<'_>, out: &mut Vec<u8>) {
    match field.known {
        Some(
            Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade
            | Known::Http2Settings,
        ) => {}
        Some(Known::Te) if !field.value.eq_ignore_ascii_case(b"trailers") => {}
        _ => encoder.field(field, out),
    }
}

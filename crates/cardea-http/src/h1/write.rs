//! Encodes heads and chunk framing.

#[cfg(test)]
mod tests;

use crate::{Fields, Method};

/// Appends a request head with its empty line, as HTTP/1.1. `target` must be valid; it is written unchanged.
pub fn write_request_head(out: &mut Vec<u8>, method: Method, target: &[u8], fields: &Fields) {
    let method = method.as_str().as_bytes();
    out.reserve(method.len() + target.len() + 16 + fields.wire_len());
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(out, fields);
    out.extend_from_slice(b"\r\n");
}

/// Appends a response head with its empty line, as HTTP/1.1 and with the standard reason phrase (RFC 9110 §15; no
/// phrase for a status that has none). A status above 999 is written as 500.
pub fn write_response_head(out: &mut Vec<u8>, status: u16, fields: &Fields) {
    out.reserve(48 + fields.wire_len());
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        let status = if (100..=999).contains(&status) { status } else { 500 };
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason_phrase(status).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    write_fields(out, fields);
    out.extend_from_slice(b"\r\n");
}

/// Appends the field lines, without an empty line.
pub fn write_fields(out: &mut Vec<u8>, fields: &Fields) {
    fields.write_lines(out);
}

/// Appends the line before a chunk's data. `len` must not be 0, which would end the body: see
/// [`write_last_chunk`]. The data is followed by CR LF.
pub fn write_chunk_size(out: &mut Vec<u8>, len: usize) {
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let value = (len >> (digit * 4)) as u8 & 15;
        out.push(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk, the trailers if there are any, and the empty line.
pub fn write_last_chunk(out: &mut Vec<u8>, trailers: Option<&Fields>) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        write_fields(out, trailers);
    }
    out.extend_from_slice(b"\r\n");
}

/// RFC 9110 §15, RFC 6585, RFC 7725, RFC 8297, RFC 8470, RFC 4918.
const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => "",
    }
}

//! The encoded bytes.

use super::*;
use crate::Known;

#[test]
fn heads_are_written_as_http_1_1() {
    let mut fields = Fields::default();
    fields.append(b"hOsT", b"a").unwrap();
    fields.append_known(Known::ContentLength, b"5").unwrap();
    fields.append(b"x-latin", b"caf\xE9").unwrap();
    fields.append(b"x-empty", b"").unwrap();
    let mut out = b"before".to_vec();
    write_request_head(&mut out, Method::Post, b"/a?b", &fields);
    let lines = b"hOsT: a\r\nContent-Length: 5\r\nx-latin: caf\xE9\r\nx-empty: \r\n";
    assert_eq!(out, [&b"beforePOST /a?b HTTP/1.1\r\n"[..], lines, b"\r\n"].concat());

    for (status, line) in [
        (200, "HTTP/1.1 200 OK\r\n"),
        (100, "HTTP/1.1 100 Continue\r\n"),
        (431, "HTTP/1.1 431 Request Header Fields Too Large\r\n"),
        (299, "HTTP/1.1 299 \r\n"),
        (65535, "HTTP/1.1 500 Internal Server Error\r\n"),
        (0, "HTTP/1.1 500 Internal Server Error\r\n"),
    ] {
        let mut out = Vec::new();
        write_response_head(&mut out, status, &fields);
        assert_eq!(out, [line.as_bytes(), lines, b"\r\n"].concat());
    }
}

#[test]
fn chunk_sizes_are_hexadecimal() {
    for len in [1, 9, 10, 15, 16, 255, 256, 4095, 65536, 0xDEAD_BEEF, usize::MAX] {
        let mut out = Vec::new();
        write_chunk_size(&mut out, len);
        assert_eq!(out, format!("{len:x}\r\n").into_bytes());
    }
}

#[test]
fn the_last_chunk_carries_the_trailers() {
    let mut out = Vec::new();
    write_last_chunk(&mut out, None);
    let mut trailers = Fields::default();
    trailers.append(b"a", b"b").unwrap();
    write_last_chunk(&mut out, Some(&trailers));
    assert_eq!(out, b"0\r\n\r\n0\r\na: b\r\n\r\n");
}

//! Both versions, however they are split, and malformed headers.

use super::*;

fn proxied(source: &str, destination: &str) -> ProxyHeader {
    ProxyHeader::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[command, family]);
    header.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    header.extend_from_slice(body);
    header
}

const IPV4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x67, 0x01, 0xBB];

fn ipv4_header() -> ProxyHeader {
    proxied("192.0.2.1:4711", "198.51.100.2:443")
}

/// Every prefix of the header is incomplete, and the bytes after it are not consumed.
fn check(header: &[u8], expected: ProxyHeader) {
    for cut in 0..header.len() {
        assert_eq!(decode(&header[..cut]), Ok(None), "{} at {cut}", header.escape_ascii());
    }
    let mut more = header.to_vec();
    more.extend_from_slice(b"GET / HTTP/1.1\r\n");
    assert_eq!(decode(&more), Ok(Some((header.len(), expected))));
}

#[test]
fn version_1_gives_the_addresses() {
    check(b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n", ipv4_header());
    check(b"PROXY TCP6 2001:db8::1 ::1 0 65535\r\n", proxied("[2001:db8::1]:0", "[::1]:65535"));
    check(b"PROXY UNKNOWN\r\n", ProxyHeader::Local);
    check(b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", ProxyHeader::Local);
}

#[test]
fn a_malformed_line_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443 1\r\n",
        "PROXY TCP4  192.0.2.1 198.51.100.2 4711 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 04711 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 +4711 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n",
        "PROXY TCP4 ::1 198.51.100.2 1 443\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.2 1 443\r\n",
        "PROXY UDP4 192.0.2.1 198.51.100.2 1 443\r\n",
        "PROXY UNKNOWNX\r\n",
        "PROXY \r\n",
    ] {
        assert_eq!(decode(line.as_bytes()), Err(ProxyError::TextInvalid), "{line:?}");
    }
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(100));
    assert_eq!(decode(endless.as_bytes()), Err(ProxyError::TextInvalid));
    assert_eq!(decode(&endless.as_bytes()[..TEXT_LEN_MAX - 1]), Ok(None));
}

#[test]
fn version_2_gives_the_addresses() {
    check(&binary(0x21, 0x11, &IPV4), ipv4_header());
    check(&binary(0x21, 0x12, &IPV4), ipv4_header());
    let mut ipv6 = [0; 36];
    ipv6[15] = 1;
    ipv6[31] = 2;
    ipv6[35] = 80;
    check(&binary(0x21, 0x21, &ipv6), proxied("[::1]:0", "[::2]:80"));
    check(&binary(0x21, 0x31, &[b'/'; 216]), ProxyHeader::Unix);
    check(&binary(0x20, 0x00, &[]), ProxyHeader::Local);
    check(&binary(0x20, 0x11, &IPV4), ProxyHeader::Local);
    check(&binary(0x21, 0x00, &[]), ProxyHeader::Local);
}

#[test]
fn extensions_are_walked_and_skipped() {
    let mut body = IPV4.to_vec();
    body.extend_from_slice(&[0x02, 0, 3, b'a', b'b', b'c', 0x04, 0, 0]);
    check(&binary(0x21, 0x11, &body), ipv4_header());
    body.pop();
    assert_eq!(decode(&binary(0x21, 0x11, &body)), Err(ProxyError::BinaryInvalid));
    body.extend_from_slice(&[9]);
    assert_eq!(decode(&binary(0x21, 0x11, &body)), Err(ProxyError::BinaryInvalid));
}

#[test]
fn a_checksum_must_match() {
    assert_eq!(crc32c(b"123456789".iter().copied()), 0xE306_9283);
    let mut body = IPV4.to_vec();
    body.extend_from_slice(&[0x01, 0, 1, b'x', TYPE_CRC32C, 0, 4, 0, 0, 0, 0, 0x04, 0, 0]);
    let mut header = binary(0x21, 0x11, &body);
    let sum = crc32c(header.iter().copied()).to_be_bytes();
    let at = header.len() - 7;
    header[at..at + 4].copy_from_slice(&sum);
    check(&header, ipv4_header());
    header[16] ^= 1;
    assert_eq!(decode(&header), Err(ProxyError::ChecksumWrong));
    let mut twice = body.clone();
    twice.extend_from_slice(&[TYPE_CRC32C, 0, 4, 0, 0, 0, 0]);
    let mut header = binary(0x21, 0x11, &twice);
    let sum = crc32c(header.iter().copied()).to_be_bytes();
    let at = header.len() - 14;
    header[at..at + 4].copy_from_slice(&sum);
    assert_eq!(decode(&header), Err(ProxyError::BinaryInvalid));
}

#[test]
fn a_malformed_binary_header_is_refused() {
    for (command, family, body) in [
        (0x11, 0x11, &IPV4[..]),
        (0x22, 0x11, &IPV4[..]),
        (0x21, 0x13, &IPV4[..]),
        (0x21, 0x41, &IPV4[..]),
        (0x21, 0x11, &IPV4[..11]),
        (0x21, 0x21, &IPV4[..]),
        (0x21, 0x31, &IPV4[..]),
    ] {
        assert_eq!(
            decode(&binary(command, family, body)),
            Err(ProxyError::BinaryInvalid),
            "{command:x} {family:x}"
        );
    }
    let mut large = binary(0x21, 0x11, &[0; 5000]);
    large.truncate(16);
    assert_eq!(decode(&large), Err(ProxyError::TooLarge));
    assert_eq!(decode_with_limit(&binary(0x21, 0x11, &IPV4), 11), Err(ProxyError::TooLarge));
}

#[test]
fn anything_else_is_no_header() {
    for input in [&b"GET / HTTP/1.1\r\n"[..], b"PROXX", b"\r\n\r\n\0\r\nQUIX", b"\x16\x03\x01", b"proxy TCP4"]
    {
        assert_eq!(decode(input), Err(ProxyError::Missing), "{}", input.escape_ascii());
    }
    assert_eq!(decode(b""), Ok(None));
}

//! The PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt), as sent by load balancers.
//!
//! It must be read only from trusted peers, and then be required: a client that could choose would choose its address.

#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The content of a PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeader {
    /// The connection is the sender's own (a health check), or its source is unknown: the addresses of the socket apply
    /// (§2.1 `UNKNOWN`, §2.2 `LOCAL` and unspecified families).
    Local,
    /// A connection relayed over TCP or UDP.
    Proxied {
        /// The address of the client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// A connection relayed from a Unix socket; the names are dropped.
    Unix,
}

/// Why bytes are not a PROXY header. The connection must be closed without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// They do not begin with a signature.
    #[error("no PROXY header")]
    Missing,
    /// A first line that does not follow §2.1, or is longer than 107 bytes.
    #[error("a malformed PROXY header of version 1")]
    TextInvalid,
    /// A version, command, family or length that §2.2 doesn't define.
    #[error("a malformed PROXY header of version 2")]
    BinaryInvalid,
    /// A header of version 2 that is longer than the limit.
    #[error("the PROXY header is too large")]
    TooLarge,
    /// A CRC32c that does not match the header (§2.2.3).
    #[error("the PROXY header's checksum is wrong")]
    ChecksumWrong,
}

impl ProxyError {
    /// The stable reason code, for logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "proxy_header_missing",
            Self::TextInvalid | Self::BinaryInvalid => "proxy_header_invalid",
            Self::TooLarge => "proxy_header_too_large",
            Self::ChecksumWrong => "proxy_header_checksum_wrong",
        }
    }
}

/// The longest header of version 1 including its line end (§2.1), in bytes.
pub const TEXT_LEN_MAX: usize = 107;
/// The default limit of the part after the 16 fixed bytes of version 2, in bytes.
pub const BINARY_LEN_MAX: usize = 4096;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const TYPE_CRC32C: u8 = 0x03;

/// Decodes the header at the beginning of `input`: its length and content, or `None` if it is incomplete.
///
/// # Errors
/// [`ProxyError`], as soon as it is certain.
pub fn decode(input: &[u8]) -> Result<Option<(usize, ProxyHeader)>, ProxyError> {
    decode_with_limit(input, BINARY_LEN_MAX)
}

/// Like [`decode`], with another limit for the part after the fixed bytes of version 2.
///
/// # Errors
/// As [`decode`].
pub fn decode_with_limit(input: &[u8], len_max: usize) -> Result<Option<(usize, ProxyHeader)>, ProxyError> {
    if begins_alike(input, SIGNATURE) {
        decode_binary(input, len_max)
    } else if begins_alike(input, b"PROXY ") {
        decode_text(input)
    } else {
        Err(ProxyError::Missing)
    }
}

/// Whether the shorter one is a prefix of the other.
fn begins_alike(input: &[u8], signature: &[u8]) -> bool {
    input.iter().zip(signature).all(|(one, other)| one == other)
}

/// Version 1 (§2.1): one line.
fn decode_text(input: &[u8]) -> Result<Option<(usize, ProxyHeader)>, ProxyError> {
    let window = input.get(..TEXT_LEN_MAX).unwrap_or(input);
    let Some(line_feed) = memchr::memchr(b'\n', window) else {
        return if window.len() == TEXT_LEN_MAX { Err(ProxyError::TextInvalid) } else { Ok(None) };
    };
    let line =
        window.get(..line_feed).and_then(|line| line.strip_suffix(b"\r")).ok_or(ProxyError::TextInvalid)?;
    let line = core::str::from_utf8(line).map_err(|_| ProxyError::TextInvalid)?;
    let header = parse_text(line).ok_or(ProxyError::TextInvalid)?;
    Ok(Some((line_feed + 1, header)))
}

fn parse_text(line: &str) -> Option<ProxyHeader> {
    let rest = line.strip_prefix("PROXY ")?;
    // After UNKNOWN the rest of the line must be ignored.
    if rest == "UNKNOWN" || rest.starts_with("UNKNOWN ") {
        return Some(ProxyHeader::Local);
    }
    let mut words = rest.split(' ');
    let family = words.next()?;
    let (source, destination) = (words.next()?, words.next()?);
    let (source_port, destination_port) = (parse_port(words.next()?)?, parse_port(words.next()?)?);
    if words.next().is_some() {
        return None;
    }
    let parse = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => None,
    };
    Some(ProxyHeader::Proxied {
        source: SocketAddr::new(parse(source)?, source_port),
        destination: SocketAddr::new(parse(destination)?, destination_port),
    })
}

/// Digits without a sign or leading zeros (§2.1).
fn parse_port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// Version 2 (§2.2): 16 fixed bytes, addresses, extensions.
fn decode_binary(input: &[u8], len_max: usize) -> Result<Option<(usize, ProxyHeader)>, ProxyError> {
    let version_and_command = input.get(12);
    if version_and_command.is_some_and(|byte| !matches!(byte, 0x20 | 0x21)) {
        return Err(ProxyError::BinaryInvalid);
    }
    let Some(&[command, family, high, low]) =
        input.get(12..16).and_then(|fixed| <&[u8; 4]>::try_from(fixed).ok())
    else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > len_max {
        return Err(ProxyError::TooLarge);
    }
    let end = 16 + len;
    let Some(body) = input.get(16..end) else {
        return Ok(None);
    };
    let (header, addresses_len) = match (command, family) {
        // LOCAL: the addresses must be skipped, whatever the family.
        (0x20, _) => (ProxyHeader::Local, None),
        (_, 0x00) => (ProxyHeader::Local, Some(0)),
        (_, 0x11 | 0x12) => (parse_ipv4(body).ok_or(ProxyError::BinaryInvalid)?, Some(12)),
        (_, 0x21 | 0x22) => (parse_ipv6(body).ok_or(ProxyError::BinaryInvalid)?, Some(36)),
        (_, 0x31 | 0x32) => (ProxyHeader::Unix, Some(216)),
        _ => return Err(ProxyError::BinaryInvalid),
    };
    if let Some(addresses_len) = addresses_len {
        let extensions = body.get(addresses_len..).ok_or(ProxyError::BinaryInvalid)?;
        let whole = input.get(..end).unwrap_or_default();
        check_extensions(extensions, whole, 16 + addresses_len)?;
    }
    Ok(Some((end, header)))
}

fn parse_ipv4(body: &[u8]) -> Option<ProxyHeader> {
    let (source, rest) = body.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    proxied(Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), rest)
}

fn parse_ipv6(body: &[u8]) -> Option<ProxyHeader> {
    let (source, rest) = body.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    proxied(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), rest)
}

fn proxied(source: IpAddr, destination: IpAddr, ports: &[u8]) -> Option<ProxyHeader> {
    let (source_port, rest) = ports.split_first_chunk::<2>()?;
    let (destination_port, _) = rest.split_first_chunk::<2>()?;
    Some(ProxyHeader::Proxied {
        source: SocketAddr::new(source, u16::from_be_bytes(*source_port)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(*destination_port)),
    })
}

/// Checks the extensions (§2.2): they must fill the header exactly, and a checksum must match. `offset` is their
/// position in the `whole` header.
fn check_extensions(mut extensions: &[u8], whole: &[u8], mut offset: usize) -> Result<(), ProxyError> {
    while let [kind, high, low, rest @ ..] = extensions {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, after) = rest.split_at_checked(len).ok_or(ProxyError::BinaryInvalid)?;
        if *kind == TYPE_CRC32C {
            let expected: [u8; 4] = value.try_into().map_err(|_| ProxyError::BinaryInvalid)?;
            let at = offset + 3;
            let bytes =
                whole.iter().enumerate().map(|(i, &byte)| if (at..at + 4).contains(&i) { 0 } else { byte });
            if crc32c(bytes) != u32::from_be_bytes(expected) {
                return Err(ProxyError::ChecksumWrong);
            }
            // The sum of a second checksum would include the first.
            return check_rest(after);
        }
        offset += 3 + len;
        extensions = after;
    }
    if extensions.is_empty() { Ok(()) } else { Err(ProxyError::BinaryInvalid) }
}

/// Checks the extensions after a checksum: well formed, and without a second one, so that the work is linear.
fn check_rest(mut extensions: &[u8]) -> Result<(), ProxyError> {
    while let [kind, high, low, rest @ ..] = extensions {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind == TYPE_CRC32C {
            return Err(ProxyError::BinaryInvalid);
        }
        extensions = rest.get(len..).ok_or(ProxyError::BinaryInvalid)?;
    }
    if extensions.is_empty() { Ok(()) } else { Err(ProxyError::BinaryInvalid) }
}

/// CRC32c (RFC 9260 appendix A), bit by bit: headers are short, and few have a checksum.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    })
}

//! The seam to the network through which key sets and discovery documents are fetched.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use thiserror::Error;
use url::Url;

/// Fetches a document over HTTPS. The program implements it; tests script it.
///
/// An implementation follows no redirect, sends no credentials, accepts status 200 only, verifies the server's
/// certificate, and ends by itself after [`FetchRequest::timeout`]. It checks every address that the host's name
/// resolves to with [`is_private_address`] unless private ones are allowed, and connects to the address that it
/// checked.
pub trait Fetch: Send + Sync {
    /// The body of the response to a GET, at most [`FetchRequest::bytes_max`] long.
    fn fetch<'a>(
        &'a self,
        request: FetchRequest<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send + 'a>>;
}

/// Fetches nothing: for issuers whose keys are in files or in memory, and for configurations that are only checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFetch;

impl Fetch for NoFetch {
    fn fetch<'a>(
        &'a self,
        _: FetchRequest<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send + 'a>> {
        Box::pin(async { Err(FetchError::Io("no network".to_owned())) })
    }
}

/// A document to fetch, and the limits.
#[derive(Debug, Clone, Copy)]
pub struct FetchRequest<'a> {
    /// `https`; or `http` to a loopback address if [`FetchRequest::danger_allow_http_loopback`] is set.
    pub url: &'a Url,
    /// The longest body in bytes; a longer one is [`FetchError::TooLarge`].
    pub bytes_max: usize,
    /// The time from the name resolution to the last byte.
    pub timeout: Duration,
    /// Whether the host may resolve to a private, loopback or link-local address.
    pub allow_private_addresses: bool,
    /// Whether `http` is allowed to a loopback address.
    pub danger_allow_http_loopback: bool,
    /// A PEM file of CA certificates that are trusted in addition to those of the system.
    pub ca_file: Option<&'a Path>,
}

/// Why a fetch failed. Messages are for the operator and are never shown to callers of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No complete response in time.
    #[error("timed out")]
    Timeout,
    /// The body is longer than allowed.
    #[error("the response is too large")]
    TooLarge,
    /// A redirect, which is never followed, because it would transfer trust to another server.
    #[error("the server redirects")]
    Redirect,
    /// A status other than 200.
    #[error("status {0}")]
    Status(u16),
    /// The name resolves to an address that is not allowed.
    #[error("the address is private")]
    AddressRefused,
    /// Connection, name resolution or TLS failed, or the response is malformed.
    #[error("{0}")]
    Io(String),
}

/// Whether `address` is not on the public internet: loopback, private, link-local, shared, multicast, documentation and
/// other special blocks (RFC 6890 and the IANA registries), including IPv4 in IPv6.
///
/// Requests from a gateway to such addresses are the classic attack on cloud metadata services.
#[must_use]
pub fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => is_private_v6(v6),
    }
}

fn is_private_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    v4.is_unspecified()
        || v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_broadcast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b)) // RFC 6598, shared between carriers
        || (a == 192 && b == 0 && c == 0) // RFC 6890 §2.1, protocol assignments
        || (a == 198 && (b & 0xfe) == 18) // RFC 2544, benchmarks
}

fn is_private_v6(v6: Ipv6Addr) -> bool {
    let segments = v6.segments();
    let [first, second, ..] = segments;
    if let Some(v4) = v6.to_ipv4_mapped() {
        return is_private_v4(v4);
    }
    let [.., high, low] = segments;
    let last = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // ::/96 with :: and ::1, the deprecated IPv4-compatible block.
        [0, 0, 0, 0, 0, 0, ..] => true,
        // 64:ff9b::/96 (RFC 6052) contains the IPv4 address in its last bits.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_private_v4(last),
        // 64:ff9b:1::/48 (RFC 8215), local use.
        [0x64, 0xff9b, 1, ..] => true,
        // 2002::/16 (6to4): the IPv4 address follows the prefix.
        [0x2002, high, low, ..] => is_private_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))),
        _ => {
            v6.is_multicast()
                || (first & 0xfe00) == 0xfc00 // RFC 4193, unique local
                || (first & 0xffc0) == 0xfe80 // link-local
                || (first & 0xffc0) == 0xfec0 // site-local, deprecated
                || (first == 0x2001 && second < 0x0200) // RFC 2928, Teredo and other protocols
                || (first == 0x2001 && second == 0x0db8) // RFC 3849, documentation
                || (first == 0x0100 && second == 0) // RFC 6666, discard
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_addresses_that_are_not_public() {
        let private = [
            "0.0.0.0",
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "100::1",
        ];
        let public = [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::",
            "2a00:1450::1",
        ];
        for address in private {
            assert!(is_private_address(address.parse().unwrap()), "{address}");
        }
        for address in public {
            assert!(!is_private_address(address.parse().unwrap()), "{address}");
        }
    }
}

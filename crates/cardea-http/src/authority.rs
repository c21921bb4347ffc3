//! Authorities: the normal form of host and port, and the authority of a request.

#[cfg(test)]
mod tests;

use core::fmt::{self, Write as _};
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::chars::{self, HOST};
use crate::{Known, RequestError, RequestHead, Target, Version};

/// The supported schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl Scheme {
    /// The scheme's name: `http` or `https`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The default port: 80 or 443 (RFC 9110 §4.2.1, §4.2.2).
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A host and a port in normal form (RFC 3986 §6.2.2, §6.2.3): lower case, without a trailing dot, without the scheme's
/// default port, an IPv6 address in brackets in its shortest form (RFC 5952).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Authority {
    text: String,
    host_len: usize,
    port: Option<u16>,
}

/// Why bytes are not an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// No host, or an empty label in it.
    #[error("the host is empty or has an empty label")]
    HostEmpty,
    /// A byte that no host name contains. Percent-encoded and non-ASCII names are refused too.
    #[error("a byte that no host name has")]
    HostInvalid,
    /// Longer than 253 bytes (RFC 1035 §2.3.4).
    #[error("the host is too long")]
    HostTooLong,
    /// A host that ends in a number without being an IPv4 address, or a malformed IPv6 one.
    #[error("the host is a malformed address")]
    AddressInvalid,
    /// User information (RFC 9110 §4.2.4).
    #[error("the authority has user information")]
    UserInfo,
    /// Not a number from 1 to 65535.
    #[error("the port is not valid")]
    PortInvalid,
}

impl Authority {
    /// The longest host name, in bytes.
    pub const HOST_LEN_MAX: usize = 253;

    /// Parses and normalises an authority. A port may be empty, which means the default port (RFC 3986 §3.2.3).
    ///
    /// # Errors
    /// [`AuthorityError`] for anything but a plain host with an optional port.
    pub fn parse(bytes: &[u8], scheme: Scheme) -> Result<Self, AuthorityError> {
        let mut authority = Self::default();
        authority.parse_into(bytes, scheme)?;
        Ok(authority)
    }

    /// Like [`Authority::parse`], but reuses the memory of this one, which is empty after an error.
    ///
    /// # Errors
    /// As [`Authority::parse`].
    pub fn parse_into(&mut self, bytes: &[u8], scheme: Scheme) -> Result<(), AuthorityError> {
        self.text.clear();
        // The normal form is not longer, so there is at most one allocation.
        self.text.reserve(bytes.len().min(Self::HOST_LEN_MAX + ":65535".len()));
        self.host_len = 0;
        self.port = None;
        let result = self.fill(bytes, scheme);
        if result.is_err() {
            self.text.clear();
            self.host_len = 0;
            self.port = None;
        }
        result
    }

    /// The host. An IPv6 address has brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.text.get(..self.host_len).unwrap_or_default()
    }

    /// The port, unless it is the scheme's default.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The host, and the port unless it is the default, as in `Host`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn fill(&mut self, bytes: &[u8], scheme: Scheme) -> Result<(), AuthorityError> {
        let port = if let Some(rest) = bytes.strip_prefix(b"[") {
            let end = memchr::memchr(b']', rest).ok_or(AuthorityError::AddressInvalid)?;
            let (address, rest) = rest.split_at_checked(end).ok_or(AuthorityError::AddressInvalid)?;
            self.push_ipv6(address)?;
            rest.strip_prefix(b"]").unwrap_or_default()
        } else {
            let end = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
            let (host, port) = bytes.split_at_checked(end).unwrap_or((bytes, b""));
            if memchr::memchr(b'@', bytes).is_some() {
                return Err(AuthorityError::UserInfo);
            }
            self.push_name(host)?;
            port
        };
        self.host_len = self.text.len();
        let port = match port {
            [] | b":" => None,
            [b':', digits @ ..] => Some(parse_port(digits)?),
            _ => return Err(AuthorityError::PortInvalid),
        };
        self.port = port.filter(|&port| port != scheme.default_port());
        if let Some(port) = self.port {
            self.text.push(':');
            self.text.push_str(itoa::Buffer::new().format(port));
        }
        Ok(())
    }

    fn push_name(&mut self, host: &[u8]) -> Result<(), AuthorityError> {
        let host = host.strip_suffix(b".").unwrap_or(host);
        if host.len() > Self::HOST_LEN_MAX {
            return Err(AuthorityError::HostTooLong);
        }
        if !host.iter().all(|&byte| chars::is(byte, HOST)) {
            return Err(AuthorityError::HostInvalid);
        }
        if host.split(|&byte| byte == b'.').any(<[u8]>::is_empty) {
            return Err(AuthorityError::HostEmpty);
        }
        self.text.push_str(core::str::from_utf8(host).map_err(|_| AuthorityError::HostInvalid)?);
        self.text.make_ascii_lowercase();
        // `127.1`, `0x7f.1` and `2130706433` are addresses to some resolvers and names to others.
        let last = self.text.rsplit('.').next().unwrap_or_default();
        let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if numeric && self.text.parse::<Ipv4Addr>().is_err() {
            return Err(AuthorityError::AddressInvalid);
        }
        Ok(())
    }

    /// Without a zone, which is not allowed in URIs (RFC 6874 was withdrawn by RFC 9844).
    fn push_ipv6(&mut self, address: &[u8]) -> Result<(), AuthorityError> {
        let address = core::str::from_utf8(address).map_err(|_| AuthorityError::AddressInvalid)?;
        let address: Ipv6Addr = address.parse().map_err(|_| AuthorityError::AddressInvalid)?;
        write!(self.text, "[{address}]").map_err(|_| AuthorityError::AddressInvalid)
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl AuthorityError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::HostEmpty => "host_empty",
            Self::HostInvalid => "host_invalid",
            Self::HostTooLong => "host_too_long",
            Self::AddressInvalid => "host_address_invalid",
            Self::UserInfo => "host_user_info",
            Self::PortInvalid => "host_port_invalid",
        }
    }

    /// The status of the response.
    #[must_use]
    pub const fn status(&self) -> u16 {
        400
    }
}

/// The authority that was parsed last. Most requests of a client have the same, which is compared and not parsed again.
#[derive(Debug, Default)]
pub struct LastAuthority {
    /// What was parsed.
    bytes: Vec<u8>,
    /// The scheme that it was parsed for; none if there is no authority.
    scheme: Option<Scheme>,
    authority: Authority,
}

impl LastAuthority {
    /// As [`Authority::parse`].
    fn parse(&mut self, bytes: &[u8], scheme: Scheme) -> Result<Authority, AuthorityError> {
        if self.scheme != Some(scheme) || self.bytes != bytes {
            self.scheme = None;
            self.authority.parse_into(bytes, scheme)?;
            self.scheme = Some(scheme);
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        }
        Ok(self.authority.clone())
    }
}

/// The one authority that a request is for. `scheme` is the connection's.
///
/// Exactly one `Host` is demanded from HTTP/1.1. HTTP/1.0 may leave it out if the target is absolute, and HTTP/2
/// if the target carries `:authority`. Where there are both they must agree once normalised, also where RFC 9112
/// §3.2.2 would have `Host` ignored: two readers must not find two hosts. An absolute target must have the
/// connection's scheme (RFC 9110 §7.4).
///
/// # Errors
/// [`RequestError`] if there is none, more than one, a malformed one, or two that disagree.
pub fn request_authority(
    head: &RequestHead,
    target: &Target<'_>,
    scheme: Scheme,
    last: &mut LastAuthority,
) -> Result<Authority, RequestError> {
    let mut hosts = head.fields.get_all(Known::Host);
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(RequestError::HostRepeated);
    }
    if target.scheme.is_some_and(|named| named != scheme) {
        return Err(RequestError::SchemeDisagrees);
    }
    let from_host = match host {
        Some(host) => Some(last.parse(host, scheme)?),
        None if head.version == Version::Http11 => return Err(RequestError::HostMissing),
        None => None,
    };
    let from_target = match target.authority {
        Some(authority) => Some(last.parse(authority, scheme)?),
        None => None,
    };
    match (from_target, from_host) {
        (Some(target), Some(host)) if target != host => Err(RequestError::HostDisagrees),
        (Some(authority), _) | (None, Some(authority)) => Ok(authority),
        (None, None) => Err(RequestError::HostMissing),
    }
}

fn parse_port(digits: &[u8]) -> Result<u16, AuthorityError> {
    if digits.len() > 5 {
        return Err(AuthorityError::PortInvalid);
    }
    let mut port: u32 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(AuthorityError::PortInvalid);
        }
        port = port * 10 + u32::from(digit - b'0');
    }
    match u16::try_from(port) {
        Ok(0) | Err(_) => Err(AuthorityError::PortInvalid),
        Ok(port) => Ok(port),
    }
}

//! Where an endpoint listens: an IP address or a Unix socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// The longest path of a Unix socket, in bytes: `sun_path` has 108 with the zero at its end (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Where an endpoint listens. What [`fmt::Display`] writes, [`FromStr`] reads back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `127.0.0.1:80` or `[::1]:80`.
    Tcp(SocketAddr),
    /// `unix:/path`.
    Unix(PathBuf),
}

/// Why a text is no address. The text is the configuration's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// There is no port, or it is not a number from 1 to 65535.
    #[error("{0:?} has no port between 1 and 65535 at its end")]
    Port(String),
    /// No IP address (an IPv6 address needs brackets).
    #[error("{0:?} is no IP address (IPv6 in brackets)")]
    Host(String),
    /// A path that is relative, too long or contains a zero byte.
    #[error("{0:?} is no absolute path of at most {SOCKET_PATH_MAX} bytes")]
    Path(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/')
                || path.ends_with('/')
                || path.len() > SOCKET_PATH_MAX
                || path.contains('\0')
            {
                return Err(AddressError::Path(text.to_owned()));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        host_and_port(text).ok_or_else(|| AddressError::Port(text.to_owned()))?;
        text.parse().map(Self::Tcp).map_err(|_| AddressError::Host(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What is before the last colon, and the port behind it, which is not 0.
pub(crate) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    // `u16::from_str` alone would take "+80".
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    port.parse().ok().filter(|port| *port != 0).map(|port| (host, port))
}

/// Whether a text is a host name (RFC 1123 §2.1 with RFC 1035 §2.3.4), without a final dot. `_` is allowed too, because
/// internal names use it. A last label of digits alone is a malformed IPv4 address (RFC 1123 §2.1), not a name.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let numeric = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && !numeric && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, wanted) in [
            ("127.0.0.1:80", Address::Tcp("127.0.0.1:80".parse().unwrap())),
            ("[::1]:8080", Address::Tcp("[::1]:8080".parse().unwrap())),
            ("unix:/run/a b.sock", Address::Unix("/run/a b.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(wanted.clone()), "{text}");
            assert_eq!(wanted.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "name",
            "127.0.0.1",
            "name:",
            "name:0",
            "name:65536",
            "name:+80",
            "name:-1",
            "[::1]:0",
            "::1",
        ] {
            assert!(
                matches!(text.parse::<Address>(), Err(AddressError::Port(_) | AddressError::Host(_))),
                "{text}"
            );
        }
        for text in [":80", "name:80", "::1:80", "[::1:80", "[name]:80", "1.2.3:80", "1.2.3.256:80"] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Host(text.into())), "{text}");
        }
        for text in ["unix:", "unix:run/a", "unix:/a\0b", &format!("unix:/{}", "a".repeat(107))] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Path(text.into())), "{text}");
        }
    }
}

//! Request methods: the registered ones, and any other token, without an allocation.

use core::fmt;

use crate::chars::is_token;

/// A request method (RFC 9110 §9, RFC 5789). Methods are case-sensitive: `get` is not `GET`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Method {
    /// `GET`.
    #[default]
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `CONNECT`.
    Connect,
    /// `OPTIONS`.
    Options,
    /// `TRACE`.
    Trace,
    /// `PATCH`.
    Patch,
    /// Any other token.
    Other(OtherMethod),
}

/// A method that is not one of the named ones: a token of at most [`OtherMethod::LEN_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OtherMethod {
    len: u8,
    bytes: [u8; OtherMethod::LEN_MAX],
}

/// Why bytes are not a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// Empty, or not a token (RFC 9110 §9.1).
    #[error("the method is not a token")]
    Invalid,
    /// Longer than [`OtherMethod::LEN_MAX`]: no implemented method is (RFC 9112 §3 requires 501).
    #[error("the method is too long")]
    TooLong,
}

impl Method {
    /// Parses a method.
    ///
    /// # Errors
    /// [`MethodError`] if `bytes` is no token or too long.
    pub fn parse(bytes: &[u8]) -> Result<Self, MethodError> {
        Ok(match bytes {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            other => Self::Other(OtherMethod::parse(other)?),
        })
    }

    /// The method as it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other(other) => other.as_str(),
        }
    }

    /// Whether the method is safe (RFC 9110 §9.2.1). Unknown methods are not.
    #[must_use]
    pub const fn is_safe(&self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Whether the method is idempotent (RFC 9110 §9.2.2). Unknown methods are not.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }
}

impl OtherMethod {
    /// The longest supported method, in bytes.
    pub const LEN_MAX: usize = 23;

    fn parse(bytes: &[u8]) -> Result<Self, MethodError> {
        if !is_token(bytes) {
            return Err(MethodError::Invalid);
        }
        let len = u8::try_from(bytes.len()).map_err(|_| MethodError::TooLong)?;
        let mut held = [0; Self::LEN_MAX];
        held.get_mut(..bytes.len()).ok_or(MethodError::TooLong)?.copy_from_slice(bytes);
        Ok(Self { len, bytes: held })
    }

    /// The method as it was received.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // A token is ASCII, so the fallbacks are unreachable.
        self.bytes
            .get(..usize::from(self.len))
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("")
    }
}

impl MethodError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid => "method_invalid",
            Self::TooLong => "method_too_long",
        }
    }

    /// The status of the response.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::TooLong => 501,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for OtherMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_prints_as_it_was_read_and_is_small() {
        for name in [
            "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "get",
        ] {
            let method = Method::parse(name.as_bytes()).unwrap();
            assert_eq!(method.as_str(), name);
            assert_eq!(matches!(method, Method::Other(_)), matches!(name, "PROPFIND" | "get"));
        }
        assert!(size_of::<Method>() <= 25);
    }

    #[test]
    fn invalid_and_too_long_tokens_are_refused() {
        for bad in [&b""[..], b"GE T", b"GET\x01", b"G(T", b"G\xC3\xA9T", b"GET:"] {
            assert_eq!(Method::parse(bad), Err(MethodError::Invalid), "{bad:?}");
        }
        assert!(Method::parse(&[b'A'; 23]).is_ok());
        assert_eq!(Method::parse(&[b'A'; 24]), Err(MethodError::TooLong));
        assert_eq!(Method::parse(&[b'A'; 300]), Err(MethodError::TooLong));
    }

    #[test]
    fn only_registered_methods_count_as_safe_or_idempotent() {
        let table = [
            ("GET", true, true),
            ("PUT", false, true),
            ("POST", false, false),
            ("PATCH", false, false),
            ("get", false, false),
        ];
        for (name, safe, idempotent) in table {
            let method = Method::parse(name.as_bytes()).unwrap();
            assert_eq!((method.is_safe(), method.is_idempotent()), (safe, idempotent), "{name}");
        }
    }
}

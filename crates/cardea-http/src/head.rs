//! The heads of messages.

use core::fmt;

use crate::{Fields, Method, Version};

/// The head of a request, of any HTTP version. Reuse it: [`RequestHead::clear`] keeps the memory.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The version of the request.
    pub version: Version,
    /// The field lines, in order.
    pub fields: Fields,
    // Visible in the crate for struct update syntax in tests.
    pub(crate) target: Vec<u8>,
}

impl RequestHead {
    /// The request target as received (RFC 9112 §3.2); [`crate::parse_target`] parses it.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// The allocated bytes, used or not.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.fields.memory_bytes() + self.target.capacity()
    }

    /// Replaces the request target. [`crate::parse_target`] validates it.
    pub fn set_target(&mut self, target: &[u8]) {
        self.target.clear();
        self.target.extend_from_slice(target);
    }

    /// Resets it to the default, `GET / HTTP/1.1` without fields, keeping the memory for the next request.
    pub fn clear(&mut self) {
        self.method = Method::Get;
        self.version = Version::Http11;
        self.fields.clear();
        self.set_target(b"/");
    }
}

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            method: Method::Get,
            version: Version::Http11,
            fields: Fields::default(),
            target: b"/".to_vec(),
        }
    }
}

impl fmt::Debug for RequestHead {
    /// Omits the query, which may contain secrets, and redacts credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.target.splitn(2, |&byte| byte == b'?');
        let path = parts.next().unwrap_or_default().escape_ascii();
        let query = if parts.next().is_some() { "?[redacted]" } else { "" };
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("target", &format_args!("{path}{query}"))
            .field("version", &self.version)
            .field("fields", &self.fields)
            .finish()
    }
}

/// The head of a response, of any HTTP version. The reason phrase is not kept: a recipient should ignore it
/// (RFC 9112 §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 599.
    pub status: u16,
    /// The version of the response.
    pub version: Version,
    /// The field lines, in order.
    pub fields: Fields,
}

impl ResponseHead {
    /// A head without fields.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, version: Version::Http11, fields: Fields::default() }
    }

    /// Resets it to the default, `HTTP/1.1 200` without fields, keeping the memory for the next response.
    pub fn clear(&mut self) {
        self.status = 200;
        self.version = Version::Http11;
        self.fields.clear();
    }
}

impl Default for ResponseHead {
    fn default() -> Self {
        Self::new(200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;

    #[test]
    fn debug_output_has_no_secret() {
        let mut head = RequestHead::default();
        head.set_target(b"/cb?code=s3cret");
        head.fields.append(b"authorization", b"Bearer s3cret").unwrap();
        head.fields.append_known(Known::Cookie, b"sid=s3cret").unwrap();
        head.fields.append_known(Known::Accept, b"*/*").unwrap();
        let text = format!("{head:?}");
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("/cb?[redacted]") && text.contains("*/*"), "{text}");
    }

    #[test]
    fn clear_gives_the_default_back() {
        let mut head =
            RequestHead { method: Method::Put, version: Version::Http10, ..RequestHead::default() };
        head.set_target(b"/x");
        head.fields.append(b"a", b"b").unwrap();
        head.clear();
        assert_eq!(head, RequestHead::default());
        assert_eq!(head.target(), b"/");
    }
}

//! The replies of the authorization server: JSON with the header fields that the RFCs require.

use std::fmt;

use serde::Serialize;

/// A reply, which the gateway sends.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Header fields with lower-case names.
    pub headers: Vec<(&'static str, String)>,
    /// JSON. In a 200 reply it contains a token.
    pub body: String,
    /// Why the request was refused, for the log and the metrics and not for the client: one of a small set of stable
    /// codes.
    pub reason: Option<&'static str>,
    /// Whether the credentials of the request were wrong, or were too often.
    pub credentials_failed: bool,
}

impl Reply {
    /// JSON that must not be cached (RFC 6749 §5.1).
    pub(crate) fn json(status: u16, body: String) -> Self {
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("cache-control", "no-store".to_owned()),
            ("pragma", "no-cache".to_owned()),
        ];
        Self { status, headers, body, reason: None, credentials_failed: false }
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error body is shown in full; a 200 body contains a token.
        let body = if self.status == 200 { "redacted" } else { &self.body };
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("reason", &self.reason)
            .field("body", &body)
            .finish()
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    error_description: &'a str,
}

/// An error response of RFC 6749 §5.2. The gateway's own refusals (throttle, overload) use it too, so that a client of
/// the token endpoint needs to understand only one format. Characters that the RFC forbids in these values are
/// replaced.
#[must_use]
pub fn error_reply(error: &str, description: &str, status: u16) -> Reply {
    let (error, description) = (permitted(error), permitted(description));
    let body = ErrorBody { error: &error, error_description: &description };
    let json = serde_json::to_string(&body).unwrap_or_else(|_| r#"{"error":"server_error"}"#.to_owned());
    Reply::json(status, json)
}

/// RFC 6749 §5.2: `%x20-21 / %x23-5B / %x5D-7E`.
fn permitted(text: &str) -> String {
    text.chars()
        .map(|c| if matches!(c, '\x20'..='\x21' | '\x23'..='\x5B' | '\x5D'..='\x7E') { c } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_shape_and_is_never_cached() {
        let reply = error_reply("temporarily_unavailable", "too many requests", 429);
        assert_eq!(reply.status, 429);
        assert_eq!(
            reply.body,
            r#"{"error":"temporarily_unavailable","error_description":"too many requests"}"#
        );
        assert!(reply.headers.contains(&("content-type", "application/json".into())));
        assert!(reply.headers.contains(&("cache-control", "no-store".into())));
    }

    #[test]
    fn debug_shows_a_refusal_and_no_token() {
        let token = Reply::json(200, r#"{"access_token":"eyJ"}"#.into());
        assert!(!format!("{token:?}").contains("eyJ"));
        assert!(format!("{:?}", error_reply("invalid_scope", "no", 400)).contains("invalid_scope"));
    }

    #[test]
    fn forbidden_characters_are_replaced() {
        assert_eq!(permitted("a\"b\\c\r\né~"), "a?b?c???~");
    }
}

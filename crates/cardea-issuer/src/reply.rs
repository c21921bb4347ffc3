//! What the authorization server answers: JSON with the headers that the RFCs ask for.

use std::fmt;

use serde::Serialize;

/// An answer, for the gateway to carry.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Header fields; names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// JSON. In an answer of 200 it contains a token.
    pub body: String,
    /// Why the request was refused, for the log and the metrics and not for the client: a stable code of a small set.
    pub reason: Option<&'static str>,
}

impl Reply {
    /// JSON that nobody may keep (RFC 6749 §5.1).
    pub(crate) fn json(status: u16, body: String) -> Self {
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("cache-control", "no-store".to_owned()),
            ("pragma", "no-cache".to_owned()),
        ];
        Self { status, headers, body, reason: None }
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
        // A refusal shows all of itself; a success is a token.
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

/// An error in the shape of RFC 6749 §5.2, for the refusals of the gateway's guards too (a throttle, an
/// overload), so that a client of the token endpoint need understand only one. Characters that the RFC
/// forbids in these values are replaced.
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

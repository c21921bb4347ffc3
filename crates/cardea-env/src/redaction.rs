//! Redaction of credentials and secrets in requests.

use std::sync::Arc;

use crate::value::Value;

#[cfg(test)]
mod tests;

/// Header fields with credentials, of requests and responses.
pub const SECRET_HEADERS: &[&str] = &["authorization", "proxy-authorization", "cookie", "set-cookie"];

/// Query parameters with secrets: tokens and codes of OAuth 2.0 (RFC 6749, RFC 6750 §2.3, RFC 7523) and OpenID Connect,
/// SAML messages, signed URLs of object stores, and common names of keys and passwords.
pub const SECRET_PARAMETERS: &[&str] = &[
    "access_token",
    "api_key",
    "apikey",
    "assertion",
    "auth",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "id_token",
    "id_token_hint",
    "key",
    "passwd",
    "password",
    "refresh_token",
    "saml_response",
    "samlresponse",
    "secret",
    "sig",
    "signature",
    "token",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
];

/// The replacement of a secret.
pub(crate) const REDACTED: &[u8] = b"[redacted]";

/// The values that logs and templates must not show. Names and parameters are case-insensitive.
///
/// A secret is still readable for policies and raw templates, which show nothing. A custom attribute whose source reads
/// a secret is a secret itself.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    families: Vec<String>,
    members: Vec<(String, Arc<str>)>,
    queries: Vec<Query>,
}

/// A value that is a query, or a URI with one.
#[derive(Clone, Debug)]
struct Query {
    /// An attribute, or the prefix of a family.
    name: String,
    /// The member of the family.
    key: Option<String>,
    secret: Arc<[Box<str>]>,
}

/// The secret part of a value.
#[derive(Clone, Debug)]
pub(crate) enum Hide {
    /// All of it.
    Whole,
    /// The values of these keys of a map.
    Keys(Arc<[Arc<str>]>),
    /// The values of these parameters of a query, or of a URI's query.
    Query(Arc<[Box<str>]>),
}

impl Redaction {
    /// Shows everything.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Redacts a member of a family: `("request.headers.", "cookie")`.
    #[must_use]
    pub fn member(mut self, prefix: &str, key: &str) -> Self {
        self.members.push((prefix.to_owned(), key.into()));
        self
    }

    /// Redacts all members of a family: `"request.cookies."`.
    #[must_use]
    pub fn family(mut self, prefix: &str) -> Self {
        self.families.push(prefix.to_owned());
        self
    }

    /// Redacts the values of these parameters in an attribute that is a query (`request.query`) or a URI.
    #[must_use]
    pub fn query<S: Into<Box<str>>>(self, attribute: &str, parameters: impl IntoIterator<Item = S>) -> Self {
        self.with_query(attribute, None, parameters)
    }

    /// Redacts the values of these query parameters in a family member that is a URI (`("request.headers.",
    /// "referer")`).
    #[must_use]
    pub fn query_of_member<S: Into<Box<str>>>(
        self,
        prefix: &str,
        key: &str,
        parameters: impl IntoIterator<Item = S>,
    ) -> Self {
        self.with_query(prefix, Some(key.to_owned()), parameters)
    }

    fn with_query<S: Into<Box<str>>>(
        mut self,
        name: &str,
        key: Option<String>,
        parameters: impl IntoIterator<Item = S>,
    ) -> Self {
        let secret = parameters.into_iter().map(Into::into).collect();
        self.queries.push(Query { name: name.to_owned(), key, secret });
        self
    }

    pub(crate) fn of_attribute(&self, name: &str) -> Option<Hide> {
        let query = self.queries.iter().find(|query| query.name == name && query.key.is_none());
        query.map(|query| Hide::Query(Arc::clone(&query.secret)))
    }

    pub(crate) fn of_member(&self, prefix: &str, key: &str) -> Option<Hide> {
        let whole = self.families.iter().any(|known| known == prefix)
            || self.members.iter().any(|(known, secret)| known == prefix && secret.eq_ignore_ascii_case(key));
        if whole {
            return Some(Hide::Whole);
        }
        let of = |query: &&Query| {
            let known = query.key.as_deref();
            query.name == prefix && known.is_some_and(|known| known.eq_ignore_ascii_case(key))
        };
        self.queries.iter().find(of).map(|query| Hide::Query(Arc::clone(&query.secret)))
    }

    pub(crate) fn of_family(&self, prefix: &str) -> Option<Hide> {
        if self.families.iter().any(|known| known == prefix) {
            return Some(Hide::Whole);
        }
        let members =
            self.members.iter().filter(|(known, _)| known == prefix).map(|(_, key)| Arc::clone(key));
        // A member that is a URI is hidden entirely in the map, because maps are not searched.
        let queries = self.queries.iter().filter(|query| query.name == prefix);
        let queries = queries.filter_map(|query| query.key.as_deref().map(Arc::from));
        let keys: Arc<[Arc<str>]> = members.chain(queries).collect();
        (!keys.is_empty()).then_some(Hide::Keys(keys))
    }
}

impl Hide {
    /// The shown value of an entry of a map.
    pub(crate) fn entry<'a>(keys: &[Arc<str>], key: Value<'_>, value: Value<'a>) -> Value<'a> {
        let hidden = |key: &[u8]| keys.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(key));
        match key {
            Value::Bytes(key) if !hidden(key) => value,
            _ => Value::Bytes(REDACTED),
        }
    }
}

/// The parts of a query, or of a URI with one, with the values of secret parameters replaced.
///
/// Parameters are separated by `?`, `#`, `&` and `;`; their names may be percent-encoded. A fragment counts too,
/// because some OAuth 2.0 responses use it. Without secrets, the parts together are the text.
pub(crate) fn shown_query<'a>(text: &'a [u8], secret: &'a [Box<str>]) -> impl Iterator<Item = &'a [u8]> {
    text.split_inclusive(ends_parameter).flat_map(move |parameter| {
        match parameter.iter().position(|byte| *byte == b'=') {
            Some(equals) if is_secret(&parameter[..equals], secret) => {
                let end = parameter.len() - usize::from(parameter.last().is_some_and(ends_parameter));
                [&parameter[..=equals], REDACTED, &parameter[end..]]
            }
            _ => [parameter, b"", b""],
        }
    })
}

fn ends_parameter(byte: &u8) -> bool {
    matches!(byte, b'&' | b';' | b'#' | b'?')
}

/// Whether a name, possibly percent-encoded, is one of these. Brackets with their content are ignored (`token[]`).
fn is_secret(name: &[u8], secret: &[Box<str>]) -> bool {
    secret.iter().any(|secret| {
        let mut rest = decoded(name);
        secret.bytes().all(|expected| rest.next().is_some_and(|byte| byte.eq_ignore_ascii_case(&expected)))
            && matches!(rest.next(), None | Some(b'['))
    })
}

/// Text with valid percent-encodings decoded.
fn decoded(text: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (first, tail) = rest.split_first()?;
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                rest = &tail[2..];
                Some((high * 16 + low) as u8)
            }
            _ => {
                rest = tail;
                Some(*first)
            }
        }
    })
}

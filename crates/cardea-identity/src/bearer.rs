//! The token in the `Authorization` field (RFC 6750 §2.1, RFC 9110 §11.4); never in query or body.

use thiserror::Error;

use crate::jws::TOKEN_BYTES_MAX;

/// The longest accepted value of `Authorization`, in bytes.
pub const CREDENTIALS_BYTES_MAX: usize = TOKEN_BYTES_MAX + SCHEME.len() + 64;

const SCHEME: &[u8] = b"bearer";

/// Why the `Authorization` fields of a request contain no acceptable bearer token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CredentialsError {
    /// More than one field, of which two parsers could take different ones. 400 `invalid_request`.
    #[error("more than one Authorization field")]
    Repeated,
    /// Credentials of another scheme. A route that requires a bearer token treats them as missing: 401 with a challenge
    /// without `error` (RFC 6750 §3.1).
    #[error("the credentials are not a bearer token")]
    OtherScheme,
    /// The bearer scheme with a token that violates the grammar. 400 `invalid_request`.
    #[error("the bearer credentials are malformed")]
    Malformed,
    /// Longer than [`CREDENTIALS_BYTES_MAX`]. 400 `invalid_request`.
    #[error("the credentials are too long")]
    TooLong,
}

impl CredentialsError {
    /// The stable reason code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Repeated => "authorization_repeated",
            Self::OtherScheme => "authorization_scheme",
            Self::Malformed => "authorization_malformed",
            Self::TooLong => "authorization_too_long",
        }
    }

    /// Whether the request is malformed (400 `invalid_request`) rather than without credentials (401).
    #[must_use]
    pub const fn is_bad_request(&self) -> bool {
        !matches!(self, Self::OtherScheme)
    }
}

/// Bearer credentials whose token has not been checked.
#[derive(Clone, Copy)]
pub struct BearerCredentials<'a>(&'a [u8]);

impl<'a> BearerCredentials<'a> {
    /// The unchecked bytes of the token. They may only be compared with those of an accepted token.
    pub(crate) const fn unchecked(self) -> &'a [u8] {
        self.0
    }

    /// The token: `b64token` (RFC 6750 §2.1), which excludes lists and parameters.
    ///
    /// # Errors
    /// [`CredentialsError::Malformed`] or [`CredentialsError::TooLong`].
    pub fn token(self) -> Result<&'a [u8], CredentialsError> {
        let Self(token) = self;
        let padding = token.iter().rev().take_while(|&&byte| byte == b'=').count();
        let body = token.get(..token.len() - padding).unwrap_or_default();
        if body.is_empty() || !body.iter().all(|&byte| is_b64token_byte(byte)) {
            return Err(CredentialsError::Malformed);
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(CredentialsError::TooLong);
        }
        Ok(token)
    }
}

impl std::fmt::Debug for BearerCredentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BearerCredentials").finish_non_exhaustive()
    }
}

/// The bearer token among the values of all `Authorization` fields; `None` without such a field.
///
/// # Errors
/// [`CredentialsError`]. Its variants name the response.
pub fn bearer_token<'a>(
    authorization_values: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<&'a [u8]>, CredentialsError> {
    bearer_credentials(authorization_values)?.map(BearerCredentials::token).transpose()
}

/// The bearer credentials among the values of all `Authorization` fields; `None` without such a field.
///
/// The values have no surrounding white space. The scheme is case-insensitive.
///
/// # Errors
/// [`CredentialsError`]. Its variants name the response.
pub fn bearer_credentials<'a>(
    mut authorization_values: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<BearerCredentials<'a>>, CredentialsError> {
    let Some(value) = authorization_values.next() else {
        return Ok(None);
    };
    if authorization_values.next().is_some() {
        return Err(CredentialsError::Repeated);
    }
    if value.len() > CREDENTIALS_BYTES_MAX {
        return Err(CredentialsError::TooLong);
    }
    // The usual spelling.
    if let Some(token) = value.strip_prefix(b"Bearer ").filter(|token| !token.starts_with(b" ")) {
        return Ok(Some(BearerCredentials(token)));
    }
    let end = value.iter().position(|&byte| byte == b' ');
    let (scheme, rest) = value.split_at(end.unwrap_or(value.len()));
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        // A tab or comma after the scheme's name doesn't make it another scheme.
        let name = scheme.get(..SCHEME.len()).unwrap_or_default();
        let separated = scheme.get(SCHEME.len()).is_some_and(|byte| !is_token_byte(*byte));
        return Err(if name.eq_ignore_ascii_case(SCHEME) && separated {
            CredentialsError::Malformed
        } else {
            CredentialsError::OtherScheme
        });
    }
    let blanks = rest.iter().take_while(|&&byte| byte == b' ').count();
    Ok(Some(BearerCredentials(rest.get(blanks..).unwrap_or_default())))
}

const fn is_b64token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/')
}

/// `tchar` (RFC 9110 §5.6.2), the characters of a scheme name.
const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: &[u8]) -> Result<Option<&[u8]>, CredentialsError> {
        bearer_token(std::iter::once(value))
    }

    #[test]
    fn reads_the_grammar_of_rfc_6750() {
        use CredentialsError::{Malformed, OtherScheme, TooLong};
        let table: &[(&str, Result<&str, CredentialsError>)] = &[
            ("Bearer abc", Ok("abc")),
            ("bearer abc", Ok("abc")),
            ("BEARER   a.b-c_d~e+f/g==", Ok("a.b-c_d~e+f/g==")),
            ("Bearer", Err(Malformed)),
            ("Bearer ", Err(Malformed)),
            ("Bearer ==", Err(Malformed)),
            ("Bearer a b", Err(Malformed)),
            ("Bearer a, Bearer b", Err(Malformed)),
            ("Bearer a=b", Err(Malformed)),
            ("Bearer \"a\"", Err(Malformed)),
            ("Bearer\ta", Err(Malformed)),
            ("Bearer a ", Err(Malformed)),
            ("Bearer a\u{e9}", Err(Malformed)),
            ("Bearer,a", Err(Malformed)),
            ("Basic abc", Err(OtherScheme)),
            ("Bearerabc", Err(OtherScheme)),
            ("Bearer2 abc", Err(OtherScheme)),
            ("DPoP abc", Err(OtherScheme)),
            ("", Err(OtherScheme)),
            (" Bearer abc", Err(OtherScheme)),
        ];
        for (value, expected) in table {
            let found = one(value.as_bytes());
            assert_eq!(found, expected.map(|token| Some(token.as_bytes())), "{value:?}");
        }
        let long = format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX + 1));
        assert_eq!(one(long.as_bytes()), Err(TooLong));
        let longest = format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX));
        assert!(one(longest.as_bytes()).is_ok());
    }

    #[test]
    fn none_is_anonymous_and_two_are_refused() {
        assert_eq!(bearer_token(std::iter::empty()), Ok(None));
        let twice = [&b"Bearer a"[..], b"Bearer a"];
        assert_eq!(bearer_token(twice.into_iter()), Err(CredentialsError::Repeated));
        let mixed = [&b"Basic a"[..], b"Bearer a"];
        assert_eq!(bearer_token(mixed.into_iter()), Err(CredentialsError::Repeated));
    }
}

//! Decodes a token for its holder, without verification.

use std::fmt;

use serde_json::{Map, Value};

use crate::error::TokenError;
use crate::json;
use crate::jws::Compact;

/// The unverified content of a token. No decision may be based on it.
#[derive(Clone, PartialEq)]
pub struct Decoded {
    /// The JOSE header (RFC 7515 §4).
    pub header: Map<String, Value>,
    /// The claims (RFC 7519 §4).
    pub claims: Map<String, Value>,
}

/// Claims are the token's content: they are for the holder, not for a log.
impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").finish_non_exhaustive()
    }
}

/// Decodes a compact JWS and ignores its signature. Headers that verification refuses are shown too.
///
/// # Errors
/// The token is too large, not three segments of base64url, or not made of strict JSON objects.
pub fn decode_unverified(token: &[u8]) -> Result<Decoded, TokenError> {
    let compact = Compact::parse(token)?;
    let object = |bytes: &[u8]| json::object(bytes, json::CLAIMS_LIMITS);
    Ok(Decoded {
        header: object(&compact.header).map_err(TokenError::HeaderMalformed)?,
        claims: object(&compact.payload).map_err(TokenError::ClaimsMalformed)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_verification_would_refuse_and_redacts_debug() {
        // {"alg":"none","jwk":{}} and {"sub":"a"}
        let decoded = decode_unverified(b"eyJhbGciOiJub25lIiwiandrIjp7fX0.eyJzdWIiOiJhIn0.").unwrap();
        assert_eq!(decoded.header.get("alg").unwrap(), "none");
        assert_eq!(decoded.claims.get("sub").unwrap(), "a");
        assert!(!format!("{decoded:?}").contains("none"));
        assert!(decode_unverified(b"e30.W10.").is_err());
    }
}

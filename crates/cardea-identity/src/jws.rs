//! The compact serialisation of a JWS (RFC 7515 §7.1) and its header, parsed strictly.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::algorithm::Algorithm;
use crate::error::TokenError;
use crate::json;

/// The longest accepted token, in bytes. Large Entra ID tokens with 200 groups have less than 12 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The longest encoded header. Real ones have less than 300 bytes.
const HEADER_BYTES_MAX: usize = 4 * 1024;

/// The longest `kid`, in bytes. SHA-256 thumbprints have 43, some providers use URLs.
pub(crate) const KID_BYTES_MAX: usize = 512;

/// Header parameters that would change how the token is read or which key is used.
///
/// `crit` (RFC 7515 §4.1.11): no extension is supported here, so it must be refused. `b64` (RFC 7797 §6) must be listed
/// in `crit`; it is refused without it too. `zip` and `enc` belong to JWE. `jwk`, `jku`, `x5u`, `x5c` name their own
/// key (RFC 8725 §2.9, §3.10), but keys come only from the issuer's configuration.
const NOT_ACCEPTED: [&str; 8] = ["crit", "b64", "zip", "enc", "jwk", "jku", "x5u", "x5c"];

/// A decoded token. Nothing in it is trusted yet.
pub(crate) struct Compact<'a> {
    /// `header '.' payload` as it was sent, which the signature covers.
    pub(crate) signing_input: &'a [u8],
    pub(crate) header: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

impl<'a> Compact<'a> {
    /// Splits and decodes `token`.
    ///
    /// # Errors
    /// [`TokenError::TooLarge`] or [`TokenError::Malformed`].
    pub(crate) fn parse(token: &'a [u8]) -> Result<Self, TokenError> {
        const SEGMENTS: TokenError = TokenError::Malformed("it needs three segments");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLarge);
        }
        let mut segments = token.split(|&byte| byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (segments.next(), segments.next(), segments.next(), segments.next())
        else {
            return Err(SEGMENTS);
        };
        if header.len() > HEADER_BYTES_MAX {
            return Err(TokenError::TooLarge);
        }
        let signed = header.len() + 1 + payload.len();
        let signing_input = token.get(..signed).ok_or(SEGMENTS)?;
        Ok(Self {
            signing_input,
            header: decode(header)?,
            payload: decode(payload)?,
            signature: decode(signature)?,
        })
    }
}

/// Canonical base64url without padding: one encoding per value, so that no token has a second spelling. (An ECDSA
/// signature still has a second form, r‖n−s, that anybody can compute: refused tokens must not be listed by their
/// bytes.)
pub(crate) fn decode(segment: &[u8]) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(segment).map_err(|_| TokenError::Malformed("a segment is not canonical base64url"))
}

/// A JOSE header.
pub(crate) struct Header {
    /// `None`: an unsupported name, such as `none`.
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) kid: Option<String>,
    /// As sent; compared case-insensitively.
    pub(crate) typ: Option<String>,
    /// The whole header, for `explain` and `decode`.
    pub(crate) fields: Map<String, Value>,
}

impl Header {
    /// Parses a decoded header.
    ///
    /// # Errors
    /// [`TokenError::HeaderMalformed`] or [`TokenError::HeaderNotAccepted`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, TokenError> {
        let fields = json::object(bytes, json::HEADER_LIMITS).map_err(TokenError::HeaderMalformed)?;
        for name in NOT_ACCEPTED {
            if fields.contains_key(name) {
                return Err(TokenError::HeaderNotAccepted(name));
            }
        }
        let Some(Value::String(alg)) = fields.get("alg") else {
            return Err(TokenError::HeaderMalformed("alg is not a string"));
        };
        let algorithm = Algorithm::from_name(alg);
        let kid = match fields.get("kid") {
            None => None,
            Some(Value::String(kid)) if kid.len() <= KID_BYTES_MAX => Some(kid.clone()),
            Some(Value::String(_)) => return Err(TokenError::HeaderMalformed("kid is too long")),
            Some(_) => return Err(TokenError::HeaderMalformed("kid is not a string")),
        };
        let typ = match fields.get("typ") {
            None => None,
            Some(Value::String(typ)) => Some(typ.clone()),
            Some(_) => return Err(TokenError::HeaderMalformed("typ is not a string")),
        };
        Ok(Self { algorithm, kid, typ, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_has_one_spelling_per_value() {
        assert_eq!(decode(b"").unwrap(), b"");
        assert_eq!(decode(b"QQ").unwrap(), b"A");
        assert_eq!(decode(b"-_8").unwrap(), [0xfb, 0xff]);
        // Stray bits, padding, the other alphabet, white space, an impossible length, not ASCII.
        for bad in [&b"QR"[..], b"QQ==", b"QQ=", b"+/8", b"Q Q", b"QQ\n", b"Q", b"QQQQQ", b"Q\0", b"\xff\xff"]
        {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_compact_jws_has_exactly_three_segments() {
        assert!(Compact::parse(b"e30.e30.QQ").is_ok());
        assert_eq!(Compact::parse(b"e30.e30.QQ").unwrap().signing_input, b"e30.e30");
        for bad in [
            &b""[..],
            b"e30",
            b"e30.e30",
            b"e30.e30.QQ.QQ",
            b"e30.e30.QQ.QQ.QQ",
            b"e30.e30.QQ.",
            b"{\"payload\":\"e30\"}",
            b" e30.e30.QQ",
            b"e30.e30.QQ ",
        ] {
            assert!(matches!(Compact::parse(bad), Err(TokenError::Malformed(_))), "{bad:?}");
        }
        assert!(matches!(Compact::parse(&vec![b'A'; TOKEN_BYTES_MAX + 1]), Err(TokenError::TooLarge)));
    }
}

//! The handshake of a WebSocket (RFC 6455 §4).
//!
//! A tunnel passes bytes that no rule sees. So both sides must have agreed on it in the way of this protocol: a service that
//! merely repeats fields of a request has not.

use aws_lc_rs::{digest, rand};
use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use cardea_http::{Fields, Known, accepts_websocket};

use crate::refusal::Reason;

/// The one version of the protocol (RFC 6455 §4.1).
pub(crate) const VERSION: &str = "13";

/// What is hashed behind the key (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A key's last character has four bits that mean nothing; some clients set them, as RFC 6455 §4.1 does in its example.
const KEY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A key for a handshake of our own, from the randomness of the system; none if there is none.
pub(crate) fn new_key() -> Option<String> {
    let mut nonce = [0; 16];
    rand::fill(&mut nonce).ok()?;
    Some(STANDARD.encode(nonce))
}

/// Checks the version and the key of a request (RFC 6455 §4.2.1).
///
/// # Errors
/// [`Reason::WebSocketVersion`] for another version or none, and otherwise for a key that is not 16 bytes in base64.
pub(crate) fn check_request(request: &Fields) -> Result<(), Reason> {
    if only(request, Known::SecWebSocketVersion) != Some(VERSION.as_bytes()) {
        return Err(Reason::WebSocketVersion);
    }
    let key = only(request, Known::SecWebSocketKey).and_then(|key| KEY_BASE64.decode(key).ok());
    match key {
        Some(key) if key.len() == 16 => Ok(()),
        _ => Err(Reason::Malformed { code: "websocket_key_invalid", status: 400 }),
    }
}

/// Whether a `101` answers the handshake of `request` (RFC 6455 §4.1).
pub(crate) fn is_answered(request: &Fields, response: &Fields) -> bool {
    let Some(key) = only(request, Known::SecWebSocketKey) else { return false };
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID);
    let expected = STANDARD.encode(hash.finish());
    accepts_websocket(response) && only(response, Known::SecWebSocketAccept) == Some(expected.as_bytes())
}

/// The value of a field that is there once.
fn only(fields: &Fields, name: Known) -> Option<&[u8]> {
    let mut values = fields.get_all(name);
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn fields(fields: &[(&str, &str)]) -> Fields {
        let mut made = Fields::default();
        for (name, value) in fields {
            made.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        made
    }

    #[test]
    fn keys_of_our_own_are_valid_and_differ() {
        let keys = [new_key().unwrap(), new_key().unwrap()];
        assert_ne!(keys[0], keys[1]);
        for key in &keys {
            let request = fields(&[("sec-websocket-version", "13"), ("sec-websocket-key", key)]);
            assert_eq!(check_request(&request), Ok(()));
        }
    }

    #[test]
    fn a_request_has_one_key_of_16_bytes_and_version_13() {
        let invalid = Reason::Malformed { code: "websocket_key_invalid", status: 400 };
        let version = ("sec-websocket-version", "13");
        for (request, expected) in [
            (vec![version, ("sec-websocket-key", KEY)], Ok(())),
            (vec![version, ("sec-websocket-key", "AQIDBAUGBwgJCgsMDQ4PEC==")], Ok(())),
            (vec![version], Err(invalid.clone())),
            (vec![version, ("sec-websocket-key", KEY), ("sec-websocket-key", KEY)], Err(invalid.clone())),
            (vec![version, ("sec-websocket-key", "")], Err(invalid.clone())),
            (vec![version, ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ")], Err(invalid.clone())),
            (vec![version, ("sec-websocket-key", "dGhlIHNhbXBsZSBub25j")], Err(invalid.clone())),
            (vec![version, ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ== x")], Err(invalid)),
            (vec![("sec-websocket-key", KEY)], Err(Reason::WebSocketVersion)),
            (vec![("sec-websocket-version", "8"), ("sec-websocket-key", KEY)], Err(Reason::WebSocketVersion)),
            (vec![version, version, ("sec-websocket-key", KEY)], Err(Reason::WebSocketVersion)),
            (
                vec![("sec-websocket-version", "13, 8"), ("sec-websocket-key", KEY)],
                Err(Reason::WebSocketVersion),
            ),
        ] {
            assert_eq!(check_request(&fields(&request)), expected, "{request:?}");
        }
    }

    #[test]
    fn an_answer_has_the_hash_of_the_key() {
        let request = fields(&[("sec-websocket-key", KEY)]);
        let (upgrade, connection) = (("upgrade", "WebSocket"), ("connection", "x, Upgrade"));
        let accept = ("sec-websocket-accept", ACCEPT);
        for (response, expected) in [
            (vec![upgrade, connection, accept], true),
            (vec![upgrade, connection], false),
            (vec![upgrade, connection, accept, accept], false),
            (vec![upgrade, connection, ("sec-websocket-accept", KEY)], false),
            (vec![upgrade, connection, ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOp=")], false),
            (vec![upgrade, accept], false),
            (vec![upgrade, ("connection", "close"), accept], false),
            (vec![connection, accept], false),
            (vec![("upgrade", "h2c"), connection, accept], false),
            (vec![upgrade, upgrade, connection, accept], false),
        ] {
            assert_eq!(is_answered(&request, &fields(&response)), expected, "{response:?}");
        }
        assert!(!is_answered(&fields(&[]), &fields(&[upgrade, connection, accept])));
    }
}

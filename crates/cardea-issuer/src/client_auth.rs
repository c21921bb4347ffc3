//! Client authentication (RFC 6749 §2.3): the presented credentials, their possible readings, and the check of
//! generated secrets.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use cardea_clock::Wall;
use cardea_store::{BasicEncoding, ClientRecord, SecretRecord};
use zeroize::Zeroizing;

use crate::{client::CLIENT_ID_BYTES_MAX, form, form::Form, grant::GrantError, secret::sha256};

/// The most secrets of a client, including expired ones.
pub(crate) const SECRETS_MAX: usize = 8;
/// The most bytes of an encoded Basic credential.
const BASIC_BYTES_MAX: usize = 4_096;
/// The format of generated secrets.
pub(crate) const FORMAT_SHA256: &str = "sha256";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// One reading of the presented credentials. Basic has two if they differ (RFC 6749 §2.3.1 and RFC 7617).
pub(crate) struct Reading {
    pub(crate) id: String,
    pub(crate) secret: Zeroizing<Vec<u8>>,
    digest: [u8; 32],
    /// The encoding that the client's record must allow; `None` if any is allowed.
    encoding: Option<BasicEncoding>,
}

/// The authentication method that the client used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Basic,
    Post,
}

/// The credentials that a client presented.
pub(crate) struct Presented {
    pub(crate) method: Method,
    /// Empty if the credentials can't be those of any client.
    pub(crate) readings: Vec<Reading>,
    /// A `client_id` in the body beside Basic credentials. It must name the same client.
    pub(crate) body_client_id: Option<String>,
}

/// Extracts the client's credentials. The [`crate::verification::Verifier`] verifies them.
///
/// # Errors
/// `invalid_request` if there are two authentication methods (RFC 6749 §2.3), `invalid_client` if there is none that is
/// supported.
pub(crate) fn presented(authorization: &[&[u8]], form: &Form) -> Result<Presented, GrantError> {
    let client_id = form.get("client_id");
    let client_secret = form.get("client_secret");
    let assertion = form.get("client_assertion").or_else(|| form.get("client_assertion_type"));
    let ways = authorization.len() + usize::from(client_secret.is_some()) + usize::from(assertion.is_some());
    if ways > 1 {
        return Err(GrantError::invalid_request(
            "two_client_authentications",
            "more than one method of client authentication was used",
        ));
    }
    if let [value] = authorization {
        let readings = basic(value)?;
        return Ok(Presented {
            method: Method::Basic,
            readings,
            body_client_id: client_id.map(str::to_owned),
        });
    }
    match (client_id, client_secret) {
        (Some(id), Some(secret)) => {
            let readings = reading(id.as_bytes(), secret.as_bytes(), None).into_iter().collect();
            Ok(Presented { method: Method::Post, readings, body_client_id: None })
        }
        (None, Some(_)) => {
            Err(GrantError::invalid_request("client_id_missing", "client_secret without client_id"))
        }
        _ if assertion.is_some() => Err(GrantError::invalid_client(
            "client_assertion_unsupported",
            "client assertions are not supported",
        )),
        _ => Err(GrantError::invalid_client(
            "client_authentication_missing",
            "client authentication is required",
        )),
    }
}

/// The readings of an `Authorization` value (RFC 7617 §2).
fn basic(value: &[u8]) -> Result<Vec<Reading>, GrantError> {
    let malformed = || GrantError::invalid_client("basic_malformed", "the Basic credentials are malformed");
    let value = value.trim_ascii();
    let (scheme, credentials) = match value.iter().position(|byte| *byte == b' ') {
        Some(space) => (&value[..space], value[space..].trim_ascii_start()),
        None => (value, &[][..]),
    };
    if !scheme.eq_ignore_ascii_case(b"Basic") {
        let description = "the Authorization scheme is not supported; use Basic";
        return Err(GrantError::invalid_client("authorization_scheme_unsupported", description));
    }
    if credentials.len() > BASIC_BYTES_MAX {
        return Err(malformed());
    }
    let decoded = Zeroizing::new(BASE64.decode(credentials).map_err(|_| malformed())?);
    // The user-id ends at the first colon; the password may contain more.
    let colon = decoded.iter().position(|byte| *byte == b':').ok_or_else(malformed)?;
    let (user, password) = (&decoded[..colon], &decoded[colon + 1..]);
    if user.is_empty() {
        return Err(malformed());
    }
    let ambiguous = user.iter().chain(password).any(|byte| matches!(byte, b'%' | b'+'));
    if !ambiguous {
        return Ok(reading(user, password, None).into_iter().collect());
    }
    let form_encoded = match (form::decode(user), form::decode(password)) {
        (Some(user), Some(password)) => reading(&user, &password, Some(BasicEncoding::FormEncoded)),
        _ => None,
    };
    Ok(form_encoded.into_iter().chain(reading(user, password, Some(BasicEncoding::Raw))).collect())
}

fn reading(id: &[u8], secret: &[u8], encoding: Option<BasicEncoding>) -> Option<Reading> {
    let id = std::str::from_utf8(id).ok().filter(|id| id.len() <= CLIENT_ID_BYTES_MAX)?;
    Some(Reading {
        id: id.to_owned(),
        secret: Zeroizing::new(secret.to_vec()),
        digest: sha256(secret),
        encoding,
    })
}

impl Reading {
    /// Whether this is a valid generated secret of that client. A client that doesn't exist or has no secrets takes the
    /// same steps as one that does: always [`SECRETS_MAX`] comparisons in constant time.
    pub(crate) fn holds_generated(&self, record: Option<&ClientRecord>, now: Wall) -> bool {
        const NOBODYS: [u8; 32] = [0; 32];
        let secrets: &[SecretRecord] = record.map_or(&[], |record| &record.secrets);
        let mut matched = false;
        for slot in 0..SECRETS_MAX {
            let secret = secrets.get(slot).filter(|secret| secret.format == FORMAT_SHA256);
            let verifier = secret.map_or(&NOBODYS[..], |secret| &secret.verifier);
            let equal = verify_slices_are_equal(verifier, &self.digest).is_ok();
            matched |= equal & secret.is_some_and(|secret| is_live(secret, now));
        }
        matched
    }
}

/// Whether the client may authenticate with that reading, whatever the secret.
pub(crate) fn is_permitted(record: &ClientRecord, reading: &Reading) -> bool {
    record.enabled
        && reading.encoding.is_none_or(|encoding| {
            record.basic_encoding == encoding || record.basic_encoding == BasicEncoding::Auto
        })
}

/// Whether a secret has not expired.
pub(crate) fn is_live(secret: &SecretRecord, now: Wall) -> bool {
    secret.expires_at.is_none_or(|expires_at| now < expires_at)
}

#[cfg(test)]
mod tests;

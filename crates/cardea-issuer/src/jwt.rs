//! Access tokens in the profile of RFC 9068.

use std::sync::Arc;

use aws_lc_rs::rand;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use tokio::sync::Semaphore;

use cardea_store::SigningAlgorithm;

use crate::{IssuerError, signing::SigningKey};

/// The claims of an access token (RFC 9068 §2.2).
#[derive(Debug, Serialize)]
pub(crate) struct Claims<'a> {
    pub(crate) iss: &'a str,
    /// The client itself, because this grant has no user (RFC 9068 §2.2).
    pub(crate) sub: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) aud: Audience<'a>,
    pub(crate) iat: i64,
    pub(crate) exp: i64,
    pub(crate) jti: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) scope: &'a str,
}

/// A single audience is written without an array (RFC 7519 §4.1.3), which more verifiers understand.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Audience<'a> {
    One(&'a str),
    Many(&'a [&'a str]),
}

impl<'a> Audience<'a> {
    pub(crate) fn of(audiences: &'a [&'a str]) -> Self {
        match audiences {
            [one] => Self::One(one),
            many => Self::Many(many),
        }
    }
}

/// A token id of 128 random bits.
///
/// # Errors
/// [`IssuerError::Crypto`].
pub(crate) fn token_id() -> Result<String, IssuerError> {
    let mut bits = [0_u8; 16];
    rand::fill(&mut bits).map_err(|_| IssuerError::Crypto("no randomness"))?;
    Ok(URL_SAFE_NO_PAD.encode(bits))
}

/// Signs a token. Fast algorithms sign in place, RSA on blocking threads. `permits` bounds the concurrent RSA
/// signatures, which would otherwise take the processors from other requests.
///
/// # Errors
/// [`IssuerError::Crypto`].
pub(crate) async fn sign(
    key: &Arc<SigningKey>,
    claims: &Claims<'_>,
    permits: &Arc<Semaphore>,
) -> Result<String, IssuerError> {
    let claims = serde_json::to_string(claims).map_err(|_| IssuerError::Crypto("claims can't be written"))?;
    let mut token = String::with_capacity(key.header().len() + claims.len() * 4 / 3 + 360);
    token.push_str(key.header());
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(claims, &mut token);
    let (mut token, signature) = match key.algorithm() {
        SigningAlgorithm::Es256 | SigningAlgorithm::EdDsa => {
            let signature = key.sign(token.as_bytes())?;
            (token, signature)
        }
        SigningAlgorithm::Rs256 => {
            // The permit moves into the work: a dropped request releases it only when its signature is done.
            let permit = Arc::clone(permits)
                .acquire_owned()
                .await
                .map_err(|_| IssuerError::Crypto("shutting down"))?;
            let key = Arc::clone(key);
            tokio::task::spawn_blocking(move || {
                let signature = key.sign(token.as_bytes());
                drop(permit);
                signature.map(|signature| (token, signature))
            })
            .await
            .map_err(|_| IssuerError::Crypto("signing was stopped"))??
        }
    };
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

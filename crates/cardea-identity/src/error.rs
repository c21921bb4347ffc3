//! Errors of tokens (the caller's fault), of our keys, and of the configuration.

use std::path::PathBuf;

use thiserror::Error;

use crate::fetch::FetchError;

/// Why a token is not accepted.
///
/// The message may be shown to the caller: it contains constants only, never a byte of the token. [`TokenError::code`]
/// is stable, for logs, metrics and problem documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Longer than [`TOKEN_BYTES_MAX`](crate::TOKEN_BYTES_MAX), or its header longer than 4 KiB.
    #[error("the token is too large")]
    TooLarge,
    /// Not three segments of canonical base64url (RFC 7515 §7.1, §2).
    #[error("the token is not a compact JWS: {0}")]
    Malformed(&'static str),
    /// The header is not a JSON object with unique names and the right types.
    #[error("the token's header is malformed: {0}")]
    HeaderMalformed(&'static str),
    /// The header has a parameter that changes how the token must be read, or that contains its own key (`crit`, `b64`,
    /// `zip`, `enc`, `jwk`, `jku`, `x5u`, `x5c`).
    #[error("the token's header has a parameter that is not accepted: {0}")]
    HeaderNotAccepted(&'static str),
    /// The payload is not a JSON object with unique names within the limits.
    #[error("the token's claims are malformed: {0}")]
    ClaimsMalformed(&'static str),
    /// A required claim is missing.
    #[error("the token lacks the claim {0}")]
    ClaimMissing(&'static str),
    /// A claim has the wrong type or a value out of range.
    #[error("the token's claim {0} is not valid")]
    ClaimInvalid(&'static str),
    /// No trusted issuer has this `iss`.
    #[error("the token's issuer is not trusted")]
    IssuerUnknown,
    /// `alg` is unknown or not allowed for the issuer; `none` never is.
    #[error("the token's algorithm is not allowed")]
    AlgorithmNotAllowed,
    /// `typ` is not accepted for the issuer (RFC 8725 §3.11).
    #[error("the token's type is not accepted")]
    TypeNotAccepted,
    /// The issuer has published no such key.
    #[error("the token's key is not known")]
    KeyUnknown,
    /// Several keys match, so none is used.
    #[error("the token's key is ambiguous")]
    KeyAmbiguous,
    /// The key exists but has another type, algorithm or tenant.
    #[error("the token's key does not fit its algorithm or issuer")]
    KeyMismatch,
    /// The signature does not verify.
    #[error("the token's signature is invalid")]
    SignatureInvalid,
    /// `aud` contains none of the issuer's accepted audiences.
    #[error("the token is for another audience")]
    AudienceNotAccepted,
    /// The time is at or after `exp`, including the skew.
    #[error("the token has expired")]
    Expired,
    /// The time is before `nbf`, including the skew.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `iat` is in the future by more than the skew.
    #[error("the token was issued in the future")]
    IssuedInFuture,
    /// `exp − iat` exceeds the issuer's limit.
    #[error("the token's lifetime is too long")]
    LifetimeTooLong,
    /// `cnf` binds the token to a sender in a way that can't be checked here (RFC 7800).
    #[error("the token is bound to a sender that cannot be checked")]
    SenderConstrained,
    /// `tid` or `ver` doesn't belong to the issuer (Entra ID).
    #[error("the token's tenant or version does not match its issuer")]
    TenantMismatch,
    /// The token is revoked, or its subject is disabled.
    #[error("the token has been revoked")]
    Revoked,
    /// There is no usable key set: never fetched, or too old. The gateway's fault, hence 503.
    #[error("the issuer's keys are not available")]
    KeysUnavailable,
}

impl TokenError {
    /// The stable reason code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "token_too_large",
            Self::Malformed(_) => "token_malformed",
            Self::HeaderMalformed(_) => "header_malformed",
            Self::HeaderNotAccepted(_) => "header_not_accepted",
            Self::ClaimsMalformed(_) => "claims_malformed",
            Self::ClaimMissing(_) => "claim_missing",
            Self::ClaimInvalid(_) => "claim_invalid",
            Self::IssuerUnknown => "issuer_unknown",
            Self::AlgorithmNotAllowed => "algorithm_not_allowed",
            Self::TypeNotAccepted => "type_not_accepted",
            Self::KeyUnknown => "key_unknown",
            Self::KeyAmbiguous => "key_ambiguous",
            Self::KeyMismatch => "key_mismatch",
            Self::SignatureInvalid => "signature_invalid",
            Self::AudienceNotAccepted => "audience_not_accepted",
            Self::Expired => "token_expired",
            Self::NotYetValid => "token_not_yet_valid",
            Self::IssuedInFuture => "token_issued_in_future",
            Self::LifetimeTooLong => "lifetime_too_long",
            Self::SenderConstrained => "sender_constrained",
            Self::TenantMismatch => "tenant_mismatch",
            Self::Revoked => "token_revoked",
            Self::KeysUnavailable => "keys_unavailable",
        }
    }

    /// Whether the gateway, not the caller, is at fault: 503 instead of 401 `invalid_token`.
    #[must_use]
    pub const fn is_gateway_fault(&self) -> bool {
        matches!(self, Self::KeysUnavailable)
    }
}

/// Why a configuration of issuers, or a key set, is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A setting of one issuer is missing, out of range or contradicts another.
    #[error("issuer {name:?}: {message}")]
    Config {
        /// The issuer's configured name.
        name: String,
        /// The problem and what is expected.
        message: String,
    },
    /// A key file can't be read.
    #[error("issuer {name:?}: cannot read {}: {source}", path.display())]
    KeyFile {
        /// The issuer's configured name.
        name: String,
        /// The configured path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A key set is malformed.
    #[error("the key set is refused: {0}")]
    KeySet(#[from] KeySetError),
    /// Fetching a key set or its discovery document failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The discovery document is unusable.
    #[error("the discovery document is refused: {0}")]
    Discovery(&'static str),
    /// The address of a key set is not allowed.
    #[error("the key set's address is refused: {0}")]
    Address(&'static str),
    /// A route has a requirement that no issuer can meet.
    #[error("demand: {0}")]
    AccessRequirement(String),
    /// There is not enough memory for the caches.
    #[error("{0}")]
    OutOfMemory(cardea_cache::LimitsError),
}

impl IdentityError {
    /// The configured name of the issuer with the error, if there is one.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        match self {
            Self::Config { name, .. } | Self::KeyFile { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// Why a whole key set (RFC 7517 §5) is refused. Single unusable keys are skipped instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// Longer than 1 MiB.
    #[error("longer than 1 MiB")]
    TooLarge,
    /// Not a JSON object, repeated names, or nested too deep.
    #[error("{0}")]
    Json(&'static str),
    /// No `keys` array.
    #[error("no array \"keys\"")]
    NoKeys,
    /// More than 128 keys.
    #[error("more than 128 keys")]
    TooManyKeys,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fit_into_a_challenge_and_codes_differ() {
        use TokenError as E;
        let all = [
            E::TooLarge,
            E::Malformed("x"),
            E::HeaderMalformed("x"),
            E::HeaderNotAccepted("crit"),
            E::ClaimsMalformed("x"),
            E::ClaimMissing("exp"),
            E::ClaimInvalid("exp"),
            E::IssuerUnknown,
            E::AlgorithmNotAllowed,
            E::TypeNotAccepted,
            E::KeyUnknown,
            E::KeyAmbiguous,
            E::KeyMismatch,
            E::SignatureInvalid,
            E::AudienceNotAccepted,
            E::Expired,
            E::NotYetValid,
            E::IssuedInFuture,
            E::LifetimeTooLong,
            E::SenderConstrained,
            E::TenantMismatch,
            E::Revoked,
            E::KeysUnavailable,
        ];
        let codes: std::collections::HashSet<_> = all.iter().map(TokenError::code).collect();
        assert_eq!(codes.len(), all.len());
        for error in all {
            // RFC 6750 §3: the characters of `error_description`.
            let fits = |c: char| matches!(c, ' ' | '!' | '#'..='[' | ']'..='~');
            assert!(error.to_string().chars().all(fits), "{error}");
            assert_eq!(error.is_gateway_fault(), error == E::KeysUnavailable);
        }
    }
}

//! What can be wrong: with a token (the caller's fault), with our keys, with the configuration.

use std::path::PathBuf;

use thiserror::Error;

use crate::fetch::FetchError;

/// Why a token gives no verdict.
///
/// The message may be shown to the caller: it holds constants only, never a byte of the token.
/// [`TokenError::code`] is stable, for logs, metrics and problem documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Longer than [`TOKEN_BYTES_MAX`](crate::TOKEN_BYTES_MAX), or its header longer than 4 KiB.
    #[error("the token is too large")]
    TooLarge,
    /// Not three segments of canonical base64url (RFC 7515 §7.1, §2).
    #[error("the token is not a compact JWS: {0}")]
    Malformed(&'static str),
    /// The header is not one JSON object with unique names and the right types.
    #[error("the token's header is malformed: {0}")]
    HeaderMalformed(&'static str),
    /// The header has a parameter that changes how the token would have to be read, or that brings
    /// its own key (`crit`, `b64`, `zip`, `enc`, `jwk`, `jku`, `x5u`, `x5c`).
    #[error("the token's header has a parameter that is not accepted: {0}")]
    HeaderNotAccepted(&'static str),
    /// The payload is not one JSON object with unique names, within bounds.
    #[error("the token's claims are malformed: {0}")]
    ClaimsMalformed(&'static str),
    /// A claim that must be there is absent.
    #[error("the token lacks the claim {0}")]
    ClaimMissing(&'static str),
    /// A claim has the wrong type or a value out of range.
    #[error("the token's claim {0} is not valid")]
    ClaimInvalid(&'static str),
    /// No trusted issuer has this `iss`.
    #[error("the token's issuer is not trusted")]
    IssuerUnknown,
    /// `alg` is unknown or not on the issuer's list; `none` always.
    #[error("the token's algorithm is not allowed")]
    AlgorithmNotAllowed,
    /// `typ` is not on the issuer's list (RFC 8725 §3.11).
    #[error("the token's type is not accepted")]
    TypeNotAccepted,
    /// The issuer has published no such key.
    #[error("the token's key is not known")]
    KeyUnknown,
    /// Several keys fit, so none is taken.
    #[error("the token's key is ambiguous")]
    KeyAmbiguous,
    /// The key exists but is of another type, for another algorithm, or of another tenant.
    #[error("the token's key does not fit its algorithm or issuer")]
    KeyMismatch,
    /// The signature does not verify.
    #[error("the token's signature is invalid")]
    SignatureInvalid,
    /// `aud` names none of the issuer's accepted audiences.
    #[error("the token is for another audience")]
    AudienceNotAccepted,
    /// At or after `exp`, skew included.
    #[error("the token has expired")]
    Expired,
    /// Before `nbf`, skew included.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `iat` lies in the future by more than the skew.
    #[error("the token was issued in the future")]
    IssuedInFuture,
    /// `exp − iat` is above the issuer's limit.
    #[error("the token's lifetime is too long")]
    LifetimeTooLong,
    /// `cnf` binds the token to a sender in a way that can't be checked here (RFC 7800).
    #[error("the token is bound to a sender that cannot be checked")]
    SenderConstrained,
    /// `tid` or `ver` does not belong to the issuer (Entra ID).
    #[error("the token's tenant or version does not match its issuer")]
    TenantMismatch,
    /// Revoked, or its subject disabled.
    #[error("the token has been revoked")]
    Revoked,
    /// No usable key set: never fetched, or too old. The gateway's fault, hence 503.
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
        /// What is wrong and what would be right.
        message: String,
    },
    /// A key file can't be read.
    #[error("issuer {name:?}: cannot read {}: {source}", path.display())]
    KeyFile {
        /// The issuer's configured name.
        name: String,
        /// The configured path.
        path: PathBuf,
        /// Why it can't.
        source: std::io::Error,
    },
    /// A key set is not one.
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
    /// A route asks for what no issuer can give.
    #[error("demand: {0}")]
    AccessRequirement(String),
    /// There is no memory for what is to be remembered.
    #[error("{0}")]
    OutOfMemory(cardea_cache::LimitsError),
}

impl IdentityError {
    /// The configured name of the issuer at fault, where there is one.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        match self {
            Self::Config { name, .. } | Self::KeyFile { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// Why the bytes of a key set (RFC 7517 §5) are refused as a whole. Single keys are skipped instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// Longer than 1 MiB.
    #[error("longer than 1 MiB")]
    TooLarge,
    /// Not one JSON object, names repeated, or nested too deep.
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

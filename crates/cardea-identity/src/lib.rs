//! Authentication of callers: trusted issuers, key sets, token verification, verdicts.
//!
//! An [`Authenticator`] holds the issuers that the configuration trusts. [`Authenticator::verify`] turns the bytes of a
//! bearer token into a [`Verdict`]: the token is authentic, from this issuer, for one of its accepted audiences, valid
//! in this window of time, and has these claims. What a *route* requires is an [`AccessRequirement`], which is compared
//! with the verdict on every request.
//!
//! The crate does no I/O except reading key files while a configuration loads. Key sets are fetched through the
//! [`Fetch`] seam, time is an argument, and no token, claim or key is logged.
//!
//! Specifications: RFC 7515 (JWS), 7517 (JWK), 7518 (JWA), 7519 (JWT), 8037 (`EdDSA`), 8725 (best practices), 9068
//! (access tokens), 6750 (bearer tokens), 8414 (metadata).

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod algorithm;
mod authenticator;
mod bearer;
mod check;
mod claims;
mod config;
mod decode;
mod entra;
mod error;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod issuer;
mod json;
mod jwk;
mod jws;
mod keyset;
mod policy;
mod remote;
mod requirement;
mod revocations;
mod verdict;
mod verdict_cache;

pub use algorithm::Algorithm;
pub use authenticator::{Authenticator, Fetches, KeySetStatus, Unidentified};
pub use bearer::{
    BearerCredentials, CREDENTIALS_BYTES_MAX, CredentialsError, bearer_credentials, bearer_token,
};
pub use check::Check;
pub use config::{
    ClaimNames, ClaimPath, IssuerConfig, KeyRefresh, KeySource, Preset, SKEW_DEFAULT, SKEW_MAX,
    VERDICTS_MAX_DEFAULT, VERDICTS_MAX_LIMIT,
};
pub use decode::{Decoded, decode_unverified};
pub use error::{IdentityError, KeySetError, TokenError};
pub use fetch::{Fetch, FetchError, FetchRequest, NoFetch, is_private_address};
#[cfg(any(test, feature = "fuzzing"))]
pub use fuzzing::fuzz_token;
pub use jws::TOKEN_BYTES_MAX;
pub use keyset::LocalKeys;
pub use remote::KeyDocument;
pub use requirement::{AccessRequirement, AccessRequirementError, Alternative};
pub use revocations::Revocations;
pub use verdict::{Caller, CallerKind, ClientAuthentication, Lapse, Verdict};
pub use verdict_cache::{ConnectionTokenCache, VerdictRef, VerdictSource};

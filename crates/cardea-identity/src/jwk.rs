//! Key sets (RFC 7517): strict about each key, tolerant of keys for other purposes.

mod material;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::signature::ParsedPublicKey;
use serde_json::{Map, Value};

use crate::algorithm::{Algorithm, KeyType};
use crate::error::{KeySetError, TokenError};
use crate::json;
use crate::jws::{Header, KID_BYTES_MAX};

/// The longest key set or discovery document, in bytes.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// The most keys in a set, including skipped ones.
const KEYS_MAX: usize = 128;

/// Members of private and symmetric keys (RFC 7518 §6.2.2, §6.3.2, §6.4.1).
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Numbers epochs across the process, so that no two key sets share one.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

/// A number that was never returned before.
pub(crate) fn next_epoch() -> u64 {
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}

/// A public key that verifies signatures.
pub(crate) struct Key {
    pub(crate) kid: Option<Box<str>>,
    /// The `issuer` of the key: an extension of Entra ID, whose common key set serves many tenants.
    pub(crate) issuer: Option<Box<str>>,
    /// A parsed key for each allowed algorithm; only one if the key has an `alg`.
    verifiers: Vec<(Algorithm, ParsedPublicKey)>,
    /// The key type and the public members, to detect a changed key with the same id.
    fingerprint: Vec<u8>,
}

impl Key {
    /// Verifies `signature` over `message`.
    ///
    /// # Errors
    /// [`TokenError::KeyMismatch`] if the key is not for `algorithm`, else [`TokenError::SignatureInvalid`].
    pub(crate) fn verify(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), TokenError> {
        let verifier = self.verifier(algorithm).ok_or(TokenError::KeyMismatch)?;
        if algorithm.signature_len().is_some_and(|len| len != signature.len()) {
            return Err(TokenError::SignatureInvalid);
        }
        verifier.verify_sig(message, signature).map_err(|_| TokenError::SignatureInvalid)
    }

    fn verifier(&self, algorithm: Algorithm) -> Option<&ParsedPublicKey> {
        self.verifiers.iter().find(|(usable, _)| *usable == algorithm).map(|(_, verifier)| verifier)
    }

    fn same(&self, other: &Self) -> bool {
        let algorithms = |key: &Self| key.verifiers.iter().map(|(a, _)| *a).collect::<Vec<_>>();
        self.kid == other.kid
            && self.issuer == other.issuer
            && self.fingerprint == other.fingerprint
            && algorithms(self) == algorithms(other)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// A key that is not used, and why. This is no error: sets contain keys for encryption and for future algorithms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) kid: Option<String>,
    pub(crate) reason: &'static str,
    /// Whether the operator should be warned: the key is dangerous or broken, not only unusable.
    pub(crate) alarming: bool,
}

/// The keys of an issuer at one moment.
#[derive(Debug)]
pub(crate) struct KeySet {
    keys: Vec<Arc<Key>>,
    by_kid: HashMap<Box<str>, Vec<usize>, foldhash::fast::RandomState>,
    /// Changes only when a key is removed or changed, not when one is added.
    pub(crate) epoch: u64,
}

impl KeySet {
    /// Parses a JWK set. Keys may be used only with the algorithms in `allowed`.
    ///
    /// # Errors
    /// The whole set is refused if it is too large, not strict JSON, or not a set.
    pub(crate) fn parse(bytes: &[u8], allowed: &[Algorithm]) -> Result<(Self, Vec<Skipped>), KeySetError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(KeySetError::TooLarge);
        }
        let document = json::object(bytes, json::DOCUMENT_LIMITS).map_err(KeySetError::Json)?;
        let Some(Value::Array(members)) = document.get("keys") else {
            return Err(KeySetError::NoKeys);
        };
        if members.len() > KEYS_MAX {
            return Err(KeySetError::TooManyKeys);
        }
        let mut keys = Vec::with_capacity(members.len());
        let mut skipped = Vec::new();
        for member in members {
            match parse_key(member, allowed) {
                Ok(key) => keys.push(Arc::new(key)),
                Err((reason, alarming)) => skipped.push(Skipped {
                    kid: member.get("kid").and_then(Value::as_str).map(|kid| kid.chars().take(64).collect()),
                    reason,
                    alarming,
                }),
            }
        }
        Ok((Self::from_keys(keys), skipped))
    }

    fn from_keys(keys: Vec<Arc<Key>>) -> Self {
        let mut by_kid: HashMap<Box<str>, Vec<usize>, _> = HashMap::default();
        for (index, key) in keys.iter().enumerate() {
            if let Some(kid) = &key.kid {
                by_kid.entry(kid.clone()).or_default().push(index);
            }
        }
        Self { keys, by_kid, epoch: next_epoch() }
    }

    /// Keeps the epoch of `previous` if every key of it is still present and unchanged.
    pub(crate) fn succeeding(mut self, previous: &Self) -> Self {
        let kept = |old: &Arc<Key>| self.keys.iter().any(|new| new.same(old));
        if previous.keys.iter().all(kept) {
            self.epoch = previous.epoch;
        }
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The key for `header`: by `kid`, or without one the only key that fits its algorithm.
    ///
    /// # Errors
    /// Unknown, ambiguous or mismatched keys; never a guess.
    pub(crate) fn select(&self, header: &Header) -> Result<Arc<Key>, TokenError> {
        let algorithm = header.algorithm.ok_or(TokenError::AlgorithmNotAllowed)?;
        let fits = |key: &&Arc<Key>| key.verifier(algorithm).is_some();
        match &header.kid {
            Some(kid) => {
                let named = self.by_kid.get(kid.as_str()).ok_or(TokenError::KeyUnknown)?;
                let named = named.iter().filter_map(|&index| self.keys.get(index));
                only(named.filter(fits), TokenError::KeyMismatch)
            }
            None => only(self.keys.iter().filter(fits), TokenError::KeyUnknown),
        }
    }
}

fn only<'a>(
    mut keys: impl Iterator<Item = &'a Arc<Key>>,
    absent: TokenError,
) -> Result<Arc<Key>, TokenError> {
    let first = keys.next().ok_or(absent)?;
    match keys.next() {
        None => Ok(Arc::clone(first)),
        Some(_) => Err(TokenError::KeyAmbiguous),
    }
}

type Refused = (&'static str, bool);

fn parse_key(member: &Value, allowed: &[Algorithm]) -> Result<Key, Refused> {
    let Value::Object(jwk) = member else {
        return Err(("not an object", true));
    };
    let kty = text(jwk, "kty")?.ok_or(("no kty", true))?;
    if kty == "oct" {
        return Err(("a symmetric key in a public key set", true));
    }
    if PRIVATE_MEMBERS.iter().any(|name| jwk.contains_key(*name)) {
        return Err(("a private key in a public key set: it is compromised", true));
    }
    let kid = text(jwk, "kid")?;
    if kid.is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
        return Err(("kid is too long", true));
    }
    for_signatures(jwk)?;
    let material = material::Material::parse(kty, jwk)?;
    let algorithms = usable(jwk, material.key_type(), allowed)?;
    let mut verifiers = Vec::with_capacity(algorithms.len());
    for algorithm in algorithms {
        let parsed = material.verifier(algorithm).ok_or(("not a valid public key", true))?;
        verifiers.push((algorithm, parsed));
    }
    Ok(Key {
        kid: kid.map(Into::into),
        issuer: text(jwk, "issuer")?.map(Into::into),
        verifiers,
        fingerprint: material.fingerprint(),
    })
}

/// `use` and `key_ops` (RFC 7517 §4.2, §4.3) must allow verification if they are present.
fn for_signatures(jwk: &Map<String, Value>) -> Result<(), Refused> {
    if text(jwk, "use")?.is_some_and(|usage| usage != "sig") {
        return Err(("not for signatures (use)", false));
    }
    match jwk.get("key_ops") {
        None => Ok(()),
        Some(Value::Array(operations)) => {
            if !operations.iter().all(Value::is_string) {
                return Err(("key_ops holds something else than strings", true));
            }
            if operations.iter().any(|operation| operation == "verify") {
                Ok(())
            } else {
                Err(("not for verification (key_ops)", false))
            }
        }
        Some(_) => Err(("key_ops is not an array", true)),
    }
}

/// The algorithms that the key may be used with: only its own `alg` if it has one.
fn usable(
    jwk: &Map<String, Value>,
    key_type: KeyType,
    allowed: &[Algorithm],
) -> Result<Vec<Algorithm>, Refused> {
    let stated = match text(jwk, "alg")? {
        None => None,
        Some(name) => Some(Algorithm::from_name(name).ok_or(("alg is not supported", false))?),
    };
    if stated.is_some_and(|algorithm| algorithm.key_type() != key_type) {
        return Err(("alg does not fit the key's type", true));
    }
    let usable: Vec<_> = Algorithm::ALL
        .into_iter()
        .filter(|algorithm| algorithm.key_type() == key_type && allowed.contains(algorithm))
        .filter(|algorithm| stated.is_none_or(|stated| stated == *algorithm))
        .collect();
    if usable.is_empty() {
        return Err(("for an algorithm that is not allowed", false));
    }
    Ok(usable)
}

fn text<'a>(jwk: &'a Map<String, Value>, name: &'static str) -> Result<Option<&'a str>, Refused> {
    match jwk.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(("a member that must be a string is not", true)),
    }
}

#[cfg(test)]
mod tests;

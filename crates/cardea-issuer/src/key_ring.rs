//! The signing keys in memory: decrypted, in order, with the key set that verifiers see.

use std::sync::Arc;

use cardea_clock::Wall;
use cardea_store::{KeyRecord, KeySetRecord, SigningAlgorithm};
use serde::Serialize;

use crate::{IssuerError, WrappingKey, rotation::signing_index, signing::Jwk, signing::SigningKey};

/// An immutable state of the signing keys. A change creates another.
#[derive(Debug)]
pub(crate) struct KeyRing {
    /// The version of the stored set.
    pub(crate) version: u64,
    /// In the order of activation.
    pub(crate) entries: Vec<Entry>,
    /// RFC 7517 §5.
    pub(crate) key_set: Arc<str>,
}

/// A stored key and its decrypted form.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) record: KeyRecord,
    pub(crate) key: Arc<SigningKey>,
}

/// The time for which a signing key is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Wall,
    /// The time until which the keys are known to have been published: `now` or earlier.
    pub(crate) published: Wall,
}

#[derive(Serialize)]
struct KeySet<'a> {
    keys: Vec<&'a Jwk>,
}

impl KeyRing {
    /// Decrypts stored keys. Keys that `previous` already holds are taken from there.
    ///
    /// # Errors
    /// [`IssuerError::WrappingKey`] if the keys were encrypted with another wrapping key; [`IssuerError::DamagedKey`].
    pub(crate) fn load(
        stored: &KeySetRecord,
        wrapping_key: &WrappingKey,
        previous: Option<&Self>,
    ) -> Result<Self, IssuerError> {
        let mut entries = Vec::with_capacity(stored.keys.len());
        for record in &stored.keys {
            let known = previous.and_then(|previous| {
                previous
                    .entries
                    .iter()
                    .find(|entry| entry.record.wrapped == record.wrapped && entry.record.kid == record.kid)
            });
            let key = match known {
                Some(entry) => Arc::clone(&entry.key),
                None => Arc::new(unwrap(record, wrapping_key)?),
            };
            entries.push(Entry { record: record.clone(), key });
        }
        let key_set = KeySet { keys: entries.iter().map(|entry| entry.key.jwk()).collect() };
        let key_set = serde_json::to_string(&key_set)
            .map_err(|_| IssuerError::Crypto("the key set can't be written"))?
            .into();
        Ok(Self { version: stored.version, entries, key_set })
    }

    /// The key that signs at that moment.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`] if there is none, which can't happen after the server opened.
    pub(crate) fn signing(&self, at: Moment) -> Result<Arc<SigningKey>, IssuerError> {
        self.signing_index(at)
            .and_then(|index| self.entries.get(index))
            .map(|entry| Arc::clone(&entry.key))
            .ok_or(IssuerError::Crypto("there is no signing key"))
    }

    /// The public data of the keys.
    pub(crate) fn describe(&self, at: Moment) -> Vec<Key> {
        let signing = self.signing_index(at);
        let describe = |(index, entry): (usize, &Entry)| Key {
            kid: entry.record.kid.clone(),
            algorithm: entry.record.algorithm.as_str(),
            signing: signing == Some(index),
            created_at: entry.record.created_at.unix_seconds(),
            activates_at: entry.record.activates_at.unix_seconds(),
            remove_at: entry.record.remove_at.map(Wall::unix_seconds),
            wrapping_key_id: entry.record.wrapping_key_id.clone(),
        };
        self.entries.iter().enumerate().map(describe).collect()
    }

    pub(crate) fn signing_index(&self, at: Moment) -> Option<usize> {
        let activation = |entry: &Entry| {
            let KeyRecord { created_at, activates_at, .. } = entry.record;
            // A key that was created to sign at once is never withheld.
            let may_sign = activates_at <= at.published || activates_at == created_at;
            if may_sign { activates_at } else { Wall::MAX }
        };
        signing_index(self.entries.iter().map(activation), at.now)
    }
}

/// A signing key as administrators see it. It is serialised for scripts; times are in Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The RFC 7638 thumbprint of the public key.
    pub kid: String,
    /// The `alg` of JOSE headers.
    pub algorithm: &'static str,
    /// Whether the key signs now.
    pub signing: bool,
    /// The time of creation and of first publication.
    pub created_at: i64,
    /// The time from which the key signs.
    pub activates_at: i64,
    /// The time from which the key is no longer published. It is set when its successor exists.
    pub remove_at: Option<i64>,
    /// The id of the wrapping key that encrypts it.
    pub wrapping_key_id: String,
}

fn unwrap(record: &KeyRecord, wrapping_key: &WrappingKey) -> Result<SigningKey, IssuerError> {
    let pkcs8 =
        wrapping_key.unwrap(&record.kid, record.algorithm, &record.wrapping_key_id, &record.wrapped)?;
    let damaged = |problem| IssuerError::DamagedKey { kid: record.kid.clone(), problem };
    let key = SigningKey::from_pkcs8(record.algorithm, &pkcs8)
        .ok_or_else(|| damaged("not a key of its algorithm"))?;
    if key.kid() != record.kid {
        return Err(damaged("its id is not its thumbprint"));
    }
    Ok(key)
}

/// Creates a key that signs from `activates_at`. It blocks: an RSA key takes a tenth of a second or more.
///
/// # Errors
/// [`IssuerError::Crypto`].
pub(crate) fn create(
    algorithm: SigningAlgorithm,
    wrapping_key: &WrappingKey,
    now: Wall,
    activates_at: Wall,
) -> Result<KeyRecord, IssuerError> {
    let (key, pkcs8) = SigningKey::generate(algorithm)?;
    let wrapped = wrapping_key
        .wrap(key.kid(), algorithm, &pkcs8)
        .ok_or(IssuerError::Crypto("the signing key can't be wrapped"))?;
    Ok(KeyRecord {
        kid: key.kid().to_owned(),
        algorithm,
        wrapped,
        wrapping_key_id: wrapping_key.id().to_owned(),
        created_at: now,
        activates_at,
        remove_at: None,
    })
}

//! The signing keys in memory: unwrapped, in order, with the key set that verifiers see.

use std::sync::Arc;

use cardea_clock::Wall;
use cardea_store::{KeyRecord, KeySetRecord, SigningAlgorithm};
use serde::Serialize;

use crate::{IssuerError, WrappingKey, rotation::signing_index, signing::Jwk, signing::SigningKey};

/// One state of the key set; a change makes another.
#[derive(Debug)]
pub(crate) struct KeyRing {
    /// The version of the stored set that this one shows.
    pub(crate) version: u64,
    /// In the order in which they take over.
    pub(crate) entries: Vec<Entry>,
    /// RFC 7517 §5.
    pub(crate) key_set: Arc<str>,
}

/// A stored key and what it unwraps to.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) record: KeyRecord,
    pub(crate) key: Arc<SigningKey>,
}

/// When a key is to sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Wall,
    /// `now`, or earlier: until then it is known that the keys were published.
    pub(crate) published: Wall,
}

#[derive(Serialize)]
struct KeySet<'a> {
    keys: Vec<&'a Jwk>,
}

impl KeyRing {
    /// Unwraps stored keys. Those that `previous` holds already are taken from there.
    ///
    /// # Errors
    /// [`IssuerError::WrappingKey`] where the key is not the one they were wrapped with; [`IssuerError::DamagedKey`].
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
    /// [`IssuerError::Crypto`] where there is none, which a server that opened never shows.
    pub(crate) fn signing(&self, at: Moment) -> Result<Arc<SigningKey>, IssuerError> {
        self.signing_index(at)
            .and_then(|index| self.entries.get(index))
            .map(|entry| Arc::clone(&entry.key))
            .ok_or(IssuerError::Crypto("there is no signing key"))
    }

    /// What may be said of the keys.
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
            // What was made to sign at once waits for nobody.
            let may_sign = activates_at <= at.published || activates_at == created_at;
            if may_sign { activates_at } else { Wall::MAX }
        };
        signing_index(self.entries.iter().map(activation), at.now)
    }
}

/// A signing key as those who administer it see it. It serialises for scripts; times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The key's id.
    pub kid: String,
    /// How it signs.
    pub algorithm: &'static str,
    /// Whether it is the one that signs now.
    pub signing: bool,
    /// When it was made; published since.
    pub created_at: i64,
    /// From when it signs.
    pub activates_at: i64,
    /// From when it is no longer published; known once its successor is.
    pub remove_at: Option<i64>,
    /// The wrapping key that it is stored under.
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

/// Makes a key that takes over at `activates_at`. Blocks: an RSA key takes a tenth of a second and more.
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

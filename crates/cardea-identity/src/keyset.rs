//! The keys of an issuer: from a file read once, in memory, or behind a URL.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use cardea_clock::Mono;

use crate::algorithm::Algorithm;
use crate::error::{IdentityError, TokenError};
use crate::jwk::{Key, KeySet, Skipped};
use crate::jws::Header;
use crate::remote::Remote;

/// The state of an issuer's keys that verdicts depend on. It is separate from the keys, so that a check takes two loads
/// from one cache line and no reference count.
#[derive(Debug, Default)]
pub(crate) struct KeyEpoch {
    /// The epoch of the keys; 0 if there are none.
    epoch: AtomicU64,
    /// In nanoseconds.
    usable_until: AtomicU64,
}

impl KeyEpoch {
    /// Announces keys that are already stored. Calls must not overlap. A concurrent reader sees no keys or another
    /// epoch, and verifies the token again.
    pub(crate) fn publish(&self, keys: Option<&KeySet>, usable_until: Mono) {
        self.epoch.store(keys.map_or(0, |keys| keys.epoch), Ordering::Release);
        self.usable_until.store(usable_until.nanos(), Ordering::Release);
    }

    /// The epoch of the keys; `None` if there are none or they are too old.
    pub(crate) fn epoch(&self, now: Mono) -> Option<u64> {
        let usable = now.nanos() < self.usable_until.load(Ordering::Acquire);
        Some(self.epoch.load(Ordering::Acquire)).filter(|epoch| usable && *epoch != 0)
    }
}

/// Keys in memory, published by the built-in authorization server without a network request.
///
/// A clone is another handle to the same keys. Before the first publication there are none, and every token of the
/// issuer fails with [`TokenError::KeysUnavailable`].
#[derive(Clone)]
pub struct LocalKeys(Arc<Local>);

struct Local {
    current: ArcSwap<Option<Arc<KeySet>>>,
    /// Serialises publications, so that each epoch follows from the keys before.
    publishing: Mutex<()>,
    key_epoch: Arc<KeyEpoch>,
}

impl LocalKeys {
    /// A handle without keys.
    #[must_use]
    pub fn new() -> Self {
        let (current, publishing) = (ArcSwap::from_pointee(None), Mutex::new(()));
        Self(Arc::new(Local { current, publishing, key_epoch: Arc::default() }))
    }

    /// Replaces the keys by those of a JWK set (RFC 7517 §5). They are in effect when it returns.
    ///
    /// # Errors
    /// The set is malformed; the keys are unchanged.
    pub fn publish(&self, jwks_json: &[u8]) -> Result<(), IdentityError> {
        let (keys, skipped) = KeySet::parse(jwks_json, &Algorithm::ALL)?;
        report("local", &skipped);
        let _order = self.0.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = match self.0.current.load().as_ref() {
            Some(previous) => keys.succeeding(previous),
            None => keys,
        };
        let keys = Arc::new(keys);
        self.0.current.store(Arc::new(Some(Arc::clone(&keys))));
        self.0.key_epoch.publish(Some(&keys), Mono::MAX);
        Ok(())
    }

    pub(crate) fn load(&self) -> Option<Arc<KeySet>> {
        self.0.current.load().as_ref().clone()
    }

    pub(crate) fn key_epoch(&self) -> &Arc<KeyEpoch> {
        &self.0.key_epoch
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for LocalKeys {
    fn default() -> Self {
        Self::new()
    }
}

/// Two handles are equal if they refer to the same keys.
impl PartialEq for LocalKeys {
    fn eq(&self, other: &Self) -> bool {
        self.is(other)
    }
}

impl Eq for LocalKeys {}

impl fmt::Debug for LocalKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.load().map_or(0, |keys| keys.len());
        f.debug_struct("LocalKeys").field("keys", &keys).finish()
    }
}

/// The keys of an issuer, which outlive a configuration.
pub(crate) enum IssuerKeys {
    /// Read from a file when the configuration loaded.
    Fixed(Arc<KeySet>),
    Local(LocalKeys),
    Remote(Arc<Remote>),
}

impl IssuerKeys {
    /// The key for `header` among `keys`, and the epoch of the set.
    pub(crate) fn select(header: &Header, keys: Option<&KeySet>) -> Result<(Arc<Key>, u64), TokenError> {
        let keys = keys.ok_or(TokenError::KeysUnavailable)?;
        Ok((keys.select(header)?, keys.epoch))
    }
}

/// Logs keys that should not be in a set.
pub(crate) fn report(issuer: &str, skipped: &[Skipped]) {
    for key in skipped {
        let (kid, reason) = (key.kid.as_deref().unwrap_or("-"), key.reason);
        if key.alarming {
            tracing::warn!(issuer, kid, reason, "key skipped");
        } else {
            tracing::debug!(issuer, kid, reason, "key skipped");
        }
    }
}

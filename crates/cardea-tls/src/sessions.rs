//! The session store of a listener.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::thread;

use cardea_cache::{Lifetime, Limits, LimitsError, SHARDS_PER_THREAD, Sharded};
use cardea_clock::Clock;
use foldhash::quality::RandomState;
use rustls::server::StoresServerSessions;
use zeroize::{Zeroize, Zeroizing};

use crate::config::ServerTlsConfig;

/// The length of our TLS 1.2 session ids, and of TLS 1.3 tickets that refer to a session here.
const ID_LEN: usize = 32;
/// The average size of a session. One has about 200 bytes, plus a client's certificates.
const SESSION_BYTES: usize = 4 * 1024;
/// Sessions that are removed under one lock.
const RECLAIMED_AT_ONCE: usize = 64;

/// The secrets of the session, which are wiped when they are dropped.
type Secrets = Zeroizing<Box<[u8]>>;

/// A session id.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Id([u8; ID_LEN]);

impl Id {
    /// `None` if it can't be one of ours.
    fn of(key: &[u8]) -> Option<Self> {
        key.try_into().ok().map(Self)
    }
}

impl Hash for Id {
    /// Stored ids are random and ours, so nobody can choose them for their hash, and half of one suffices.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (words, _) = self.0.as_chunks();
        state.write_u64(u64::from_le_bytes(words[0]));
        state.write_u64(u64::from_le_bytes(words[1]));
    }
}

/// Statistics of a listener's sessions. Counters restart when a reload removes all sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Stored sessions, including expired ones.
    pub sessions: usize,
    /// Their size in bytes, without the store's own 84 bytes for each.
    pub bytes: usize,
    /// Lookups that found one.
    pub hits: u64,
    /// Lookups that found no session: evicted, used before, or never ours.
    pub misses: u64,
    /// Sessions that were evicted before they expired. Above zero, the store is too small.
    pub evicted: u64,
}

/// The sessions of one listener and its trust domains, by their ids.
///
/// The store is bounded by number, bytes and lifetime, and removed sessions are wiped. The first use of a TLS 1.3
/// session removes it, so that a ticket works once, even if it is offered twice at the same time.
pub(crate) struct Sessions {
    cache: Sharded<Id, Secrets, RandomState>,
    clock: Clock,
    is_enabled: bool,
    /// Whether a TLS 1.2 session id works only once too.
    is_single_use: bool,
}

impl Sessions {
    /// With client certificates, every session is used once: a client that can't resume because its certificate is no
    /// longer valid then does a full handshake.
    pub(crate) fn new(
        config: &ServerTlsConfig,
        is_single_use: bool,
        clock: &Clock,
    ) -> Result<Arc<Self>, LimitsError> {
        let limits = Limits {
            entries: config.sessions_max,
            bytes: config.sessions_max.saturating_mul(SESSION_BYTES),
            lifetime: Lifetime::Same(config.session_lifetime),
        };
        let shards = SHARDS_PER_THREAD * thread::available_parallelism().map_or(1, usize::from);
        let weigh = |_: &Id, secrets: &Secrets| secrets.len();
        let cache = Sharded::weighed(limits, shards, weigh, RandomState::default())?;
        let is_enabled = config.sessions_max > 0 && !config.session_lifetime.is_zero();
        Ok(Arc::new(Self { cache, clock: clock.clone(), is_enabled, is_single_use }))
    }

    /// Wipes expired sessions, which otherwise would stay until they are evicted.
    pub(crate) fn reclaim(&self) {
        while self.cache.reclaim(RECLAIMED_AT_ONCE, self.clock.mono()) > 0 {}
    }

    pub(crate) fn stats(&self) -> SessionStats {
        let stats = self.cache.stats();
        SessionStats {
            sessions: self.cache.len(),
            bytes: self.cache.bytes(),
            hits: stats.hits,
            misses: stats.misses,
            evicted: stats.evicted,
        }
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        // Copied, because shrinking the vector would leave a copy that is not wiped.
        let secrets = Secrets::new(Box::from(value.as_slice()));
        value.zeroize();
        Id::of(&key).is_some_and(|id| self.cache.insert(id, secrets, self.clock.mono()))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.is_single_use {
            return self.take(key);
        }
        let id = &Id::of(key)?;
        self.cache.get_with(id, self.clock.mono(), |secrets| secrets.to_vec())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let id = &Id::of(key)?;
        let mut secrets = self.cache.take(id, self.clock.mono())?;
        Some(std::mem::take(&mut *secrets).into_vec())
    }

    fn can_cache(&self) -> bool {
        self.is_enabled
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! The sessions that a listener's clients may resume.

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

/// Of a TLS 1.2 session id that we made, and of a TLS 1.3 ticket that stands for a session here.
const ID_LEN: usize = 32;
/// What a session may take on average. One has about 200 bytes; a client's certificates come on top.
const SESSION_BYTES: usize = 4 * 1024;
/// Sessions that are forgotten under one lock.
const RECLAIMED_AT_ONCE: usize = 64;

/// Keys for everything that was said in the session; wiped when it goes.
type Secrets = Zeroizing<Box<[u8]>>;

/// Of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Id([u8; ID_LEN]);

impl Id {
    /// `None` if it can't be one of ours.
    fn of(key: &[u8]) -> Option<Self> {
        key.try_into().ok().map(Self)
    }
}

impl Hash for Id {
    /// Ids that are stored are random and ours, so that nobody chooses them for their hash, and half of one suffices.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (words, _) = self.0.as_chunks();
        state.write_u64(u64::from_le_bytes(words[0]));
        state.write_u64(u64::from_le_bytes(words[1]));
    }
}

/// How a listener's sessions fare. Counters begin anew where a reload gives up all sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Sessions that are kept, some of which may have expired.
    pub sessions: usize,
    /// What they take, in bytes, without the store's own 84 bytes for each.
    pub bytes: usize,
    /// Lookups that found one.
    pub hits: u64,
    /// Lookups that found none: forgotten, used before, or never ours.
    pub misses: u64,
    /// Sessions that went for newer ones before their time: above zero, the store is too small.
    pub evicted: u64,
}

/// Sessions of one listener and of its trust domains, by their ids.
///
/// Bounded by number, by bytes and by lifetime; what is forgotten is wiped. A TLS 1.3 session is taken out by its first
/// use, so that a ticket works once, even where it is offered twice at the same time.
pub(crate) struct Sessions {
    cache: Sharded<Id, Secrets, RandomState>,
    clock: Clock,
    is_enabled: bool,
    /// A session id of TLS 1.2 works once, too.
    is_single_use: bool,
}

impl Sessions {
    /// Where clients are asked for certificates, every session is good for one use: a client that can't be let in by a
    /// session, because its certificate no longer holds, then comes with a full handshake.
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

    /// Wipes what has expired. Without this, sessions would wait for others to take their places.
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
        // Copied, since giving up spare capacity would leave a copy behind that nobody wipes.
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

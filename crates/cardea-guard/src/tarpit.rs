//! The tarpit: who has offended how often, and the requests of repeat offenders that are held.
//!
//! A held request has one entry here, and nothing else in this crate. One timer wheel knows when each is due, and one lock
//! guards all: only requests that offend take it.

mod offender;
#[cfg(test)]
mod tests;
mod wheel;

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};

use cardea_clock::Mono;
use foldhash::quality::RandomState;

use crate::{AddressPrefix, FailureCounts, FailureKey};

pub use self::offender::{Identity, Offender, Origin};
use self::wheel::Wheel;

/// When an offender is one that offends again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffenceLimit {
    /// So many offences at once are tolerated.
    pub offences: u32,
    /// In this time as many are forgiven.
    pub memory: Duration,
}

/// How many requests may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TarpitBounds {
    /// Of all together.
    pub held_max: u32,
    /// Of each address prefix.
    pub per_prefix_max: u32,
    /// Of each identity.
    pub per_identity_max: u32,
}

/// Why a request is not held: there are as many as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TarpitFull {
    /// Of all together.
    Total,
    /// Of its address prefix.
    Prefix,
    /// Of its identity.
    Identity,
}

/// How the hold of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Its time is over.
    Due,
    /// Before that: it is to be answered now.
    Early,
    /// Before that: its connection is needed, and it is to be dropped.
    Evicted,
}

/// What is held of one offender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldOffender {
    /// Who.
    pub offender: Offender,
    /// How many requests.
    pub held: u32,
    /// When the first of them began.
    pub since: Mono,
    /// When the last of them ends.
    pub until: Mono,
}

/// The state of the tarpit.
#[derive(Debug)]
pub struct Tarpit {
    hashers: [RandomState; 2],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    offences: FailureCounts,
    held: Wheel<Held>,
    prefixes: HashMap<AddressPrefix, u32>,
    identities: HashMap<Arc<Identity>, u32>,
}

#[derive(Debug)]
struct Held {
    origin: Origin,
    since: Mono,
    waker: Option<Waker>,
    /// Once it has ended.
    released: Option<Released>,
}

/// The place of a held request, which it gives up when this is dropped.
#[derive(Debug)]
pub struct HeldPlace {
    tarpit: Arc<Tarpit>,
    at: usize,
}

impl Tarpit {
    /// Nobody has offended yet. It remembers `offenders_max`.
    #[must_use]
    pub fn new(offenders_max: usize) -> Arc<Self> {
        let state = State {
            offences: FailureCounts::new(offenders_max),
            held: Wheel::new(),
            prefixes: HashMap::new(),
            identities: HashMap::new(),
        };
        Arc::new(Self { hashers: [RandomState::default(), RandomState::default()], state: Mutex::new(state) })
    }

    /// Notes an offence. Whether the offender has committed more than are tolerated.
    ///
    /// Offences are forgiven one after the other, evenly. No more than twice the limit count, so that an offender is
    /// forgiven soon after it stops.
    pub fn offend(&self, offender: &Offender, limit: OffenceLimit, now: Mono) -> bool {
        let (memory, one) = limit.nanos();
        let key = self.key(offender);
        let mut state = self.lock();
        state.offences.add(key, one, memory.saturating_mul(2), now);
        state.offences.debt(&key, now) > one.saturating_mul(limit.offences.into())
    }

    /// Whether one more offence would make it a repeat offender. Notes nothing.
    #[must_use]
    pub fn is_repeat_offender(&self, offender: &Offender, limit: OffenceLimit, now: Mono) -> bool {
        let (_, one) = limit.nanos();
        let debt = self.lock().offences.debt(&self.key(offender), now);
        debt.saturating_add(one) > one.saturating_mul(limit.offences.into())
    }

    /// Holds a request until then, unless there are too many.
    ///
    /// # Errors
    /// [`TarpitFull`], by the first bound that is reached.
    pub fn hold(
        self: &Arc<Self>,
        origin: Origin,
        bounds: TarpitBounds,
        until: Mono,
        now: Mono,
    ) -> Result<HeldPlace, TarpitFull> {
        let mut state = self.lock();
        if state.held.len() >= usize::try_from(bounds.held_max).unwrap_or(usize::MAX) {
            return Err(TarpitFull::Total);
        }
        let count = |held: Option<&u32>| held.copied().unwrap_or(0);
        if let Some(prefix) = &origin.prefix
            && count(state.prefixes.get(prefix)) >= bounds.per_prefix_max
        {
            return Err(TarpitFull::Prefix);
        }
        if let Some(identity) = &origin.identity
            && count(state.identities.get(identity)) >= bounds.per_identity_max
        {
            return Err(TarpitFull::Identity);
        }
        if let Some(prefix) = origin.prefix {
            *state.prefixes.entry(prefix).or_default() += 1;
        }
        if let Some(identity) = &origin.identity {
            *state.identities.entry(Arc::clone(identity)).or_default() += 1;
        }
        let at = state.held.insert(Held { origin, since: now, waker: None, released: None }, until, now);
        drop(state);
        Ok(HeldPlace { tarpit: Arc::clone(self), at })
    }

    /// Ends the holds that are due. To be called every [`TARPIT_TICK`].
    pub fn advance(&self, now: Mono) {
        self.end(Released::Due, |held, ended| held.advance(now, |held| ended(held)));
    }

    /// Ends the holds of an offender, or of all, and forgets their offences. How many were held.
    pub fn release(&self, which: Option<&Offender>) -> usize {
        let mut state = self.lock();
        match which {
            Some(offender) => {
                let key = self.key(offender);
                let debt = state.offences.debt(&key, Mono::from_nanos(0));
                state.offences.take_back(&key, debt);
            }
            None => state.offences.clear(),
        }
        drop(state);
        let is_meant = |held: &Held| which.is_none_or(|which| held.origin.is(which));
        self.end(Released::Early, |held, ended| {
            held.remove_where(usize::MAX, is_meant, |held| ended(held));
        })
    }

    /// Ends all holds; their requests are answered at once.
    pub fn release_all(&self) -> usize {
        self.end(Released::Early, |held, ended| held.remove_where(usize::MAX, |_| true, |held| ended(held)))
    }

    /// Drops up to `count` held requests, the next to be due first. How many.
    pub fn evict(&self, count: usize) -> usize {
        self.end(Released::Evicted, |held, ended| held.remove_where(count, |_| true, |held| ended(held)))
    }

    /// Ends those that `choose` takes out of the wheel.
    fn end(&self, how: Released, choose: impl FnOnce(&mut Wheel<Held>, &mut dyn FnMut(&mut Held))) -> usize {
        let mut wakers = Vec::new();
        let mut count = 0;
        let mut state = self.lock();
        choose(&mut state.held, &mut |held| {
            held.released = Some(how);
            wakers.extend(held.waker.take());
            count += 1;
        });
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        count
    }

    /// How many requests are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// How many offenders are remembered.
    #[must_use]
    pub fn offenders(&self) -> usize {
        self.lock().offences.len()
    }

    /// Whose requests are held, those that have been held for the longest first.
    #[must_use]
    pub fn list(&self) -> Vec<HeldOffender> {
        let mut all: HashMap<Offender, HeldOffender> = HashMap::new();
        for (held, until) in self.lock().held.iter() {
            if held.released.is_some() {
                continue;
            }
            let Some(offender) = held.origin.offender() else { continue };
            let new = || HeldOffender { offender: offender.clone(), held: 0, since: held.since, until };
            let entry = all.entry(offender.clone()).or_insert_with(new);
            entry.held += 1;
            entry.since = entry.since.min(held.since);
            entry.until = entry.until.max(until);
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|one| one.since);
        all
    }

    fn key(&self, offender: &Offender) -> FailureKey {
        let [one, other] = self.hashers.each_ref().map(|hasher| hasher.hash_one(offender));
        ((u128::from(one) << 64) | u128::from(other)).to_be_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often [`Tarpit::advance`] is to be called.
pub const TARPIT_TICK: Duration = wheel::TICK;

impl OffenceLimit {
    /// The memory, and how long it takes to forgive one offence.
    fn nanos(self) -> (u64, u64) {
        let memory = u64::try_from(self.memory.as_nanos()).unwrap_or(u64::MAX);
        (memory, (memory / u64::from(self.offences.max(1))).max(1))
    }
}

impl HeldPlace {
    /// Ready once the hold has ended.
    pub fn poll(&self, waker: &Waker) -> Poll<Released> {
        let mut state = self.tarpit.lock();
        let Some(held) = state.held.get_mut(self.at) else { return Poll::Ready(Released::Evicted) };
        match held.released {
            Some(released) => Poll::Ready(released),
            None => {
                if held.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                    held.waker = Some(waker.clone());
                }
                Poll::Pending
            }
        }
    }

    /// Holds it again, until then, if its time was over.
    pub fn hold_again(&self, until: Mono, now: Mono) {
        let mut state = self.tarpit.lock();
        if let Some(held) = state.held.get_mut(self.at)
            && held.released == Some(Released::Due)
        {
            held.released = None;
            state.held.arm(self.at, until, now);
        }
    }

    /// How long it has been held.
    #[must_use]
    pub fn held_for(&self, now: Mono) -> Duration {
        let mut state = self.tarpit.lock();
        state.held.get_mut(self.at).map_or(Duration::ZERO, |held| now.saturating_since(held.since))
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let mut state = self.tarpit.lock();
        let Some(Held { origin, .. }) = state.held.remove(self.at) else { return };
        if let Some(prefix) = &origin.prefix {
            decrement(&mut state.prefixes, prefix);
        }
        if let Some(identity) = &origin.identity {
            decrement(&mut state.identities, identity);
        }
    }
}

fn decrement<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(key)),
    }
}

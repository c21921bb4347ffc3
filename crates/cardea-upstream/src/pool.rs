//! Idle connections to one endpoint: a part for each worker, so that workers share neither locks nor sockets.

mod counts;
mod usage;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;
use cardea_http::h1::KeepAlive;

use crate::config::PoolConfig;
use crate::framing::FramingRecord;
pub(crate) use counts::Counts;
pub use counts::PoolStats;
use counts::{Count, count};
pub use usage::Usage;
use usage::{End, Limits};

/// After how long a connection that its worker has not used is there for the others. Shorter than what separates
/// the requests of a quiet service, longer than the pauses of a busy one: what is in use stays where it is.
pub const SPARE_AFTER: Duration = Duration::from_millis(500);

/// How long a connection is held back after a response that has no body: an origin that sends a body all the same
/// sends it within this time, and what comes while a connection is held is found before another request is sent on it.
pub const HOLD_FOR: Duration = Duration::from_secs(1);

/// How many connections each worker holds back of those that only a sample is held of; see [`Hold::Sample`].
const SAMPLE_MAX: usize = 8;

/// Which connections are held for [`HOLD_FOR`] before another request may use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// All of them. Where there is no room to hold one, a connection is closed.
    Always,
    /// All of them until the endpoint has shown that it sends nothing after such responses. Then a few at a time for each
    /// worker, and the others can be used again at once.
    Sample,
}

/// Idle connections, the most recently used first, so that what isn't needed ages and goes.
///
/// Each worker puts and takes in a part of its own. A connection that was not used for [`SPARE_AFTER`] may be taken
/// by another worker, so that a service with few requests does not need a connection per worker.
///
/// A lock is held for a few moves of memory: connections are checked and dropped, which may cost a
/// system call each, outside of it.
pub struct Pool<C> {
    parts: Box<[Arc<Part<C>>]>,
    /// How many parts are in use: fewer than there are where `idle_max` has not one connection for each.
    used: AtomicUsize,
    framing: Arc<FramingRecord>,
}

/// What one worker uses, on cache lines of its own: two, as processors fetch them in pairs.
#[repr(align(128))]
struct Part<C> {
    state: Mutex<State<C>>,
    counts: Arc<Count>,
    framing: Arc<FramingRecord>,
}

struct State<C> {
    /// The least recently used in front.
    idle: VecDeque<Idle<C>>,
    /// Not to be used before they have been here for [`HOLD_FOR`]; the oldest in front. They count as idle.
    held: VecDeque<Idle<C>>,
    idle_max: usize,
    limits: Limits,
    closed: bool,
}

struct Idle<C> {
    connection: C,
    since: Mono,
    usage: Usage,
    /// The worker that put it.
    worker: usize,
}

/// Where a worker puts connections back. Holding it counts nowhere that workers share.
pub struct PoolPlace<C> {
    part: Arc<Part<C>>,
    worker: usize,
    usage: Usage,
}

impl<C> PoolPlace<C> {
    /// One more exchange has ended on the connection, with which the endpoint offered this.
    pub fn count(&mut self, offer: KeepAlive) {
        self.usage.count(offer);
    }

    /// Keeps a connection for another request, best of the same worker. What the pool has no room for comes back, to
    /// be dropped: the least recently used connection of a full part, or this one if the pool is closed or keeps none.
    #[must_use = "drop it where that may take its time"]
    pub fn put(&self, connection: C, now: Mono) -> Option<C> {
        self.part.put(Idle { connection, since: now, usage: self.usage, worker: self.worker })
    }

    /// Keeps a connection, but holds it back from other requests for [`HOLD_FOR`]. It takes the place of no connection
    /// that is ready for use. What the pool has no room for comes back, to be dropped.
    ///
    /// Those whose time is over are let go: `alive` is asked of each, outside the lock, and what it refuses is dropped.
    /// Where the endpoint has sent more than its responses announced, no connection is held: all of them come back.
    #[must_use = "drop it where that may take its time"]
    pub fn hold(
        &self,
        connection: C,
        now: Mono,
        hold: Hold,
        mut alive: impl FnMut(&mut C) -> bool,
    ) -> Option<C> {
        self.part.release(now, &mut alive);
        if self.part.framing.has_shown_surplus() {
            return Some(connection);
        }
        self.part.hold(Idle { connection, since: now, usage: self.usage, worker: self.worker }, hold)
    }
}

impl<C> PoolPlace<C> {
    /// Notes that the endpoint sent bytes that belong to no response.
    pub fn note_surplus(&self) {
        self.part.framing.note_surplus();
    }
}

impl<C> fmt::Debug for PoolPlace<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolPlace").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// A connection that was idle.
#[derive(Debug, PartialEq, Eq)]
pub struct IdleConnection<C> {
    /// The connection.
    pub connection: C,
    /// What it has been used for.
    pub usage: Usage,
    /// Another worker used it last: whatever of it belongs to that worker's thread must be moved.
    pub foreign: bool,
}

impl<C> Pool<C> {
    /// An empty pool.
    #[must_use]
    pub fn new(config: &PoolConfig) -> Self {
        Self::counted_in(config, Arc::new(FramingRecord::new("".into())), &Counts::new(config.workers))
    }

    /// An empty pool of an endpoint of which `framing` is known. It goes on counting in `counts`, which say how many workers
    /// there are.
    pub(crate) fn counted_in(config: &PoolConfig, framing: Arc<FramingRecord>, counts: &Counts) -> Self {
        let part = |counts: &Arc<Count>| Arc::new(Part::new(Arc::clone(&framing), Arc::clone(counts)));
        let parts: Box<[_]> = counts.0.iter().map(part).collect();
        let pool = Self { parts, used: AtomicUsize::new(1), framing };
        pool.configure(config);
        pool
    }

    /// The most recently used connection of this worker that has not been idle for too long and that `alive`
    /// accepts; else one that another worker does not use any more.
    ///
    /// `alive` is asked outside the lock, once per connection; what it refuses is dropped.
    pub fn take(
        &self,
        worker: usize,
        now: Mono,
        mut alive: impl FnMut(&mut C) -> bool,
    ) -> Option<IdleConnection<C>> {
        let own = self.index(worker);
        if let Some(kept) = self.parts.get(own)?.take(worker, now, Duration::ZERO, &mut alive) {
            return Some(kept);
        }
        let others = (1..self.used()).filter_map(|step| self.parts.get((own + step) % self.used()));
        others.map(|part| part.take(worker, now, SPARE_AFTER, &mut alive)).find(Option::is_some)?
    }

    /// Whether a connection of a worker that is shared, and has been used like this, may carry one more request.
    #[must_use]
    pub fn takes(&self, worker: usize, usage: &Usage, now: Mono) -> bool {
        let part = &self.parts[self.index(worker)];
        let end = part.lock().limits.end(usage, now, now);
        end.is_none_or(|end| {
            part.counts.note(end);
            false
        })
    }

    /// Where a worker puts a connection back that has been used like this.
    #[must_use]
    pub fn place(&self, worker: usize, usage: Usage) -> PoolPlace<C> {
        PoolPlace { part: Arc::clone(&self.parts[self.index(worker)]), worker, usage }
    }

    /// Gives up the least recently used connection, to make room for a fresh one where the permits are used
    /// up: idle connections hold permits too.
    #[must_use = "drop it where that may take its time"]
    pub fn give_up_oldest(&self) -> Option<C> {
        let oldest = |part: &&Arc<Part<C>>| part.lock().oldest();
        // Looked at one after the other: what is the oldest may change meanwhile, and nothing depends on it.
        let part = self.parts.iter().filter(|part| oldest(part).is_some()).min_by_key(oldest)?;
        let oldest = part.lock().pop_oldest();
        count(&part.counts.surplus, usize::from(oldest.is_some()));
        oldest.map(|idle| idle.connection)
    }

    /// Drops the connections that have been idle for too long. To be called every few seconds.
    pub fn sweep(&self, now: Mono) {
        for part in &self.parts {
            let gone = part.lock().take_ended(now);
            gone.iter().for_each(|(end, _)| part.counts.note(*end));
        }
    }

    /// Drops all idle connections. Those in use can still be put back.
    pub fn clear(&self) {
        for part in &self.parts {
            let gone = part.lock().take_all();
            drop(gone);
        }
    }

    /// Drops all idle connections, now and whenever one is put back.
    pub fn close(&self) {
        for part in &self.parts {
            let mut state = part.lock();
            state.closed = true;
            let gone = state.take_all();
            drop(state);
            drop(gone);
        }
    }

    /// Notes that the endpoint sent bytes that belong to no response.
    pub fn note_surplus(&self) {
        self.framing.note_surplus();
    }

    /// The number of idle connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    /// Whether no connection is idle.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The gauge and the counters now.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let sum = |counter: fn(&Count) -> &AtomicU64| {
            self.parts.iter().map(|part| counter(&part.counts).load(Ordering::Relaxed)).sum()
        };
        PoolStats {
            idle: self.len(),
            reused: sum(|count| &count.reused),
            expired: sum(|count| &count.expired),
            dead: sum(|count| &count.dead),
            aged: sum(|count| &count.aged),
            used_up: sum(|count| &count.used_up),
            surplus: sum(|count| &count.surplus),
        }
    }

    /// Takes on new limits, for connections that are idle already too; opens a closed pool again. The number of
    /// workers stays.
    pub(crate) fn configure(&self, config: &PoolConfig) {
        let used = config.idle_max.clamp(1, self.parts.len());
        self.used.store(used, Ordering::Relaxed);
        for (at, part) in self.parts.iter().enumerate() {
            // Shares that add up to the whole.
            let one_more = usize::from(at < config.idle_max % used);
            let share = if at < used { config.idle_max / used + one_more } else { 0 };
            part.configure(share, config);
        }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed).max(1)
    }

    /// The part of a worker.
    fn index(&self, worker: usize) -> usize {
        // No more than there are.
        worker % self.used()
    }
}

impl<C> Part<C> {
    fn new(framing: Arc<FramingRecord>, counts: Arc<Count>) -> Self {
        let state = State {
            idle: VecDeque::new(),
            held: VecDeque::new(),
            idle_max: 0,
            limits: Limits::default(),
            closed: false,
        };
        Self { state: Mutex::new(state), counts, framing }
    }

    /// The most recently used connection that has been idle for at least `spare`, but not for too long.
    fn take(
        &self,
        worker: usize,
        now: Mono,
        spare: Duration,
        alive: &mut impl FnMut(&mut C) -> bool,
    ) -> Option<IdleConnection<C>> {
        loop {
            let mut state = self.lock();
            // The oldest of another worker's: the newest it is about to use itself.
            let ready = if spare.is_zero() { state.idle.pop_back() } else { state.pop_spare(now, spare) };
            let was_held = ready.is_none();
            let mut found = ready.or_else(|| state.pop_released(now))?;
            if let Some(end) = state.end(&found, now) {
                // Those before it have been idle for longer.
                let expired = if end == End::Expired { state.pop_expired(now) } else { Vec::new() };
                drop(state);
                self.counts.note(end);
                count(&self.counts.expired, expired.len());
                continue;
            }
            drop(state);
            if alive(&mut found.connection) {
                count(&self.counts.reused, 1);
                if was_held {
                    self.framing.note_quiet();
                }
                return Some(IdleConnection {
                    connection: found.connection,
                    usage: found.usage,
                    foreign: found.worker != worker,
                });
            }
            count(&self.counts.dead, 1);
        }
    }

    fn put(&self, idle: Idle<C>) -> Option<C> {
        let mut state = self.lock();
        if let Some(end) = state.end(&idle, idle.since) {
            drop(state);
            self.counts.note(end);
            return Some(idle.connection);
        }
        let surplus = if state.closed || state.idle_max == 0 {
            Some(idle)
        } else {
            let oldest = if state.len() >= state.idle_max { state.pop_oldest() } else { None };
            state.idle.push_back(idle);
            oldest
        };
        drop(state);
        count(&self.counts.surplus, usize::from(surplus.is_some()));
        surplus.map(|idle| idle.connection)
    }

    /// Lets those go that have been held for long enough.
    fn release(&self, now: Mono, alive: &mut impl FnMut(&mut C) -> bool) {
        loop {
            let Some(mut released) = self.lock().pop_released(now) else { return };
            if !alive(&mut released.connection) {
                count(&self.counts.dead, 1);
                continue;
            }
            self.framing.note_quiet();
            let mut state = self.lock();
            if state.closed || state.len() >= state.idle_max {
                drop(state);
                count(&self.counts.surplus, 1);
                continue;
            }
            // In the order of their last use.
            let at = state.idle.partition_point(|other| other.since <= released.since);
            state.idle.insert(at, released);
        }
    }

    fn hold(&self, idle: Idle<C>, hold: Hold) -> Option<C> {
        let mut state = self.lock();
        if let Some(end) = state.end(&idle, idle.since) {
            drop(state);
            self.counts.note(end);
            return Some(idle.connection);
        }
        let has_room = state.len() < state.idle_max;
        let sampled = hold == Hold::Sample && self.framing.is_proven();
        if sampled && (state.held.len() >= SAMPLE_MAX || !has_room) {
            drop(state);
            return self.put(idle);
        }
        let surplus = if state.closed || state.idle_max == 0 {
            Some(idle)
        } else if has_room {
            state.held.push_back(idle);
            None
        } else if let Some(oldest) = state.held.pop_front() {
            state.held.push_back(idle);
            Some(oldest)
        } else {
            Some(idle)
        };
        drop(state);
        count(&self.counts.surplus, usize::from(surplus.is_some()));
        surplus.map(|idle| idle.connection)
    }

    fn configure(&self, idle_max: usize, config: &PoolConfig) {
        let mut state = self.lock();
        state.idle_max = idle_max;
        state.limits = Limits::of(config);
        state.closed = false;
        let mut gone = Vec::new();
        while state.len() > idle_max {
            gone.extend(state.pop_oldest());
        }
        drop(state);
        count(&self.counts.surplus, gone.len());
    }

    /// No code that can panic runs under the lock, so a poisoned one still guards a sound state.
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> State<C> {
    fn len(&self) -> usize {
        self.idle.len() + self.held.len()
    }

    /// Since when the connection is here that goes first where there is no room: a held one, as those in use matter more.
    fn oldest(&self) -> Option<Mono> {
        self.held.front().or(self.idle.front()).map(|idle| idle.since)
    }

    fn pop_oldest(&mut self) -> Option<Idle<C>> {
        self.held.pop_front().or_else(|| self.idle.pop_front())
    }

    /// A connection that has been held for long enough.
    fn pop_released(&mut self, now: Mono) -> Option<Idle<C>> {
        let released = now.saturating_since(self.held.front()?.since) >= HOLD_FOR;
        if released { self.held.pop_front() } else { None }
    }

    fn take_all(&mut self) -> [VecDeque<Idle<C>>; 2] {
        [mem::take(&mut self.idle), mem::take(&mut self.held)]
    }

    /// Why a connection is not used again now.
    fn end(&self, idle: &Idle<C>, now: Mono) -> Option<End> {
        self.limits.end(&idle.usage, idle.since, now)
    }

    /// The oldest, if it has been idle for at least `spare`.
    fn pop_spare(&mut self, now: Mono, spare: Duration) -> Option<Idle<C>> {
        let is_spare = now.saturating_since(self.idle.front()?.since) >= spare;
        if is_spare { self.idle.pop_front() } else { None }
    }

    /// Those that have been idle for too long and are in front.
    fn pop_expired(&mut self, now: Mono) -> Vec<Idle<C>> {
        let is_expired = |idle: &&Idle<C>| self.end(idle, now) == Some(End::Expired);
        let expired = |list: &VecDeque<Idle<C>>| list.iter().take_while(is_expired).count();
        let (idle, held) = (expired(&self.idle), expired(&self.held));
        self.idle.drain(..idle).chain(self.held.drain(..held)).collect()
    }

    /// All that are not used again. Each is looked at.
    fn take_ended(&mut self, now: Mono) -> Vec<(End, Idle<C>)> {
        let mut gone = Vec::new();
        let [idle, held] = self.take_all().map(|list| {
            let mut left = VecDeque::with_capacity(list.len());
            for idle in list {
                match self.end(&idle, now) {
                    Some(end) => gone.push((end, idle)),
                    None => left.push_back(idle),
                }
            }
            left
        });
        (self.idle, self.held) = (idle, held);
        gone
    }
}

impl<C> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

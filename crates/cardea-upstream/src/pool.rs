//! Idle connections to one endpoint, shared by all workers.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

use crate::config::PoolConfig;

/// Idle connections, the most recently used first, so that what isn't needed ages and goes.
///
/// The lock is held for a few moves of memory: connections are checked and dropped, which may cost a
/// system call each, outside of it.
pub struct Pool<C> {
    state: Mutex<State<C>>,
    reused: AtomicU64,
    expired: AtomicU64,
    dead: AtomicU64,
    surplus: AtomicU64,
}

struct State<C> {
    /// The least recently used in front.
    idle: VecDeque<Idle<C>>,
    idle_max: usize,
    idle_timeout: Duration,
    closed: bool,
}

struct Idle<C> {
    connection: C,
    since: Mono,
}

/// A pool's gauge and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Idle connections now.
    pub idle: usize,
    /// Connections taken for another request.
    pub reused: u64,
    /// Connections dropped because they were idle for too long.
    pub expired: u64,
    /// Connections dropped because they were found dead when they were to be used.
    pub dead: u64,
    /// Connections not kept because the pool was full or closed, or given up to make room.
    pub surplus: u64,
}

impl<C> Pool<C> {
    /// An empty pool.
    #[must_use]
    pub fn new(config: &PoolConfig) -> Self {
        let state = State {
            idle: VecDeque::new(),
            idle_max: config.idle_max,
            idle_timeout: config.idle_timeout,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            reused: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            surplus: AtomicU64::new(0),
        }
    }

    /// The most recently used connection that has not been idle for too long and that `alive` accepts.
    ///
    /// `alive` is asked outside the lock, once per connection; what it refuses is dropped.
    pub fn take(&self, now: Mono, mut alive: impl FnMut(&mut C) -> bool) -> Option<C> {
        loop {
            let mut state = self.lock();
            let mut newest = state.idle.pop_back()?;
            if state.is_expired(&newest, now) {
                // The others have been idle for longer still.
                let older = mem::take(&mut state.idle);
                drop(state);
                count(&self.expired, older.len() + 1);
                return None;
            }
            drop(state);
            if alive(&mut newest.connection) {
                count(&self.reused, 1);
                return Some(newest.connection);
            }
            count(&self.dead, 1);
        }
    }

    /// Keeps a connection for another request. What the pool has no room for comes back, to be dropped: the
    /// least recently used connection of a full pool, or this one if the pool is closed or keeps none.
    #[must_use = "drop it where that may take its time"]
    pub fn put(&self, connection: C, now: Mono) -> Option<C> {
        let mut state = self.lock();
        let surplus = if state.closed || state.idle_max == 0 {
            Some(connection)
        } else {
            let oldest = if state.idle.len() >= state.idle_max { state.idle.pop_front() } else { None };
            state.idle.push_back(Idle { connection, since: now });
            oldest.map(|idle| idle.connection)
        };
        drop(state);
        count(&self.surplus, usize::from(surplus.is_some()));
        surplus
    }

    /// Gives up the least recently used connection, to make room for a fresh one where the permits are used
    /// up: idle connections hold permits too.
    #[must_use = "drop it where that may take its time"]
    pub fn give_up_oldest(&self) -> Option<C> {
        let oldest = self.lock().idle.pop_front();
        count(&self.surplus, usize::from(oldest.is_some()));
        oldest.map(|idle| idle.connection)
    }

    /// Drops the connections that have been idle for too long. To be called every few seconds.
    pub fn sweep(&self, now: Mono) {
        let mut state = self.lock();
        let expired = state.idle.iter().take_while(|idle| state.is_expired(idle, now)).count();
        let kept = state.idle.split_off(expired);
        let gone = mem::replace(&mut state.idle, kept);
        drop(state);
        count(&self.expired, gone.len());
    }

    /// Drops all idle connections. Those in use can still be put back.
    pub fn clear(&self) {
        let gone = mem::take(&mut self.lock().idle);
        drop(gone);
    }

    /// Drops all idle connections, now and whenever one is put back.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let gone = mem::take(&mut state.idle);
        drop(state);
        drop(gone);
    }

    /// The number of idle connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().idle.len()
    }

    /// Whether no connection is idle.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The gauge and the counters now.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            idle: self.len(),
            reused: self.reused.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
            surplus: self.surplus.load(Ordering::Relaxed),
        }
    }

    /// Takes on new limits, for connections that are idle already too; opens a closed pool again.
    pub(crate) fn configure(&self, config: &PoolConfig) {
        let mut state = self.lock();
        state.idle_max = config.idle_max;
        state.idle_timeout = config.idle_timeout;
        state.closed = false;
        let surplus = state.idle.len().saturating_sub(config.idle_max);
        let kept = state.idle.split_off(surplus);
        let gone = mem::replace(&mut state.idle, kept);
        drop(state);
        count(&self.surplus, gone.len());
    }

    /// No code that can panic runs under the lock, so a poisoned one still guards a sound state.
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> State<C> {
    fn is_expired(&self, idle: &Idle<C>, now: Mono) -> bool {
        now.saturating_since(idle.since) >= self.idle_timeout
    }
}

impl<C> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn count(counter: &AtomicU64, by: usize) {
    if by > 0 {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;

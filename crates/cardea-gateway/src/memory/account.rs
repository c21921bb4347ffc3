//! What one client's connection makes the process hold, and for how long.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU32, Ordering::Relaxed},
};

use cardea_guard::AddressPrefix;

/// The number of the present tick of [`tick`]. Ages are counted in ticks: an account must not cost a look at a clock.
static NOW: AtomicU32 = AtomicU32::new(1);

/// For how many ticks the stalled streams of a connection have to end once it was told: memory may not be short any more
/// when the next one stalls.
const STREAMS_END_FOR: u32 = 20;

/// Goes on to the next tick.
pub(crate) fn tick() {
    NOW.fetch_add(1, Relaxed);
}

/// The number of the present tick.
pub(super) fn now() -> u32 {
    NOW.load(Relaxed)
}

/// How far the end of a connection has come that has to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Ending {
    /// It goes on.
    No,
    /// Its stalled streams end, the connection goes on.
    Streams,
    /// The connection ends.
    Connection,
}

/// What one connection makes the process hold. Written by the tasks of the connection, which share a worker, and read by
/// [`relief`](super::relief).
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// In bytes. Negative for a moment where a task of the connection was dropped outside of its poll.
    held: AtomicIsize,
    /// What is left to pass on until all is gone that was held at `since`.
    left: AtomicIsize,
    /// The tick at which the oldest byte that is held may have come.
    since: AtomicU32,
    /// An [`Ending`].
    ending: AtomicU8,
    /// The tick at which it came to that.
    ending_since: AtomicU32,
    /// Several streams share the connection.
    multiplexed: AtomicBool,
    /// Where the client connects from. Not set for trusted proxies and Unix sockets, which many clients may share.
    prefix: OnceLock<AddressPrefix>,
}

impl Account {
    /// How many bytes are held.
    pub(crate) fn held(&self) -> usize {
        usize::try_from(self.held.load(Relaxed)).unwrap_or(0)
    }

    /// For how many ticks the oldest byte may have been held.
    pub(super) fn age(&self) -> u32 {
        now().wrapping_sub(self.since.load(Relaxed))
    }

    pub(super) fn change(&self, by: isize) {
        let before = self.held.load(Relaxed);
        let after = before.saturating_add(by);
        self.held.store(after, Relaxed);
        if before <= 0 && after > 0 {
            self.restart(after);
        }
    }

    /// As if the connection held so much more.
    #[cfg(test)]
    pub(crate) fn change_for_test(&self, by: isize) {
        self.change(by);
    }

    /// Once as much was passed on as was held at `since`, what is held came later: a client that takes a byte now and then
    /// makes nothing younger.
    pub(super) fn passed_on(&self, bytes: usize) {
        let left = self.left.load(Relaxed).saturating_sub(isize::try_from(bytes).unwrap_or(isize::MAX));
        if left > 0 {
            self.left.store(left, Relaxed);
        } else {
            self.restart(self.held.load(Relaxed));
        }
    }

    fn restart(&self, held: isize) {
        self.left.store(held, Relaxed);
        let now = now();
        if self.since.load(Relaxed) != now {
            self.since.store(now, Relaxed);
        }
    }

    /// Whether several streams share the connection: then the stalled ones end first.
    pub(crate) fn set_multiplexed(&self) {
        self.multiplexed.store(true, Relaxed);
    }

    pub(super) fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Relaxed)
    }

    /// Notes where the client connects from.
    pub(crate) fn set_prefix(&self, prefix: AddressPrefix) {
        // A connection has one client for as long as it lives.
        let _ = self.prefix.set(prefix);
    }

    pub(super) fn prefix(&self) -> Option<AddressPrefix> {
        self.prefix.get().copied()
    }

    /// Whether the connection, or what is stalled of it, has to end.
    pub(crate) fn ending(&self) -> Ending {
        match self.ending.load(Relaxed) {
            0 => Ending::No,
            1 if self.ending_age() <= STREAMS_END_FOR => Ending::Streams,
            1 => Ending::No,
            _ => Ending::Connection,
        }
    }

    /// For how many ticks it has had to end.
    pub(super) fn ending_age(&self) -> u32 {
        now().wrapping_sub(self.ending_since.load(Relaxed))
    }

    pub(super) fn end(&self, ending: Ending) {
        self.ending_since.store(now(), Relaxed);
        self.ending.store(ending as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_stall_later_are_no_longer_concerned() {
        let account = Account::default();
        account.end(Ending::Streams);
        assert_eq!(account.ending(), Ending::Streams);
        (0..=STREAMS_END_FOR).for_each(|_| tick());
        assert_eq!(account.ending(), Ending::No);
        account.end(Ending::Connection);
        (0..=STREAMS_END_FOR).for_each(|_| tick());
        assert_eq!(account.ending(), Ending::Connection, "there is no way back");
    }

    #[test]
    fn what_is_held_is_as_old_as_its_oldest_byte() {
        let account = Account::default();
        account.change(1_000);
        let since = || account.since.load(Relaxed);
        let first = since();
        tick();
        account.change(1_000);
        account.passed_on(999);
        assert_eq!(since(), first, "a byte is left of what came first");
        tick();
        account.passed_on(1);
        assert!(since() > first);
        let second = since();
        tick();
        account.change(-2_000);
        account.change(10);
        assert!(since() > second, "nothing was left of it");
    }
}

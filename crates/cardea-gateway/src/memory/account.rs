//! What one client's connection makes the process hold, and for how long.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed},
};

use cardea_guard::AddressPrefix;

/// The number of the present tick of [`tick`]. Ages are counted in ticks: an account must not cost a look at a clock.
static NOW: AtomicU32 = AtomicU32::new(1);

/// For how many ticks the stalled streams of a connection have to end once it was told: memory may not be short any more
/// when the next one stalls.
const STREAMS_END_FOR: u32 = 20;

/// How long the streams of a connection have to end before the connection does, in ticks.
pub(super) const STREAMS_END_WITHIN: u32 = 5;

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
    /// What of it the codec of the connection has, in bytes.
    queued: AtomicIsize,
    /// How many streams wait for room in the codec.
    waiting: AtomicUsize,
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

    /// As [`change`](Self::change), of what the codec has.
    pub(super) fn change_queued(&self, by: isize) {
        self.queued.store(self.queued.load(Relaxed).saturating_add(by), Relaxed);
        self.change(by);
    }

    /// How much of what is held goes if stalled streams end, in bytes. What the codec has may be of streams that are over.
    pub(super) fn held_by_streams(&self) -> usize {
        let queued = usize::try_from(self.queued.load(Relaxed)).unwrap_or(0);
        self.held().saturating_sub(queued)
    }

    /// A stream waits for room in the codec, until [`end_wait`](Self::end_wait).
    pub(crate) fn begin_wait(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    pub(crate) fn end_wait(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// Whether the end of stalled streams is worth waiting for: several share the connection, the client takes what is sent
    /// on it, and the codec has less than half of what is held.
    pub(super) fn is_relieved_by_streams(&self) -> bool {
        self.multiplexed.load(Relaxed)
            && self.waiting.load(Relaxed) == 0
            && self.held_by_streams() > self.held() / 2
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

    /// Whether several streams share the connection.
    pub(crate) fn is_multiplexed(&self) -> bool {
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

    /// Whether new streams may begin: not while what the connection holds is to become less.
    pub(crate) fn takes_streams(&self) -> bool {
        match self.ending() {
            Ending::No => true,
            Ending::Streams => self.ending_age() >= STREAMS_END_WITHIN,
            Ending::Connection => false,
        }
    }

    /// For how many ticks it has had to end.
    pub(super) fn ending_age(&self) -> u32 {
        now().wrapping_sub(self.ending_since.load(Relaxed))
    }

    /// Its stalled streams need not end any more.
    pub(super) fn spare_streams(&self) {
        if self.ending.load(Relaxed) == Ending::Streams as u8 {
            self.ending.store(Ending::No as u8, Relaxed);
        }
    }

    pub(super) fn end(&self, ending: Ending) {
        self.ending_since.store(now(), Relaxed);
        self.ending.store(ending as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Ticks are the process's: tests that count them take turns.
    fn ticks() -> MutexGuard<'static, ()> {
        static TICKS: Mutex<()> = Mutex::new(());
        TICKS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn streams_that_stall_later_are_no_longer_concerned() {
        let _turn = ticks();
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
    fn streams_end_first_only_where_that_frees_most_of_what_is_held() {
        let account = Account::default();
        account.change(1_000);
        assert!(!account.is_relieved_by_streams(), "there is one stream");
        account.set_multiplexed();
        assert!(account.is_relieved_by_streams());
        account.change_queued(999);
        assert_eq!((account.held(), account.held_by_streams()), (1_999, 1_000));
        assert!(account.is_relieved_by_streams());
        account.change_queued(1);
        assert!(!account.is_relieved_by_streams(), "the codec has as much");
        account.change_queued(-1_000);
        account.begin_wait();
        assert!(!account.is_relieved_by_streams(), "the client takes nothing");
        account.end_wait();
        assert!(account.is_relieved_by_streams());
    }

    #[test]
    fn streams_are_spared_and_connections_are_not() {
        let account = Account::default();
        account.end(Ending::Streams);
        account.spare_streams();
        assert_eq!(account.ending(), Ending::No);
        account.end(Ending::Connection);
        account.spare_streams();
        assert_eq!(account.ending(), Ending::Connection);
    }

    #[test]
    fn no_stream_begins_while_a_connection_is_to_hold_less() {
        let _turn = ticks();
        let account = Account::default();
        assert!(account.takes_streams());
        account.end(Ending::Streams);
        assert!(!account.takes_streams());
        (0..STREAMS_END_WITHIN).for_each(|_| tick());
        assert!(account.takes_streams(), "those that were stalled are over");
        account.end(Ending::Connection);
        (0..=STREAMS_END_FOR).for_each(|_| tick());
        assert!(!account.takes_streams());
    }

    #[test]
    fn what_is_held_is_as_old_as_its_oldest_byte() {
        let _turn = ticks();
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

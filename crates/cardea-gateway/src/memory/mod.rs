//! The memory that the process holds for messages under way, in bytes: counted per thread, compared with one bound.
//!
//! Counted are the buffers that clients and services make the process hold: data that was received and not passed on,
//! heads, and what HTTP/2 queues. Each thread counts for itself and publishes its count once it differs by
//! a grain ([`GRAIN_MAX`]) from what it last published, so requests that come and go write nothing that threads share.
//!
//! Every counted byte is also charged to the [`Account`] of the client's connection whose task is being polled. Where
//! the bound is passed, [`relief`] ends connections by what their accounts hold. They end when their tasks have a turn, which
//! may take a while where the workers lack processor time. So there are two hard bounds above it, which depend on nothing but
//! what is held: beyond the first, who would receive more of a message waits for [`Room`]; beyond the second, new requests are
//! refused.

mod account;
pub(crate) mod relief;
mod room;
mod thread;

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};

use tokio::sync::Notify;

pub(crate) use account::{Account, Ending};
pub(crate) use room::{Room, call_waiting};
pub(crate) use thread::{account, charge, charged, passed_on};

/// How far a thread's count may be from what it published, in bytes, where the bound allows it: seven receive buffers.
const GRAIN_MAX: usize = 256 * 1024;

/// The counts that threads have not published stay below this part of the bound, all threads together.
const UNPUBLISHED_PART: usize = 8;

/// Beyond the bound and this part of it, messages under way have to wait.
const WAIT_PART: usize = 16;

/// Beyond the bound and this part of it, new requests are refused. Far more than above: those who were let in should not take
/// what others need to be let in.
const REFUSE_PART: usize = 4;

/// The sum of what the threads have published.
static PUBLISHED: AtomicIsize = AtomicIsize::new(0);
/// The bound.
static MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
/// What is held beyond which messages have to wait.
static WAIT_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// What is held beyond which new requests are refused.
static REFUSE_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// How far a thread's count may be from what it published.
static GRAIN: AtomicIsize = AtomicIsize::new(GRAIN_MAX as isize);
/// Notified when the bound is passed, and when there is room again for those who wait.
static PASSED: Notify = Notify::const_new();
/// The bound is passed, and no connection is left whose end would help.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// How much is held, short of what threads have not published yet.
pub(crate) fn used() -> usize {
    usize::try_from(PUBLISHED.load(Relaxed)).unwrap_or(0)
}

/// How much more is held than may be.
pub(crate) fn excess() -> usize {
    used().saturating_sub(max())
}

/// The bound, in bytes.
pub(crate) fn max() -> usize {
    MAX.load(Relaxed)
}

/// Sets the bound, in bytes, for a process with so many threads that count. Whether it is passed is found out anew.
pub(crate) fn set_max(bytes: usize, threads: usize) {
    MAX.store(bytes, Relaxed);
    WAIT_FROM.store(bytes.saturating_add(bytes / WAIT_PART), Relaxed);
    REFUSE_FROM.store(bytes.saturating_add(bytes / REFUSE_PART), Relaxed);
    let grain = (bytes / UNPUBLISHED_PART / threads.max(1)).min(GRAIN_MAX);
    GRAIN.store(isize::try_from(grain).unwrap_or(isize::MAX), Relaxed);
    set_exhausted(false);
}

/// Whether messages have to wait. One load of a line that is written once in a grain.
fn has_to_wait() -> bool {
    used() > WAIT_FROM.load(Relaxed)
}

/// Whether so much is held that nothing new is to be taken in.
pub(crate) fn is_full() -> bool {
    used() > REFUSE_FROM.load(Relaxed)
}

/// Returns when the bound may have been passed, or when those who wait for room may go on.
pub(crate) async fn passed() {
    PASSED.notified().await;
}

/// Notes whether new requests are to be refused, as nothing else is left to do.
fn set_exhausted(exhausted: bool) {
    if EXHAUSTED.load(Relaxed) != exhausted {
        EXHAUSTED.store(exhausted, Relaxed);
    }
}

/// Whether new requests are to be refused.
pub(crate) fn is_exhausted() -> bool {
    EXHAUSTED.load(Relaxed) || is_full()
}

/// Counts `bytes` more.
pub(crate) fn add(bytes: usize) {
    thread::change(isize::try_from(bytes).unwrap_or(isize::MAX));
}

/// Counts `bytes` fewer.
pub(crate) fn sub(bytes: usize) {
    thread::change(-isize::try_from(bytes).unwrap_or(isize::MAX));
}

#[cold]
fn publish(by: isize) {
    PUBLISHED.fetch_add(by, Relaxed);
    let concerns_relief = if by > 0 { excess() > 0 } else { room::is_awaited() && excess() == 0 };
    if concerns_relief {
        PASSED.notify_one();
    }
}

/// Bytes that count as held for as long as this lives. Belongs to one connection, whose task alone changes it.
#[derive(Debug, Default)]
pub(crate) struct Held(usize);

impl Held {
    /// Counts nothing yet.
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// Counts `bytes` in place of what this counted before.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes > self.0 {
            add(bytes - self.0);
        } else if bytes < self.0 {
            sub(self.0 - bytes);
        }
        self.0 = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// As [`Held`], of what the codec of a connection has for all of its streams.
#[derive(Debug, Default)]
pub(crate) struct QueuedHeld(usize);

impl QueuedHeld {
    /// Counts `bytes` in place of what this counted before.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes != self.0 {
            let size = |bytes| isize::try_from(bytes).unwrap_or(isize::MAX);
            thread::change_queued(size(bytes) - size(self.0));
            self.0 = bytes;
        }
    }
}

impl Drop for QueuedHeld {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts are the process's, and other tests run beside this one: so it counts what no other comes near.
    const LARGE: usize = 1 << 40;

    fn held(bytes: usize) -> Held {
        let mut held = Held::default();
        held.set(bytes);
        held
    }

    #[test]
    fn memory_of_threads_adds_up_wherever_it_is_released() {
        let large = std::thread::spawn(|| held(LARGE)).join().unwrap();
        assert!(used() >= LARGE / 2);
        let mut queued = QueuedHeld::default();
        queued.set(LARGE);
        assert!(used() >= LARGE + LARGE / 2);
        std::thread::spawn(move || drop((large, queued))).join().unwrap();
        assert!(used() < LARGE / 2);
    }
}

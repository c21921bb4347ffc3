//! What the process holds for messages under way, in bytes: counted by each thread, compared with one bound.
//!
//! Counted are the buffers that clients and services make the process hold: what was received and not passed on, heads that
//! are not complete, what HTTP/2 queues. Each thread counts for itself and tells the others once it is [`GRAIN`] bytes away
//! from what it last told, so requests that come and go write nothing that threads share.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

/// How far a thread's own count may be from what it told, in bytes: seven receive buffers.
const GRAIN: isize = 256 * 1024;

/// What all threads have told.
static TOLD: AtomicIsize = AtomicIsize::new(0);
/// The bound.
static MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Told when the bound is passed.
static PASSED: Notify = Notify::const_new();
/// The bound is passed, and nothing that stands still is left to be given up.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static UNTOLD: Cell<isize> = const { Cell::new(0) };
}

/// How much is held, short of what threads have not told yet.
pub(crate) fn used() -> usize {
    usize::try_from(TOLD.load(Relaxed)).unwrap_or(0)
}

/// How much more is held than may be.
pub(crate) fn excess() -> usize {
    used().saturating_sub(MAX.load(Relaxed))
}

/// Sets the bound, in bytes. Whether it is passed is found out anew.
pub(crate) fn set_max(bytes: usize) {
    MAX.store(bytes, Relaxed);
    set_exhausted(false);
}

/// Returns when the bound may have been passed.
pub(crate) async fn passed() {
    PASSED.notified().await;
}

/// Notes whether new requests are to be refused, as nothing else is left to do.
pub(crate) fn set_exhausted(exhausted: bool) {
    if EXHAUSTED.load(Relaxed) != exhausted {
        EXHAUSTED.store(exhausted, Relaxed);
    }
}

/// Whether new requests are to be refused. One load of a line that is hardly ever written.
pub(crate) fn is_exhausted() -> bool {
    EXHAUSTED.load(Relaxed)
}

/// Counts `bytes` more.
pub(crate) fn add(bytes: usize) {
    change(isize::try_from(bytes).unwrap_or(isize::MAX));
}

/// Counts `bytes` fewer.
pub(crate) fn sub(bytes: usize) {
    change(-isize::try_from(bytes).unwrap_or(isize::MAX));
}

fn change(by: isize) {
    // At the end of a thread its count may be gone already.
    let _ = UNTOLD.try_with(|untold| {
        let sum = untold.get() + by;
        if sum.abs() < GRAIN {
            untold.set(sum);
        } else {
            untold.set(0);
            tell(sum);
        }
    });
}

#[cold]
fn tell(by: isize) {
    TOLD.fetch_add(by, Relaxed);
    if by > 0 && excess() > 0 {
        PASSED.notify_one();
    }
}

/// Bytes that count as held for as long as this lives.
#[derive(Debug, Default)]
pub(crate) struct Held(usize);

impl Held {
    pub(crate) fn new(bytes: usize) -> Self {
        add(bytes);
        Self(bytes)
    }

    /// It is this many now.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes != self.0 {
            sub(self.0);
            add(bytes);
            self.0 = bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0 > 0 {
            sub(self.0);
        }
    }
}

/// A part of a message that counts as held until whoever it was handed to lets go of it.
pub(crate) struct Part(Vec<u8>, #[expect(dead_code, reason = "it counts as long as it lives")] Held);

impl Part {
    pub(crate) fn copy_of(bytes: &[u8]) -> bytes::Bytes {
        bytes::Bytes::from_owner(Self(bytes.to_vec(), Held::new(bytes.len())))
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts are the process's, and other tests run beside this one: so it counts what no other comes near.
    const LARGE: usize = 1 << 40;

    #[test]
    fn what_threads_hold_adds_up_wherever_it_is_let_go() {
        let held = std::thread::spawn(|| Held::new(LARGE)).join().unwrap();
        assert!(used() >= LARGE / 2);
        let part = Part::copy_of(b"abc");
        assert_eq!(part.slice(1..), "bc");
        std::thread::spawn(move || drop((held, part))).join().unwrap();
        assert!(used() < LARGE / 2);
    }

    #[test]
    fn a_thread_keeps_to_itself_what_is_little() {
        std::thread::spawn(|| {
            let untold = || UNTOLD.with(Cell::get);
            let held: Vec<_> = (0..4).map(|_| Held::new(50_000)).collect();
            assert_eq!(untold(), 200_000);
            let more = Held::new(100_000);
            assert_eq!(untold(), 0, "now all of it was told");
            drop((held, more));
        })
        .join()
        .unwrap();
    }
}

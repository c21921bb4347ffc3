//! A limit on warnings whose cause clients or services can repeat as often as they like.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use cardea_clock::Mono;

/// One warning of a kind is written in this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one warning of a kind through in ten seconds, and counts those that it stops.
#[derive(Debug, Default)]
pub struct WarningLimit {
    /// When the last one was written, in nanoseconds; 0 before the first.
    last: AtomicU64,
    suppressed: AtomicU64,
}

impl WarningLimit {
    /// A limit that lets the next warning through.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Whether a warning is to be written now, and then how many were not written since the last one. Of several at once, one
    /// is written.
    pub(crate) fn admit(&self, now: Mono) -> Option<u64> {
        let last = self.last.load(Relaxed);
        let due = last == 0 || now.saturating_since(Mono::from_nanos(last)) >= INTERVAL;
        if due && self.last.compare_exchange(last, now.nanos().max(1), Relaxed, Relaxed).is_ok() {
            return Some(self.suppressed.swap(0, Relaxed));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_passes_in_ten_seconds_and_tells_how_many_did_not() {
        let limit = WarningLimit::new();
        let at = |seconds: u64| Mono::from_nanos(seconds * 1_000_000_000);
        assert_eq!(limit.admit(at(0)), Some(0));
        for _ in 0..40 {
            assert_eq!(limit.admit(at(9)), None);
        }
        assert_eq!(limit.admit(at(11)), Some(40));
        assert_eq!(limit.admit(at(12)), None);
        assert_eq!(limit.admit(at(30)), Some(1));
    }

    #[test]
    fn of_several_threads_one_writes() {
        let limit = WarningLimit::new();
        let admitted = || usize::from(limit.admit(Mono::from_nanos(5)).is_some());
        let written: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(admitted)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(written, 1);
        assert_eq!(limit.admit(Mono::from_nanos(20_000_000_000)), Some(7));
    }
}

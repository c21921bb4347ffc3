//! Counts over a sliding window.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cardea_clock::Mono;

/// Counts events of the last `window`, in two buckets of that length: the previous one counts by the share of it that
/// the window still covers. It is written by one thread at a time, or under a lock; any may read.
#[derive(Debug, Default)]
pub(crate) struct SlidingCount {
    /// The number of the current bucket since the origin of time.
    bucket: AtomicU64,
    current: AtomicU64,
    previous: AtomicU64,
}

impl SlidingCount {
    /// Counts one event.
    pub(crate) fn add(&self, now: Mono, window: Duration) {
        let (bucket, _) = place(now, window);
        let known = self.bucket.load(Relaxed);
        // Where workers disagree on the time by a little, what is late counts in the bucket that has begun.
        if bucket > known {
            let previous = if bucket == known + 1 { self.current.load(Relaxed) } else { 0 };
            self.previous.store(previous, Relaxed);
            self.current.store(0, Relaxed);
            self.bucket.store(bucket, Relaxed);
        }
        self.current.store(self.current.load(Relaxed) + 1, Relaxed);
    }

    /// How many there were in the window that ends now.
    pub(crate) fn sum(&self, now: Mono, window: Duration) -> f64 {
        let (bucket, elapsed) = place(now, window);
        let (current, previous) = (self.current.load(Relaxed) as f64, self.previous.load(Relaxed) as f64);
        match bucket.saturating_sub(self.bucket.load(Relaxed)) {
            0 => current + previous * (1.0 - elapsed),
            1 => current * (1.0 - elapsed),
            _ => 0.0,
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.current.store(0, Relaxed);
        self.previous.store(0, Relaxed);
    }
}

/// The number of the bucket, and the share of it that has passed.
fn place(now: Mono, window: Duration) -> (u64, f64) {
    let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX).max(1);
    (now.nanos() / window, (now.nanos() % window) as f64 / window as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn events_count_for_a_window_and_fade_at_its_end() {
        let count = SlidingCount::default();
        assert!(count.sum(at(0), WINDOW).abs() < 1e-9);
        (0..100).for_each(|_| count.add(at(9_000), WINDOW));
        assert!((count.sum(at(9_999), WINDOW) - 100.0).abs() < 1e-9);
        assert!((count.sum(at(15_000), WINDOW) - 50.0).abs() < 1e-9);
        count.add(at(15_000), WINDOW);
        assert!((count.sum(at(15_000), WINDOW) - 51.0).abs() < 1e-9);
        assert!((count.sum(at(25_000), WINDOW) - 0.5).abs() < 1e-9);
        assert!(count.sum(at(40_000), WINDOW).abs() < 1e-9);
        count.add(at(60_000), WINDOW);
        assert!((count.sum(at(60_000), WINDOW) - 1.0).abs() < 1e-9, "what is older is forgotten");
        count.clear();
        assert!(count.sum(at(60_000), WINDOW).abs() < 1e-9);
    }

    #[test]
    fn an_event_that_is_late_counts_in_the_current_bucket() {
        let count = SlidingCount::default();
        count.add(at(10_001), WINDOW);
        count.add(at(9_999), WINDOW);
        assert!((count.sum(at(10_001), WINDOW) - 2.0).abs() < 1e-9);
        // A reader that is late sees what there is.
        assert!((count.sum(at(9_999), WINDOW) - 2.0).abs() < 1e-9);
    }
}

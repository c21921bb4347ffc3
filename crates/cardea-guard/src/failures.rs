//! Failures counted by key, each of which is forgiven in time.

use cardea_clock::Mono;

use crate::Bounded;

/// What failures are counted by: a hash of what was tried, and of who tried it.
pub type FailureKey = [u8; 16];

/// Failures as virtual scheduling sees them (GCRA, ITU-T I.371): each adds to the time at which all of its key are
/// forgiven. Durations are in nanoseconds.
#[derive(Debug)]
pub struct FailureCounts {
    /// When all failures of a key are forgiven, in nanoseconds of the monotonic clock.
    forgiven_at: Bounded<FailureKey, u64>,
}

impl FailureCounts {
    /// No failures, for at most `keys_max` keys.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self { forgiven_at: Bounded::new(keys_max) }
    }

    /// How far from `now` all failures of a key are forgiven.
    #[must_use]
    pub fn debt(&self, key: &FailureKey, now: Mono) -> u64 {
        self.forgiven_at.value(key).map_or(0, |at| at.saturating_sub(now.nanos()))
    }

    /// Adds a failure that lasts `one`, as far as the debt stays within `most`, so that an excess ends soon after the
    /// failures do. Returns what was added.
    pub fn add(&mut self, key: FailureKey, one: u64, most: u64, now: Mono) -> u64 {
        let debt = self.debt(&key, now);
        let added = one.min(most.saturating_sub(debt));
        self.forgiven_at.insert(key, now.nanos().saturating_add(debt).saturating_add(added));
        added
    }

    /// Takes back what [`Self::add`] added: it was no failure.
    pub fn take_back(&mut self, key: &FailureKey, added: u64) {
        if let Some(at) = self.forgiven_at.value_mut(key) {
            *at = at.saturating_sub(added);
        }
    }

    /// Forgets all failures.
    pub fn clear(&mut self) {
        self.forgiven_at.clear();
    }

    /// How many keys are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.forgiven_at.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.forgiven_at.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FailureKey = [1; 16];

    #[test]
    fn failures_add_up_to_the_most_and_are_forgiven_in_time() {
        let mut counts = FailureCounts::new(10);
        let at = Mono::from_nanos;
        assert_eq!((0..4).map(|_| counts.add(KEY, 10, 25, at(100))).collect::<Vec<_>>(), [10, 10, 5, 0]);
        assert_eq!([100, 110, 125, 1_000].map(|now| counts.debt(&KEY, at(now))), [25, 15, 0, 0]);
        assert_eq!(counts.debt(&[2; 16], at(100)), 0, "another key");
        counts.take_back(&KEY, 5);
        assert_eq!(counts.debt(&KEY, at(110)), 10);
        assert_eq!(counts.add(KEY, 10, 25, at(500)), 10, "nothing is left of the others");
        assert_eq!(counts.debt(&KEY, at(500)), 10);
    }

    #[test]
    fn no_more_keys_are_kept_than_may_be() {
        let mut counts = FailureCounts::new(2);
        for key in 0..5 {
            counts.add([key; 16], 10, 100, Mono::from_nanos(0));
        }
        assert_eq!(counts.len(), 2);
        assert_eq!(counts.debt(&[0; 16], Mono::from_nanos(0)), 0);
    }
}

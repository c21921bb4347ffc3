//! A request body that can be sent a second time: a bounded prefix, under a budget of the whole process.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The budget for kept request bodies of the whole process.
#[derive(Debug)]
pub struct ReplayBudget {
    used: AtomicUsize,
}

impl ReplayBudget {
    /// Nothing used.
    #[must_use]
    pub const fn new() -> Self {
        Self { used: AtomicUsize::new(0) }
    }

    /// Bytes that are kept now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    fn reserve(&self, bytes: usize, max: usize) -> bool {
        self.used
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(bytes).filter(|sum| *sum <= max))
            .is_ok()
    }
}

impl Default for ReplayBudget {
    fn default() -> Self {
        Self::new()
    }
}

/// What was taken from the client so far, as long as it is within its bounds.
#[derive(Debug)]
pub(crate) struct Replay {
    kept: Vec<u8>,
    /// Everything that was taken is in `kept`.
    complete: bool,
    bytes_max: usize,
    total_bytes_max: usize,
    /// None where there is nothing to keep.
    budget: Option<Arc<ReplayBudget>>,
}

impl Replay {
    pub(crate) fn new(bytes_max: usize, total_bytes_max: usize, budget: Arc<ReplayBudget>) -> Self {
        Self { kept: Vec::new(), complete: true, bytes_max, total_bytes_max, budget: Some(budget) }
    }

    /// Keeps nothing: for a request without a body, which can always be sent again, and for one that can't be sent
    /// again once a part of its body was taken. Nothing is shared with other requests.
    pub(crate) const fn empty() -> Self {
        Self { kept: Vec::new(), complete: true, bytes_max: 0, total_bytes_max: 0, budget: None }
    }

    /// Whether all that was taken from the client can be sent again.
    pub(crate) const fn is_possible(&self) -> bool {
        self.complete
    }

    /// What can be sent again.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Notes what was taken from the client.
    pub(crate) fn record(&mut self, bytes: &[u8]) {
        if !self.complete {
            return;
        }
        let fits = self.kept.len() + bytes.len() <= self.bytes_max
            && self.budget.as_ref().is_some_and(|budget| budget.reserve(bytes.len(), self.total_bytes_max));
        if fits {
            self.kept.extend_from_slice(bytes);
        } else {
            self.abandon();
        }
    }

    /// No second attempt will be made.
    pub(crate) fn abandon(&mut self) {
        self.complete = false;
        self.free();
    }

    fn free(&mut self) {
        if let Some(budget) = &self.budget
            && !self.kept.is_empty()
        {
            budget.used.fetch_sub(self.kept.len(), Relaxed);
        }
        self.kept = Vec::new();
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_beyond_its_bound_can_not_be_replayed_and_frees_the_budget() {
        let budget = Arc::new(ReplayBudget::new());
        let mut replay = Replay::new(4, 100, Arc::clone(&budget));
        replay.record(b"abc");
        assert_eq!((replay.kept(), budget.used()), (&b"abc"[..], 3));
        replay.record(b"de");
        assert!(!replay.is_possible());
        assert_eq!((replay.kept(), budget.used()), (&b""[..], 0));
    }

    #[test]
    fn the_budget_of_the_process_bounds_all_bodies_together() {
        let budget = Arc::new(ReplayBudget::new());
        let mut first = Replay::new(100, 10, Arc::clone(&budget));
        first.record(&[0; 8]);
        let mut second = Replay::new(100, 10, Arc::clone(&budget));
        second.record(&[0; 3]);
        assert!(first.is_possible() && !second.is_possible());
        drop(first);
        assert_eq!(budget.used(), 0);
        let mut third = Replay::new(100, 10, budget);
        third.record(&[0; 10]);
        assert!(third.is_possible());
    }
}

//! A request body that can be sent a second time: a bounded prefix, under a budget of the whole process.

use std::sync::Arc;

use super::{budget::BodyBudget, mirror::MirrorCopy};

/// What was taken from the client so far, as long as it is within its bounds.
#[derive(Debug)]
pub(crate) struct Replay {
    kept: Vec<u8>,
    /// Everything that was taken is in `kept`.
    complete: bool,
    bytes_max: usize,
    /// None where there is nothing to keep.
    budget: Option<Arc<BodyBudget>>,
    /// The copy for another service that is made meanwhile.
    copy: Option<Box<MirrorCopy>>,
}

impl Replay {
    pub(crate) const fn new(bytes_max: usize, budget: Arc<BodyBudget>) -> Self {
        Self { kept: Vec::new(), complete: true, bytes_max, budget: Some(budget), copy: None }
    }

    /// Keeps nothing: for a request without a body, which can always be sent again, and for one that can't be sent
    /// again once a part of its body was taken. Nothing is shared with other requests.
    pub(crate) const fn empty() -> Self {
        Self { kept: Vec::new(), complete: true, bytes_max: 0, budget: None, copy: None }
    }

    /// Gives all that is taken to a copy too, whether or not it is kept.
    pub(super) fn copy_to(&mut self, copy: Option<Box<MirrorCopy>>) {
        self.copy = copy;
    }

    /// All of the request was taken: its copy is sent, where there is one.
    pub(super) fn send_copy(&mut self) {
        if let Some(copy) = self.copy.take() {
            copy.send();
        }
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
        self.copy = self.copy.take().and_then(|copy| copy.with_body(bytes));
        if !self.complete {
            return;
        }
        let fits = self.kept.len() + bytes.len() <= self.bytes_max
            && self.budget.as_ref().is_some_and(|budget| budget.reserve(bytes.len()));
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
        if let Some(budget) = self.budget.as_ref().filter(|_| !self.kept.is_empty()) {
            budget.release(self.kept.len());
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
        let budget = Arc::new(BodyBudget::new(100));
        let mut replay = Replay::new(4, Arc::clone(&budget));
        replay.record(b"abc");
        assert_eq!((replay.kept(), budget.used()), (&b"abc"[..], 3));
        replay.record(b"de");
        assert!(!replay.is_possible());
        assert_eq!((replay.kept(), budget.used()), (&b""[..], 0));
    }

    #[test]
    fn the_budget_of_the_process_bounds_all_bodies_together() {
        let budget = Arc::new(BodyBudget::new(10));
        let mut first = Replay::new(100, Arc::clone(&budget));
        first.record(&[0; 8]);
        let mut second = Replay::new(100, Arc::clone(&budget));
        second.record(&[0; 3]);
        assert!(first.is_possible() && !second.is_possible());
        drop(first);
        assert_eq!(budget.used(), 0);
        let mut third = Replay::new(100, budget);
        third.record(&[0; 10]);
        assert!(third.is_possible());
    }
}

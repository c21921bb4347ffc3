//! Budgets of the whole process for parts of messages that are kept.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// How many bytes may be kept, and how many are.
#[derive(Debug)]
pub struct BodyBudget {
    used: AtomicUsize,
    max: AtomicUsize,
}

impl BodyBudget {
    /// Nothing used of `max` bytes.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max: AtomicUsize::new(max) }
    }

    /// Bytes that are kept now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Changes how many bytes may be kept. What is kept beyond it stays.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// Takes so many bytes, until [`release`](Self::release); false where there are not so many.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let max = self.max.load(Relaxed);
        self.used
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(bytes).filter(|sum| *sum <= max))
            .is_ok()
    }

    pub(super) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

/// Bytes of a budget that are in use for as long as this lives.
#[derive(Debug)]
pub(crate) struct Reserved {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl Reserved {
    /// None yet.
    pub(crate) const fn none(budget: Arc<BodyBudget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Takes so many bytes more; false where the budget has none left for them.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        let has_room = self.budget.reserve(bytes);
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_comes_back() {
        let budget = Arc::new(BodyBudget::new(10));
        let mut one = Reserved::none(Arc::clone(&budget));
        let mut other = Reserved::none(Arc::clone(&budget));
        assert!(one.add(4) && one.add(4) && !other.add(3) && other.add(2));
        assert_eq!(budget.used(), 10);
        drop(one);
        assert_eq!(budget.used(), 2);
        budget.set_max(1);
        assert!(!other.add(1));
        drop(other);
        assert_eq!(budget.used(), 0);
    }
}

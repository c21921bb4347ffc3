//! What happens when, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events by their time; those of the same time in the order in which they were added.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<Event<E>>>,
    added: u64,
}

#[derive(Debug)]
struct Event<E> {
    at: u64,
    order: u64,
    what: E,
}

impl<E> Events<E> {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }

    /// `what` happens at `at`, in nanoseconds.
    pub fn add(&mut self, at: u64, what: E) {
        self.added += 1;
        self.heap.push(Reverse(Event { at, order: self.added, what }));
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(event)| (event.at, event.what))
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> PartialEq for Event<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Event<E> {}

impl<E> PartialOrd for Event<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Event<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_in_the_order_added() {
        let mut events = Events::new();
        for (at, what) in [(5, 'd'), (1, 'a'), (3, 'b'), (3, 'c')] {
            events.add(at, what);
        }
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(order, [(1, 'a'), (3, 'b'), (3, 'c'), (5, 'd')]);
    }
}

//! A map that never grows beyond its capacity: what was put in first goes first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Entries by key, at most `capacity` of them. A key that is put in again keeps its turn.
#[derive(Debug)]
pub struct Bounded<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
    capacity: usize,
}

impl<K: Copy + Eq + Hash, V> Bounded<K, V> {
    /// An empty map for at most `capacity` entries. It keeps nothing where that is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), capacity }
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// The same, to be changed.
    pub fn value_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Puts in a value. Where the map is full, the key that was put in first goes.
    pub fn insert(&mut self, key: K, value: V) {
        if self.capacity == 0 {
            return;
        }
        if let Some(known) = self.entries.get_mut(&key) {
            *known = value;
            return;
        }
        if self.entries.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(key);
        self.entries.insert(key, value);
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_the_size_stays() {
        let mut map = Bounded::new(2);
        for key in 0..5 {
            map.insert(key, key);
            map.insert(key, key * 10);
        }
        assert_eq!(map.len(), 2);
        assert_eq!((map.value(&2), map.value(&3), map.value(&4)), (None, Some(&30), Some(&40)));
        assert_eq!((map.entries.len(), map.order.len()), (2, 2));
        map.clear();
        assert_eq!((map.entries.len(), map.order.len()), (0, 0));
        let mut none = Bounded::new(0);
        none.insert(1, 1);
        assert_eq!(none.len(), 0);
    }
}

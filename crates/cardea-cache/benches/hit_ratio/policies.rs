//! Eviction policies in their simplest form: only their hit ratio is measured, not their cost.

use std::collections::VecDeque;
use std::num::NonZero;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

/// A cache of keys.
pub(crate) trait Policy {
    /// Looks up a key, and inserts it if it is absent. Returns whether it was present.
    fn access(&mut self, key: u64) -> bool;
}

/// First in, first out.
pub(crate) struct Fifo {
    capacity: usize,
    keys: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Fifo {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, keys: HashSet::new(), order: VecDeque::new() }
    }
}

impl Policy for Fifo {
    fn access(&mut self, key: u64) -> bool {
        if self.keys.contains(&key) {
            return true;
        }
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.keys.insert(key);
        self.order.push_back(key);
        false
    }
}

/// Least recently used.
pub(crate) struct Lru(lru::LruCache<u64, ()>);

impl Lru {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(lru::LruCache::new(NonZero::new(capacity).unwrap_or(NonZero::<usize>::MIN)))
    }
}

impl Policy for Lru {
    fn access(&mut self, key: u64) -> bool {
        let known = self.0.get(&key).is_some();
        if !known {
            self.0.push(key, ());
        }
        known
    }
}

/// A small queue that one-hit wonders leave soon, a main one, and a list of evicted keys (Yang et al., SOSP 2023).
pub(crate) struct S3Fifo {
    capacity: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghost: VecDeque<u64>,
    ghosts: HashSet<u64>,
    uses: HashMap<u64, u8>,
}

impl S3Fifo {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            ghosts: HashSet::new(),
            uses: HashMap::new(),
        }
    }

    fn evict(&mut self) {
        if self.small.len() * 10 >= self.capacity || self.main.is_empty() {
            while let Some(key) = self.small.pop_front() {
                if self.uses.get(&key).is_some_and(|uses| *uses > 1) {
                    self.uses.insert(key, 0);
                    self.main.push_back(key);
                } else {
                    self.uses.remove(&key);
                    self.remember(key);
                    return;
                }
            }
        }
        while let Some(key) = self.main.pop_front() {
            match self.uses.get_mut(&key) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    self.main.push_back(key);
                }
                _ => {
                    self.uses.remove(&key);
                    return;
                }
            }
        }
    }

    fn remember(&mut self, key: u64) {
        if self.ghost.len() >= self.capacity
            && let Some(oldest) = self.ghost.pop_front()
        {
            self.ghosts.remove(&oldest);
        }
        self.ghost.push_back(key);
        self.ghosts.insert(key);
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, key: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        if self.uses.len() >= self.capacity {
            self.evict();
        }
        self.uses.insert(key, 0);
        if self.ghosts.remove(&key) {
            self.main.push_back(key);
        } else {
            self.small.push_back(key);
        }
        false
    }
}

/// A visited bit and a hand (Zhang et al., NSDI 2024) that passes at most `steps` keys.
pub(crate) struct Sieve {
    capacity: usize,
    steps: usize,
    places: HashMap<u64, usize>,
    nodes: Vec<Node>,
    oldest: usize,
    newest: usize,
    hand: usize,
}

struct Node {
    key: u64,
    is_visited: bool,
    newer: usize,
    older: usize,
}

const NONE: usize = usize::MAX;

impl Sieve {
    pub(crate) fn new(capacity: usize, steps: usize) -> Self {
        Self {
            capacity,
            steps,
            places: HashMap::new(),
            nodes: Vec::new(),
            oldest: NONE,
            newest: NONE,
            hand: NONE,
        }
    }

    fn or_oldest(&self, at: usize) -> usize {
        if at == NONE { self.oldest } else { at }
    }

    /// Evicts a key, and returns its index.
    fn evict(&mut self) -> usize {
        let mut at = self.or_oldest(self.hand);
        for _ in 1..self.steps {
            if !std::mem::take(&mut self.nodes[at].is_visited) {
                break;
            }
            at = self.or_oldest(self.nodes[at].newer);
        }
        let Node { key, newer, older, .. } = self.nodes[at];
        self.hand = newer;
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older].newer = newer,
        }
        self.places.remove(&key);
        at
    }
}

impl Policy for Sieve {
    fn access(&mut self, key: u64) -> bool {
        if let Some(at) = self.places.get(&key) {
            self.nodes[*at].is_visited = true;
            return true;
        }
        let at = if self.nodes.len() < self.capacity {
            self.nodes.push(Node { key, is_visited: false, newer: NONE, older: NONE });
            self.nodes.len() - 1
        } else {
            self.evict()
        };
        self.nodes[at] = Node { key, is_visited: false, newer: NONE, older: self.newest };
        match self.newest {
            NONE => self.oldest = at,
            newest => self.nodes[newest].newer = at,
        }
        self.newest = at;
        self.places.insert(key, at);
        false
    }
}

//! The streams that were closed last, for late frames (RFC 9113 §5.1).

use std::collections::VecDeque;

/// How a stream was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosedBy {
    /// Both sides ended it, or the peer reset it: no frame may follow.
    Peer,
    /// We reset it: the peer may not know yet.
    Us,
}

/// The most streams that are remembered: those that can be in flight at a time with usual limits.
const REMEMBERED: usize = 128;

/// The identifiers of the last closed streams, four bytes each.
#[derive(Debug, Default)]
pub(crate) struct ClosedStreams(VecDeque<u32>);

/// Identifiers have 31 bits.
const BY_US: u32 = 1 << 31;

impl ClosedStreams {
    /// Remembers a stream, and forgets the oldest one if there are too many.
    pub(crate) fn add(&mut self, id: u32, by: ClosedBy) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(if by == ClosedBy::Us { id | BY_US } else { id });
    }

    /// How a stream was closed, if that is remembered.
    pub(crate) fn get(&self, id: u32) -> Option<ClosedBy> {
        let entry = self.0.iter().rev().find(|&&entry| entry & !BY_US == id)?;
        Some(if entry & BY_US == 0 { ClosedBy::Peer } else { ClosedBy::Us })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }
}

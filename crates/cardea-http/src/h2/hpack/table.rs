//! The dynamic table (RFC 7541 §2.3.2, §4): a queue of entries over one buffer of bytes.

use std::collections::VecDeque;

use super::LineName;
use super::line::{FieldLine, Soundness};

/// What an entry counts beside its name and value (RFC 7541 §4.1), in bytes.
const ENTRY_OVERHEAD: usize = 32;

/// The entries, newest last, and their bytes.
///
/// The bytes of the live entries are contiguous in `bytes`. Evicted ones are dropped from its beginning when there is no
/// room at its end, so the buffer never exceeds the table's size, and each entry is one slice.
#[derive(Debug, Default)]
pub(super) struct DynamicTable {
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    /// The position of `bytes[0]` in the stream of all bytes ever added.
    base: u32,
    /// The size by RFC 7541 §4.1.
    size: usize,
    size_max: usize,
    /// The number of entries ever added.
    added: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The position in the stream of all bytes ever added.
    start: u32,
    name_len: u16,
    value_len: u16,
    kind: LineName,
    soundness: Soundness,
}

impl DynamicTable {
    /// An empty table of at most `size_max` bytes, and [`super::TABLE_BYTES_MAX`]. Allocates nothing.
    pub(super) fn new(size_max: usize) -> Self {
        Self { size_max: size_max.min(super::TABLE_BYTES_MAX), ..Self::default() }
    }

    pub(super) const fn size_max(&self) -> usize {
        self.size_max
    }

    /// The number of entries ever added. The newest entry is number `added - 1`.
    pub(super) const fn added(&self) -> u32 {
        self.added
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The line at `place`; 0 is the newest.
    pub(super) fn get(&self, place: usize) -> Option<FieldLine<'_>> {
        let entry = self.entries.get(self.entries.len().checked_sub(place + 1)?)?;
        let start = entry.start.wrapping_sub(self.base) as usize;
        let (name_len, value_len) = (usize::from(entry.name_len), usize::from(entry.value_len));
        let bytes = self.bytes.get(start..start + name_len + value_len)?;
        let (name, value) = bytes.split_at_checked(name_len)?;
        Some(FieldLine { kind: entry.kind, name, value, never_indexed: false, soundness: entry.soundness })
    }

    /// Changes the size (RFC 7541 §4.3).
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max.min(super::TABLE_BYTES_MAX);
        self.evict(0);
        if self.entries.is_empty() {
            self.bytes = Vec::new();
            self.entries = VecDeque::new();
        }
    }

    /// Adds a line and evicts old ones to make room (RFC 7541 §4.4). Whether it was added: one that is larger than the
    /// table empties it.
    pub(super) fn insert(&mut self, line: &FieldLine<'_>) -> bool {
        let (name_len, value_len) = (line.name.len(), line.value.len());
        let len = name_len + value_len;
        self.evict(len + ENTRY_OVERHEAD);
        if len + ENTRY_OVERHEAD > self.size_max {
            return false;
        }
        self.make_room(len);
        // Both fit: a table has at most 64 KiB.
        let entry = Entry {
            start: self.base.wrapping_add(self.bytes.len() as u32),
            name_len: name_len as u16,
            value_len: value_len as u16,
            kind: line.kind,
            soundness: line.soundness,
        };
        self.bytes.extend_from_slice(line.name);
        self.bytes.extend_from_slice(line.value);
        self.entries.push_back(entry);
        self.size += len + ENTRY_OVERHEAD;
        self.added = self.added.wrapping_add(1);
        true
    }

    /// Evicts the oldest entries until `needed` bytes fit.
    fn evict(&mut self, needed: usize) {
        while self.size + needed > self.size_max
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= usize::from(entry.name_len) + usize::from(entry.value_len) + ENTRY_OVERHEAD;
        }
    }

    /// Makes room for `len` bytes at the end of the buffer.
    fn make_room(&mut self, len: usize) {
        if self.bytes.len() + len > self.size_max {
            let end = self.base.wrapping_add(self.bytes.len() as u32);
            let live = self.entries.front().map_or(end, |entry| entry.start);
            let evicted = live.wrapping_sub(self.base) as usize;
            self.bytes.drain(..evicted.min(self.bytes.len()));
            self.base = live;
        }
        let needed = self.bytes.len() + len;
        if needed > self.bytes.capacity() {
            let capacity = needed.max(self.bytes.capacity() * 2).min(self.size_max);
            self.bytes.reserve_exact(capacity.saturating_sub(self.bytes.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line<'a>(name: &'a [u8], value: &'a [u8]) -> FieldLine<'a> {
        let kind = LineName::of(name);
        FieldLine { kind, name, value, never_indexed: false, soundness: Soundness::of(kind, name, value) }
    }

    /// The table as RFC 7541 §4 words it.
    #[derive(Default)]
    struct Model {
        entries: VecDeque<(Vec<u8>, Vec<u8>)>,
        size_max: usize,
    }

    impl Model {
        fn evict(&mut self, needed: usize) {
            let size =
                |model: &Self| model.entries.iter().map(|(n, v)| n.len() + v.len() + 32).sum::<usize>();
            while size(self) + needed > self.size_max && self.entries.pop_back().is_some() {}
        }

        fn insert(&mut self, name: &[u8], value: &[u8]) {
            let needed = name.len() + value.len() + 32;
            self.evict(needed);
            if needed <= self.size_max {
                self.entries.push_front((name.to_vec(), value.to_vec()));
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Insert(usize, usize),
        Resize(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            12 => (0..40_usize, 0..120_usize).prop_map(|(name, value)| Op::Insert(name, value)),
            1 => (0..700_usize).prop_map(Op::Resize),
        ]
    }

    proptest! {
        #[test]
        fn the_table_is_that_of_the_rfc_and_its_memory_is_bounded(
            ops in proptest::collection::vec(op(), 0..200),
            near_wrap in any::<bool>(),
        ) {
            let mut table = DynamicTable::new(400);
            if near_wrap {
                table.base = u32::MAX - 300;
            }
            let mut model = Model { size_max: 400, ..Model::default() };
            for (step, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Insert(name, value) => {
                        let (name, value) = (vec![b'a' + (step % 26) as u8; name], vec![step as u8; value]);
                        table.insert(&line(&name, &value));
                        model.insert(&name, &value);
                    }
                    Op::Resize(size) => {
                        table.resize(size);
                        model.size_max = size;
                        model.evict(0);
                    }
                }
                for (place, (name, value)) in model.entries.iter().enumerate() {
                    let found = table.get(place).unwrap();
                    prop_assert_eq!((found.name, found.value), (&name[..], &value[..]));
                }
                prop_assert!(table.get(model.entries.len()).is_none());
                prop_assert!(table.bytes.len() <= 700 && table.bytes.capacity() <= 700);
            }
        }
    }
}

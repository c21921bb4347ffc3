//! Decodes blocks (RFC 7541 §3, §6).

use super::line::{FieldLine, FieldSink, Soundness};
use super::names::{LineName, STATIC_LEN, static_entry};
use super::table::DynamicTable;
use super::{HpackError, TABLE_BYTES_DEFAULT, huffman, integer};

/// Decodes the blocks of one direction of a connection, in their order.
///
/// The work for a block is proportional to its bytes plus what its sink copies; the memory is the table's size plus the
/// decoded strings of one line.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The limit for size updates, from our SETTINGS_HEADER_TABLE_SIZE.
    limit: usize,
    /// The limit has fallen below the size in use: the next block must begin with an update.
    expects_update: bool,
    /// The decoded strings of a line.
    scratch: Vec<u8>,
}

/// The decoded strings that are kept allocated between blocks, in bytes.
const SCRATCH_KEPT: usize = 1024;

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: DynamicTable::new(TABLE_BYTES_DEFAULT),
            limit: TABLE_BYTES_DEFAULT,
            expects_update: false,
            scratch: Vec::new(),
        }
    }
}

/// A string of a literal: in the block, or decoded into the scratch from there on.
#[derive(Clone, Copy)]
enum Text<'a> {
    Plain(&'a [u8]),
    Scratch(usize, usize),
}

impl Decoder {
    /// Applies our SETTINGS_HEADER_TABLE_SIZE, once the peer has acknowledged it (RFC 9113 §4.3.1).
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes.min(super::TABLE_BYTES_MAX);
        self.expects_update = self.limit < self.table.size_max();
    }

    /// The allocated bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.scratch.capacity()
    }

    /// Decodes a whole block into `sink`.
    ///
    /// # Errors
    /// [`HpackError`]: the connection must be closed. The lines before the error were given to the sink.
    pub fn decode<S: FieldSink + ?Sized>(&mut self, block: &[u8], sink: &mut S) -> Result<(), HpackError> {
        let mut rest = self.size_updates(block)?;
        while let Some((&first, after)) = rest.split_first() {
            rest = after;
            if first & 0x80 != 0 {
                let index = integer::decode(first, 7, &mut rest)?;
                self.indexed(index, sink)?;
            } else if first & 0x40 != 0 {
                self.literal(first, 6, &mut rest, sink)?;
            } else if first & 0x20 != 0 {
                return Err(HpackError::SizeUpdateMisplaced);
            } else {
                self.literal(first, 4, &mut rest, sink)?;
            }
        }
        if self.scratch.capacity() > SCRATCH_KEPT {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Applies the size updates at the beginning of a block, and returns the rest of it.
    fn size_updates<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], HpackError> {
        let mut rest = block;
        while let Some((&first, after)) = rest.split_first()
            && first & 0xE0 == 0x20
        {
            rest = after;
            let size = integer::decode(first, 5, &mut rest)?;
            if size > self.limit {
                return Err(HpackError::SizeUpdateTooLarge);
            }
            self.table.resize(size);
            self.expects_update = false;
        }
        if self.expects_update { Err(HpackError::SizeUpdateMissing) } else { Ok(rest) }
    }

    fn indexed<S: FieldSink + ?Sized>(&self, index: usize, sink: &mut S) -> Result<(), HpackError> {
        if let Some(entry) = static_entry(index) {
            sink.field(&FieldLine {
                kind: entry.kind,
                name: entry.name.as_bytes(),
                value: entry.value.as_bytes(),
                never_indexed: false,
                soundness: Soundness::Sound,
            });
            return Ok(());
        }
        sink.field(&self.entry(index)?);
        Ok(())
    }

    /// The entry of the dynamic table at `index`, which counts from the beginning of the static one.
    fn entry(&self, index: usize) -> Result<FieldLine<'_>, HpackError> {
        let place = index.checked_sub(STATIC_LEN + 1).ok_or(HpackError::IndexInvalid)?;
        self.table.get(place).ok_or(HpackError::IndexInvalid)
    }

    /// A literal whose name's index has `bits` bits: 6 for those that are added to the table.
    fn literal<S: FieldSink + ?Sized>(
        &mut self,
        first: u8,
        bits: u32,
        rest: &mut &[u8],
        sink: &mut S,
    ) -> Result<(), HpackError> {
        let index = integer::decode(first, bits, rest)?;
        self.scratch.clear();
        let (kind, name) = if index == 0 {
            (None, self.text(rest)?)
        } else if let Some(entry) = static_entry(index) {
            (Some(entry.kind), Text::Plain(entry.name.as_bytes()))
        } else {
            // The entry may be evicted when this line is added (RFC 7541 §4.4).
            let place = index.checked_sub(STATIC_LEN + 1).ok_or(HpackError::IndexInvalid)?;
            let entry = self.table.get(place).ok_or(HpackError::IndexInvalid)?;
            self.scratch.extend_from_slice(entry.name);
            (Some(entry.kind), Text::Scratch(0, entry.name.len()))
        };
        let value = self.text(rest)?;
        let (name, value) = (part(name, &self.scratch), part(value, &self.scratch));
        let kind = kind.unwrap_or_else(|| LineName::of(name));
        let line = FieldLine {
            kind,
            name,
            value,
            never_indexed: bits == 4 && first & 0x10 != 0,
            soundness: Soundness::of(kind, name, value),
        };
        sink.field(&line);
        if bits == 6 {
            self.table.insert(&line);
        }
        Ok(())
    }

    /// Reads a string (RFC 7541 §5.2).
    fn text<'a>(&mut self, rest: &mut &'a [u8]) -> Result<Text<'a>, HpackError> {
        let (&first, after) = rest.split_first().ok_or(HpackError::Truncated)?;
        *rest = after;
        let len = integer::decode(first, 7, rest)?;
        let (bytes, after) = rest.split_at_checked(len).ok_or(HpackError::Truncated)?;
        *rest = after;
        if first & 0x80 == 0 {
            return Ok(Text::Plain(bytes));
        }
        let start = self.scratch.len();
        huffman::decode(bytes, &mut self.scratch)?;
        Ok(Text::Scratch(start, self.scratch.len()))
    }
}

fn part<'a>(text: Text<'a>, scratch: &'a [u8]) -> &'a [u8] {
    match text {
        Text::Plain(bytes) => bytes,
        Text::Scratch(start, end) => scratch.get(start..end).unwrap_or_default(),
    }
}

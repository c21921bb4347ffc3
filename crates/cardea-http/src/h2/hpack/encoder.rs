//! Encodes blocks (RFC 7541 §6), and decides what is indexed.

use smallvec::SmallVec;

use super::line::{FieldLine, Soundness};
use super::names::{LineName, Pseudo, STATIC_LEN, static_index};
use super::table::DynamicTable;
use super::{TABLE_BYTES_DEFAULT, huffman, integer};
use crate::{Field, Known, Method, Scheme};

/// What an encoder may put into its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderConfig {
    /// The largest dynamic table, whatever the peer allows, in bytes. Default 4096, at most 65,536; 0 for none.
    pub table_bytes_max: usize,
    /// Whether `Cookie` and `Set-Cookie` may be indexed, as browsers do. Default false: who can add fields to messages of
    /// the same connection and sees their size can guess what is indexed (RFC 7541 §7.1).
    pub index_cookies: bool,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self { table_bytes_max: TABLE_BYTES_DEFAULT, index_cookies: false }
    }
}

/// Encodes the blocks of one direction of a connection, in their order.
///
/// A line is added to the table when it is sent for the second time, so that values which don't recur displace nothing.
/// Credentials and lines that the sender of the message marked are never indexed. A lookup takes constant time.
#[derive(Debug)]
pub struct Encoder {
    config: EncoderConfig,
    table: DynamicTable,
    /// The low bits of the number of the newest entry, by hash of the line and by hash of the name. A stale or colliding
    /// slot is found out by comparing the bytes.
    slots: Vec<u16>,
    /// The fingerprints of lines that were sent without indexing, by hash.
    seen: Vec<u32>,
    /// The smallest size since the last block, if a size update is due (RFC 7541 §4.2).
    smallest: Option<usize>,
}

const SLOTS: usize = 256;
const SEEN: usize = 64;

/// How a line may be represented (RFC 7541 §6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indexing {
    Allowed,
    Without,
    Never,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new(EncoderConfig::default())
    }
}

impl Encoder {
    /// An encoder for a peer with the default settings. Allocates nothing.
    #[must_use]
    pub fn new(config: EncoderConfig) -> Self {
        let mut encoder = Self {
            config,
            table: DynamicTable::new(TABLE_BYTES_DEFAULT),
            slots: Vec::new(),
            seen: Vec::new(),
            smallest: None,
        };
        encoder.set_limit(TABLE_BYTES_DEFAULT);
        encoder
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_limit(&mut self, bytes: usize) {
        let size = bytes.min(self.config.table_bytes_max).min(super::TABLE_BYTES_MAX);
        if size != self.table.size_max() {
            self.table.resize(size);
            self.smallest = Some(self.smallest.map_or(size, |smallest| smallest.min(size)));
        }
    }

    /// The allocated bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.slots.capacity() * size_of::<u16>()
            + self.seen.capacity() * size_of::<u32>()
    }

    /// Begins a block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some(smallest) = self.smallest.take() else { return };
        let size = self.table.size_max();
        if smallest < size {
            integer::encode(smallest, 5, 0x20, out);
        }
        integer::encode(size, 5, 0x20, out);
    }

    /// Appends `:method`.
    pub fn method(&mut self, method: Method, out: &mut Vec<u8>) {
        match method {
            Method::Get => out.push(0x82),
            Method::Post => out.push(0x83),
            other => {
                let value = other.as_str().as_bytes();
                self.pseudo(Pseudo::Method, b":method", 2, value, Indexing::Allowed, out);
            }
        }
    }

    /// Appends `:scheme`.
    pub fn scheme(&mut self, scheme: Scheme, out: &mut Vec<u8>) {
        out.push(match scheme {
            Scheme::Http => 0x86,
            Scheme::Https => 0x87,
        });
    }

    /// Appends `:authority`.
    pub fn authority(&mut self, authority: &[u8], out: &mut Vec<u8>) {
        self.pseudo(Pseudo::Authority, b":authority", 1, authority, Indexing::Allowed, out);
    }

    /// Appends `:path`. It isn't indexed: queries contain secrets.
    pub fn path(&mut self, path: &[u8], out: &mut Vec<u8>) {
        match path {
            b"/" => out.push(0x84),
            _ => self.pseudo(Pseudo::Path, b":path", 4, path, Indexing::Without, out),
        }
    }

    /// Appends `:protocol` (RFC 8441 §4).
    pub fn protocol(&mut self, protocol: &[u8], out: &mut Vec<u8>) {
        self.pseudo(Pseudo::Protocol, b":protocol", 0, protocol, Indexing::Allowed, out);
    }

    /// Appends `:status`, which must be below 1000.
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let mut digits = itoa::Buffer::new();
                let value = digits.format(status).as_bytes();
                return self.pseudo(Pseudo::Status, b":status", 8, value, Indexing::Allowed, out);
            }
        };
        out.push(0x80 | index);
    }

    /// Appends a field line, its name in lower case.
    pub fn field(&mut self, field: &Field<'_>, out: &mut Vec<u8>) {
        let (kind, static_name) = match field.known {
            Some(known) => (LineName::Known(known), static_index(known).unwrap_or(0)),
            None => (LineName::Other, 0),
        };
        if field.known == Some(Known::AcceptEncoding) && field.value == b"gzip, deflate" {
            out.push(0x90);
            return;
        }
        let indexing = if field.never_indexed || self.is_secret(field.known) {
            Indexing::Never
        } else {
            Indexing::Allowed
        };
        if field.name.iter().any(u8::is_ascii_uppercase) {
            let mut lower = SmallVec::<[u8; 64]>::from_slice(field.name);
            lower.make_ascii_lowercase();
            self.line(kind, &lower, static_name, field.value, indexing, out);
        } else {
            self.line(kind, field.name, static_name, field.value, indexing, out);
        }
    }

    /// Whether a field carries credentials (RFC 7541 §7.1.3).
    fn is_secret(&self, known: Option<Known>) -> bool {
        match known {
            Some(Known::Authorization | Known::ProxyAuthorization | Known::Dpop) => true,
            Some(Known::Cookie | Known::SetCookie) => !self.config.index_cookies,
            _ => false,
        }
    }

    fn pseudo(
        &mut self,
        pseudo: Pseudo,
        name: &[u8],
        static_name: usize,
        value: &[u8],
        indexing: Indexing,
        out: &mut Vec<u8>,
    ) {
        self.line(LineName::Pseudo(pseudo), name, static_name, value, indexing, out);
    }

    /// Appends a line that the static table doesn't contain. `static_name` is the index of its name there, or 0.
    fn line(
        &mut self,
        kind: LineName,
        name: &[u8],
        static_name: usize,
        value: &[u8],
        indexing: Indexing,
        out: &mut Vec<u8>,
    ) {
        let indexing = match indexing {
            // It would displace most of the table.
            Indexing::Allowed if (name.len() + value.len() + 32) * 2 > self.table.size_max() => {
                Indexing::Without
            }
            indexing => indexing,
        };
        let name_hash = hash(0x51, name);
        let line_hash = hash(name_hash, value);
        if indexing == Indexing::Allowed
            && let Some(place) = self.find(line_hash, |line| line.name == name && line.value == value)
        {
            integer::encode(STATIC_LEN + 1 + place, 7, 0x80, out);
            return;
        }
        let name_index = match static_name {
            0 => self.find(name_hash, |line| line.name == name).map_or(0, |place| STATIC_LEN + 1 + place),
            index => index,
        };
        let is_added = indexing == Indexing::Allowed && self.was_seen(line_hash);
        let (bits, pattern) = match indexing {
            _ if is_added => (6, 0x40),
            Indexing::Never => (4, 0x10),
            Indexing::Allowed | Indexing::Without => (4, 0x00),
        };
        integer::encode(name_index, bits, pattern, out);
        if name_index == 0 {
            text(name, is_added, out);
        }
        text(value, is_added, out);
        if is_added {
            let line = FieldLine { kind, name, value, never_indexed: false, soundness: Soundness::Sound };
            self.insert(&line, name_hash, line_hash);
        }
    }

    /// Whether the line was sent before, as far as is remembered. Remembers it.
    fn was_seen(&mut self, line_hash: u64) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN];
        }
        let fingerprint = (line_hash >> 32) as u32 | 1;
        let Some(slot) = self.seen.get_mut(line_hash as usize % SEEN) else { return false };
        core::mem::replace(slot, fingerprint) == fingerprint
    }

    /// The place of the entry that was noted under `hash`, if it is still there and `is_it`.
    fn find(&self, hash: u64, is_it: impl Fn(&FieldLine<'_>) -> bool) -> Option<usize> {
        let number = *self.slots.get(hash as usize % SLOTS)?;
        let place = usize::from((self.table.added() as u16).wrapping_sub(1).wrapping_sub(number));
        self.table.get(place).filter(is_it).map(|_| place)
    }

    /// Whether the table contains these bytes.
    #[cfg(test)]
    pub(super) fn memory_has(&self, bytes: &[u8]) -> bool {
        let mut lines = (0..).map_while(|place| self.table.get(place));
        lines.any(|line| line.value.windows(bytes.len()).any(|part| part == bytes))
    }

    fn insert(&mut self, line: &FieldLine<'_>, name_hash: u64, line_hash: u64) {
        if self.slots.is_empty() {
            self.slots = vec![0; SLOTS];
        }
        let number = self.table.added() as u16;
        if self.table.insert(line) {
            for hash in [name_hash, line_hash] {
                if let Some(slot) = self.slots.get_mut(hash as usize % SLOTS) {
                    *slot = number;
                }
            }
        }
    }
}

/// Appends a string. Huffman coding takes more time than it saves for what is sent once, but a line that is added to the
/// table is coded only once.
fn text(string: &[u8], is_coded: bool, out: &mut Vec<u8>) {
    let coded_len = if is_coded { huffman::encoded_len(string) } else { usize::MAX };
    if coded_len < string.len() {
        integer::encode(coded_len, 7, 0x80, out);
        huffman::encode(string, out);
    } else {
        integer::encode(string.len(), 7, 0, out);
        out.extend_from_slice(string);
    }
}

/// A hash whose collisions cost compression at most.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(ODD);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash =
        words.iter().fold(mix(seed, bytes.len() as u64), |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let tail = rest.iter().fold(0, |tail, &byte| (tail << 8) | u64::from(byte));
    let hash = mix(hash, tail);
    hash ^ (hash >> 29)
}

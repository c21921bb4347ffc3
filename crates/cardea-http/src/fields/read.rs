//! Reads the field lines of HTTP/1 in one pass, which finds, checks and classifies them. What it does not accept is explained
//! by another one (`h1::scan`).

#[cfg(test)]
mod tests;

use super::{Entry, Fields, Known, ODD_NAME};
use crate::chars::{ODD, TOKEN, class_of};
use crate::words::{colons, controls, find};

impl Fields {
    /// Replaces all lines by those in `head` from `start` on, and returns where the empty line behind them ends (RFC 9112
    /// §5). `None` if there is no such line, a line does not have the form of the grammar, or there are more than `lines_max`:
    /// then there are no lines. The bytes to there are copied at once, and the lines point into them.
    pub(crate) fn read(&mut self, head: &[u8], start: usize, lines_max: usize) -> Option<usize> {
        self.clear();
        let end = self.read_entries(head, start, lines_max.min(Self::LEN_MAX));
        let block = end.and_then(|end| head.get(..end)).filter(|block| block.len() <= Self::BYTES_MAX);
        match block {
            Some(block) => self.arena.extend_from_slice(block),
            None => self.clear(),
        }
        block.map(<[u8]>::len)
    }

    fn read_entries(&mut self, head: &[u8], mut at: usize, lines_max: usize) -> Option<usize> {
        let mut rest = head.get(at..)?;
        loop {
            if let [b'\r', b'\n', ..] = rest {
                return Some(at + 2);
            }
            let name_len = find(rest, 0, colons)?;
            let (name, value) = rest.split_at_checked(name_len)?;
            let known = Known::of(name);
            match known {
                Some(known) => self.present |= known.bit(),
                None => self.present |= check_name(name)?,
            }
            let len = name_len + find(value, 0, controls)?;
            let (line, [b'\r', b'\n', next @ ..]) = rest.split_at_checked(len)? else {
                return None;
            };
            if self.entries.len() >= lines_max {
                return None;
            }
            let (before, value) = match line.get(name_len + 1..)? {
                // As nearly all are: a space before, and none behind.
                [b' ', value @ ..] if is_trimmed(value) => (2, value),
                value => {
                    let trimmed = value.trim_ascii_start();
                    (1 + value.len() - trimmed.len(), trimmed.trim_ascii_end())
                }
            };
            self.entries.push(Entry {
                name_start: u32::try_from(at).ok()?,
                value_start: u32::try_from(at + name_len + before).ok()?,
                value_len: u32::try_from(value.len()).ok()?,
                name_len: u16::try_from(name_len).ok()?,
                known,
                never_indexed: false,
            });
            at += len + 2;
            rest = next;
        }
    }
}

/// What an unknown name adds to the set of names. `None` if it is no token (RFC 9110 §5.1).
fn check_name(name: &[u8]) -> Option<u128> {
    let mut common = u8::MAX;
    let mut any = 0;
    for &byte in name {
        let class = class_of(byte);
        common &= class;
        any |= class;
    }
    (common & TOKEN != 0 && !name.is_empty()).then_some(if any & ODD != 0 { ODD_NAME } else { 0 })
}

/// Whether no white space is around `value`.
const fn is_trimmed(value: &[u8]) -> bool {
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

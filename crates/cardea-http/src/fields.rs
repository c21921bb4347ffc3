//! Field lines: one arena of bytes, one table, and the set of known names that are present.

mod known;
mod noted;
mod read;
#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Range;

pub use known::Known;
pub use noted::NotedFields;

use crate::chars::{is_field_value, is_token, trim_ows};
use crate::h2::hpack::{FieldLine, LineName};
use crate::names::is_odd;

/// The bit of the set for a name with punctuation that some origins treat as `-`.
const ODD_NAME: u128 = 1 << 127;

/// The bit of the set for a rewritten arena, in which earlier positions of lines are invalid.
const REWRITTEN: u128 = 1 << 126;

/// The bits of the set that are not known names.
const FLAGS: u128 = ODD_NAME | REWRITTEN;

/// The field lines of a message in their order, with names in their received spelling.
///
/// Every name is a token and no value contains control bytes, however it was added. Looking up a [`Known`] name that is
/// absent costs one bit test. [`Fields::clear`] keeps the memory. The limits are [`Fields::BYTES_MAX`] bytes and
/// [`Fields::LEN_MAX`] lines.
#[derive(Default)]
pub struct Fields {
    arena: Vec<u8>,
    entries: Vec<Entry>,
    present: u128,
}

/// One field line.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    /// The id of the name, if it is a known one.
    pub known: Option<Known>,
    /// The name as received.
    pub name: &'a [u8],
    /// The value, without surrounding white space.
    pub value: &'a [u8],
    /// Whether HTTP/2 must not put the line into a table at any hop (RFC 7541 §6.2.3). Known credentials are protected
    /// without it.
    pub never_indexed: bool,
}

/// Offsets into the arena. An empty name means the usual spelling of a known one.
#[derive(Clone, Copy)]
struct Entry {
    name_start: u32,
    value_start: u32,
    value_len: u32,
    name_len: u16,
    known: Option<Known>,
    never_indexed: bool,
}

/// The alignment has room for the flags.
const _: () = assert!(size_of::<Entry>() == 16);

/// Why a field line is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The name is empty, no token (RFC 9110 §5.1), or longer than 65,535 bytes.
    #[error("a field name is not a token")]
    NameInvalid,
    /// The value has a control byte other than HTAB (RFC 9110 §5.5).
    #[error("a control byte in a field value")]
    ValueInvalid,
    /// More than [`Fields::BYTES_MAX`] bytes in all.
    #[error("the fields are too large")]
    TooLarge,
    /// More than [`Fields::LEN_MAX`] lines.
    #[error("too many fields")]
    TooMany,
}

impl Fields {
    /// The most bytes of names and values together.
    pub const BYTES_MAX: usize = 1 << 20;
    /// The most field lines.
    pub const LEN_MAX: usize = 1024;

    /// Appends a field line. White space around the value is removed.
    ///
    /// # Errors
    /// [`FieldError`] if the name or the value is invalid, or there is no room.
    pub fn append(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        if !is_token(name) {
            return Err(FieldError::NameInvalid);
        }
        let name_len = u16::try_from(name.len()).map_err(|_| FieldError::NameInvalid)?;
        let value = checked(value)?;
        self.make_room(name.len() + value.len())?;
        let known = Known::of(name);
        let name_start = self.offset();
        self.arena.extend_from_slice(name);
        self.push(known, name_start, name_len, value);
        if known.is_none() && is_odd(name) {
            self.present |= ODD_NAME;
        }
        Ok(())
    }

    /// Appends a field line with the usual spelling of its name.
    ///
    /// # Errors
    /// [`FieldError`] if the value is invalid, or there is no room.
    pub fn append_known(&mut self, known: Known, value: &[u8]) -> Result<(), FieldError> {
        self.append_checked(known, checked(value)?)
    }

    fn append_checked(&mut self, known: Known, value: &[u8]) -> Result<(), FieldError> {
        self.make_room(value.len())?;
        let name_start = self.offset();
        self.push(Some(known), name_start, 0, value);
        Ok(())
    }

    /// Appends a line of HTTP/2, with the usual spelling of a known name.
    ///
    /// # Errors
    /// [`FieldError`] if it is malformed, a pseudo-header field, or there is no room.
    pub fn append_line(&mut self, line: &FieldLine<'_>) -> Result<(), FieldError> {
        line.check()?;
        let known = match line.kind {
            LineName::Known(known) => Some(known),
            LineName::Other => None,
            LineName::Pseudo(_) => return Err(FieldError::NameInvalid),
        };
        let name = if known.is_some() { b"" } else { line.name };
        let name_len = u16::try_from(name.len()).map_err(|_| FieldError::NameInvalid)?;
        self.make_room(name.len() + line.value.len())?;
        let name_start = self.offset();
        self.arena.extend_from_slice(name);
        self.push(known, name_start, name_len, line.value);
        if let Some(entry) = self.entries.last_mut() {
            entry.never_indexed = line.never_indexed;
        }
        if line.is_odd() {
            self.present |= ODD_NAME;
        }
        Ok(())
    }

    /// Removes all lines with this name and appends one. After an error nothing has changed.
    ///
    /// # Errors
    /// [`FieldError`] if the value is invalid, or there is no room.
    pub fn set_known(&mut self, known: Known, value: &[u8]) -> Result<(), FieldError> {
        let value = checked(value)?;
        if self.arena.len().saturating_add(value.len()) > Self::BYTES_MAX {
            let replaced: usize = self.get_all(known).map(|old| known.as_str().len() + old.len()).sum();
            let kept = self.byte_len().saturating_sub(replaced);
            if kept + known.as_str().len() + value.len() > Self::BYTES_MAX {
                return Err(FieldError::TooLarge);
            }
        }
        if !self.contains(known) && self.entries.len() >= Self::LEN_MAX {
            return Err(FieldError::TooMany);
        }
        self.remove(known);
        self.append_checked(known, value)
    }

    /// Joins the values of all lines with this name into the first one.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`] if there is no room. Then nothing has changed.
    pub(crate) fn join(&mut self, known: Known, separator: &[u8]) -> Result<(), FieldError> {
        let count = self.count(known);
        if count < 2 {
            return Ok(());
        }
        let bytes: usize = self.get_all(known).map(|value| value.len() + separator.len()).sum();
        if self.arena.len() + bytes > Self::BYTES_MAX {
            return Err(FieldError::TooLarge);
        }
        let Self { arena, entries, .. } = self;
        let start = arena.len();
        let mut never_indexed = false;
        for entry in entries.iter().filter(|entry| entry.known == Some(known)) {
            if arena.len() > start {
                arena.extend_from_slice(separator);
            }
            let from = entry.value_start as usize;
            arena.extend_from_within(from..from + entry.value_len as usize);
            never_indexed |= entry.never_indexed;
        }
        let joined_len = arena.len() - start;
        let mut is_first = true;
        entries.retain_mut(|entry| {
            if entry.known != Some(known) {
                return true;
            }
            entry.value_start = u32::try_from(start).unwrap_or(u32::MAX);
            entry.value_len = u32::try_from(joined_len).unwrap_or(0);
            entry.never_indexed = never_indexed;
            core::mem::take(&mut is_first)
        });
        Ok(())
    }

    /// All lines, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Field<'_>> + ExactSizeIterator {
        self.entries.iter().map(|entry| entry.field(&self.arena))
    }

    /// The value of the first line with this name.
    #[must_use]
    pub fn get(&self, known: Known) -> Option<&[u8]> {
        self.get_all(known).next()
    }

    /// The values of all lines with this name, in order.
    pub fn get_all(&self, known: Known) -> impl DoubleEndedIterator<Item = &[u8]> {
        let entries = if self.contains(known) { self.entries.as_slice() } else { &[] };
        entries.iter().filter(move |entry| entry.known == Some(known)).map(|entry| entry.value(&self.arena))
    }

    /// The number of lines with this name.
    #[must_use]
    pub fn count(&self, known: Known) -> usize {
        self.get_all(known).count()
    }

    /// Whether there is a line with this name.
    #[must_use]
    pub const fn contains(&self, known: Known) -> bool {
        self.present & known.bit() != 0
    }

    /// The value of the first line with this name, case-insensitive.
    #[must_use]
    pub fn get_by_name(&self, name: &[u8]) -> Option<&[u8]> {
        self.get_all_by_name(name).next()
    }

    /// The values of all lines with this name, case-insensitive.
    pub fn get_all_by_name(&self, name: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
        let known = Known::of(name);
        let is_absent = known.is_some_and(|known| !self.contains(known));
        let entries = if is_absent { &[] } else { self.entries.as_slice() };
        let is_named = move |entry: &&Entry| {
            entry.known == known && (known.is_some() || entry.name(&self.arena).eq_ignore_ascii_case(name))
        };
        entries.iter().filter(is_named).map(|entry| entry.value(&self.arena))
    }

    /// Removes all lines with this name; returns their number.
    pub fn remove(&mut self, known: Known) -> usize {
        if !self.contains(known) {
            return 0;
        }
        let before = self.entries.len();
        self.entries.retain(|entry| entry.known != Some(known));
        self.present &= !known.bit();
        before - self.entries.len()
    }

    /// Removes all lines with this name, case-insensitive; returns their number.
    pub fn remove_by_name(&mut self, name: &[u8]) -> usize {
        if let Some(known) = Known::of(name) {
            return self.remove(known);
        }
        let before = self.entries.len();
        self.retain(|field| field.known.is_some() || !field.name.eq_ignore_ascii_case(name));
        before - self.entries.len()
    }

    /// Keeps the lines for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) {
        let Self { arena, entries, present } = self;
        *present &= FLAGS;
        entries.retain(|entry| {
            let kept = keep(entry.field(arena));
            if let (true, Some(known)) = (kept, entry.known) {
                *present |= known.bit();
            }
            kept
        });
    }

    /// Removes everything and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.entries.clear();
        self.present = 0;
    }

    /// The number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of all names and values together.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.iter().map(|field| field.name.len() + field.value.len()).sum()
    }

    /// Appends the lines as in a head of HTTP/1. Lines that follow each other in the arena in just that form are copied together.
    pub(crate) fn write_lines(&self, out: &mut Vec<u8>) {
        // A run of such lines that is not copied yet.
        let mut run = 0..0;
        for entry in &self.entries {
            if let Some(line) = entry.line(&self.arena) {
                if line.start == run.end {
                    run.end = line.end;
                } else {
                    out.extend_from_slice(self.arena.get(run).unwrap_or_default());
                    run = line;
                }
                continue;
            }
            out.extend_from_slice(self.arena.get(core::mem::take(&mut run)).unwrap_or_default());
            out.extend_from_slice(entry.name(&self.arena));
            out.extend_from_slice(b": ");
            out.extend_from_slice(entry.value(&self.arena));
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(self.arena.get(run).unwrap_or_default());
    }

    /// The allocated bytes, used or not.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The approximate size of the lines in a head, in bytes.
    pub(crate) fn wire_len(&self) -> usize {
        self.arena.len() + self.entries.len() * 32
    }

    /// The known names that are present, as [`Known::bit`]s.
    pub(crate) const fn known_set(&self) -> u128 {
        self.present & !FLAGS
    }

    /// Whether there may be a name with punctuation other than `-`, which services that fold names treat as another
    /// name.
    #[must_use]
    pub const fn may_have_odd_names(&self) -> bool {
        self.present & ODD_NAME != 0
    }

    /// The offset of the next byte. [`Fields::make_room`] keeps it below [`Fields::BYTES_MAX`].
    fn offset(&self) -> u32 {
        u32::try_from(self.arena.len()).unwrap_or(u32::MAX)
    }

    fn push(&mut self, known: Option<Known>, name_start: u32, name_len: u16, value: &[u8]) {
        let value_start = self.offset();
        let value_len = u32::try_from(value.len()).unwrap_or(0);
        self.arena.extend_from_slice(value);
        self.entries.push(Entry {
            name_start,
            value_start,
            value_len,
            name_len,
            known,
            never_indexed: false,
        });
        self.present |= known.map_or(0, Known::bit);
    }

    /// Ensures that one more line of `bytes` fits, and drops the bytes of removed lines if necessary.
    fn make_room(&mut self, bytes: usize) -> Result<(), FieldError> {
        if self.entries.len() >= Self::LEN_MAX {
            return Err(FieldError::TooMany);
        }
        if self.arena.len().saturating_add(bytes) <= Self::BYTES_MAX {
            return Ok(());
        }
        if self.byte_len().saturating_add(bytes) > Self::BYTES_MAX {
            return Err(FieldError::TooLarge);
        }
        let old = core::mem::take(self);
        self.present = REWRITTEN;
        for field in old.iter() {
            self.append(field.name, field.value)?;
            if let Some(entry) = self.entries.last_mut() {
                entry.never_indexed = field.never_indexed;
            }
        }
        Ok(())
    }
}

impl Entry {
    fn field<'a>(&self, arena: &'a [u8]) -> Field<'a> {
        let (name, value) = (self.name(arena), self.value(arena));
        Field { known: self.known, name, value, never_indexed: self.never_indexed }
    }

    fn name<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        match (self.name_len, self.known) {
            (0, Some(known)) => known.as_str().as_bytes(),
            _ => part(arena, self.name_start, u32::from(self.name_len)),
        }
    }

    fn value<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        part(arena, self.value_start, self.value_len)
    }

    /// Where the whole line is in the arena, if it is there as HTTP/1 writes it: `name: value` and CR LF.
    fn line(&self, arena: &[u8]) -> Option<Range<usize>> {
        let start = self.name_start as usize;
        let name_end = start + usize::from(self.name_len);
        let value_start = self.value_start as usize;
        if self.name_len == 0 || value_start != name_end + 2 || arena.get(name_end..value_start)? != b": " {
            return None;
        }
        let value_end = value_start + self.value_len as usize;
        let end = value_end + 2;
        (arena.get(value_end..end)? == b"\r\n").then_some(start..end)
    }
}

/// Offsets are always within the arena that they were created for; otherwise the part would be empty.
fn part(arena: &[u8], start: u32, len: u32) -> &[u8] {
    let start = start as usize;
    arena.get(start..start.saturating_add(len as usize)).unwrap_or_default()
}

/// The value without surrounding white space, if it is valid.
fn checked(value: &[u8]) -> Result<&[u8], FieldError> {
    let value = trim_ows(value);
    if is_field_value(value) { Ok(value) } else { Err(FieldError::ValueInvalid) }
}

impl Clone for Fields {
    fn clone(&self) -> Self {
        Self { arena: self.arena.clone(), entries: self.entries.clone(), present: self.present }
    }

    /// Reuses the memory.
    fn clone_from(&mut self, other: &Self) {
        self.arena.clone_from(&other.arena);
        self.entries.clone_from(&other.entries);
        self.present = other.present;
    }
}

impl PartialEq for Fields {
    /// The same lines in the same order, names and values byte by byte.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().zip(other.iter()).all(|(one, two)| (one.name, one.value) == (two.name, two.value))
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    /// Credentials are redacted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Field<'_> {
    /// Credentials are redacted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = matches!(
            self.known,
            Some(
                Known::Authorization
                    | Known::ProxyAuthorization
                    | Known::Cookie
                    | Known::SetCookie
                    | Known::Dpop
            )
        );
        let name = self.name.escape_ascii();
        if secret {
            write!(f, "{name}: [redacted]")
        } else {
            write!(f, "{name}: {}", self.value.escape_ascii())
        }
    }
}

impl FieldError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NameInvalid => "field_name_invalid",
            Self::ValueInvalid => "field_value_invalid",
            Self::TooLarge => "head_too_large",
            Self::TooMany => "too_many_fields",
        }
    }

    /// The status of the response to a request.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::TooLarge | Self::TooMany => 431,
            Self::NameInvalid | Self::ValueInvalid => 400,
        }
    }
}

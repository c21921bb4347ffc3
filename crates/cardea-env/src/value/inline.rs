//! Short text that is created by a read and stored in place.

use std::fmt;

/// Up to [`Inline::CAPACITY`] bytes of text, stored in place.
#[derive(Clone, Copy)]
pub struct Inline {
    length: u8,
    bytes: [u8; Self::CAPACITY],
}

impl Inline {
    /// The capacity: enough for an IPv6 address, a UUID or a 128-bit number.
    pub const CAPACITY: usize = 46;

    /// Empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self { length: 0, bytes: [0; Self::CAPACITY] }
    }

    /// The text of an array; one that does not fit does not compile.
    #[must_use]
    pub fn from_array<const N: usize>(text: [u8; N]) -> Self {
        const { assert!(N <= Self::CAPACITY, "longer than Inline::CAPACITY") };
        let mut inline = Self::new();
        inline.push(&text);
        inline
    }

    /// The first `length` bytes of an array, or all.
    pub(crate) fn of<const N: usize>(text: [u8; N], length: usize) -> Self {
        let mut inline = Self::from_array(text);
        inline.length = inline.length.min(length as u8);
        inline
    }

    /// The text of a slice; `None` if it does not fit.
    #[must_use]
    pub fn from_slice(text: &[u8]) -> Option<Self> {
        let mut inline = Self::new();
        inline.push(text).then_some(inline)
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The formatted value, which must fit: an address, a network, a number.
    pub(crate) fn display(thing: &impl fmt::Display) -> Self {
        let mut inline = Self::new();
        // Text that does not fit is dropped.
        let _ = fmt::write(&mut inline, format_args!("{thing}"));
        inline
    }

    /// Appends `text` if it fits entirely; returns whether it did.
    pub(crate) fn push(&mut self, text: &[u8]) -> bool {
        let start = usize::from(self.length);
        let Some(room) = self.bytes.get_mut(start..start + text.len()) else { return false };
        room.copy_from_slice(text);
        // It fitted, so the sum is at most CAPACITY.
        self.length += text.len() as u8;
        true
    }
}

impl Default for Inline {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Inline {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Inline {}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl fmt::Write for Inline {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.push(text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}

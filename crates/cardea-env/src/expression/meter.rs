//! What an evaluation may use: steps, and memory for what the request does not hold.

use std::cell::Cell;
use std::fmt;

use bumpalo::Bump;

use super::fault::FaultKind;
use crate::value::{Characters, Value};

/// The most steps of an evaluation: a node of the tree, an item that is compared, [`STEP_BYTES`] of text. In the order of
/// a millisecond.
const STEPS_MAX: u32 = 50_000;

/// The bytes of text that a step goes through.
const STEP_BYTES: usize = 32;

/// The most bytes of text, lists and maps that an evaluation makes.
const MEMORY_MAX: usize = 64 * 1024;

/// Where an evaluation makes what the request does not hold: at most 64 KiB for each. Allocates nothing until then.
#[derive(Default)]
pub struct Scratch {
    bump: Bump,
}

impl Scratch {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How much memory it holds, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bump.allocated_bytes()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").field("bytes", &self.bytes()).finish()
    }
}

/// What one evaluation has left.
pub(super) struct Meter<'e> {
    scratch: &'e Scratch,
    steps: Cell<u32>,
    memory: Cell<usize>,
}

impl<'e> Meter<'e> {
    pub(super) fn new(scratch: &'e Scratch) -> Self {
        Self { scratch, steps: Cell::new(STEPS_MAX), memory: Cell::new(MEMORY_MAX) }
    }

    /// One step.
    #[inline]
    pub(super) fn step(&self) -> Result<(), FaultKind> {
        match self.steps.get().checked_sub(1) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => Err(FaultKind::Steps),
        }
    }

    /// The steps of going through this many bytes.
    #[inline]
    pub(super) fn bytes(&self, bytes: usize) -> Result<(), FaultKind> {
        let steps = u32::try_from(bytes / STEP_BYTES).unwrap_or(u32::MAX);
        match self.steps.get().checked_sub(steps) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => {
                self.steps.set(0);
                Err(FaultKind::Steps)
            }
        }
    }

    /// Steps whose number is a product.
    pub(super) fn product(&self, one: usize, other: usize) -> Result<(), FaultKind> {
        self.bytes(one.saturating_mul(other))
    }

    fn take(&self, bytes: usize) -> Result<(), FaultKind> {
        self.bytes(bytes)?;
        let left = self.memory.get().checked_sub(bytes).ok_or(FaultKind::Memory)?;
        self.memory.set(left);
        Ok(())
    }

    /// Whether as much may be made; without making it.
    pub(super) fn fits(&self, bytes: usize) -> Result<(), FaultKind> {
        if bytes <= self.memory.get() { Ok(()) } else { Err(FaultKind::Memory) }
    }

    /// Keeps text until the evaluation's value is dropped.
    pub(super) fn text(&self, text: impl AsRef<[u8]>) -> Result<Value<'e>, FaultKind> {
        let text = text.as_ref();
        self.take(text.len())?;
        Ok(Value::Bytes(self.scratch.bump.alloc_slice_copy(text)))
    }

    /// The text of a value in UTF-8, made of what is none; `None` where it is no text.
    pub(super) fn utf8<'v>(&self, value: &'v Value<'e>) -> Result<Option<&'v str>, FaultKind> {
        match value.characters() {
            Some(Characters::Utf8(text)) => Ok(Some(text)),
            Some(latin1) => self.keep(&latin1.to_utf8()).map(Some),
            None => Ok(None),
        }
    }

    /// The same for as long as the evaluation's value: kept, if the value holds it in place.
    pub(super) fn held(&self, value: Value<'e>) -> Result<Option<&'e str>, FaultKind> {
        if let Value::Bytes(bytes) = value
            && let Characters::Utf8(text) = Characters::of(bytes)
        {
            return Ok(Some(text));
        }
        value.characters().map(|text| self.keep(&text.to_utf8())).transpose()
    }

    fn keep(&self, text: &str) -> Result<&'e str, FaultKind> {
        self.take(text.len())?;
        Ok(self.scratch.bump.alloc_str(text))
    }

    /// Keeps items.
    pub(super) fn items(&self, items: &[Value<'e>]) -> Result<&'e [Value<'e>], FaultKind> {
        self.take(size_of_val(items))?;
        Ok(self.scratch.bump.alloc_slice_copy(items))
    }

    /// Keeps entries.
    pub(super) fn entries(
        &self,
        entries: &[(Value<'e>, Value<'e>)],
    ) -> Result<&'e [(Value<'e>, Value<'e>)], FaultKind> {
        self.take(size_of_val(entries))?;
        Ok(self.scratch.bump.alloc_slice_copy(entries))
    }

    /// Keeps networks.
    pub(super) fn networks(&self, networks: &[crate::value::Network]) -> Result<Value<'e>, FaultKind> {
        self.take(size_of_val(networks))?;
        Ok(Value::Networks(self.scratch.bump.alloc_slice_copy(networks)))
    }
}

//! The limits of an evaluation: steps, and memory for new values.

use std::cell::Cell;
use std::fmt;

use bumpalo::Bump;

use super::fault::FaultKind;
use crate::value::{Characters, Value};

/// The most steps of an evaluation, in the order of a millisecond. A step is a node of the tree, a compared item, or
/// [`STEP_BYTES`] of text.
const STEPS_MAX: u32 = 50_000;

/// The bytes of text that count as a step.
const STEP_BYTES: usize = 32;

/// The most bytes of text, lists and maps that an evaluation creates.
const MEMORY_MAX: usize = 64 * 1024;

/// The memory for new values of evaluations: at most 64 KiB each. It allocates nothing before it is used.
#[derive(Default)]
pub struct Scratch {
    bump: Bump,
}

impl Scratch {
    /// An empty scratch memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The allocated bytes.
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

/// The remaining budget of one evaluation.
pub(super) struct Meter<'e> {
    scratch: &'e Scratch,
    steps: Cell<u32>,
    memory: Cell<usize>,
}

impl<'e> Meter<'e> {
    pub(super) fn new(scratch: &'e Scratch) -> Self {
        Self { scratch, steps: Cell::new(STEPS_MAX), memory: Cell::new(MEMORY_MAX) }
    }

    /// Counts one step.
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

    /// Counts the steps for this many bytes.
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

    /// Counts a number of steps that is a product.
    pub(super) fn product(&self, one: usize, other: usize) -> Result<(), FaultKind> {
        self.bytes(one.saturating_mul(other))
    }

    fn take(&self, bytes: usize) -> Result<(), FaultKind> {
        self.bytes(bytes)?;
        let left = self.memory.get().checked_sub(bytes).ok_or(FaultKind::Memory)?;
        self.memory.set(left);
        Ok(())
    }

    /// Checks whether this many bytes may be created, without creating them.
    pub(super) fn fits(&self, bytes: usize) -> Result<(), FaultKind> {
        if bytes <= self.memory.get() { Ok(()) } else { Err(FaultKind::Memory) }
    }

    /// Stores text until the evaluation's value is dropped.
    pub(super) fn text(&self, text: impl AsRef<[u8]>) -> Result<Value<'e>, FaultKind> {
        let text = text.as_ref();
        self.take(text.len())?;
        Ok(Value::Bytes(self.scratch.bump.alloc_slice_copy(text)))
    }

    /// The text of a value in UTF-8, converted if necessary; `None` if it is no text.
    pub(super) fn utf8<'v>(&self, value: &'v Value<'e>) -> Result<Option<&'v str>, FaultKind> {
        match value.characters() {
            Some(Characters::Utf8(text)) => Ok(Some(text)),
            Some(latin1) => self.keep(&latin1.to_utf8()).map(Some),
            None => Ok(None),
        }
    }

    /// The same with the lifetime of the evaluation's value: inline text is stored.
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

    /// Stores items.
    pub(super) fn items(&self, items: &[Value<'e>]) -> Result<&'e [Value<'e>], FaultKind> {
        self.take(size_of_val(items))?;
        Ok(self.scratch.bump.alloc_slice_copy(items))
    }

    /// Stores entries.
    pub(super) fn entries(
        &self,
        entries: &[(Value<'e>, Value<'e>)],
    ) -> Result<&'e [(Value<'e>, Value<'e>)], FaultKind> {
        self.take(size_of_val(entries))?;
        Ok(self.scratch.bump.alloc_slice_copy(entries))
    }

    /// Stores networks.
    pub(super) fn networks(&self, networks: &[crate::value::Network]) -> Result<Value<'e>, FaultKind> {
        self.take(size_of_val(networks))?;
        Ok(Value::Networks(self.scratch.bump.alloc_slice_copy(networks)))
    }
}

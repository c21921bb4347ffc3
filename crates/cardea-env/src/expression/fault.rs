//! Why an evaluation has no value.

use std::fmt;

/// The reason and the position of a failed evaluation. A decision that depends on it denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The position in the expression's text, in bytes.
    pub position: u32,
    /// The kind of fault.
    pub kind: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.position, self.kind)
    }
}

impl std::error::Error for Fault {}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// An absent attribute, map key or list index.
    #[error("absent; `has(…)` tests for it")]
    Absent,
    /// A custom attribute failed.
    #[error("the custom attribute failed")]
    Custom,
    /// The operation doesn't support values of these types.
    #[error("not possible with values of these types")]
    Type,
    /// The value of a condition is not boolean.
    #[error("neither true nor false")]
    NotBool,
    /// A number, time or duration that is out of range.
    #[error("the result does not fit")]
    Overflow,
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// Text with the wrong syntax: no number, no time, no address.
    #[error("not in the required format")]
    Form,
    /// An index outside of a text.
    #[error("out of range")]
    Range,
    /// A repeated key of a map, or a value that can't be a key.
    #[error("a duplicate key, or a value that can't be a key")]
    Key,
    /// More steps than allowed.
    #[error("too many steps")]
    Steps,
    /// More memory for text, lists and maps than allowed.
    #[error("too much memory")]
    Memory,
}

impl FaultKind {
    /// Whether a limit was exceeded, which no other term can absorb.
    pub(super) const fn is_limit(self) -> bool {
        matches!(self, FaultKind::Steps | FaultKind::Memory)
    }

    pub(super) fn at(self, position: u32) -> Fault {
        Fault { position, kind: self }
    }
}

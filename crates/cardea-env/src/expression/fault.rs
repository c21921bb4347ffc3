//! Why an evaluation gave no value.

use std::fmt;

/// An evaluation without a value, and where. Whoever decides by an expression denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the expression's text, in bytes from its start.
    pub position: u32,
    /// What happened.
    pub kind: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.position, self.kind)
    }
}

impl std::error::Error for Fault {}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// The request has no such attribute, the map no such key, the list no such index.
    #[error("absent; `has(…)` asks whether it is there")]
    Absent,
    /// A custom attribute failed.
    #[error("the custom attribute failed")]
    Custom,
    /// There is no such operation for values of these types.
    #[error("not possible with values of these types")]
    Type,
    /// A condition is neither true nor false.
    #[error("neither true nor false")]
    NotBool,
    /// A number, a time or a duration that does not fit.
    #[error("the result does not fit")]
    Overflow,
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// Text that is not what it should be: no number, no time, no address.
    #[error("not of the form that is needed")]
    Form,
    /// An index outside of a text.
    #[error("outside of the text")]
    Range,
    /// A key that a map has twice, or that can't be one.
    #[error("a key that is there twice, or can be none")]
    Key,
    /// It takes more steps than it may.
    #[error("too many steps")]
    Steps,
    /// It makes more text, lists and maps than it may.
    #[error("too much memory")]
    Memory,
}

impl FaultKind {
    /// Whether a limit is reached, which no other term makes good.
    pub(super) const fn is_limit(self) -> bool {
        matches!(self, FaultKind::Steps | FaultKind::Memory)
    }

    pub(super) fn at(self, position: u32) -> Fault {
        Fault { position, kind: self }
    }
}

//! Errors of stored secrets and of secrets.

/// A stored secret that can't be used: the invalid field and the reason. It contains nothing of the secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FormatError {
    /// The field, as named in the format's documentation.
    pub field: &'static str,
    /// The problem, or what is expected.
    pub problem: &'static str,
}

/// A secret that is never hashed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SecretError {
    /// No bytes.
    #[error("the secret is empty")]
    Empty,
    /// A NUL byte, which ends strings in C libraries.
    #[error("the secret has a NUL byte")]
    Nul,
    /// More than 1,024 bytes.
    #[error("the secret is longer than 1024 bytes")]
    TooLong,
}

pub(super) fn wrong(field: &'static str, problem: &'static str) -> FormatError {
    FormatError { field, problem }
}

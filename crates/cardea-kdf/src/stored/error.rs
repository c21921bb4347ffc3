//! What is wrong with a stored secret, or with a secret.

/// A stored secret that can't be used: the field that is wrong, and why. It holds nothing of the secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FormatError {
    /// The field of the format, as its own documentation calls it.
    pub field: &'static str,
    /// What is wrong with it, or what would be right.
    pub problem: &'static str,
}

/// A secret that is not hashed, whatever it is compared with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SecretError {
    /// No bytes.
    #[error("the secret is empty")]
    Empty,
    /// A NUL, where libraries written in C would end it.
    #[error("the secret has a NUL byte")]
    Nul,
    /// More than 1,024 bytes.
    #[error("the secret is longer than 1024 bytes")]
    TooLong,
}

pub(super) fn wrong(field: &'static str, problem: &'static str) -> FormatError {
    FormatError { field, problem }
}

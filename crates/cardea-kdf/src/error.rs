//! Errors of callers.

/// Why nothing was derived. It is always an error of the caller, never of a secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The output is empty. An empty expected value would match any password.
    #[error("the output is empty")]
    OutputEmpty,
    /// More than 2³² − 1 blocks of output (RFC 8018 §5.2, step 1), or more than a job in lanes may have.
    #[error("the output is too long")]
    OutputTooLong,
    /// The key schedule is for another function than the engine.
    #[error("the key schedule is for another function than the engine")]
    PrfMismatch,
}

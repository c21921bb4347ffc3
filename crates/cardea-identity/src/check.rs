//! The steps of a verification: ignored for requests, recorded for `explain`.

use serde_json::Value;

use crate::error::TokenError;

/// One step of a verification, in readable form. `found` may quote the token's header and claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The subject of the check: `form`, `header`, `issuer`, `key`, `signature`, `audience` …
    pub name: &'static str,
    /// Whether the check passed. Only the last check of a list may have failed.
    pub passed: bool,
    /// The expected value.
    pub expected: String,
    /// The token's value; after a failure, also the reason.
    pub found: String,
}

/// Observes the steps. Requests use [`Silent`], which costs nothing.
pub(crate) trait Observer: Send {
    /// Receives the result of the step `name`; `texts` returns the expected and the found value.
    fn observe<T>(
        &mut self,
        name: &'static str,
        result: Result<T, TokenError>,
        texts: impl FnOnce() -> (String, String),
    ) -> Result<T, TokenError>;
}

/// Ignores all steps.
pub(crate) struct Silent;

impl Observer for Silent {
    fn observe<T>(
        &mut self,
        _: &'static str,
        result: Result<T, TokenError>,
        _: impl FnOnce() -> (String, String),
    ) -> Result<T, TokenError> {
        result
    }
}

/// Records every step.
#[derive(Default)]
pub(crate) struct Recorder(pub(crate) Vec<Check>);

impl Observer for Recorder {
    fn observe<T>(
        &mut self,
        name: &'static str,
        result: Result<T, TokenError>,
        texts: impl FnOnce() -> (String, String),
    ) -> Result<T, TokenError> {
        let (expected, found) = texts();
        let found = match &result {
            Ok(_) => found,
            Err(error) => format!("{found} ({error})"),
        };
        self.0.push(Check { name, passed: result.is_ok(), expected, found });
        result
    }
}

/// A claim as text, cut to 200 characters.
pub(crate) fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), |value| value.to_string().chars().take(200).collect())
}

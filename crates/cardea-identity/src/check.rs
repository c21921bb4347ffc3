//! The steps of a verification as they can be watched: silently for requests, recorded for `explain`.

use serde_json::Value;

use crate::error::TokenError;

/// One step of a verification, for people. `found` may quote the token's header and claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked: `form`, `header`, `issuer`, `key`, `signature`, `audience` …
    pub name: &'static str,
    /// Whether it held. At most the last check of a list did not.
    pub passed: bool,
    /// What would have passed.
    pub expected: String,
    /// What the token has; for a failure, also why it failed.
    pub found: String,
}

/// Watches the steps. Requests use [`Silent`], which costs nothing.
pub(crate) trait Observer: Send {
    /// Sees the result of the step `name`; `texts` gives what was expected and what was found.
    fn observe<T>(
        &mut self,
        name: &'static str,
        result: Result<T, TokenError>,
        texts: impl FnOnce() -> (String, String),
    ) -> Result<T, TokenError>;
}

/// Sees nothing.
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

/// Writes every step down.
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

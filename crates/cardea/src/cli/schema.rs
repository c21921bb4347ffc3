//! `cardea schema`: the JSON Schema of the configuration, and its reference page.

use super::{Exit, Output, SchemaArgs};
use crate::config;

/// Prints the schema or the page.
pub(super) fn run(arguments: &SchemaArgs, output: &mut Output) -> Exit {
    let written = if arguments.markdown {
        output.text(&config::markdown())
    } else {
        output.json(&config::json_schema())
    };
    match written {
        Ok(()) => Exit::Success,
        Err(error) => {
            output.error(&format!("cannot write the schema: {error}"));
            Exit::Failure
        }
    }
}

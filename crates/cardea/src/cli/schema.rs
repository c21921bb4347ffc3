//! `cardea schema`: the JSON Schema of the configuration, its reference page, and the pages of attributes, functions and
//! metrics.

use super::{Exit, Output, SchemaArgs};
use crate::{config, server};
use cardea_gateway::attributes;

/// Prints the schema or the page.
pub(super) fn run(arguments: &SchemaArgs, output: &mut Output) -> Exit {
    let written = if arguments.attributes {
        output.text(&attributes_page())
    } else if arguments.metrics {
        output.text(&server::metrics_page())
    } else if arguments.functions {
        output.text(&functions_page())
    } else if arguments.markdown {
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

/// The page of all attributes.
fn attributes_page() -> String {
    format!(
        "# Attributes\n\n\
         The attributes of a request and its response, for expressions, templates and logs: `request.path == '/a'` in \
         policies,\n\
         `{{request.path}}` in headers, redirects and access log formats, `{{request.headers.x-team|none}}` with a \
         default for an\n\
         absent value. [policies.md](policies.md) describes their use and custom attributes.\n\
         Names follow CEL, Envoy and OpenTelemetry. Generated: `cargo run -p cardea -- schema --attributes > docs/attributes.md`.\n\n{}\n\
         ## The JSON access log\n\nOne object per line with these members. Members without a value are omitted.\n\n\
         | member | attribute |\n|---|---|\n{}",
        cardea_env::markdown(&attributes::TABLE),
        attributes::LOG_FIELDS
            .iter()
            .map(|(key, name)| format!("| `{key}` | `{name}` |\n"))
            .collect::<String>()
    )
}

/// The page of all functions.
fn functions_page() -> String {
    format!(
        "# Functions of expressions\n\n\
         The functions of [expressions](policies.md#expressions). The operators of CEL are `+ - * / %`, `== != < <= > \
         >=`,\n\
         `&& || !`, `in`, `? :`, `value.member`, `value['member']` and literals. Each row has the types of the \
         arguments and of\n\
         the result. If a function can't process a value (a string that is not a number, an index out of range), the\n\
         expression fails; [policies.md](policies.md) describes the effect. Calls with constant arguments are\n\
         evaluated when the configuration is loaded, so an error in them is reported then.\n\
         Generated: `cargo run -p cardea -- schema --functions > docs/functions.md`.\n\n{}",
        cardea_env::functions_markdown()
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_of_metrics_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == crate::server::metrics_page(),
            "docs/metrics.md is stale; run: cargo run -p cardea -- schema --metrics > docs/metrics.md"
        );
    }

    #[test]
    fn the_page_of_functions_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == super::functions_page(),
            "docs/functions.md is stale; run: cargo run -p cardea -- schema --functions > docs/functions.md"
        );
    }

    #[test]
    fn the_page_of_attributes_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/attributes.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == super::attributes_page(),
            "docs/attributes.md is stale; run: cargo run -p cardea -- schema --attributes > docs/attributes.md"
        );
    }
}

//! `cardea test`: tests a configuration with a table of requests and expectations.

use std::{collections::BTreeMap, fs, net::IpAddr, ops::Range};

use cardea_gateway::explain::{DestinationExplanation, Explanation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::{
    super::{Failure, end, load_with, text::printable},
    oracle::{Keys, Oracle, Request, TokenOf},
    show::shown,
};
use crate::{
    cli::{Exit, Output, TestArgs},
    config::KeyFiles,
};

/// The largest file of tests, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: Spanned<String>,
    request: CaseRequest,
    expect: Expectation,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRequest {
    #[serde(default = "get")]
    method: String,
    url: String,
    #[serde(default)]
    request_target: Option<String>,
    #[serde(default)]
    http_version: HttpVersion,
    #[serde(default)]
    source: Option<IpAddr>,
    #[serde(default)]
    listener: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, OneOrMany>,
    #[serde(default)]
    token: Option<Token>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum HttpVersion {
    #[serde(rename = "1.0")]
    Http10,
    #[default]
    #[serde(rename = "1.1")]
    Http11,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    #[serde(default)]
    issuer: Option<String>,
    #[serde(default)]
    claims: Map<String, Value>,
}

/// The expectations; omitted ones are not checked.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expectation {
    /// Whether the request is allowed.
    allowed: Option<bool>,
    /// The status of a refusal, or of the gateway's own response.
    status: Option<u16>,
    code: Option<String>,
    reason: Option<String>,
    route: Option<String>,
    service: Option<String>,
    /// The built-in endpoint that answers.
    builtin: Option<String>,
    target: Option<String>,
    location: Option<String>,
    headers: BTreeMap<String, String>,
    absent_headers: Vec<String>,
    attributes: BTreeMap<String, String>,
    absent_attributes: Vec<String>,
}

fn get() -> String {
    "GET".to_owned()
}

/// A difference in a test.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    what: String,
    expected: String,
    found: String,
}

/// The result of a test.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    /// The file of the test.
    file: String,
    line: usize,
    column: usize,
    passed: bool,
    differences: Vec<Difference>,
}

/// Runs `cardea test`.
pub(crate) fn run(arguments: &TestArgs, output: &mut Output) -> Exit {
    let result = test(arguments, output);
    end(result, output)
}

fn test(arguments: &TestArgs, output: &mut Output) -> Result<Exit, Failure> {
    let shown = arguments.tests.display();
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let size = fs::metadata(&arguments.tests).map(|metadata| metadata.len());
    if size.is_ok_and(|size| size > FILE_BYTES_MAX) {
        return Err(usage(format!("{shown} is larger than 16 MiB")));
    }
    let text = fs::read_to_string(&arguments.tests)
        .map_err(|error| usage(format!("cannot read {shown}: {error}")))?;
    let place = |offset: usize| {
        let (line, column) = position(&text, offset);
        format!("{shown}:{line}:{column}")
    };
    let cases = cases(&text).map_err(|mistakes| {
        let lines: Vec<String> =
            mistakes.iter().map(|mistake| format!("{}: {}", place(mistake.at), mistake.message)).collect();
        usage(lines.join("\n"))
    })?;
    if cases.is_empty() {
        return Err(usage(format!("{shown} has no [[test]]")));
    }
    let config = load_with(&arguments.config.config, KeyFiles::Skip)?;
    let oracle = Oracle::new(config, Keys::Generated, arguments.time.as_deref(), output)?;
    let mut outcomes = Vec::with_capacity(cases.len());
    for case in cases {
        let differences = match oracle.ask(&case.request(&case.expect)) {
            Ok(explanation) => differences(&case.expect, &explanation),
            Err(failure) => vec![Difference {
                what: "request".to_owned(),
                expected: "a valid request".to_owned(),
                found: failure.message,
            }],
        };
        let (line, column) = position(&text, case.name.span().start);
        outcomes.push(Outcome {
            passed: differences.is_empty(),
            name: case.name.into_inner(),
            file: shown.to_string(),
            line,
            column,
            differences,
        });
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    if arguments.json {
        output.json(&outcomes)?;
    } else {
        output.text(&report(&outcomes, failed))?;
    }
    Ok(if failed == 0 { Exit::Success } else { Exit::Refused })
}

/// An error in a file of tests.
#[derive(Debug, PartialEq, Eq)]
struct Mistake {
    /// The byte offset of the error.
    at: usize,
    message: String,
}

/// The tests of a file, or all of its errors.
fn cases(text: &str) -> Result<Vec<Case>, Vec<Mistake>> {
    let mistake = |span: Option<Range<usize>>, message: &str| Mistake {
        at: span.map_or(0, |span| span.start),
        message: message.trim_end().replace('\n', ", "),
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| mistake(error.span(), error.message())).collect());
    }
    let (mut cases, mut mistakes) = (Vec::new(), Vec::new());
    for (key, value) in table.into_inner() {
        let at = key.span();
        match (key.get_ref().as_ref(), value.into_inner()) {
            ("test", DeValue::Array(items)) => {
                for item in items {
                    match Case::deserialize(ValueDeserializer::from(item)) {
                        Ok(case) => cases.push(case),
                        Err(error) => mistakes.push(mistake(error.span(), error.message())),
                    }
                }
            }
            ("test", _) => mistakes.push(mistake(Some(at), "write [[test]] with two brackets")),
            (other, _) => {
                let message = format!("unknown key {other:?}; a file of tests has only [[test]]");
                mistakes.push(mistake(Some(at), &message));
            }
        }
    }
    mistakes.sort_by_key(|mistake| mistake.at);
    if mistakes.is_empty() { Ok(cases) } else { Err(mistakes) }
}

/// Line and column of a byte offset, both from 1, columns in characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

impl Case {
    fn request(&self, expect: &Expectation) -> Request {
        let request = &self.request;
        let (mut hosts, mut headers) = (None, Vec::new());
        for (name, values) in &request.headers {
            let values = match values {
                OneOrMany::One(value) => std::slice::from_ref(value),
                OneOrMany::Many(values) => values.as_slice(),
            };
            if name.eq_ignore_ascii_case("host") {
                let hosts: &mut Vec<String> = hosts.get_or_insert_default();
                hosts.extend_from_slice(values);
            } else {
                headers.extend(values.iter().map(|value| (name.clone(), value.clone())));
            }
        }
        Request {
            method: request.method.clone(),
            url: request.url.clone(),
            request_target: request.request_target.clone(),
            http10: request.http_version == HttpVersion::Http10,
            source: request.source,
            listener: request.listener.clone(),
            hosts,
            headers,
            token: request
                .token
                .as_ref()
                .map(|token| TokenOf::Claims(token.claims.clone(), token.issuer.clone())),
            attributes: expect.attributes.keys().chain(&expect.absent_attributes).cloned().collect(),
        }
    }
}

fn differences(expect: &Expectation, explanation: &Explanation) -> Vec<Difference> {
    const NONE: &str = "(none)";
    let mut found = Vec::new();
    let mut compare = |what: &str, expected: Option<&str>, actual: Option<&str>| {
        if let Some(expected) = expected
            && actual != Some(expected)
        {
            let actual = actual.unwrap_or(NONE).to_owned();
            found.push(Difference { what: what.to_owned(), expected: expected.to_owned(), found: actual });
        }
    };
    let refusal = explanation.refusal.as_ref();
    let (mut service, mut builtin, mut target, mut location) = (None, None, None, None);
    let mut fields = &[][..];
    let mut status = refusal.map(|refusal| refusal.status);
    match &explanation.destination {
        Some(DestinationExplanation::Service { name, target: sent, fields: all, .. }) => {
            (service, target, fields) = (Some(name.as_str()), Some(sent.as_str()), all.as_slice());
        }
        Some(DestinationExplanation::Answer { builtin: which, status: known, location: to, .. }) => {
            (builtin, status, location) = (*which, status.or(*known), to.as_deref());
        }
        None => {}
    }
    let allowed = expect.allowed.map(|allowed| allowed.to_string());
    compare("allowed", allowed.as_deref(), Some(if refusal.is_none() { "true" } else { "false" }));
    let number = |status: Option<u16>| status.map(|status| status.to_string());
    compare("status", number(expect.status).as_deref(), number(status).as_deref());
    compare("code", expect.code.as_deref(), refusal.map(|refusal| refusal.code));
    compare("reason", expect.reason.as_deref(), refusal.and_then(|refusal| refusal.reason.as_deref()));
    compare("route", expect.route.as_deref(), explanation.route.as_deref());
    compare("builtin", expect.builtin.as_deref(), builtin);
    compare("service", expect.service.as_deref(), service);
    compare("target", expect.target.as_deref(), target);
    compare("location", expect.location.as_deref(), location);
    let sent = |name: &str| {
        let values: Vec<&str> = fields
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(field, value)| shown(field, value))
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    };
    for (name, expected) in &expect.headers {
        compare(&format!("header {name}"), Some(expected), sent(name).as_deref());
    }
    for name in &expect.absent_headers {
        let actual = sent(name);
        compare(&format!("header {name}"), Some(NONE), Some(actual.as_deref().unwrap_or(NONE)));
    }
    let value = |name: &str| {
        let known = explanation.attributes.iter().find(|(known, _)| known == name);
        known.and_then(|(_, value)| value.as_deref())
    };
    for (name, expected) in &expect.attributes {
        compare(&format!("attribute {name}"), Some(expected), value(name));
    }
    for name in &expect.absent_attributes {
        compare(&format!("attribute {name}"), Some(NONE), Some(value(name).unwrap_or(NONE)));
    }
    found
}

fn report(outcomes: &[Outcome], failed: usize) -> String {
    let mut text = String::new();
    for Outcome { name, file, line, column, passed, differences } in outcomes {
        let name = printable(name);
        match passed {
            true => text.push_str(&format!("ok    {name}\n")),
            false => text.push_str(&format!("FAIL  {name} ({file}:{line}:{column})\n")),
        }
        for Difference { what, expected, found } in differences {
            text.push_str(&format!("      {}\n", printable(what)));
            text.push_str(&format!("        expected  {}\n", printable(expected)));
            text.push_str(&format!("        found     {}\n", printable(found)));
        }
    }
    text.push_str(&format!("{} passed, {failed} failed\n", outcomes.len() - failed));
    text
}

//! `cardea test`: a table of requests with what is expected of them, held against a configuration.

use std::{collections::BTreeMap, fs, net::IpAddr};

use cardea_gateway::explain::{DestinationExplanation, Explanation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    super::{Failure, end, load, text::printable},
    oracle::{Keys, Oracle, Request, TokenOf},
    show::shown,
};
use crate::cli::{Exit, Output, TestArgs};

/// The largest file of tests, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    test: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
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
    source: Option<IpAddr>,
    #[serde(default)]
    listener: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, OneOrMany>,
    #[serde(default)]
    token: Option<Token>,
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

/// What is expected; what is left out may be anything.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expectation {
    /// Whether the request is let in.
    allowed: Option<bool>,
    /// The status of a refusal, or of an answer of the gateway's own.
    status: Option<u16>,
    code: Option<String>,
    reason: Option<String>,
    route: Option<String>,
    service: Option<String>,
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

/// What differs in a test.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    what: String,
    expected: String,
    found: String,
}

/// What became of a test.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
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
    let file: File = toml::from_str(&text).map_err(|error| usage(format!("{shown}: {error}")))?;
    if file.test.is_empty() {
        return Err(usage(format!("{shown} has no [[test]]")));
    }
    let config = load(&arguments.config.config)?;
    let oracle = Oracle::new(config, Keys::StandIn, arguments.time.as_deref(), output)?;
    let mut outcomes = Vec::with_capacity(file.test.len());
    for case in file.test {
        let differences = match oracle.ask(&case.request(&case.expect)) {
            Ok(explanation) => differences(&case.expect, &explanation),
            Err(failure) => vec![Difference {
                what: "request".to_owned(),
                expected: "one that can be asked about".to_owned(),
                found: failure.message,
            }],
        };
        outcomes.push(Outcome { passed: differences.is_empty(), name: case.name, differences });
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    if arguments.json {
        output.json(&outcomes)?;
    } else {
        output.text(&report(&outcomes, failed))?;
    }
    Ok(if failed == 0 { Exit::Success } else { Exit::Refused })
}

impl Case {
    fn request(&self, expect: &Expectation) -> Request {
        let request = &self.request;
        let headers = request.headers.iter().flat_map(|(name, values)| {
            let values = match values {
                OneOrMany::One(value) => std::slice::from_ref(value),
                OneOrMany::Many(values) => values.as_slice(),
            };
            values.iter().map(|value| (name.clone(), value.clone()))
        });
        Request {
            method: request.method.clone(),
            url: request.url.clone(),
            source: request.source,
            listener: request.listener.clone(),
            headers: headers.collect(),
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
    let (mut service, mut target, mut location, mut fields) = (None, None, None, &[][..]);
    let mut status = refusal.map(|refusal| refusal.status);
    match &explanation.destination {
        Some(DestinationExplanation::Service { name, target: sent, fields: all, .. }) => {
            (service, target, fields) = (Some(name.as_str()), Some(sent.as_str()), all.as_slice());
        }
        Some(DestinationExplanation::Answer { status: known, location: to, .. }) => {
            (status, location) = (status.or(*known), to.as_deref());
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
    for Outcome { name, passed, differences } in outcomes {
        text.push_str(&format!("{}  {}\n", if *passed { "ok  " } else { "FAIL" }, printable(name)));
        for Difference { what, expected, found } in differences {
            text.push_str(&format!("      {}\n", printable(what)));
            text.push_str(&format!("        expected  {}\n", printable(expected)));
            text.push_str(&format!("        found     {}\n", printable(found)));
        }
    }
    text.push_str(&format!("{} passed, {failed} failed\n", outcomes.len() - failed));
    text
}

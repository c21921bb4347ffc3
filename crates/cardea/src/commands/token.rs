//! `cardea token`: inspects access tokens.

mod verify;

pub(super) use self::verify::built;

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use cardea_clock::{CoarseClock, PERIOD_DEFAULT};
use cardea_identity::decode_unverified;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{
    Failure, end,
    text::{distance, printable, time},
};
use crate::cli::{Exit, Output, TokenArgs, TokenArgument, TokenCommand, TokenDecodeArgs};

/// Claims that are times: RFC 7519 §4.1, and `auth_time` and `updated_at` of OpenID Connect.
const TIMES: [&str; 5] = ["exp", "nbf", "iat", "auth_time", "updated_at"];

/// Runs `cardea token`.
pub(crate) fn run(arguments: &TokenArgs, output: &mut Output) -> Exit {
    let result = match &arguments.command {
        TokenCommand::Decode(arguments) => decode(arguments, output),
        TokenCommand::Verify(arguments) => verify::verify(arguments, output),
    };
    end(result, output)
}

/// Reads the token of a command.
fn read(token: &TokenArgument) -> Result<Zeroizing<String>, Failure> {
    let failed = |error: io::Error| Failure::new(Exit::Usage, format!("cannot read the token: {error}"));
    let token = token.read(io::stdin().lock()).map_err(failed)?;
    if token.is_empty() {
        let hint = if io::stdin().is_terminal() { "" } else { " on standard input" };
        return Err(Failure::new(Exit::Usage, format!("there is no token{hint}; see: cardea token --help")));
    }
    Ok(token)
}

fn decode(arguments: &TokenDecodeArgs, output: &mut Output) -> Result<Exit, Failure> {
    let token = read(&arguments.token)?;
    let decoded = decode_unverified(token.as_bytes())
        .map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;
    if arguments.json {
        output.json(&json!({ "verified": false, "header": decoded.header, "claims": decoded.claims }))?;
    } else {
        let clock = CoarseClock::start(PERIOD_DEFAULT).context("starting the clock")?;
        let now = clock.clock().precise().wall.unix_seconds();
        let header = section("header", &decoded.header, None);
        output.text(&format!("{header}{}", section("claims", &decoded.claims, Some(now))))?;
    }
    output.error("note: NOT VERIFIED, anyone may have written this token; to verify it: cardea token verify");
    Ok(Exit::Success)
}

/// The members of an object, one per line; with `now`, times are also shown as dates.
fn section(name: &str, members: &Map<String, Value>, now: Option<i64>) -> String {
    let width = members.keys().map(|key| key.chars().count()).max().unwrap_or(0);
    let mut text = format!("{name}\n");
    for (key, value) in members {
        let shown = printable(&value.to_string());
        let key = printable(key);
        text.push_str(&format!("  {key:width$}  {shown}"));
        if let (Some(now), Some(seconds)) = (now, seconds(&key, value)) {
            text.push_str(&format!("  ({}, {})", time(seconds), distance(seconds, now)));
        }
        text.push('\n');
    }
    text
}

fn seconds(name: &str, value: &Value) -> Option<i64> {
    if !TIMES.contains(&name) {
        return None;
    }
    // RFC 7519 §2: a NumericDate may have a fraction. The cast of a value out of range saturates.
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds.floor() as i64))
}

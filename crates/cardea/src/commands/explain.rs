//! `cardea explain` and `cardea test`: explain what the gateway would do with a request, without sending one.

mod oracle;
mod show;
pub(crate) mod test;
#[cfg(test)]
mod tests;
mod url;

use std::io;

use serde_json::{Map, Value};

use self::oracle::{Keys, Oracle, Request, TokenOf};
use super::{Failure, end, load_with};
use crate::{
    cli::{Exit, ExplainArgs, Output},
    config::KeyFiles,
};

/// Runs `cardea explain`.
pub(crate) fn run(arguments: &ExplainArgs, output: &mut Output) -> Exit {
    let result = explain(arguments, output);
    end(result, output)
}

fn explain(arguments: &ExplainArgs, output: &mut Output) -> Result<Exit, Failure> {
    let token = match (&arguments.token, &arguments.claims) {
        (Some(token), _) => {
            let failed =
                |error: io::Error| Failure::new(Exit::Usage, format!("cannot read the token: {error}"));
            Some(TokenOf::Itself(token.read(io::stdin().lock()).map_err(failed)?))
        }
        (None, Some(claims)) => Some(TokenOf::Claims(claims_of(claims)?, arguments.issuer.clone())),
        (None, None) => None,
    };
    let keys = if matches!(token, Some(TokenOf::Itself(_))) { Keys::Real } else { Keys::Generated };
    // Claims are signed with a key of this run, so no other key is needed.
    let key_files = if keys == Keys::Real { KeyFiles::Read } else { KeyFiles::Skip };
    let config = load_with(&arguments.config.config, key_files)?;
    let (hosts, headers) = headers(&arguments.headers)?;
    let request = Request {
        method: arguments.method.clone(),
        url: arguments.url.clone(),
        request_target: arguments.request_target.clone(),
        http10: arguments.http10,
        source: arguments.source,
        listener: arguments.listener.clone(),
        hosts,
        headers,
        token,
        attributes: arguments.attributes.clone(),
    };
    let oracle = Oracle::new(config, keys, arguments.time.as_deref(), output)?;
    let explanation = oracle.ask(&request)?;
    if arguments.json {
        output.json(&show::json(&explanation))?;
    } else {
        output.text(&show::text(&request, &explanation))?;
    }
    Ok(if explanation.refusal.is_some() { Exit::Refused } else { Exit::Success })
}

/// The values of `Host` if one is given, and the other headers.
type Headers = (Option<Vec<String>>, Vec<(String, String)>);

/// The headers of the command line, in the syntax of curl: `host:` sends no `Host`, and `name;` an empty value.
fn headers(written: &[String]) -> Result<Headers, Failure> {
    let (mut hosts, mut headers) = (None, Vec::new());
    for header in written {
        let (name, value) = match (header.split_once(':'), header.strip_suffix(';')) {
            (Some((name, value)), _) => (name, Some(value)),
            (None, Some(name)) => (name, None),
            (None, None) => {
                let message = format!(
                    "{header:?} is not a header; write \"name: value\", or \"name;\" for an empty value"
                );
                return Err(Failure::new(Exit::Usage, message));
            }
        };
        if !name.eq_ignore_ascii_case("host") {
            headers.push((name.to_owned(), value.unwrap_or_default().to_owned()));
            continue;
        }
        let hosts: &mut Vec<String> = hosts.get_or_insert_default();
        match value {
            Some(value) if value.trim_matches([' ', '\t']).is_empty() => {}
            value => hosts.push(value.unwrap_or_default().to_owned()),
        }
    }
    Ok((hosts, headers))
}

fn claims_of(text: &str) -> Result<Map<String, Value>, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    match serde_json::from_str(text) {
        Ok(Value::Object(claims)) => Ok(claims),
        Ok(_) => Err(usage("the claims are not a JSON object".to_owned())),
        Err(error) => Err(usage(format!("the claims are not JSON: {error}"))),
    }
}

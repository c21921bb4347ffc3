//! `cardea tarpit`: whose requests the running gateway holds.

use super::{
    Failure,
    backend::unexpected,
    end,
    running::{connect, seconds},
    text::Table,
};
use crate::{
    admin::protocol::{Answer, Held, Reply, Request},
    cli::{Exit, Output, TarpitArgs, TarpitCommand, TarpitReleaseArgs},
};

/// Runs `cardea tarpit`.
pub(crate) fn run(arguments: &TarpitArgs, output: &mut Output) -> Exit {
    let result = carry_out(arguments, output);
    end(result, output)
}

fn carry_out(arguments: &TarpitArgs, output: &mut Output) -> Result<Exit, Failure> {
    let mut gateway = connect(&arguments.common.config)?;
    let json = arguments.common.json;
    match &arguments.command {
        TarpitCommand::List => {
            let held = match gateway.call(&Request::TarpitList)? {
                Reply::Ok(Answer::Held(held)) => held,
                Reply::Error(refusal) => return Err(refusal.into()),
                _ => return Err(unexpected()),
            };
            if json { output.json(&held)? } else { output.text(&table(&held))? }
        }
        TarpitCommand::Release(TarpitReleaseArgs { all: _, address, issuer, subject }) => {
            let (address, issuer, subject) = (address.clone(), issuer.clone(), subject.clone());
            let requests = match gateway.call(&Request::TarpitRelease { address, issuer, subject })? {
                Reply::Ok(Answer::Released { requests }) => requests,
                Reply::Error(refusal) => return Err(refusal.into()),
                _ => return Err(unexpected()),
            };
            let said = match requests {
                0 => "no request was held; offences are forgotten\n".to_owned(),
                1 => "1 request is released\n".to_owned(),
                count => format!("{count} requests are released\n"),
            };
            if json {
                output.json(&serde_json::json!({ "requests": requests }))?
            } else {
                output.text(&said)?
            }
        }
    }
    Ok(Exit::Success)
}

/// One line for each offender.
fn table(held: &[Held]) -> String {
    let mut table = Table::new(&["ADDRESS", "SUBJECT", "ISSUER", "REQUESTS", "HELD", "LEFT"]);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for one in held {
        table.row([
            or_none(&one.address),
            or_none(&one.subject),
            or_none(&one.issuer),
            one.requests.to_string(),
            seconds(one.held_milliseconds as f64 / 1e3),
            seconds(one.left_milliseconds as f64 / 1e3),
        ]);
    }
    table.render()
}

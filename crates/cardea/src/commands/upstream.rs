//! `cardea upstream`: the endpoints of the running gateway's services, and overrides of their health.

mod explain;

use super::{
    Failure,
    backend::unexpected,
    end,
    running::{connect, seconds},
    text::Table,
};
use crate::{
    admin::{
        Connection,
        protocol::{Answer, Overridden, OverrideTo, Reply, Request, Upstream, UpstreamEndpoint},
    },
    cli::{EndpointArgs, Exit, ExplainChoiceArgs, Output, UpstreamArgs, UpstreamCommand},
};

/// Runs `cardea upstream`.
pub(crate) fn run(arguments: &UpstreamArgs, output: &mut Output) -> Exit {
    let result = carry_out(arguments, output);
    end(result, output)
}

fn carry_out(arguments: &UpstreamArgs, output: &mut Output) -> Result<Exit, Failure> {
    let mut gateway = connect(&arguments.common.config)?;
    let (endpoint, to) = match &arguments.command {
        UpstreamCommand::List => {
            let upstreams = list(&mut gateway)?;
            if arguments.common.json {
                output.json(&upstreams)?;
            } else {
                output.text(&table(&upstreams))?;
            }
            return Ok(Exit::Success);
        }
        UpstreamCommand::Explain(ExplainChoiceArgs { service, key }) => {
            let request = Request::UpstreamExplain { service: service.clone(), key: key.clone() };
            let explained = match gateway.call(&request)? {
                Reply::Ok(Answer::Choice(explained)) => explained,
                Reply::Error(refusal) => return Err(refusal.into()),
                _ => return Err(unexpected()),
            };
            if arguments.common.json {
                output.json(&explained)?;
            } else {
                output.text(&explain::text(&explained))?;
            }
            return Ok(Exit::Success);
        }
        UpstreamCommand::Drain(endpoint) => (endpoint, OverrideTo::Drain),
        UpstreamCommand::Disable(endpoint) => (endpoint, OverrideTo::Disable),
        UpstreamCommand::Enable(endpoint) => (endpoint, OverrideTo::Enable),
    };
    let EndpointArgs { service, endpoint } = endpoint;
    let request = Request::UpstreamOverride { service: service.clone(), endpoint: endpoint.clone(), to };
    let overridden = match gateway.call(&request)? {
        Reply::Ok(Answer::Overridden(overridden)) => overridden,
        Reply::Error(refusal) => return Err(refusal.into()),
        _ => return Err(unexpected()),
    };
    if arguments.common.json {
        output.json(&overridden)?;
    } else {
        output.text(&said(endpoint, to, &overridden))?;
    }
    if overridden.others == 0 {
        output.error("note: the service has no other endpoint; its requests are refused with 503");
    }
    Ok(Exit::Success)
}

/// The services with their endpoints.
pub(super) fn list(gateway: &mut Connection) -> Result<Vec<Upstream>, Failure> {
    match gateway.call(&Request::UpstreamList)? {
        Reply::Ok(Answer::Upstreams(upstreams)) => Ok(upstreams),
        Reply::Error(refusal) => Err(refusal.into()),
        _ => Err(unexpected()),
    }
}

fn said(endpoint: &str, to: OverrideTo, overridden: &Overridden) -> String {
    let done = match to {
        OverrideTo::Drain => "drained",
        OverrideTo::Disable => "disabled",
        OverrideTo::Enable => "enabled",
    };
    let already = if overridden.changed { "" } else { " already" };
    let requests = match overridden.in_flight {
        _ if to == OverrideTo::Enable => String::new(),
        0 => "; no requests are left there".to_owned(),
        1 => "; 1 request is still there".to_owned(),
        count => format!("; {count} requests are still there"),
    };
    super::text::printable(&format!("{endpoint} is{already} {done}{requests}")) + "\n"
}

/// One line for each endpoint.
pub(super) fn table(upstreams: &[Upstream]) -> String {
    let mut table = Table::new(&[
        "SERVICE",
        "ENDPOINT",
        "NAME",
        "REGION",
        "WEIGHT",
        "STATE",
        "CAUSE",
        "EJECTED_FOR",
        "CHECK",
        "IN_FLIGHT",
        "LATENCY",
    ]);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for upstream in upstreams {
        for endpoint in &upstream.endpoints {
            table.row([
                upstream.service.clone(),
                endpoint.address.clone(),
                or_none(endpoint.name.clone()),
                or_none(endpoint.region.clone()),
                endpoint.weight.to_string(),
                endpoint.state.clone(),
                or_none(endpoint.cause.clone()),
                or_none(endpoint.ejected_for_milliseconds.map(|left| seconds(left as f64 / 1e3))),
                or_none(check(endpoint)),
                endpoint.in_flight.to_string(),
                or_none(endpoint.latency_ewma_microseconds.map(|latency| seconds(latency as f64 / 1e6))),
            ]);
        }
        if upstream.endpoints.is_empty() {
            let none = || "-".to_owned();
            table.row([
                upstream.service.clone(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
            ]);
        }
    }
    table.render()
}

fn check(endpoint: &UpstreamEndpoint) -> Option<String> {
    let late = endpoint.check_late_milliseconds.map(|late| format!("late by {}", seconds(late as f64 / 1e3)));
    let state = endpoint.check_up.map(|up| if up { "up" } else { "down" }.to_owned());
    let result = endpoint.last_check.as_deref().filter(|result| *result != "passed");
    let known =
        state.map(|state| result.map_or_else(|| state.clone(), |result| format!("{state} ({result})")));
    match (known, late) {
        (Some(known), Some(late)) => Some(format!("{known}, {late}")),
        (known, late) => known.or(late),
    }
}

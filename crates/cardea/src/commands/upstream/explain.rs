//! `cardea upstream explain`: which endpoint a request would get now, and why.

use super::super::{
    running::seconds,
    text::{Table, printable},
};
use crate::admin::protocol::{ExplainedChoice, ExplainedStep};

/// The explanation as text.
pub(super) fn text(explained: &ExplainedChoice) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut regions = Table::new(&["REGION", "ROUND TRIP", "HEALTHY", "IN FLIGHT", "BAND", "SHARE"]);
    for region in &explained.regions {
        let home = if region.home { " (own)" } else { "" };
        let by = if region.measured { "" } else { " by distance" };
        let round_trip = region.round_trip_milliseconds.map(|taken| format!("{taken:.1} ms{by}"));
        regions.row([
            format!("{}{home}", or_none(region.region.clone())),
            or_none(round_trip),
            format!("{} of {}", region.healthy, region.endpoints),
            region.in_flight.to_string(),
            or_none(region.band.map(|band| format!("{band:.1}"))),
            format!("{:.0} %", region.share * 100.0),
        ]);
    }
    let mut endpoints =
        Table::new(&["ENDPOINT", "REGION", "WEIGHT", "CAN BE CHOSEN", "TAKES", "IN FLIGHT", "LATENCY"]);
    for endpoint in &explained.endpoints {
        let obstacle = endpoint.obstacle.as_ref().map(|obstacle| format!("no: {}", reason(obstacle)));
        endpoints.row([
            endpoint.endpoint.clone(),
            or_none(endpoint.region.clone()),
            endpoint.weight.to_string(),
            obstacle.unwrap_or_else(|| if endpoint.weight == 0 { "no: no weight" } else { "yes" }.to_owned()),
            format!("{:.0} %", endpoint.share * 100.0),
            endpoint.in_flight.to_string(),
            or_none(endpoint.latency_ewma_microseconds.map(|latency| seconds(latency as f64 / 1e6))),
        ]);
    }
    let mut text = format!("{}\n{}\n", regions.render(), endpoints.render());
    for (number, told) in (1..).zip(&explained.steps) {
        text.push_str(&format!("{number}. {}\n", printable(&step(told))));
    }
    text.push_str(&match &explained.chosen {
        Some(endpoint) => format!("chosen: {}\n", printable(endpoint)),
        None => "chosen: none; the request would be refused with 503\n".to_owned(),
    });
    text
}

fn step(step: &ExplainedStep) -> String {
    let endpoint = step.endpoint.as_deref().unwrap_or_default();
    let region = match step.region.as_deref() {
        None | Some("") => "no region".to_owned(),
        Some(name) => format!("region {name}"),
    };
    match step.step.as_str() {
        "panic" => "so few endpoints are healthy that all are used (panic_percent)".to_owned(),
        "ejected_too" => "no healthy endpoint is left, so all are used".to_owned(),
        "region" => format!("{region} is drawn by the shares"),
        "next_region" => format!("{region} is next, as the one before has no endpoint for the request"),
        "probe" => format!("{endpoint} gets the request as a probe, as its ejection is over"),
        "passed_over" => {
            format!("{endpoint} is passed over: {}", reason(step.reason.as_deref().unwrap_or_default()))
        }
        "slow_start" => format!("{endpoint} is passed over: it takes only a part of its requests for now"),
        "better_of_two" => {
            let cost =
                |cost: Option<f64>| cost.map_or_else(|| "unknown".to_owned(), |cost| format!("{cost:.4}"));
            format!(
                "{endpoint} (cost {}) is drawn with {} (cost {}), and costs no more",
                cost(step.cost),
                step.other.as_deref().unwrap_or_default(),
                cost(step.other_cost),
            )
        }
        "key" => format!("the key leads to {endpoint}"),
        "key_full" => format!("the key leads to {endpoint}, which has more than its share of the requests"),
        other => format!("{other} {endpoint}"),
    }
}

fn reason(obstacle: &str) -> &str {
    match obstacle {
        "unhealthy" => "it is ejected, or its checks fail",
        "taken_out" => "the operator has taken it out",
        "requests_max" => "it has reached a limit of circuit_breaker",
        "connections_max" => "all of its pool.connections_max connections are in use",
        other => other,
    }
}

//! The output of an explanation, as text and as JSON.

use cardea_gateway::{
    exchange::PolicyScope,
    explain::{DestinationExplanation, Explanation, MirrorExplanation, RuleExplanation, TarpitExplanation},
};
use cardea_upstream::RegionStats;
use serde_json::{Value, json};

use super::{
    super::text::{Table, facts, printable},
    oracle::Request,
};

/// Fields whose values are never shown.
const SECRET_FIELDS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The explanation as text.
pub(super) fn text(request: &Request, explanation: &Explanation) -> String {
    let mut known: Vec<(&str, String)> = vec![("request", format!("{} {}", request.method, request.url))];
    let mut add = |name, value: Option<String>| known.extend(value.map(|value| (name, value)));
    add("source", explanation.source.clone());
    add("path", Some(explanation.path.clone()));
    add("route", Some(explanation.route.clone().unwrap_or_else(|| "none".to_owned())));
    if explanation.route.is_some() {
        add(
            "demands",
            Some(
                explanation.requirement.clone().unwrap_or_else(|| "nothing (the route is public)".to_owned()),
            ),
        );
    }
    add(
        "caller",
        explanation.caller.as_ref().map(|caller| {
            let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".to_owned());
            format!(
                "issuer {}, subject {}, client {}, scopes {:?}, roles {:?}",
                caller.issuer,
                name(&caller.subject),
                name(&caller.client_id),
                caller.scopes,
                caller.roles
            )
        }),
    );
    let mut text = facts(&known);
    if !explanation.policies.is_empty() {
        let mut table = Table::new(&["POLICY", "RULE", "HOLDS", "EXPRESSION", "REASON"]);
        for rule in &explanation.policies {
            let holds = match &rule.holds {
                Ok(holds) => holds.to_string(),
                Err(fault) => format!("fails: {fault}"),
            };
            table.row([
                scope(rule).to_owned(),
                effect(rule).to_owned(),
                holds,
                rule.expression.clone(),
                rule.reason.clone().unwrap_or_default(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    if let Some(split) = &explanation.split {
        let mut table = Table::new(&["SPLIT OVER", "SHARE"]);
        for (service, share) in &split.shares {
            table.row([service.clone(), format!("{:.1} %", share * 100.0)]);
        }
        let by =
            if split.has_key { "by the key of the request" } else { "at random: the request has no key" };
        text.push_str(&format!("\nservice chosen {by}\n{}", table.render()));
    }
    if !explanation.throttles.is_empty() {
        let mut table = Table::new(&["THROTTLE", "COST", "FITS", "LEFT", "OF", "IN FLIGHT", "DRY RUN"]);
        let or_none =
            |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
        for throttle in &explanation.throttles {
            table.row([
                throttle.name.clone(),
                throttle.cost.to_string(),
                throttle.fits.to_string(),
                or_none(throttle.rate.as_ref().map(|rate| rate.remaining)),
                or_none(throttle.rate.as_ref().map(|rate| rate.burst)),
                throttle.in_flight.map_or_else(|| "-".to_owned(), |(used, max)| format!("{used} of {max}")),
                throttle.dry_run.to_string(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    if let Some(admission) = &explanation.admission {
        let mut table = Table::new(&["LIMIT", "IN FLIGHT", "QUEUE", "AGE"]);
        for limit in &admission.limits {
            table.row([
                limit.name.clone(),
                limit.settings.max_in_flight.to_string(),
                limit.settings.max_queue.map_or_else(|| "as many".to_owned(), |most| most.to_string()),
                format!("{} ms", limit.settings.max_age.as_millis()),
            ]);
        }
        text.push_str(&format!("\npriority {}\n", admission.priority.as_str()));
        text.push_str(&table.render());
    }
    if let Some(tarpit) = &explanation.tarpit {
        text.push_str(&tarpit_line(tarpit));
    }
    if !explanation.attributes.is_empty() {
        let mut table = Table::new(&["ATTRIBUTE", "VALUE"]);
        for (name, value) in &explanation.attributes {
            table.row([name.clone(), value.clone().unwrap_or_else(|| "(absent)".to_owned())]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text.push('\n');
    text.push_str(&end(request, explanation));
    text
}

/// What the tarpit makes of the request.
fn tarpit_line(tarpit: &TarpitExplanation) -> String {
    let whose = match &tarpit.offender {
        Some(offender) => printable(&format!("its offences are those of {offender}")),
        None => "its offences do not count".to_owned(),
    };
    let is_one = tarpit.offence.map_or_else(String::new, |offence| format!("; it is one ({offence})"));
    format!("\ntarpit ({}): {whose}{is_one}\n", tarpit.action)
}

/// The result.
fn end(request: &Request, explanation: &Explanation) -> String {
    if let Some(refusal) = &explanation.refusal {
        let reason = refusal.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        return format!("refused with {} {}{}\n", refusal.status, refusal.code, printable(&reason));
    }
    match &explanation.destination {
        Some(DestinationExplanation::Service { name, endpoints, regions, target, fields }) => {
            let endpoints =
                if endpoints.is_empty() { "no known endpoint".to_owned() } else { endpoints.join(", ") };
            let mut text = format!("goes to service {name} ({endpoints})\n");
            // One region leaves no choice.
            if regions.len() > 1 {
                regions.iter().for_each(|region| text.push_str(&format!("  {}\n", shown_region(region))));
            }
            text.push_str(&format!("  {} {}\n", request.method, printable(target)));
            for (name, value) in fields {
                text.push_str(&format!("  {name}: {}\n", printable(shown(name, value))));
            }
            if let Some(MirrorExplanation { service, sample_one_in }) = &explanation.mirror {
                text.push_str(&format!("one request in {sample_one_in} is copied to service {service}\n"));
            }
            text
        }
        Some(DestinationExplanation::Answer { kind, builtin, status, location }) => {
            let kind = builtin.map_or_else(|| (*kind).to_owned(), |name| format!("{kind} {name}"));
            let status = status.map_or_else(String::new, |status| format!(" with {status}"));
            let location = location.as_ref().map_or_else(String::new, |to| format!(", location {to}"));
            format!("answered by {kind}{status}{}\n", printable(&location))
        }
        None => String::new(),
    }
}

/// A region and its share of the requests, with the reasons.
fn shown_region(region: &RegionStats) -> String {
    let name = region.name.as_deref().unwrap_or("(no region)");
    let home = if region.is_home { ", the gateway's own" } else { "" };
    let round_trip = match (region.round_trip, region.is_measured) {
        (Some(taken), true) => format!(", round trip {:.1} ms", taken.as_secs_f64() * 1e3),
        (Some(taken), false) => format!(", round trip {:.1} ms by distance", taken.as_secs_f64() * 1e3),
        (None, _) => String::new(),
    };
    let RegionStats { share, healthy, endpoints, .. } = region;
    format!(
        "region {name}{home}{round_trip}: {healthy} of {endpoints} healthy, {:.0} % of requests",
        share * 100.0
    )
}

/// The explanation as JSON.
pub(super) fn json(explanation: &Explanation) -> Value {
    let policies: Vec<Value> = explanation
        .policies
        .iter()
        .map(|rule| {
            let (holds, fault) = match &rule.holds {
                Ok(holds) => (Some(*holds), None),
                Err(fault) => (None, Some(fault)),
            };
            json!({
                "policy": scope(rule), "effect": effect(rule), "expression": rule.expression,
                "reason": rule.reason, "holds": holds, "fault": fault,
            })
        })
        .collect();
    let throttles = explanation.throttles.iter().map(|throttle| {
        json!({
            "throttle": throttle.name, "cost": throttle.cost, "fits": throttle.fits,
            "remaining": throttle.rate.as_ref().map(|rate| rate.remaining),
            "burst": throttle.rate.as_ref().map(|rate| rate.burst),
            "in_flight": throttle.in_flight.map(|(used, _)| used),
            "max_in_flight": throttle.in_flight.map(|(_, max)| max), "dry_run": throttle.dry_run,
        })
    });
    let throttles: Vec<Value> = throttles.collect();
    let admission = explanation.admission.as_ref().map(|admission| {
        let limits = admission.limits.iter().map(|limit| {
            let in_flight = limit.settings.max_in_flight.bounds();
            json!({
                "limit": limit.name, "max_in_flight": in_flight.ceiling, "floor": in_flight.floor,
                "max_queue": limit.settings.max_queue, "max_age_ms": limit.settings.max_age.as_millis() as u64,
            })
        });
        json!({ "priority": admission.priority.as_str(), "limits": limits.collect::<Vec<_>>() })
    });
    let tarpit = explanation.tarpit.as_ref().map(|tarpit| {
        let offender = tarpit.offender.as_ref().map(ToString::to_string);
        json!({ "action": tarpit.action, "offender": offender, "offence": tarpit.offence })
    });
    let attributes: serde_json::Map<String, Value> =
        explanation.attributes.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let caller = explanation.caller.as_ref().map(|caller| {
        json!({
            "issuer": caller.issuer, "subject": caller.subject, "client_id": caller.client_id,
            "scopes": caller.scopes, "roles": caller.roles,
        })
    });
    let split = explanation.split.as_ref().map(|split| {
        let shares = split.shares.iter();
        let shares = shares.map(|(service, share)| json!({ "service": service, "share": share }));
        json!({ "has_key": split.has_key, "services": shares.collect::<Vec<_>>() })
    });
    let mirror = explanation
        .mirror
        .as_ref()
        .map(|mirror| json!({ "service": mirror.service, "sample_one_in": mirror.sample_one_in }));
    let refusal = explanation
        .refusal
        .as_ref()
        .map(|refusal| json!({ "status": refusal.status, "code": refusal.code, "reason": refusal.reason }));
    let destination = explanation.destination.as_ref().map(|destination| match destination {
        DestinationExplanation::Service { name, endpoints, regions, target, fields } => {
            let regions: Vec<Value> = regions
                .iter()
                .map(|region| {
                    json!({
                        "region": region.name, "home": region.is_home, "share": region.share,
                        "round_trip_ms": region.round_trip.map(|taken| taken.as_secs_f64() * 1e3),
                        "measured": region.is_measured, "endpoints": region.endpoints, "healthy": region.healthy,
                    })
                })
                .collect();
            let fields: Vec<Value> =
                fields.iter().map(|(name, value)| json!({ "name": name, "value": shown(name, value) })).collect();
            json!({ "kind": "service", "service": name, "endpoints": endpoints, "regions": regions, "target": target, "headers": fields })
        }
        DestinationExplanation::Answer { kind, builtin, status, location } => {
            json!({ "kind": kind, "builtin": builtin, "status": status, "location": location })
        }
    });
    json!({
        "host": explanation.host, "path": explanation.path, "source": explanation.source,
        "route": explanation.route, "demand": explanation.requirement, "caller": caller, "policies": policies, "split": split, "mirror": mirror,
        "throttles": throttles, "tarpit": tarpit, "admission": admission, "attributes": attributes, "refusal": refusal, "destination": destination,
    })
}

/// A value, or its redaction.
pub(super) fn shown<'v>(name: &str, value: &'v str) -> &'v str {
    if SECRET_FIELDS.contains(&name) { "[redacted]" } else { value }
}

fn scope(rule: &RuleExplanation) -> &'static str {
    match rule.scope {
        PolicyScope::Gateway => "gateway",
        PolicyScope::Route => "route",
    }
}

fn effect(rule: &RuleExplanation) -> &'static str {
    if rule.allows { "allow" } else { "deny" }
}

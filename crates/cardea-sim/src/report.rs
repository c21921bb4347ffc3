//! Outcomes as tables, JSON and a chart.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::scenarios::Scenario;

/// A scenario and what came of it with each policy.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The scenario.
    pub scenario: Scenario,
    /// By policy.
    pub outcomes: Vec<Outcome>,
}

/// Tables in Markdown, one for each scenario.
#[must_use]
pub fn markdown(all: &[Compared]) -> String {
    let mut text = String::new();
    for Compared { scenario, outcomes } in all {
        let Some(first) = outcomes.first() else { continue };
        let _ = write!(
            text,
            "### {}\n\n{}. {} requests; the best possible: p50 {:.1} ms, p99 {:.1} ms, round trip p99 {:.1} ms.\n\n\
             | policy | availability | after the first probe interval | p50 ms | p99 ms | round trip p99 ms | spilled | retries per request | greatest load | beyond the band | swings |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            scenario.name,
            capitalised(scenario.about),
            first.requests,
            first.best_p50_ms,
            first.best_p99_ms,
            first.best_round_trip_p99_ms,
        );
        for one in outcomes {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} % | {:.4} | {:.2} | {:.1} s | {} |",
                one.kind.as_str(),
                percent(one.availability),
                percent(one.availability_settled),
                one.p50_ms,
                one.p99_ms,
                one.round_trip_p99_ms,
                one.spilled * 100.0,
                one.retries,
                one.region_load_max,
                one.beyond_band_s,
                one.swings,
            );
        }
        text.push('\n');
    }
    text
}

/// Rounded down: 100 % means all.
fn percent(share: f64) -> String {
    format!("{:.3} %", (share * 1e5).floor() / 1e3)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// All figures, the load of each region among them.
#[must_use]
pub fn json(all: &[Compared], seed: u64) -> Value {
    let scenarios: Vec<Value> = all
        .iter()
        .map(|Compared { scenario, outcomes }| {
            let places: Vec<&str> = scenario.world.places.iter().map(|place| place.name).collect();
            let outcomes: Vec<Value> = outcomes.iter().map(|one| outcome(one, &places)).collect();
            json!({ "name": scenario.name, "about": scenario.about, "outcomes": outcomes })
        })
        .collect();
    json!({ "seed": seed, "scenarios": scenarios })
}

fn outcome(one: &Outcome, places: &[&str]) -> Value {
    let loads: serde_json::Map<String, Value> = places
        .iter()
        .zip(&one.region_loads)
        .map(|(place, load)| ((*place).to_owned(), json!(load)))
        .collect();
    json!({
        "policy": one.kind.as_str(),
        "requests": one.requests,
        "availability": one.availability,
        "availability_settled": one.availability_settled,
        "p50_ms": one.p50_ms,
        "p99_ms": one.p99_ms,
        "best_p50_ms": one.best_p50_ms,
        "best_p99_ms": one.best_p99_ms,
        "round_trip_p99_ms": one.round_trip_p99_ms,
        "best_round_trip_p99_ms": one.best_round_trip_p99_ms,
        "spilled_share": one.spilled,
        "retries_per_request": one.retries,
        "region_load_max": one.region_load_max,
        "beyond_band_seconds": one.beyond_band_s,
        "swings": one.swings,
        "region_loads": loads,
    })
}

const ROW: f64 = 16.0;
const TITLE: f64 = 26.0;
const LEFT: f64 = 130.0;
const WIDTH: f64 = 560.0;
const RIGHT: f64 = 90.0;

/// The slowest hundredth by scenario and policy, beside the best possible, on a logarithmic axis.
#[must_use]
pub fn chart(all: &[Compared]) -> String {
    let times = || all.iter().flat_map(|one| &one.outcomes).flat_map(|one| [one.p99_ms, one.best_p99_ms]);
    let least = times().fold(f64::INFINITY, f64::min).max(1.0) / 2.0;
    let most = times().fold(1.0, f64::max);
    let x = |ms: f64| (ms.max(least) / least).ln() / (most / least).ln() * WIDTH;
    let mut body = String::new();
    let mut y = 24.0;
    for Compared { scenario, outcomes } in all {
        let _ = writeln!(body, r#"<text x="8" y="{:.0}" class="t">{}</text>"#, y + 14.0, scenario.name);
        y += TITLE;
        let top = y;
        for one in outcomes {
            let class = if one.kind == crate::policy::Kind::Cardea { "c" } else { "o" };
            let _ = writeln!(
                body,
                r#"<text x="{:.0}" y="{:.0}" text-anchor="end">{}</text><rect x="{LEFT}" y="{:.0}" width="{:.1}" height="11" class="{class}"/><text x="{:.1}" y="{:.0}">{:.0} ms</text>"#,
                LEFT - 6.0,
                y + 10.0,
                one.kind.as_str(),
                y + 1.0,
                x(one.p99_ms),
                LEFT + x(one.p99_ms) + 5.0,
                y + 10.0,
                one.p99_ms,
            );
            y += ROW;
        }
        if let Some(best) = outcomes.first() {
            let at = LEFT + x(best.best_p99_ms);
            let _ =
                writeln!(body, r#"<line x1="{at:.1}" x2="{at:.1}" y1="{top:.0}" y2="{y:.0}" class="b"/>"#);
        }
        y += 6.0;
    }
    let width = LEFT + WIDTH + RIGHT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{y:.0}\" viewBox=\"0 0 {width:.0} {y:.0}\">\n\
         <style>text{{font:11px sans-serif;fill:#333}}.t{{font-weight:bold;font-size:13px}}.c{{fill:#2563eb}}.o{{fill:#b8bec8}}.b{{stroke:#dc2626;stroke-dasharray:3 2}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"16\">Slowest hundredth of requests, logarithmic; the dashed line is the best possible.</text>\n\
         {body}</svg>\n"
    )
}

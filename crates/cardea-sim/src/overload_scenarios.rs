//! The scenarios of overload, and their table.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::overload::{self, Change, Limiting, Outcome, Overload};
use crate::world::Work;

/// An overload with a name, and what limits are compared in it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name in tables.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// The service and its load.
    pub world: Overload,
}

const SLOTS: usize = 32;

impl Scenario {
    /// The limits that are compared: none, the number that the service processes at once, sixteen times that, and
    /// adaptive ones.
    #[must_use]
    pub fn limits(&self) -> [Limiting; 5] {
        let slots = u32::try_from(self.world.slots).unwrap_or(u32::MAX);
        [
            Limiting::Nothing,
            Limiting::Fixed(slots),
            Limiting::Fixed(16 * slots),
            Limiting::Adaptive,
            Limiting::Shedding,
        ]
    }

    /// What becomes of it under each limit.
    #[must_use]
    pub fn run(&self) -> Vec<(Limiting, Outcome)> {
        self.limits().map(|limiting| (limiting, overload::run(&self.world, limiting))).to_vec()
    }
}

/// All of them.
#[must_use]
pub fn all(seed: u64) -> Vec<Scenario> {
    let world = Overload {
        slots: SLOTS,
        work: Work::Exponential(Duration::from_millis(80)),
        load: 3.0,
        changes: Vec::new(),
        lasts: Duration::from_secs(60),
        warm_up: Duration::from_secs(5),
        patience: Duration::from_secs(1),
        max_age: Duration::from_millis(200),
        seed,
    };
    let at = |load: f64| Overload { load, ..world.clone() };
    let changed = |load: f64, during: Change, after: Change| {
        let changes = vec![(Duration::from_secs(20), during), (Duration::from_secs(40), after)];
        Overload { changes, ..at(load) }
    };
    let scenario = |name, about, world| Scenario { name, about, world };
    vec![
        scenario("half of the capacity", "The load is half of the capacity", at(0.5)),
        scenario("1.5 times the capacity", "The load is 1.5 times the capacity", at(1.5)),
        scenario("3 times the capacity", "The load is 3 times the capacity", at(3.0)),
        scenario("10 times the capacity", "The load is 10 times the capacity", at(10.0)),
        scenario(
            "surge",
            "The load is half of the capacity, and 10 times the capacity from 20 s to 40 s",
            changed(0.5, Change::Load(10.0), Change::Load(0.5)),
        ),
        scenario(
            "half of the slots lost",
            "The load is 3 times the capacity, and half of the slots are lost from 20 s to 40 s",
            changed(3.0, Change::Slots(SLOTS / 2), Change::Slots(SLOTS)),
        ),
        scenario(
            "half of the speed lost",
            "The load is 3 times the capacity, and requests take twice as long from 20 s to 40 s",
            changed(3.0, Change::Speed(0.5), Change::Speed(1.0)),
        ),
    ]
}

/// Tables in Markdown, one for each scenario.
#[must_use]
pub fn markdown(all: &[(Scenario, Vec<(Limiting, Outcome)>)]) -> String {
    let mut text = String::new();
    for (Scenario { name, about, .. }, outcomes) in all {
        let _ = write!(
            text,
            "### Overload: {name}\n\n{about}.\n\n\
             | limit | goodput | after 2 s | p99 ms | p99 of refusals ms | lost: critical | high | normal | low | unharmed callers | limits |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (limiting, one) in outcomes {
            let recovered: Vec<String> = one.recovered.iter().map(|share| percent(*share)).collect();
            let lost = one.lost.map(percent).join(" | ");
            let (least, most) = one.limits;
            let limits = if most == 0 { "–".to_owned() } else { format!("{least}–{most}") };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.0} | {:.0} | {lost} | {} | {limits} |",
                limiting.name(),
                percent(one.goodput),
                if recovered.is_empty() { "–".to_owned() } else { recovered.join(", ") },
                one.served_p99_ms,
                one.refused_p99_ms,
                percent(one.unharmed),
            );
        }
        text.push('\n');
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// All figures.
#[must_use]
pub fn json(all: &[(Scenario, Vec<(Limiting, Outcome)>)]) -> Value {
    let outcome = |(limiting, one): &(Limiting, Outcome)| {
        json!({
            "limit": limiting.name(),
            "goodput_share": one.goodput,
            "goodput_share_after_changes": one.recovered,
            "served_p99_ms": one.served_p99_ms,
            "refused_p99_ms": one.refused_p99_ms,
            "lost_by_priority": one.lost,
            "unharmed_callers_share": one.unharmed,
            "limits": [one.limits.0, one.limits.1],
        })
    };
    let scenarios = all.iter().map(|(scenario, outcomes)| {
        let outcomes: Vec<Value> = outcomes.iter().map(outcome).collect();
        json!({ "name": scenario.name, "about": scenario.about, "outcomes": outcomes })
    });
    Value::Array(scenarios.collect())
}

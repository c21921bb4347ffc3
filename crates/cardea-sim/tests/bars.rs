//! What the choice of endpoints must reach, in short runs of the scenarios.

use std::time::Duration;

use cardea_sim::engine;
use cardea_sim::outcome::Outcome;
use cardea_sim::policy::Kind;
use cardea_sim::scenarios::{self, Scenario};

fn short(mut scenario: Scenario, kind: Kind) -> Outcome {
    scenario.world.lasts = Duration::from_secs(30);
    engine::run(&scenario.world, kind)
}

#[test]
fn where_one_server_in_four_is_slow_load_follows_speed() {
    let p99 = |kind| short(scenarios::unequal(4, 0.9, 1), kind).p99_ms;
    let cardea = p99(Kind::Cardea);
    for (kind, at_most) in [(Kind::LeastRequests, 0.8), (Kind::RoundRobin, 0.6), (Kind::Prequal, 1.1)] {
        let other = p99(kind);
        println!("{}: {other:.1} ms, cardea {cardea:.1} ms", kind.as_str());
        assert!(cardea <= at_most * other, "{kind:?}: {cardea} ms of {other} ms");
    }
}

#[test]
fn sixty_four_workers_do_not_herd() {
    let p99 = |workers| short(scenarios::unequal(workers, 0.9, 1), Kind::Cardea).p99_ms;
    let (few, many) = (p99(1), p99(64));
    println!("1 worker: {few:.1} ms, 64 workers: {many:.1} ms");
    assert!(many <= 1.15 * few, "{many} ms beside {few} ms");
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let figures = |seed| {
        let outcome = short(scenarios::antagonists(seed), Kind::Prequal);
        (outcome.requests, outcome.p99_ms.to_bits(), outcome.retries.to_bits())
    };
    assert_eq!(figures(3), figures(3));
    assert_ne!(figures(3), figures(4));
}

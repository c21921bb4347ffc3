//! What an adaptive limit must reach, in short runs of the scenarios of overload.

use std::time::Duration;

use cardea_sim::overload::{self, Change, Limiting, Outcome};
use cardea_sim::overload_scenarios::{self, Scenario};

fn run(scenario: &Scenario, limiting: Limiting) -> Outcome {
    overload::run(&scenario.world, limiting)
}

#[test]
fn an_adaptive_limit_keeps_the_capacity_of_a_service_and_its_important_requests() {
    for seed in 1..=3 {
        for scenario in overload_scenarios::all(seed) {
            let outcome = run(&scenario, Limiting::Adaptive);
            assert!(outcome.goodput >= 0.95, "{}: {outcome:?}", scenario.name);
            assert!(outcome.lost[0] <= 0.01, "{}: {outcome:?}", scenario.name);
            // That a service is slower, and not overloaded, shows only once a lower limit has not helped.
            let is_slower =
                scenario.world.changes.iter().any(|(_, change)| matches!(change, Change::Speed(_)));
            for after in outcome.recovered {
                assert!(after >= if is_slower { 0.9 } else { 0.95 }, "{}: {after}", scenario.name);
            }
            assert!(outcome.refused_p99_ms <= scenario.world.max_age.as_secs_f64() * 1e3);
        }
    }
}

/// Refusing the same callers leaves others unharmed, at the same goodput.
#[test]
fn where_callers_are_shed_the_others_lose_nothing() {
    for load in [1.5, 3.0] {
        let scenarios = overload_scenarios::all(1);
        let scenario = scenarios.iter().find(|scenario| (scenario.world.load - load).abs() < 0.01).unwrap();
        let (all, same) = (run(scenario, Limiting::Adaptive), run(scenario, Limiting::Shedding));
        assert!(same.goodput >= 0.95, "{}", same.goodput);
        assert!(same.lost[0] <= 0.01, "{:?}", same.lost);
        // At best as many as there is capacity for.
        assert!(same.unharmed >= 0.5 / load, "{load}: {}", same.unharmed);
        assert!(same.unharmed > all.unharmed, "{load}: {} and {}", same.unharmed, all.unharmed);
    }
}

/// The control: without a limit, and with one that is far too high, next to nothing is served in time.
#[test]
fn without_a_limit_that_fits_a_service_collapses() {
    let scenarios = overload_scenarios::all(1);
    let scenario = scenarios.iter().find(|scenario| scenario.world.load > 2.0).unwrap();
    assert!(run(scenario, Limiting::Nothing).goodput < 0.1);
    assert!(run(scenario, Limiting::Fixed(16 * 32)).goodput < 0.5);
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let run = |seed| {
        let mut world = overload_scenarios::all(seed).remove(2).world;
        world.lasts = Duration::from_secs(10);
        overload::run(&world, Limiting::Adaptive)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

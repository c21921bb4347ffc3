//! What is told of a choice.

use super::*;
use crate::breaker::BreakerConfig;
use crate::service::trace::Obstacle;

fn steps(explained: &ChoiceExplanation) -> Vec<(&'static str, Option<String>)> {
    let about = |step: &ChoiceStep| (step.what, step.endpoint.clone().or_else(|| step.region.clone()));
    explained.steps.iter().map(about).collect()
}

#[test]
fn the_steps_of_a_choice_lead_to_its_endpoint() {
    let state = state(&[(1, "a", 1), (2, "a", 1), (3, "b", 1)]);
    let explained = state.explain(&selection(at(1)));
    let chosen = explained.chosen.clone().unwrap();
    let last = explained.steps.last().unwrap();
    assert_eq!(steps(&explained)[0], ("region", Some("a".to_owned())));
    assert_eq!((last.what, last.endpoint.as_deref()), ("better_of_two", Some(chosen.as_str())));
    let (cost, other) = last.costs.unwrap();
    assert!(cost <= other, "{explained:?}");
    assert!(explained.endpoints.iter().all(|endpoint| endpoint.obstacle.is_none() && endpoint.share == 1.0));
}

#[test]
fn what_is_passed_over_has_its_obstacle() {
    let breaker = BreakerConfig { requests_max: NonZeroU32::new(1), pending_max: None };
    let config = ServiceConfig { breaker, ..config(&[(1, "a", 1), (2, "a", 1), (3, "b", 1)]) };
    let state = State::reconcile(&config, None, Connections::Kept).unwrap();
    fail(&state, 0, at(1));
    let _held = state.slots[1].endpoint.begin(0);
    let explained = state.explain(&selection(at(1)));
    let obstacles: Vec<_> = explained.endpoints.iter().map(|endpoint| endpoint.obstacle).collect();
    assert_eq!(obstacles, [Some(Obstacle::Unhealthy), Some(Obstacle::Limit(ReachedLimit::Requests)), None]);
    assert_eq!(explained.chosen.as_deref(), Some(state.slots[2].endpoint.label()));
    assert!(steps(&explained).contains(&("next_region", Some("b".to_owned()))), "{explained:?}");
    // A region that is dead as a whole is not drawn from.
    let _other = state.slots[2].endpoint.begin(0);
    let refused = state.explain(&selection(at(1)));
    assert_eq!((refused.chosen, state.stats().limited), (None, 0), "what is asked about is not counted");
}

#[test]
fn a_probe_that_is_asked_about_is_left_to_a_request() {
    let state = state(&[(1, "a", 1), (2, "a", 1)]);
    fail(&state, 0, at(1));
    let failed = state.slots[0].endpoint.label();
    for _ in 0..3 {
        let explained = state.explain(&selection(at(5_000)));
        assert_eq!(explained.steps.last().unwrap().what, "probe", "{explained:?}");
        assert_eq!(explained.chosen.as_deref(), Some(failed));
    }
    let (choice, _) = state.choose(&selection(at(5_000)), &AttemptedEndpoints::default()).unwrap();
    assert_eq!(choice.endpoint.get(), 0, "the request is the probe");
    assert_ne!(state.explain(&selection(at(5_000))).chosen.as_deref(), Some(failed));
}

proptest! {
    /// What is told is what would be done: after the same draws, a request gets the endpoint that was told.
    #[test]
    fn a_request_gets_what_was_told(
        weights in prop::collection::vec(0_u32..4, 1..12),
        failed in prop::collection::vec(any::<bool>(), 12),
        first in 1_u64..20_000,
    ) {
        let endpoints: Vec<_> =
            (1..).zip(&weights).map(|(port, weight)| (port, if port % 3 == 0 { "b" } else { "a" }, *weight)).collect();
        let world = || {
            let state = state(&endpoints);
            (0..endpoints.len()).filter(|at| failed[*at]).for_each(|index| fail(&state, index, at(1)));
            state
        };
        let (asked, done) = (world(), world());
        for now in first..first + 5 {
            let told = asked.explain(&selection(at(now))).chosen;
            let gets = done.choose(&selection(at(now)), &AttemptedEndpoints::default());
            prop_assert_eq!(told, gets.map(|(_, endpoint)| endpoint.label().to_owned()));
            // A probe that was claimed would be told again.
            if (0..endpoints.len()).any(|at| failed[at]) {
                break;
            }
        }
    }
}

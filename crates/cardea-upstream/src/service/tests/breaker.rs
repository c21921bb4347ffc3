//! Circuit breakers: endpoints that have reached a limit.

use super::*;
use crate::breaker::BreakerConfig;
use crate::pool::Usage;

fn limited(requests_max: u32, pending_max: u32, endpoints: &[(u16, &str, u32)]) -> Arc<State> {
    let breaker = BreakerConfig {
        requests_max: NonZeroU32::new(requests_max),
        pending_max: NonZeroU32::new(pending_max),
    };
    let config = ServiceConfig { breaker, ..config(endpoints) };
    State::reconcile(&config, None, Connections::Kept).unwrap()
}

fn none() -> AttemptedEndpoints {
    AttemptedEndpoints::default()
}

#[test]
fn no_endpoint_gets_more_than_its_limit() {
    for balance in [Balance::PeakEwma, Balance::LeastRequests, Balance::RoundRobin] {
        for affinity in [None, Some(Affinity::of(b"key"))] {
            let endpoints: Vec<_> = (1..=5).map(|port| (port, "a", u32::from(port))).collect();
            let config = ServiceConfig { balance, ..limited(3, 0, &endpoints).config() };
            let state = State::reconcile(&config, None, Connections::Kept).unwrap();
            let mut held = Vec::new();
            for _ in 0..15 {
                let selection = Selection { affinity, ..selection(at(1)) };
                let (choice, endpoint) = state.choose(&selection, &none()).unwrap();
                assert!(endpoint.in_flight() < 3);
                held.push((choice, endpoint.begin(0)));
            }
            let selection = Selection { affinity, ..selection(at(1)) };
            assert!(state.choose(&selection, &none()).is_none());
            assert_eq!(state.reached_limit(), Some(ReachedLimit::Requests));
            assert_eq!(state.stats().limited, 1);
            // Whoever has room again is chosen.
            let (freed, _) = held.swap_remove(7);
            assert_eq!(state.choose(&selection, &none()).unwrap().0.endpoint, freed.endpoint);
        }
    }
}

#[test]
fn the_next_region_serves_if_the_own_one_has_no_room() {
    let state = limited(1, 0, &[(1, "a", 1), (2, "a", 1), (3, "b", 1)]);
    let mut held = Vec::new();
    let mut chosen = Vec::new();
    while let Some((choice, endpoint)) = state.choose(&selection(at(1)), &none()) {
        chosen.push(choice.endpoint.get());
        held.push(endpoint.begin(0));
    }
    chosen[..2].sort_unstable();
    assert_eq!(chosen, [0, 1, 2]);
}

#[test]
fn connections_that_are_being_made_are_limited() {
    let state = limited(0, 1, &[(1, "a", 1), (2, "a", 1)]);
    let connecting: Vec<_> = state.endpoints().map(|(_, endpoint)| endpoint.connecting(0)).collect();
    assert!(state.choose(&selection(at(1)), &none()).is_none());
    drop(connecting);
    assert!(state.choose(&selection(at(1)), &none()).is_some() && state.reached_limit().is_none());
}

#[test]
fn ejected_endpoints_do_not_replace_those_without_room() {
    let state = limited(1, 0, &[(1, "a", 1), (2, "a", 1), (3, "a", 1)]);
    fail(&state, 0, at(1));
    let _held: Vec<_> = [1, 2].map(|at| state.slots[at].endpoint.begin(0)).into();
    assert!(state.choose(&selection(at(50)), &none()).is_none());
    // Where none is healthy, they serve, each up to its limit.
    let state = limited(1, 0, &[(1, "a", 1), (2, "a", 1)]);
    fail(&state, 0, at(1));
    fail(&state, 1, at(1));
    let (_, first) = state.choose(&selection(at(50)), &none()).unwrap();
    let _first = first.begin(0);
    let (_, second) = state.choose(&selection(at(50)), &none()).unwrap();
    let _second = second.begin(0);
    assert!(state.choose(&selection(at(50)), &none()).is_none());
}

#[test]
fn a_retry_finds_no_endpoint_but_those_with_room() {
    let state = limited(1, 0, &[(1, "a", 1), (2, "a", 1)]);
    let _held = state.slots[1].endpoint.begin(0);
    let mut tried = none();
    let (choice, _) = state.choose(&selection(at(1)), &tried).unwrap();
    tried.insert(choice.endpoint);
    assert_eq!(choice.endpoint.get(), 0);
    assert!(state.choose(&selection(at(1)), &tried).is_none());
}

#[test]
fn limits_change_with_the_configuration() {
    let state = limited(1, 0, &[(1, "a", 1)]);
    let _held = state.slots[0].endpoint.begin(0);
    assert!(state.choose(&selection(at(1)), &none()).is_none());
    let wider = BreakerConfig { requests_max: NonZeroU32::new(2), ..BreakerConfig::default() };
    let config = ServiceConfig { breaker: wider, ..state.config() };
    let next = State::reconcile(&config, Some(&state), Connections::Kept).unwrap();
    assert!(next.choose(&selection(at(1)), &none()).is_some());
    assert_eq!(next.stats().limited, 1, "what is counted stays");
}

#[test]
fn an_endpoint_whose_connections_are_all_in_use_is_passed_over() {
    let pool = PoolConfig { connections_max: Some(1), ..PoolConfig::default() };
    let config = ServiceConfig { pool, ..config(&[(1, "a", 1), (2, "a", 1)]) };
    let state = State::reconcile(&config, None, Connections::Kept).unwrap();
    let chosen = |state: &Arc<State>| {
        state.choose(&selection(at(1)), &none()).map(|(choice, _)| choice.endpoint.get())
    };
    let [first, second] = [0, 1].map(|at| &state.slots[at].endpoint);
    let busy = first.permit().unwrap();
    assert!((0..50).all(|_| chosen(&state) == Some(1)));
    let other = second.permit().unwrap();
    assert_eq!((chosen(&state), state.reached_limit()), (None, Some(ReachedLimit::Connections)));
    assert_eq!(state.stats().limited, 1);
    // An idle connection can be used, or gives way to a new one.
    assert_eq!(first.pool().place(0, Usage::new(at(1))).put(7, at(1)), None);
    assert!((0..50).all(|_| chosen(&state) == Some(0)));
    assert!(first.pool().take(0, at(1), |_| true).is_some());
    drop((busy, other));
    assert!(chosen(&state).is_some() && state.reached_limit().is_none());
}

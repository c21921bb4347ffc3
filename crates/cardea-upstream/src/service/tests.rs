//! Tests of services and the choice of an endpoint.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Address;
use crate::attempts::{ATTEMPTS_MAX, AttemptedEndpoints};
use crate::config::EndpointConfig;
use crate::endpoint::FailureKind;
use crate::pool::Usage;
use crate::retry::BudgetConfig;

mod breaker;
mod explain;
mod failover;
mod simulation;

type State = ServiceState<u32>;

fn at(millis: u64) -> Mono {
    Mono::from_nanos(millis * 1_000_000)
}

fn endpoint(port: u16, region: &str, weight: u32) -> EndpointConfig {
    let region = (!region.is_empty()).then(|| region.to_owned());
    EndpointConfig { region, weight, ..EndpointConfig::new(Address::Tcp(([10, 0, 0, 1], port).into())) }
}

/// Of a gateway in the region `a`.
fn config(endpoints: &[(u16, &str, u32)]) -> ServiceConfig {
    config_in("a", endpoints)
}

fn config_in(home: &str, endpoints: &[(u16, &str, u32)]) -> ServiceConfig {
    let endpoints = endpoints.iter().map(|(port, region, weight)| endpoint(*port, region, *weight)).collect();
    let locality = Arc::new(Locality::new(Some(home.to_owned()), [], None));
    ServiceConfig { locality, ..ServiceConfig::new("s", endpoints) }
}

fn state(endpoints: &[(u16, &str, u32)]) -> Arc<State> {
    State::reconcile(&config(endpoints), None, Connections::Kept).unwrap()
}

fn choice(endpoint: usize, now: Mono) -> Choice {
    Choice { endpoint: EndpointIndex(u16::try_from(endpoint).unwrap()), worker: 0, at: now }
}

/// A connection could not be made.
fn fail(state: &State, endpoint: usize, now: Mono) {
    state.failed(choice(endpoint, now), now, FailureKind::Connect, Duration::ZERO);
}

fn answer(state: &State, endpoint: usize, now: Mono, status: u16) {
    state.responded(choice(endpoint, now), now, status, Some(Duration::from_millis(1)));
}

fn selection(now: Mono) -> Selection {
    Selection { now, ..Selection::default() }
}

fn chosen(state: &State, now: Mono, tried: &AttemptedEndpoints) -> Option<usize> {
    state.choose(&selection(now), tried).map(|(choice, _)| choice.endpoint.get())
}

/// All endpoints in the order in which one request would try them.
fn order(state: &State) -> Vec<usize> {
    let mut tried = AttemptedEndpoints::new();
    std::iter::from_fn(|| {
        let (choice, _) = state.choose(&selection(at(0)), &tried)?;
        tried.insert(choice.endpoint);
        Some(choice.endpoint.get())
    })
    .collect()
}

#[test]
fn the_local_region_comes_first_then_the_others_in_order() {
    let endpoints = [(1, "b", 1), (2, "a", 1), (3, "", 1), (4, "a", 0), (5, "c", 1)];
    let state_in = |home| State::reconcile(&config_in(home, &endpoints), None, Connections::Kept).unwrap();
    assert_eq!(order(&state_in("a")), [1, 0, 2, 4]);
    assert_eq!(order(&state_in("c")), [4, 0, 1, 2]);
    assert_eq!(order(&state_in("nowhere")), [0, 1, 2, 4]);
    let mut nowhere = config(&endpoints);
    nowhere.locality = Arc::default();
    let state = State::reconcile(&nowhere, None, Connections::Kept).unwrap();
    let (anywhere, _) = state.choose(&Selection::default(), &AttemptedEndpoints::new()).unwrap();
    assert_eq!(anywhere.endpoint.get(), 0);
}

#[test]
fn an_ejected_region_gives_way_until_its_probe_succeeds() {
    let state = state(&[(1, "a", 1), (2, "b", 1)]);
    let none = AttemptedEndpoints::new();
    fail(&state, 0, at(1));
    assert_eq!(chosen(&state, at(700), &none), Some(1));
    assert_eq!(chosen(&state, at(1_300), &none), Some(0), "the probe");
    assert_eq!(chosen(&state, at(1_400), &none), Some(1), "one at a time");
    answer(&state, 0, at(1_300), 200);
    let returned = |now| (0..100).filter(|_| chosen(&state, at(now), &none) == Some(0)).count();
    let returning = [1_500, 3_000, 4_500, 6_500].map(returned);
    assert!(returning[0] < 15 && returning.is_sorted() && returning[3] == 100, "{returning:?}");
}

#[test]
fn with_all_ejected_each_is_better_than_none() {
    let state = state(&[(1, "a", 1), (2, "a", 1), (3, "b", 1), (4, "b", 0)]);
    (0..4).for_each(|endpoint| fail(&state, endpoint, at(1)));
    let mut tried = order(&state);
    assert_eq!(tried[2], 2, "the local region first");
    tried.sort_unstable();
    assert_eq!(tried, [0, 1, 2]);
    assert_eq!(state.stats().panics, 3);
    assert!(state.stats().panicking);
}

#[test]
fn a_request_makes_few_attempts() {
    let many: Vec<_> = (1..=20).map(|port| (port, "", 1)).collect();
    let tried = order(&state(&many));
    assert_eq!(tried.len(), ATTEMPTS_MAX);
    let mut full = AttemptedEndpoints::new();
    (0..20).for_each(|index| full.insert(EndpointIndex(index)));
    assert!(full.is_full() && full.len() == ATTEMPTS_MAX && !full.is_empty());
}

/// How often each endpoint is chosen in `rounds`, with nothing in flight.
fn shares(state: &State, rounds: usize, tried: &AttemptedEndpoints) -> Vec<usize> {
    let mut counts = vec![0; state.slots.len()];
    for _ in 0..rounds {
        counts[chosen(state, at(0), tried).unwrap()] += 1;
    }
    counts
}

#[test]
fn idle_endpoints_get_requests_by_weight() {
    let state = state(&[(1, "", 1), (2, "", 2), (3, "", 0), (4, "", 5)]);
    let counts = shares(&state, 80_000, &AttemptedEndpoints::new());
    for (count, wanted) in counts.iter().zip([10_000_usize, 20_000, 0, 50_000]) {
        assert!(count.abs_diff(wanted) <= wanted / 20, "{counts:?}");
    }
}

#[test]
fn shares_stay_right_among_those_that_are_left() {
    // All but three of many are ejected, so that drawing fails and each is looked at.
    let many: Vec<_> =
        (0..200).map(|at| (at + 1, "", if at < 3 { 1 + u32::from(at) } else { 100 })).collect();
    let mut wanted = config(&many);
    wanted.health.panic_percent = 0;
    let state = State::reconcile(&wanted, None, Connections::Kept).unwrap();
    (3..200).for_each(|endpoint| fail(&state, endpoint, at(1)));
    let counts = shares(&state, 60_000, &AttemptedEndpoints::new());
    for (count, wanted) in counts.iter().zip([10_000_usize, 20_000, 30_000]) {
        assert!(count.abs_diff(wanted) <= wanted / 20, "{:?}", &counts[..3]);
    }
    assert_eq!(counts.iter().skip(3).sum::<usize>(), 0);
}

#[test]
fn the_busier_of_two_is_avoided_for_its_weight() {
    let state = state(&[(1, "", 1), (2, "", 3)]);
    let hold = |endpoint: usize, count: usize| -> Vec<_> {
        (0..count).map(|_| state.slots[endpoint].endpoint.begin(0)).collect()
    };
    let (light, heavy) = (hold(0, 2), hold(1, 5));
    assert_eq!(shares(&state, 100, &AttemptedEndpoints::new()), [0, 100]);
    let more = hold(1, 2);
    assert_eq!(shares(&state, 100, &AttemptedEndpoints::new()), [100, 0]);
    drop((light, heavy, more));
    assert!(shares(&state, 100, &AttemptedEndpoints::new()).iter().all(|count| *count > 0));
}

#[test]
fn load_spreads_by_weight_when_requests_last() {
    let state = state(&[(1, "", 1), (2, "", 1), (3, "", 2)]);
    let mut held = Vec::new();
    for _ in 0..400 {
        let (_, endpoint) = state.choose(&Selection::default(), &AttemptedEndpoints::new()).unwrap();
        held.push(endpoint.begin(0));
    }
    let loads: Vec<_> = state.endpoints().map(|(_, endpoint)| endpoint.in_flight()).collect();
    for (load, wanted) in loads.iter().zip([100_usize, 100, 200]) {
        assert!(load.abs_diff(wanted) <= 4, "{loads:?}");
    }
}

#[test]
fn a_reload_keeps_the_state_of_remaining_objects_only() {
    let old = state(&[(1, "a", 1), (2, "a", 1), (3, "a", 1)]);
    for (index, endpoint) in old.endpoints() {
        assert_eq!(endpoint.pool().place(0, Usage::new(Mono::MIN)).put(index.get() as u32, at(0)), None);
    }
    fail(&old, 1, at(0));
    let in_flight = old.slots[1].endpoint.begin(0);
    assert!(old.retry(RetryCause::Closed, at(0)));
    let mut wanted = config(&[(4, "b", 1), (2, "b", 7), (1, "a", 1)]);
    wanted.pool.idle_max = 1;
    let new = State::reconcile(&wanted, Some(&old), Connections::Kept).unwrap();
    // The old one goes on as it was until the new one is activated.
    assert_eq!(old.slots[2].endpoint.pool().len(), 1);
    let two = &new.stats().endpoints[1];
    assert_eq!((two.in_flight, two.ejected, two.pool.idle, two.weight), (1, true, 1, 7));
    assert_eq!(two.region.as_deref(), Some("b"));
    assert_eq!(retries(&new), [1, 0]);
    assert_eq!(new.stats().endpoints[0].pool.idle, 0);
    assert!(Arc::ptr_eq(&new.slots[2].endpoint, &old.slots[0].endpoint));
    new.activate(Some(&old), at(0));
    assert_eq!(
        old.slots[2].endpoint.pool().place(0, Usage::new(Mono::MIN)).put(9, at(0)),
        Some(9),
        "its pool is closed"
    );
    assert_eq!(
        new.slots[1].endpoint.pool().place(0, Usage::new(Mono::MIN)).put(9, at(0)),
        Some(1),
        "the new limit holds"
    );
    drop(in_flight);
    assert_eq!(new.stats().endpoints[1].in_flight, 0);
}

#[test]
fn connections_made_differently_are_never_reused() {
    let before = config(&[(1, "", 1)]);
    let before = ServiceConfig { pool: PoolConfig { connections_max: Some(1), ..before.pool }, ..before };
    let old = State::reconcile(&before, None, Connections::Kept).unwrap();
    let permit = old.slots[0].endpoint.permit();
    assert!(permit.is_some());
    assert_eq!(old.slots[0].endpoint.pool().place(0, Usage::new(Mono::MIN)).put(1, at(0)), None);
    fail(&old, 0, at(0));
    let same = State::reconcile(&before, Some(&old), Connections::Kept).unwrap();
    assert_eq!(same.slots[0].endpoint.pool().len(), 1, "a control");
    let new = State::reconcile(&before, Some(&old), Connections::Dropped).unwrap();
    new.activate(Some(&old), at(0));
    assert_eq!(new.slots[0].endpoint.pool().take(0, at(0), |_| true), None);
    // A request that began before the reload gives its connection back where it took it.
    assert_eq!(old.slots[0].endpoint.pool().place(0, Usage::new(Mono::MIN)).put(2, at(0)), Some(2));
    assert!(new.slots[0].endpoint.is_ejected(), "health stays");
    assert!(new.slots[0].endpoint.permit().is_none(), "and so does the limit");
    drop(permit);
    assert!(new.slots[0].endpoint.permit().is_some());
}

/// Retries that the budget allowed and refused, for all causes.
fn retries(state: &State) -> [u64; 2] {
    let retries = state.stats().retries;
    [0, 1].map(|at: usize| retries.iter().map(|(_, counts)| counts[at]).sum())
}

#[test]
fn a_new_budget_configuration_starts_a_new_budget() {
    let with = |budget| {
        let retry = RetryConfig { budget, ..RetryConfig::default() };
        ServiceConfig { retry, ..config(&[(1, "", 1)]) }
    };
    let wanted = with(BudgetConfig { capacity: 1, ..BudgetConfig::default() });
    let old = State::reconcile(&wanted, None, Connections::Kept).unwrap();
    let retry = |state: &State| state.retry(RetryCause::Status, at(0));
    old.begin();
    assert!(retry(&old) && !retry(&old));
    let same = State::reconcile(&wanted, Some(&old), Connections::Kept).unwrap();
    assert!(!retry(&same));
    assert_eq!((retries(&same), same.stats().retry_balance), ([1, 2], 0));
    let new = State::reconcile(&with(BudgetConfig::default()), Some(&old), Connections::Kept).unwrap();
    assert!(retry(&new));
    assert_eq!(retries(&new), [2, 2], "what was counted stays");
}

#[test]
fn a_service_that_leaves_keeps_no_connection() {
    let state = state(&[(1, "", 1)]);
    let endpoint = &state.slots[0].endpoint;
    assert_eq!(endpoint.pool().place(0, Usage::new(Mono::MIN)).put(1, at(0)), None);
    state.sweep(at(0));
    assert_eq!(endpoint.pool().len(), 1);
    state.sweep(at(0).saturating_add(Duration::from_secs(3600)));
    assert!(endpoint.pool().is_empty());
    state.retire();
    assert_eq!(endpoint.pool().place(0, Usage::new(Mono::MIN)).put(1, at(0)), Some(1));
}

#[test]
fn a_bad_configuration_is_refused() {
    let config = config(&[(1, "", 1), (1, "", 1)]);
    assert!(matches!(
        State::reconcile(&config, None, Connections::Kept).map(|_| ()),
        Err(ConfigError::Repeated { endpoint: 1, .. })
    ));
    let idle = state(&[(1, "", 0)]);
    assert!(idle.choose(&Selection::default(), &AttemptedEndpoints::new()).is_none());
}

proptest! {
    #[test]
    fn a_choice_is_never_tried_and_only_ejected_as_a_probe_or_when_nothing_else_is_left(
        endpoints in proptest::collection::vec((0_usize..3, 0_u32..4), 1..12),
        failed in proptest::collection::vec((0_usize..12, 1_u64..3000), 0..20),
        rounds in proptest::collection::vec((0_u64..5000, 0_usize..12), 1..20),
        round_robin in any::<bool>(),
    ) {
        let regions = ["a", "b", ""];
        let endpoints: Vec<_> = endpoints.iter().zip(1..).map(|((region, weight), port)| (port, regions[*region], *weight)).collect();
        let mut wanted = config(&endpoints);
        wanted.health.panic_percent = 0;
        if round_robin {
            wanted.balance = Balance::RoundRobin;
        }
        let state = State::reconcile(&wanted, None, Connections::Kept).unwrap();
        for (endpoint, millis) in failed {
            fail(&state, endpoint % endpoints.len(), at(millis));
        }
        let mut now = 3000;
        for (wait, attempts) in rounds {
            now += wait;
            let mut tried = AttemptedEndpoints::new();
            for _ in 0..attempts {
                let health = |index: usize| &state.slots[index].endpoint.shared.health;
                let left = |index: usize| endpoints[index].2 > 0 && !tried.contains(EndpointIndex(index as u16));
                let is_due = |index: usize| health(index).probe_due().is_none_or(|due| due <= at(now).nanos());
                let available = |index: usize| left(index) && is_due(index);
                let healthy = |index: usize| left(index) && !health(index).is_ejected();
                let count = 0..endpoints.len();
                let due: Vec<_> = count.clone().map(available).collect();
                let well: Vec<_> = count.clone().map(healthy).collect();
                let left: Vec<_> = count.clone().filter(|index| left(*index)).collect();
                let Some((choice, _)) = state.choose(&selection(at(now)), &tried) else {
                    prop_assert!(left.is_empty() || tried.is_full());
                    break;
                };
                let index = choice.endpoint.get();
                prop_assert!(left.contains(&index));
                prop_assert!(due[index] || !well.contains(&true));
                let is_local = |index: usize| endpoints[index].1 == "a";
                prop_assert!(is_local(index) || !count.clone().any(|index| is_local(index) && well[index]));
                tried.insert(choice.endpoint);
            }
        }
    }
}

fn led_to(state: &State, now: Mono, key: u32) -> usize {
    let affinity = Some(Affinity::of(&key.to_be_bytes()));
    let selection = Selection { worker: key as usize, affinity, ..selection(now) };
    state.choose(&selection, &AttemptedEndpoints::new()).unwrap().0.endpoint.get()
}

const KEYS: u32 = 20_000;

#[test]
fn a_key_leads_to_one_endpoint_whatever_the_order_and_keys_are_shared_out_by_weight() {
    let one = state(&[(1, "a", 1), (2, "a", 3), (3, "a", 4), (4, "b", 9), (5, "a", 0)]);
    let other = state(&[(4, "b", 9), (3, "a", 4), (2, "a", 3), (1, "a", 1)]);
    let mut counts = [0_u32; 5];
    for key in 0..KEYS {
        let index = led_to(&one, at(0), key);
        counts[index] += 1;
        assert_eq!(led_to(&other, at(0), key), 3 - index, "{key}");
    }
    assert_eq!(counts[3..], [0, 0]);
    for (count, weight) in counts.into_iter().zip([1, 3, 4]) {
        let expected = KEYS * weight / 8;
        assert!(count.abs_diff(expected) < KEYS / 50, "{counts:?}");
    }
}

#[test]
fn changed_endpoints_move_no_keys_of_others() {
    let all = [(1, "a", 2), (2, "a", 1), (3, "a", 3), (4, "a", 1)];
    let before = state(&all);
    let without = state(&all[..3]);
    let mut heavier = all;
    heavier[0].2 = 3;
    let heavier = state(&heavier);
    for key in 0..KEYS {
        let index = led_to(&before, at(0), key);
        if index != 3 {
            assert_eq!(led_to(&without, at(0), key), index, "{key}");
        }
        let now = led_to(&heavier, at(0), key);
        assert!(now == index || now == 0, "{key}");
    }
}

#[test]
fn keys_of_an_unavailable_endpoint_are_distributed_until_it_returns() {
    let state = state(&[(1, "a", 1), (2, "a", 1), (3, "a", 1), (4, "b", 1)]);
    let before: Vec<usize> = (0..KEYS).map(|key| led_to(&state, at(0), key)).collect();
    fail(&state, 1, at(1));
    let mut moved = [0_u32; 4];
    for (key, index) in (0..KEYS).zip(&before) {
        let now = led_to(&state, at(2), key);
        if *index == 1 {
            moved[now] += 1;
        } else {
            assert_eq!(now, *index, "{key}");
        }
    }
    assert!(moved[0].abs_diff(moved[2]) < KEYS / 50 && moved[1] + moved[3] == 0, "{moved:?}");
    // A key that leads elsewhere is no probe; the first that leads there is.
    let moved_key = before.iter().position(|index| *index == 1).unwrap();
    let kept_key = before.iter().position(|index| *index == 0).unwrap();
    let [moved_key, kept_key] = [moved_key, kept_key].map(|key| u32::try_from(key).unwrap());
    assert_eq!(led_to(&state, at(2_000), kept_key), 0);
    assert_eq!(led_to(&state, at(2_000), moved_key), 1);
    answer(&state, 1, at(2_000), 200);
    assert!((0..KEYS).map(|key| led_to(&state, at(2_000), key)).eq(before));
    // What was tried is passed by, and behind the last of the region comes the next region.
    let mut tried = AttemptedEndpoints::new();
    let affinity = Some(Affinity::of(b"key"));
    let order = std::iter::from_fn(|| {
        let (choice, _) = state.choose(&Selection { affinity, ..selection(at(2_000)) }, &tried)?;
        tried.insert(choice.endpoint);
        Some(choice.endpoint.get())
    });
    let order: Vec<usize> = order.collect();
    assert_eq!((order.len(), order[3]), (4, 3));
}

#[test]
fn a_key_moves_on_from_an_endpoint_with_more_than_its_share_of_the_load() {
    let state = state(&[(1, "a", 1), (2, "a", 1), (3, "a", 1)]);
    let home = led_to(&state, at(1), 7);
    let endpoint = &state.slots[home].endpoint;
    let mut held: Vec<_> = (0..7).map(|_| endpoint.begin(0)).collect();
    assert_eq!(led_to(&state, at(100), 7), home, "a few requests are no load");
    held.extend((0..20).map(|_| endpoint.begin(0)));
    let away = led_to(&state, at(200), 7);
    assert_ne!(away, home);
    assert_eq!(led_to(&state, at(200), 7), away, "to the same for all its requests");
    let others = state.slots.iter().filter(|slot| !Arc::ptr_eq(&slot.endpoint, endpoint));
    held.extend(others.flat_map(|slot| (0..27).map(|_| slot.endpoint.begin(0))).collect::<Vec<_>>());
    assert_eq!(led_to(&state, at(300), 7), home, "where all have much to do, it is within its share");
}

#[test]
fn endpoints_of_a_lower_priority_wait_until_all_others_are_unhealthy() {
    let with = |port, priority| EndpointConfig { priority, ..endpoint(port, "", 1) };
    let endpoints = vec![with(1, 20), with(2, 10), with(3, 10)];
    let state =
        State::reconcile(&ServiceConfig { endpoints, ..config(&[]) }, None, Connections::Kept).unwrap();
    let none = AttemptedEndpoints::new();
    let all = |from: u64| -> std::collections::BTreeSet<_> {
        (from..from + 100).filter_map(|millis| chosen(&state, at(millis), &none)).collect()
    };
    assert_eq!(all(1_000), [1, 2].into());
    // A retry goes to the next priority when none of the first is left.
    let mut tried = AttemptedEndpoints::new();
    for expected in [&[1, 2][..], &[1, 2], &[0]] {
        let next = chosen(&state, at(1_200), &tried).unwrap();
        assert!(expected.contains(&next), "{next}");
        tried.insert(state.endpoints().nth(next).unwrap().0);
    }
    fail(&state, 1, at(2_000));
    assert_eq!(all(2_100), [2].into());
    fail(&state, 2, at(2_300));
    assert_eq!(all(2_400), [0].into());
    let stats = state.stats().regions;
    assert_eq!((stats.len(), stats[0].endpoints, stats[0].share), (1, 3, 1.0), "one region: {stats:?}");
    // Both are probed by requests that would go to the other.
    let probed = all(5_000);
    assert!(probed.contains(&1) && probed.contains(&2), "{probed:?}");
    assert_eq!(state.config().endpoints.iter().map(|one| one.priority).collect::<Vec<_>>(), [20, 10, 10]);
}

//! Tests of what becomes of a service whose endpoints fail.

use super::*;

fn with(count: u16, change: impl FnOnce(&mut ServiceConfig)) -> Arc<State> {
    let endpoints: Vec<_> = (1..=count).map(|port| (port, "a", 1)).collect();
    let mut wanted = config(&endpoints);
    change(&mut wanted);
    State::reconcile(&wanted, None, Connections::Kept).unwrap()
}

fn ejected(state: &State) -> Vec<usize> {
    let endpoints = state.endpoints().filter(|(_, endpoint)| endpoint.is_ejected());
    endpoints.map(|(index, _)| index.get()).collect()
}

/// How often each endpoint is chosen by so many requests that end at once, one each millisecond.
fn counts(state: &State, from: u64, requests: u64, answer: impl Fn(usize, u64) -> u16) -> Vec<u64> {
    let mut counts = vec![0; state.slots.len()];
    for now in from..from + requests {
        let index = chosen(state, at(now), &AttemptedEndpoints::new()).unwrap();
        counts[index] += 1;
        super::answer(state, index, at(now), answer(index, now));
    }
    counts
}

#[test]
fn failures_that_requests_cause_eject_no_more_than_may_be() {
    for (count, percent, most) in
        [(1, 50, 0), (2, 50, 1), (3, 50, 1), (4, 50, 2), (10, 30, 3), (10, 100, 9), (3, 0, 0), (3, 1, 1)]
    {
        let state = with(count, |config| config.health.ejected_percent_max = percent);
        for now in 1..50 {
            for endpoint in 0..usize::from(count) {
                answer(&state, endpoint, at(now), 503);
            }
        }
        assert_eq!(ejected(&state).len(), most, "{count} endpoints, {percent} %");
        // Those that can't be reached are ejected all the same.
        (0..usize::from(count)).for_each(|endpoint| fail(&state, endpoint, at(50)));
        assert_eq!(ejected(&state).len(), usize::from(count));
    }
}

#[test]
fn endpoints_without_weight_do_not_count_among_those_that_may_be_ejected() {
    let state = state(&[(1, "a", 1), (2, "a", 0), (3, "a", 0), (4, "a", 0)]);
    (1..50).for_each(|now| answer(&state, 0, at(now), 503));
    assert_eq!(ejected(&state), []);
}

#[test]
fn many_threads_eject_no_more_than_may_be() {
    for _ in 0..20 {
        let state = with(8, |config| config.health.ejected_percent_max = 25);
        std::thread::scope(|scope| {
            for endpoint in 0..8 {
                let state = &state;
                scope.spawn(move || (1..20).for_each(|now| answer(state, endpoint, at(now), 503)));
            }
        });
        assert_eq!(ejected(&state).len(), 2);
    }
}

#[test]
fn where_few_are_healthy_all_are_used_until_enough_are() {
    let state = with(10, |config| config.health.panic_percent = 30);
    (0..7).for_each(|endpoint| fail(&state, endpoint, at(1)));
    assert_eq!(counts(&state, 100, 200, |_, _| 200)[..7].iter().sum::<u64>(), 0);
    assert_eq!((state.stats().panics, state.stats().panicking), (0, false));
    fail(&state, 7, at(300));
    let used = counts(&state, 400, 200, |index, _| if index < 8 { 502 } else { 200 });
    assert!(used[..8].iter().sum::<u64>() > 0, "{used:?}");
    assert!(state.stats().panicking && state.stats().panics > 0);
    // A success counts wherever it comes from.
    counts(&state, 700, 200, |_, _| 200);
    assert!(!state.stats().panicking);
}

#[test]
fn an_endpoint_that_fails_at_once_gets_little_even_where_it_may_not_be_ejected() {
    let state = with(2, |config| config.health.ejected_percent_max = 0);
    let used = counts(&state, 1, 2_000, |index, _| if index == 0 { 503 } else { 200 });
    assert!(used[0] < 20, "{used:?}");
    assert_eq!(ejected(&state), []);
}

#[test]
fn a_slow_endpoint_gets_less_and_one_that_is_faster_by_chance_does_not_get_more() {
    for (slow, most) in [(Duration::from_millis(100), 20), (Duration::from_micros(1_400), 1_200)] {
        let state = with(2, |_| {});
        let mut slow_ones = 0;
        for now in 1..=2_000 {
            let index = chosen(&state, at(now), &AttemptedEndpoints::new()).unwrap();
            slow_ones += usize::from(index == 0);
            let latency = Some(if index == 0 { slow } else { Duration::from_millis(1) });
            state.responded(choice(index, at(now)), at(now), 200, latency);
        }
        assert!(slow_ones < most && (most < 100 || slow_ones > 800), "{slow:?}: {slow_ones}");
    }
}

#[test]
fn an_endpoint_that_comes_back_gets_more_and_more() {
    for balance in [Balance::PeakEwma, Balance::LeastRequests, Balance::RoundRobin] {
        let state = with(4, |config| config.balance = balance);
        counts(&state, 1, 100, |_, _| 200);
        fail(&state, 2, at(200));
        assert_eq!(counts(&state, 300, 500, |_, _| 200)[2], 0);
        // The probe is the first request once it is due.
        let shares: Vec<u64> =
            (0..6).map(|second| counts(&state, 1_500 + second * 1_000, 1_000, |_, _| 200)[2]).collect();
        assert!(shares[0] > 0 && shares[0] < 80, "{shares:?}");
        assert!(shares.windows(2).take(4).all(|pair| pair[0] < pair[1] + 10), "{shares:?}");
        assert!(shares[5].abs_diff(250) < 50, "{shares:?}");
    }
}

#[test]
fn one_that_flaps_is_ejected_for_longer_each_time_and_back_within_the_longest() {
    let state = with(3, |_| {});
    let (mut now, mut away) = (1, Vec::new());
    for _ in 0..5 {
        fail(&state, 1, at(now));
        let from = now;
        while state.slots[1].endpoint.is_ejected() {
            now += 20;
            counts(&state, now, 1, |_, _| 200);
        }
        away.push(now - from);
        now += 1_000;
    }
    assert!(away[0] < 1_300 && away[1] > away[0] && away[2] > away[1], "{away:?}");
    assert!(away.iter().all(|away| *away <= 6_100), "{away:?}");
}

#[test]
fn a_reload_keeps_ejections_and_starts_new_endpoints_slowly() {
    let old = with(3, |_| {});
    counts(&old, 1, 100, |_, _| 200);
    fail(&old, 1, at(100));
    let wanted = config(&[(2, "a", 1), (3, "a", 1), (4, "a", 1)]);
    let new = State::reconcile(&wanted, Some(&old), Connections::Kept).unwrap();
    new.activate(Some(&old), at(200));
    assert_eq!(ejected(&new), [0]);
    let used = counts(&new, 201, 500, |_, _| 200);
    assert_eq!(used[0], 0);
    assert!(used[2] > 0 && used[2] < 100, "{used:?}");
    // What the old configuration still hears of an endpoint holds for the new one.
    let probed = chosen(&old, at(2_000), &AttemptedEndpoints::new()).unwrap();
    assert_eq!(probed, 1);
    answer(&old, probed, at(2_000), 200);
    assert_eq!(ejected(&new), []);
    // One that is removed while it is ejected is forgotten, and none is left in its place.
    fail(&new, 0, at(3_000));
    let last = State::reconcile(&config(&[(3, "a", 1), (4, "a", 1)]), Some(&new), Connections::Kept).unwrap();
    last.activate(Some(&new), at(3_001));
    fail(&new, 0, at(3_002));
    assert_eq!(ejected(&last), []);
    assert!(counts(&last, 10_000, 100, |_, _| 200).iter().all(|count| *count > 20));
    // One that comes back by a reload is new.
    let again = State::reconcile(&wanted, Some(&last), Connections::Kept).unwrap();
    assert_eq!(ejected(&again), []);
}

#[test]
fn a_client_that_leaves_shows_how_long_it_waited_and_no_failure() {
    let state = with(2, |_| {});
    for now in 1..100 {
        answer(&state, 1, at(now), 200);
        state.abandoned(choice(0, at(now)), at(now), Duration::from_secs(2));
    }
    assert_eq!(ejected(&state), []);
    assert!(
        state.stats().endpoints.iter().all(|endpoint| endpoint.failures.iter().all(|(_, count)| *count == 0))
    );
    let used: Vec<_> =
        (100..200).filter_map(|now| chosen(&state, at(now), &AttemptedEndpoints::new())).collect();
    assert!(used.iter().filter(|index| **index == 0).count() < 5);
    // A quick one says nothing.
    state.abandoned(choice(1, at(200)), at(200), Duration::ZERO);
    assert!(state.stats().endpoints[1].latency.unwrap() >= Duration::from_millis(1));
}

#[test]
fn an_endpoint_that_asks_for_less_gets_less_for_a_while() {
    let state = with(2, |config| config.balance = Balance::RoundRobin);
    state.eased(choice(0, at(1)), at(1), Duration::from_secs(1));
    let used = counts(&state, 1, 1_000, |_, _| 200);
    assert!(used[0] > 30 && used[0] < 150, "{used:?}");
    let used = counts(&state, 2_000, 1_000, |_, _| 200);
    assert_eq!(used, [500, 500]);
}

#[test]
fn a_probe_that_would_be_lost_waits_for_a_better_one() {
    let state = with(2, |_| {});
    (1..=5).for_each(|now| answer(&state, 0, at(now), 503));
    assert_eq!(ejected(&state), [0]);
    let choose = |now, may_be_lost| {
        let selection = Selection { may_be_lost, ..selection(at(now)) };
        state.choose(&selection, &AttemptedEndpoints::new()).unwrap().0.endpoint.get()
    };
    assert_eq!(choose(1_500, true), 1);
    assert_eq!(choose(1_530, false), 0, "the probe");
    assert_eq!(choose(1_560, false), 1);
}

#[test]
fn time_that_stands_still_or_goes_back_ejects_and_readmits_nobody_wrongly() {
    let state = with(3, |_| {});
    fail(&state, 0, at(10_000));
    assert_ne!(chosen(&state, at(10), &AttemptedEndpoints::new()), Some(0));
    answer(&state, 0, at(10), 200);
    assert_eq!(ejected(&state), [0], "that request was begun before");
    (0..50).for_each(|_| answer(&state, 1, at(20), 503));
    (0..50).for_each(|_| answer(&state, 2, at(20), 200));
    assert_eq!(ejected(&state), [0], "one is ejected already");
}

//! Tests of an endpoint's health.

use super::*;

fn at(millis: u64) -> Mono {
    Mono::from_nanos(millis * 1_000_000)
}

/// Half of the spread, so that times are as configured.
const MIDDLE: u64 = 1 << 63;

const CONFIG: fn() -> HealthConfig = HealthConfig::default;

fn failure(kind: FailureKind, chosen: u64, now: u64) -> Failure {
    Failure { kind, chosen: at(chosen), now: at(now), random: MIDDLE }
}

/// A failure of an attempt that began and ended at this time, as if all attempts had failed; the ejection's length.
fn fail(health: &Health, kind: FailureKind, now: u64) -> Option<(EjectionCause, u128)> {
    let ejection = health.failed(failure(kind, now, now), &CONFIG(), || 0.0, || true)?;
    Some((ejection.cause, ejection.lasts.as_millis()))
}

/// Five failures that a request can cause.
fn eject(health: &Health) {
    let ejections = (1..=5).filter_map(|now| fail(health, FailureKind::Closed, now));
    assert_eq!(ejections.count(), 1);
}

#[test]
fn a_connect_failure_ejects_at_once_and_other_failures_after_five() {
    for kind in FailureKind::ALL {
        let health = Health::default();
        if kind.is_unreachable() {
            assert_eq!(fail(&health, kind, 1), Some((EjectionCause::Connect, 1_000)));
            continue;
        }
        for now in 1..5 {
            assert_eq!(fail(&health, kind, now), None, "{}", kind.as_str());
        }
        assert!(!health.is_ejected());
        assert_eq!(fail(&health, kind, 5), Some((EjectionCause::ConsecutiveFailures, 1_000)));
        assert!(health.is_ejected());
    }
}

#[test]
fn a_success_in_between_begins_the_count_again() {
    let health = Health::default();
    for now in 1..100 {
        assert_eq!(fail(&health, FailureKind::Closed, now), None);
        if now % 4 == 0 {
            assert!(!health.succeeded(at(now), at(now)));
        }
    }
}

#[test]
fn half_of_the_attempts_eject_if_they_are_enough() {
    let health = Health::default();
    let ended = std::cell::Cell::new(0.0);
    let fail = |now: u64| {
        let failure = failure(FailureKind::Status, now, now);
        health.failed(failure, &CONFIG(), || ended.get(), || true).map(|ejection| ejection.cause)
    };
    for count in 1..10_u32 {
        ended.set(f64::from(count) * 2.0);
        assert_eq!(fail(u64::from(count)), None);
        health.succeeded(at(0), at(0));
    }
    ended.set(22.0);
    assert_eq!(fail(10), None, "ten of twenty-two");
    health.succeeded(at(0), at(0));
    assert_eq!(fail(11), Some(EjectionCause::FailureRatio), "eleven of them");
}

#[test]
fn disabled_detectors_eject_no_endpoint() {
    let config =
        HealthConfig { consecutive_failures: None, failure_percent: None, ..HealthConfig::default() };
    let health = Health::default();
    for now in 1..1_000 {
        let failure = failure(FailureKind::Closed, now, now);
        assert_eq!(health.failed(failure, &config, || 1.0, || true), None);
    }
}

#[test]
fn at_the_ejection_limit_only_unreachable_endpoints_are_ejected() {
    let health = Health::default();
    let fail = |kind, now| health.failed(failure(kind, now, now), &CONFIG(), || 1_000.0, || false);
    assert!((1..1_000).all(|now| fail(FailureKind::Malformed, now).is_none()));
    assert!(fail(FailureKind::ConnectTimeout, 1_000).is_some());
}

#[test]
fn one_probe_at_a_time_brings_an_endpoint_back_with_a_slow_start() {
    let health = Health::default();
    let slow_start = Duration::from_secs(5);
    assert!((health.share(at(10), slow_start) - 1.0).abs() < 1e-6);
    fail(&health, FailureKind::Connect, 10);
    assert_eq!(health.probe_due(), Some(at(1_010).nanos()));
    assert!(!health.claim_probe(at(1_009), false, false));
    assert!(health.claim_probe(at(1_010), false, false));
    assert!(!health.claim_probe(at(1_010), false, false), "one at a time");
    assert!(health.succeeded(at(1_010), at(1_020)), "news");
    assert!(!health.succeeded(at(1_010), at(1_021)), "no news");
    let share = |millis| (health.share(at(millis), slow_start) * 100.0).round() as u32;
    assert_eq!([1_020, 1_520, 2_020, 3_520, 6_019].map(share), [10, 10, 20, 50, 100]);
    assert_eq!(share(6_020), 100);
    assert_eq!(health.returned.load(Relaxed), 0, "nothing more is computed");
}

#[test]
fn a_connection_brings_back_only_who_could_not_be_connected_to() {
    let health = Health::default();
    fail(&health, FailureKind::Connect, 10);
    assert!(!health.connected(at(9), at(20)), "it was begun before");
    assert!(health.connected(at(10), at(20)));
    let health = Health::default();
    eject(&health);
    assert!(health.is_ejected() && !health.connected(at(10), at(20)) && health.is_ejected());
}

#[test]
fn results_of_requests_from_before_an_ejection_are_ignored() {
    let health = Health::default();
    eject(&health);
    assert!(!health.succeeded(at(4), at(100)));
    assert_eq!(fail(&health, FailureKind::Connect, 100), None, "of a request in panic, say");
    assert!(health.claim_probe(at(2_000), false, false));
    let old = failure(FailureKind::Closed, 1_999, 2_001);
    assert_eq!(health.failed(old, &CONFIG(), || 0.0, || true), None);
    assert!(!health.succeeded(at(1_999), at(2_001)));
    assert_eq!(fail(&health, FailureKind::Closed, 2_002), Some((EjectionCause::Probe, 2_000)));
    // Nor is a failure of an attempt from before the return.
    assert!(health.claim_probe(at(5_000), false, false) && health.succeeded(at(5_000), at(5_001)));
    for now in 5_001..5_100 {
        let old = failure(FailureKind::Connect, 4_999, now);
        assert_eq!(health.failed(old, &CONFIG(), || 0.0, || true), None);
    }
}

#[test]
fn ejections_last_longer_each_time_until_the_endpoint_was_steady() {
    let health = Health::default();
    let mut now = 1;
    for lasts in [1_000, 2_000, 4_000, 5_000, 5_000] {
        let cause = if lasts == 1_000 { EjectionCause::Connect } else { EjectionCause::Probe };
        assert_eq!(fail(&health, FailureKind::Connect, now), Some((cause, lasts)));
        now += u64::try_from(lasts).unwrap();
        assert!(health.claim_probe(at(now), false, false));
    }
    assert!(health.succeeded(at(now), at(now)));
    // One that flaps is not believed.
    assert_eq!(fail(&health, FailureKind::Connect, now + 59_999), Some((EjectionCause::Connect, 5_000)));
    assert!(
        health.claim_probe(at(now + 65_000), false, false)
            && health.succeeded(at(now + 65_000), at(now + 65_000))
    );
    assert_eq!(fail(&health, FailureKind::Connect, now + 125_000), Some((EjectionCause::Connect, 1_000)));
}

#[test]
fn ejections_are_spread() {
    let lasts = |random| {
        let failure = Failure { random, ..failure(FailureKind::Connect, 1, 1) };
        Health::default().failed(failure, &CONFIG(), || 0.0, || true).unwrap().lasts.as_millis()
    };
    assert_eq!((lasts(0), lasts(u64::MAX)), (800, 1_199));
}

#[test]
fn a_request_that_would_be_lost_is_no_probe_before_nothing_better_came_for_long() {
    let health = Health::default();
    eject(&health);
    assert!(!health.claim_probe(at(2_004), true, false));
    assert!(health.claim_probe(at(2_005), true, false));
    let health = Health::default();
    fail(&health, FailureKind::Connect, 1);
    assert!(health.claim_probe(at(1_001), true, false), "nothing is sent where there is no connection");
}

#[test]
fn a_probe_that_never_ends_is_followed_by_another() {
    let health = Health::default();
    fail(&health, FailureKind::Connect, 1);
    assert!(health.claim_probe(at(1_001), false, false));
    assert!(!health.claim_probe(at(2_000), false, false));
    assert!(health.claim_probe(at(2_001), false, false));
}

#[test]
fn of_many_threads_one_gets_the_probe() {
    for round in 1..50 {
        let health = Health::default();
        fail(&health, FailureKind::Connect, round);
        let start = std::sync::Barrier::new(4);
        let claims = std::thread::scope(|scope| {
            let claim = || {
                start.wait();
                health.claim_probe(at(round + 1_000), false, false)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|got| *got).count()
        });
        assert_eq!(claims, 1);
    }
}

#[test]
fn retry_after_reduces_an_endpoints_share_for_a_while() {
    let health = Health::default();
    let slow_start = Duration::from_secs(5);
    health.ease(at(1), Duration::from_secs(3_600));
    assert!(health.share(at(10_000), slow_start) < 0.2);
    assert!((health.share(at(10_001), slow_start) - 1.0).abs() < 1e-6);
}

#[test]
fn an_endpoint_that_is_down_by_its_checks_is_not_probed_and_comes_back_slowly() {
    let health = Health::default();
    eject(&health);
    health.set_down();
    assert!(!health.is_available() && health.is_ejected());
    assert_eq!(health.probe_due(), Some(u64::MAX));
    assert!(!health.claim_probe(at(1_000_000), false, false), "checks say that it is down");
    health.set_up(at(2_000));
    assert!(!health.is_available(), "its traffic has ejected it");
    assert!(health.claim_probe(at(2_000), false, false), "due at once");
    assert!(health.succeeded(at(2_000), at(2_001)));
    assert!(health.is_available());
    assert!(health.share(at(2_001), CONFIG().slow_start) < 0.2);
}

#[test]
fn a_first_check_that_passes_begins_no_slow_start() {
    let health = Health::default();
    health.set_up(at(5));
    assert!(health.share(at(5), CONFIG().slow_start) >= 1.0);
}

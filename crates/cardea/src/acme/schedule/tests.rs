//! Tables of delays and renewal times.

use super::*;

const NOW: Wall = Wall::from_unix_seconds(1_900_000_000);
const DAY: u64 = 86_400;

fn seconds(until: Wall) -> u64 {
    until.saturating_since(NOW).as_secs()
}

#[test]
fn waits_double_up_to_a_bound_for_each_reason() {
    for (reason, expected) in [
        (FailureReason::Unreachable, [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]),
        (FailureReason::Challenge, [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 43_200]),
        (FailureReason::RateLimited, [3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 86_400, 86_400, 86_400]),
    ] {
        for (failures, wait) in (1..).zip(expected) {
            let next = next_attempt(reason, failures, None, 0, NOW);
            assert_eq!(seconds(next), wait, "{reason:?} {failures}");
        }
        for failures in [0, 32, 33, u32::MAX] {
            let next = next_attempt(reason, failures, None, u32::MAX, NOW);
            assert!((30..=DAY * 5 / 4).contains(&seconds(next)), "{reason:?} {failures}");
        }
    }
}

#[test]
fn failed_validations_stay_below_what_public_authorities_allow_in_an_hour() {
    let (mut at, mut attempts) = (NOW, 0);
    while seconds(at) < 3_600 {
        attempts += 1;
        at = next_attempt(FailureReason::Challenge, attempts, None, 0, at);
    }
    assert!(attempts < 5, "{attempts}");
}

#[test]
fn chance_adds_up_to_a_quarter() {
    for (chance, wait) in [(0, 300), (1 << 31, 337), (u32::MAX, 374)] {
        assert_eq!(seconds(next_attempt(FailureReason::Challenge, 1, None, chance, NOW)), wait);
    }
}

#[test]
fn the_authority_is_not_asked_before_it_wants_to_be() {
    let until = |wait| Some(NOW.saturating_add(Duration::from_secs(wait)));
    for (asked, wait) in [(10, 30), (1_000, 1_000), (DAY, DAY), (400 * DAY, DAY)] {
        assert_eq!(
            seconds(next_attempt(FailureReason::Unreachable, 1, until(asked), 0, NOW)),
            wait,
            "{asked}"
        );
    }
}

#[test]
fn retry_after_is_seconds_or_a_date_and_never_more_than_a_day() {
    // 1,900,000,000 is 2030-03-17T17:46:40Z.
    for (value, wait) in [
        ("0", Some(0)),
        (" 120 ", Some(120)),
        ("86401", Some(DAY)),
        ("18446744073709551615", Some(DAY)),
        ("99999999999999999999999", Some(DAY)),
        ("Sun, 17 Mar 2030 17:46:41 GMT", Some(1)),
        ("Sun, 17 Mar 2030 18:46:40 GMT", Some(3_600)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Some(DAY)),
        ("Sun, 17 Mar 2030 18:46:40", None),
        ("Sun, 17 Mar 2030 18:46 GMT", None),
        // The two obsolete formats, which a recipient must accept.
        ("Sunday, 06-Nov-94 08:49:37 GMT", Some(0)),
        ("Sun Nov  6 08:49:37 1994", Some(0)),
        ("Sun, 17 Foo 2030 18:46:40 GMT", None),
        ("Sun, 99 Mar 2030 18:46:40 GMT", None),
        ("Sun, +1 Mar 2030 18:46:40 GMT", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
    ] {
        assert_eq!(retry_after(value, NOW).map(seconds), wait, "{value:?}");
    }
}

#[test]
fn a_certificate_is_renewed_while_a_part_of_its_lifetime_is_left() {
    for (days, percent, left) in [(90, 33, 29.7), (90, 50, 45.0), (6, 33, 1.98), (365, 5, 18.25)] {
        let not_after = NOW.saturating_add(Duration::from_secs(days * DAY));
        let on = |chance| {
            not_after.saturating_since(renewal((NOW, not_after), NOW, percent, chance)).as_secs_f64()
        };
        assert!((on(0) / 86_400.0 - left).abs() < 0.001, "{days} {percent}");
        let spread = (on(u32::MAX) - on(0)) / 86_400.0;
        assert!((spread - days as f64 * 0.02).abs() < 0.001, "{spread}");
    }
    let not_after = NOW.saturating_add(Duration::from_secs(100));
    let after = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    assert_eq!(renewal((NOW, not_after), NOW, 90, u32::MAX), after(10), "a tenth at least");
    let long_before = NOW.saturating_sub(Duration::from_secs(DAY));
    assert_eq!(renewal((long_before, not_after), NOW, 33, 7), after(10), "dated back");
    assert_eq!(renewal((NOW, NOW), NOW, 33, 7), NOW, "nothing to divide");
}

#[test]
fn a_certificate_is_renewed_when_its_authority_suggests_it() {
    let at = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    // A certificate for 90 days.
    let renewed = |from, until, chance| seconds(suggested((at(from), at(until)), at(90 * DAY), NOW, chance));
    assert_eq!(renewed(59 * DAY, 61 * DAY, 0), 59 * DAY);
    assert_eq!(renewed(59 * DAY, 61 * DAY, 1 << 31), 60 * DAY);
    assert!((61 * DAY - 1..=61 * DAY).contains(&renewed(59 * DAY, 61 * DAY, u32::MAX)));
    let (past, over) =
        (NOW.saturating_sub(Duration::from_secs(DAY)), NOW.saturating_sub(Duration::from_secs(60)));
    assert_eq!(seconds(suggested((past, over), at(90 * DAY), NOW, 7)), 3_600, "as soon as may be");
    assert_eq!(renewed(200 * DAY, 300 * DAY, 7), 81 * DAY, "not when it is too late");
    // A certificate for 100 seconds.
    for (from, until, expected) in [(0, 1, 10), (50, 51, 50), (99, 100, 90)] {
        assert_eq!(seconds(suggested((at(from), at(until)), at(100), NOW, 0)), expected, "{from}");
    }
    assert_eq!(suggested((at(5), at(6)), NOW, NOW, 0), NOW, "nothing to divide");
}

#[test]
fn an_authority_is_asked_about_renewal_within_a_day_and_not_every_second() {
    for (wait, expected) in [(Some(0), 60), (Some(21_600), 21_600), (Some(400 * DAY), DAY), (None, 21_600)] {
        assert_eq!(seconds(next_question(wait.map(Duration::from_secs), NOW)), expected, "{wait:?}");
    }
}

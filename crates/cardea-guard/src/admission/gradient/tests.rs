//! Windows, one after the other, with services whose times are known.

use super::*;

const BOUNDS: AdaptiveBounds = AdaptiveBounds { floor: 8, ceiling: 1_000 };
const MS: u64 = 1_000_000;

/// A limit, and a clock that goes on with its windows.
struct Windows {
    gradient: Gradient,
    now: Mono,
}

impl Windows {
    fn new(classes: usize) -> Self {
        let now = Mono::from_nanos(1 << 40);
        Self { gradient: Gradient::new(BOUNDS, classes, None, now), now }
    }

    /// A window in which a hundred responses of each class take so many milliseconds. Before it, there is time for a surge to end.
    fn window(&mut self, milliseconds: &[u64], is_full: bool, in_flight: u32) -> u32 {
        let responses: Vec<_> = milliseconds
            .iter()
            .map(|time| Responses { count: u64::from(*time > 0) * 100, nanos: time * MS * 100 })
            .collect();
        self.now = self.now.max(self.gradient.opens()).saturating_add(Duration::from_secs(10));
        self.gradient.add(&responses);
        assert!(self.gradient.is_due(self.now));
        self.gradient.end_window(Usage { is_full, in_flight }, self.now);
        self.gradient.limit()
    }

    /// Windows at the limit of a service with slots, in which requests take so long if none waits.
    fn loaded(&mut self, windows: usize, slots: u32, milliseconds: u64) -> Vec<u32> {
        let mut limits = Vec::new();
        for _ in 0..windows {
            let limit = self.gradient.limit();
            let time = milliseconds * u64::from(limit.max(slots)) / u64::from(slots);
            limits.push(self.window(&[time], true, limit));
        }
        limits
    }
}

#[test]
fn a_limit_comes_near_to_the_slots_of_a_service_and_stays_there() {
    for slots in [16, 40, 300] {
        let mut windows = Windows::new(1);
        windows.loaded(30, slots, 50);
        let limits = windows.loaded(40, slots, 50);
        let least = limits.iter().min().unwrap();
        let most = limits.iter().max().unwrap();
        assert!(*least >= slots * 7 / 10, "{slots}: {limits:?}");
        assert!(*most <= slots * 2, "{slots}: {limits:?}");
    }
}

#[test]
fn a_limit_stays_between_its_bounds() {
    let mut windows = Windows::new(1);
    assert_eq!(windows.loaded(40, 100_000, 50).last(), Some(&1_000));
    assert_eq!(windows.loaded(40, 2, 50).iter().min(), Some(&8));
    let wrong = AdaptiveBounds { floor: 9, ceiling: 4 };
    assert_eq!(Gradient::new(wrong, 1, Some(70), Mono::from_nanos(0)).limit(), 4);
}

#[test]
fn a_limit_follows_slots_that_are_lost_and_come_back() {
    let mut windows = Windows::new(1);
    windows.loaded(40, 100, 50);
    assert!(*windows.loaded(6, 50, 50).last().unwrap() <= 100);
    assert!(*windows.loaded(12, 100, 50).last().unwrap() >= 90);
}

/// If a lower limit does not change how long requests take, it isn't because there are too many.
#[test]
fn a_service_that_is_slower_keeps_its_limit() {
    let mut windows = Windows::new(1);
    windows.loaded(40, 100, 50);
    let limits = windows.loaded(20, 100, 150);
    assert!(*limits.last().unwrap() >= 80, "{limits:?}");
}

#[test]
fn more_requests_of_a_slow_kind_are_no_overload() {
    let mut windows = Windows::new(2);
    for _ in 0..6 {
        windows.window(&[5, 500], false, 30);
    }
    let limit = windows.window(&[5, 500], true, 32);
    assert!(windows.window(&[0, 500], true, limit) >= limit, "only the slow kind");
    // The control: it would be with one kind.
    let mut windows = Windows::new(1);
    for _ in 0..6 {
        windows.window(&[5], false, 30);
    }
    let limit = windows.window(&[5], true, 32);
    assert!(windows.window(&[500], true, limit) < limit);
}

#[test]
fn a_limit_that_is_not_reached_is_not_raised_and_comes_within_reach_again() {
    let mut windows = Windows::new(1);
    windows.loaded(20, 100_000, 50);
    assert_eq!(windows.gradient.limit(), 1_000);
    let mut last = 1_000;
    for _ in 0..600 {
        let limit = windows.window(&[50], false, 60);
        assert!(limit <= last);
        last = limit;
    }
    assert_eq!(last, 120);
    // However slow it is: there is room.
    assert_eq!(windows.window(&[5_000], false, 60), 120);
}

/// The first responses of a surge are those of quick requests, and would make others look slow.
#[test]
fn responses_right_after_a_surge_do_not_count() {
    let start = Mono::from_nanos(1 << 40);
    let mut gradient = Gradient::new(BOUNDS, 1, None, start);
    let usage = Usage { is_full: true, in_flight: 32 };
    let mut now = start;
    for _ in 0..5 {
        now = now.saturating_add(Duration::from_millis(100));
        gradient.add(&[Responses { count: 100, nanos: 100 * 90 * MS }]);
        assert!(gradient.is_due(now));
        gradient.end_window(usage, now);
        assert_eq!(gradient.limit(), 32);
    }
    now = now.saturating_add(Duration::from_millis(100));
    gradient.add(&[Responses { count: 100, nanos: 100 * 90 * MS }]);
    gradient.end_window(usage, now);
    assert_eq!(gradient.limit(), 64, "six times the mean has passed");
}

#[test]
fn few_responses_end_no_window_however_long_it_lasts() {
    let start = Mono::from_nanos(1 << 40);
    let mut gradient = Gradient::new(BOUNDS, 2, None, start);
    gradient.add(&[Responses { count: 60, nanos: MS }, Responses { count: 39, nanos: MS }]);
    assert!(!gradient.is_due(start.saturating_add(Duration::from_secs(3_600))));
    gradient.add(&[Responses { count: 1, nanos: MS }, Responses::default()]);
    assert!(!gradient.is_due(start.saturating_add(Duration::from_millis(99))));
    assert!(gradient.is_due(start.saturating_add(Duration::from_millis(100))));
}

//! Throttles against exact arithmetic, with virtual time, and with many threads.

use std::{
    collections::HashMap,
    sync::{
        Barrier,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use cardea_clock::Mono;
use proptest::{collection::vec, prelude::*};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limit(count: u64, burst: u64) -> ThrottleLimit {
    ThrottleLimit::new(count, SECOND, burst).unwrap()
}

fn at(milliseconds: u64) -> Mono {
    // Not at the origin, where nothing can be told from a slot that was never used.
    Mono::from_nanos((1_000_000 + milliseconds) * 1_000_000)
}

fn admits(
    store: &LocalThrottles,
    table: &ThrottleTable,
    limit: ThrottleLimit,
    key: &[u8],
    now: Mono,
) -> bool {
    store.charge(&mut [Charge::new(table, limit, key, 1, false)], now)
}

/// A limit as a bucket of tokens that is filled continuously, in exact fractions: the number of tokens times the nanoseconds
/// that one takes.
#[derive(Debug, Clone)]
struct Tokens {
    nanos: u128,
    seen: u64,
}

impl Tokens {
    fn of(map: &mut HashMap<u8, Self>, key: u8, interval: u64, burst: u64) -> &mut Self {
        map.entry(key).or_insert(Self { nanos: u128::from(interval) * u128::from(burst), seen: 0 })
    }

    fn fits(&mut self, cost: u64, interval: u64, burst: u64, now: u64) -> bool {
        let most = u128::from(interval) * u128::from(burst);
        self.nanos = most.min(self.nanos + u128::from(now - self.seen));
        self.seen = now;
        self.nanos >= u128::from(cost) * u128::from(interval)
    }

    fn take(&mut self, cost: u64, interval: u64) {
        self.nanos -= u128::from(cost) * u128::from(interval);
    }
}

proptest! {
    /// Keys that all fit into a bucket get what the arithmetic says, to the nanosecond.
    #[test]
    fn what_is_admitted_is_what_the_arithmetic_says(
        count in 1_u64..2_000,
        burst in 1_u64..50,
        steps in vec((0_u8..7, 0_u64..60, 0_u64..40_000_000), 1..300),
    ) {
        let (store, table) = (LocalThrottles::default(), ThrottleTable::new(1));
        let limit = limit(count, burst);
        let interval = 1_000_000_000_u64.div_ceil(count);
        let (mut model, mut now) = (HashMap::new(), 1_000_000_000_u64);
        for (key, cost, wait) in steps {
            now += wait;
            let tokens = Tokens::of(&mut model, key, interval, burst);
            let expected = tokens.fits(cost, interval, burst, now);
            if expected {
                tokens.take(cost, interval);
            }
            let key = [key];
            let mut charges = [Charge::new(&table, limit, &key, cost, false)];
            prop_assert_eq!(store.look(&mut charges, Mono::from_nanos(now)), expected);
            prop_assert_eq!(store.charge(&mut charges, Mono::from_nanos(now)), expected);
            let standing = charges[0].standing;
            prop_assert_eq!(u128::from(standing.remaining), tokens.nanos / u128::from(interval));
            let full = u128::from(interval) * u128::from(burst);
            prop_assert_eq!(standing.full_in.as_nanos(), full - tokens.nanos);
            // It fits when it is said that it will, and not a nanosecond before.
            if let Some(retry_in) = standing.retry_in {
                let then = Mono::from_nanos(now).saturating_add(retry_in);
                prop_assert!(store.look(&mut charges, then));
                prop_assert!(!store.look(&mut charges, Mono::from_nanos(then.nanos() - 1)));
            } else if !expected {
                prop_assert!(cost > burst);
            }
        }
    }

    /// However many keys share however few slots, no key uses more than its limit.
    #[test]
    fn no_key_exceeds_its_limit_whatever_is_evicted(
        count in 1_u64..500,
        burst in 1_u64..20,
        keys_max in 1_usize..20,
        steps in vec((any::<u8>(), 1_u64..6, 0_u64..10_000_000), 1..600),
    ) {
        let (store, table) = (LocalThrottles::default(), ThrottleTable::new(keys_max));
        let limit = limit(count, burst);
        let interval = 1_000_000_000_u64.div_ceil(count);
        let (mut model, mut now) = (HashMap::new(), 1_000_000_000_u64);
        for (key, cost, wait) in steps {
            now += wait;
            let bytes = [key];
            if store.charge(&mut [Charge::new(&table, limit, &bytes, cost, false)], Mono::from_nanos(now)) {
                let tokens = Tokens::of(&mut model, key, interval, burst);
                prop_assert!(tokens.fits(cost, interval, burst, now), "key {} at {}", key, now);
                tokens.take(cost, interval);
            }
        }
    }

    /// Several layers: all are charged, or none is. A dry run refuses nothing, and is charged if it fits.
    #[test]
    fn all_layers_are_charged_or_none_is(
        bursts in proptest::array::uniform3(1_u64..12),
        steps in vec((proptest::array::uniform3(0_u8..3), 1_u64..4, 0_u64..30_000_000), 1..300),
    ) {
        let store = LocalThrottles::default();
        let tables = [(); 3].map(|()| ThrottleTable::new(1));
        let limits = bursts.map(|burst| limit(100, burst));
        let dry_runs = [false, true, false];
        let interval = 10_000_000;
        let mut models: [HashMap<u8, Tokens>; 3] = Default::default();
        let mut now = 1_000_000_000_u64;
        for (keys, cost, wait) in steps {
            now += wait;
            let mut fits = [false; 3];
            for layer in 0..3 {
                let tokens = Tokens::of(&mut models[layer], keys[layer], interval, bursts[layer]);
                fits[layer] = tokens.fits(cost, interval, bursts[layer], now);
            }
            let expected = (0..3).all(|layer| fits[layer] || dry_runs[layer]);
            for layer in (0..3).filter(|layer| expected && fits[*layer]) {
                Tokens::of(&mut models[layer], keys[layer], interval, bursts[layer]).take(cost, interval);
            }
            let keys = keys.map(|key| [key]);
            // In another order than that of the tables.
            let order = [2, 0, 1];
            let mut charges = order.map(|layer: usize| {
                Charge::new(&tables[layer], limits[layer], &keys[layer], cost, dry_runs[layer])
            });
            prop_assert_eq!(store.charge(&mut charges, Mono::from_nanos(now)), expected);
            prop_assert_eq!(charges.map(|charge| charge.standing.fits), order.map(|layer| fits[layer]));
        }
    }
}

#[test]
fn a_burst_is_admitted_at_once_and_the_rest_at_the_rate() {
    let (store, table, limit) = (LocalThrottles::default(), ThrottleTable::new(100), limit(10, 5));
    let admitted = |now| (0..100).filter(|_| admits(&store, &table, limit, b"a", now)).count();
    assert_eq!([0, 99, 100, 350, 10_000].map(|milliseconds| admitted(at(milliseconds))), [5, 0, 1, 2, 5]);
    assert!(admits(&store, &table, limit, b"b", at(10_000)), "another key");
    assert_eq!(table.keys(at(10_000)), 2);
    assert_eq!(table.keys(at(20_000)), 0);
}

#[test]
fn what_costs_nothing_fits_and_what_costs_more_than_the_burst_never_does() {
    let (store, table, limit) = (LocalThrottles::default(), ThrottleTable::new(100), limit(10, 5));
    let charge = |cost| {
        let mut charges = [Charge::new(&table, limit, b"a", cost, false)];
        (store.charge(&mut charges, at(0)), charges[0].standing.remaining, charges[0].standing.retry_in)
    };
    assert_eq!(charge(0), (true, 5, None));
    assert_eq!(table.keys(at(0)), 0);
    for cost in [6, u64::MAX / limit.quote(0, 1, at(0)).0.full_in.as_nanos() as u64, u64::MAX] {
        assert_eq!(charge(cost), (false, 5, None));
    }
    assert_eq!(charge(5), (true, 0, None));
    assert_eq!(charge(1), (false, 0, Some(Duration::from_millis(100))));
    assert_eq!(charge(3), (false, 0, Some(Duration::from_millis(300))));
    assert_eq!(charge(0), (true, 0, None));
}

#[test]
fn a_clock_that_is_behind_admits_no_more() {
    let (store, table, limit) = (LocalThrottles::default(), ThrottleTable::new(100), limit(10, 2));
    // Workers take the time on their own, so one may be behind another.
    let admitted = [100, 0, 50, 100, 99, 200, 100].map(|now| admits(&store, &table, limit, b"a", at(now)));
    assert_eq!(admitted, [true, false, false, true, false, true, false]);
}

#[test]
fn a_throttle_that_is_named_twice_is_charged_once() {
    let (store, table, limit) = (LocalThrottles::default(), ThrottleTable::new(100), limit(10, 2));
    let charge = || Charge::new(&table, limit, b"a", 1, false);
    let mut charges = [charge(), charge(), charge()];
    assert!(store.charge(&mut charges, at(0)));
    assert!(charges.iter().all(|charge| charge.standing.remaining == 1));
    assert!(admits(&store, &table, limit, b"a", at(0)) && !admits(&store, &table, limit, b"a", at(0)));
}

/// Somebody with a million keys tries to have his own forgotten that is at its limit.
#[test]
fn a_flood_of_keys_forgets_no_debt() {
    let (store, table, limit) = (LocalThrottles::default(), ThrottleTable::new(1_000), limit(1, 5));
    let mine = |now| (0..10).filter(|_| admits(&store, &table, limit, b"mine", now)).count();
    assert_eq!(mine(at(0)), 5);
    let mut others = 0;
    for number in 0..1_000_000_u32 {
        others += u64::from(admits(&store, &table, limit, &number.to_be_bytes(), at(0)));
    }
    assert_eq!(mine(at(0)), 0);
    assert!(table.evictions() > 0);
    // Strangers together get what the slots have, and no more.
    let slots = 256 * 7;
    assert!(others <= slots * 5, "{others}");
    // Where there is room, nobody is refused for others.
    let roomy = ThrottleTable::new(200_000);
    let admitted =
        (0..20_000_u32).filter(|number| admits(&store, &roomy, limit, &number.to_be_bytes(), at(0))).count();
    assert_eq!((admitted, roomy.evictions()), (20_000, 0));
}

#[test]
fn another_limit_keeps_the_units_that_were_used() {
    let (store, table) = (LocalThrottles::default(), ThrottleTable::new(100));
    let slow = ThrottleLimit::new(10, Duration::from_secs(3_600), 10).unwrap();
    assert_eq!((0..20).filter(|_| admits(&store, &table, slow, b"a", at(0))).count(), 10);
    assert!(admits(&store, &table, slow, b"b", at(0)));
    // Ten units are gone of a hundred, and a second gives them back.
    let fast = table.converted(slow, limit(10, 100), at(0));
    let left = |key: &[u8]| {
        let mut charges = [Charge::new(&fast, limit(10, 100), key, 1, false)];
        store.look(&mut charges, at(0));
        (charges[0].standing.remaining, charges[0].standing.full_in)
    };
    assert_eq!(left(b"a"), (89, Duration::from_millis(1_100)));
    assert_eq!(left(b"b"), (98, Duration::from_millis(200)));
    assert_eq!(left(b"c"), (99, Duration::from_millis(100)));
    // Nobody owes more than the new burst.
    let small = table.converted(slow, limit(10, 2), at(0));
    let admitted = |milliseconds| admits(&store, &small, limit(10, 2), b"a", at(milliseconds));
    assert_eq!([0, 99, 100, 101].map(admitted), [false, false, true, false]);
}

#[test]
fn limits_that_can_not_be_kept_are_refused() {
    let year = Duration::from_secs(366 * 86_400);
    for (count, per, burst, expected) in [
        (0, SECOND, 1, Err(ThrottleLimitError::Zero)),
        (1, SECOND, 0, Err(ThrottleLimitError::Zero)),
        (1_000_000, SECOND, 1_000_000_000, Ok(Duration::from_secs(1_000))),
        (1_000_001, SECOND, 1, Err(ThrottleLimitError::TooFast)),
        (3, SECOND, 3, Ok(Duration::from_nanos(1_000_000_002))),
        (366, year, 366, Ok(year)),
        (366, year, 367, Err(ThrottleLimitError::TooLong)),
        (1, Duration::MAX, 1, Err(ThrottleLimitError::TooLong)),
        (1, year, u64::MAX, Err(ThrottleLimitError::TooLong)),
    ] {
        assert_eq!(
            ThrottleLimit::new(count, per, burst).map(ThrottleLimit::window),
            expected,
            "{count}/{per:?}"
        );
    }
}

/// All threads at once, while time goes on: what is admitted is what one thread would have admitted.
#[test]
fn threads_together_are_admitted_exactly() {
    const THREADS: usize = 8;
    const STEPS: u64 = 2_000;
    let store = LocalThrottles::default();
    let [shared, split] = [(); 2].map(|()| ThrottleTable::new(100));
    // Of the whole, 50 and then one each millisecond; of each half, 30 and then one in 4 ms, so that the halves are the limit.
    let (whole, half) = (limit(1_000, 50), limit(250, 30));
    let (milliseconds, admitted) = (AtomicU64::new(0), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let ready = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (store, shared, split, ready) = (&store, &shared, &split, &ready);
            let (milliseconds, admitted) = (&milliseconds, &admitted);
            scope.spawn(move || {
                ready.wait();
                let side = number % 2;
                let key = [side as u8];
                for step in 0..STEPS {
                    // In turns of the order: no two threads wait for each other.
                    let mut charges =
                        [Charge::new(shared, whole, b"", 1, false), Charge::new(split, half, &key, 1, false)];
                    charges.rotate_left((step % 2) as usize);
                    let now = at(milliseconds.load(Relaxed));
                    admitted[side].fetch_add(usize::from(store.charge(&mut charges, now)), Relaxed);
                    if step % 10 == 9 {
                        ready.wait();
                        if number == 0 {
                            milliseconds.fetch_add(4, Relaxed);
                        }
                        ready.wait();
                    }
                }
            });
        }
    });
    // The first step admits the 50 of the whole at most; then each half earns one in a step, and the whole four. Forty tries of
    // each half in each step use all that there is.
    let total: usize = admitted.iter().map(|count| count.load(Relaxed)).sum();
    let steps = STEPS as usize / 10;
    assert_eq!(total, 60 + 2 * (steps - 1));
}

#[test]
fn threads_never_share_a_unit() {
    const THREADS: usize = 8;
    let (store, table, limit) = (LocalThrottles::default(), ThrottleTable::new(4), limit(1, 1_000));
    let admitted = AtomicUsize::new(0);
    let ready = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                ready.wait();
                let mine = (0..1_000).filter(|_| admits(&store, &table, limit, b"a", at(0))).count();
                admitted.fetch_add(mine, Relaxed);
            });
        }
    });
    assert_eq!(admitted.load(Relaxed), 1_000);
}

//! Tests of the connection pool.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Mono {
    Mono::from_nanos(seconds * 1_000_000_000)
}

/// Of a connection that is just made.
fn new() -> Usage {
    Usage::new(Mono::MIN)
}

fn pool<C>(idle_max: usize, idle_seconds: u64) -> Pool<C> {
    Pool::new(&PoolConfig {
        idle_max,
        idle_timeout: Duration::from_secs(idle_seconds),
        ..PoolConfig::default()
    })
}

/// What is taken, by the worker that put it.
fn own<C>(kept: Option<IdleConnection<C>>) -> Option<C> {
    kept.map(|kept| {
        assert!(!kept.foreign);
        kept.connection
    })
}

fn all(_: &mut u32) -> bool {
    true
}

#[test]
fn the_most_recently_used_comes_first() {
    let pool = pool(3, 10);
    for connection in [1, 2, 3] {
        assert_eq!(pool.place(0, new()).put(connection, at(0)), None);
    }
    assert_eq!(own(pool.take(0, at(1), all)), Some(3));
    assert_eq!(own(pool.take(0, at(1), all)), Some(2));
    assert_eq!(pool.place(0, new()).put(2, at(2)), None);
    assert_eq!(own(pool.take(0, at(2), all)), Some(2));
    assert_eq!(own(pool.take(0, at(2), all)), Some(1));
    assert_eq!(own(pool.take(0, at(2), all)), None);
    assert_eq!(pool.stats(), PoolStats { reused: 4, ..PoolStats::default() });
}

#[test]
fn a_full_pool_gives_back_the_least_recently_used() {
    let pool = pool(2, 10);
    assert_eq!(
        [1, 2, 3, 4].map(|connection| pool.place(0, new()).put(connection, at(0))),
        [None, None, Some(1), Some(2)]
    );
    assert_eq!(pool.stats(), PoolStats { idle: 2, surplus: 2, ..PoolStats::default() });
    assert_eq!(
        [pool.give_up_oldest(), pool.give_up_oldest(), pool.give_up_oldest()],
        [Some(3), Some(4), None]
    );
    assert_eq!(pool.stats(), PoolStats { surplus: 4, ..PoolStats::default() });
    let none = super::tests::pool(0, 10);
    assert_eq!(none.place(0, new()).put(7, at(0)), Some(7));
    assert!(none.is_empty());
}

#[test]
fn the_dead_are_passed_over_and_the_expired_dropped() {
    let pool = pool(10, 10);
    for (connection, seconds) in [(1, 0), (2, 5), (3, 6), (4, 6)] {
        assert_eq!(pool.place(0, new()).put(connection, at(seconds)), None);
    }
    assert_eq!(own(pool.take(0, at(8), |connection| *connection < 4)), Some(3));
    assert_eq!(own(pool.take(0, at(15), all)), None, "idle for exactly the limit");
    assert_eq!(pool.stats(), PoolStats { reused: 1, dead: 1, expired: 2, ..PoolStats::default() });
}

#[test]
fn a_sweep_drops_the_expired_alone() {
    let pool = pool(10, 10);
    for seconds in 0..5 {
        assert_eq!(pool.place(0, new()).put(1, at(seconds)), None);
    }
    pool.sweep(at(9));
    assert_eq!(pool.len(), 5);
    pool.sweep(at(12));
    assert_eq!(pool.len(), 2);
    pool.sweep(at(100));
    assert_eq!(pool.stats(), PoolStats { expired: 5, ..PoolStats::default() });
}

#[test]
fn a_closed_pool_stores_nothing_and_a_cleared_one_continues() {
    let pool = pool(10, 10);
    assert_eq!(pool.place(0, new()).put(1, at(0)), None);
    pool.clear();
    assert_eq!(own(pool.take(0, at(0), all)), None);
    assert_eq!(pool.place(0, new()).put(2, at(0)), None);
    pool.close();
    assert_eq!(own(pool.take(0, at(0), all)), None);
    assert_eq!(pool.place(0, new()).put(3, at(0)), Some(3));
}

#[test]
fn new_limits_hold_for_what_is_idle_already() {
    let pool = pool(10, 10);
    for connection in 0..5 {
        assert_eq!(pool.place(0, new()).put(connection, at(0)), None);
    }
    pool.configure(&PoolConfig {
        idle_max: 2,
        idle_timeout: Duration::from_secs(3),
        ..PoolConfig::default()
    });
    assert_eq!(pool.len(), 2);
    assert_eq!(own(pool.take(0, at(2), all)), Some(4));
    assert_eq!(own(pool.take(0, at(3), all)), None);
}

/// A connection that takes the pool's lock when it is dropped: under the lock that would never end.
struct Nosy(Arc<Pool<Nosy>>, Arc<AtomicUsize>);

impl Drop for Nosy {
    fn drop(&mut self) {
        let _ = self.0.len();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn connections_are_checked_and_dropped_outside_the_lock() {
    let (pool, dropped) = (Arc::new(pool(4, 10)), Arc::new(AtomicUsize::new(0)));
    let fill = |seconds| {
        for _ in 0..5 {
            drop(pool.place(0, new()).put(Nosy(Arc::clone(&pool), Arc::clone(&dropped)), at(seconds)));
        }
    };
    fill(0);
    assert!(pool.take(0, at(1), |nosy| nosy.0.len() > 4).is_none());
    fill(0);
    assert!(pool.take(0, at(10), |_| true).is_none());
    fill(0);
    pool.sweep(at(10));
    fill(0);
    pool.configure(&PoolConfig { idle_max: 1, ..PoolConfig::default() });
    pool.clear();
    fill(0);
    pool.close();
    fill(0);
    assert_eq!(dropped.load(Ordering::Relaxed), 30);
}

#[test]
fn threads_never_get_the_same_connection() {
    let pool = Arc::new(shared(8 * 4, 4));
    let uses: Arc<[AtomicUsize; 8]> = Arc::new(Default::default());
    (0..8).for_each(|connection| assert_eq!(pool.place(0, new()).put(connection, at(0)), None));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (pool, uses) = (Arc::clone(&pool), Arc::clone(&uses));
            thread::spawn(move || {
                for _ in 0..10_000 {
                    let Some(IdleConnection { connection, .. }) = pool.take(worker, at(9), all) else {
                        continue;
                    };
                    let counter = &uses[connection as usize];
                    assert_eq!(counter.fetch_add(1, Ordering::SeqCst), 0);
                    counter.fetch_sub(1, Ordering::SeqCst);
                    // Since long: there for the others too.
                    assert_eq!(pool.place(worker, new()).put(connection, at(1)), None);
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(pool.len(), 8);
}

fn shared(idle_max: usize, workers: usize) -> Pool<u32> {
    Pool::new(&PoolConfig { idle_max, workers, ..PoolConfig::default() })
}

#[test]
fn a_worker_takes_its_own_and_of_others_only_what_they_no_longer_use() {
    let pool = shared(8, 2);
    assert_eq!(pool.place(0, new()).put(1, at(0)), None);
    assert_eq!(pool.place(0, new()).put(2, at(0)), None);
    assert_eq!(pool.take(1, at(0), all), None, "the other may need it at once");
    assert_eq!(own(pool.take(0, at(0), all)), Some(2));
    assert_eq!(pool.place(0, new()).put(2, at(1)), None);
    assert_eq!(
        pool.take(1, at(1), all),
        Some(IdleConnection { connection: 1, usage: new(), foreign: true }),
        "the oldest"
    );
    assert_eq!(pool.take(1, at(1), all), None);
    assert_eq!(pool.place(1, new()).put(1, at(1)), None);
    assert_eq!(own(pool.take(1, at(1), all)), Some(1), "it has moved");
    assert_eq!(pool.len(), 1);
    assert_eq!(pool.stats().reused, 3);
}

#[test]
fn workers_share_out_what_may_be_idle() {
    let pool = shared(5, 2);
    let kept = |worker| {
        (0..9).filter(|connection| pool.place(worker, new()).put(*connection, at(0)).is_none()).count()
    };
    assert_eq!((kept(0), kept(1)), (3, 2));
    assert_eq!(pool.len(), 5);
    let one = shared(1, 3);
    assert_eq!(
        (one.place(2, new()).put(20, at(0)), one.place(1, new()).put(10, at(0))),
        (None, Some(20)),
        "one for all three"
    );
    assert_eq!(one.take(0, at(0), all), Some(IdleConnection { connection: 10, usage: new(), foreign: true }));
}

#[test]
fn the_oldest_idle_connection_of_all_workers_is_evicted() {
    let pool = shared(8, 3);
    for (worker, seconds) in [(2, 3), (1, 1), (0, 2)] {
        assert_eq!(pool.place(worker, new()).put(u32::try_from(worker).unwrap(), at(seconds)), None);
    }
    assert_eq!([(); 4].map(|()| pool.give_up_oldest()), [Some(1), Some(0), Some(2), None]);
}

#[derive(Clone, Debug)]
enum Step {
    Put,
    Take,
    Kill(usize),
    Sweep,
    Wait(u64),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Put),
        3 => Just(Step::Take),
        2 => (0_usize..50).prop_map(Step::Kill),
        1 => Just(Step::Sweep),
        2 => (0_u64..8).prop_map(Step::Wait),
        1 => Just(Step::Clear),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    /// The reference is a list of all connections with when they were put.
    #[test]
    fn the_pool_keeps_its_bounds_and_gives_only_what_is_alive(idle_max in 0_usize..6, steps in steps()) {
        let pool = pool(idle_max, 10);
        let (mut now, mut next, mut dead) = (0, 0_u32, Vec::new());
        let mut idle: Vec<(u32, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Put => {
                    idle.push((next, now));
                    let surplus = (idle.len() > idle_max).then(|| idle.remove(0).0);
                    prop_assert_eq!(pool.place(0, new()).put(next, at(now)), surplus);
                    next += 1;
                }
                Step::Take => {
                    let mut wanted = None;
                    while let Some((newest, since)) = idle.pop() {
                        if now - since < 10 && !dead.contains(&newest) {
                            wanted = Some(newest);
                            break;
                        }
                    }
                    prop_assert_eq!(own(pool.take(0, at(now), |connection| !dead.contains(connection))), wanted);
                }
                Step::Kill(which) => dead.extend(idle.get(which % idle.len().max(1)).map(|(connection, _)| *connection)),
                Step::Sweep => {
                    pool.sweep(at(now));
                    idle.retain(|(_, since)| now - since < 10);
                    prop_assert_eq!(pool.len(), idle.len());
                }
                Step::Wait(seconds) => now += seconds,
                Step::Clear => {
                    pool.clear();
                    idle.clear();
                }
            }
            prop_assert!(pool.len() <= idle_max);
        }
    }
}

fn after(millis: u64) -> Mono {
    Mono::from_nanos(millis * 1_000_000)
}

#[test]
fn a_held_connection_is_not_reused_before_the_delay() {
    let pool = pool(4, 10);
    assert_eq!(pool.place(0, new()).hold(1, after(0), Hold::Always, all), None);
    assert_eq!(pool.place(0, new()).put(2, after(0)), None, "the control");
    assert_eq!(own(pool.take(0, after(1), all)), Some(2));
    assert_eq!(own(pool.take(0, after(999), all)), None);
    assert_eq!(pool.len(), 1, "it is idle all the same");
    assert_eq!(own(pool.take(0, after(1_000), all)), Some(1));
    // Whoever holds one lets those go whose time has come, to where they belong by their age.
    assert_eq!(pool.place(0, new()).hold(3, after(2_000), Hold::Always, all), None);
    assert_eq!(pool.place(0, new()).put(4, after(2_500)), None);
    assert_eq!(pool.place(0, new()).hold(5, after(3_000), Hold::Always, all), None);
    assert_eq!(own(pool.take(0, after(3_000), all)), Some(4));
    assert_eq!(own(pool.take(0, after(3_000), all)), Some(3));
    assert_eq!(own(pool.take(0, after(3_000), all)), None);
    pool.sweep(after(20_000));
    assert_eq!((pool.len(), pool.stats().expired), (0, 1));
}

#[test]
fn held_connections_do_not_displace_ready_ones() {
    let pool = pool(3, 10);
    assert_eq!(pool.place(0, new()).put(1, after(0)), None);
    assert_eq!(pool.place(0, new()).put(2, after(0)), None);
    assert_eq!(pool.place(0, new()).hold(3, after(1), Hold::Always, all), None);
    assert_eq!(
        pool.place(0, new()).hold(4, after(2), Hold::Always, all),
        Some(3),
        "the older of the two that are held"
    );
    assert_eq!(pool.place(0, new()).put(5, after(3)), Some(4), "one that is ready comes first");
    assert_eq!(pool.place(0, new()).hold(6, after(4), Hold::Always, all), Some(6));
}

#[test]
fn of_a_sample_a_few_are_held_once_the_endpoint_has_shown_that_it_sends_nothing_more() {
    let pool = pool(100, 10);
    for connection in 0..20 {
        assert_eq!(pool.place(0, new()).hold(connection, after(0), Hold::Sample, all), None);
    }
    assert_eq!(own(pool.take(0, after(1), all)), None, "nothing is known of the endpoint: all are held");
    // Lets them go, having looked at each.
    for connection in 20..40 {
        assert_eq!(pool.place(0, new()).hold(connection, after(1_000), Hold::Sample, all), None);
    }
    let ready = std::iter::from_fn(|| own(pool.take(0, after(1_001), all))).count();
    assert_eq!((ready, pool.len()), (40 - SAMPLE_MAX, SAMPLE_MAX));
    assert_eq!(pool.give_up_oldest(), Some(20), "held ones too");
}

#[test]
fn what_was_held_and_is_dead_is_dropped_and_proves_nothing() {
    let pool = pool(100, 10);
    for connection in 0..20 {
        assert_eq!(pool.place(0, new()).hold(connection, after(0), Hold::Sample, all), None);
    }
    assert_eq!(pool.place(0, new()).hold(20, after(1_000), Hold::Sample, |_: &mut u32| false), None);
    assert_eq!((pool.len(), pool.stats().dead), (1, 20));
    for connection in 21..40 {
        assert_eq!(pool.place(0, new()).hold(connection, after(1_000), Hold::Sample, all), None);
    }
    assert_eq!(own(pool.take(0, after(1_001), all)), None);
}

#[test]
fn an_endpoint_that_sent_more_than_it_announced_has_none_held() {
    let pool = pool(10, 10);
    assert_eq!(pool.place(0, new()).hold(1, after(0), Hold::Sample, all), None);
    pool.place(0, new()).note_surplus();
    assert_eq!(pool.place(0, new()).hold(2, after(0), Hold::Sample, all), Some(2));
    assert_eq!(pool.place(0, new()).hold(3, after(0), Hold::Always, all), Some(3));
    assert_eq!(
        pool.place(0, new()).put(4, after(0)),
        None,
        "the control: after a body, connections are used again"
    );
}

#[test]
fn connections_that_are_old_or_used_up_are_given_back_or_dropped() {
    let limits = PoolConfig {
        age_max: Some(Duration::from_secs(100)),
        requests_max: std::num::NonZeroU32::new(2),
        ..PoolConfig::default()
    };
    let pool = Pool::new(&limits);
    let mut place = pool.place(0, Usage::new(at(0)));
    place.count(KeepAlive::default());
    assert_eq!(place.put(1, at(1)), None);
    let kept = pool.take(0, at(2), all).unwrap();
    let mut place = pool.place(0, kept.usage);
    place.count(KeepAlive::default());
    assert_eq!(place.put(1, at(2)), Some(1), "its second request was its last");
    assert_eq!(place.hold(1, at(2), Hold::Always, all), Some(1));
    assert_eq!(pool.place(0, Usage::new(at(0))).put(2, at(60)), None);
    assert_eq!(own(pool.take(0, at(100), all)), None);
    let offer = KeepAlive { timeout: Some(Duration::from_secs(5)), max: None };
    for connection in [3, 4] {
        let mut place = pool.place(0, Usage::new(at(200)));
        if connection == 4 {
            place.count(offer);
        }
        assert_eq!(place.put(connection, at(200)), None);
    }
    // The newest expires before the older one, which a sweep must not miss and a request not wait for.
    assert_eq!(pool.len(), 2);
    pool.sweep(at(204));
    assert_eq!(own(pool.take(0, at(204), all)), Some(3));
    let expected = PoolStats { reused: 2, aged: 1, used_up: 2, expired: 1, ..PoolStats::default() };
    assert_eq!(pool.stats(), expected);
}

//! What recording costs per request:
//! `cargo test --release -p cardea-gateway record::measure -- --ignored --nocapture`.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use cardea_clock::{Clock, CoarseClock};

use super::metrics::{CounterDef, GaugeDef, HistogramDef, LATENCY_BOUNDS, StatusClasses};
use super::{AccessLog, AccessLogConfig, Registry, RequestId, Sink};

static REQUESTS: CounterDef<0> = CounterDef::new("cardea_measured_total", "Measured.", []).sharded();
static RELOADS: CounterDef<0> = CounterDef::new("cardea_measured_alone_total", "Measured.", []);
static ACTIVE: GaugeDef<0> = GaugeDef::new("cardea_measured_active", "Measured.", []);
static DURATION: HistogramDef<2> =
    HistogramDef::new("cardea_measured_seconds", "Measured.", ["http_route", "class"], LATENCY_BOUNDS);

#[test]
#[ignore = "a measurement, for a release build on a quiet machine"]
fn costs() {
    let coarse = CoarseClock::start(Duration::from_millis(100)).unwrap();
    let clock = coarse.clock();
    let registry = Registry::new();

    let counter = registry.counter(&REQUESTS, []);
    measure(&clock, "sharded counter", 1, || counter.increment());
    measure(&clock, "sharded counter, 2 threads", 2, || counter.increment());
    let alone = registry.counter(&RELOADS, []);
    measure(&clock, "plain counter, 2 threads", 2, || alone.increment());
    let active = registry.up_down(&ACTIVE, []);
    measure(&clock, "active requests, up and down", 1, || drop(active.enter()));
    let route = StatusClasses::new(&DURATION, "/api");
    let observe = || route.observe(&registry, black_box(200), black_box(Duration::from_micros(1_842)));
    measure(&clock, "duration of a route", 1, observe);
    measure(&clock, "duration of a route, 2 threads", 2, observe);

    measure(&clock, "request id", 1, || {
        black_box(RequestId::generate(clock.wall()));
    });
    measure(&clock, "request id as text", 1, || {
        black_box(RequestId::generate(clock.wall()).to_ascii());
    });

    let config = AccessLogConfig { sink: Sink::File("/dev/null".into()), ..AccessLogConfig::default() };
    let log = AccessLog::start(config, clock.clone()).unwrap();
    let line = [b'x'; 326].into_iter().chain([b'\n']).collect::<Vec<u8>>();
    for threads in [1, 2] {
        let mut best = f64::INFINITY;
        for _ in 0..50 {
            // Few enough that none is dropped, which would be cheaper than to keep it.
            best = best.min(round(&clock, threads, 4_000, &|| log.append(black_box(&line))));
            assert!(log.flush(Duration::from_secs(10)));
        }
        println!("access log line of 327 bytes, {threads} threads: {best:.1} ns");
    }
    assert_eq!(log.dropped(), 0);
}

/// The time of a call on each of some threads: the best of several rounds.
fn measure(clock: &Clock, name: &str, threads: usize, call: impl Fn() + Sync) {
    const ROUNDS: usize = 10;
    const CALLS: u32 = 2_000_000;
    let best = (0..ROUNDS).map(|_| round(clock, threads, CALLS, &call)).fold(f64::INFINITY, f64::min);
    println!("{name}: {best:.1} ns");
}

/// One round on some threads at once: the time of a call, in nanoseconds, of the slowest.
fn round(clock: &Clock, threads: usize, calls: u32, call: &(impl Fn() + Sync)) -> f64 {
    let together = Barrier::new(threads);
    let alone = || {
        together.wait();
        let start = clock.precise().mono;
        (0..calls).for_each(|_| call());
        clock.precise().mono.saturating_since(start).as_nanos() as f64 / f64::from(calls)
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(alone)).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).fold(0.0, f64::max)
    })
}

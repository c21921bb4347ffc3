//! Queues in virtual time: what clients wait with each balance where endpoints are not equal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::load::InFlight;

const REQUESTS: usize = 40_000;

/// An endpoint that serves one request after the other.
struct Server {
    /// The mean time that a request takes, in nanoseconds.
    service: f64,
    free_at: u64,
    fails: bool,
}

/// A seeded source of randomness (SplitMix64).
struct Random(u64);

impl Random {
    /// Exponentially distributed, of this mean.
    fn exponential(&mut self, mean: f64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let uniform = ((mix(self.0) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (-uniform.ln() * mean) as u64
    }
}

/// What happened.
struct Outcome {
    /// The time of the slowest hundredth that succeeded, in milliseconds.
    p99_ms: f64,
    failed: usize,
}

/// Requests that arrive by chance, and take so many of the servers' time together.
fn simulate(balance: Balance, means_ms: &[f64], failing: &[usize], utilisation: f64) -> Outcome {
    let endpoints: Vec<_> = (1..=means_ms.len()).map(|port| (u16::try_from(port).unwrap(), "a", 1)).collect();
    let mut wanted = config(&endpoints);
    wanted.balance = balance;
    // What selection does alone.
    wanted.health.ejected_percent_max = 0;
    let state = State::reconcile(&wanted, None, Connections::Kept).unwrap();
    let mut servers: Vec<Server> = (0..)
        .zip(means_ms)
        .map(|(index, mean)| Server { service: mean * 1e6, free_at: 0, fails: failing.contains(&index) })
        .collect();
    let capacity: f64 =
        servers.iter().filter(|server| !server.fails).map(|server| 1.0 / server.service).sum();
    let mut random = Random(7);
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut under_way: Vec<Option<(Choice, u64, InFlight)>> = Vec::new();
    let (mut times, mut failed, mut now) = (Vec::new(), 0, 1);
    let mut end = |ended: u64,
                   request: usize,
                   under_way: &mut Vec<Option<(Choice, u64, InFlight)>>,
                   servers: &[Server]| {
        let (choice, begun, _in_flight) = under_way[request].take().unwrap();
        let latency = Duration::from_nanos(ended - begun);
        let fails = servers[choice.endpoint.get()].fails;
        state.responded(choice, Mono::from_nanos(ended), if fails { 503 } else { 200 }, Some(latency));
        failed += usize::from(fails);
        if !fails && request > REQUESTS / 4 {
            times.push(latency.as_secs_f64() * 1e3);
        }
    };
    for request in 0..REQUESTS {
        now += random.exponential(1.0 / (capacity * utilisation));
        while let Some(Reverse((ended, request))) = ends.peek().copied().filter(|next| next.0.0 <= now) {
            ends.pop();
            end(ended, request, &mut under_way, &servers);
        }
        let at = Mono::from_nanos(now);
        let (choice, endpoint) =
            state.choose(&Selection { now: at, ..selection(at) }, &AttemptedEndpoints::new()).unwrap();
        let server = &mut servers[choice.endpoint.get()];
        let ended = if server.fails {
            now + 100_000
        } else {
            server.free_at = server.free_at.max(now) + random.exponential(server.service);
            server.free_at
        };
        under_way.push(Some((choice, now, endpoint.begin(0))));
        ends.push(Reverse((ended, request)));
    }
    while let Some(Reverse((ended, request))) = ends.pop() {
        end(ended, request, &mut under_way, &servers);
    }
    times.sort_by(f64::total_cmp);
    Outcome { p99_ms: times[times.len() * 99 / 100], failed }
}

const UNEQUAL: [f64; 8] = [10.0, 10.0, 10.0, 20.0, 10.0, 10.0, 10.0, 20.0];

#[test]
fn where_a_quarter_of_the_endpoints_is_slow_load_is_followed() {
    for utilisation in [0.5, 0.7, 0.9] {
        let [ewma, least, turns] = [Balance::PeakEwma, Balance::LeastRequests, Balance::RoundRobin]
            .map(|balance| simulate(balance, &UNEQUAL, &[], utilisation).p99_ms);
        println!(
            "{utilisation}: peak-ewma {ewma:.1} ms, least-requests {least:.1} ms, round-robin {turns:.1} ms"
        );
        assert!(ewma < 0.6 * turns && least < 0.8 * turns, "{utilisation}: {ewma} {least} {turns}");
        assert!(ewma < 0.95 * least, "{utilisation}: {ewma} {least}");
    }
}

#[test]
fn fast_failures_attract_no_requests_though_none_is_ejected() {
    let failed = |balance| simulate(balance, &[10.0; 8], &[0, 1, 2, 3], 0.7).failed as f64 / REQUESTS as f64;
    let [ewma, least, turns] = [Balance::PeakEwma, Balance::LeastRequests, Balance::RoundRobin].map(failed);
    println!("failed: peak-ewma {ewma:.3}, least-requests {least:.3}, round-robin {turns:.3}");
    // Two that are drawn both fail in three of fourteen cases.
    assert!(ewma < 0.25 && turns > 0.45 && least > 0.5, "{ewma} {least} {turns}");
}

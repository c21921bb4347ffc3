//! What a charge costs: `cargo bench -p cardea-guard`.
#![expect(clippy::expect_used, reason = "a bench that can't start has nothing to measure")]

use std::{hint::black_box, time::Duration};

use bench_measure::Suite;
use cardea_clock::Mono;
use cardea_guard::{Charge, LocalThrottles, ThrottleLimit, ThrottleStore as _, ThrottleTable};

const NOW: Mono = Mono::from_nanos(1 << 40);
/// An issuer and a subject, with their lengths.
const KEY_BYTES: usize = 40;

fn main() {
    bench_measure::run(benches);
}

/// The key of a number.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// Numbers below `below` in an order that no prefetcher knows.
fn scattered(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) % below
}

fn benches(suite: &mut Suite) {
    // Nothing is ever refused, so that each call charges.
    let limit =
        ThrottleLimit::new(1_000_000, Duration::from_secs(1), 1 << 40).expect("a limit that can be kept");
    let store = LocalThrottles::default();
    for (name, keys) in [("throttle-hot", 64), ("throttle-1m-keys", 1_000_000)] {
        suite.case(name, |case| {
            let table = ThrottleTable::new(keys);
            let mut state = 1;
            for number in 0..keys as u64 {
                store.charge(&mut [Charge::new(&table, limit, &key(number), 1, false)], NOW);
            }
            case.counted("cardea", || {
                let key = key(scattered(&mut state, keys as u64));
                store.charge(black_box(&mut [Charge::new(&table, limit, &key, 1, false)]), NOW)
            });
        });
    }
    suite.case("throttle-hot-two-layers", |case| {
        let [one, other] = [(); 2].map(|()| ThrottleTable::new(64));
        let mut state = 1;
        case.counted("cardea", || {
            let [first, second] = [(); 2].map(|()| key(scattered(&mut state, 64)));
            let charges = &mut [
                Charge::new(&one, limit, &first, 1, false),
                Charge::new(&other, limit, &second, 1, false),
            ];
            store.charge(black_box(charges), NOW)
        });
    });
    suite.case("throttle-threads", |case| {
        let table = ThrottleTable::new(1_024);
        case.on_threads("cardea", || {
            let mut state = 1;
            let (store, table) = (&store, &table);
            move || {
                let key = key(scattered(&mut state, 1_024));
                store.charge(black_box(&mut [Charge::new(table, limit, &key, 1, false)]), NOW)
            }
        });
    });
}

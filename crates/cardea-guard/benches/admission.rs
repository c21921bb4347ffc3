//! What admission costs while its limits are far away, and where one is near: `cargo bench -p cardea-guard`.

use std::{hint::black_box, sync::Arc, time::Duration};

use bench_measure::Suite;
use cardea_clock::Mono;
use cardea_guard::{Admission, AdmissionBounds, Arrival, Cohort, Entry, Gate, Priority};

const NOW: Mono = Mono::from_nanos(1 << 40);
const WORKERS: usize = 64;

fn main() {
    bench_measure::run(benches);
}

/// The limits of a process and, the narrower first, of a service and a route.
fn gate(limits: usize, max_in_flight: u32) -> Arc<Gate> {
    let admission = Admission::new(WORKERS);
    let bounds = AdmissionBounds { max_in_flight, max_queue: 100, max_age: Duration::from_secs(1) };
    admission.gate((0..limits).map(|_| admission.limit(bounds)))
}

fn pass(gate: &Gate, worker: usize) -> Entry {
    let entry = gate.enter(worker, || Arrival::new(Priority::Normal, NOW));
    gate.leave(worker, || NOW);
    entry
}

fn benches(suite: &mut Suite) {
    for (name, limits, max_in_flight) in [
        ("admission-one-limit", 1, 100_000),
        ("admission-three-limits", 3, 100_000),
        ("admission-near-the-limit", 1, 8),
    ] {
        suite.case(name, |case| {
            let gate = gate(limits, max_in_flight);
            case.counted("cardea", || pass(black_box(&gate), 0));
        });
    }
    // Nothing ever leaves, and nobody may wait: what a refusal costs, with and without a shedder that counts it.
    for (name, sheds) in [("admission-refusal", false), ("admission-refusal-shedding", true)] {
        suite.case(name, |case| {
            let admission = Admission::new(WORKERS);
            admission.set_shedding(sheds);
            let bounds = AdmissionBounds { max_in_flight: 0, max_queue: 0, max_age: Duration::from_secs(1) };
            let gate = admission.gate([admission.limit(bounds)]);
            let mut number = 0_u64;
            case.counted("cardea", || {
                number += 1;
                let now = Mono::from_nanos((1 << 40) + number * 1_000);
                let priority = Priority::ALL[number as usize % 4];
                let cohort = Cohort::of(admission.client(number % 1_000), now);
                black_box(&gate).enter(0, || Arrival { cohort, ..Arrival::new(priority, now) })
            });
        });
    }
    for (name, max_in_flight) in [("admission-threads", 100_000), ("admission-threads-near-the-limit", 8)] {
        suite.case(name, |case| {
            let gate = gate(1, max_in_flight);
            let next = std::sync::atomic::AtomicUsize::new(0);
            case.on_threads("cardea", || {
                let worker = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let gate = &gate;
                move || pass(black_box(gate), worker)
            });
        });
    }
}

//! What it costs to choose an endpoint, by the number of endpoints: `cargo bench -p cardea-upstream`.
#![expect(clippy::expect_used, reason = "a bench that can't start has nothing to measure")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bench_measure::Suite;
use cardea_clock::Mono;
use cardea_upstream::{
    Address, AttemptedEndpoints, Balance, Connections, EndpointConfig, HealthConfig, InFlight, Locality,
    PoolConfig, Selection, ServiceConfig, ServiceState,
};

/// The time between two requests of a worker, in nanoseconds: 100,000 a second.
const PACE: u64 = 10_000;
/// How many requests are at endpoints.
const IN_FLIGHT: usize = 256;
const WORKERS: usize = 16;

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    for endpoints in [2, 10, 100, 1_000] {
        suite.case(&format!("choose-of-{endpoints}"), |case| {
            for (name, balance) in [
                ("peak-ewma", Balance::PeakEwma),
                ("least-requests", Balance::LeastRequests),
                ("round-robin", Balance::RoundRobin),
            ] {
                let mut worker = Worker::new(service(endpoints, 1, balance));
                case.counted(name, move || worker.choose());
            }
        });
    }
    suite.case("choose-of-1000-in-54-regions", |case| {
        let mut worker = Worker::new(service(1_000, 54, Balance::PeakEwma));
        case.counted("peak-ewma", move || worker.choose());
    });
    suite.case("choose-of-1000-half-of-them-ejected", |case| {
        let mut worker = Worker::new(service(1_000, 1, Balance::PeakEwma));
        worker.eject_half();
        case.counted("peak-ewma", move || worker.choose());
    });
    suite.case("whole-attempt-at-one-of-1000", |case| {
        let mut worker = Worker::new(service(1_000, 1, Balance::PeakEwma));
        case.counted("peak-ewma", move || worker.attempt());
    });
}

fn service(endpoints: u16, regions: u16, balance: Balance) -> Arc<ServiceState<()>> {
    let endpoint = |port: u16| EndpointConfig {
        region: Some(format!("region-{}", port % regions)),
        ..EndpointConfig::new(Address::Tcp(([10, 0, 0, 1], port + 1).into()))
    };
    // Ejections last for the whole bench, and nothing but what the bench says ejects.
    let lasts = Duration::from_secs(1 << 30);
    let health = HealthConfig {
        consecutive_failures: NonZeroU32::new(1),
        ejection_time: lasts,
        ejection_time_max: lasts,
        ..HealthConfig::default()
    };
    let config = ServiceConfig {
        balance,
        health,
        locality: Arc::new(Locality::new(Some("region-0".to_owned()), [], None)),
        pool: PoolConfig { workers: WORKERS, ..PoolConfig::default() },
        ..ServiceConfig::new("service", (0..endpoints).map(endpoint).collect())
    };
    ServiceState::reconcile(&config, None, Connections::Kept).expect("the configuration is sound")
}

/// A worker with requests under way.
struct Worker {
    state: Arc<ServiceState<()>>,
    now: u64,
    in_flight: Vec<Option<InFlight>>,
}

impl Worker {
    fn new(state: Arc<ServiceState<()>>) -> Self {
        let mut worker = Self { state, now: 1, in_flight: (0..IN_FLIGHT).map(|_| None).collect() };
        (0..10 * IN_FLIGHT).for_each(|_| worker.attempt());
        worker
    }

    fn selection(&mut self) -> Selection {
        self.now += PACE;
        Selection { now: Mono::from_nanos(self.now), ..Selection::default() }
    }

    fn choose(&mut self) -> usize {
        let selection = self.selection();
        let chosen = self.state.choose(&selection, &AttemptedEndpoints::new());
        chosen.map_or(0, |(choice, _)| choice.endpoint.get())
    }

    /// Ends the oldest request and begins another.
    fn attempt(&mut self) {
        let selection = self.selection();
        let Some((choice, endpoint)) = self.state.choose(&selection, &AttemptedEndpoints::new()) else {
            return;
        };
        let at = usize::try_from(self.now / PACE).unwrap_or_default() % IN_FLIGHT;
        let latency = Duration::from_micros(500 + self.now % 1_000);
        self.state.responded(choice, selection.now, 200, Some(latency));
        if let Some(place) = self.in_flight.get_mut(at) {
            *place = Some(endpoint.begin(0));
        }
    }

    fn eject_half(&mut self) {
        for _ in 0..500 {
            let selection = self.selection();
            if let Some((choice, _)) = self.state.choose(&selection, &AttemptedEndpoints::new()) {
                self.state.responded(choice, selection.now, 503, None);
            }
        }
    }
}

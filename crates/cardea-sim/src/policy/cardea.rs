//! Cardea's own code: [`ServiceState`], as requests use it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use cardea_clock::Mono;
use cardea_upstream::{
    Address, AttemptedEndpoints, Balance, Choice, Connections, EndpointConfig, EndpointIndex, InFlight,
    Locality, PoolConfig, Position, RetryCause, Selection, ServiceConfig, ServiceState,
};

use super::{Ask, Chosen, Ending, Numbered, Policy, View};

pub(super) struct Cardea {
    state: Arc<ServiceState<()>>,
    /// By the place in the configuration: the nearest region comes first.
    servers: Vec<usize>,
    endpoints: Vec<EndpointIndex>,
    attempts: Numbered<(Choice, InFlight)>,
}

impl Cardea {
    pub(super) fn new(view: &View, balance: Balance, weighted: bool) -> Self {
        let mut servers: Vec<usize> = (0..view.servers.len()).collect();
        servers.sort_by_key(|server| view.regions[view.servers[*server].region].round_trip);
        let endpoint = |server: &usize| {
            let known = view.servers[*server];
            // The gateways of a region share its servers.
            let slots = u32::try_from(known.slots.div_ceil(view.gateways_per_region)).unwrap_or(u32::MAX);
            EndpointConfig {
                region: Some(name(known.region)),
                weight: if weighted { known.weight } else { 1 },
                capacity: if balance == Balance::PeakEwma { NonZeroU32::new(slots) } else { None },
                ..EndpointConfig::new(Address::Tcp((std::net::Ipv4Addr::from(*server as u32), 80).into()))
            }
        };
        let pool = PoolConfig { workers: view.workers, ..PoolConfig::default() };
        // The others know no distances: they take the regions as configured, one after the other.
        let regions = view.regions.iter().enumerate().map(|(region, known)| {
            let (latitude, longitude) = known.position;
            Some((name(region), Position::new(latitude, longitude)?))
        });
        let regions: Vec<_> =
            if balance == Balance::PeakEwma { regions.flatten().collect() } else { Vec::new() };
        let locality = Arc::new(Locality::new(Some(name(view.home)), regions, None));
        let config = ServiceConfig {
            balance,
            pool,
            locality,
            ..ServiceConfig::new("simulated", servers.iter().map(endpoint).collect())
        };
        #[expect(clippy::expect_used, reason = "an invalid world is a mistake in a scenario")]
        let state = ServiceState::reconcile(&config, None, Connections::Kept).expect("a valid world");
        let mut endpoints = vec![None; servers.len()];
        for ((index, _), server) in state.endpoints().zip(&servers) {
            endpoints[*server] = Some(index);
        }
        Self {
            endpoints: endpoints.into_iter().flatten().collect(),
            state,
            servers,
            attempts: Numbered::new(),
        }
    }
}

fn name(region: usize) -> String {
    format!("region-{region}")
}

impl Policy for Cardea {
    fn begin(&mut self) {
        self.state.begin();
    }

    fn choose(&mut self, ask: Ask<'_>) -> Option<Chosen> {
        let mut tried = AttemptedEndpoints::new();
        ask.tried.iter().for_each(|server| tried.insert(self.endpoints[*server]));
        let selection = Selection { worker: ask.worker, now: ask.now, ..Selection::default() };
        let (choice, endpoint) = self.state.choose(&selection, &tried)?;
        let server = self.servers[choice.endpoint.get()];
        Some(Chosen { server, token: self.attempts.add((choice, endpoint.begin(ask.worker))) })
    }

    fn ended(&mut self, now: Mono, token: usize, ending: Ending, latency: Duration) {
        let Some((choice, _in_flight)) = self.attempts.take(token) else { return };
        match ending {
            Ending::Response { status, .. } => self.state.responded(choice, now, status, Some(latency)),
            Ending::Failure(kind) => self.state.failed(choice, now, kind, latency),
        }
    }

    fn connected(&mut self, now: Mono, server: usize, round_trip: Duration) {
        self.state.round_trip(self.endpoints[server], now, round_trip);
    }

    fn may_retry(&mut self, now: Mono, cause: RetryCause) -> bool {
        self.state.retry(cause, now)
    }
}

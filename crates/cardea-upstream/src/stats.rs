//! What the program reads for its metrics: gauges and counters of a service at one moment.

use std::sync::atomic::Ordering;

use crate::address::Address;
use crate::endpoint::{Endpoint, FailureKind};
use crate::pool::PoolStats;

/// A service's counters; they begin with its first configuration and survive reloads.
#[derive(Clone, Debug)]
pub struct ServiceStats {
    /// The service's name.
    pub name: String,
    /// Its endpoints, in the order configured.
    pub endpoints: Vec<EndpointStats>,
    /// Requests sent to an ejected endpoint because none was available.
    pub panics: u64,
    /// Retries that the budget allowed.
    pub retries: u64,
    /// Retries that the budget refused.
    pub retries_refused: u64,
    /// Retries that are left in the budget, time since the last one not counted.
    pub retry_balance: u64,
}

/// An endpoint's gauges and counters.
#[derive(Clone, Debug)]
pub struct EndpointStats {
    /// Where it listens.
    pub address: Address,
    /// Its region.
    pub region: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// Requests there now.
    pub in_flight: usize,
    /// Connections there now that hold a permit.
    pub connections: usize,
    /// Its pool.
    pub pool: PoolStats,
    /// Requests sent there.
    pub requests: u64,
    /// Connections made.
    pub connects: u64,
    /// Failures, by kind.
    pub failures: [(FailureKind, u64); FailureKind::ALL.len()],
    /// How often it sent bytes that belong to no response.
    pub surplus: u64,
    /// How often it was ejected, failed trials included.
    pub ejections: u64,
    /// Whether it is ejected now.
    pub ejected: bool,
}

impl EndpointStats {
    /// How often connecting failed, handshakes included.
    #[must_use]
    pub fn connect_failures(&self) -> u64 {
        self.failures.iter().filter(|(kind, _)| kind.ejects()).map(|(_, count)| count).sum()
    }

    pub(crate) fn of<C>(endpoint: &Endpoint<C>, region: Option<String>, weight: u32) -> Self {
        let shared = &endpoint.shared;
        Self {
            address: endpoint.address().clone(),
            region,
            weight,
            in_flight: endpoint.in_flight(),
            connections: endpoint.connections(),
            pool: endpoint.pool().stats(),
            requests: shared.requests(),
            connects: shared.connects.load(Ordering::Relaxed),
            failures: shared.failures(),
            surplus: shared.framing.surplus(),
            ejections: shared.ejections.load(Ordering::Relaxed),
            ejected: endpoint.is_ejected(),
        }
    }
}

//! What the program reads for its metrics: gauges and counters of a service at one moment.

use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use cardea_clock::Mono;

use crate::address::Address;
use crate::check::{CheckResult, CheckState};
use crate::endpoint::{Endpoint, FailureKind, Override};
use crate::health::{CurrentEjection, EjectionCause};
use crate::names::DnsName;
use crate::pool::PoolStats;
use crate::retry::RetryCause;

/// A service's counters; they begin with its first configuration and survive reloads.
#[derive(Clone, Debug)]
pub struct ServiceStats {
    /// The service's name.
    pub name: String,
    /// Its endpoints, in the order configured.
    pub endpoints: Vec<EndpointStats>,
    /// The regions of its endpoints, by preference.
    pub regions: Vec<RegionStats>,
    /// Requests sent to an ejected endpoint because too few were healthy, or no other was left for a retry.
    pub panics: u64,
    /// How often no endpoint was chosen because those that could be had reached their limits.
    pub limited: u64,
    /// Whether so few endpoints are healthy that all are used.
    pub panicking: bool,
    /// Retries by cause: those that the budget allowed, and those that it refused.
    pub retries: [(RetryCause, [u64; 2]); RetryCause::ALL.len()],
    /// Retries that are left in the budget, time since the last one not counted.
    pub retry_balance: u64,
}

/// A region's gauges.
#[derive(Clone, Debug)]
pub struct RegionStats {
    /// Its name; none of endpoints without one.
    pub name: Option<String>,
    /// Whether it is the gateway's own.
    pub is_home: bool,
    /// The round trip to it, if it is known.
    pub round_trip: Option<Duration>,
    /// Whether that was measured; if not, it follows from the distance.
    pub is_measured: bool,
    /// Its share of the requests, from 0 to 1.
    pub share: f32,
    /// How many endpoints it has.
    pub endpoints: usize,
    /// How many of them were healthy at the last look.
    pub healthy: usize,
}

impl RegionStats {
    /// Adds the endpoints of another priority.
    pub(crate) fn add(&mut self, other: &Self) {
        self.share += other.share;
        self.endpoints += other.endpoints;
        self.healthy += other.healthy;
    }
}

/// An endpoint's gauges and counters.
#[derive(Clone, Debug)]
pub struct EndpointStats {
    /// Its name and address as text.
    pub label: Arc<str>,
    /// Where it listens.
    pub address: Address,
    /// The name that was resolved to the address.
    pub name: Option<Arc<DnsName>>,
    /// Its region.
    pub region: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// Requests there now, those included that wait for a connection.
    pub in_flight: usize,
    /// Connections that are being made now.
    pub connects_pending: usize,
    /// The response time that endpoints are compared by, errors included; none before the first response.
    pub latency: Option<Duration>,
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
    /// How often it was ejected, by cause.
    pub ejections: [(EjectionCause, u64); EjectionCause::ALL.len()],
    /// Whether it is ejected now.
    pub ejected: bool,
    /// Why, and until when.
    pub ejection: Option<CurrentEjection>,
    /// What its checks have found.
    pub check: CheckState,
    /// Since when a check that is due waits for its turn.
    pub check_waits_since: Option<Mono>,
    /// Connections that are kept from one check to the next.
    pub check_connections: usize,
    /// The results of its checks.
    pub checks: [(CheckResult, u64); CheckResult::ALL.len()],
    /// What the operator says of it.
    pub overridden: Option<Override>,
    /// Whether neither its traffic, nor its checks, nor the operator speak against it.
    pub available: bool,
}

impl EndpointStats {
    /// How often connecting failed, handshakes included.
    #[must_use]
    pub fn connect_failures(&self) -> u64 {
        self.failures.iter().filter(|(kind, _)| kind.is_unreachable()).map(|(_, count)| count).sum()
    }

    pub(crate) fn of<C>(endpoint: &Endpoint<C>, region: Option<String>, weight: u32) -> Self {
        let shared = &endpoint.shared;
        Self {
            label: endpoint.shared_label(),
            address: endpoint.address().clone(),
            name: endpoint.name().cloned(),
            region,
            weight,
            in_flight: endpoint.in_flight(),
            connects_pending: shared.load.connects_pending(),
            latency: shared.load.latency(),
            connections: endpoint.connections(),
            pool: endpoint.pool().stats(),
            requests: shared.load.requests(),
            connects: shared.connects.load(Ordering::Relaxed),
            failures: shared.failures(),
            surplus: shared.framing.surplus(),
            ejections: shared.ejections(),
            ejected: endpoint.is_ejected(),
            ejection: shared.health.ejection(),
            check: shared.checks.state(),
            check_waits_since: shared.checks.waits_since(),
            check_connections: shared.checks.kept(),
            checks: shared.checks.results(),
            overridden: shared.overridden(),
            available: endpoint.is_available(),
        }
    }
}

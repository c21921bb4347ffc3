//! What the operator says about a service, and its limits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashSet, HashSetExt};
use thiserror::Error;

use crate::address::Address;
use crate::attempts::ATTEMPTS_MAX;
use crate::breaker::BreakerConfig;
use crate::check::CheckConfig;
use crate::locality::Locality;
use crate::names::DnsName;
use crate::retry::{RetryConfig, StatusSet};

/// How many endpoints a service may have.
pub const ENDPOINTS_MAX: usize = 1024;
/// The greatest weight of an endpoint.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// A service: endpoints that answer the same requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// The stable name that the state is kept by across reloads.
    pub name: String,
    /// At most [`ENDPOINTS_MAX`], no two with the same address and name. Without any, requests are refused.
    pub endpoints: Vec<EndpointConfig>,
    /// The pool of each endpoint.
    pub pool: PoolConfig,
    /// How an endpoint of a region is chosen.
    pub balance: Balance,
    /// What each endpoint gets at a time at most.
    pub breaker: BreakerConfig,
    /// When an endpoint is ejected, and for how long.
    pub health: HealthConfig,
    /// How endpoints are checked.
    pub check: CheckConfig,
    /// What is tried again, and how often.
    pub retry: RetryConfig,
    /// When requests are sent to other regions.
    pub spill: SpillConfig,
    /// Where the gateway is, and the regions.
    pub locality: Arc<Locality>,
}

/// When requests are sent to other regions than the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillConfig {
    /// What the nearest region can't take is spread over regions whose round trip is longer than that of the next one by so
    /// much at most. Default 30 ms.
    pub sensitivity: Duration,
    /// Up to so many percent of its capacity a region is filled while others have room. Default 80.
    pub band_percent: u32,
}

impl Default for SpillConfig {
    fn default() -> Self {
        Self { sensitivity: Duration::from_millis(30), band_percent: 80 }
    }
}

/// How an endpoint is chosen among those of a region. Weights count in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The better of two that are drawn: by requests in flight, times the response time, which follows peaks at once
    /// and counts errors as long responses. The default.
    #[default]
    PeakEwma,
    /// The one of two that are drawn that has fewer requests in flight.
    LeastRequests,
    /// One after the other.
    RoundRobin,
}

/// When an endpoint is ejected by what became of its requests, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// So many failures without a success in between eject. Default 5; none: any number does not.
    pub consecutive_failures: Option<NonZeroU32>,
    /// If so many percent of the attempts within [`window`](Self::window) fail, the endpoint is ejected. Default 50;
    /// none: no share does.
    pub failure_percent: Option<NonZeroU32>,
    /// Below so many attempts within the window their share says nothing. Default 20.
    pub requests_min: u32,
    /// Default 10 s.
    pub window: Duration,
    /// Statuses that count as failures. Default 502, 503 and 504.
    pub statuses: StatusSet,
    /// How long the first ejection lasts; each that follows lasts twice as long. Default 1 s.
    pub ejection_time: Duration,
    /// How long an ejection lasts at most, but for the fifth that is added at random. Default 5 s.
    pub ejection_time_max: Duration,
    /// How many percent of the endpoints may be ejected for failures that a request can cause: all but those to
    /// connect. At least one may be, where there are two. Default 50.
    pub ejected_percent_max: u32,
    /// If fewer percent of the endpoints are healthy, requests go to all. Default 10.
    pub panic_percent: u32,
    /// In which time an endpoint that comes back gets more and more of its share. Default 5 s.
    pub slow_start: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            consecutive_failures: NonZeroU32::new(5),
            failure_percent: NonZeroU32::new(50),
            requests_min: 20,
            window: Duration::from_secs(10),
            statuses: StatusSet::new([502, 503, 504]),
            ejection_time: Duration::from_secs(1),
            ejection_time_max: Duration::from_secs(5),
            ejected_percent_max: 50,
            panic_percent: 10,
            slow_start: Duration::from_secs(5),
        }
    }
}

/// One endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Where it listens. The endpoint keeps its state in a reload as long as this and its name stay.
    pub address: Address,
    /// The name that was resolved to the address.
    pub name: Option<Arc<DnsName>>,
    /// Of the endpoints of a region, those with a higher number are used only while all with a lower one are unhealthy
    /// (RFC 2782). Default 0.
    pub priority: u16,
    /// The region it stands in. Endpoints without one form a region of their own.
    pub region: Option<String>,
    /// Its share of the requests relative to others of the region; 0: it gets none. Default 1, at most
    /// [`WEIGHT_MAX`].
    pub weight: u32,
    /// How many requests of this gateway it serves at a time; none: a region with it has no band.
    pub capacity: Option<NonZeroU32>,
}

impl EndpointConfig {
    /// An endpoint without a region, of weight 1.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self { address, name: None, priority: 0, region: None, weight: 1, capacity: None }
    }
}

/// The connections of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// How many idle connections are kept per endpoint; 0: none. Default 1,024. The workers share them out.
    pub idle_max: usize,
    /// How long an idle connection is kept, unless the endpoint offers less (`Keep-Alive: timeout=`). It should be shorter
    /// than what the endpoint allows, lest a request meet its end. Default 50 s: common servers close after 60 s or more.
    pub idle_timeout: Duration,
    /// How old a connection may be that carries another request. Varies by a fifth. Default: any age.
    pub age_max: Option<Duration>,
    /// How many requests a connection carries. Default: any number.
    pub requests_max: Option<NonZeroU32>,
    /// How many connections there may be to an endpoint, idle ones included. Default: no limit but the
    /// number of requests.
    pub connections_max: Option<usize>,
    /// How many requests a connection of HTTP/2 carries at a time at most, where the endpoint allows as many. Default 100.
    pub streams_max: u32,
    /// How many workers there are, at least 1. Each keeps connections and counts of its own. Default 1. It stays
    /// what it was at first for endpoints that a reload keeps.
    pub workers: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            idle_max: 1_024,
            idle_timeout: Duration::from_secs(50),
            age_max: None,
            requests_max: None,
            connections_max: None,
            streams_max: 100,
            workers: 1,
        }
    }
}

/// Why a service can't be as configured.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// More than [`ENDPOINTS_MAX`] endpoints.
    #[error("a service has at most {ENDPOINTS_MAX} endpoints")]
    TooManyEndpoints,
    /// An address that another endpoint has already; with the position of the second.
    #[error("another endpoint has the address {address}")]
    Repeated {
        /// Position in the list of endpoints.
        endpoint: usize,
        /// The address.
        address: Address,
    },
    /// A weight over [`WEIGHT_MAX`].
    #[error("the weight {weight} is more than {WEIGHT_MAX}")]
    Weight {
        /// Position in the list of endpoints.
        endpoint: usize,
        /// The weight.
        weight: u32,
    },
    /// `connections_max` of 0: no request would ever be served.
    #[error("connections_max must be at least 1")]
    NoConnections,
    /// A number of attempts that is 0 or over [`ATTEMPTS_MAX`].
    #[error("a request has from 1 to {ATTEMPTS_MAX} attempts, not {0}")]
    Attempts(u32),
    /// A share of more than 100 %.
    #[error("{0} is more than 100 percent")]
    Percent(u32),
    /// An ejection that lasts no time, or longer at first than at most.
    #[error("ejection_time must be more than nothing and at most ejection_time_max")]
    EjectionTime,
}

impl ServiceConfig {
    /// A service with default limits.
    #[must_use]
    pub fn new(name: impl Into<String>, endpoints: Vec<EndpointConfig>) -> Self {
        Self {
            name: name.into(),
            endpoints,
            pool: PoolConfig::default(),
            balance: Balance::default(),
            breaker: BreakerConfig::default(),
            health: HealthConfig::default(),
            check: CheckConfig::default(),
            retry: RetryConfig::default(),
            spill: SpillConfig::default(),
            locality: Arc::default(),
        }
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// The first [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.endpoints.len() > ENDPOINTS_MAX {
            return Err(ConfigError::TooManyEndpoints);
        }
        if self.pool.connections_max == Some(0) {
            return Err(ConfigError::NoConnections);
        }
        let HealthConfig { ejection_time, ejection_time_max, .. } = self.health;
        if ejection_time.is_zero() || ejection_time > ejection_time_max {
            return Err(ConfigError::EjectionTime);
        }
        let percents = [
            self.health.failure_percent.map_or(0, NonZeroU32::get),
            self.health.ejected_percent_max,
            self.health.panic_percent,
            self.spill.band_percent,
        ];
        if let Some(percent) = percents.into_iter().find(|percent| *percent > 100) {
            return Err(ConfigError::Percent(percent));
        }
        let attempts = self.retry.attempts_max;
        if !usize::try_from(attempts).is_ok_and(|attempts| (1..=ATTEMPTS_MAX).contains(&attempts)) {
            return Err(ConfigError::Attempts(attempts));
        }
        let mut seen = HashSet::new();
        for (endpoint, EndpointConfig { address, name, weight, .. }) in self.endpoints.iter().enumerate() {
            if *weight > WEIGHT_MAX {
                return Err(ConfigError::Weight { endpoint, weight: *weight });
            }
            if !seen.insert((address, name)) {
                return Err(ConfigError::Repeated { endpoint, address: address.clone() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16) -> EndpointConfig {
        EndpointConfig::new(Address::Tcp(([10, 0, 0, 1], port).into()))
    }

    #[test]
    fn limits_are_checked() {
        let valid = ServiceConfig::new("s", vec![endpoint(1), endpoint(2)]);
        assert_eq!(valid.validate(), Ok(()));
        let with = |endpoints| ServiceConfig { endpoints, ..valid.clone() }.validate();
        assert_eq!(with((1..=1025).map(endpoint).collect()), Err(ConfigError::TooManyEndpoints));
        let address = endpoint(1).address;
        assert_eq!(
            with(vec![endpoint(1), endpoint(2), endpoint(1)]),
            Err(ConfigError::Repeated { endpoint: 2, address })
        );
        let heavy = EndpointConfig { weight: WEIGHT_MAX + 1, ..endpoint(1) };
        assert_eq!(with(vec![heavy]), Err(ConfigError::Weight { endpoint: 0, weight: WEIGHT_MAX + 1 }));
        let pool = PoolConfig { connections_max: Some(0), ..PoolConfig::default() };
        assert_eq!(ServiceConfig { pool, ..valid.clone() }.validate(), Err(ConfigError::NoConnections));
        for attempts_max in [0, 9] {
            let retry = RetryConfig { attempts_max, ..RetryConfig::default() };
            let config = ServiceConfig { retry, ..valid.clone() };
            assert_eq!(config.validate(), Err(ConfigError::Attempts(attempts_max)));
        }
        let with = |health| ServiceConfig { health, ..valid.clone() }.validate();
        let health = HealthConfig::default();
        assert_eq!(with(HealthConfig { panic_percent: 101, ..health }), Err(ConfigError::Percent(101)));
        for ejection_time in [Duration::ZERO, Duration::from_secs(6)] {
            assert_eq!(with(HealthConfig { ejection_time, ..health }), Err(ConfigError::EjectionTime));
        }
    }
}

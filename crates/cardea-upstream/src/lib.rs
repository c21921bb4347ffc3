//! Services, endpoints, their health, and connection pools.
//!
//! A [`ServiceConfig`] is what the operator wrote. [`ServiceState::reconcile`] makes of it, and of the
//! state before a change, the [`ServiceState`] that requests use: its [`Endpoint`]s keep their pool, their
//! health and their counters as long as their address stays. A [`LiveService`] holds the state in force; a change of the
//! endpoints replaces it there. [`ResolvedNames`] puts an endpoint at each address of a name. A request then
//!
//! 1. adds to the [`RetryBudget`] ([`ServiceState::begin`]),
//! 2. asks [`ServiceState::choose`] for an endpoint it hasn't tried, and counts itself there
//!    ([`Endpoint::begin`]) for as long as the exchange lasts,
//! 3. takes an idle connection from the [`Pool`] or, with a [`ConnectionPermit`], makes one, and reports what became of
//!    the attempt ([`ServiceState::connected`], [`responded`](ServiceState::responded),
//!    [`failed`](ServiceState::failed), [`abandoned`](ServiceState::abandoned)),
//! 4. gives the connection back to the pool, or tries another endpoint if [`ServiceState::retry`] allows.
//!
//! Load follows from these reports alone. Health follows from them, and apart from them from active checks
//! ([`Endpoint::checked`]): an endpoint is available if neither has found it unhealthy.
//!
//! What a connection is, and how it is made, is the caller's: here it is a type parameter. Nothing here
//! waits, reads a clock or knows a runtime; every lock is held for a few moves of memory.

mod address;
mod affinity;
mod attempts;
mod breaker;
mod check;
mod config;
mod endpoint;
mod framing;
mod health;
mod live;
mod load;
mod locality;
mod names;
mod permit;
mod pool;
mod region;
mod resolution;
mod retry;
mod service;
mod spread;
mod stats;
mod window;

pub use address::{Address, AddressError, is_host_name};
pub use affinity::Affinity;
pub use attempts::{ATTEMPTS_MAX, AttemptedEndpoints, EndpointIndex};
pub use breaker::BreakerConfig;
pub use check::{
    CHECK_BODY_BYTES_MAX, CheckConfig, CheckConnection, CheckMethod, CheckProtocol, CheckResult, CheckState,
    CheckWait,
};
pub use config::{
    Balance, ConfigError, ENDPOINTS_MAX, EndpointConfig, HealthConfig, PoolConfig, ServiceConfig,
    SpillConfig, WEIGHT_MAX,
};
pub use endpoint::{Endpoint, FailureKind, Override};
pub use health::{CurrentEjection, EjectionCause};
pub use live::{LiveService, ServiceRef};
pub use load::{Connecting, InFlight};
pub use locality::{KnownRegion, Locality, Position};
pub use names::{ADDRESSES_MAX, Change, DnsName, EndpointSource, Query, Resolved, ResolvedNames, Target};
pub use permit::ConnectionPermit;
pub use pool::{HOLD_FOR, Hold, IdleConnection, Pool, PoolPlace, PoolStats, SPARE_AFTER, Usage};
pub use resolution::{Answer, AnswerKind, NameStats, Resolutions};
pub use retry::{BudgetConfig, RetryBudget, RetryCause, RetryConfig, StatusSet};
pub use service::{
    Choice, ChoiceExplanation, ChoiceStep, Connections, EndpointExplanation, Obstacle, ReachedLimit,
    RegionExplanation, Selection, ServiceState,
};
pub use stats::{EndpointStats, RegionStats, ServiceStats};

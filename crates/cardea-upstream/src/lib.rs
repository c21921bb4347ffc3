//! Services, endpoints, their health, and connection pools.
//!
//! A [`ServiceConfig`] is what the operator wrote. [`ServiceState::reconcile`] makes of it, and of the
//! state before a reload, the [`ServiceState`] that requests use: its [`Endpoint`]s keep their pool, their
//! health and their counters as long as their address stays. A request then
//!
//! 1. adds to the [`RetryBudget`] ([`ServiceState::begin`]),
//! 2. asks [`ServiceState::choose`] for an endpoint it hasn't tried, and counts itself there
//!    ([`Endpoint::begin`]) for as long as the exchange lasts,
//! 3. takes an idle connection from the [`Pool`] or, with a [`ConnectionPermit`], makes one, and reports
//!    [`Endpoint::connected`], [`Endpoint::failed`] or [`Endpoint::succeeded`],
//! 4. gives the connection back to the pool, or tries another endpoint if [`ServiceState::retry`] allows.
//!
//! What a connection is, and how it is made, is the caller's: here it is a type parameter. Nothing here
//! waits, reads a clock or knows a runtime; every lock is held for a few moves of memory.

mod address;
mod affinity;
mod config;
mod endpoint;
mod framing;
mod health;
mod permit;
mod pool;
mod retry;
mod service;
mod stats;

pub use address::{Address, AddressError};
pub use affinity::Affinity;
pub use config::{ConfigError, ENDPOINTS_MAX, EndpointConfig, PoolConfig, ServiceConfig, WEIGHT_MAX};
pub use endpoint::{Endpoint, FailureKind, InFlight};
pub use health::{BACK_OFF_FIRST, BACK_OFF_MAX};
pub use permit::ConnectionPermit;
pub use pool::{HOLD_FOR, Hold, IdleConnection, Pool, PoolPlace, PoolStats, SPARE_AFTER};
pub use retry::{RetryBudget, RetryConfig};
pub use service::{ATTEMPTS_MAX, AttemptedEndpoints, Connections, EndpointIndex, ServiceState};
pub use stats::{EndpointStats, ServiceStats};

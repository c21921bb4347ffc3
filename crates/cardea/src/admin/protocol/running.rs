//! Replies about the running server: its state, its reloads, its services and limits.

use serde::{Deserialize, Serialize};

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// The number of configurations so far, including this one.
    pub(crate) generation: u64,
    pub(crate) took_milliseconds: u64,
    /// Sorted by kind.
    pub(crate) changes: Vec<Change>,
    /// Keys whose changes take effect at the next start.
    pub(crate) needs_restart: Vec<String>,
}

/// A difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// `added`, `removed` or `changed`.
    pub(crate) happened: String,
    /// `setting`, `route`, `service`, `listener`, `issuer`, `client_authority`, `attribute` or `certificate`.
    pub(crate) kind: String,
    /// For a setting, its key.
    pub(crate) name: String,
    /// The keys that differ, if something with a name was changed.
    pub(crate) keys: Vec<String>,
}

/// A serving listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListenerStatus {
    pub(crate) name: String,
    /// The bound address.
    pub(crate) address: String,
    pub(crate) connections: u64,
}

/// The keys of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeySet {
    pub(crate) issuer: String,
    pub(crate) keys: usize,
    /// Whether tokens can be verified.
    pub(crate) usable: bool,
    /// The time since the last fetch.
    pub(crate) age_seconds: Option<u64>,
    /// Why the last fetch failed.
    pub(crate) problem: Option<String>,
}

/// The certificate that expires next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expiry {
    pub(crate) hosts: Vec<String>,
    pub(crate) not_after: i64,
}

/// The status of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    /// The source revision; empty if the build has none.
    pub(crate) revision: String,
    /// The configuration file.
    pub(crate) configuration: String,
    /// When the configuration was loaded.
    pub(crate) loaded_at: i64,
    /// Why the last reload failed, if it did.
    pub(crate) last_reload_error: Option<String>,
    pub(crate) last_reload_failed_at: Option<i64>,
    /// Keys whose changes take effect at the next start.
    pub(crate) needs_restart: Vec<String>,
    /// Whether the server is ready, and why not.
    pub(crate) ready: bool,
    pub(crate) reasons: Vec<String>,
    /// Failures that do not affect readiness.
    pub(crate) degraded: Vec<String>,
    pub(crate) listeners: Vec<ListenerStatus>,
    /// The limits on requests in flight.
    #[serde(default)]
    pub(crate) admission: Vec<LimitStatus>,
    pub(crate) routes: usize,
    pub(crate) services: usize,
    pub(crate) endpoints: usize,
    /// Endpoints that neither their traffic nor their checks speak against.
    pub(crate) endpoints_healthy: usize,
    pub(crate) key_sets: Vec<KeySet>,
    pub(crate) next_certificate_expiry: Option<Expiry>,
    pub(crate) version: String,
    pub(crate) process_id: u32,
    pub(crate) uptime_seconds: u64,
    /// `running`, `draining` or `stopping`.
    pub(crate) phase: String,
    pub(crate) connections: u64,
    /// The number of configurations so far, including this one.
    pub(crate) generation: u64,
}

/// What is held of one offender in the tarpit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Held {
    /// An IPv4 address or an IPv6 prefix, of clients that have proven no identity.
    pub(crate) address: Option<String>,
    /// The issuer of an identity; `certificate` for client certificates.
    pub(crate) issuer: Option<String>,
    /// The subject of an identity, or the fingerprint of a certificate.
    pub(crate) subject: Option<String>,
    /// How many requests are held.
    pub(crate) requests: u32,
    /// For how long the first of them has been.
    pub(crate) held_milliseconds: u64,
    /// How long the last of them will be yet.
    pub(crate) left_milliseconds: u64,
}

/// How the operator overrides the health of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OverrideTo {
    /// No new requests.
    Drain,
    /// No new requests, no idle connections and no checks.
    Disable,
    /// Not overridden.
    Enable,
}

/// The result of an override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overridden {
    /// Whether it was different before.
    pub(crate) changed: bool,
    /// Requests that are still at the endpoint.
    pub(crate) in_flight: u64,
    /// Endpoints of the service that are not overridden.
    pub(crate) others: u64,
}

/// A service with its endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upstream {
    pub(crate) service: String,
    /// Whether so few endpoints are healthy that all are used.
    pub(crate) panicking: bool,
    pub(crate) endpoints: Vec<UpstreamEndpoint>,
}

/// An endpoint of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UpstreamEndpoint {
    pub(crate) address: String,
    /// The configured name that was resolved to the address.
    pub(crate) name: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) weight: u32,
    /// `healthy`, `ejected` (by its requests), `down` (by its checks), `drained` or `disabled` (by the operator).
    pub(crate) state: String,
    /// Why it is ejected or down.
    pub(crate) cause: Option<String>,
    /// Why its requests have ejected it, if they have.
    pub(crate) ejected: Option<String>,
    /// How long it stays ejected until a request probes it.
    pub(crate) ejected_for_milliseconds: Option<u64>,
    /// Whether it is up by its checks; absent without checks.
    pub(crate) check_up: Option<bool>,
    /// The result of the last check.
    pub(crate) last_check: Option<String>,
    /// For how long the next check has waited for its turn, beyond the time when it was due; absent if it has not.
    pub(crate) check_late_milliseconds: Option<u64>,
    /// `drained` or `disabled`.
    pub(crate) overridden: Option<String>,
    /// Requests that are there or wait for a connection.
    pub(crate) in_flight: u64,
    pub(crate) connections: u64,
    /// The moving average of response times; absent before the first response.
    pub(crate) latency_ewma_microseconds: Option<u64>,
}

/// A limit on requests in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitStatus {
    /// `process`, `streams`, or `service/` or `route/` and a name.
    pub(crate) limit: String,
    pub(crate) max_in_flight: u32,
    pub(crate) in_flight: u32,
    /// Requests that wait.
    pub(crate) queued: u32,
    /// How long the oldest of them has waited.
    pub(crate) oldest_milliseconds: u64,
    /// The callers that are refused for now, by priority.
    pub(crate) refused: String,
}

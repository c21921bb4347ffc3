//! How an endpoint would be chosen, as the admin socket tells it.

use serde::{Deserialize, Serialize};

/// Which endpoint of a service a request would get now, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExplainedChoice {
    pub(crate) service: String,
    /// The endpoint; absent if the request would be refused. The choice among endpoints is drawn, so another request may get
    /// another one.
    pub(crate) chosen: Option<String>,
    /// What led to it, in this order.
    pub(crate) steps: Vec<ExplainedStep>,
    /// The regions, by preference.
    pub(crate) regions: Vec<ExplainedRegion>,
    pub(crate) endpoints: Vec<ExplainedEndpoint>,
}

/// A step of the choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExplainedStep {
    /// `panic`, `region`, `next_region`, `probe`, `passed_over`, `slow_start`, `better_of_two`, `key`, `key_full`, or
    /// `ejected_too`.
    pub(crate) step: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    /// The other of two endpoints that were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) other: Option<String>,
    /// Why the endpoint was passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Requests in flight for the weight, this one included, times the response time in seconds if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) other_cost: Option<f64>,
}

/// A region, with what decides about its share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExplainedRegion {
    /// Absent of endpoints without one.
    pub(crate) region: Option<String>,
    /// Whether it is the gateway's own.
    pub(crate) home: bool,
    pub(crate) round_trip_milliseconds: Option<f64>,
    /// Whether that was measured; else it follows from the distance.
    pub(crate) measured: bool,
    pub(crate) endpoints: u64,
    pub(crate) healthy: u64,
    /// Requests at its healthy endpoints.
    pub(crate) in_flight: u64,
    /// How many it may have while other regions have room; absent if a capacity is not known.
    pub(crate) band: Option<f64>,
    /// Its present share of the requests, from 0 to 1.
    pub(crate) share: f64,
}

/// An endpoint, with what decides about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExplainedEndpoint {
    pub(crate) endpoint: String,
    pub(crate) region: Option<String>,
    pub(crate) weight: u32,
    /// Why it can't be chosen: `unhealthy`, `taken_out`, `requests_max` or `connections_max`.
    pub(crate) obstacle: Option<String>,
    /// The part of its requests that it may get now, from 0 to 1; less than 1 in its slow start, or if it asks for fewer.
    pub(crate) share: f64,
    pub(crate) in_flight: u64,
    /// The moving average of response times; absent before the first response.
    pub(crate) latency_ewma_microseconds: Option<u64>,
}

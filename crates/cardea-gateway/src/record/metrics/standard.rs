//! The metrics of the gateway itself, in one place, so that names stay in step with each other.
//!
//! Where OpenTelemetry's semantic conventions for HTTP have a metric, its name is theirs. Of their labels the
//! method is left out and the status code is reduced to its class: on ten thousand routes each label value
//! more is ten thousand histograms. [`HTTP_RESPONSES`] has the codes.

use super::{CounterDef, GaugeDef, HistogramDef, LATENCY_BOUNDS};

/// Time from a request's head to the end of its response, by route; for [`super::StatusClasses`].
pub static HTTP_SERVER_REQUEST_DURATION: HistogramDef<2> = HistogramDef::new(
    "http_server_request_duration_seconds",
    "Time from the head of a request to the end of its response, by route.",
    ["http_route", "http_response_status_class"],
    LATENCY_BOUNDS,
);

/// Requests that are being served.
pub static HTTP_SERVER_ACTIVE_REQUESTS: GaugeDef<0> =
    GaugeDef::new("http_server_active_requests", "Requests that are being served.", []);

/// Time of an attempt at an upstream, by service; for [`super::StatusClasses`].
pub static HTTP_CLIENT_REQUEST_DURATION: HistogramDef<2> = HistogramDef::new(
    "http_client_request_duration_seconds",
    "Time of an attempt at an upstream, from choosing the endpoint to the end of the response, by service.",
    ["cardea_service", "http_response_status_class"],
    LATENCY_BOUNDS,
);

/// Responses by status code; for [`super::StatusCodes`].
pub static HTTP_RESPONSES: CounterDef<1> = CounterDef::new(
    "cardea_http_responses_total",
    "Responses, by status code; `none` where the connection ended before one.",
    ["http_response_status_code"],
)
.sharded();

/// Requests that were refused by the gateway, by reason code.
pub static REFUSALS: CounterDef<1> =
    CounterDef::new("cardea_refusals_total", "Requests that were refused, by reason.", ["reason"]).sharded();

/// Always 1; its label says what runs.
pub static BUILD_INFO: GaugeDef<1> =
    GaugeDef::new("cardea_build_info", "What runs; the value is always 1.", ["version"]);

//! What the data path counts. Labels are resolved when a model is built: a request looks up nothing.

use std::sync::Arc;

use cardea_identity::VerdictSource;

use crate::{
    exchange::Exchange,
    record::{
        Registry,
        metrics::{Counter, CounterDef, HistogramDef, LATENCY_BOUNDS, StatusClasses},
    },
    streams::StreamEnd,
};

static ACCEPT_FAILURES: CounterDef<0> =
    CounterDef::new("cardea_accept_failures_total", "Failures to accept a connection.", []);
static CONNECTION_ATTEMPTS: CounterDef<0> =
    CounterDef::new("cardea_connection_attempts_total", "Connections accepted.", []).sharded();
static HANDSHAKE_FAILURES: CounterDef<0> =
    CounterDef::new("cardea_tls_handshake_failures_total", "TLS handshakes that failed.", []);
static EXCESS: CounterDef<1> = CounterDef::new(
    "cardea_excess_connections_total",
    "Connections that were closed at once or before their handshake was done, by the bound that they met.",
    ["bound"],
);
static HANDSHAKES: CounterDef<1> =
    CounterDef::new("cardea_tls_handshakes_total", "TLS handshakes done.", ["resumed"]).sharded();
static PROXY_HEADER_FAILURES: CounterDef<0> = CounterDef::new(
    "cardea_proxy_header_failures_total",
    "Connections of trusted proxies without a valid PROXY header.",
    [],
);
static REFUSED: CounterDef<0> =
    CounterDef::new("cardea_refused_requests_total", "Requests that the gateway answered itself.", [])
        .sharded();
static ABORTED: CounterDef<0> = CounterDef::new(
    "cardea_aborted_requests_total",
    "Requests whose response is not whole: the client or the service gave up, or the gateway ended it.",
    [],
)
.sharded();
static EXPRESSION_FAULTS: CounterDef<0> = CounterDef::new(
    "cardea_expression_faults_total",
    "Expressions that could not be evaluated for a request; in policies and routes that refuses it.",
    [],
);
static VERDICTS: CounterDef<1> = CounterDef::new(
    "cardea_token_verdicts_total",
    "Bearer tokens that were accepted, by where their verdict came from: their connection's last token, the cache of \
     all connections, or a verification.",
    ["source"],
)
.sharded();
static STREAMS_ENDED: CounterDef<1> = CounterDef::new(
    "cardea_streams_ended_total",
    "WebSockets, responses and requests under way that the gateway ended, by why.",
    ["reason"],
);
static DURATION: HistogramDef<2> = HistogramDef::new(
    "http_server_request_duration_seconds",
    "From the head of the request to the end of the response.",
    ["http_route", "status_class"],
    LATENCY_BOUNDS,
);

/// What is counted for the process.
pub struct GatewayMetrics {
    /// Failures to accept.
    pub accept_failures: Counter,
    /// Connections accepted.
    pub connection_attempts: Counter,
    /// TLS handshakes that failed.
    pub handshake_failures: Counter,
    /// Connections that were too many: of a prefix in a second, of a prefix in handshakes, of all in handshakes.
    pub(crate) excess: [Counter; 3],
    /// Full TLS handshakes.
    pub handshakes_full: Counter,
    /// Resumed TLS sessions.
    pub handshakes_resumed: Counter,
    /// PROXY headers that were missing or invalid.
    pub proxy_header_failures: Counter,
    /// Requests that the gateway answered itself because it refused them.
    pub refused: Counter,
    /// Exchanges that did not come to their end.
    pub aborted: Counter,
    /// Expressions that could not be evaluated.
    pub expression_faults: Counter,
    /// Verdicts on tokens: of the connection, of the cache, of a verification.
    verdicts: [Counter; 3],
    /// In the order of [`StreamEnd::ALL`].
    streams_ended: [Counter; StreamEnd::ALL.len()],
    /// Requests without a route.
    unrouted: RouteMetrics,
    registry: Arc<Registry>,
}

impl GatewayMetrics {
    /// Enters the figures into `registry`.
    #[must_use]
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            accept_failures: registry.counter(&ACCEPT_FAILURES, []),
            connection_attempts: registry.counter(&CONNECTION_ATTEMPTS, []),
            handshake_failures: registry.counter(&HANDSHAKE_FAILURES, []),
            excess: ["new_connections_per_second_max", "handshakes_per_prefix_max", "handshakes_max"]
                .map(|bound| registry.counter(&EXCESS, [bound])),
            handshakes_full: registry.counter(&HANDSHAKES, ["false"]),
            handshakes_resumed: registry.counter(&HANDSHAKES, ["true"]),
            proxy_header_failures: registry.counter(&PROXY_HEADER_FAILURES, []),
            refused: registry.counter(&REFUSED, []),
            aborted: registry.counter(&ABORTED, []),
            expression_faults: registry.counter(&EXPRESSION_FAULTS, []),
            verdicts: [VerdictSource::Connection, VerdictSource::Cache, VerdictSource::Verification]
                .map(|source| registry.counter(&VERDICTS, [source.as_str()])),
            streams_ended: StreamEnd::ALL.map(|end| registry.counter(&STREAMS_ENDED, [end.code()])),
            unrouted: RouteMetrics::new(""),
            registry,
        }
    }

    /// How many connections were closed because their prefix had too many handshakes under way.
    #[must_use]
    pub fn excess_of_handshakes(&self) -> u64 {
        let [_, handshakes, _] = &self.excess;
        handshakes.value()
    }

    /// Counts a handshake.
    pub(crate) fn handshake(&self, resumed: bool) {
        if resumed { &self.handshakes_resumed } else { &self.handshakes_full }.increment();
    }

    /// Counts a token that was accepted.
    pub(crate) fn verdict(&self, source: VerdictSource) {
        let [connection, cache, verification] = &self.verdicts;
        match source {
            VerdictSource::Connection => connection,
            VerdictSource::Cache => cache,
            VerdictSource::Verification => verification,
        }
        .increment();
    }

    /// Counts a stream that the gateway ends.
    pub(crate) fn stream_ended(&self, end: StreamEnd) {
        let counters = self.streams_ended.iter().zip(StreamEnd::ALL);
        counters.filter(|(_, other)| *other == end).for_each(|(counter, _)| counter.increment());
    }

    /// Counts an exchange that has ended.
    pub(crate) fn record(&self, exchange: &Exchange) {
        let route = exchange.route().map_or(&self.unrouted, |route| &route.metrics);
        route.durations.observe(&self.registry, exchange.response.status, exchange.duration());
        if !exchange.response.complete {
            self.aborted.increment();
        } else if exchange.response.reason.is_some() {
            self.refused.increment();
        }
    }
}

/// What is counted for a route.
pub struct RouteMetrics {
    durations: StatusClasses,
}

impl RouteMetrics {
    /// The figures of the route called `name`; the same ones for the same name, across reloads.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { durations: StatusClasses::new(&DURATION, name) }
    }
}

impl std::fmt::Debug for RouteMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouteMetrics").finish_non_exhaustive()
    }
}

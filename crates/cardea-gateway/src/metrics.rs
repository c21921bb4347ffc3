//! What the data path counts. Labels are resolved when a model is built, or when something happens for the first time:
//! a request looks up nothing.

use std::{sync::Arc, time::Duration};

use cardea_guard::{AdmissionRefusal, Released};
use cardea_identity::VerdictSource;

use crate::{
    exchange::Exchange,
    record::{
        Registry,
        metrics::{
            Counter, CounterDef, Definition, GaugeDef, GrpcStatuses, Histogram, HistogramDef, LATENCY_BOUNDS,
            LazyCounter, LazyHistogram, LazyUpDown, Reasons, StatusClasses, StatusCodes, UpDown,
        },
    },
    refusal::Reason,
    shortage::Shortage,
    tarpit::Measure,
    termination::TerminationReason,
};

static ACCEPT_FAILURES: CounterDef<0> =
    CounterDef::new("cardea_accept_failures_total", "Connections that could not be accepted.", []);
static CONNECTION_ATTEMPTS: CounterDef<0> =
    CounterDef::new("cardea_connection_attempts_total", "Accepted connections.", []).sharded();
static CONNECTIONS: GaugeDef<2> = GaugeDef::new(
    "cardea_connections",
    "Open client connections, by listener and protocol: `tls` until the handshake is complete, then `http/1.1` or `h2`.",
    ["listener", "protocol"],
);
static HANDSHAKE_FAILURES: CounterDef<0> =
    CounterDef::new("cardea_tls_handshake_failures_total", "Failed TLS handshakes.", []);
static EXCESS: CounterDef<1> = CounterDef::new(
    "cardea_excess_connections_total",
    "Connections that were closed at once, or before their handshake was complete, by the limit that they exceeded.",
    ["bound"],
);
static HANDSHAKES: CounterDef<1> = CounterDef::new(
    "cardea_tls_handshakes_total",
    "Completed TLS handshakes, by whether a session was \
         resumed.",
    ["resumed"],
)
.sharded();
static PROXY_HEADER_FAILURES: CounterDef<0> = CounterDef::new(
    "cardea_proxy_header_failures_total",
    "Connections of trusted proxies without a valid PROXY header.",
    [],
);
static SHORTAGES: CounterDef<1> = CounterDef::new(
    "cardea_shortages_total",
    "Connections that could not be accepted or opened because the process or the system ran out of descriptors, ports \
     or memory, by resource.",
    ["resource"],
);
static IDLE_CLOSED: CounterDef<1> = CounterDef::new(
    "cardea_idle_connections_closed_total",
    "Idle client connections that were closed to make room, by reason: `connections_max` was reached, `shortage` \
     of a system resource, or `pressure` ahead of it.",
    ["reason"],
);
static PROXY_PEERS_REFUSED: CounterDef<0> = CounterDef::new(
    "cardea_proxy_peers_refused_total",
    "Connections that were closed because the listener uses the PROXY protocol and the peer is not in \
     `proxy_protocol_from`.",
    [],
);
static REFUSED: CounterDef<2> = CounterDef::new(
    "cardea_refused_requests_total",
    "Requests that the gateway refused, by the reason code in the response and the access log, and by status.",
    ["reason", "http_response_status_code"],
)
.sharded();
static ABORTED: CounterDef<2> = CounterDef::new(
    "cardea_aborted_requests_total",
    "Requests whose response is incomplete, by the reason for which the gateway ended it (`client_aborted` if the \
     client did, `none` if either side disconnected), and by the status that was sent.",
    ["reason", "http_response_status_code"],
)
.sharded();
static EXPRESSION_FAULTS: CounterDef<0> = CounterDef::new(
    "cardea_expression_faults_total",
    "Expressions that could not be evaluated for a request. In a policy or route, this refuses the request.",
    [],
);
static VERDICTS: CounterDef<1> = CounterDef::new(
    "cardea_token_verdicts_total",
    "Accepted bearer tokens, by the source of their verdict: the `connection`'s last token, the verdict `cache`, or a \
     `verification`.",
    ["source"],
)
.sharded();
static STREAMS_ENDED: CounterDef<1> = CounterDef::new(
    "cardea_streams_ended_total",
    "Streams (WebSockets, long requests and responses) that the gateway ended, by reason.",
    ["reason"],
);
static THROTTLED: CounterDef<2> = CounterDef::new(
    "cardea_throttle_requests_total",
    "Decisions of a throttle on requests: `admitted`, `limited` (refused), or `dry_run_limited` (would be refused \
     without the dry run). A request that is refused counts only for the throttle that refuses it.",
    ["throttle", "outcome"],
)
.sharded();
static ADMISSIONS: CounterDef<2> = CounterDef::new(
    "cardea_admission_requests_total",
    "Requests that arrived at a limit on requests in flight, by what became of them: `admitted`, refused (`queue_full`, \
     `queue_displaced`, `queue_timeout`, `queue_shed`, `queue_share`), or `left` (the client gave up while it waited, or its right ended). A request is \
     counted at each of its limits.",
    ["limit", "outcome"],
)
.sharded();
static QUEUE_TIME: HistogramDef<1> = HistogramDef::new(
    "cardea_admission_queue_seconds",
    "How long requests waited in the queue, by limit: those that had to, whatever became of them.",
    ["limit"],
    LATENCY_BOUNDS,
);
static TARPIT: CounterDef<1> = CounterDef::new(
    "cardea_tarpit_requests_total",
    "Refusals of repeat offenders, by what became of them: `held`, `dripped`, `dropped`, or answered 429 because as many      were held as may be (`shed_total`, `shed_prefix`, `shed_identity`, `shed_connection`).",
    ["outcome"],
);
static TARPIT_ENDED: CounterDef<1> = CounterDef::new(
    "cardea_tarpit_ended_total",
    "Refusals that are held no more, by how that ended: `due`, `released` before, `evicted` to make room, or `left` (the      client gave up).",
    ["how"],
);
/// Those of the tarpit, which holds for seconds.
const HOLD_BOUNDS: [Duration; 10] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(6),
    Duration::from_secs(8),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
];
static TARPIT_TIME: HistogramDef<0> = HistogramDef::new(
    "cardea_tarpit_seconds",
    "How long refusals were held, however that ended.",
    [],
    &HOLD_BOUNDS,
);
static ACTIVE: GaugeDef<0> = GaugeDef::new("http_server_active_requests", "Requests in progress.", []);
static DURATION: HistogramDef<2> = HistogramDef::new(
    "http_server_request_duration_seconds",
    "Time from the head of the request to the end of the response, by route. The route is empty if none matched.",
    ["http_route", "status_class"],
    LATENCY_BOUNDS,
);
static RESPONSES: CounterDef<2> = CounterDef::new(
    "cardea_http_responses_total",
    "Responses by route and exact status: 499 if the client aborted the request, `none` if there was no response. A \
     route has at most 16 statuses; all others are `_other`.",
    ["http_route", "http_response_status_code"],
)
.sharded();
static GRPC_CALLS: CounterDef<2> = CounterDef::new(
    "cardea_grpc_calls_total",
    "gRPC calls over HTTP/2 by route and status code, as their clients received it.",
    ["http_route", "rpc_grpc_status_code"],
)
.sharded();
static RESPONSE_HEAD: HistogramDef<2> = HistogramDef::new(
    "cardea_upstream_response_head_seconds",
    "Time from the head of a request to the head of the response, including failed attempts, by service.",
    ["service", "status_class"],
    LATENCY_BOUNDS,
);
static CONNECT: HistogramDef<1> = HistogramDef::new(
    "cardea_upstream_connect_seconds",
    "Time to connect to an endpoint for a request, including TLS, by service. Failed connections are not included.",
    ["service"],
    LATENCY_BOUNDS,
);

/// The metrics of the data path.
pub static DEFINITIONS: &[Definition] = &[
    DURATION.definition(),
    RESPONSES.definition(),
    GRPC_CALLS.definition(),
    ACTIVE.definition(),
    REFUSED.definition(),
    ABORTED.definition(),
    EXPRESSION_FAULTS.definition(),
    VERDICTS.definition(),
    STREAMS_ENDED.definition(),
    THROTTLED.definition(),
    ADMISSIONS.definition(),
    QUEUE_TIME.definition(),
    TARPIT.definition(),
    TARPIT_ENDED.definition(),
    TARPIT_TIME.definition(),
    CONNECTIONS.definition(),
    CONNECTION_ATTEMPTS.definition(),
    EXCESS.definition(),
    IDLE_CLOSED.definition(),
    ACCEPT_FAILURES.definition(),
    SHORTAGES.definition(),
    PROXY_HEADER_FAILURES.definition(),
    PROXY_PEERS_REFUSED.definition(),
    HANDSHAKES.definition(),
    HANDSHAKE_FAILURES.definition(),
];

/// The metrics of services that the data path counts.
pub static UPSTREAM_DEFINITIONS: &[Definition] = &[RESPONSE_HEAD.definition(), CONNECT.definition()];

/// The metrics of the process.
pub struct GatewayMetrics {
    /// Failures to accept.
    pub accept_failures: Counter,
    /// Connections accepted.
    pub connection_attempts: Counter,
    /// TLS handshakes that failed.
    pub handshake_failures: Counter,
    /// Connections that exceeded a limit.
    pub(crate) excess: Excess,
    /// In the order of [`Shortage::ALL`].
    shortages: [Counter; Shortage::ALL.len()],
    /// Idle client connections that were closed to make room: for another client, because of a shortage, or ahead of one.
    pub(crate) idle_closed: [Counter; 3],
    /// Full TLS handshakes.
    pub handshakes_full: Counter,
    /// Resumed TLS sessions.
    pub handshakes_resumed: Counter,
    /// PROXY headers that were missing or invalid.
    pub proxy_header_failures: Counter,
    /// Connections of peers that may not send a PROXY header.
    pub proxy_peers_refused: Counter,
    /// Requests that the gateway answered itself because it refused them.
    pub refused: Reasons,
    /// Exchanges whose response is incomplete.
    pub aborted: Reasons,
    /// Expressions that could not be evaluated.
    pub expression_faults: Counter,
    /// Verdicts on tokens.
    verdicts: Verdicts,
    /// In the order of [`TerminationReason::ALL`].
    streams_ended: [Counter; TerminationReason::ALL.len()],
    /// Requests that are being served.
    pub(crate) active: UpDown,
    /// Requests without a route.
    unrouted: RouteMetrics,
    registry: Arc<Registry>,
}

/// Connections that were closed because a limit was exceeded, by limit.
pub(crate) struct Excess {
    pub(crate) new_connections_per_second: Counter,
    pub(crate) handshakes_per_prefix: Counter,
    pub(crate) handshakes: Counter,
    pub(crate) connections_per_prefix: Counter,
    pub(crate) pressure: Counter,
}

/// Tokens that were accepted, by where their verdict came from.
struct Verdicts {
    connection: Counter,
    cache: Counter,
    verification: Counter,
}

impl GatewayMetrics {
    /// Registers the metrics in `registry`.
    #[must_use]
    pub fn new(registry: Arc<Registry>) -> Self {
        let excess = |bound| registry.counter(&EXCESS, [bound]);
        let verdicts = |source: VerdictSource| registry.counter(&VERDICTS, [source.as_str()]);
        Self {
            accept_failures: registry.counter(&ACCEPT_FAILURES, []),
            connection_attempts: registry.counter(&CONNECTION_ATTEMPTS, []),
            handshake_failures: registry.counter(&HANDSHAKE_FAILURES, []),
            excess: Excess {
                new_connections_per_second: excess("new_connections_per_second_max"),
                handshakes_per_prefix: excess("handshakes_per_prefix_max"),
                handshakes: excess("handshakes_max"),
                connections_per_prefix: excess("connections_per_prefix_max"),
                pressure: excess("pressure_percent"),
            },
            shortages: Shortage::ALL.map(|shortage| registry.counter(&SHORTAGES, [shortage.as_str()])),
            idle_closed: ["connections_max", "shortage", "pressure"]
                .map(|reason| registry.counter(&IDLE_CLOSED, [reason])),
            handshakes_full: registry.counter(&HANDSHAKES, ["false"]),
            handshakes_resumed: registry.counter(&HANDSHAKES, ["true"]),
            proxy_header_failures: registry.counter(&PROXY_HEADER_FAILURES, []),
            proxy_peers_refused: registry.counter(&PROXY_PEERS_REFUSED, []),
            refused: Reasons::new(&REFUSED),
            aborted: Reasons::new(&ABORTED),
            expression_faults: registry.counter(&EXPRESSION_FAULTS, []),
            verdicts: Verdicts {
                connection: verdicts(VerdictSource::Connection),
                cache: verdicts(VerdictSource::Cache),
                verification: verdicts(VerdictSource::Verification),
            },
            streams_ended: TerminationReason::ALL.map(|end| registry.counter(&STREAMS_ENDED, [end.code()])),
            active: registry.up_down(&ACTIVE, []),
            unrouted: RouteMetrics::new(""),
            registry,
        }
    }

    /// The registry of the metrics.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// How many connections were closed because their prefix had too many handshakes under way.
    #[must_use]
    pub fn excess_of_handshakes(&self) -> u64 {
        self.excess.handshakes_per_prefix.value()
    }

    /// Counts a shortage.
    pub(crate) fn count_shortage(&self, shortage: Shortage) {
        let counters = self.shortages.iter().zip(Shortage::ALL);
        counters.filter(|(_, other)| *other == shortage).for_each(|(counter, _)| counter.increment());
    }

    /// Counts a handshake.
    pub(crate) fn handshake(&self, resumed: bool) {
        if resumed { &self.handshakes_resumed } else { &self.handshakes_full }.increment();
    }

    /// Counts a token that was accepted.
    pub(crate) fn verdict(&self, source: VerdictSource) {
        match source {
            VerdictSource::Connection => &self.verdicts.connection,
            VerdictSource::Cache => &self.verdicts.cache,
            VerdictSource::Verification => &self.verdicts.verification,
        }
        .increment();
    }

    /// Counts a stream that the gateway ends.
    pub(crate) fn stream_ended(&self, end: TerminationReason) {
        let counters = self.streams_ended.iter().zip(TerminationReason::ALL);
        counters.filter(|(_, other)| *other == end).for_each(|(counter, _)| counter.increment());
    }

    /// Counts an exchange that has ended.
    pub(crate) fn record(&self, exchange: &Exchange) {
        let (registry, response) = (&*self.registry, &exchange.response);
        let route = exchange.route();
        let metrics = route.map_or(&self.unrouted, |route| &*route.metrics);
        metrics.durations.observe(registry, response.status, exchange.duration());
        metrics.responses.increment(registry, response.status);
        if let Some(status) = response.grpc_status {
            metrics.grpc_calls.increment(registry, status);
        }
        if !response.complete && !matches!(exchange.tarpit.measure, Some(Measure::Held)) {
            self.aborted.increment(registry, response.reason.unwrap_or("none"), response.status);
        } else if let Some(reason) = response.reason {
            self.refused.increment(registry, reason, response.status);
        }
        if let Some(service) = route.and_then(|route| route.service(exchange.share)) {
            let (metrics, upstream) = (&service.metrics, &exchange.upstream);
            if let Some(head) = upstream.response_head {
                metrics.response_head.observe(registry, upstream.status, head);
            }
            if let Some(connect) = upstream.connect {
                metrics.connect.observe(registry, connect);
            }
        }
    }
}

/// What is counted for a route, for as long as the route is in the configuration: models share it, by its name.
pub struct RouteMetrics {
    durations: StatusClasses,
    responses: StatusCodes,
    grpc_calls: GrpcStatuses,
}

impl RouteMetrics {
    /// The figures of the route called `name`, which begin when it first appears in the configuration.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            durations: StatusClasses::new(&DURATION, name),
            responses: StatusCodes::new(&RESPONSES, name),
            grpc_calls: GrpcStatuses::new(&GRPC_CALLS, name),
        }
    }
}

impl std::fmt::Debug for RouteMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouteMetrics").finish_non_exhaustive()
    }
}

/// What is counted for a service beside what its endpoints count, for as long as it is in the configuration.
pub struct ServiceMetrics {
    response_head: StatusClasses,
    connect: LazyHistogram,
}

impl ServiceMetrics {
    /// The figures of the service called `name`, which begin when it first appears in the configuration.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            response_head: StatusClasses::new(&RESPONSE_HEAD, name),
            connect: LazyHistogram::new(&CONNECT, name),
        }
    }
}

impl std::fmt::Debug for ServiceMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceMetrics").finish_non_exhaustive()
    }
}

/// What is counted for a throttle, for as long as it is in the configuration.
pub struct ThrottleMetrics {
    admitted: LazyCounter,
    limited: LazyCounter,
    dry_run_limited: LazyCounter,
}

impl ThrottleMetrics {
    /// The figures of the throttle called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let counter = |outcome| LazyCounter::new(&THROTTLED, name, outcome);
        Self {
            admitted: counter("admitted"),
            limited: counter("limited"),
            dry_run_limited: counter("dry_run_limited"),
        }
    }

    /// Counts a request: whether all throttles admitted it, and whether this one did.
    pub(crate) fn count(&self, registry: &Registry, admitted: bool, fits: bool, dry_run: bool) {
        match (fits, dry_run) {
            (true, _) if admitted => self.admitted.increment(registry),
            (true, _) => {}
            (false, true) => self.dry_run_limited.increment(registry),
            (false, false) => self.limited.increment(registry),
        }
    }
}

impl std::fmt::Debug for ThrottleMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThrottleMetrics").finish_non_exhaustive()
    }
}

/// What is counted of the requests that arrive at a limit, for as long as it is in the configuration.
pub struct AdmissionMetrics {
    admitted: LazyCounter,
    queue_full: LazyCounter,
    displaced: LazyCounter,
    timeout: LazyCounter,
    shed: LazyCounter,
    share: LazyCounter,
    left: LazyCounter,
    queue_time: LazyHistogram,
}

impl AdmissionMetrics {
    /// The figures of the limit with this label.
    #[must_use]
    pub fn new(limit: &str) -> Self {
        let counter = |outcome| LazyCounter::new(&ADMISSIONS, limit, outcome);
        Self {
            admitted: counter("admitted"),
            queue_full: counter("queue_full"),
            displaced: counter("queue_displaced"),
            timeout: counter("queue_timeout"),
            shed: counter("queue_shed"),
            share: counter("queue_share"),
            left: counter("left"),
            queue_time: LazyHistogram::new(&QUEUE_TIME, limit),
        }
    }

    /// Counts a request: why it was not admitted, and how long it has waited.
    pub(crate) fn count(&self, registry: &Registry, refused: Option<&Reason>, waited: Option<Duration>) {
        match refused {
            None => &self.admitted,
            Some(Reason::NotAdmitted(AdmissionRefusal::QueueFull)) => &self.queue_full,
            Some(Reason::NotAdmitted(AdmissionRefusal::Displaced)) => &self.displaced,
            Some(Reason::NotAdmitted(AdmissionRefusal::Expired)) => &self.timeout,
            Some(Reason::NotAdmitted(AdmissionRefusal::Shed)) => &self.shed,
            Some(Reason::NotAdmitted(AdmissionRefusal::OverShare)) => &self.share,
            Some(_) => &self.left,
        }
        .increment(registry);
        if let Some(waited) = waited {
            self.queue_time.observe(registry, waited);
        }
    }
}

impl std::fmt::Debug for AdmissionMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionMetrics").finish_non_exhaustive()
    }
}

/// What is counted for the tarpit.
pub(crate) struct TarpitMetrics {
    /// In the order of [`Measure::ALL`].
    outcomes: [Counter; Measure::ALL.len()],
    due: Counter,
    released: Counter,
    evicted: Counter,
    left: Counter,
    seconds: Histogram,
}

impl TarpitMetrics {
    /// Registers them.
    pub(crate) fn new(registry: &Registry) -> Self {
        let ended = |how| registry.counter(&TARPIT_ENDED, [how]);
        Self {
            outcomes: Measure::ALL.map(|measure| registry.counter(&TARPIT, [measure.as_str()])),
            due: ended("due"),
            released: ended("released"),
            evicted: ended("evicted"),
            left: ended("left"),
            seconds: registry.histogram(&TARPIT_TIME, []),
        }
    }

    /// Counts a refusal of a repeat offender.
    pub(crate) fn count(&self, measure: Measure) {
        let counters = self.outcomes.iter().zip(Measure::ALL);
        counters.filter(|(_, other)| *other == measure).for_each(|(counter, _)| counter.increment());
    }

    /// Counts the end of a hold; by the client where nobody released it.
    pub(crate) fn ended(&self, released: Option<Released>, held_for: Duration) {
        match released {
            Some(Released::Due) => &self.due,
            Some(Released::Early) => &self.released,
            Some(Released::Evicted) => &self.evicted,
            None => &self.left,
        }
        .increment();
        self.seconds.observe(held_for);
    }
}

impl std::fmt::Debug for TarpitMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarpitMetrics").finish_non_exhaustive()
    }
}

/// What is counted for a listener, for as long as it is in the configuration.
pub struct ListenerMetrics {
    pub(crate) handshaking: LazyUpDown,
    pub(crate) http1: LazyUpDown,
    pub(crate) http2: LazyUpDown,
}

impl ListenerMetrics {
    /// The figures of the listener called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let connections = |protocol| LazyUpDown::new(&CONNECTIONS, name, protocol);
        Self { handshaking: connections("tls"), http1: connections("http/1.1"), http2: connections("h2") }
    }

    /// Its connections, those included whose handshake is under way.
    #[must_use]
    pub fn connections(&self) -> u64 {
        let counts = [&self.handshaking, &self.http1, &self.http2].map(LazyUpDown::value);
        u64::try_from(counts.iter().sum::<i64>()).unwrap_or(0)
    }
}

impl std::fmt::Debug for ListenerMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerMetrics").finish_non_exhaustive()
    }
}

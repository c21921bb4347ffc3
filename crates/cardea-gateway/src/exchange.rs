//! What is known of one request and its response: read by the pipeline, the attributes and the access log.

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, atomic::AtomicU32},
    time::Duration,
};

use cardea_clock::{Mono, Timestamp};
use cardea_env::{AttributeOverrides, HasOverrides, Rule, Value};
use cardea_http::{
    Authority, ConnectionNames, LastAuthority, NotedFields, PathFlags, RequestHead, ResponseHead, Scheme,
    grpc::GrpcStatus,
};
use cardea_identity::{ConnectionTokenCache, VerdictRef};
use cardea_tls::{ClientCertificate, HandshakeFacts};
use cardea_upstream::{Endpoint, EndpointIndex, ServiceRef};
use smallvec::SmallVec;

use crate::{
    admission::AdmissionFacts,
    attributes::parse::Derived,
    connections::Activity,
    memory::Held,
    model::{HeaderEncoding, ListenerModel, ModelRef, Route, Service, ShareIndex, Throttle},
    pool::Pool,
    record::RequestId,
    refusal::Reason,
    routing::Parameters,
    tarpit::TarpitFacts,
    throttling::ThrottleFacts,
    upstream::Pooled,
};

/// What is known of a connection, the same for all its requests.
#[derive(Debug)]
pub struct ConnectionFacts {
    /// The listener it came by, as it was then.
    pub listener: Arc<ListenerModel>,
    /// The other end of the socket; `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Our end of the socket, or what the PROXY protocol says of it.
    pub local: Option<SocketAddr>,
    /// Whom the peer stands for.
    pub origin: Origin,
    /// Facts of the TLS handshake, where there was one.
    pub tls: Option<HandshakeFacts>,
    /// The last token that was verified here, where requests run side by side; see [`Exchange::token`].
    pub token: Mutex<ConnectionTokenCache>,
    /// Whether it carries something.
    pub(crate) activity: Arc<Activity>,
}

/// Whom the peer of a connection stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// For itself, as far as is known.
    Peer,
    /// For this client, by the PROXY protocol.
    Client(SocketAddr),
    /// The PROXY protocol does not say (`UNKNOWN`, `LOCAL`, a Unix socket): whatever the peer is trusted with, nobody vouches
    /// for what comes by this connection.
    Unattributed,
}

impl ConnectionFacts {
    /// The scheme of all its requests.
    pub(crate) const fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// Who connected, by the PROXY protocol where that is believed and says so, else the peer.
    #[must_use]
    pub const fn client(&self) -> Option<SocketAddr> {
        match self.origin {
            Origin::Client(client) => Some(client),
            Origin::Peer | Origin::Unattributed => self.peer,
        }
    }
}

/// What is known of the service's side.
#[derive(Debug, Default)]
pub struct UpstreamFacts {
    /// The endpoints of the service when the first attempt began.
    pub(crate) service: Option<ServiceRef<Pooled>>,
    /// The one of them that was tried last.
    pub(crate) endpoint: Option<EndpointIndex>,
    /// How many attempts were made.
    pub attempts: u32,
    /// Whether the last attempt went over a connection that was kept.
    pub reused: bool,
    /// When the last attempt had its connection.
    pub(crate) begun: Mono,
    /// How long connecting took, where it was needed.
    pub connect: Option<Duration>,
    /// From the start of the request to the head of the response.
    pub response_head: Option<Duration>,
    /// The status of the service's response; 0 while there is none.
    pub(crate) status: u16,
}

impl UpstreamFacts {
    /// The endpoint that was tried last.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint<Pooled>> {
        self.service.as_ref()?.endpoint(self.endpoint?).map(|endpoint| &**endpoint)
    }

    /// Its region.
    pub(crate) fn region(&self) -> Option<&str> {
        self.service.as_ref()?.region_of(self.endpoint?)
    }
}

/// What is known of the response.
#[derive(Debug, Default)]
pub struct ResponseFacts {
    /// Its status; 0 while there is none. The refusal of a gRPC call has the status that a refusal of another request has.
    pub status: u16,
    /// Octets of its body that were sent.
    pub body_bytes: u64,
    /// The status of a gRPC call, as the client gets it; none while there is none.
    pub grpc_status: Option<GrpcStatus>,
    /// Why the gateway answered in place of the service.
    pub reason: Option<&'static str>,
    /// Whether the client got it whole.
    pub complete: bool,
}

/// Whose policy decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyScope {
    /// The gateway's, which holds on all routes.
    Gateway,
    /// The route's.
    Route,
}

/// What a policy decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyFacts {
    /// Whose policy.
    pub scope: PolicyScope,
    /// Whether it lets the request in.
    pub allowed: bool,
    /// The rule by its place; none where no rule matched.
    pub rule: Option<u32>,
}

/// One request and its response.
#[derive(Debug)]
pub struct Exchange {
    /// Names this request in answers, logs and to services.
    pub id: RequestId,
    /// What a trusted proxy calls it, which then is its name in answers, in logs and to services; empty where none does.
    pub(crate) given_id: Vec<u8>,
    /// When its head was complete.
    pub started: Timestamp,
    /// When its response was sent, or given up.
    pub ended: Timestamp,
    /// The head, as received; while it is forwarded, as sent.
    pub head: RequestHead,
    /// The fields of its head as they were received, whatever was changed since.
    received: NotedFields,
    /// The fields of its head that `Connection` named, which concern the connection alone.
    pub(crate) connection_names: ConnectionNames,
    /// `https` if it came over TLS.
    pub scheme: Scheme,
    /// The normalised authority.
    pub authority: Option<Authority>,
    /// Kept from request to request.
    pub(crate) last_authority: Box<LastAuthority>,
    /// The normalised path: what is routed, decided on and forwarded.
    pub path: Vec<u8>,
    /// What in the path a route must allow.
    pub path_flags: PathFlags,
    /// The query without `?`, as received; `None` where there is no `?`.
    pub query: Option<Vec<u8>>,
    /// The rightmost address that isn't a trusted proxy's; `None` where it is not known.
    pub source: Option<IpAddr>,
    /// Whether it is known who has sent it, and its head has lost what counts for nothing.
    pub(crate) is_settled: bool,
    /// Whether the connection's client certificate holds now; false where there is none.
    pub(crate) certificate_holds: bool,
    /// Whether the one who connected is a trusted proxy.
    pub peer_trusted: bool,
    /// Whether it came before the TLS handshake was done, and is carried before that.
    pub(crate) early_data: bool,
    /// Whether it came as an extended CONNECT, in place of an upgrade to WebSocket.
    pub(crate) extended_connect: bool,
    /// Whether an upgrade to WebSocket is asked for.
    pub(crate) upgrade: bool,
    /// Whether it is a gRPC call, whose end has a status in trailers.
    pub(crate) is_grpc: bool,
    /// When the time is over that the client has set for a gRPC call.
    pub(crate) client_deadline: Mono,
    /// Whether the client takes trailers (`TE`, RFC 9110 §10.1.4).
    pub(crate) accepts_trailers: bool,
    /// Octets of the request's body that were taken in.
    pub request_body_bytes: u64,
    /// The connection.
    pub connection: Option<Arc<ConnectionFacts>>,
    /// The configuration it is carried by.
    pub model: Option<ModelRef>,
    /// The place of the route that was chosen.
    pub(crate) route: Option<usize>,
    /// The share of the route's split that was chosen.
    pub(crate) share: Option<ShareIndex>,
    /// What its connection remembers of the last token. The connection lends it, and takes it back at the end.
    pub token: ConnectionTokenCache,
    /// Who is calling, where the route asks.
    pub verdict: Option<VerdictRef>,
    /// What the policies decided, where there are any.
    pub policy: Option<PolicyFacts>,
    /// What throttles said.
    pub(crate) throttle: ThrottleFacts,
    /// What the tarpit makes of it.
    pub(crate) tarpit: TarpitFacts,
    /// Its permits to be in flight.
    pub(crate) admission: AdmissionFacts,
    /// What was changed of its attributes.
    pub overrides: AttributeOverrides,
    /// The service's side.
    pub upstream: UpstreamFacts,
    /// The response.
    pub response: ResponseFacts,
    /// The response's head, the service's and then ours; reused memory.
    pub(crate) response_head: ResponseHead,
    /// The fields of the service's response that its `Connection` named.
    pub(crate) response_connection_names: ConnectionNames,
    /// What attributes worked out.
    pub(crate) derived: Derived,
    /// How many expressions could not be evaluated.
    pub(crate) faults: AtomicU32,
    /// Memory for messages to send.
    pub(crate) scratch: Vec<u8>,
    /// Its memory, as counted last.
    held: Held,
}

/// What a thread keeps of exchanges for its next requests, in bytes: two thousand of the usual size.
const POOLED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Larger memory than this is not kept, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static POOL: RefCell<Pool<Box<Exchange>>> = const { RefCell::new(Pool::new(POOLED_BYTES_MAX)) };
}

impl Exchange {
    /// An exchange with memory from the pool.
    pub(crate) fn take() -> Box<Self> {
        POOL.with_borrow_mut(Pool::take).unwrap_or_default()
    }

    /// Gives the memory back, without what it held.
    pub(crate) fn recycle(mut self: Box<Self>) {
        let bytes = self.memory_bytes();
        if bytes <= KEPT_BYTES_MAX {
            self.clear();
            // At the end of a thread its pool may be gone already.
            let _ = POOL.try_with(|pool| pool.borrow_mut().put(self, bytes));
        }
    }

    /// The memory that is kept from one request to the next.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.head.memory_bytes()
            + self.received.memory_bytes()
            + self.response_head.fields.memory_bytes()
            + self.path.capacity()
            + self.scratch.capacity()
    }

    /// Counts its memory among what is held for messages under way, until it is recycled.
    pub(crate) fn count_memory(&mut self) {
        self.held.set(self.memory_bytes());
    }

    fn clear(&mut self) {
        self.held.set(0);
        self.given_id.clear();
        self.head.clear();
        self.received.clear();
        self.response_head.clear();
        self.connection_names.clear();
        self.response_connection_names.clear();
        self.scratch.clear();
        self.path.clear();
        self.path_flags = PathFlags::default();
        self.authority = None;
        self.query = None;
        self.source = None;
        self.is_settled = false;
        self.certificate_holds = false;
        self.peer_trusted = false;
        self.early_data = false;
        self.extended_connect = false;
        self.upgrade = false;
        self.is_grpc = false;
        self.client_deadline = Mono::MAX;
        self.accepts_trailers = false;
        self.request_body_bytes = 0;
        self.connection = None;
        self.model = None;
        self.route = None;
        self.share = None;
        self.token = ConnectionTokenCache::new();
        self.verdict = None;
        self.policy = None;
        self.throttle.clear();
        self.tarpit = TarpitFacts::default();
        self.admission.clear();
        self.overrides.reset();
        self.upstream = UpstreamFacts::default();
        self.response = ResponseFacts::default();
        self.derived.clear();
        *self.faults.get_mut() = 0;
    }

    /// Notes the head as it was received, before anything is decided or changed.
    pub(crate) fn note_head(&mut self) {
        self.head.fields.note(&mut self.received);
        self.count_memory();
    }

    /// The same request as if it came `at` another time: with the head as it was received, its caller, and nothing else that was
    /// found out about it. None if its head can't be told any more, which takes rules that write a mebibyte into it.
    pub(crate) fn anew(&self, model: &ModelRef, at: Timestamp) -> Option<Box<Self>> {
        let mut anew = Self::take();
        anew.head.clone_from(&self.head);
        if !anew.head.fields.restore(&self.received) {
            anew.recycle();
            return None;
        }
        anew.id = self.id;
        anew.started = at;
        anew.scheme = self.scheme;
        anew.early_data = self.early_data;
        anew.extended_connect = self.extended_connect;
        anew.connection.clone_from(&self.connection);
        anew.model = Some(model.clone());
        anew.verdict.clone_from(&self.verdict);
        Some(anew)
    }

    /// Gives back what its connection remembers, with the verdict of its own token.
    pub(crate) fn take_token(&mut self) -> ConnectionTokenCache {
        if let Some(verdict) = self.verdict.take() {
            self.token.put_back(verdict);
        }
        std::mem::take(&mut self.token)
    }

    /// The name of this request: what a trusted proxy calls it, or our own id.
    pub(crate) fn name(&self) -> SmallVec<[u8; 32]> {
        if self.given_id.is_empty() {
            SmallVec::from_slice(&self.id.to_ascii())
        } else {
            SmallVec::from_slice(&self.given_id)
        }
    }

    /// Notes why it is refused.
    pub(crate) fn note_refusal(&mut self, reason: &Reason) {
        self.response.reason = Some(reason.code());
        self.response.status = reason.status();
        self.response.grpc_status = self.is_grpc.then(|| reason.grpc_status());
    }

    /// The certificate of the client, where it holds.
    pub(crate) fn client_certificate(&self) -> Option<&ClientCertificate> {
        let tls = self.connection.as_ref()?.tls.as_ref()?;
        tls.client_certificate.as_deref().filter(|_| self.certificate_holds)
    }

    /// The route that was chosen.
    #[must_use]
    pub fn route(&self) -> Option<&Route> {
        self.model.as_ref()?.router.get(self.route?).map(|route| &**route)
    }

    /// The service that was chosen.
    pub(crate) fn service(&self) -> Option<&Arc<Service>> {
        self.route()?.service(self.share)
    }

    /// The value of a header, read as the configuration says.
    pub(crate) fn header_value<'a>(&self, value: &'a [u8]) -> Value<'a> {
        let encoding = self.model.as_ref().map(|model| model.environment.header_encoding);
        match encoding {
            Some(HeaderEncoding::Latin1) if !value.is_ascii() => Value::Latin1(value),
            _ => Value::Bytes(value),
        }
    }

    /// What a parameter of the route's pattern matched.
    pub(crate) fn parameter(&self, name: &str) -> Option<&[u8]> {
        let (_, range) = self.parameters()?.into_iter().find(|(known, _)| *known == name)?;
        self.path.get(range)
    }

    /// The parameters of the route's pattern, and where in the path each of them is.
    pub(crate) fn parameters(&self) -> Option<Parameters<'_>> {
        Some(self.model.as_ref()?.router.found(self.route?)?.parameters(&self.path))
    }

    /// The rule of a policy that decided.
    pub(crate) fn policy_rule(&self) -> Option<&Rule<Self>> {
        let PolicyFacts { scope, rule, .. } = self.policy?;
        let policy = match scope {
            PolicyScope::Gateway => self.model.as_ref()?.environment.policy.as_ref(),
            PolicyScope::Route => self.route()?.rules.policy.as_ref(),
        };
        policy?.rules().get(usize::try_from(rule?).ok()?)
    }

    /// Appends the query to where a redirect leads, behind those parameters that a place has already. An empty one leaves
    /// nothing.
    pub(crate) fn push_query(&self, location: &mut Vec<u8>) {
        let Some(query) = self.query.as_deref().filter(|query| !query.is_empty()) else { return };
        match location.iter().position(|byte| *byte == b'?') {
            None => location.push(b'?'),
            Some(at) if at + 1 == location.len() => {}
            Some(_) => location.push(b'&'),
        }
        location.extend_from_slice(query);
    }

    /// When the whole exchange must be over, by the route that carries it and by its client.
    pub(crate) fn deadline(&self, route: &Route) -> Mono {
        let of_route =
            route.timeouts.request.map_or(Mono::MAX, |limit| self.started.mono.saturating_add(limit));
        of_route.min(self.client_deadline)
    }

    /// The throttle that refused it or, in a dry run, would have.
    pub(crate) fn throttled_by(&self) -> Option<&Throttle> {
        let by = self.throttle.refused_by?;
        self.model.as_ref()?.throttles.get(by.throttle as usize)
    }

    /// How long it took, or has taken by `now`.
    pub(crate) fn duration(&self) -> Duration {
        self.ended.mono.saturating_since(self.started.mono)
    }
}

impl HasOverrides for Exchange {
    fn overrides(&self) -> &AttributeOverrides {
        &self.overrides
    }
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            id: RequestId::default(),
            given_id: Vec::new(),
            started: Timestamp::default(),
            ended: Timestamp::default(),
            head: RequestHead::default(),
            received: NotedFields::default(),
            connection_names: ConnectionNames::default(),
            scheme: Scheme::Http,
            authority: None,
            last_authority: Box::default(),
            path: Vec::new(),
            path_flags: PathFlags::default(),
            query: None,
            source: None,
            is_settled: false,
            certificate_holds: false,
            peer_trusted: false,
            early_data: false,
            extended_connect: false,
            upgrade: false,
            is_grpc: false,
            client_deadline: Mono::MAX,
            accepts_trailers: false,
            request_body_bytes: 0,
            connection: None,
            model: None,
            route: None,
            share: None,
            token: ConnectionTokenCache::new(),
            verdict: None,
            policy: None,
            throttle: ThrottleFacts::default(),
            tarpit: TarpitFacts::default(),
            admission: AdmissionFacts::default(),
            overrides: AttributeOverrides::new(),
            upstream: UpstreamFacts::default(),
            response: ResponseFacts::default(),
            response_head: ResponseHead::default(),
            response_connection_names: ConnectionNames::default(),
            derived: Derived::default(),
            faults: AtomicU32::new(0),
            scratch: Vec::new(),
            held: Held::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a thousand requests wait, theirs are read from beyond the caches.
    #[test]
    fn an_exchange_is_small() {
        let bytes = size_of::<Exchange>();
        println!("{bytes} bytes");
        assert!(bytes <= 1008, "{bytes} bytes");
    }
}

//! The way of a request, read top to bottom: normalise, route, identify, authorize, forward.
//!
//! No protocol's name is in it: a connection driver gives an [`Exchange`] with a head and a [`Downstream`] for the
//! body, and writes the [`Outcome`] to the client in its own protocol. A destination inside the gateway stands behind the
//! same guards as a service.

use std::{cell::Cell, net::IpAddr, sync::Arc};

use cardea_http::{
    Known, RequestError, ResponseHead, TargetForm, client_address,
    h1::{Framing, set_length},
    has_lookalike, normalize_path, parse_target, request_authority,
};
use cardea_identity::{Demand, DemandError, Unidentified, Verdict, bearer_credentials};

use crate::{
    builtin, client_certificate, conditions,
    downstream::Downstream,
    early_data,
    exchange::Exchange,
    fields,
    forward::{self, Tunnel, headers},
    gateway::Gateway,
    model::{Destination, Model, Route},
    refusal::Reason,
    response::{Response, ResponseBody},
    routing::{self, RequestView},
    timer::Timer,
};

/// What the connection's driver has to do.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send this response.
    Respond(Response),
    /// Send this `101 Switching Protocols`, then carry bytes both ways.
    Tunnel(ResponseHead, Box<Tunnel>),
    /// The client is gone: end the connection (or the stream) at once.
    Close,
}

/// Carries one request through the gateway.
pub(crate) async fn handle(
    gateway: &Gateway,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Outcome {
    match carry(gateway, exchange, client, timer).await {
        Ok(outcome) => outcome,
        Err(reason) => refuse(gateway, &reason, exchange),
    }
}

/// The answer to a request that goes no further.
pub(crate) fn refuse(gateway: &Gateway, reason: &Reason, exchange: &mut Exchange) -> Outcome {
    exchange.response.reason = Some(reason.code());
    exchange.response.status = reason.status();
    if *reason == Reason::ClientAborted {
        return Outcome::Close;
    }
    let mut response = reason.respond(exchange);
    // A head that could not be read has no model yet.
    let model = exchange.model.get_or_insert_with(|| gateway.model_ref()).clone();
    headers::apply_to(&mut response.head, &model, None, exchange);
    Outcome::Respond(response)
}

async fn carry(
    gateway: &Gateway,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<Outcome, Reason> {
    let model = gateway.model_ref();
    exchange.model = Some(model.clone());

    normalise(&model, exchange)?;
    renew_length(client.framing(), exchange)?;
    if let Some(response) = gateway.challenges.response(exchange) {
        return Ok(Outcome::Respond(response));
    }
    if let Some(mut response) = redirect_to_https(exchange) {
        headers::apply_to(&mut response.head, &model, None, exchange);
        return Ok(Outcome::Respond(response));
    }
    if exchange.path == b"*" {
        // RFC 9110 §9.3.7: about the server as a whole, which is the gateway, and good for nothing but to see it answer.
        let mut head = ResponseHead::new(204);
        headers::apply_to(&mut head, &model, None, exchange);
        return Ok(Outcome::Respond(Response::new(head, ResponseBody::Empty)));
    }
    // Behind what answers without serving anything: challenges and redirects have to work without a certificate.
    let servable = client_certificate::meets_host(&model, exchange)?;
    let route = choose_route(&model, exchange)?;
    servable.by(route)?;
    fields::settle_for(&model, route, exchange);
    if exchange.early_data && !early_data::is_allowed(route, exchange, client) {
        Box::pin(early_data::wait(gateway, exchange, client, timer)).await?;
    }
    check_path(&model, route, exchange)?;
    if let Some(rule) = &route.client_certificate
        && let Some(mut response) = client_certificate::admit(rule, exchange)?
    {
        headers::apply_to(&mut response.head, &model, None, exchange);
        return Ok(Outcome::Respond(response));
    }
    check_body(route, exchange, client)?;
    identify(gateway, &model, route, exchange).await?;
    if !route.rules.attributes.is_empty() {
        conditions::change_attributes(&route.rules.attributes, exchange);
    }
    authorize(&model, route, exchange)?;

    let mut outcome = match &route.destination {
        Destination::Service(service) => {
            return forward::forward(gateway, &model, route, service, exchange, client, timer).await;
        }
        Destination::BuiltIn(which) => {
            // Boxed, so that requests for services do not pay for its size.
            Box::pin(builtin::answer(gateway, &model, route, *which, exchange, client, timer)).await?
        }
        Destination::Redirect { to, keep_query, status } => redirect(to, *keep_query, *status, exchange)?,
        Destination::Static { status, content_type, body } => {
            let mut head = ResponseHead::new(*status);
            set(&mut head, Known::ContentType, content_type)?;
            Outcome::Respond(Response::new(head, ResponseBody::bytes(Arc::clone(body))))
        }
    };
    if let Outcome::Respond(response) = &mut outcome {
        headers::apply_to(&mut response.head, &model, Some(route), exchange);
    }
    Ok(outcome)
}

/// One path, one authority, one source: what all that follows reads, and what the service gets.
pub(crate) fn normalise(model: &Model, exchange: &mut Exchange) -> Result<(), Reason> {
    let target = parse_target(exchange.head.method, exchange.head.target()).map_err(Reason::from)?;
    if target.form == TargetForm::Authority {
        return Err(Reason::Malformed { code: "connect_not_supported", status: 501 });
    }
    let authority = request_authority(&exchange.head, &target, exchange.scheme).map_err(Reason::from)?;
    exchange.path_flags = if target.form == TargetForm::Asterisk {
        exchange.path.extend_from_slice(b"*");
        cardea_http::PathFlags::default()
    } else {
        normalize_path(target.path, &mut exchange.path).map_err(Reason::from)?
    };
    exchange.query = target.query.map(<[u8]>::to_vec);
    find_source(model, exchange);
    if let Some(connection) = &exchange.connection
        && let (Some(tls), Some(facts)) = (&connection.listener.tls, &connection.tls)
        && tls.is_misdirected(facts.sni.as_deref(), authority.host())
    {
        return Err(Reason::MisdirectedRequest);
    }
    exchange.authority = Some(authority);
    // Before a condition, a policy or a log could take a client's word for ours, or read what no service gets.
    fields::settle(model, exchange)?;
    let now = exchange.started.wall;
    exchange.certificate_holds = exchange
        .connection
        .as_ref()
        .and_then(|connection| connection.tls.as_ref()?.client_certificate.as_ref())
        .is_some_and(|certificate| certificate.holds(now));
    Ok(())
}

/// Rules read the length that the service gets, whatever digits it came in.
fn renew_length(framing: Framing, exchange: &mut Exchange) -> Result<(), Reason> {
    match framing {
        Framing::Length(length) => set_length(&mut exchange.head.fields, Some(length))
            .map_err(|error| Reason::from(RequestError::from(error))),
        _ => Ok(()),
    }
}

/// The rightmost address that isn't a trusted proxy's.
fn find_source(model: &Model, exchange: &mut Exchange) {
    let Some(peer) = exchange.connection.as_ref().and_then(|connection| connection.client) else { return };
    let trusted = |address: IpAddr| model.trusted_proxies.iter().any(|prefix| prefix.contains(address));
    // The peer itself where it isn't trusted.
    let fields = &exchange.head.fields;
    exchange.source = Some(client_address(fields, peer.ip(), trusted, model.forwarding.header));
    exchange.peer_trusted = trusted(peer.ip());
}

pub(crate) fn redirect_to_https(exchange: &Exchange) -> Option<Response> {
    let port = exchange.connection.as_ref()?.listener.redirect_to_https?;
    let authority = exchange.authority.as_ref()?;
    if !exchange.path.starts_with(b"/") {
        return None;
    }
    let mut to = format!("https://{}", authority.host()).into_bytes();
    if port != 443 {
        to.extend_from_slice(format!(":{port}").as_bytes());
    }
    to.extend_from_slice(&exchange.path);
    push_query(&mut to, exchange);
    let mut head = ResponseHead::new(308);
    head.fields.set_known(Known::Location, &to).ok()?;
    Some(Response::new(head, ResponseBody::Empty))
}

/// Appends the query of the request, behind those parameters that a place has already. An empty one leaves nothing.
pub(crate) fn push_query(location: &mut Vec<u8>, exchange: &Exchange) {
    let Some(query) = exchange.query.as_deref().filter(|query| !query.is_empty()) else { return };
    match location.iter().position(|byte| *byte == b'?') {
        None => location.push(b'?'),
        Some(at) if at + 1 == location.len() => {}
        Some(_) => location.push(b'&'),
    }
    location.extend_from_slice(query);
}

/// Where a redirect leads: what its template says, then the request's query, then the template's fragment.
pub(crate) fn location(
    to: &cardea_env::Template<Exchange>,
    keep_query: bool,
    exchange: &Exchange,
) -> Vec<u8> {
    let mut location = Vec::new();
    to.render(exchange, cardea_env::Escape::HeaderValue, &mut location);
    let fragment = match location.iter().position(|byte| *byte == b'#') {
        Some(at) => location.split_off(at),
        None => Vec::new(),
    };
    if keep_query {
        push_query(&mut location, exchange);
    }
    // What the template was to fill in was empty.
    if location.last() == Some(&b'?') {
        location.pop();
    }
    location.extend_from_slice(&fragment);
    location
}

pub(crate) fn choose_route<'m>(model: &'m Model, exchange: &mut Exchange) -> Result<&'m Route, Reason> {
    let host = exchange.authority.as_ref().map_or("", cardea_http::Authority::host);
    let view = RequestOf::new(model, exchange);
    let outcome = model.router.find(host, &exchange.path, &view);
    // Passed over, the route would leave the request to one that may ask for less.
    if view.has_failed() {
        return Err(Reason::ConditionFailed);
    }
    let route = match outcome {
        routing::Outcome::Found(found) => {
            // A service that drops path parameters must not serve what another route guards, nor what a condition has
            // read under another path.
            let parameters = exchange.path_flags.parameters && !found.route().allow.parameters;
            if parameters {
                // The search for the other path may be the first to meet a condition, which reads this one.
                let is_disguised = model.router.is_disguised(host, &exchange.path, &view, &found);
                if is_disguised || view.has_read_path() || view.has_failed() {
                    return Err(Reason::PathEncodingNotAllowed);
                }
            }
            found
        }
        routing::Outcome::MethodNotAllowed { allow } => {
            return Err(Reason::MethodNotAllowed(allow.to_string()));
        }
        routing::Outcome::NotFound => return Err(Reason::RouteNotFound),
    };
    exchange.route = Some(route.index());
    Ok(route.route())
}

/// What the router asks of a request.
pub(crate) struct RequestOf<'a> {
    model: &'a Model,
    exchange: &'a Exchange,
    /// The condition of a route could not be evaluated.
    failed: Cell<bool>,
    /// The condition of a route has read the path.
    path_read: Cell<bool>,
}

impl<'a> RequestOf<'a> {
    pub(crate) fn new(model: &'a Model, exchange: &'a Exchange) -> Self {
        Self { model, exchange, failed: Cell::new(false), path_read: Cell::new(false) }
    }

    /// Whether a service could read the header that is asked for from a field of another spelling: then nothing follows
    /// from the one that is there, or from its absence.
    fn is_ambiguous(&self, name: &str) -> bool {
        let is_ambiguous = has_lookalike(&self.exchange.head.fields, name.as_bytes());
        if is_ambiguous {
            self.failed.set(true);
        }
        is_ambiguous
    }

    /// Whether a condition could not be evaluated, so that nothing follows from what was found.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Whether the condition of a route that was found or passed over has read the path.
    fn has_read_path(&self) -> bool {
        self.path_read.get()
    }
}

impl RequestView for RequestOf<'_> {
    fn listener(&self) -> &str {
        self.exchange.connection.as_ref().map_or("", |connection| &connection.listener.name)
    }

    fn method(&self) -> &str {
        self.exchange.head.method.as_str()
    }

    fn header_equals(&self, name: &str, value: &str) -> bool {
        if self.is_ambiguous(name) {
            return false;
        }
        let mut values = self.exchange.head.fields.get_all_by_name(name.as_bytes());
        let first = values.next().map(|first| self.exchange.header_value(first));
        first.is_some_and(|first| first.is_text(value)) && values.next().is_none()
    }

    fn has_header(&self, name: &str) -> bool {
        !self.is_ambiguous(name) && self.exchange.head.fields.get_by_name(name.as_bytes()).is_some()
    }

    fn meets_condition(&self, route: usize) -> bool {
        let Some(route) = self.model.router.get(route) else { return true };
        if route.rules.when_reads_path {
            self.path_read.set(true);
        }
        let when = route.rules.when.as_ref();
        when.is_none_or(|condition| {
            condition.test(self.exchange).unwrap_or_else(|fault| {
                conditions::note(condition, fault, self.exchange);
                self.failed.set(true);
                // Whatever else the search finds, the request is refused.
                true
            })
        })
    }
}

/// Encodings that services read in more than one way pass only where the route says so; path parameters also where nothing
/// that decides reads the path.
pub(crate) fn check_path(model: &Model, route: &Route, exchange: &Exchange) -> Result<(), Reason> {
    let flags = exchange.path_flags;
    let is_read = route.rules.reads_path || model.environment.reads_path;
    let refused = (flags.parameters && is_read && !route.allow.parameters)
        || (flags.encoded_slash && !route.allow.slash)
        || (flags.encoded_backslash && !route.allow.encoded_backslash)
        || (flags.backslash && !route.allow.backslash)
        || (flags.encoded_nul && !route.allow.nul);
    if refused { Err(Reason::PathEncodingNotAllowed) } else { Ok(()) }
}

/// A body that says it is too large is refused before it is asked for.
fn check_body(route: &Route, exchange: &Exchange, client: &mut dyn Downstream) -> Result<(), Reason> {
    if let Framing::Length(length) = client.framing()
        && length > route.body_bytes_max
    {
        return Err(Reason::BodyTooLarge);
    }
    client.set_body_limit(route.body_bytes_max);
    match exchange.head.fields.get(Known::Expect) {
        Some(value) if !value.eq_ignore_ascii_case(b"100-continue") => Err(Reason::ExpectationFailed),
        _ => Ok(()),
    }
}

/// Who is calling. A route that asks for nobody gets nobody, whatever came.
pub(crate) async fn identify(
    gateway: &Gateway,
    model: &Model,
    route: &Route,
    exchange: &mut Exchange,
) -> Result<(), Reason> {
    if route.demand.is_none() {
        return Ok(());
    }
    let credentials = match bearer_credentials(exchange.head.fields.get_all(Known::Authorization)) {
        Ok(Some(credentials)) => credentials,
        Ok(None) => return Err(Reason::CredentialsMissing),
        Err(error) if error.is_bad_request() => return Err(Reason::CredentialsMalformed),
        // Another scheme's credentials are none of ours.
        Err(_) => return Err(Reason::CredentialsMissing),
    };
    let identified = model.authenticator.identify(credentials, &mut exchange.token, exchange.started).await;
    let (verdict, source) = identified.map_err(|why| match why {
        Unidentified::Credentials(_) => Reason::CredentialsMalformed,
        Unidentified::Token(error) => Reason::from(error),
    })?;
    gateway.metrics.verdict(source);
    exchange.verdict = Some(verdict);
    Ok(())
}

/// Whether the caller may: what the route demands of the token, then what the policies say.
pub(crate) fn authorize(model: &Model, route: &Route, exchange: &mut Exchange) -> Result<(), Reason> {
    if let Some(demand) = &route.demand {
        let Some(verdict) = &exchange.verdict else { return Err(Reason::CredentialsMissing) };
        check_demand(demand, verdict)?;
    }
    conditions::check(model, route, exchange)
}

fn check_demand(demand: &Demand, verdict: &Verdict) -> Result<(), Reason> {
    demand.check(verdict).map_err(|error| match error {
        DemandError::Scope { needed } => Reason::InsufficientScope(needed),
        other if other.is_invalid_token() => Reason::TokenInvalid(other.code()),
        // A role is missing, or can't be shown.
        _ => Reason::RoleMissing,
    })
}

fn redirect(
    to: &cardea_env::Template<Exchange>,
    keep_query: bool,
    status: u16,
    exchange: &Exchange,
) -> Result<Outcome, Reason> {
    let location = location(to, keep_query, exchange);
    let mut head = ResponseHead::new(status);
    head.fields
        .set_known(Known::Location, &location)
        .map_err(|_| Reason::Malformed { code: "redirect_target_invalid", status: 400 })?;
    Ok(Outcome::Respond(Response::new(head, ResponseBody::Empty)))
}

fn set(head: &mut ResponseHead, known: Known, value: &str) -> Result<(), Reason> {
    head.fields
        .set_known(known, value.as_bytes())
        .map_err(|_| Reason::Malformed { code: "response_header_invalid", status: 500 })
}

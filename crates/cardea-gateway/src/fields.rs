//! Which fields of a request count: those that a service may get. All others go before anything is decided, so that
//! routes, rules, templates and logs read what arrives.

use cardea_http::{
    ConnectionNames, ForwardedPolicy, Known, ResponseHead, accepts_trailers, fold_alike, strip_forwarded,
    strip_hop_by_hop, strip_lookalikes, strip_lookalikes_of, strip_named, upgrade_websocket,
};

use crate::{
    exchange::Exchange,
    model::{Model, Route},
    refusal::Reason,
    throttling,
};

/// Removes what is never forwarded: what concerns the connection alone, with all that `Connection` names; what only the
/// gateway says; what only a trusted proxy may say; and other spellings of what is decided by. To be called once it is
/// known whether the peer is trusted.
///
/// A head that is refused for what `Connection` names loses all the rest of it too.
pub(crate) fn settle(model: &Model, exchange: &mut Exchange) -> Result<(), Reason> {
    exchange.upgrade = exchange.extended_connect || upgrade_websocket(&exchange.head);
    exchange.accepts_trailers = accepts_trailers(&exchange.head.fields);
    let stripped = strip_connection(exchange);
    let fields = &mut exchange.head.fields;
    strip_lookalikes(fields);
    let removed =
        if exchange.peer_trusted { &model.identity_headers.names } else { &model.forwarding.strangers };
    strip_named(fields, removed);
    take_id(exchange);
    let fields = &mut exchange.head.fields;
    strip_forwarded(fields, forwarded_policy(model, exchange.peer_trusted), model.forwarding.header);
    stripped
}

/// Removes what concerns the connection alone.
fn strip_connection(exchange: &mut Exchange) -> Result<(), Reason> {
    let fields = &mut exchange.head.fields;
    exchange.connection_names = strip_hop_by_hop(fields).map_err(Reason::from)?;
    if exchange.upgrade {
        // The one upgrade that is let through is asked for again, and rules may ask whether it is.
        let full = |_| Reason::Malformed { code: "too_many_fields", status: 431 };
        fields.append(b"connection", b"upgrade").map_err(full)?;
        fields.append(b"upgrade", b"websocket").map_err(full)?;
    }
    Ok(())
}

/// The longest id of a request that is taken from a trusted proxy, in bytes.
const GIVEN_ID_BYTES_MAX: usize = 128;

/// Names the request: as a trusted proxy does, or by our own id. Strangers could make two requests look like one.
fn take_id(exchange: &mut Exchange) {
    if exchange.peer_trusted {
        let mut given = exchange.head.fields.get_all(Known::XRequestId);
        if let (Some(id), None) = (given.next(), given.next())
            && is_id(id)
        {
            exchange.given_id.extend_from_slice(id);
        }
    }
    let name = exchange.name();
    // It has no byte that a field could not carry; without room the service is told nothing.
    if exchange.head.fields.set_known(Known::XRequestId, &name).is_err() {
        exchange.head.fields.remove(Known::XRequestId);
    }
}

/// Whether this can stand in a log, a header and a problem document as it is.
fn is_id(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/+=@".contains(byte);
    (1..=GIVEN_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(plain)
}

/// Adds the request id, the trace context of the request if it is valid (W3C Trace Context), and the state of throttles. They
/// replace what a service sends in these fields, because the gateway's logs have the same id.
pub(crate) fn name_response(exchange: &Exchange, head: &mut ResponseHead) {
    let _ = head.fields.set_known(Known::XRequestId, &exchange.name());
    let mut traces = exchange.head.fields.get_all(Known::Traceparent);
    if let (Some(trace), None) = (traces.next(), traces.next())
        && is_traceparent(trace)
    {
        let _ = head.fields.set_known(Known::Traceparent, trace);
    }
    throttling::tell(exchange, head);
}

/// `version-traceid-parentid-flags` in lower-case hexadecimal (W3C Trace Context §3.2).
fn is_traceparent(value: &[u8]) -> bool {
    value.len() == 55
        && value.iter().enumerate().all(|(at, byte)| match at {
            2 | 35 | 52 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// Removes other spellings of the fields that the rules of a route set, remove or rename, before its policies are asked.
pub(crate) fn settle_for(model: &Model, route: &Route, exchange: &mut Exchange) {
    let fields = &mut exchange.head.fields;
    strip_lookalikes_of(fields, model.environment.request_headers.names());
    strip_lookalikes_of(fields, route.request_headers.names());
}

/// What becomes of forwarding fields: what a peer says that nobody trusts is replaced, whatever the policy for those that
/// are.
pub(crate) fn forwarded_policy(model: &Model, peer_trusted: bool) -> ForwardedPolicy {
    match model.forwarding.policy {
        ForwardedPolicy::Trust | ForwardedPolicy::Append if !peer_trusted => ForwardedPolicy::Set,
        policy => policy,
    }
}

/// The names of the fields of a request's head, and those that its `Connection` named, against which its trailers are held.
#[derive(Debug, Default)]
pub(crate) struct HeadNames {
    /// Each with a line feed behind it, which is part of no name.
    text: Vec<u8>,
    connection: ConnectionNames,
}

impl HeadNames {
    /// The names of a head as it is sent.
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let mut text = Vec::with_capacity(512);
        for field in exchange.head.fields.iter() {
            text.extend_from_slice(field.name);
            text.push(b'\n');
        }
        Self { text, connection: exchange.connection_names.clone() }
    }

    fn contains(&self, name: &[u8]) -> bool {
        self.text.split(|byte| *byte == b'\n').any(|known| fold_alike(known, name))
            || self.connection.contains(name)
    }
}

/// The trailers of a request as its service gets them. The service may merge them into the head (RFC 9110 §6.5.1), so they
/// are no way around what is done to fields, they add nothing to a field of the head, and they are none of the fields that
/// rules read, whose absence may have decided.
pub(crate) fn clean_request_trailers(
    model: &Model,
    route: Option<&Route>,
    head: &HeadNames,
    trailers: &cardea_http::Fields,
) -> cardea_http::Fields {
    let mut trailers = trailers.clone();
    cardea_http::filter_trailers(&mut trailers);
    let read = &model.environment.headers_read;
    trailers.retain(|field| !(read.all || read.names.contains(field.name) || head.contains(field.name)));
    strip_named(&mut trailers, &model.forwarding.strangers);
    strip_named(&mut trailers, &model.identity_headers.names);
    strip_named(&mut trailers, model.environment.request_headers.names());
    if let Some(route) = route {
        strip_named(&mut trailers, route.request_headers.names());
    }
    trailers
}

/// The trailers of a response as the client gets them.
pub(crate) fn clean_response_trailers(
    exchange: &Exchange,
    trailers: &cardea_http::Fields,
) -> cardea_http::Fields {
    let mut trailers = trailers.clone();
    cardea_http::filter_trailers(&mut trailers);
    trailers.retain(|field| !exchange.response_connection_names.contains(field.name));
    if let Some(model) = &exchange.model {
        strip_named(&mut trailers, model.environment.response_headers.names());
    }
    if let Some(route) = exchange.route() {
        strip_named(&mut trailers, route.response_headers.names());
    }
    trailers
}

//! Which fields of a request count: those that a service may get. All others go before anything is decided, so that
//! routes, rules, templates and logs read what arrives.

use cardea_http::{
    ForwardedPolicy, strip_forwarded, strip_hop_by_hop, strip_lookalikes, strip_lookalikes_of, strip_named,
    upgrade_websocket,
};

use crate::{
    exchange::Exchange,
    model::{Model, Route},
    refusal::Reason,
};

/// Removes what is never forwarded: what concerns the connection alone, with all that `Connection` names; what only the
/// gateway says; what only a trusted proxy may say; and other spellings of what is decided by. To be called once it is
/// known whether the peer is trusted.
pub(crate) fn settle(model: &Model, exchange: &mut Exchange) -> Result<(), Reason> {
    exchange.upgrade = upgrade_websocket(&exchange.head);
    let fields = &mut exchange.head.fields;
    strip_hop_by_hop(fields).map_err(Reason::from)?;
    if exchange.upgrade {
        // The one upgrade that is let through is asked for again, and rules may ask whether it is.
        let full = |_| Reason::Malformed { code: "too_many_fields", status: 431 };
        fields.append(b"connection", b"upgrade").map_err(full)?;
        fields.append(b"upgrade", b"websocket").map_err(full)?;
    }
    strip_lookalikes(fields);
    let removed =
        if exchange.peer_trusted { &model.identity_headers.names } else { &model.forwarding.strangers };
    strip_named(fields, removed);
    strip_forwarded(fields, forwarded_policy(model, exchange.peer_trusted), model.forwarding.header);
    Ok(())
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

/// The trailers of a request as its service gets them: they are no way around what is done to fields.
pub(crate) fn clean_request_trailers(
    model: &Model,
    route: Option<&Route>,
    trailers: &cardea_http::Fields,
) -> cardea_http::Fields {
    let mut trailers = trailers.clone();
    cardea_http::filter_trailers(&mut trailers);
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
    if let Some(model) = &exchange.model {
        strip_named(&mut trailers, model.environment.response_headers.names());
    }
    if let Some(route) = exchange.route() {
        strip_named(&mut trailers, route.response_headers.names());
    }
    trailers
}

//! One path, one authority, one source for a request: what all that decides reads, and what the service gets.

use std::net::IpAddr;

use cardea_http::{TargetForm, client_address, normalize_path, parse_target, request_authority};

use crate::{
    client_certificate,
    exchange::{Exchange, Origin},
    fields,
    model::Model,
    refusal::Reason,
};

/// Normalises the request.
pub(crate) fn normalise(model: &Model, exchange: &mut Exchange) -> Result<(), Reason> {
    // Before a condition, a policy or a log could take a client's word for ours, or read what no service gets.
    settle(model, exchange)?;
    let target = parse_target(exchange.head.method, exchange.head.target()).map_err(Reason::from)?;
    if target.form == TargetForm::Authority {
        return Err(Reason::Malformed { code: "connect_not_supported", status: 501 });
    }
    let last = &mut exchange.last_authority;
    let authority =
        request_authority(&exchange.head, &target, exchange.scheme, last).map_err(Reason::from)?;
    exchange.path_flags = if target.form == TargetForm::Asterisk {
        exchange.path.extend_from_slice(b"*");
        cardea_http::PathFlags::default()
    } else {
        normalize_path(target.path, &mut exchange.path).map_err(Reason::from)?
    };
    exchange.query = target.query.map(<[u8]>::to_vec);
    if let Some(connection) = &exchange.connection
        && let (Some(tls), Some(facts)) = (&connection.listener.tls, &connection.tls)
        && tls.is_misdirected(facts.sni.as_deref(), authority.host())
    {
        return Err(Reason::MisdirectedRequest);
    }
    exchange.authority = Some(authority);
    Ok(())
}

/// Finds who has sent the request, and removes from its head what counts for nothing. Whatever becomes of it, its line in
/// the log is written after that.
pub(crate) fn settle(model: &Model, exchange: &mut Exchange) -> Result<(), Reason> {
    exchange.is_settled = true;
    find_source(model, exchange);
    let now = exchange.started.wall;
    exchange.certificate_holds =
        client_certificate::shown(exchange).is_some_and(|certificate| certificate.holds(now));
    fields::settle(model, exchange)
}

/// The rightmost address that isn't a trusted proxy's. None where trusted proxies do not tell it, so that no rule by address
/// takes their own for the client's.
fn find_source(model: &Model, exchange: &mut Exchange) {
    let Some(connection) = &exchange.connection else { return };
    let Some(peer) = connection.client() else { return };
    // Where a proxy does not say whom it stands for, the fields are the word of somebody who is not known.
    let may_vouch = connection.origin != Origin::Unattributed;
    let trusted =
        |address: IpAddr| may_vouch && model.trusted_proxies.iter().any(|prefix| prefix.contains(address));
    // The peer itself where it isn't trusted.
    let fields = &exchange.head.fields;
    exchange.source = client_address(fields, peer.ip(), trusted, model.forwarding.header);
    exchange.peer_trusted = trusted(peer.ip());
}

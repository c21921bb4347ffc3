//! Turns a service's response into ours.

use cardea_http::{BodyLength, Known, append_via, strip_hop_by_hop_response};

use super::{
    attempt::Attempt,
    headers::{self, Side},
};
use crate::{
    exchange::Exchange,
    fields::name_response,
    model::{Model, Route},
    refusal::Reason,
    response::{Outcome, Response, ResponseBody, has_body, renew_absent_length},
    websocket::handshake,
};

/// The response whose head is in `exchange`, as the client gets it.
pub(super) fn respond(
    model: &Model,
    route: &Route,
    exchange: &mut Exchange,
    attempt: Box<Attempt>,
) -> Result<Outcome, Reason> {
    let head = &mut exchange.response_head;
    let switching = head.status == 101;
    if switching && !exchange.upgrade {
        return Err(Reason::ServiceMalformed("switching_protocols_unasked"));
    }
    if switching && !handshake::is_answered(&exchange.head.fields, &head.fields) {
        return Err(Reason::ServiceMalformed("websocket_handshake_invalid"));
    }
    exchange.response_connection_names = strip_hop_by_hop_response(&mut head.fields);
    let version = head.version;
    // The pseudonym was checked when the configuration was loaded.
    let _ = append_via(&mut head.fields, version, &model.forwarding.via);
    exchange.response.status = head.status;
    let mut head = std::mem::take(&mut exchange.response_head);
    name_response(exchange, &mut head);
    exchange.response_head = head;
    headers::apply(&model.environment.response_headers, exchange, Side::Response);
    headers::apply(&route.response_headers, exchange, Side::Response);
    let mut head = std::mem::take(&mut exchange.response_head);
    if switching {
        head.fields.remove(Known::ContentLength);
        let tunnel = attempt.into_tunnel().ok_or(Reason::ServiceAborted)?;
        return Ok(Outcome::Tunnel(head, Box::new(tunnel)));
    }
    let body = if has_body(exchange.head.method, head.status) {
        // One that has ended with its head is sent as it came: the status of a gRPC call may be in it.
        let is_whole = attempt.response_length() == BodyLength::None;
        if is_whole { ResponseBody::Empty } else { ResponseBody::Service(attempt) }
    } else {
        renew_absent_length(&mut head);
        ResponseBody::Empty
    };
    Ok(Outcome::Respond(Response::new(head, body)))
}

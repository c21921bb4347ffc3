//! The way of a request, read top to bottom: normalise, decide, forward.
//!
//! No protocol's name is in it: a connection driver gives an [`Exchange`] with a head and a [`Downstream`] for the
//! body, and writes the [`Outcome`] to the client in its own protocol. A destination inside the gateway stands behind the
//! same guards as a service.

use std::sync::Arc;

use cardea_http::{BodyLength, Known, RequestError, ResponseHead, set_length};

use crate::{
    admission, builtin,
    decision::{self, Circumstances, Decision},
    downstream::Downstream,
    early_data,
    exchange::Exchange,
    forward::{self, headers},
    gateway::{Gateway, ModelRef},
    grpc, location, memory,
    model::{Destination, Model, Route},
    refusal::Reason,
    response::{Outcome, Response, ResponseBody},
    tarpit::{self, Offence},
    throttling,
    timer::Timer,
    websocket::handshake,
};

/// The status of the answer to `OPTIONS *`.
const OPTIONS_STATUS: u16 = 204;

/// Carries one request through the gateway.
pub(crate) async fn handle(
    gateway: &Gateway,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Outcome {
    let outcome = match carry(gateway, exchange, client, timer).await {
        Ok(outcome) => outcome,
        Err(reason) => {
            let reason = grpc::by_deadline(reason, exchange, timer.now());
            exchange.tarpit.offence = Offence::of(&reason);
            refuse(gateway, &reason, exchange)
        }
    };
    match exchange.tarpit.offence {
        None => outcome,
        Some(offence) => tarpit::meet(gateway, offence, outcome, exchange),
    }
}

/// The answer to a request that goes no further.
pub(crate) fn refuse(gateway: &Gateway, reason: &Reason, exchange: &mut Exchange) -> Outcome {
    // A head that could not be read has no model yet.
    let model = exchange.model.get_or_insert_with(|| gateway.model_ref()).clone();
    if !exchange.is_settled {
        // It is refused already.
        let _ = decision::settle(&model, exchange);
    }
    exchange.note_refusal(reason);
    if *reason == Reason::ClientAborted {
        return Outcome::Close;
    }
    let mut response = reason.respond(exchange);
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
    if memory::is_full() {
        return Err(Reason::Overloaded);
    }

    renew_length(client.body_length(), exchange)?;
    exchange.note_head();
    decision::normalise(&model, exchange)?;
    grpc::note_deadline(exchange)?;
    if let Some(response) = gateway.challenges.response(exchange) {
        return Ok(Outcome::Respond(response));
    }
    // Challenges and redirects have to work without a certificate and without a route.
    if let Some(mut response) = answer_without_route(exchange) {
        headers::apply_to(&mut response.head, &model, None, exchange);
        return Ok(Outcome::Respond(response));
    }
    let authorized = {
        let mut arriving = Arriving { gateway, client, timer };
        match decision::decide(&model, exchange, &mut arriving).await? {
            Decision::Authorized(authorized) => authorized,
            Decision::Elsewhere(mut response) => {
                headers::apply_to(&mut response.head, &model, None, exchange);
                return Ok(Outcome::Respond(response));
            }
        }
    };

    let route = authorized.route();
    if exchange.upgrade && matches!(route.destination, Destination::Service(_) | Destination::Split(_)) {
        handshake::check_request(&exchange.head.fields)?;
    }
    admission::admit(gateway, &model, route, exchange, client).await?;
    let mut outcome = match &route.destination {
        Destination::Service(_) | Destination::Split(_) => {
            let service = route.service(exchange.share).ok_or(Reason::NoEndpoint)?;
            return forward::forward(gateway, &model, authorized, service, exchange, client, timer).await;
        }
        Destination::BuiltIn(destination) => {
            // Boxed, so that requests for services do not pay for its size.
            Box::pin(builtin::answer(gateway, route, &**destination, exchange, client, timer)).await?
        }
        Destination::Redirect { to, keep_query, status } => {
            Outcome::Respond(redirect(to, *keep_query, *status, exchange)?)
        }
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

/// A request that has just come.
struct Arriving<'a> {
    gateway: &'a Gateway,
    client: &'a mut dyn Downstream,
    timer: &'a mut Timer,
}

impl Circumstances for Arriving<'_> {
    async fn routed(&mut self, route: &Route, exchange: &mut Exchange) -> Result<(), Reason> {
        if exchange.early_data && !early_data::is_allowed(route, exchange, self.client) {
            Box::pin(early_data::wait(self.gateway, exchange, self.client, self.timer)).await?;
        }
        Ok(())
    }

    fn throttle(&mut self, model: &Model, places: &[usize], exchange: &mut Exchange) -> Result<(), Reason> {
        throttling::charge(self.gateway, model, places, exchange)
    }

    fn check_body(&mut self, route: &Route, exchange: &Exchange) -> Result<(), Reason> {
        check_body(self.client.body_length(), route, exchange)?;
        self.client.set_body_limit(route.body_bytes_max);
        Ok(())
    }

    async fn identify(
        &mut self,
        model: &ModelRef,
        route: &Route,
        exchange: &mut Exchange,
    ) -> Result<(), Reason> {
        decision::identify(self.gateway, model, route, exchange).await
    }
}

/// Whether the route takes a body of this length: one that says it is too large is refused before it is asked for.
pub(crate) fn check_body(length: BodyLength, route: &Route, exchange: &Exchange) -> Result<(), Reason> {
    if let BodyLength::Exact(length) = length
        && length > route.body_bytes_max
    {
        return Err(Reason::BodyTooLarge);
    }
    match exchange.head.fields.get(Known::Expect) {
        Some(value) if !value.eq_ignore_ascii_case(b"100-continue") => Err(Reason::ExpectationFailed),
        _ => Ok(()),
    }
}

/// What is answered before a route is looked for: a redirect of the listener, and `OPTIONS *` (RFC 9110 §9.3.7), which is about
/// the gateway as a whole and good for nothing but to see it answer.
pub(crate) fn answer_without_route(exchange: &Exchange) -> Option<Response> {
    let about_the_gateway = || Response::new(ResponseHead::new(OPTIONS_STATUS), ResponseBody::Empty);
    redirect_to_https(exchange).or_else(|| (exchange.path == b"*").then(about_the_gateway))
}

fn redirect_to_https(exchange: &Exchange) -> Option<Response> {
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
    exchange.push_query(&mut to);
    let mut head = ResponseHead::new(308);
    head.fields.set_known(Known::Location, &to).ok()?;
    Some(Response::new(head, ResponseBody::Empty))
}

/// Rules read the length that the service gets, whatever digits it came in.
pub(crate) fn renew_length(length: BodyLength, exchange: &mut Exchange) -> Result<(), Reason> {
    match length.stated() {
        Some(length) => set_length(&mut exchange.head.fields, Some(length))
            .map_err(|error| Reason::from(RequestError::from(error))),
        None => Ok(()),
    }
}

/// The answer of a redirect.
pub(crate) fn redirect(
    to: &cardea_env::Template<Exchange>,
    keep_query: bool,
    status: u16,
    exchange: &Exchange,
) -> Result<Response, Reason> {
    let invalid = || Reason::Malformed { code: "redirect_target_invalid", status: 400 };
    let location = location::location(to, keep_query, exchange).ok_or_else(invalid)?;
    let mut head = ResponseHead::new(status);
    head.fields.set_known(Known::Location, &location).map_err(|_| invalid())?;
    Ok(Response::new(head, ResponseBody::Empty))
}

fn set(head: &mut ResponseHead, known: Known, value: &str) -> Result<(), Reason> {
    head.fields
        .set_known(known, value.as_bytes())
        .map_err(|_| Reason::Malformed { code: "response_header_invalid", status: 500 })
}

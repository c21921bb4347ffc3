//! Has requests answered by destinations inside the program.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
};

use cardea_clock::Mono;
use cardea_http::Method;

use super::{BuiltIn, BuiltInRequest};
use crate::{
    downstream::Downstream,
    exchange::Exchange,
    gateway::{Gateway, Phase},
    memory::{self, Held},
    model::Route,
    refusal::Reason,
    response::{Outcome, Response, ResponseBody},
    streams::StreamWatch,
    timer::Timer,
};

/// Has a request answered.
pub(crate) async fn answer(
    gateway: &Gateway,
    route: &Route,
    destination: &dyn BuiltIn,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<Outcome, Reason> {
    check_method(destination, exchange)?;
    let body = match destination.body_bytes_max() {
        Some(max) => {
            client.set_body_limit(max.min(route.body_bytes_max));
            read_body(gateway, route, exchange, client, timer).await?
        }
        None => WholeBody::default(),
    };
    let request = BuiltInRequest {
        head: &exchange.head,
        query: exchange.query.as_deref(),
        body: &body.bytes,
        is_draining: gateway.phase() >= Phase::Draining,
        source: exchange.source,
        deadline: Some(exchange.deadline(route)).filter(|deadline| *deadline < Mono::MAX),
        clock: &gateway.clock,
    };
    let response = destination.answer(request).await?;
    exchange.response.reason = response.reason;
    exchange.tarpit.offence = response.offence;
    Ok(Outcome::Respond(Response::new(response.head, ResponseBody::bytes(response.body))))
}

/// Checks that a destination answers the request's method.
pub(crate) fn check_method(destination: &dyn BuiltIn, exchange: &Exchange) -> Result<(), Reason> {
    let Some(methods) = destination.methods() else { return Ok(()) };
    if methods.contains(&exchange.head.method) {
        return Ok(());
    }
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    Err(Reason::MethodNotAllowed(names.join(", ")))
}

/// A request body that was read whole. Its memory counts as held for as long as this lives.
#[derive(Default)]
struct WholeBody {
    bytes: Vec<u8>,
    held: Held,
}

/// Reads the whole request body, which the limit keeps small. Ends early where memory is short: many clients may each send
/// most of a body and then stop.
async fn read_body(
    gateway: &Gateway,
    route: &Route,
    exchange: &Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<WholeBody, Reason> {
    if memory::is_exhausted() {
        return Err(Reason::Overloaded);
    }
    let mut body = WholeBody::default();
    let mut watch = StreamWatch::new(gateway);
    let mut noted = 0;
    let deadline = timer.now().saturating_add(route.timeouts.request_body_idle);
    poll_fn(|cx| {
        let polled = body.poll_read(cx, client);
        if polled.is_ready() {
            return polled;
        }
        if let Poll::Ready(end) = watch.poll(cx, exchange) {
            return Poll::Ready(Err(Reason::StreamEnded(end)));
        }
        let moved = body.bytes.len() != noted;
        noted = body.bytes.len();
        watch.note(0, true, moved, timer.now());
        timer.poll_until(cx, deadline).map(|_| Err(Reason::RequestBodyTimeout))
    })
    .await?;
    Ok(body)
}

impl WholeBody {
    /// Ready once the body has ended.
    fn poll_read(&mut self, cx: &mut Context<'_>, client: &mut dyn Downstream) -> Poll<Result<(), Reason>> {
        loop {
            match ready!(client.poll_data(cx)).map_err(Reason::from)? {
                true => {
                    let count = client.chunk().len();
                    self.bytes.extend_from_slice(client.chunk());
                    self.held.set(self.bytes.capacity());
                    client.consume(count);
                }
                false => return Poll::Ready(Ok(())),
            }
        }
    }
}

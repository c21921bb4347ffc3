//! Destinations inside the program: they answer requests themselves, behind the same checks as services.

use std::{
    fmt,
    future::{Future, poll_fn},
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cardea_clock::{Clock, Mono};
use cardea_http::{Method, RequestHead, ResponseHead};

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

/// A destination inside the program.
pub trait BuiltIn: Send + Sync + fmt::Debug {
    /// Its name in the configuration and in explanations.
    fn name(&self) -> &'static str;

    /// The methods that it answers; others are refused. `None`: it answers all.
    fn methods(&self) -> Option<&'static [Method]>;

    /// The largest request body that is read for it, in bytes. `None`: none is read.
    fn body_bytes_max(&self) -> Option<u64> {
        None
    }

    /// The status of its answers, if that depends on nothing but the method.
    fn status(&self) -> Option<u16>;

    /// How its callers expect errors, whoever refuses a request.
    fn error_format(&self) -> ErrorFormat {
        ErrorFormat::Problem
    }

    /// Answers a request that has passed all checks.
    ///
    /// # Errors
    /// Why it can't.
    fn answer<'a>(&'a self, request: BuiltInRequest<'a>) -> BuiltInFuture<'a>;
}

/// What [`BuiltIn::answer`] returns.
pub type BuiltInFuture<'a> = Pin<Box<dyn Future<Output = Result<BuiltInResponse, Reason>> + Send + 'a>>;

/// The shape of an error in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorFormat {
    /// A problem document (RFC 9457).
    #[default]
    Problem,
    /// The JSON of a token endpoint (RFC 6749 §5.2).
    Oauth,
}

/// A request to a destination inside the program.
#[derive(Debug)]
pub struct BuiltInRequest<'a> {
    /// The head.
    pub head: &'a RequestHead,
    /// The query without `?`; `None` if there is no `?`.
    pub query: Option<&'a [u8]>,
    /// The body, if it was to be read.
    pub body: &'a [u8],
    /// Whether the gateway is on its way out: it serves on, and load balancers are to notice.
    pub is_draining: bool,
    /// The client's address.
    pub source: Option<IpAddr>,
    /// When the request's time is over.
    pub deadline: Option<Mono>,
    /// The time.
    pub clock: &'a Clock,
}

/// The answer of a destination inside the program.
#[derive(Debug)]
pub struct BuiltInResponse {
    /// The head, without fields that frame the message.
    pub head: ResponseHead,
    /// The body.
    pub body: Arc<[u8]>,
    /// Why the request was refused, for the log and the metrics and not for the client.
    pub reason: Option<&'static str>,
}

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
        deadline: route.timeouts.request.map(|_| exchange.deadline(route)),
        clock: &gateway.clock,
    };
    let response = destination.answer(request).await?;
    exchange.response.reason = response.reason;
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

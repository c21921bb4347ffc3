//! Carries one request: the task of a stream.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use cardea_http::{
    BodyLength, Known, RequestError, RequestHead,
    h1::request_framing,
    h2::{ErrorCode, Protocol},
};
use cardea_identity::ConnectionTokenCache;

use super::{body::RequestBody, respond, shared::Shared, stream::Stream, websocket};
use crate::{
    exchange::{ConnectionFacts, Exchange},
    gateway::{Gateway, Recording},
    grpc,
    memory::{Ending, charged},
    pipeline,
    record::RequestId,
    refusal::Reason,
    response::Outcome,
    tarpit::HeldRefusal,
    timer::Timer,
    workers,
};

/// What came of a request when its stream was opened.
#[derive(Debug, Clone, Copy)]
pub(super) enum Opening {
    /// Its head is in the exchange; whether nothing follows, and the protocol of an extended CONNECT.
    Accepted { has_ended: bool, protocol: Option<Protocol> },
    /// It is to be answered with why.
    Refused(RequestError),
}

/// Begins the task of a stream, which has an entry. The head of `exchange` is that of the request.
pub(super) fn spawn(shared: &Arc<Shared>, id: u32, mut exchange: Box<Exchange>, opening: Opening) {
    begin(shared, &mut exchange);
    exchange.count_memory();
    let stream = Stream::new(Arc::clone(shared), id);
    let account = Arc::clone(shared.facts.activity.account());
    workers::spawn(charged(account, async move {
        let shared = Arc::clone(stream.shared());
        let account = shared.facts.activity.account();
        let mut carried = pin!(carry(&shared, exchange, stream, opening));
        poll_fn(|cx| match account.ending() {
            // Nothing more is done for a connection that ends to make room.
            Ending::Connection => Poll::Ready(()),
            Ending::No | Ending::Streams => carried.as_mut().poll(cx),
        })
        .await;
    }));
}

/// Records a request that the codec has refused: nobody is there to be answered.
pub(super) fn record_refused(shared: &Arc<Shared>, reason: &Reason) {
    let mut exchange = Exchange::take();
    begin(shared, &mut exchange);
    exchange.head.version = cardea_http::Version::Http2;
    let mut recording = Recording::new(&shared.gateway, &mut exchange);
    // The answer is a reset.
    drop(pipeline::refuse(&shared.gateway, reason, &mut recording));
    recording.response.complete = true;
    recording.finish();
    exchange.recycle();
}

fn begin(shared: &Shared, exchange: &mut Exchange) {
    let gateway = &shared.gateway;
    exchange.id = RequestId::generate(gateway.clock.wall());
    exchange.started = gateway.clock.precise();
    exchange.scheme = shared.facts.scheme();
    // As the client sent it: rules may change the head.
    exchange.is_grpc = grpc::is_call(&exchange.head.fields);
    exchange.connection = Some(Arc::clone(&shared.facts));
}

async fn carry(shared: &Shared, mut exchange: Box<Exchange>, stream: Stream, opening: Opening) {
    let (gateway, facts) = (&*shared.gateway, &*shared.facts);
    let mut timer = Timer::new(gateway.clock.clone());
    exchange.token = lock(&facts.token).clone();
    let mut recording = Recording::new(gateway, &mut exchange);
    let read = match opening {
        Opening::Accepted { has_ended, protocol: None } => body_length(&recording.head, has_ended),
        Opening::Accepted { protocol: Some(protocol), .. } => {
            websocket::begin(&mut recording, protocol).map(|()| BodyLength::None)
        }
        Opening::Refused(error) => Err(Reason::from(error)),
    };
    let length = *read.as_ref().unwrap_or(&BodyLength::None);
    let expects_continue = !length.is_empty() && expects_continue(&recording.head);
    let mut body = RequestBody::new(stream, length, expects_continue);
    let outcome = match read {
        // Whatever the client has asked for, it does not want it any more.
        _ if body.stream.is_closed() => pipeline::refuse(gateway, &Reason::ClientAborted, &mut recording),
        Ok(_) => pipeline::handle(gateway, &mut recording, &mut body, &mut timer).await,
        Err(reason) => {
            // A part of the fields says nothing: what a proxy has added may be in the rest.
            recording.head.fields.clear();
            pipeline::refuse(gateway, &reason, &mut recording)
        }
    };
    let outcome = if websocket::is_mistakable(&outcome, &recording) {
        pipeline::refuse(gateway, &Reason::WebSocketRefused, &mut recording)
    } else {
        outcome
    };
    let held = match outcome {
        Outcome::Hold(held) => Some(held),
        Outcome::Tunnel(head, upstream) => {
            // Boxed, so that requests do not pay for its size.
            let carried = websocket::carry(gateway, head, *upstream, &mut recording, &mut body, &mut timer);
            Box::pin(carried).await;
            None
        }
        outcome => {
            respond::respond(gateway, outcome, &mut recording, &mut body, &mut timer).await;
            None
        }
    };
    recording.request_body_bytes = body.found();
    if let Some(failure) = body.stream.failure()
        && !recording.response.complete
    {
        recording.response.reason = Some(failure);
    }
    if recording.response.complete {
        body.finish();
    }
    recording.finish();
    remember(facts, exchange.take_token());
    exchange.recycle();
    if let Some(held) = held {
        Box::pin(hold(gateway, *held, &mut body, &mut timer)).await;
    }
}

/// Waits until a refusal is to be sent, and sends it. Nothing else is left of its request.
async fn hold(gateway: &Gateway, held: HeldRefusal, body: &mut RequestBody, timer: &mut Timer) {
    let Some((response, mut exchange)) = Box::pin(held.wait(body)).await else {
        return body.stream.reset(ErrorCode::Cancel);
    };
    Box::pin(respond::respond(gateway, Outcome::Respond(response), &mut exchange, body, timer)).await;
    if exchange.response.complete {
        body.finish();
    }
    exchange.recycle();
}

/// How long the request's body is, as far as its head says.
fn body_length(head: &RequestHead, has_ended: bool) -> Result<BodyLength, Reason> {
    let stated = BodyLength::from(request_framing(head)?);
    Ok(match stated {
        BodyLength::Exact(_) => stated,
        _ if has_ended => BodyLength::None,
        _ => BodyLength::Unknown,
    })
}

/// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
fn expects_continue(head: &RequestHead) -> bool {
    head.fields.get(Known::Expect).is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// Lets the streams to come know what this one has learnt.
fn remember(facts: &ConnectionFacts, token: ConnectionTokenCache) {
    let mut shared = lock(&facts.token);
    let before = if shared.is(&token) { token } else { std::mem::replace(&mut *shared, token) };
    drop(shared);
    drop(before);
}

fn lock(token: &Mutex<ConnectionTokenCache>) -> MutexGuard<'_, ConnectionTokenCache> {
    token.lock().unwrap_or_else(PoisonError::into_inner)
}

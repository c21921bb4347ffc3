//! A thin HTTP/2 downstream (RFC 9113) on the `h2` crate: copies heads into our own, and hands each stream to the same
//! pipeline as a request of HTTP/1.1.

mod body;
mod head;
mod queued;
mod respond;

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use cardea_clock::Clock;
use cardea_http::{BodyLength, Known, RequestHead, h1::request_framing};
use cardea_identity::ConnectionTokenCache;
use h2::{RecvStream, server::SendResponse};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    exchange::{ConnectionFacts, Exchange},
    gateway::{Gateway, Recording},
    memory::{self, Ending, charged},
    pipeline,
    record::RequestId,
    refusal::Reason,
    timer::Timer,
    transport::Transport,
    workers,
};

use body::RequestBody;
use queued::{NotingTransport, QueuedHeads};

/// How much of one request body is taken in ahead of the service, in bytes (RFC 9113 §6.9).
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The same for all streams of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// How much of responses is buffered per stream, in bytes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Streams that the peer reset early and that are still accounted for; beyond that it is an attack (CVE-2023-44487).
const RESET_STREAMS_MAX: usize = 64;

/// How long the end of a connection may take once nothing is under way on it.
const GOODBYE: Duration = Duration::from_secs(2);

/// Serves the connection to its end.
pub(crate) async fn serve(gateway: Arc<Gateway>, transport: Transport, facts: Arc<ConnectionFacts>) {
    let model = gateway.model();
    let head_bytes = u32::try_from(model.limits.head.head_bytes_max).unwrap_or(u32::MAX);
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(model.limits.http2_streams_max)
        .max_header_list_size(head_bytes)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX);
    let idle = model.timeouts.keep_alive_idle;
    let begin = model.timeouts.request_head;
    drop(model);
    let account = facts.activity.account();
    let heads = QueuedHeads::new(Arc::clone(account));
    let transport = NotingTransport::new(transport, Arc::clone(&heads));
    let Ok(Ok(mut connection)) = timeout(begin, builder.handshake::<_, Bytes>(transport)).await else {
        return;
    };
    account.set_multiplexed();
    let streams = UnderWay::new(&facts, &gateway);
    let mut stopping = false;
    // Both stand for as long as the connection does: to wait for either anew takes locks, one of them all workers' own.
    let mut stop = pin!(gateway.stopping());
    let mut quiet = pin!(sleep(idle));
    let mut last = Instant::now();
    // What was held when the connection was last found to be quiet.
    let mut queued = 0;
    loop {
        let next = tokio::select! {
            next = poll_fn(|cx| {
                let polled = connection.poll_accept(cx);
                heads.settle();
                polled
            }) => next,
            () = poll_fn(|_| if facts.activity.is_evicted() { Poll::Ready(()) } else { Poll::Pending }) => {
                // What comes meanwhile is not carried, which the client learns (RFC 9113 §6.8).
                connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                let _ = timeout(GOODBYE, poll_fn(|cx| connection.poll_closed(cx))).await;
                return;
            }
            () = &mut stop, if !stopping => {
                stopping = true;
                // GOAWAY in two phases (RFC 9113 §6.8).
                connection.graceful_shutdown();
                continue;
            }
            () = &mut quiet => {
                let now = Instant::now();
                // Nothing begun for a while: if nothing is in flight either, the connection has served. The client may
                // still read what is queued, as long as it takes some of it.
                if now >= last + idle {
                    let reads = account.held() > 0 && account.held() != queued;
                    queued = account.held();
                    if streams.count() == 0 && !reads {
                        connection.graceful_shutdown();
                        let _ = timeout(GOODBYE, poll_fn(|cx| connection.poll_closed(cx))).await;
                        return;
                    }
                    last = now;
                }
                quiet.as_mut().reset(last + idle);
                continue;
            }
        };
        last = Instant::now();
        let Some(Ok((request, mut respond))) = next else { return };
        if !account.takes_streams() || (memory::is_full() && !heads.has_room()) {
            // Nothing is done of it, which the client learns (RFC 9113 §8.7).
            respond.send_reset(h2::Reason::REFUSED_STREAM);
            continue;
        }
        let (gateway, facts, counted) = (Arc::clone(&gateway), Arc::clone(&facts), streams.begin());
        let heads = Arc::clone(&heads);
        workers::spawn(charged(Arc::clone(account), async move {
            let mut carried = pin!(stream(&gateway, Arc::clone(&facts), request, respond, heads));
            poll_fn(|cx| match facts.activity.account().ending() {
                // Nothing more is taken in for a connection that ends to make room.
                Ending::Connection => Poll::Ready(()),
                Ending::No | Ending::Streams => carried.as_mut().poll(cx),
            })
            .await;
            drop(counted);
        }));
    }
}

/// The streams of a connection that are under way: while there are none, the connection is idle.
struct UnderWay {
    count: AtomicUsize,
    facts: Arc<ConnectionFacts>,
    clock: Clock,
}

/// One of them; it is over when this is dropped.
struct Begun(Arc<UnderWay>);

impl UnderWay {
    fn new(facts: &Arc<ConnectionFacts>, gateway: &Gateway) -> Arc<Self> {
        let clock = gateway.clock.clone();
        facts.activity.rest(clock.mono());
        Arc::new(Self { count: AtomicUsize::new(0), facts: Arc::clone(facts), clock })
    }

    fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn begin(self: &Arc<Self>) -> Begun {
        if self.count.fetch_add(1, Relaxed) == 0 {
            self.facts.activity.resume();
        }
        Begun(Arc::clone(self))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Self(all) = self;
        if all.count.fetch_sub(1, Relaxed) == 1 {
            all.facts.activity.rest(all.clock.mono());
        }
    }
}

/// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
fn expects_continue(head: &RequestHead) -> bool {
    head.fields.get(Known::Expect).is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// Carries one request.
async fn stream(
    gateway: &Gateway,
    facts: Arc<ConnectionFacts>,
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
    heads: Arc<QueuedHeads>,
) {
    let mut timer = Timer::new(gateway.clock.clone());
    let mut exchange = Exchange::take();
    exchange.id = RequestId::generate(gateway.clock.wall());
    exchange.started = gateway.clock.precise();
    exchange.token = lock(&facts.token).clone();
    exchange.connection = Some(Arc::clone(&facts));
    let (parts, body) = request.into_parts();
    let limits = gateway.model().limits.head;
    let mut recording = Recording::new(gateway, &mut exchange);
    let read = head::read(&parts, &limits, &mut recording)
        // A part of the fields says nothing: what a proxy has added may be in the rest.
        .inspect_err(|_| recording.head.fields.clear())
        .and_then(|()| request_framing(&recording.head).map_err(Reason::from))
        .and_then(|stated| head::body_length(stated.into(), &body));
    // The head is held once, and counted.
    drop(parts);
    recording.count_memory();
    let length = *read.as_ref().unwrap_or(&BodyLength::None);
    let mut body = RequestBody::new(body, respond, heads, length, expects_continue(&recording.head));
    let outcome = match read {
        Ok(_) => pipeline::handle(gateway, &mut recording, &mut body, &mut timer).await,
        Err(reason) => pipeline::refuse(gateway, &reason, &mut recording),
    };
    respond::respond(gateway, outcome, &mut recording, &mut body, &mut timer).await;
    recording.request_body_bytes = body.found();
    recording.finish();
    remember(&facts, exchange.take_token());
    exchange.recycle();
    body.linger(&mut timer).await;
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

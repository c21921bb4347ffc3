//! Carries a response to the client: one loop for every protocol, with its deadlines, the watch over the right to it, and
//! what is recorded of it. How a head, a chunk and an end are written is up to a [`ResponseSink`].

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_http::{
    Fields,
    grpc::{GrpcStatus, status_of},
};

use crate::{
    admission::Permits,
    downstream::{Aborted, Downstream},
    exchange::Exchange,
    fields::clean_response_trailers,
    gateway::Gateway,
    grpc,
    memory::Ending,
    model::RESPONSE_BODY_IDLE,
    rate::RateWindow,
    refusal::Reason,
    response::{Response, ResponseBody, has_body, set_length},
    streams::StreamWatch,
    termination::TerminationReason,
    timer::Timer,
};

/// How a protocol writes one response. Whatever fails, fails because the client does.
pub(crate) trait ResponseSink {
    /// The client's side of the exchange: its request may still be coming.
    fn downstream(&mut self) -> &mut dyn Downstream;

    /// Ready once a head, or trailers, of these fields may be written.
    fn poll_room(&mut self, _cx: &mut Context<'_>, _fields: &Fields) -> Poll<Result<(), Aborted>> {
        Poll::Ready(Ok(()))
    }

    /// Writes the head, once there is room for it. `has_body` says whether a body follows, an empty one perhaps; the head
    /// states its length where that is known.
    fn begin(&mut self, response: &mut Response, has_body: bool) -> Result<(), Aborted>;

    /// Ready once there is room for more of the body.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>>;

    /// Takes some of `chunk`, which is not empty; ready with how much.
    fn poll_write(&mut self, cx: &mut Context<'_>, chunk: &[u8]) -> Poll<Result<usize, Aborted>>;

    /// Whether the client gets trailers.
    fn takes_trailers(&self) -> bool;

    /// Writes the end of the body, once there is room for its trailers.
    fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Aborted>;

    /// Ready once everything up to the end is sent.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>>;

    /// Sends what was gathered, while no more of the body is there. Ready once the client has left.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Aborted>;

    /// Ends the response so that the client can't take it for whole.
    fn cut(&mut self, cut: Cut, exchange: &mut Exchange);

    /// How much was sent of what was gathered or waits before it, in a unit of the sink's: it moves on while the client takes
    /// something.
    fn sent(&self) -> u64;

    /// Whether something was gathered that the client does not take.
    fn is_stalled(&self) -> bool;

    /// How much memory the sink holds that nothing else counts, in bytes.
    fn held_bytes(&self) -> usize;
}

/// Why a response was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The client has left.
    Client,
    /// The service gave up in the middle of its response, or broke its framing.
    Service,
    /// Nothing moved for too long, or the exchange took too long.
    Stalled,
    /// The client took less than the least rate.
    TooSlow,
    /// The time is over that the client has set for it.
    Deadline,
    /// The right to it has ended.
    Ended(TerminationReason),
}

impl Cut {
    /// The stable code, for the access log. What fails because its connection had to make room has that reason.
    fn code(self, exchange: &Exchange) -> &'static str {
        let account = exchange.connection.as_ref().map(|facts| facts.activity.account());
        let made_room = account.is_some_and(|account| account.ending() == Ending::Connection);
        match self {
            Self::Ended(end) => end.code(),
            _ if made_room => TerminationReason::BuffersExhausted.code(),
            Self::Client => "client_aborted",
            Self::Service => "upstream_aborted",
            Self::Stalled => "response_timeout",
            Self::TooSlow => "response_too_slow",
            Self::Deadline => Reason::DeadlineExceeded.code(),
        }
    }
}

/// Sends `response`; `true` if the client got it whole.
pub(crate) async fn respond(
    gateway: &Gateway,
    response: &mut Response,
    exchange: &mut Exchange,
    sink: &mut impl ResponseSink,
    timer: &mut Timer,
) -> bool {
    exchange.response.status = response.head.status;
    // Last of all: what the configuration says of responses holds for the status that the refusal has in HTTP.
    let is_trailers_only = grpc::write_refusal(response);
    let has_body = !is_trailers_only && has_body(exchange.head.method, response.head.status);
    if has_body {
        set_length(&mut response.head, response.body.length());
    }
    if exchange.is_grpc && exchange.response.grpc_status.is_none() {
        exchange.response.grpc_status = status_of(&response.head.fields);
    }
    let mut pace = Pace::begin(gateway, exchange);
    let room = poll_fn(|cx| Poll::Ready(sink.poll_room(cx, &response.head.fields))).await;
    let room = match room {
        Poll::Ready(room) => room.map_err(|Aborted| Cut::Client),
        // Boxed, as hardly any response has to wait.
        Poll::Pending => Box::pin(wait_for_room(response, exchange, sink, timer, &mut pace)).await,
    };
    let begun = match room {
        Ok(()) => sink.begin(response, has_body),
        Err(cut) => {
            exchange.response.reason = Some(cut.code(exchange));
            sink.cut(cut, exchange);
            Err(Aborted)
        }
    };
    // For what is recorded; and its memory serves the next response.
    exchange.response_head = std::mem::take(&mut response.head);
    if begun.is_err() {
        return false;
    }
    if !has_body {
        response.body = ResponseBody::Empty;
    }
    let body = &mut response.body;
    let permits = exchange.admission.permits.take();
    let ended = matches!(body, ResponseBody::Empty);
    let mut flow = Flow { ended, body, body_bytes: 0, grpc_status: None, permits };
    let result = flow.run(exchange, sink, timer, &mut pace).await;
    exchange.admission.permits = flow.permits;
    exchange.response.body_bytes = flow.body_bytes;
    exchange.response.grpc_status = flow.grpc_status.or(exchange.response.grpc_status);
    exchange.response.complete = result.is_ok();
    if let Err(cut) = result {
        exchange.response.reason = Some(cut.code(exchange));
        sink.cut(cut, exchange);
    }
    result.is_ok()
}

/// Waits until the head of `response` may be written. The memory of all that waits is counted.
async fn wait_for_room(
    response: &mut Response,
    exchange: &mut Exchange,
    sink: &mut impl ResponseSink,
    timer: &mut Timer,
    pace: &mut Pace<'_>,
) -> Result<(), Cut> {
    // Where it is counted.
    std::mem::swap(&mut response.head, &mut exchange.response_head);
    exchange.count_memory();
    response.body.park();
    let result = poll_fn(|cx| {
        // A client may send its whole request before it reads; and what it sends is to be counted.
        if response.body.poll_request(cx, sink.downstream()).is_err()
            || sink.downstream().poll_background(cx).is_ready()
        {
            return Poll::Ready(Err(Cut::Client));
        }
        if let Poll::Ready(room) = sink.poll_room(cx, &exchange.response_head.fields) {
            return Poll::Ready(room.map_err(|Aborted| Cut::Client));
        }
        pace.poll(cx, exchange, sink, (0, true), timer).map(Err)
    })
    .await;
    std::mem::swap(&mut response.head, &mut exchange.response_head);
    result
}

/// How long a response may take, and whether it may go on.
struct Pace<'g> {
    watch: StreamWatch<'g>,
    idle: Duration,
    whole: Mono,
    progress: (u64, u64),
    rate: RateWindow,
    deadline: Mono,
}

impl<'g> Pace<'g> {
    fn begin(gateway: &'g Gateway, exchange: &Exchange) -> Self {
        let route = exchange.route();
        Self {
            watch: StreamWatch::new(gateway),
            idle: route.map_or(RESPONSE_BODY_IDLE, |route| route.timeouts.response_body_idle),
            whole: route.map_or(Mono::MAX, |route| exchange.deadline(route)),
            progress: (u64::MAX, u64::MAX),
            rate: RateWindow::new(),
            deadline: Mono::MAX,
        }
    }

    /// Ready once a response that waits has to be cut short. So much of its body was passed on, and the client may be waited
    /// for.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &Exchange,
        sink: &impl ResponseSink,
        (body_bytes, waits_for_client): (u64, bool),
        timer: &mut Timer,
    ) -> Poll<Cut> {
        if let Poll::Ready(end) = self.watch.poll(cx, exchange) {
            return Poll::Ready(Cut::Ended(end));
        }
        let now = (body_bytes, sink.sent());
        let moved = now != self.progress;
        if moved {
            self.progress = now;
            self.deadline = timer.now().saturating_add(self.idle).min(self.whole);
        }
        self.watch.note(sink.held_bytes(), waits_for_client, moved, timer.now());
        let timeouts = exchange.route().map(|route| &route.timeouts);
        let least = timeouts.map(|timeouts| (timeouts.response_body_rate_min, timeouts.body_rate_window));
        let least = least.unwrap_or_default();
        let Ok(look_at) = self.rate.look(least, sink.sent(), waits_for_client, timer.now()) else {
            return Poll::Ready(Cut::TooSlow);
        };
        if look_at < self.deadline {
            if timer.poll_until(cx, look_at).is_ready() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        timer
            .poll_until(cx, self.deadline)
            .map(|_| if exchange.client_deadline <= timer.now() { Cut::Deadline } else { Cut::Stalled })
    }
}

/// A body on its way.
struct Flow<'a> {
    body: &'a mut ResponseBody,
    /// The end is written.
    ended: bool,
    body_bytes: u64,
    /// The status of a gRPC call in the trailers.
    grpc_status: Option<GrpcStatus>,
    /// Those of the exchange.
    permits: Option<Permits>,
}

impl Flow<'_> {
    /// Runs until all is sent, or it has to be cut short.
    async fn run(
        &mut self,
        exchange: &Exchange,
        sink: &mut impl ResponseSink,
        timer: &mut Timer,
        pace: &mut Pace<'_>,
    ) -> Result<(), Cut> {
        let mut stream_at =
            self.permits.as_ref().map_or(Mono::MAX, |permits| permits.stream_at(exchange.started.mono));
        poll_fn(|cx| {
            if let Poll::Ready(result) = self.poll(cx, exchange, sink) {
                return Poll::Ready(result);
            }
            let waits_for_client = sink.is_stalled() || !self.body.chunk().is_empty();
            if stream_at < pace.deadline && timer.poll_until(cx, stream_at).is_ready() {
                stream_at = Mono::MAX;
                if let Some(permits) = &mut self.permits {
                    permits.become_stream();
                }
            }
            pace.poll(cx, exchange, sink, (self.body_bytes, waits_for_client), timer).map(Err)
        })
        .await
    }

    /// Ready once all is sent.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &Exchange,
        sink: &mut impl ResponseSink,
    ) -> Poll<Result<(), Cut>> {
        let of_client = |_: Aborted| Cut::Client;
        while !self.ended {
            let room = sink.poll_ready(cx);
            if room.is_pending() && self.body.poll_request(cx, sink.downstream()).is_err() {
                // A client may send its whole request before it reads: were that held back, both would wait.
                return Poll::Ready(Err(Cut::Client));
            }
            ready!(room).map_err(of_client)?;
            match self.body.poll_data(cx, sink.downstream()) {
                Poll::Ready(Ok(true)) => {
                    let count = ready!(sink.poll_write(cx, self.body.chunk())).map_err(of_client)?;
                    self.body_bytes += count as u64;
                    self.body.consume(count);
                }
                Poll::Ready(Ok(false)) => {
                    if exchange.is_grpc {
                        self.grpc_status = self.body.trailers().and_then(status_of);
                    }
                    let trailers = self.body.trailers().filter(|_| sink.takes_trailers());
                    let trailers = trailers.map(|trailers| clean_response_trailers(exchange, trailers));
                    if let Some(trailers) = &trailers {
                        ready!(sink.poll_room(cx, trailers)).map_err(of_client)?;
                    }
                    self.ended = true;
                    sink.end(trailers.as_ref()).map_err(of_client)?;
                }
                Poll::Ready(Err(_)) if self.body.client_failed() => return Poll::Ready(Err(Cut::Client)),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Cut::Service)),
                Poll::Pending => return sink.poll_idle(cx).map(|aborted| Err(of_client(aborted))),
            }
        }
        sink.poll_flush(cx).map_err(of_client)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, task::Waker};

    use cardea_http::{BodyLength, ResponseHead};

    use super::*;
    use crate::body::{BodyError, BodySource};

    /// What a sink does when it is asked next.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Mood {
        Takes(usize),
        Waits,
        Fails,
    }

    /// Takes what its moods say, and notes what it is told. Without one that is left, it takes everything.
    #[derive(Default)]
    struct Fake {
        moods: VecDeque<Mood>,
        taken: Vec<u8>,
        ends: u32,
    }

    impl Fake {
        fn next(&mut self, most: usize) -> Poll<Result<usize, Aborted>> {
            match self.moods.pop_front().unwrap_or(Mood::Takes(most)) {
                Mood::Takes(count) => Poll::Ready(Ok(count.min(most))),
                Mood::Waits => Poll::Pending,
                Mood::Fails => Poll::Ready(Err(Aborted)),
            }
        }
    }

    impl BodySource for Fake {
        fn poll_data(&mut self, _: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
            Poll::Ready(Ok(false))
        }

        fn chunk(&self) -> &[u8] {
            &[]
        }

        fn consume(&mut self, _: usize) {}

        fn trailers(&self) -> Option<&Fields> {
            None
        }
    }

    impl Downstream for Fake {
        fn body_length(&self) -> BodyLength {
            BodyLength::None
        }

        fn set_body_limit(&mut self, _: u64) {}

        fn body_bytes(&self) -> u64 {
            0
        }

        fn poll_inform(&mut self, _: &mut Context<'_>, _: &ResponseHead) -> Poll<Result<(), Aborted>> {
            Poll::Ready(Ok(()))
        }

        fn poll_background(&mut self, _: &mut Context<'_>) -> Poll<Aborted> {
            Poll::Pending
        }
    }

    impl ResponseSink for Fake {
        fn downstream(&mut self) -> &mut dyn Downstream {
            self
        }

        fn begin(&mut self, _: &mut Response, _: bool) -> Result<(), Aborted> {
            Ok(())
        }

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
            self.next(1).map_ok(drop)
        }

        fn poll_write(&mut self, _: &mut Context<'_>, chunk: &[u8]) -> Poll<Result<usize, Aborted>> {
            let count = ready!(self.next(chunk.len()))?;
            self.taken.extend_from_slice(&chunk[..count]);
            Poll::Ready(Ok(count))
        }

        fn takes_trailers(&self) -> bool {
            true
        }

        fn end(&mut self, _: Option<&Fields>) -> Result<(), Aborted> {
            self.ends += 1;
            Ok(())
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
            self.next(1).map_ok(drop)
        }

        fn poll_idle(&mut self, _: &mut Context<'_>) -> Poll<Aborted> {
            Poll::Pending
        }

        fn cut(&mut self, _: Cut, _: &mut Exchange) {}

        fn sent(&self) -> u64 {
            0
        }

        fn is_stalled(&self) -> bool {
            false
        }

        fn held_bytes(&self) -> usize {
            0
        }
    }

    /// Polls until the response is over; how it ended, and how many octets of its body are recorded.
    fn carry(bytes: &[u8], sink: &mut Fake) -> (Result<(), Cut>, u64) {
        let mut body = ResponseBody::bytes(bytes.into());
        let mut flow =
            Flow { body: &mut body, ended: false, body_bytes: 0, grpc_status: None, permits: None };
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let waits = sink.moods.len();
            match flow.poll(&mut cx, &Exchange::default(), sink) {
                Poll::Ready(result) => return (result, flow.body_bytes),
                Poll::Pending => assert!(sink.moods.len() < waits, "it waits for nothing"),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn clients_receive_a_prefix_of_the_body_that_ends_only_if_complete(
            bytes: Vec<u8>,
            moods in proptest::collection::vec(0_u8..8, 0..40),
        ) {
            let mood = |mood: &u8| match mood {
                0 => Mood::Fails,
                1 | 2 => Mood::Waits,
                count => Mood::Takes(usize::from(*count)),
            };
            let mut sink = Fake { moods: moods.iter().map(mood).collect(), ..Fake::default() };
            let (result, body_bytes) = carry(&bytes, &mut sink);
            proptest::prop_assert!(bytes.starts_with(&sink.taken));
            proptest::prop_assert_eq!(body_bytes, sink.taken.len() as u64);
            proptest::prop_assert!(sink.ends == 0 || sink.taken == bytes, "ended before it was whole");
            proptest::prop_assert!(result.is_err() || sink.ends == 1, "whole, but not ended");
        }
    }

    #[test]
    fn a_client_that_fails_cuts_the_response_short() {
        for moods in [[Mood::Fails, Mood::Waits], [Mood::Takes(1), Mood::Fails], [Mood::Waits, Mood::Fails]] {
            let mut sink = Fake { moods: moods.into(), ..Fake::default() };
            assert_eq!(carry(b"body", &mut sink).0, Err(Cut::Client), "{moods:?}");
            assert_eq!(sink.ends, 0);
        }
    }
}

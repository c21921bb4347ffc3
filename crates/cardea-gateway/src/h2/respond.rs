//! How a response is written to a stream, within the peer's flow control.

use std::task::{Context, Poll};

use cardea_http::{
    Fields, Known, ResponseHead, Version,
    grpc::{GrpcStatus, set_status},
    h2::ErrorCode,
};

use super::body::RequestBody;
use crate::{
    date,
    downstream::{Aborted, Downstream},
    exchange::Exchange,
    gateway::Gateway,
    respond::{self, Cut, ResponseSink},
    response::{Outcome, Response, ResponseBody},
    termination::TerminationReason,
    timer::Timer,
};

/// Sends what the pipeline decided.
pub(super) async fn respond(
    gateway: &Gateway,
    outcome: Outcome,
    exchange: &mut Exchange,
    body: &mut RequestBody,
    timer: &mut Timer,
) {
    let mut response = match outcome {
        Outcome::Respond(response) => response,
        Outcome::Close | Outcome::Hold(_) | Outcome::Tunnel(..) => {
            return body.stream.reset(ErrorCode::Cancel);
        }
    };
    debug_assert!(exchange.head.version == Version::Http2);
    let mut writer = Writer { gateway, body };
    let whole = respond::respond(gateway, &mut response, exchange, &mut writer, timer).await;
    if !whole && body.stream.is_closed() {
        response.body.abandon(body);
    }
}

/// Dates a response, if nobody else did.
pub(super) fn set_date(gateway: &Gateway, head: &mut ResponseHead) {
    if head.fields.get(Known::Date).is_none() {
        let mut text = Vec::with_capacity(32);
        date::write(gateway.clock.wall(), &mut text);
        let _ = head.fields.append_known(Known::Date, &text);
    }
}

/// A response on its way.
struct Writer<'a> {
    gateway: &'a Gateway,
    body: &'a mut RequestBody,
}

impl Writer<'_> {
    /// Ends a gRPC call with a status, if there is room for it now; whether it did. No client takes a call with such a status
    /// for complete.
    fn end_with_status(&mut self, status: GrpcStatus, message: &str) -> bool {
        let mut trailers = Fields::default();
        if set_status(&mut trailers, status, message).is_err() {
            return false;
        }
        self.body.stream.has_room(&trailers) && self.body.stream.send_trailers(&trailers).is_ok()
    }
}

impl ResponseSink for Writer<'_> {
    fn downstream(&mut self) -> &mut dyn Downstream {
        self.body
    }

    fn poll_room(&mut self, cx: &mut Context<'_>, fields: &Fields) -> Poll<Result<(), Aborted>> {
        self.body.stream.poll_room(cx, fields)
    }

    fn begin(&mut self, response: &mut Response, has_body: bool) -> Result<(), Aborted> {
        set_date(self.gateway, &mut response.head);
        let is_last = !has_body || matches!(response.body, ResponseBody::Empty);
        self.body.stream.send_head(&response.head, is_last)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        Poll::Ready(self.body.stream.poll_entry(cx, |_| ()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, chunk: &[u8]) -> Poll<Result<usize, Aborted>> {
        self.body.stream.poll_send(cx, chunk)
    }

    fn takes_trailers(&self) -> bool {
        true
    }

    fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Aborted> {
        match trailers {
            Some(trailers) => self.body.stream.send_trailers(trailers),
            None => self.body.stream.send_end(),
        }
    }

    /// The connection's task sends what was queued.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        Poll::Ready(Ok(()))
    }

    fn poll_idle(&mut self, _: &mut Context<'_>) -> Poll<Aborted> {
        Poll::Pending
    }

    /// A stream that is reset can't be taken for whole.
    fn cut(&mut self, cut: Cut, exchange: &mut Exchange) {
        let status = match cut {
            // What is queued for the stream stays as long as trailers wait behind it.
            Cut::Ended(TerminationReason::BuffersExhausted) => None,
            Cut::Ended(end) => Some((end.grpc_status(), end.text())),
            Cut::Deadline => Some((GrpcStatus::DeadlineExceeded, "deadline exceeded")),
            Cut::Client | Cut::Service | Cut::Stalled | Cut::TooSlow => None,
        };
        if exchange.is_grpc
            && let Some((status, message)) = status
            && self.end_with_status(status, message)
        {
            exchange.response.grpc_status = Some(status);
            return;
        }
        let code = match cut {
            Cut::Ended(_) | Cut::Deadline => ErrorCode::Cancel,
            Cut::Client | Cut::Service | Cut::Stalled | Cut::TooSlow => ErrorCode::InternalError,
        };
        self.body.stream.reset(code);
    }

    /// Who waits for a turn moves on as the connection does.
    fn sent(&self) -> u64 {
        self.body.stream.passed_bytes()
    }

    fn is_stalled(&self) -> bool {
        self.body.stream.waits_for_room()
    }

    fn held_bytes(&self) -> usize {
        0
    }
}

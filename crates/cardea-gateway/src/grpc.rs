//! gRPC calls over HTTP/2: which requests they are, how long they may take, and how the gateway refuses them.

use std::time::Duration;

use cardea_clock::{Clock, Mono};
use cardea_guard::AdmissionRefusal;
use cardea_http::{
    Fields, Known,
    grpc::{self, CONTENT_TYPE, GrpcStatus, set_status, set_timeout, timeout_of},
};

use crate::{exchange::Exchange, model::Route, refusal::Reason, response::Response};

/// In which field a client is told when to retry, in milliseconds (gRPC's proposal A6).
const RETRY_PUSHBACK: &[u8] = b"grpc-retry-pushback-ms";

/// How a call is refused.
#[derive(Debug)]
pub(crate) struct RefusedCall {
    pub(crate) status: GrpcStatus,
    pub(crate) message: String,
}

/// Whether a request over HTTP/2 with these fields is a gRPC call.
pub(crate) fn is_call(fields: &Fields) -> bool {
    fields.get(Known::ContentType).is_some_and(grpc::is_content_type)
}

/// Longer than any call.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Notes the time that the client has set for a call.
pub(crate) fn note_deadline(exchange: &mut Exchange) -> Result<(), Reason> {
    if exchange.is_grpc
        && let Some(timeout) = timeout_of(&exchange.head.fields)?
    {
        // One of thousands of years is a deadline, too: services are told those of the route in its place.
        exchange.client_deadline = exchange.started.mono.saturating_add(timeout.min(TIMEOUT_MAX));
    }
    Ok(())
}

/// Tells the service how much is left of the time that the client has set for a call, or of the route's where that is less.
pub(crate) fn renew_timeout(route: &Route, exchange: &mut Exchange, clock: &Clock) {
    if exchange.client_deadline == Mono::MAX {
        return;
    }
    let left = exchange.deadline(route).saturating_since(clock.precise_mono());
    // Without room for it the service has no deadline; the gateway's holds all the same.
    let _ = set_timeout(&mut exchange.head.fields, left);
}

/// Why a request is refused: what it waited for did not come in the time of its client, where that is over.
pub(crate) fn by_deadline(reason: Reason, exchange: &Exchange, now: Mono) -> Reason {
    let has_waited = matches!(
        reason,
        Reason::RequestTimeout | Reason::ConnectTimeout | Reason::NotAdmitted(AdmissionRefusal::Expired)
    );
    if has_waited && exchange.client_deadline <= now { Reason::DeadlineExceeded } else { reason }
}

/// Makes the refusal of a call what clients of gRPC expect: a response with status 200 that consists of trailers only. Whether
/// it is one.
pub(crate) fn write_refusal(response: &mut Response) -> bool {
    let Some(refused) = response.refused_call.take() else { return false };
    let head = &mut response.head;
    head.status = 200;
    let fields = &mut head.fields;
    let milliseconds = fields.get(Known::RetryAfter).and_then(retry_milliseconds);
    let written = fields
        .set_known(Known::ContentType, CONTENT_TYPE.as_bytes())
        .and_then(|()| set_status(fields, refused.status, &refused.message))
        .and_then(|()| match milliseconds {
            Some(milliseconds) => fields.append(RETRY_PUSHBACK, milliseconds.to_string().as_bytes()),
            None => Ok(()),
        });
    if written.is_err() {
        // A head at the limit of its memory. The status is what matters.
        fields.clear();
        let _ = fields.set_known(Known::ContentType, CONTENT_TYPE.as_bytes());
        let _ = set_status(fields, refused.status, &refused.message);
    }
    true
}

/// The same as a number of seconds, which clients read as a signed number of 32 bits.
fn retry_milliseconds(seconds: &[u8]) -> Option<i32> {
    let seconds: u64 = std::str::from_utf8(seconds).ok()?.parse().ok()?;
    Some(i32::try_from(seconds.saturating_mul(1000)).unwrap_or(i32::MAX))
}

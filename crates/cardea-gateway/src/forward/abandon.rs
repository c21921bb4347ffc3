//! What becomes of an exchange whose client has given it up: the rest of its response is read, if that is little, so that its
//! connection can be used again. A client that resets one stream after the other would otherwise make the gateway open a connection
//! to the service for each (CVE-2023-44487).

use std::{future::poll_fn, task::Poll, time::Duration};

use cardea_http::{BodyLength, ResponseHead};

use super::attempt::Attempt;
use crate::{downstream::Downstream, memory, timer::Timer, workers};

/// How long a service may take for the rest of its response.
const WAIT: Duration = Duration::from_secs(1);

/// The most that is read and thrown away, in bytes; beyond it, a new connection is cheaper.
const BYTES_MAX: usize = 64 * 1024;

/// Gives an exchange up, whose response has begun or is awaited. A client that goes with its connection has to make another one
/// for each request, so nothing is done for its exchanges; and a connection that exchanges share goes on anyway.
pub(crate) fn abandon(attempt: Box<Attempt>, has_begun: bool, client: &dyn Downstream) {
    let length = if has_begun { attempt.response_length() } else { BodyLength::Unknown };
    let is_little = length.stated().is_none_or(|length| length <= BYTES_MAX as u64);
    let is_useful = client.is_multiplexed() && !attempt.is_multiplexed() && !memory::is_exhausted();
    if is_useful && attempt.is_sent() && !attempt.is_unsent() && is_little {
        workers::spawn(finish(attempt, has_begun));
    }
}

async fn finish(mut attempt: Box<Attempt>, mut has_begun: bool) {
    let mut timer = Timer::new(attempt.clock().clone());
    let until = timer.now().saturating_add(WAIT);
    let mut head = ResponseHead::default();
    let mut left = BYTES_MAX;
    let rest = poll_fn(|cx| {
        while !has_begun {
            match attempt.poll_head(cx, &mut head) {
                Poll::Ready(Ok(())) => has_begun = head.status >= 200,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        loop {
            match attempt.poll_rest(cx) {
                Poll::Ready(Ok(true)) if attempt.chunk().len() <= left => {
                    left -= attempt.chunk().len();
                    attempt.consume(attempt.chunk().len());
                }
                // At its end, the connection is kept.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    let _ = timer.until(until, rest).await;
}

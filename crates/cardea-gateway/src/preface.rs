//! Tells HTTP/2 from HTTP/1.1 where no handshake has negotiated it: a client that knows that it may speak HTTP/2 begins with
//! its preface (RFC 9113 §3.3, §3.4).

use std::{future::poll_fn, task::Poll};

use cardea_http::h2::frame::PREFACE;

use crate::{buffer::Buffer, connections::Activity, gateway::Gateway, timer::Timer, transport::Transport};

/// The protocol that a client has begun with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Http1,
    Http2,
}

impl Begun {
    /// By what was received. None while it may be either.
    fn of(received: &[u8]) -> Option<Self> {
        if received.starts_with(PREFACE) {
            return Some(Self::Http2);
        }
        // No request of HTTP/1.1 has to wait: `PRI` is no method of theirs (RFC 9113 §11.6).
        if PREFACE.starts_with(received) { None } else { Some(Self::Http1) }
    }
}

/// Receives as much as tells which protocol it is. None if the client leaves, gives way or takes as long as a head may take.
pub(crate) async fn recognise(
    gateway: &Gateway,
    transport: &mut Transport,
    inbound: &mut Buffer,
    activity: &Activity,
    mut timer: Timer,
) -> Option<Begun> {
    let deadline = timer.now().saturating_add(gateway.connection_timeouts().request_head);
    let mut rests = false;
    let begun = poll_fn(|cx| {
        loop {
            if !inbound.is_empty()
                && let Some(begun) = Begun::of(inbound.filled())
            {
                return Poll::Ready(Some(begun));
            }
            match transport.poll_recv(cx, inbound) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(None),
                Poll::Pending => break,
            }
        }
        inbound.park();
        if !rests {
            rests = true;
            activity.rest(timer.now());
        } else if activity.is_evicted() {
            return Poll::Ready(None);
        }
        timer.poll_until(cx, deadline).map(|_| None)
    })
    .await;
    if rests {
        activity.resume();
    }
    begun
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http1_are_told_from_the_preface_by_their_first_octets() {
        for (received, expected) in [
            ("G", Some(Begun::Http1)),
            ("PO", Some(Begun::Http1)),
            ("PRO", Some(Begun::Http1)),
            ("\r\n", Some(Begun::Http1)),
            ("PRI * HTTP/1.1\r\n", Some(Begun::Http1)),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", Some(Begun::Http1)),
            ("P", None),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(Begun::Http2)),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0", Some(Begun::Http2)),
        ] {
            assert_eq!(Begun::of(received.as_bytes()), expected, "{received:?}");
        }
    }
}

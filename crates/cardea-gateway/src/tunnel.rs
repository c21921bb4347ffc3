//! Carries bytes both ways after a `101 Switching Protocols` (RFC 9110 §7.8).

use std::{
    io::IoSlice,
    task::{Context, Poll, ready},
    time::Duration,
};

use cardea_clock::Mono;

use crate::{buffer::Buffer, forward::Tunnel, timer::Timer, transport::Transport};

/// How long a tunnel may be silent in both directions. WebSocket peers ping more often than that.
const IDLE: Duration = Duration::from_secs(3_600);

/// One direction.
#[derive(Default)]
struct Way {
    ended: bool,
    shut: bool,
    bytes: u64,
}

/// Runs until both sides have ended, one fails, nothing moves for an hour, or `end`. Gives the count of octets to the
/// client.
pub(crate) async fn run(
    client: &mut Transport,
    from_client: &mut Buffer,
    mut preface: Vec<u8>,
    upstream: Tunnel,
    end: Mono,
    timer: &mut Timer,
) -> u64 {
    let Tunnel { transport: mut service, received: mut from_service, lease } = upstream;
    let (mut up, mut down) = (Way::default(), Way::default());
    let mut moved = u64::MAX;
    let mut deadline = timer.now();
    std::future::poll_fn(|cx| {
        while !preface.is_empty() {
            match ready!(client.poll_send(cx, &[IoSlice::new(&preface)])) {
                Ok(sent) => drop(preface.drain(..sent.min(preface.len()))),
                Err(_) => return Poll::Ready(()),
            }
        }
        let upward = up.poll(cx, client, from_client, &mut service);
        let downward = down.poll(cx, &mut service, &mut from_service, client);
        match (upward, downward) {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(()),
            (Poll::Ready(Err(())), _) | (_, Poll::Ready(Err(()))) => return Poll::Ready(()),
            _ => {}
        }
        if up.bytes + down.bytes != moved {
            moved = up.bytes + down.bytes;
            deadline = timer.now().saturating_add(IDLE).min(end);
        }
        timer.poll_until(cx, deadline).map(drop)
    })
    .await;
    drop(lease);
    down.bytes
}

impl Way {
    /// Ready when this direction has come to its end and the receiver was told.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Transport,
        buffer: &mut Buffer,
        to: &mut Transport,
    ) -> Poll<Result<(), ()>> {
        loop {
            while !buffer.is_empty() {
                let sent = ready!(to.poll_send(cx, &[IoSlice::new(buffer.filled())])).map_err(drop)?;
                buffer.consume(sent);
                self.bytes += sent as u64;
            }
            if self.shut {
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                ready!(to.poll_shutdown(cx)).map_err(drop)?;
                self.shut = true;
                return Poll::Ready(Ok(()));
            }
            match from.poll_recv(cx, buffer) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(())),
                Poll::Pending => {
                    buffer.release();
                    ready!(to.poll_flush(cx)).map_err(drop)?;
                    return Poll::Pending;
                }
            }
        }
    }
}

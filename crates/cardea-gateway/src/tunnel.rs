//! Carries bytes both ways after a `101 Switching Protocols` (RFC 9110 §7.8) or an extended CONNECT (RFC 8441), which only a
//! WebSocket is given.

use std::{
    io::{self, IoSlice},
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    buffer::Buffer,
    exchange::Exchange,
    memory::Room,
    streams::StreamWatch,
    termination::TerminationReason,
    timer::Timer,
    transport::Transport,
    upstream::Tunnel,
    websocket::{Frames, close_frame},
};

/// How long a tunnel may be silent in both directions. WebSocket peers ping more often than that.
const IDLE: Duration = Duration::from_secs(3_600);

/// How long the rest of a frame is waited for before a close frame of ours, and the client to take it.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// An end of a tunnel: a connection, or a stream on one.
pub(crate) trait End {
    /// See [`Transport::poll_recv`].
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>>;

    /// Sends as much of `bytes` as the peer takes now; ready with that count.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// See [`Transport::poll_flush`].
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Says that nothing more will be sent.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl End for Transport {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        Self::poll_recv(self, cx, buffer)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_send(self, cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self, cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_shutdown(self, cx)
    }
}

/// How a tunnel ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried {
    /// Octets to the client.
    pub(crate) bytes: u64,
    /// Why we ended it, if we did.
    pub(crate) end: Option<TerminationReason>,
    /// The client has part of a frame: it must not take what it got for the whole.
    pub(crate) torn: bool,
}

/// One direction.
#[derive(Default)]
struct Way {
    ended: bool,
    shut: bool,
    bytes: u64,
    frames: Frames,
    room: Room,
}

/// Runs until both sides have ended, one fails, nothing moves for an hour, or the client's right ends: then it is told
/// by a close frame between two of the service's.
pub(crate) async fn run(
    client: &mut impl End,
    from_client: &mut Buffer,
    mut preface: Vec<u8>,
    upstream: Tunnel,
    exchange: &Exchange,
    mut watch: StreamWatch<'_>,
    timer: &mut Timer,
) -> Carried {
    let Tunnel { transport: mut service, received: mut from_service, counted } = upstream;
    let (mut up, mut down) = (Way::default(), Way::default());
    let mut moved = u64::MAX;
    let mut deadline = timer.now().saturating_add(IDLE);
    let end = std::future::poll_fn(|cx| {
        if let Poll::Ready(end) = watch.poll(cx, exchange) {
            return Poll::Ready(Some(end));
        }
        while !preface.is_empty() {
            match client.poll_send(cx, &preface) {
                Poll::Ready(Ok(sent)) => drop(preface.drain(..sent.min(preface.len()))),
                Poll::Ready(Err(_)) => return Poll::Ready(None),
                Poll::Pending => return timer.poll_until(cx, deadline).map(|_| None),
            }
        }
        let upward = up.poll(cx, client, from_client, &mut service);
        let downward = down.poll(cx, &mut service, &mut from_service, client);
        match (upward, downward) {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(None),
            (Poll::Ready(Err(())), _) | (_, Poll::Ready(Err(()))) => return Poll::Ready(None),
            _ => {}
        }
        let has_moved = up.bytes + down.bytes != moved;
        if has_moved {
            moved = up.bytes + down.bytes;
            deadline = timer.now().saturating_add(IDLE);
        }
        let waits = !from_client.is_empty() || !from_service.is_empty();
        watch.note(preface.capacity(), waits, has_moved, timer.now());
        timer.poll_until(cx, deadline).map(|_| None)
    })
    .await;
    let mut torn = !preface.is_empty();
    if let Some(end) = end {
        let until = timer.now().saturating_add(CLOSE_WAIT);
        let mut goodbye = Goodbye::new(end, None);
        let tell = std::future::poll_fn(|cx| {
            ready!(down.poll_finish(cx, &mut service, &mut from_service, client))?;
            goodbye.poll(cx, &down, client)
        });
        torn = torn || !matches!(timer.until(until, tell).await, Ok(Ok(())));
        if up.frames.is_at_boundary() {
            let mask = exchange.id.to_ascii().last_chunk().copied();
            let mut goodbye = Goodbye::new(end, mask);
            let tell = std::future::poll_fn(|cx| goodbye.poll(cx, &up, &mut service));
            // Whether it is told or not, its connection ends now.
            let _ = timer.until(until, tell).await;
        }
    }
    drop(counted);
    Carried { bytes: down.bytes, end, torn }
}

impl Way {
    /// Ready when this direction has come to its end and the receiver was told.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl End,
        buffer: &mut Buffer,
        to: &mut impl End,
    ) -> Poll<Result<(), ()>> {
        loop {
            while !buffer.is_empty() {
                ready!(self.poll_pass(cx, buffer, usize::MAX, to))?;
            }
            if self.shut {
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                ready!(to.poll_shutdown(cx)).map_err(drop)?;
                self.shut = true;
                return Poll::Ready(Ok(()));
            }
            let received = match buffer.poll_room(cx, &mut self.room) {
                Poll::Ready(()) => from.poll_recv(cx, buffer),
                Poll::Pending => Poll::Pending,
            };
            match received {
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

    /// Ready when the frame that was begun has come to its end.
    fn poll_finish(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl End,
        buffer: &mut Buffer,
        to: &mut impl End,
    ) -> Poll<Result<(), ()>> {
        while !self.frames.is_at_boundary() {
            if buffer.is_empty() && !matches!(ready!(from.poll_recv(cx, buffer)), Ok(1..)) {
                return Poll::Ready(Err(()));
            }
            let rest = self.frames.rest_of_frame(buffer.filled());
            ready!(self.poll_pass(cx, buffer, rest, to))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends some of what is in `buffer`, at most its first `limit` octets.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
        limit: usize,
        to: &mut impl End,
    ) -> Poll<Result<(), ()>> {
        let bytes = buffer.filled();
        let bytes = bytes.get(..limit.min(bytes.len())).unwrap_or_default();
        let sent = ready!(to.poll_send(cx, bytes)).map_err(drop)?;
        self.frames.advance(bytes.get(..sent).unwrap_or_default());
        buffer.consume(sent);
        self.bytes += sent as u64;
        Poll::Ready(Ok(()))
    }
}

/// The last frame in one direction.
struct Goodbye {
    frame: Vec<u8>,
    sent: usize,
}

impl Goodbye {
    fn new(end: TerminationReason, mask: Option<[u8; 4]>) -> Self {
        Self { frame: close_frame(end.close_code(), end.text(), mask), sent: 0 }
    }

    /// Ready once the receiver has it, or another one.
    fn poll(&mut self, cx: &mut Context<'_>, way: &Way, to: &mut impl End) -> Poll<Result<(), ()>> {
        if way.shut {
            return Poll::Ready(Ok(()));
        }
        let frame = if way.frames.is_closed() { &[] } else { self.frame.as_slice() };
        while let Some(left) = frame.get(self.sent..).filter(|left| !left.is_empty()) {
            self.sent += ready!(to.poll_send(cx, left)).map_err(drop)?;
        }
        to.poll_flush(cx).map_err(drop)
    }
}

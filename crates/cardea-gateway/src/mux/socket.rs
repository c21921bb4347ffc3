//! Moves bytes between the socket of a connection and its codec.

use std::{
    io::{self, IoSlice},
    task::{Context, Poll},
};

use cardea_http::h2::ConnectionError;

use super::state::{Side, State};
use crate::{buffer::Buffer, transport::Transport};

/// So often is received before others have their turn. A peer that sends without a pause must not keep a worker busy.
const RECEIVES_AT_ONCE: usize = 4;

/// How receiving came to an end for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// The task is woken when there is more.
    Waiting,
    /// The peer has closed the connection.
    Ended,
    /// The peer broke the protocol.
    Failed(ConnectionError),
}

/// Receives what there is, as far as it is good for others. `handle` takes from the buffer what it can use.
pub(crate) fn receive(
    cx: &mut Context<'_>,
    transport: &mut Transport,
    inbound: &mut Buffer,
    mut handle: impl FnMut(&mut Buffer) -> Result<(), ConnectionError>,
) -> Received {
    for _ in 0..RECEIVES_AT_ONCE {
        match transport.poll_recv(cx, inbound) {
            Poll::Ready(Ok(count)) if count > 0 => {}
            Poll::Ready(_) => return Received::Ended,
            Poll::Pending => {
                inbound.park();
                return Received::Waiting;
            }
        }
        if let Err(error) = handle(inbound) {
            return Received::Failed(error);
        }
    }
    // There may be more, for which this task has its turn behind others.
    cx.waker().wake_by_ref();
    Received::Waiting
}

/// Sends what the codec has, as far as the peer takes it, and says how many bytes that were. Ready once all is sent.
pub(crate) fn poll_send<S: Side>(
    cx: &mut Context<'_>,
    transport: &mut Transport,
    state: &mut State<S>,
) -> (usize, Poll<io::Result<()>>) {
    let mut sent_bytes = 0;
    loop {
        let output = state.codec.output();
        if output.is_empty() {
            return (sent_bytes, transport.poll_flush(cx));
        }
        match transport.poll_send(cx, &[IoSlice::new(output)]) {
            Poll::Ready(Ok(sent)) => {
                state.codec.sent(sent);
                sent_bytes += sent;
                state.grant();
            }
            Poll::Ready(Err(error)) => return (sent_bytes, Poll::Ready(Err(error))),
            Poll::Pending => return (sent_bytes, Poll::Pending),
        }
    }
}

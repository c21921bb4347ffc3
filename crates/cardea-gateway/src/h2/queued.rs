//! Heads and trailers that the codec has and may not have written: counted, though the codec owns them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use cardea_http::Fields;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{memory, transport::Transport};

/// What the codec has of each field beside the octets of its name and value, at most.
const FIELD_OVERHEAD_BYTES: usize = 128;

/// What the codec of one connection has been given of heads since all was written.
///
/// The codec does not tell when it has written a head. But whenever it is polled it writes all heads that it has, unless
/// the client takes no more.
#[derive(Debug, Default)]
pub(super) struct QueuedHeads {
    /// Counted, in bytes.
    bytes: AtomicUsize,
    /// The client took no more when it was last written to.
    is_blocked: AtomicBool,
}

impl QueuedHeads {
    /// Counts fields that the codec was given.
    pub(super) fn add(&self, fields: &Fields) {
        let bytes = fields.byte_len() + fields.len() * FIELD_OVERHEAD_BYTES;
        memory::add(bytes);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// To be called when the codec was polled.
    pub(super) fn settle(&self) {
        if !self.is_blocked.load(Relaxed) && self.bytes.load(Relaxed) > 0 {
            memory::sub(self.bytes.swap(0, Relaxed));
        }
    }
}

impl Drop for QueuedHeads {
    fn drop(&mut self) {
        memory::sub(*self.bytes.get_mut());
    }
}

/// A client's transport for the codec: notes whether the client takes what is written.
pub(super) struct NotingTransport {
    transport: Transport,
    heads: Arc<QueuedHeads>,
}

impl NotingTransport {
    pub(super) const fn new(transport: Transport, heads: Arc<QueuedHeads>) -> Self {
        Self { transport, heads }
    }

    fn note<T>(&mut self, done: impl FnOnce(Pin<&mut Transport>) -> Poll<T>) -> Poll<T> {
        let done = done(Pin::new(&mut self.transport));
        self.heads.is_blocked.store(done.is_pending(), Relaxed);
        done
    }
}

impl AsyncRead for NotingTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_read(cx, space)
    }
}

impl AsyncWrite for NotingTransport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().note(|transport| transport.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().note(|transport| transport.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().note(|transport| AsyncWrite::poll_flush(transport, cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().note(|transport| AsyncWrite::poll_shutdown(transport, cx))
    }
}

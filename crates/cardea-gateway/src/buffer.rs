//! Receive buffers, pooled per thread: an idle connection owns none.

use std::{
    cell::RefCell,
    task::{Context, Poll},
    thread::LocalKey,
};

use crate::{
    memory::{self, Room},
    pool::Pool,
};

/// The size of a pooled buffer in bytes: a head and two TLS records' worth of data (16 KiB each) in one `recv`.
///
/// Half of a processor's first-level cache, and a little more for the head: clients send powers of two, and the
/// hundred octets by which a head pushes the end of a body over the edge cost a `recv` and a `send` of their own (17 %
/// of the kernel's instructions for 64 KiB).
pub(crate) const BUFFER_BYTES: usize = (32 + 4) * 1024;

/// What is kept in memory of its own size while more is awaited; above it there is little to save.
const PARKED_BYTES_MAX: usize = BUFFER_BYTES / 2;

/// What a thread keeps of them, in bytes. A request that waits holds none, so few are out at a time.
const POOLED_BYTES_MAX: usize = 64 * BUFFER_BYTES;

/// Room for the head of a message to send, in bytes; more is allocated where it is needed.
const OUTBOUND_BYTES: usize = 2 * 1024;

/// What a thread keeps of those, in bytes. A request holds one until its head is sent, so few are out at a time.
const OUTBOUND_POOLED_BYTES_MAX: usize = 64 * OUTBOUND_BYTES;

thread_local! {
    static POOL: RefCell<Pool<Vec<u8>>> = const { RefCell::new(Pool::new(POOLED_BYTES_MAX)) };
    static OUTBOUND: RefCell<Pool<Vec<u8>>> = const { RefCell::new(Pool::new(OUTBOUND_POOLED_BYTES_MAX)) };
}

/// An empty vector to write a message into, with memory from the pool.
pub(crate) fn take_outbound() -> Vec<u8> {
    OUTBOUND.with_borrow_mut(Pool::take).unwrap_or_else(|| Vec::with_capacity(OUTBOUND_BYTES))
}

/// Gives such a vector back.
pub(crate) fn recycle_outbound(mut memory: Vec<u8>) {
    if memory.capacity() >= OUTBOUND_BYTES {
        memory.clear();
        keep(&OUTBOUND, memory);
    }
}

/// What is written of a message and not sent yet.
#[derive(Default)]
pub(crate) struct Outbound {
    memory: Vec<u8>,
    sent: usize,
}

impl Outbound {
    /// What `memory` holds is to be sent.
    pub(crate) const fn new(memory: Vec<u8>) -> Self {
        Self { memory, sent: 0 }
    }

    /// What is to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.memory.get(self.sent..).unwrap_or_default()
    }

    /// Whether all is sent.
    pub(crate) const fn is_empty(&self) -> bool {
        self.sent == self.memory.len()
    }

    /// Where to append more. What was sent goes first: a peer that takes part of what there is each time would else
    /// have us keep all of a message that never ends.
    pub(crate) fn more(&mut self) -> &mut Vec<u8> {
        if self.sent > 0 {
            self.memory.drain(..self.sent.min(self.memory.len()));
            self.sent = 0;
        }
        &mut self.memory
    }

    /// Notes that the first `count` unsent bytes were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count);
        if self.sent >= self.memory.len() {
            self.clear();
        }
    }

    /// Gives up what is not sent.
    pub(crate) fn clear(&mut self) {
        self.memory.clear();
        self.sent = 0;
    }

    /// How much memory it holds, in bytes.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.memory.capacity()
    }

    /// The memory, for something else.
    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.memory
    }
}

/// Bytes that were received and not consumed yet.
///
/// Owns no memory until something is received. Gives its memory back to the pool when it is dropped or
/// [released](Buffer::release).
#[derive(Default)]
pub(crate) struct Buffer {
    /// Initialised from end to end; its length is the capacity of the buffer.
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// An empty buffer without memory.
    pub(crate) const fn new() -> Self {
        Self { memory: Vec::new(), start: 0, end: 0 }
    }

    /// What was received and not consumed.
    pub(crate) fn filled(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or_default()
    }

    /// How much was received and not consumed, in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is left to consume.
    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether [`Buffer::space`] would be empty: consume something, or [`Buffer::grow`].
    pub(crate) const fn is_full(&self) -> bool {
        self.end - self.start == self.memory.len() && self.memory.len() >= BUFFER_BYTES
    }

    /// Ready if it may receive more: into memory that it has, or into more. `room` is the reader's.
    pub(crate) fn poll_room(&self, cx: &Context<'_>, room: &mut Room) -> Poll<()> {
        if self.memory.len() >= BUFFER_BYTES && !self.is_full() {
            *room = Room::new();
            return Poll::Ready(());
        }
        room.poll(cx)
    }

    /// Where to receive into; takes memory from the pool where there is none yet.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.memory.len() < BUFFER_BYTES {
            self.take_memory();
        }
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.memory.get_mut(self.end..).unwrap_or_default()
    }

    /// Notes that `count` bytes were received into [`Buffer::space`].
    pub(crate) fn received(&mut self, count: usize) {
        self.end = (self.end + count).min(self.memory.len());
    }

    /// Discards the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }

    /// Makes room for a message of up to `bytes` bytes, for heads that are larger than a pooled buffer.
    pub(crate) fn grow(&mut self, bytes: usize) {
        if bytes > self.memory.len() {
            memory::add(bytes - self.memory.len());
            self.memory.resize(bytes, 0);
        }
    }

    /// Memory from the pool, with what is left to consume in it.
    fn take_memory(&mut self) {
        let parked = std::mem::replace(
            &mut self.memory,
            POOL.with_borrow_mut(Pool::take).unwrap_or_else(|| vec![0; BUFFER_BYTES]),
        );
        memory::add(BUFFER_BYTES);
        if !parked.is_empty() {
            let left = parked.get(self.start..self.end).unwrap_or_default();
            // There is room: a parked buffer is smaller than one of the pool.
            if let Some(space) = self.memory.get_mut(..left.len()) {
                space.copy_from_slice(left);
            }
            self.end -= self.start;
            self.start = 0;
            memory::sub(parked.len());
        }
    }

    /// Keeps what is left to consume in memory of its size, for as long as nothing more comes, and gives the rest back.
    pub(crate) fn park(&mut self) {
        let left = self.len();
        if left == 0 {
            return self.release();
        }
        if left <= PARKED_BYTES_MAX && self.memory.len() >= BUFFER_BYTES {
            memory::add(left);
            let parked = self.filled().to_vec();
            let memory = std::mem::replace(&mut self.memory, parked);
            (self.start, self.end) = (0, left);
            recycle(memory);
        }
    }

    /// Gives the memory back if nothing is left to consume.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            let memory = std::mem::take(&mut self.memory);
            self.start = 0;
            self.end = 0;
            recycle(memory);
        }
    }
}

fn recycle(memory: Vec<u8>) {
    if memory.is_empty() {
        return;
    }
    memory::sub(memory.len());
    if memory.len() == BUFFER_BYTES {
        keep(&POOL, memory);
    }
}

fn keep(pool: &'static LocalKey<RefCell<Pool<Vec<u8>>>>, memory: Vec<u8>) {
    let bytes = memory.capacity();
    // At the end of a thread its pool may be gone already.
    let _ = pool.try_with(|pool| pool.borrow_mut().put(memory, bytes));
}

impl Drop for Buffer {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.memory));
    }
}

impl std::fmt::Debug for Buffer {
    /// Shows how much there is, never what: it may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Outbound {
    /// As that of [`Buffer`].
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbound").field("len", &self.unsent().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_received_is_consumed_in_order_across_compaction() {
        let mut buffer = Buffer::new();
        assert!(buffer.is_empty() && !buffer.is_full());
        let space = buffer.space();
        assert_eq!(space.len(), BUFFER_BYTES);
        space.fill(7);
        buffer.received(BUFFER_BYTES);
        assert!(buffer.is_full());
        buffer.consume(BUFFER_BYTES - 2);
        assert_eq!(buffer.filled(), [7, 7]);
        assert_eq!(buffer.space().len(), BUFFER_BYTES - 2, "what is left has moved to the front");
        assert_eq!(buffer.filled(), [7, 7]);
        buffer.consume(1);
        buffer.consume(usize::MAX);
        assert!(buffer.is_empty());
    }

    #[test]
    fn an_empty_buffer_gives_its_memory_back_and_a_filled_one_keeps_it() {
        let mut buffer = Buffer::new();
        buffer.space();
        buffer.received(1);
        buffer.release();
        assert_eq!(buffer.len(), 1);
        buffer.consume(1);
        buffer.release();
        assert_eq!(buffer.memory.capacity(), 0);
    }

    #[test]
    fn a_parked_buffer_holds_what_is_left_and_no_more() {
        let mut buffer = Buffer::new();
        buffer.space()[..5].copy_from_slice(b"abcde");
        buffer.received(5);
        buffer.consume(2);
        buffer.park();
        assert_eq!((buffer.filled(), buffer.memory.capacity()), (&b"cde"[..], 3));
        assert!(!buffer.is_full(), "there is room as soon as it is wanted");
        buffer.space()[..1].copy_from_slice(b"f");
        buffer.received(1);
        buffer.consume(1);
        assert_eq!((buffer.filled(), buffer.memory.len()), (&b"def"[..], BUFFER_BYTES));
        buffer.space();
        buffer.received(PARKED_BYTES_MAX);
        buffer.park();
        assert_eq!(buffer.memory.len(), BUFFER_BYTES, "it is more than half full");
        buffer.consume(usize::MAX);
        buffer.park();
        assert_eq!(buffer.memory.len(), 0);
    }

    #[test]
    fn what_was_sent_is_not_kept_however_little_a_peer_takes_at_a_time() {
        let mut outbound = Outbound::new(b"head".to_vec());
        let (mut written, mut sent) = (4, 0);
        for round in 0..10_000_usize {
            if outbound.unsent().len() < 100 {
                let part: Vec<u8> = (0..50).map(|at| (written + at) as u8).collect();
                outbound.more().extend_from_slice(&part);
                written += part.len();
            }
            let count = (7 + round % 40).min(outbound.unsent().len());
            let first = outbound.unsent()[0];
            assert!(sent < 4 || first == sent as u8, "in order");
            outbound.advance(count);
            sent += count;
            assert!(outbound.memory.len() <= 200, "{} bytes", outbound.memory.len());
        }
        assert_eq!(outbound.unsent().len(), written - sent);
        outbound.advance(usize::MAX);
        assert!(outbound.is_empty() && outbound.into_memory().is_empty());
    }

    #[test]
    fn a_grown_buffer_keeps_its_bytes_and_is_not_pooled() {
        let mut buffer = Buffer::new();
        buffer.space()[..3].copy_from_slice(b"abc");
        buffer.received(3);
        buffer.grow(BUFFER_BYTES * 2);
        assert_eq!(buffer.filled(), b"abc");
        assert_eq!(buffer.space().len(), BUFFER_BYTES * 2 - 3);
    }
}

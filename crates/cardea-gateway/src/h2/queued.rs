//! Heads and trailers that the codec has and has not written: bounded for each connection, and counted for as long as the
//! codec has them.
//!
//! The codec takes any number of heads, whether the client reads or not: no window holds them back (RFC 9113 §5.2.1). So a
//! stream asks for [`Room`] first, and waits its turn where there is none. The codec does not tell when it lets go of a head,
//! but it drops the values then: the room is given back by one of them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use cardea_http::Fields;
use http::HeaderValue;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Semaphore,
};

use crate::{
    downstream::Aborted,
    memory::{self, Account},
    transport::Transport,
};

/// So much of heads a connection may have in its codec, in bytes. Several of the largest that services send, and hundreds of
/// usual ones, so that a client that reads never waits for a turn of its driver; and little beside what the streams of a
/// connection may hold of bodies.
const QUEUED_BYTES_MAX: u32 = 256 * 1024;

/// What the codec has of each field beside the octets of its name and value, at most.
const FIELD_OVERHEAD_BYTES: usize = 128;

/// What the codec takes for `fields`, in bytes.
fn codec_bytes(fields: &Fields) -> usize {
    fields.byte_len() + fields.len() * FIELD_OVERHEAD_BYTES
}

/// The heads that the codec of one connection has.
#[derive(Debug)]
pub(super) struct QueuedHeads {
    /// What there is room for, in bytes. Those who wait get it in their order.
    room: Semaphore,
    /// The head that was encoded last, in bytes. It is counted until all is written.
    encoded: AtomicUsize,
    /// How many heads have left the queue. It moves on while the client reads, however slowly.
    passed: AtomicU64,
    /// The client took no more when it was last written to.
    is_blocked: AtomicBool,
    account: Arc<Account>,
}

impl QueuedHeads {
    pub(super) fn new(account: Arc<Account>) -> Arc<Self> {
        Arc::new(Self {
            room: Semaphore::new(QUEUED_BYTES_MAX as usize),
            encoded: AtomicUsize::new(0),
            passed: AtomicU64::new(0),
            is_blocked: AtomicBool::new(false),
            account,
        })
    }

    /// Room for `fields`, if there is some and nobody waits for it.
    pub(super) fn try_room(self: &Arc<Self>, fields: &Fields) -> Option<Room> {
        let bytes = codec_bytes(fields);
        let permits = permits(bytes);
        self.room.try_acquire_many(permits).ok()?.forget();
        Some(Room { heads: Arc::clone(self), bytes, permits })
    }

    /// Whether a usual head gets room at once.
    pub(super) fn has_room(&self) -> bool {
        self.room.available_permits() >= QUEUED_BYTES_MAX as usize / 2
    }

    /// How many heads have left the queue.
    pub(super) fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }

    /// To be called when the codec was polled.
    pub(super) fn settle(&self) {
        if !self.is_blocked.load(Relaxed) && self.encoded.load(Relaxed) > 0 {
            memory::sub_queued(self.encoded.swap(0, Relaxed));
        }
    }

    /// To be called when the codec is gone: nobody gets room any more.
    pub(super) fn close(&self) {
        self.room.close();
    }

    /// Notes that the codec has encoded, or dropped, a head of so many bytes that are counted. It encodes one only once the
    /// one before is with the transport, or in its buffer.
    fn encoded(&self, bytes: usize) {
        self.passed.fetch_add(1, Relaxed);
        let before = self.encoded.swap(bytes, Relaxed);
        if before > 0 {
            memory::sub_queued(before);
        }
    }
}

impl Drop for QueuedHeads {
    fn drop(&mut self) {
        memory::sub_queued(*self.encoded.get_mut());
    }
}

/// A head that is larger than all the room there is takes all of it.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).min(QUEUED_BYTES_MAX)
}

/// Room for one head, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    heads: Arc<QueuedHeads>,
    bytes: usize,
    permits: u32,
}

impl Room {
    /// `value` as one of the values of the head that the room is for: what the codec has of the head is counted, and the room
    /// is taken, for as long as it has this.
    ///
    /// Marked as never to be indexed (RFC 7541 §7.1.3): the encoder's table would keep it long after the head.
    pub(super) fn carried_by(self, value: &[u8]) -> Option<HeaderValue> {
        memory::add_queued(self.bytes);
        let carrier = Carrier { value: value.into(), room: self };
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(carrier)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.heads.room.add_permits(self.permits as usize);
    }
}

/// A value of a head that the codec has.
struct Carrier {
    value: Box<[u8]>,
    room: Room,
}

impl AsRef<[u8]> for Carrier {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.room.heads.encoded(self.room.bytes);
    }
}

/// One stream's way to room for its next head.
#[derive(Default)]
pub(super) struct RoomRequest {
    room: Option<Room>,
    waiting: Option<Waiting>,
}

/// A place among those who wait.
struct Waiting {
    turn: Pin<Box<dyn Future<Output = Option<Room>> + Send>>,
    account: Arc<Account>,
}

impl Waiting {
    fn begin(heads: &Arc<QueuedHeads>, bytes: usize) -> Self {
        let account = Arc::clone(&heads.account);
        account.begin_wait();
        let (heads, permits) = (Arc::clone(heads), permits(bytes));
        let turn = Box::pin(async move {
            heads.room.acquire_many(permits).await.ok()?.forget();
            Some(Room { heads, bytes, permits })
        });
        Self { turn, account }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.account.end_wait();
    }
}

impl RoomRequest {
    /// Ready once there is room for a head of `fields`, which the next [`take`](Self::take) then takes.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        heads: &Arc<QueuedHeads>,
        fields: &Fields,
    ) -> Poll<Result<(), Aborted>> {
        if self.room.is_some() {
            return Poll::Ready(Ok(()));
        }
        if self.waiting.is_none() {
            self.room = heads.try_room(fields);
            if self.room.is_some() {
                return Poll::Ready(Ok(()));
            }
        }
        let waiting = self.waiting.get_or_insert_with(|| Waiting::begin(heads, codec_bytes(fields)));
        self.room = ready!(waiting.turn.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(if self.room.is_some() { Ok(()) } else { Err(Aborted) })
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) const fn take(&mut self) -> Option<Room> {
        self.room.take()
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

/// The codec lives as long as its transport.
impl Drop for NotingTransport {
    fn drop(&mut self) {
        self.heads.close();
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

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Waker};

    use cardea_http::{Known, ResponseHead};

    use super::{super::head, *};
    use crate::memory::charged;

    /// Fields that take a third of the room and a little more.
    fn large() -> Fields {
        let mut fields = Fields::default();
        let value = vec![b'v'; 9_000];
        for number in 0..10 {
            fields.append(format!("x-{number}").as_bytes(), &value).unwrap();
        }
        fields
    }

    fn poll(
        request: &mut RoomRequest,
        heads: &Arc<QueuedHeads>,
        fields: &Fields,
    ) -> Poll<Result<(), Aborted>> {
        request.poll(&mut Context::from_waker(Waker::noop()), heads, fields)
    }

    #[test]
    fn those_who_wait_get_room_in_their_order_and_nobody_passes_them() {
        let account = Arc::<Account>::default();
        let heads = QueuedHeads::new(Arc::clone(&account));
        let fields = large();
        let first = heads.try_room(&fields).unwrap();
        let second = heads.try_room(&fields).unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| RoomRequest::default()).collect();
        for request in &mut waiting {
            assert!(poll(request, &heads, &fields).is_pending() && request.is_waiting());
        }
        // There is room for it, but it would be before its turn.
        let mut small = Fields::default();
        small.append(b"x", b"y").unwrap();
        assert!(heads.try_room(&small).is_none());
        drop(first);
        assert!(poll(&mut waiting[1], &heads, &fields).is_pending());
        assert_eq!(poll(&mut waiting[0], &heads, &fields), Poll::Ready(Ok(())));
        assert!(!waiting[0].is_waiting());
        // One that is given up loses its place to the next.
        waiting.remove(1);
        drop(second);
        assert_eq!(poll(&mut waiting[1], &heads, &fields), Poll::Ready(Ok(())));
        drop(waiting);
        assert_eq!(heads.room.available_permits(), QUEUED_BYTES_MAX as usize, "all is given back");
        // The control.
        assert!(heads.try_room(&small).is_some());
    }

    #[test]
    fn a_head_that_is_larger_than_the_room_gets_all_of_it() {
        let heads = QueuedHeads::new(Arc::default());
        let mut fields = Fields::default();
        let value = vec![b'v'; 60_000];
        for number in 0..6 {
            fields.append(format!("x-{number}").as_bytes(), &value).unwrap();
        }
        let room = heads.try_room(&fields).unwrap();
        assert_eq!((room.bytes > QUEUED_BYTES_MAX as usize, heads.room.available_permits()), (true, 0));
        drop(room);
        assert!(heads.try_room(&fields).is_some());
    }

    #[test]
    fn nobody_waits_for_a_codec_that_is_gone() {
        let heads = QueuedHeads::new(Arc::default());
        let fields = large();
        let taken: Vec<_> = (0..2).map(|_| heads.try_room(&fields).unwrap()).collect();
        let mut waiting = RoomRequest::default();
        assert!(poll(&mut waiting, &heads, &fields).is_pending());
        heads.close();
        assert_eq!(poll(&mut waiting, &heads, &fields), Poll::Ready(Err(Aborted)));
        assert_eq!(poll(&mut RoomRequest::default(), &heads, &fields), Poll::Ready(Err(Aborted)));
        drop(taken);
    }

    /// Carries `count` small responses over a connection whose client reads, and looks at what is counted while it goes on.
    #[tokio::test]
    async fn what_is_written_is_not_counted_whatever_the_encoder_keeps() {
        let account = Arc::<Account>::default();
        let heads = QueuedHeads::new(Arc::clone(&account));
        let (client, server) = tokio::io::duplex(1 << 20);
        let carried = charged(Arc::clone(&account), async {
            let mut server = h2::server::handshake(server).await.unwrap();
            let mut number = 0;
            while let Some(Ok((_, mut respond))) = server.accept().await {
                let mut head = ResponseHead::new(200);
                // The table takes all values that may be indexed: each response has its own.
                for field in ["x-a", "x-b"] {
                    head.fields.append(field.as_bytes(), format!("{field}-{number}").as_bytes()).unwrap();
                }
                if number % 2 == 0 {
                    head.fields.append_known(Known::Date, b"Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
                }
                let room = heads.try_room(&head.fields).unwrap();
                respond.send_response(head::write(&head, Some(room)).unwrap(), true).unwrap();
                assert!(account.held() > 0, "the control: it waits in the codec");
                number += 1;
            }
        });
        let asked = async {
            let (mut send, connection) = h2::client::handshake(client).await.unwrap();
            let connection = tokio::spawn(connection);
            for number in 0..200 {
                let request = http::Request::get("https://a.example/").body(()).unwrap();
                let response = send.send_request(request, true).unwrap().0.await.unwrap();
                let expected = format!("x-b-{number}");
                assert_eq!(response.headers()["x-b"].as_bytes(), expected.as_bytes());
                send = send.ready().await.unwrap();
            }
            // What the encoder has kept is no head that waits.
            assert_eq!(heads.room.available_permits(), QUEUED_BYTES_MAX as usize);
            assert_eq!(heads.passed(), 200);
            charged(Arc::clone(&account), async { heads.settle() }).await;
            assert_eq!(account.held(), 0);
            drop(send);
            let _ = connection.await;
        };
        let mut carried = pin!(carried);
        tokio::select! {
            biased;
            () = asked => {}
            _ = &mut carried => {}
        }
    }
}

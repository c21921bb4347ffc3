//! A refusal that is held, and one that is dripped.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_guard::{HeldPlace, Released};
use cardea_http::{Method, Version};

use super::GatewayTarpit;
use crate::{
    downstream::Downstream,
    exchange::{ConnectionFacts, Exchange},
    response::Response,
};

/// So much is read and thrown away of what a client sends while it is held, in bytes. Beyond it nothing is read, and the
/// client's end is not seen.
const DISCARD_BYTES_MAX: usize = 64 * 1024;

/// How often an octet is dripped.
const DRIP_EVERY: Duration = Duration::from_secs(1);

/// A place in the tarpit with what counts it.
#[derive(Debug)]
pub(super) struct Hold {
    tarpit: Arc<GatewayTarpit>,
    place: HeldPlace,
    connection: Arc<ConnectionFacts>,
    /// How it has ended; by the client while `None`.
    released: Option<Released>,
}

impl Hold {
    pub(super) fn new(
        tarpit: Arc<GatewayTarpit>,
        place: HeldPlace,
        connection: Arc<ConnectionFacts>,
    ) -> Self {
        Self { tarpit, place, connection, released: None }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Released> {
        let polled = self.place.poll(cx.waker());
        if let Poll::Ready(released) = polled {
            self.released = Some(released);
        }
        polled
    }

    /// Goes on until then.
    fn again(&mut self, until: Mono, now: Mono) {
        self.released = None;
        self.place.hold_again(until, now);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.connection.activity.held_one_less();
        let held_for = self.place.held_for(self.tarpit.clock.precise_mono());
        self.tarpit.metrics.ended(self.released, held_for);
    }
}

/// A refusal that is held, with what it takes to send it.
#[derive(Debug)]
pub(crate) struct HeldRefusal {
    hold: Hold,
    response: Response,
    method: Method,
    version: Version,
}

impl HeldRefusal {
    pub(super) fn new(hold: Hold, response: Response, exchange: &Exchange) -> Self {
        let (method, version) = (exchange.head.method, exchange.head.version);
        Self { hold, response, method, version }
    }

    /// Waits until the refusal is to be sent, in an exchange that knows no more than is needed for it. `None` if it is not to
    /// be sent: the client has left, or had to make room.
    pub(crate) async fn wait(self, client: &mut dyn Downstream) -> Option<(Response, Box<Exchange>)> {
        let Self { mut hold, response, method, version } = self;
        let mut room = DISCARD_BYTES_MAX;
        let released = poll_fn(|cx| match hold.poll(cx) {
            Poll::Ready(released) => Poll::Ready(Some(released)),
            Poll::Pending if room == 0 => Poll::Pending,
            Poll::Pending => client.poll_left(cx, &mut room).map(|_| None),
        })
        .await;
        if matches!(released, None | Some(Released::Evicted)) {
            return None;
        }
        let mut exchange = Exchange::take();
        exchange.connection = Some(Arc::clone(&hold.connection));
        exchange.head.method = method;
        exchange.head.version = version;
        Some((response, exchange))
    }
}

/// The body of a refusal that is sent an octet at a time; what is left when its time is over is sent then.
#[derive(Debug)]
pub(crate) struct Drip {
    hold: Hold,
    until: Mono,
    bytes: Arc<[u8]>,
    consumed: usize,
    /// How many octets may be sent so far.
    ready: usize,
}

impl Drip {
    /// To be held until [`first`](Self::first) to begin with.
    pub(super) fn new(hold: Hold, bytes: Arc<[u8]>, until: Mono) -> Self {
        Self { hold, until, bytes, consumed: 0, ready: 0 }
    }

    /// When the first octet is sent.
    pub(super) fn first(now: Mono, until: Mono) -> Mono {
        now.saturating_add(DRIP_EVERY).min(until)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Ready with `true` once there is more to send, with `false` at the end.
    pub(crate) fn poll_data(&mut self, cx: &Context<'_>) -> Poll<bool> {
        loop {
            if self.consumed < self.ready {
                return Poll::Ready(true);
            }
            if self.ready == self.bytes.len() {
                return Poll::Ready(false);
            }
            let released = ready!(self.hold.poll(cx));
            let now = self.hold.tarpit.clock.mono();
            if released == Released::Due && now < self.until {
                self.ready = (self.ready + 1).min(self.bytes.len() - 1);
                self.hold.again(Self::first(now, self.until), now);
            } else {
                self.ready = self.bytes.len();
            }
        }
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        self.bytes.get(self.consumed..self.ready).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.consumed = (self.consumed + count).min(self.ready);
    }
}

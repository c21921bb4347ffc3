//! One timer for all deadlines of a connection, re-armed as rarely as possible.
//!
//! Arming a timer of the runtime takes a lock and a place in its wheel. Nearly all deadlines move later with
//! every request and are never reached, so the timer is left standing: when it fires early, it is armed again for what is
//! the deadline by then. On a busy connection that is one operation in many seconds instead of several per request.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use cardea_clock::{Clock, Mono};
use tokio::time::{Instant, Sleep, sleep};

/// Deadlines closer than this to the coarse clock are re-checked after this time.
const GRAIN: Duration = Duration::from_millis(20);

/// The deadline was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// A timer that belongs to one task.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    sleep: Pin<Box<Sleep>>,
    armed_for: Mono,
}

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, sleep: Box::pin(sleep(Duration::ZERO)), armed_for: Mono::MAX }
    }

    /// The coarse time, for computing deadlines.
    pub(crate) fn now(&self) -> Mono {
        self.clock.mono()
    }

    /// The exact time, for durations that are reported.
    pub(crate) fn precise(&self) -> Mono {
        self.clock.precise_mono()
    }

    /// Ready once `deadline` is past; registers the task to be woken then.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Mono) -> Poll<Elapsed> {
        if deadline == Mono::MAX {
            return Poll::Pending;
        }
        if deadline < self.armed_for {
            self.arm(deadline);
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            if self.clock.mono() >= deadline {
                return Poll::Ready(Elapsed);
            }
            self.arm(deadline);
        }
        Poll::Pending
    }

    fn arm(&mut self, deadline: Mono) {
        let left = deadline.saturating_since(self.clock.mono()).max(GRAIN);
        self.armed_for = deadline;
        self.sleep.as_mut().reset(Instant::now() + left);
    }

    /// Runs `future` until it is done or `deadline` is past.
    pub(crate) async fn until<F: Future>(&mut self, deadline: Mono, future: F) -> Result<F::Output, Elapsed> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            self.poll_until(cx, deadline).map(Err)
        })
        .await
    }
}

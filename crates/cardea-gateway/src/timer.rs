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
use tokio::{
    task::coop::has_budget_remaining,
    time::{Instant, Sleep, sleep},
};

/// Deadlines closer than this to the coarse clock are re-checked after this time.
const GRAIN: Duration = Duration::from_millis(20);

/// The deadline was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// A timer that belongs to one task, and must stay with it: it is asked to wake that task once, not at each poll.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    sleep: Pin<Box<Sleep>>,
    armed_for: Mono,
    /// The task will be woken when the timer fires: there is no need to ask it before.
    registered: bool,
}

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, sleep: Box::pin(sleep(Duration::ZERO)), armed_for: Mono::MAX, registered: false }
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
            if self.clock.mono() >= deadline {
                return Poll::Ready(Elapsed);
            }
            self.arm(deadline);
        }
        if self.registered && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            // A task that has used up its budget is told to wait, but not registered: it is woken at once instead.
            let registers = has_budget_remaining();
            if self.sleep.as_mut().poll(cx).is_pending() {
                self.registered = registers;
                return Poll::Pending;
            }
            if self.clock.mono() >= deadline {
                return Poll::Ready(Elapsed);
            }
            self.arm(deadline);
        }
    }

    fn arm(&mut self, deadline: Mono) {
        let left = deadline.saturating_since(self.clock.mono()).max(GRAIN);
        self.armed_for = deadline;
        self.registered = false;
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

#[cfg(test)]
mod tests {
    use cardea_clock::CoarseClock;
    use tokio::task::coop::poll_proceed;

    use super::*;

    /// Waits for a deadline, having used up the task's budget at the first poll or not.
    async fn wait(spend: bool) {
        let clock = CoarseClock::start(Duration::from_millis(1)).unwrap();
        let mut timer = Timer::new(clock.clock());
        let deadline = timer.now().saturating_add(Duration::from_millis(30));
        let mut spend = spend;
        std::future::poll_fn(|cx| {
            while std::mem::take(&mut spend) && has_budget_remaining() {
                if let Poll::Ready(progress) = poll_proceed(cx) {
                    progress.made_progress();
                }
                spend = true;
            }
            timer.poll_until(cx, deadline)
        })
        .await;
        assert!(clock.clock().mono() >= deadline);
    }

    #[test]
    fn a_deadline_is_met_also_by_a_task_that_was_busy() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for spend in [false, true] {
            let waited = runtime.block_on(async {
                let task = tokio::spawn(wait(spend));
                tokio::time::timeout(Duration::from_secs(10), task).await
            });
            assert!(waited.is_ok_and(|ended| ended.is_ok()), "spent: {spend}");
        }
    }

    #[test]
    fn deadlines_move_both_ways() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let clock = CoarseClock::start(Duration::from_millis(1)).unwrap();
            let mut timer = Timer::new(clock.clock());
            let begun = timer.now();
            let mut polls = 0;
            let far = begun.saturating_add(Duration::from_secs(600));
            let near = begun.saturating_add(Duration::from_millis(60));
            std::future::poll_fn(|cx| {
                polls += 1;
                assert!(timer.poll_until(cx, far).is_pending());
                timer.poll_until(cx, near)
            })
            .await;
            assert!(clock.clock().mono() >= near && polls < 20, "{polls}");
            let later = near.saturating_add(Duration::from_millis(60));
            assert_eq!(timer.until(later, std::future::pending::<()>()).await, Err(Elapsed));
            assert!(clock.clock().mono() >= later);
        });
    }
}

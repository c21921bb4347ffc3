//! One timer for all deadlines of a connection, re-armed as rarely as possible.
//!
//! Arming a timer of the runtime takes a lock and a place in its wheel. Nearly all deadlines move later with
//! every request and are never reached, so the timer is left standing: when it fires early, it is armed again for what is
//! the deadline by then. On a busy connection that is one operation in many seconds instead of several per request.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use cardea_clock::{Clock, Mono};
use tokio::{
    task::coop::has_budget_remaining,
    time::{Instant, Sleep, sleep},
};

/// Deadlines closer than this to the coarse clock are re-checked after this time.
const GRAIN: Duration = Duration::from_millis(20);

/// A deadline that is noticed so much later was missed by the process as a whole: it was stopped, or had no processor.
const LATE: Duration = Duration::from_millis(500);

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
    /// Since a deadline was noticed late.
    catch_up: Option<CatchUp>,
}

/// Pending until the runtime has looked at its sockets again.
struct CatchUp(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CatchUp")
    }
}

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            sleep: Box::pin(sleep(Duration::ZERO)),
            armed_for: Mono::MAX,
            registered: false,
            catch_up: None,
        }
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
                return self.reach(cx, deadline);
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
                return self.reach(cx, deadline);
            }
            self.arm(deadline);
        }
    }

    /// Ready if a deadline that is past was noticed in time. Otherwise what was awaited may have arrived meanwhile, and the
    /// runtime does not know yet: the task is polled once more, after the runtime has looked.
    fn reach(&mut self, cx: &mut Context<'_>, deadline: Mono) -> Poll<Elapsed> {
        if self.clock.mono().saturating_since(deadline) < LATE {
            return Poll::Ready(Elapsed);
        }
        let catch_up = self.catch_up.get_or_insert_with(|| CatchUp(Box::pin(tokio::task::yield_now())));
        ready!(catch_up.0.as_mut().poll(cx));
        self.catch_up = None;
        Poll::Ready(Elapsed)
    }

    fn arm(&mut self, deadline: Mono) {
        let left = deadline.saturating_since(self.clock.mono()).max(GRAIN);
        self.armed_for = deadline;
        self.registered = false;
        self.catch_up = None;
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
    use std::io::Write;

    use cardea_clock::{CoarseClock, ManualClock, Wall};
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
    fn what_arrived_while_the_process_was_stopped_is_in_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (late, is_sent, in_time) in [(10, true, true), (10, false, false), (0, false, false)] {
            runtime.block_on(async {
                let manual = ManualClock::new(Wall::from_unix_seconds(1_900_000_000));
                let mut timer = Timer::new(manual.clock());
                let deadline = timer.now();
                let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
                far.set_nonblocking(true).unwrap();
                let far = tokio::net::UnixStream::from_std(far).unwrap();
                manual.advance(Duration::from_secs(late));
                if is_sent {
                    (&near).write_all(b"x").unwrap();
                }
                // The runtime has not looked at the socket yet.
                let read = timer.until(deadline, far.readable()).await;
                assert_eq!(read.is_ok(), in_time, "{late} s late, sent: {is_sent}");
            });
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

//! What a thread counts: for the connection whose task it polls, and for the process.

use std::{
    cell::Cell,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use super::{Account, Ending, GRAIN, publish};

/// The account that is charged, where there is one.
pub(crate) type Current = Option<Arc<Account>>;

thread_local! {
    static THREAD: Thread = const { Thread { account: Cell::new(None), unpublished: Cell::new(0) } };
}

/// Both in one place: each look at what belongs to a thread has its price.
struct Thread {
    /// The account of the connection whose task this thread is polling.
    account: Cell<Current>,
    /// What was counted and not published. Published when the thread ends.
    unpublished: Cell<isize>,
}

impl Thread {
    fn with_account(&self, charge: impl FnOnce(&Account)) {
        let account = self.account.take();
        if let Some(account) = &account {
            charge(account);
        }
        self.account.set(account);
    }

    fn count(&self, by: isize) {
        let sum = self.unpublished.get() + by;
        if sum.abs() < GRAIN.load(Relaxed) {
            self.unpublished.set(sum);
        } else {
            self.unpublished.set(0);
            publish(sum);
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        publish(self.unpublished.get());
    }
}

/// Counts `by` more bytes, or fewer.
pub(super) fn change(by: isize) {
    count(by, |account| account.change(by));
}

/// Counts `by` more bytes, or fewer, that the connection's codec has.
pub(super) fn change_queued(by: isize) {
    count(by, |account| account.change_queued(by));
}

fn count(by: isize, charge: impl FnOnce(&Account)) {
    let counted = THREAD.try_with(|thread| {
        thread.with_account(charge);
        thread.count(by);
    });
    if counted.is_err() {
        // At the end of a thread its count is gone.
        publish(by);
    }
}

/// Notes that `bytes` were passed on for the connection whose task is being polled, to its client or to a service.
pub(crate) fn passed_on(bytes: usize) {
    // At the end of a thread no task is polled.
    let _ = THREAD.try_with(|thread| thread.with_account(|account| account.passed_on(bytes)));
}

/// Whether the task that is being polled is one of a connection.
pub(super) fn is_charged() -> bool {
    let mut is_charged = false;
    // At the end of a thread no task is polled.
    let _ = THREAD.try_with(|thread| thread.with_account(|_| is_charged = true));
    is_charged
}

pin_project! {
    /// A task of a connection: what it makes the process hold is charged to the connection's account.
    pub(crate) struct Charged<F> {
        account: Current,
        #[pin]
        future: F,
    }
}

/// Charges to `account` what `future` makes the process hold while it is polled. Ready with `None` where the connection
/// has to end and `future` did not see to that itself.
pub(crate) fn charged<F: Future>(account: Arc<Account>, future: F) -> Charged<F> {
    Charged { account: Some(account), future }
}

impl<F: Future> Future for Charged<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let polled = {
            let _charging = Charging::begin(this.account);
            this.future.as_mut().poll(cx)
        };
        match polled {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending
                if this.account.as_ref().is_some_and(|account| account.ending() == Ending::Connection) =>
            {
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The account of the connection whose task is being polled.
pub(crate) fn account() -> Option<Arc<Account>> {
    THREAD.with(|thread| {
        let account = thread.account.take();
        thread.account.set(account.clone());
        account
    })
}

/// Charges to `account`, where there is one, what `change` makes the process hold, whatever task is being polled.
pub(crate) fn charge(account: &mut Current, change: impl FnOnce()) {
    let _charging = account.is_some().then(|| Charging::begin(account));
    change();
}

/// Puts an account in charge, and the one before it back, also where a poll panics.
struct Charging<'a> {
    own: &'a mut Current,
    before: Current,
}

impl<'a> Charging<'a> {
    fn begin(own: &'a mut Current) -> Self {
        let before = THREAD.with(|thread| thread.account.replace(own.take()));
        Self { own, before }
    }
}

impl Drop for Charging<'_> {
    fn drop(&mut self) {
        *self.own = THREAD.with(|thread| thread.account.replace(self.before.take()));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::{super::Held, *};

    fn held(bytes: usize) -> Held {
        let mut held = Held::default();
        held.set(bytes);
        held
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_task_charges_its_own_account_while_it_is_polled() {
        let (outer, inner) = (Arc::<Account>::default(), Arc::<Account>::default());
        let mut inner_task = Box::pin(charged(Arc::clone(&inner), async {
            let mut held = Held::default();
            held.set(5);
            std::future::pending::<()>().await;
            drop(held);
        }));
        let mut outer_task = Box::pin(charged(Arc::clone(&outer), async {
            let mut held = Held::default();
            held.set(7);
            assert!(poll(inner_task.as_mut()).is_pending());
            held.set(3);
            std::future::pending::<()>().await;
            drop(held);
        }));
        assert!(poll(outer_task.as_mut()).is_pending());
        assert_eq!((outer.held(), inner.held()), (3, 5));
        let mut nobodys = Held::default();
        nobodys.set(11);
        assert_eq!((outer.held(), inner.held()), (3, 5), "outside of any poll, nobody is charged");
        outer.end(Ending::Streams);
        assert!(poll(outer_task.as_mut()).is_pending());
        outer.end(Ending::Connection);
        assert_eq!(poll(outer_task.as_mut()), Poll::Ready(None));
    }

    #[test]
    fn a_panic_leaves_no_charge_on_other_accounts() {
        let account = Arc::<Account>::default();
        let mut task = Box::pin(charged(Arc::clone(&account), async {
            std::panic::resume_unwind(Box::new("on purpose"))
        }));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll(task.as_mut())));
        assert!(panicked.is_err());
        let mut nobodys = Held::default();
        nobodys.set(11);
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn a_thread_keeps_to_itself_what_is_little() {
        std::thread::spawn(|| {
            let unpublished = || THREAD.with(|thread| thread.unpublished.get());
            let held_now: Vec<_> = (0..4).map(|_| held(50_000)).collect();
            assert_eq!(unpublished(), 200_000);
            let more = held(100_000);
            assert_eq!(unpublished(), 0, "now all of it was published");
            drop((held_now, more));
        })
        .join()
        .unwrap();
    }
}

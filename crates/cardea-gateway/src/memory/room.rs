//! Waiting for room: back-pressure on whoever sends, from a hard bound on and until less is held than the bound.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use super::thread;
use crate::buffer::BUFFER_BYTES;

/// Those who wait.
static QUEUE: Mutex<Queue> = Mutex::new(Queue::new());
/// How many are in the queue.
static AWAITED: AtomicUsize = AtomicUsize::new(0);

/// Whether anybody waits.
pub(super) fn is_awaited() -> bool {
    AWAITED.load(Relaxed) > 0
}

/// Calls those who have waited for the longest: as many as may receive a buffer each now. To be called again soon, as they
/// may want more or less.
pub(crate) fn call_waiting() {
    let room = super::max().saturating_sub(super::used());
    if room == 0 || !is_awaited() {
        return;
    }
    let called = lock(|queue| queue.take((room / BUFFER_BYTES).max(1)));
    // Outside of the lock: they may run at once.
    called.into_iter().for_each(Waker::wake);
}

/// The room that one reader asks for before it receives more. It gives up its turn when it is dropped.
///
/// The gateway's own tasks, such as health checks, never wait: no connection is charged for them, they are few, and what each
/// holds is bounded.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Its turn, once it has had to wait.
    turn: Option<Turn>,
}

impl Room {
    pub(crate) const fn new() -> Self {
        Self { turn: None }
    }

    /// Ready if more may be received; the task is called otherwise once that may be so.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.turn.is_none() && (!super::has_to_wait() || !thread::is_charged()) {
            return Poll::Ready(());
        }
        self.poll_turn(cx)
    }

    /// Whether it would have to wait now.
    pub(crate) fn has_to_wait(&self) -> bool {
        self.is_awaited() || (super::has_to_wait() && thread::is_charged())
    }

    /// Whether it has to wait.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.turn.is_some()
    }

    #[cold]
    fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        let turn = self.turn.get_or_insert_with(Turn::begin);
        // It waits before it looks again: what is released between the two calls it.
        turn.wait(cx.waker());
        if super::excess() > 0 {
            return Poll::Pending;
        }
        self.turn = None;
        Poll::Ready(())
    }
}

/// A place in the order of those who wait. It is kept by who was called and has to wait again.
#[derive(Debug)]
struct Turn(NonZeroU64);

impl Turn {
    fn begin() -> Self {
        Self(lock(Queue::next_turn))
    }

    fn wait(&self, waker: &Waker) {
        drop(lock(|queue| queue.enter(self.0, waker)));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(lock(|queue| queue.leave(self.0)));
    }
}

/// Who waits, by turn. As many as there are exchanges under way, at the most twice: each has two bodies.
#[derive(Debug)]
struct Queue {
    last: Option<NonZeroU64>,
    waiting: BTreeMap<NonZeroU64, Waker>,
}

impl Queue {
    const fn new() -> Self {
        Self { last: None, waiting: BTreeMap::new() }
    }

    fn next_turn(&mut self) -> NonZeroU64 {
        let next = self.last.map_or(NonZeroU64::MIN, |last| last.saturating_add(1));
        *self.last.insert(next)
    }

    /// The waker that was there before, to be dropped outside of the lock: a task may go with it.
    fn enter(&mut self, turn: NonZeroU64, waker: &Waker) -> Option<Waker> {
        self.waiting.insert(turn, waker.clone())
    }

    /// As [`enter`](Self::enter).
    fn leave(&mut self, turn: NonZeroU64) -> Option<Waker> {
        self.waiting.remove(&turn)
    }

    /// Up to `count` of them, the longest waiting first.
    fn take(&mut self, count: usize) -> Vec<Waker> {
        std::iter::from_fn(|| self.waiting.pop_first()).map(|(_, waker)| waker).take(count).collect()
    }
}

fn lock<T>(change: impl FnOnce(&mut Queue) -> T) -> T {
    let mut queue: MutexGuard<'_, Queue> = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    let result = change(&mut queue);
    AWAITED.store(queue.waiting.len(), Relaxed);
    result
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicU32},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Calls(AtomicU32);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn those_who_have_waited_the_longest_are_called_first_and_keep_their_turns() {
        let mut queue = Queue::new();
        let tasks: Vec<Arc<Calls>> = (0..4).map(|_| Arc::default()).collect();
        let wakers: Vec<Waker> = tasks.iter().map(|task| Waker::from(Arc::clone(task))).collect();
        let turns: Vec<NonZeroU64> = wakers.iter().map(|_| queue.next_turn()).collect();
        for at in [2, 0, 3, 1] {
            queue.enter(turns[at], &wakers[at]);
        }
        // One that is polled again for another reason does not wait twice.
        queue.enter(turns[0], &wakers[0]);
        assert_eq!(queue.waiting.len(), 4);
        let call = |queue: &mut Queue, count| queue.take(count).into_iter().for_each(Waker::wake);
        let called = || tasks.iter().map(|task| task.0.load(Relaxed)).collect::<Vec<_>>();
        call(&mut queue, 2);
        assert_eq!(called(), [1, 1, 0, 0]);
        // There was no room for one of them after all, and another has given up.
        queue.enter(turns[1], &wakers[1]);
        queue.leave(turns[2]);
        call(&mut queue, 1);
        assert_eq!(called(), [1, 2, 0, 0]);
        call(&mut queue, usize::MAX);
        assert_eq!(called(), [1, 2, 0, 1]);
        assert!(queue.waiting.is_empty());
    }

    #[test]
    fn who_is_charged_to_nobody_waits_for_nothing() {
        let mut room = Room::new();
        assert!(room.poll(&Context::from_waker(Waker::noop())).is_ready());
        assert!(!room.is_awaited());
    }
}

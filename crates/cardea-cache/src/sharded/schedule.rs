//! A lock for tests that tries every order in which threads can take their locks.
//!
//! Threads share only data behind locks, so their interaction depends only on the order of the locks. [`explore`] lets
//! one thread run at a time, from one lock to its next, and repeats the run for each possible order.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, LockResult, MutexGuard, PoisonError, TryLockError};
use std::thread;

/// The most orders of one test; more indicate a test with too many operations.
const ORDERS_MAX: usize = 20_000;

thread_local! {
    static TURNS: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// The lock of the standard library, except for threads that [`explore`] has started.
#[repr(transparent)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let turns = TURNS.with_borrow(Clone::clone);
        let Some((turns, thread)) = turns else { return self.0.lock() };
        turns.wait(thread);
        match self.0.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            // A thread that waits for a turn holds no lock.
            Err(TryLockError::WouldBlock) => panic!("a lock is taken by a thread that has one"),
        }
    }
}

/// The turns of the threads.
struct Turns {
    state: std::sync::Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Running,
    Waiting,
    Ended,
}

struct State {
    phases: Vec<Phase>,
    turn: Option<usize>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, thread: usize) {
        let mut state = self.state();
        state.phases[thread] = Phase::Waiting;
        self.changed.notify_all();
        while state.turn != Some(thread) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.turn = None;
        state.phases[thread] = Phase::Running;
    }

    /// The threads that wait for a turn, once none runs; empty when all have ended.
    fn waiting(&self) -> Vec<usize> {
        let mut state = self.state();
        while state.turn.is_some() || state.phases.contains(&Phase::Running) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (0..state.phases.len()).filter(|thread| state.phases[*thread] == Phase::Waiting).collect()
    }

    fn give(&self, thread: usize) {
        self.state().turn = Some(thread);
        self.changed.notify_all();
    }
}

/// Marks a thread as ended, even after a panic.
struct Ending(Arc<Turns>, usize);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state().phases[self.1] = Phase::Ended;
        self.0.changed.notify_all();
    }
}

/// Runs `thread` for each possible order, with a new `shared` each time and for each number below `threads`; then
/// `check` with the order of the locks. Returns the number of orders.
pub(crate) fn explore<T: Sync>(
    threads: usize,
    shared: impl Fn() -> T,
    thread: impl Fn(&T, usize) + Sync,
    check: impl Fn(&T, &[usize]),
) -> usize {
    // The choices of the last order, and their alternatives.
    let mut choices: Vec<(usize, usize)> = Vec::new();
    for explored in 1..=ORDERS_MAX {
        let (shared, mut order) = (shared(), Vec::new());
        let state = State { phases: vec![Phase::Running; threads], turn: None };
        let turns = Arc::new(Turns { state: std::sync::Mutex::new(state), changed: Condvar::new() });
        thread::scope(|scope| {
            for number in 0..threads {
                let (turns, shared, thread) = (Arc::clone(&turns), &shared, &thread);
                scope.spawn(move || {
                    let _ending = Ending(Arc::clone(&turns), number);
                    TURNS.set(Some((turns, number)));
                    thread(shared, number);
                    TURNS.set(None);
                });
            }
            loop {
                let waiting = turns.waiting();
                if waiting.is_empty() {
                    break;
                }
                if choices.len() == order.len() {
                    choices.push((0, waiting.len()));
                }
                let next = waiting[choices[order.len()].0];
                order.push(next);
                turns.give(next);
            }
        });
        check(&shared, &order);
        // The next one: another choice at the last step with an alternative left.
        while choices.last().is_some_and(|(chosen, of)| chosen + 1 == *of) {
            choices.pop();
        }
        let Some((chosen, _)) = choices.last_mut() else { return explored };
        *chosen += 1;
    }
    panic!("more than {ORDERS_MAX} orders");
}

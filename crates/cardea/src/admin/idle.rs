//! Which connection to close where another one needs its place: the one that has waited for the longest.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// The connections that wait for their next request, or for the rest of it.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// A connection waits for a place, and none has been asked to close for it.
    is_place_wanted: bool,
    /// Those that have sent nothing of a request, the one that has waited for the longest first.
    idle: VecDeque<Arc<Notify>>,
    /// Those that have sent a part of it, likewise. They close where none is idle.
    begun: VecDeque<Arc<Notify>>,
}

/// A connection that waits, until this is dropped.
pub(super) struct Idle<'c> {
    connections: &'c IdleConnections,
    close: Arc<Notify>,
    closes: AtomicBool,
}

impl IdleConnections {
    /// Asks the connection that has waited for the longest to close, or the next one to wait.
    pub(super) fn want_place(&self) {
        let mut state = self.lock();
        match state.idle.pop_front().or_else(|| state.begun.pop_front()) {
            Some(oldest) => oldest.notify_one(),
            None => state.is_place_wanted = true,
        }
    }

    /// No connection waits for a place any more.
    pub(super) fn got_place(&self) {
        self.lock().is_place_wanted = false;
    }

    /// A connection waits from now on.
    pub(super) fn enter(&self) -> Idle<'_> {
        let close = Arc::new(Notify::new());
        let mut state = self.lock();
        if std::mem::take(&mut state.is_place_wanted) {
            close.notify_one();
        } else {
            state.idle.push_back(Arc::clone(&close));
        }
        drop(state);
        Idle { connections: self, close, closes: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether it was waiting, and had not been asked to close.
    fn remove(&mut self, close: &Arc<Notify>) -> bool {
        [&mut self.idle, &mut self.begun].into_iter().any(|waiting| {
            let at = waiting.iter().position(|other| Arc::ptr_eq(other, close));
            at.and_then(|at| waiting.remove(at)).is_some()
        })
    }
}

impl Idle<'_> {
    /// Ends when the connection has to close.
    pub(super) async fn has_to_close(&self) {
        self.close.notified().await;
        self.closes.store(true, Relaxed);
    }

    /// A part of a request has come.
    pub(super) fn begin(&self) {
        let mut state = self.connections.lock();
        if state.remove(&self.close) {
            state.begun.push_back(Arc::clone(&self.close));
        }
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        // It was asked to close, and its request came just then: another one has to.
        if !state.remove(&self.close) && !self.closes.load(Relaxed) {
            state.is_place_wanted = true;
        }
    }
}

//! Which connection to close where another one needs its place: the one that has been idle for the longest.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// The connections that wait for their next request.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// A connection waits for a place, and none has been asked to close for it.
    is_place_wanted: bool,
    /// The one that has been idle for the longest first.
    idle: VecDeque<Arc<Notify>>,
}

/// A connection that is idle, until this is dropped.
pub(super) struct Idle<'c> {
    connections: &'c IdleConnections,
    close: Arc<Notify>,
    closes: bool,
}

impl IdleConnections {
    /// Asks the connection that has been idle for the longest to close, or the next one to become idle.
    pub(super) fn want_place(&self) {
        let mut state = self.lock();
        match state.idle.pop_front() {
            Some(oldest) => oldest.notify_one(),
            None => state.is_place_wanted = true,
        }
    }

    /// No connection waits for a place any more.
    pub(super) fn got_place(&self) {
        self.lock().is_place_wanted = false;
    }

    /// A connection is idle from now on.
    pub(super) fn enter(&self) -> Idle<'_> {
        let close = Arc::new(Notify::new());
        let mut state = self.lock();
        if std::mem::take(&mut state.is_place_wanted) {
            close.notify_one();
        } else {
            state.idle.push_back(Arc::clone(&close));
        }
        drop(state);
        Idle { connections: self, close, closes: false }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle<'_> {
    /// Ends when the connection has to close.
    pub(super) async fn has_to_close(&mut self) {
        self.close.notified().await;
        self.closes = true;
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        match state.idle.iter().position(|other| Arc::ptr_eq(other, &self.close)) {
            Some(at) => drop(state.idle.remove(at)),
            // It was asked to close, and a request came just then: another one has to.
            None if !self.closes => state.is_place_wanted = true,
            None => {}
        }
    }
}

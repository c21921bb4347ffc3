//! The connections of this thread that carry exchanges, and those that are being made for several requests.
//!
//! An endpoint's pool has the connections on which nothing is under way. Those with streams are here, for as long as they have
//! some; connections stay with their worker, so no other thread looks at them.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use cardea_upstream::Endpoint;

use super::{
    super::{ConnectError, Pooled},
    link::Link,
};

thread_local! {
    static ENDPOINTS: RefCell<HashMap<Key, Links, foldhash::fast::FixedState>> = RefCell::default();
}

/// The address of an endpoint in memory. Whoever has an entry keeps it from being used for another.
type Key = *const Endpoint<Pooled>;

/// The connections to one endpoint.
#[derive(Default)]
struct Links {
    busy: Vec<Arc<Link>>,
    /// The one that is being made.
    connecting: Option<(Arc<Gate>, Arc<Endpoint<Pooled>>)>,
}

impl Links {
    const fn is_empty(&self) -> bool {
        self.busy.is_empty() && self.connecting.is_none()
    }
}

/// Changes the connections to an endpoint.
fn with<T>(key: Key, change: impl FnOnce(&mut Links) -> T) -> Option<T> {
    let (result, gone) = ENDPOINTS
        .try_with(|endpoints| {
            let mut endpoints = endpoints.borrow_mut();
            let links = endpoints.entry(key).or_default();
            let result = change(links);
            let gone = links.is_empty().then(|| endpoints.remove(&key));
            (result, gone)
        })
        .ok()?;
    drop(gone);
    Some(result)
}

/// The connection to `endpoint` that has the most streams of those that take one more: so few are in use, and the others become
/// idle.
pub(super) fn busiest(endpoint: &Arc<Endpoint<Pooled>>) -> Option<Arc<Link>> {
    loop {
        let found = ENDPOINTS.with_borrow(|endpoints| {
            let busy = &endpoints.get(&Arc::as_ptr(endpoint))?.busy;
            let loads = busy.iter().filter_map(|link| Some((link.load()?, link)));
            loads.max_by_key(|(load, _)| *load).map(|(_, link)| Arc::clone(link))
        })?;
        // One that may not takes none from then on.
        if found.may_go_on(endpoint) {
            return Some(found);
        }
    }
}

/// A connection begins to carry exchanges.
pub(super) fn add(link: &Arc<Link>) {
    with(link.endpoint().as_ptr(), |links| links.busy.push(Arc::clone(link)));
}

/// A connection carries none any more.
pub(super) fn remove(link: &Link) {
    let removed = with(link.endpoint().as_ptr(), |links| {
        let place = links.busy.iter().position(|busy| std::ptr::eq(&**busy, link))?;
        Some(links.busy.swap_remove(place))
    });
    drop(removed);
}

/// What came of a connection that several requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is there, and requests can share it.
    Shared,
    /// The endpoint chose HTTP/1.1: each request needs a connection of its own.
    Alone,
    /// It could not be made.
    Failed(ConnectError),
    /// Who made it gave up.
    Abandoned,
}

/// What those who wait for a connection share.
#[derive(Default)]
struct Gate(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    outcome: Option<Outcome>,
    /// How many wait.
    joined: usize,
    wakers: Vec<Waker>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a request in making a connection.
pub(crate) enum Part {
    /// It makes the connection, and tells the others.
    Leader(Leader),
    /// It waits for the connection of another request.
    Follower(Follower),
    /// It makes a connection for itself, as too many wait for the other one.
    Alone,
}

/// Joins the requests that wait for a connection to `endpoint`: so many at most.
pub(crate) fn join(endpoint: &Arc<Endpoint<Pooled>>, requests_max: usize) -> Part {
    let part = with(Arc::as_ptr(endpoint), |links| match &links.connecting {
        None => {
            let gate = Arc::<Gate>::default();
            links.connecting = Some((Arc::clone(&gate), Arc::clone(endpoint)));
            Part::Leader(Leader { gate, endpoint: Arc::clone(endpoint), outcome: Outcome::Abandoned })
        }
        Some((gate, _)) => {
            let mut waiting = gate.lock();
            // One is the leader's.
            if waiting.joined + 1 >= requests_max {
                return Part::Alone;
            }
            waiting.joined += 1;
            Part::Follower(Follower { gate: Arc::clone(gate) })
        }
    });
    part.unwrap_or(Part::Alone)
}

/// Makes the connection that others wait for.
pub(crate) struct Leader {
    gate: Arc<Gate>,
    endpoint: Arc<Endpoint<Pooled>>,
    outcome: Outcome,
}

impl Leader {
    /// Tells the others. To be called when the connection is there for them, if it was made.
    pub(crate) fn tell(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let ended = with(Arc::as_ptr(&self.endpoint), |links| links.connecting.take());
        drop(ended);
        let wakers = {
            let mut waiting = self.gate.lock();
            waiting.outcome = Some(self.outcome);
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Waits for a connection.
pub(crate) struct Follower {
    gate: Arc<Gate>,
}

impl Follower {
    /// Ready when the connection is there, or will not be.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Outcome> {
        let mut waiting = self.gate.lock();
        if let Some(outcome) = waiting.outcome {
            return Poll::Ready(outcome);
        }
        if !waiting.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut waiting = self.gate.lock();
        waiting.joined = waiting.joined.saturating_sub(1);
    }
}

//! The queue: who waits, in which order, and who is next. Pure but for the leases that it calls in; time is an argument.
//!
//! After each call, no waiter has all it needs. So a request that arrives and has all it needs overtakes nobody who waits for
//! the same.

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use cardea_clock::Mono;
use slab::Slab;
use smallvec::SmallVec;

use super::{
    AdmissionBounds, AdmissionFigures, AdmissionRefusal, Arrival, Entry, GATE_LIMITS_MAX, Priority, Ticket,
    Usage, leases::Leases, limit::Limit, shares::ClientShares,
};

const PRIORITIES: usize = Priority::ALL.len();

/// The limits of a gate.
pub(super) type LimitIds = SmallVec<[usize; GATE_LIMITS_MAX]>;

/// What is left to do once the lock is released: wakers run code of others.
#[derive(Default)]
pub(super) struct After {
    woken: SmallVec<[Waker; 4]>,
    /// Dropped, which may end the last task of a runtime.
    dropped: Option<Waker>,
}

impl After {
    pub(super) fn wake(self) {
        self.woken.into_iter().for_each(Waker::wake);
    }
}

/// A request that arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) gate: usize,
    pub(super) worker: usize,
    /// It has taken a permit of so many of the gate's limits from its worker's leases.
    pub(super) leased: usize,
    pub(super) arrival: Arrival,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    limits: Slab<Limit>,
    gates: Slab<Gate>,
    waiters: Slab<Waiter>,
    /// The gates with waiters, in no order.
    active: Vec<usize>,
    arrivals: u64,
    /// Whether limits have shedders.
    sheds: bool,
}

#[derive(Debug)]
struct Gate {
    limits: LimitIds,
    /// By priority, in the order of arrival.
    lists: [List; PRIORITIES],
    waiting: usize,
}

/// A doubly linked list of waiters, so that whoever leaves does so in constant time.
#[derive(Debug, Default, Clone, Copy)]
struct List {
    first: Option<usize>,
    last: Option<usize>,
}

#[derive(Debug)]
struct Waiter {
    gate: usize,
    priority: Priority,
    /// Its number among all arrivals.
    number: u64,
    since: Mono,
    deadline: Mono,
    previous: Option<usize>,
    next: Option<usize>,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits(Option<Waker>),
    Admitted,
    Refused(AdmissionRefusal),
}

impl Queue {
    pub(super) fn add_limit(
        &mut self,
        leases: Arc<Leases>,
        shares: Arc<ClientShares>,
        bounds: AdmissionBounds,
    ) -> usize {
        self.limits.insert(Limit::new(leases, shares, bounds))
    }

    pub(super) fn remove_limit(&mut self, limit: usize) {
        self.limits.try_remove(limit);
    }

    pub(super) fn add_gate(&mut self, limits: LimitIds) -> usize {
        self.gates.insert(Gate { limits, lists: Default::default(), waiting: 0 })
    }

    /// Forgets a gate, and whoever still waits before it: nobody can ask for them any more.
    pub(super) fn remove_gate(&mut self, gate: usize, after: &mut After) {
        while let Some(known) = self.gates.get(gate)
            && let Some(head) = known.lists.iter().find_map(|list| list.first)
        {
            self.refuse(head, AdmissionRefusal::Expired, after);
            self.waiters.try_remove(head);
        }
        self.gates.try_remove(gate);
    }

    pub(super) fn figures(&self, limit: usize) -> AdmissionFigures {
        let Some(known) = self.limits.get(limit) else { return AdmissionFigures::default() };
        let heads = self.gates_of(limit).flat_map(|gate| gate.lists.iter().filter_map(|list| list.first));
        AdmissionFigures {
            max_in_flight: known.bounds.max_in_flight,
            in_flight: known.in_flight(),
            waiting: known.waiting,
            threshold: known.threshold(),
            reserved: known.shares.reserve(),
            oldest: heads.filter_map(|head| self.waiters.get(head)).map(|waiter| waiter.since).min(),
        }
    }

    /// The gates with waiters that need this limit.
    fn gates_of(&self, limit: usize) -> impl Iterator<Item = &Gate> {
        let gates = self.active.iter().filter_map(|gate| self.gates.get(*gate));
        gates.filter(move |gate| gate.limits.contains(&limit))
    }

    fn limits_of(&self, gate: usize) -> LimitIds {
        self.gates.get(gate).map(|gate| gate.limits.clone()).unwrap_or_default()
    }

    /// Puts bounds in force, which only their owner may [adapt](Self::adapt).
    pub(super) fn set_bounds(
        &mut self,
        limit: usize,
        bounds: AdmissionBounds,
        owner: Option<u64>,
        now: Mono,
        after: &mut After,
    ) {
        if let Some(known) = self.limits.get_mut(limit) {
            known.owner = owner;
            known.shares.set_on(owner.is_some());
        }
        self.change_bounds(limit, bounds, now, after);
    }

    pub(super) fn adapt(
        &mut self,
        limit: usize,
        bounds: AdmissionBounds,
        owner: u64,
        now: Mono,
        after: &mut After,
    ) {
        if self.limits.get(limit).is_some_and(|known| known.owner == Some(owner)) {
            self.change_bounds(limit, bounds, now, after);
        }
    }

    fn change_bounds(&mut self, limit: usize, bounds: AdmissionBounds, now: Mono, after: &mut After) {
        if let Some(known) = self.limits.get_mut(limit) {
            known.set_bounds(bounds);
        }
        self.admit_waiters(now, after);
        if let Some(known) = self.limits.get_mut(limit) {
            known.open_if_far();
        }
    }

    pub(super) fn enter(&mut self, request: Request, client_share: u32, after: &mut After) -> Entry {
        let Request { gate, worker, leased, arrival } = request;
        let Arrival { priority, now, .. } = arrival;
        let limits = self.limits_of(gate);
        for limit in limits.iter().take(leased) {
            if let Some(limit) = self.limits.get_mut(*limit) {
                limit.undo(worker);
            }
        }
        if leased > 0 {
            // Whoever came here while it had them may have missed them.
            self.admit_waiters(now, after);
        }
        for limit in &limits {
            if let Some(limit) = self.limits.get_mut(*limit) {
                limit.note_arrival(arrival);
            }
        }
        if self.has_room(&limits) {
            self.take(&limits);
            self.lease(&limits, worker);
            return Entry::Admitted;
        }
        if self.is_shed(&limits, arrival, client_share) {
            return Entry::Refused(AdmissionRefusal::Shed);
        }
        let max_age =
            limits.iter().filter_map(|limit| self.limits.get(*limit)).map(|limit| limit.bounds.max_age);
        let deadline = now.saturating_add(max_age.min().unwrap_or_default());
        if deadline <= now || !self.make_room(&limits, priority, now, after) {
            return Entry::Refused(AdmissionRefusal::QueueFull);
        }
        Entry::Waits(Ticket(self.append(gate, priority, now, deadline)))
    }

    /// Whether all these limits have a permit that is free.
    fn has_room(&mut self, limits: &[usize]) -> bool {
        limits.iter().all(|limit| self.limits.get_mut(*limit).is_some_and(Limit::has_room))
    }

    /// A request has found no permit of these limits. Whether it is refused by one that lacks it.
    fn is_shed(&mut self, limits: &[usize], arrival: Arrival, client_share: u32) -> bool {
        let mut is_shed = false;
        for limit in limits {
            if let Some(limit) = self.limits.get_mut(*limit)
                && !limit.has_room()
            {
                limit.note_full(self.sheds, arrival.now);
                if let Some(client) = arrival.client
                    && limit.shares.is_on()
                {
                    limit.shares.note_lack(client, client_share, arrival.now);
                }
                is_shed |= limit.threshold().refuses(arrival.priority, arrival.cohort);
            }
        }
        is_shed
    }

    /// A request was refused before it arrived here, because there are not enough permits for all clients.
    pub(super) fn note_full(&mut self, limit: usize) {
        if let Some(limit) = self.limits.get_mut(limit) {
            limit.was_full = true;
        }
    }

    pub(super) fn set_shedding(&mut self, sheds: bool) {
        self.sheds = sheds;
        if !sheds {
            self.limits.iter_mut().for_each(|(_, limit)| limit.shedder = None);
        }
    }

    /// How much of a limit has been used since this was last called.
    pub(super) fn take_usage(&mut self, limit: usize) -> Usage {
        self.limits.get_mut(limit).map_or(Usage { is_full: false, in_flight: 0 }, Limit::take_usage)
    }

    fn take(&mut self, limits: &[usize]) {
        for limit in limits {
            if let Some(limit) = self.limits.get_mut(*limit) {
                limit.take();
            }
        }
    }

    fn lease(&mut self, limits: &[usize], worker: usize) {
        for limit in limits {
            if let Some(limit) = self.limits.get_mut(*limit) {
                limit.lease(worker);
            }
        }
    }

    /// Whether one more may wait for these limits. Where a queue is full, the newest waiter of the lowest priority makes room
    /// for a higher one; all queues have to have room, or nobody does.
    fn make_room(&mut self, limits: &[usize], priority: Priority, now: Mono, after: &mut After) -> bool {
        if limits.iter().any(|limit| self.is_full(*limit)) {
            self.refuse_expired(now, after);
        }
        let has_no_room = |limit: &&usize| self.is_full(**limit) && self.lowest(**limit, priority).is_none();
        if limits.iter().any(|limit| has_no_room(&limit)) {
            return false;
        }
        for limit in limits {
            // Who has made room in one queue may have made it in the next, too.
            if self.is_full(*limit)
                && let Some(waiter) = self.lowest(*limit, priority)
            {
                self.refuse(waiter, AdmissionRefusal::Displaced, after);
            }
        }
        true
    }

    fn is_full(&self, limit: usize) -> bool {
        self.limits.get(limit).is_some_and(|limit| limit.waiting >= limit.bounds.max_queue)
    }

    /// The newest waiter of the lowest priority below `priority` that needs this limit.
    fn lowest(&self, limit: usize, priority: Priority) -> Option<usize> {
        let lists = self.gates_of(limit).flat_map(|gate| gate.lists.iter().filter_map(|list| list.last));
        let waiters = lists.filter_map(|last| Some((last, self.waiters.get(last)?)));
        let lower = waiters.filter(|(_, waiter)| waiter.priority > priority);
        lower.max_by_key(|(_, waiter)| (waiter.priority, waiter.number)).map(|(waiter, _)| waiter)
    }

    pub(super) fn poll(
        &mut self,
        waiter: usize,
        now: Mono,
        waker: &Waker,
        after: &mut After,
    ) -> Poll<Result<(), AdmissionRefusal>> {
        let Some(known) = self.waiters.get_mut(waiter) else {
            return Poll::Ready(Err(AdmissionRefusal::Expired));
        };
        let result = match &mut known.state {
            State::Waits(former) if now < known.deadline => {
                if !former.as_ref().is_some_and(|former| former.will_wake(waker)) {
                    after.dropped = former.replace(waker.clone());
                }
                return Poll::Pending;
            }
            State::Waits(_) => {
                after.dropped = self.unlink(waiter, State::Refused(AdmissionRefusal::Expired));
                Err(AdmissionRefusal::Expired)
            }
            State::Admitted => Ok(()),
            State::Refused(refusal) => Err(*refusal),
        };
        self.waiters.try_remove(waiter);
        Poll::Ready(result)
    }

    pub(super) fn deadline(&self, waiter: usize) -> Mono {
        self.waiters.get(waiter).map_or(Mono::MAX, |waiter| waiter.deadline)
    }

    pub(super) fn abandon(&mut self, waiter: usize, worker: usize, now: Mono, after: &mut After) {
        let Some(known) = self.waiters.get(waiter) else { return };
        let gate = known.gate;
        match known.state {
            State::Waits(_) => after.dropped = self.unlink(waiter, State::Refused(AdmissionRefusal::Expired)),
            State::Admitted => self.give_back(&self.limits_of(gate), worker, now, after),
            State::Refused(_) => {}
        }
        self.waiters.try_remove(waiter);
    }

    /// Permits come back; they go to whoever waits for them.
    pub(super) fn give_back(&mut self, limits: &[usize], worker: usize, now: Mono, after: &mut After) {
        for limit in limits {
            if let Some(limit) = self.limits.get_mut(*limit) {
                limit.put(worker);
            }
        }
        self.admit_waiters(now, after);
        for limit in limits {
            if let Some(limit) = self.limits.get_mut(*limit) {
                limit.open_if_far();
            }
        }
    }

    /// Admits waiters, by priority and then in the order of arrival, until none has all it needs. Who has waited for too long is
    /// not admitted.
    fn admit_waiters(&mut self, now: Mono, after: &mut After) {
        while let Some(waiter) = self.next(now, after) {
            let Some(gate) = self.waiters.get(waiter).map(|waiter| waiter.gate) else { return };
            let limits = self.limits_of(gate);
            self.take(&limits);
            after.woken.extend(self.unlink(waiter, State::Admitted));
        }
    }

    /// The first waiter that has all it needs.
    fn next(&mut self, now: Mono, after: &mut After) -> Option<usize> {
        let mut first: Option<(Priority, u64, usize)> = None;
        let mut at = 0;
        while let Some(gate) = self.active.get(at).copied() {
            at += 1;
            if !self.has_room(&self.limits_of(gate)) {
                continue;
            }
            self.refuse_expired_at(gate, now, after);
            let heads = self.gates.get(gate).map(|gate| gate.lists).unwrap_or_default();
            let head = heads.iter().find_map(|list| list.first);
            let Some(waiter) = head.and_then(|head| self.waiters.get(head)) else {
                // It has none left, and another one has taken its place.
                at -= 1;
                continue;
            };
            let key = (waiter.priority, waiter.number, head.unwrap_or_default());
            first = Some(first.map_or(key, |first| first.min(key)));
        }
        first.map(|(.., waiter)| waiter)
    }

    /// Refuses the first waiters of all lists that have waited for too long.
    fn refuse_expired(&mut self, now: Mono, after: &mut After) {
        for gate in self.active.clone() {
            self.refuse_expired_at(gate, now, after);
        }
    }

    fn refuse_expired_at(&mut self, gate: usize, now: Mono, after: &mut After) {
        for priority in Priority::ALL {
            while let Some(head) = self.gates.get(gate).and_then(|gate| gate.lists[priority as usize].first)
                && self.waiters.get(head).is_some_and(|waiter| waiter.deadline <= now)
            {
                self.refuse(head, AdmissionRefusal::Expired, after);
            }
        }
    }

    fn refuse(&mut self, waiter: usize, refusal: AdmissionRefusal, after: &mut After) {
        after.woken.extend(self.unlink(waiter, State::Refused(refusal)));
    }

    /// A request begins to wait, behind all others of its gate and priority.
    fn append(&mut self, gate: usize, priority: Priority, now: Mono, deadline: Mono) -> usize {
        self.arrivals += 1;
        let last = self.gates.get(gate).and_then(|gate| gate.lists[priority as usize].last);
        let waiter = self.waiters.insert(Waiter {
            gate,
            priority,
            number: self.arrivals,
            since: now,
            deadline,
            previous: last,
            next: None,
            state: State::Waits(None),
        });
        if let Some(last) = last.and_then(|last| self.waiters.get_mut(last)) {
            last.next = Some(waiter);
        }
        if let Some(known) = self.gates.get_mut(gate) {
            let list = &mut known.lists[priority as usize];
            list.first = list.first.or(Some(waiter));
            list.last = Some(waiter);
            known.waiting += 1;
            if known.waiting == 1 {
                self.active.push(gate);
            }
        }
        self.count_waiting(gate, 1);
        waiter
    }

    /// Takes a waiter out of its list; its waker.
    fn unlink(&mut self, waiter: usize, state: State) -> Option<Waker> {
        let known = self.waiters.get_mut(waiter)?;
        let former = std::mem::replace(&mut known.state, state);
        let (gate, priority, previous, next) = (known.gate, known.priority, known.previous, known.next);
        if let Some(previous) = previous.and_then(|previous| self.waiters.get_mut(previous)) {
            previous.next = next;
        }
        if let Some(next) = next.and_then(|next| self.waiters.get_mut(next)) {
            next.previous = previous;
        }
        if let Some(known) = self.gates.get_mut(gate) {
            let list = &mut known.lists[priority as usize];
            if previous.is_none() {
                list.first = next;
            }
            if next.is_none() {
                list.last = previous;
            }
            known.waiting -= 1;
            if known.waiting == 0 {
                self.active.retain(|active| *active != gate);
            }
        }
        self.count_waiting(gate, -1);
        match former {
            State::Waits(waker) => waker,
            State::Admitted | State::Refused(_) => None,
        }
    }

    fn count_waiting(&mut self, gate: usize, change: i32) {
        for limit in self.limits_of(gate) {
            if let Some(limit) = self.limits.get_mut(limit) {
                limit.waiting = limit.waiting.saturating_add_signed(change);
            }
        }
    }
}

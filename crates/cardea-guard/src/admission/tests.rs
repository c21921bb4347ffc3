//! The queue against a list, with virtual time, and with many threads.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::Wake,
    thread,
};

use proptest::{collection::vec, prelude::*};

use super::*;

const AGE: Duration = Duration::from_millis(100);

fn bounds(max_in_flight: u32, max_queue: u32) -> AdmissionBounds {
    AdmissionBounds { max_in_flight, max_queue, max_age: AGE }
}

fn at(milliseconds: u64) -> Mono {
    Mono::from_nanos((1_000_000 + milliseconds) * 1_000_000)
}

/// Whether somebody was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn enter(gate: &Gate, priority: Priority, now: Mono) -> Entry {
    gate.enter(0, || Arrival::new(priority, now))
}

fn wait(gate: &Gate, priority: Priority, now: Mono) -> Ticket {
    match enter(gate, priority, now) {
        Entry::Waits(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn poll(gate: &Gate, ticket: &Ticket, now: Mono) -> Poll<Result<(), AdmissionRefusal>> {
    gate.poll(ticket, now, Waker::noop())
}

const ADMITTED: Poll<Result<(), AdmissionRefusal>> = Poll::Ready(Ok(()));
const EXPIRED: Poll<Result<(), AdmissionRefusal>> = Poll::Ready(Err(AdmissionRefusal::Expired));
const DISPLACED: Poll<Result<(), AdmissionRefusal>> = Poll::Ready(Err(AdmissionRefusal::Displaced));

/// As many as the limit says are admitted, from whatever worker, and one more only once one has left.
#[test]
fn as_many_are_admitted_as_the_limit_says_and_permits_return() {
    for workers in [1, 2, 7] {
        for max in [0, 1, 2, 5, 64, 1_000] {
            let admission = Admission::new(workers);
            let gate = admission.gate([admission.limit(bounds(max, 0))]);
            for round in 0..3 {
                let enter = |worker| gate.enter(worker, || Arrival::new(Priority::Normal, at(0)));
                for number in 0..max as usize {
                    assert_eq!(enter(number % workers), Entry::Admitted, "{workers} {max} {round} {number}");
                }
                for worker in 0..workers {
                    assert_eq!(enter(worker), Entry::Refused(AdmissionRefusal::QueueFull));
                }
                assert_eq!(gate.limits()[0].figures().in_flight, max);
                (0..max as usize).for_each(|number| gate.leave((number + round) % workers, || at(0)));
                assert_eq!(gate.limits()[0].figures().in_flight, 0);
            }
        }
    }
}

#[test]
fn a_permit_goes_to_the_first_by_priority_and_then_by_arrival_that_it_suits() {
    let admission = Admission::new(2);
    let process = admission.limit(bounds(2, 10));
    let orders = admission.gate([admission.limit(bounds(1, 10)), Arc::clone(&process)]);
    let search = admission.gate([Arc::clone(&process)]);
    assert_eq!(enter(&orders, Priority::Normal, at(0)), Entry::Admitted);
    assert_eq!(enter(&search, Priority::Normal, at(0)), Entry::Admitted);
    let one = wait(&orders, Priority::Normal, at(1));
    let two = wait(&search, Priority::Low, at(2));
    let three = wait(&search, Priority::Normal, at(3));
    let four = wait(&orders, Priority::High, at(4));
    assert_eq!(process.figures().waiting, 4);
    assert_eq!(process.figures().oldest, Some(at(1)));
    // `orders` has none left, whoever comes first there.
    search.leave(1, || at(5));
    assert_eq!(poll(&search, &three, at(5)), ADMITTED);
    orders.leave(0, || at(6));
    assert_eq!(poll(&orders, &four, at(6)), ADMITTED);
    assert_eq!(poll(&orders, &one, at(6)), Poll::Pending);
    search.leave(0, || at(7));
    assert_eq!(poll(&search, &two, at(7)), ADMITTED);
    orders.leave(0, || at(8));
    assert_eq!(poll(&orders, &one, at(8)), ADMITTED);
    assert_eq!(process.figures().in_flight, 2);
    assert_eq!(process.figures().waiting, 0);
}

#[test]
fn who_has_waited_for_too_long_is_not_admitted_even_if_nobody_has_asked() {
    let admission = Admission::new(1);
    let gate = admission.gate([admission.limit(bounds(1, 10))]);
    assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted);
    let old = wait(&gate, Priority::Normal, at(0));
    let young = wait(&gate, Priority::Normal, at(50));
    assert_eq!(gate.deadline(&old), at(100));
    gate.leave(0, || at(100));
    assert_eq!(poll(&gate, &young, at(100)), ADMITTED);
    assert_eq!(poll(&gate, &old, at(100)), EXPIRED);
}

#[test]
fn expired_waiters_take_no_place_from_new_ones() {
    let admission = Admission::new(1);
    let gate = admission.gate([admission.limit(bounds(1, 1))]);
    assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted);
    let old = wait(&gate, Priority::Normal, at(0));
    assert_eq!(enter(&gate, Priority::Normal, at(99)), Entry::Refused(AdmissionRefusal::QueueFull));
    let young = wait(&gate, Priority::Normal, at(100));
    assert_eq!(poll(&gate, &old, at(100)), EXPIRED);
    gate.abandon(young, 0, at(100));
}

/// A flood of what is unimportant must not keep what is important out of the queue.
#[test]
fn the_newest_of_the_lowest_priority_makes_room_for_a_higher_one() {
    let admission = Admission::new(1);
    let gate = admission.gate([admission.limit(bounds(1, 3))]);
    assert_eq!(enter(&gate, Priority::Low, at(0)), Entry::Admitted);
    let [one, two] = [1, 2].map(|time| wait(&gate, Priority::Low, at(time)));
    let three = wait(&gate, Priority::Normal, at(3));
    assert_eq!(enter(&gate, Priority::Low, at(4)), Entry::Refused(AdmissionRefusal::QueueFull));
    let four = wait(&gate, Priority::Normal, at(5));
    assert_eq!(poll(&gate, &two, at(5)), DISPLACED);
    let five = wait(&gate, Priority::Critical, at(6));
    assert_eq!(poll(&gate, &one, at(6)), DISPLACED);
    let six = wait(&gate, Priority::High, at(7));
    assert_eq!(poll(&gate, &four, at(7)), DISPLACED);
    assert_eq!(enter(&gate, Priority::Normal, at(8)), Entry::Refused(AdmissionRefusal::QueueFull));
    for ticket in [five, six, three] {
        gate.leave(0, || at(9));
        assert_eq!(poll(&gate, &ticket, at(9)), ADMITTED);
    }
}

#[test]
fn nobody_makes_room_for_a_request_that_is_refused_all_the_same() {
    let admission = Admission::new(1);
    let process = admission.limit(bounds(1, 2));
    let orders = admission.gate([admission.limit(bounds(1, 1)), Arc::clone(&process)]);
    let search = admission.gate([process]);
    assert_eq!(enter(&search, Priority::Normal, at(0)), Entry::Admitted);
    let low = wait(&search, Priority::Low, at(0));
    let high = wait(&orders, Priority::High, at(0));
    assert_eq!(enter(&orders, Priority::High, at(1)), Entry::Refused(AdmissionRefusal::QueueFull));
    assert_eq!(poll(&search, &low, at(1)), Poll::Pending);
    assert_eq!(poll(&orders, &high, at(1)), Poll::Pending);
    search.abandon(low, 0, at(1));
    orders.abandon(high, 0, at(1));
}

#[test]
fn a_permit_that_was_given_to_somebody_who_leaves_goes_to_the_next() {
    let admission = Admission::new(1);
    let gate = admission.gate([admission.limit(bounds(1, 3))]);
    assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted);
    let [one, two, three] = [(); 3].map(|()| wait(&gate, Priority::Normal, at(0)));
    gate.abandon(two, 0, at(1));
    gate.leave(0, || at(1));
    // It is admitted, and does not know yet.
    gate.abandon(one, 0, at(1));
    assert_eq!(poll(&gate, &three, at(1)), ADMITTED);
    gate.leave(0, || at(2));
    assert_eq!(gate.limits()[0].figures().in_flight, 0);
}

#[test]
fn ten_thousand_waiters_that_leave_at_once_leave_nothing_behind() {
    let admission = Admission::new(1);
    let gate = admission.gate([admission.limit(bounds(1, 10_000))]);
    assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted);
    let mut tickets: Vec<_> = (0..10_000).map(|_| wait(&gate, Priority::Normal, at(0))).collect();
    // From both ends and the middle.
    for turn in 0..10_000 {
        let at = [0, tickets.len() / 2, tickets.len() - 1][turn % 3];
        gate.abandon(tickets.swap_remove(at), 0, self::at(1));
    }
    assert_eq!(
        gate.limits()[0].figures(),
        AdmissionFigures { max_in_flight: 1, in_flight: 1, ..Default::default() }
    );
    gate.leave(0, || at(1));
    assert_eq!(enter(&gate, Priority::Normal, at(1)), Entry::Admitted);
}

#[test]
fn a_lower_limit_drains_and_a_higher_one_admits_at_once() {
    let admission = Admission::new(2);
    let limit = admission.limit(bounds(100, 10));
    let gate = admission.gate([Arc::clone(&limit)]);
    (0..50).for_each(|_| assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted));
    limit.set_bounds(bounds(10, 10), at(1));
    let first = wait(&gate, Priority::Normal, at(1));
    let second = wait(&gate, Priority::Normal, at(1));
    (0..40).for_each(|_| gate.leave(0, || at(2)));
    assert_eq!(poll(&gate, &first, at(2)), Poll::Pending, "ten are left");
    gate.leave(0, || at(2));
    assert_eq!(poll(&gate, &first, at(2)), ADMITTED);
    assert_eq!(poll(&gate, &second, at(2)), Poll::Pending);
    limit.set_bounds(bounds(11, 10), at(3));
    assert_eq!(poll(&gate, &second, at(3)), ADMITTED);
    assert_eq!(limit.figures().in_flight, 11);
}

/// A configuration without the limit lives on with the requests that it has admitted.
#[test]
fn a_limit_that_nobody_has_is_forgotten_and_its_place_is_clean() {
    let admission = Admission::new(1);
    let gate = admission.gate([admission.limit(bounds(1, 1))]);
    assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted);
    let ticket = wait(&gate, Priority::Normal, at(0));
    gate.leave(0, || at(0));
    assert_eq!(poll(&gate, &ticket, at(0)), ADMITTED);
    drop(gate);
    let limit = admission.limit(bounds(1, 1));
    assert_eq!(limit.figures(), AdmissionFigures { max_in_flight: 1, ..Default::default() });
    let gate = admission.gate([limit]);
    assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted);
}

/// A configuration may lack the limit while requests of an earlier one are in flight.
#[test]
fn a_limit_is_known_by_its_name_for_as_long_as_anybody_has_it() {
    let admission = Admission::new(1);
    let gate = admission.gate([admission.named_limit("service/orders", bounds(1, 1))]);
    assert_eq!(enter(&gate, Priority::Normal, at(0)), Entry::Admitted);
    let again = admission.gate([admission.named_limit("service/orders", bounds(1, 1))]);
    assert_eq!(again.limits()[0].figures().in_flight, 1);
    let ticket = wait(&again, Priority::Normal, at(0));
    // The control: another name.
    let other = admission.gate([admission.named_limit("service/search", bounds(1, 1))]);
    assert_eq!(enter(&other, Priority::Normal, at(0)), Entry::Admitted);
    gate.leave(0, || at(1));
    assert_eq!(poll(&again, &ticket, at(1)), ADMITTED);
    drop((gate, again));
    assert_eq!(admission.named_limit("service/orders", bounds(1, 1)).figures().in_flight, 0);
}

/// Limits of the process, of two services and of a route, and the gates that routes have.
const LIMITS: usize = 4;
const GATES: [&[usize]; 5] = [&[0], &[1, 0], &[2, 0], &[3, 1, 0], &[2]];

#[derive(Debug, Clone)]
enum Step {
    Enter { gate: usize, worker: usize, priority: usize },
    Leave { which: usize, worker: usize },
    Abandon { which: usize, worker: usize },
    Poll { which: usize },
    Pass { milliseconds: u64 },
    Bounds { limit: usize, max_in_flight: u32, max_queue: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<usize>;
    prop_oneof![
        8 => (0..GATES.len(), 0..3_usize, 0..4_usize)
            .prop_map(|(gate, worker, priority)| Step::Enter { gate, worker, priority }),
        6 => (which(), 0..3_usize).prop_map(|(which, worker)| Step::Leave { which, worker }),
        1 => (which(), 0..3_usize).prop_map(|(which, worker)| Step::Abandon { which, worker }),
        1 => which().prop_map(|which| Step::Poll { which }),
        1 => (0..70_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
        1 => (0..LIMITS, 0..30_u32, 0..5_u32)
            .prop_map(|(limit, max_in_flight, max_queue)| Step::Bounds { limit, max_in_flight, max_queue }),
    ]
}

/// Who waits, as a list says it: in the order of arrival, and looked through from its beginning.
struct Model {
    bounds: [AdmissionBounds; LIMITS],
    used: [u32; LIMITS],
    waiters: Vec<Modelled>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Modelled {
    name: usize,
    gate: usize,
    priority: usize,
    since: u64,
}

impl Modelled {
    fn has_expired(&self, now: u64) -> bool {
        self.since + 100 <= now
    }
}

impl Model {
    fn has_room(&self, gate: usize) -> bool {
        GATES[gate].iter().all(|limit| self.used[*limit] < self.bounds[*limit].max_in_flight)
    }

    fn count(&mut self, gate: usize, change: i32) {
        GATES[gate]
            .iter()
            .for_each(|limit| self.used[*limit] = self.used[*limit].wrapping_add_signed(change));
    }

    fn is_full(&self, limit: usize) -> bool {
        let waiting = self.waiters.iter().filter(|waiter| GATES[waiter.gate].contains(&limit)).count();
        waiting >= self.bounds[limit].max_queue as usize
    }

    fn lowest(&self, limit: usize, priority: usize) -> Option<usize> {
        let lower = self.waiters.iter().enumerate();
        let lower = lower.filter(|(_, one)| one.priority > priority && GATES[one.gate].contains(&limit));
        lower.max_by_key(|(at, one)| (one.priority, *at)).map(|(at, _)| at)
    }

    /// The names of those that are admitted now.
    fn admit(&mut self, now: u64) -> Vec<usize> {
        let mut admitted = Vec::new();
        loop {
            let fits = |one: &&Modelled| self.has_room(one.gate) && !one.has_expired(now);
            let Some(one) = self.waiters.iter().filter(fits).min_by_key(|one| one.priority).copied() else {
                return admitted;
            };
            self.waiters.retain(|other| *other != one);
            self.count(one.gate, 1);
            admitted.push(one.name);
        }
    }

    /// What becomes of a request: `Ok(true)` if it is admitted, `Ok(false)` if it waits; and who makes room for it.
    fn enter(
        &mut self,
        gate: usize,
        priority: usize,
        name: usize,
        now: u64,
    ) -> (Result<bool, ()>, Vec<usize>) {
        if self.has_room(gate) {
            self.count(gate, 1);
            return (Ok(true), Vec::new());
        }
        if GATES[gate].iter().any(|limit| self.is_full(*limit)) {
            self.waiters.retain(|waiter| !waiter.has_expired(now));
        }
        if GATES[gate].iter().any(|limit| self.is_full(*limit) && self.lowest(*limit, priority).is_none()) {
            return (Err(()), Vec::new());
        }
        let mut displaced = Vec::new();
        for limit in GATES[gate] {
            if self.is_full(*limit)
                && let Some(at) = self.lowest(*limit, priority)
            {
                displaced.push(self.waiters.remove(at).name);
            }
        }
        self.waiters.push(Modelled { name, gate, priority, since: now });
        (Ok(false), displaced)
    }
}

struct Waiting {
    name: usize,
    gate: usize,
    since: u64,
    ticket: Ticket,
    flag: Arc<Flag>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn the_queue_does_what_a_list_does(
        workers in 1..4_usize,
        limits in proptest::array::uniform4((0..30_u32, 0..6_u32)),
        steps in vec(step(), 1..250),
    ) {
        let bounds = limits.map(|(max_in_flight, max_queue)| bounds(max_in_flight, max_queue));
        let admission = Admission::new(workers);
        let limits = bounds.map(|bounds| admission.limit(bounds));
        let gates = GATES.map(|gate| admission.gate(gate.iter().map(|limit| Arc::clone(&limits[*limit]))));
        let mut model = Model { bounds, used: [0; LIMITS], waiters: Vec::new() };
        let mut in_flight: Vec<usize> = Vec::new();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut now = 0;
        for (name, step) in steps.into_iter().enumerate() {
            let mut displaced = Vec::new();
            let mut may_admit = true;
            match step {
                Step::Enter { gate, worker, priority } => {
                    let flag = Arc::new(Flag::default());
                    let entry = gates[gate].enter(worker, || Arrival::new(Priority::ALL[priority], at(now)));
                    let (expected, out) = model.enter(gate, priority, name, now);
                    displaced = out;
                    match entry {
                        Entry::Admitted => {
                            prop_assert_eq!(expected, Ok(true));
                            in_flight.push(gate);
                        }
                        Entry::Waits(ticket) => {
                            prop_assert_eq!(expected, Ok(false));
                            let waker = Waker::from(Arc::clone(&flag));
                            prop_assert_eq!(gates[gate].poll(&ticket, at(now), &waker), Poll::Pending);
                            waiting.push(Waiting { name, gate, since: now, ticket, flag });
                        }
                        Entry::Refused(refusal) => {
                            prop_assert_eq!(refusal, AdmissionRefusal::QueueFull);
                            prop_assert_eq!(expected, Err(()));
                        }
                    }
                }
                Step::Leave { which, worker } if !in_flight.is_empty() => {
                    let gate = in_flight.swap_remove(which % in_flight.len());
                    model.count(gate, -1);
                    gates[gate].leave(worker, || at(now));
                }
                Step::Abandon { which, worker } if !waiting.is_empty() => {
                    let waiter = waiting.swap_remove(which % waiting.len());
                    model.waiters.retain(|modelled| modelled.name != waiter.name);
                    gates[waiter.gate].abandon(waiter.ticket, worker, at(now));
                }
                Step::Poll { which } if !waiting.is_empty() => {
                    let waiter = &waiting[which % waiting.len()];
                    // As if its time were up: whether it is, is found below.
                    waiter.flag.0.store(waiter.since + 100 <= now, SeqCst);
                    may_admit = false;
                }
                Step::Pass { milliseconds } => {
                    now += milliseconds;
                    may_admit = false;
                }
                Step::Bounds { limit, max_in_flight, max_queue } => {
                    model.bounds[limit] = self::bounds(max_in_flight, max_queue);
                    limits[limit].set_bounds(model.bounds[limit], at(now));
                }
                Step::Leave { .. } | Step::Abandon { .. } | Step::Poll { .. } => may_admit = false,
            }
            let admitted = if may_admit { model.admit(now) } else { Vec::new() };
            let mut at_rest = Vec::new();
            for waiter in waiting {
                let expected = if admitted.contains(&waiter.name) {
                    ADMITTED
                } else if displaced.contains(&waiter.name) {
                    DISPLACED
                } else if waiter.flag.0.load(SeqCst) {
                    prop_assert!(waiter.since + 100 <= now, "woken for nothing");
                    model.waiters.retain(|modelled| modelled.name != waiter.name);
                    EXPIRED
                } else {
                    at_rest.push(waiter);
                    continue;
                };
                prop_assert!(waiter.flag.0.load(SeqCst), "not woken");
                prop_assert_eq!(poll(&gates[waiter.gate], &waiter.ticket, at(now)), expected);
                if expected == ADMITTED {
                    in_flight.push(waiter.gate);
                }
            }
            waiting = at_rest;
            for (index, (limit, used)) in limits.iter().zip(model.used).enumerate() {
                let waits = waiting.iter().filter(|waiter| GATES[waiter.gate].contains(&index)).count();
                prop_assert_eq!(limit.figures().in_flight, used);
                prop_assert_eq!(limit.figures().waiting as usize, waits);
            }
        }
    }
}

/// Wakes a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A stretch of random numbers for a thread.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn end(counts: &[AtomicUsize]) {
    for count in counts {
        count.fetch_sub(1, SeqCst);
    }
}

/// Threads that come, wait, give up and go, as fast as they can.
fn rush(workers: usize, max: [u32; 2], max_queue: u32, patience: u64) {
    const THREADS: usize = 8;
    const REQUESTS: usize = 4_000;
    let admission = Admission::new(workers);
    let age = Duration::from_secs(3_600);
    let limits =
        max.map(|max| admission.limit(AdmissionBounds { max_in_flight: max, max_queue, max_age: age }));
    let wide = admission.gate([Arc::clone(&limits[1])]);
    let narrow = admission.gate(limits.each_ref().map(Arc::clone));
    let in_flight = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let [admitted, refused, gone] = [(); 3].map(|()| AtomicUsize::new(0));
    let together = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (wide, narrow, in_flight, together) = (&wide, &narrow, &in_flight, &together);
            let (admitted, refused, gone) = (&admitted, &refused, &gone);
            scope.spawn(move || {
                let waker = Waker::from(Arc::new(Unpark(thread::current())));
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1);
                let mut held = Vec::new();
                together.wait();
                for _ in 0..REQUESTS {
                    let is_narrow = random(&mut state).is_multiple_of(2);
                    let gate = if is_narrow { narrow } else { wide };
                    let priority = Priority::ALL[random(&mut state) as usize % 4];
                    let counts = if is_narrow { &in_flight[..] } else { &in_flight[1..] };
                    let entered = match gate.enter(number, || Arrival::new(priority, at(0))) {
                        Entry::Admitted => true,
                        Entry::Refused(_) => {
                            refused.fetch_add(1, SeqCst);
                            false
                        }
                        // Whoever waits while it holds something may wait for itself.
                        Entry::Waits(ticket)
                            if !held.is_empty() || random(&mut state).is_multiple_of(patience) =>
                        {
                            gone.fetch_add(1, SeqCst);
                            gate.abandon(ticket, number, at(0));
                            false
                        }
                        Entry::Waits(ticket) => loop {
                            match gate.poll(&ticket, at(0), &waker) {
                                Poll::Ready(Ok(())) => break true,
                                Poll::Ready(Err(_)) => {
                                    refused.fetch_add(1, SeqCst);
                                    break false;
                                }
                                Poll::Pending => thread::park(),
                            }
                        },
                    };
                    if entered {
                        admitted.fetch_add(1, SeqCst);
                        for (count, max) in counts.iter().rev().zip(max.iter().rev()) {
                            assert!(count.fetch_add(1, SeqCst) < *max as usize, "more than the limit");
                        }
                        held.push((gate, counts));
                    }
                    if held.len() > 3 || random(&mut state).is_multiple_of(2) {
                        for (gate, counts) in held.drain(..) {
                            end(counts);
                            gate.leave(number, || at(0));
                        }
                    }
                }
                for (gate, counts) in held {
                    end(counts);
                    gate.leave(number, || at(0));
                }
            });
        }
    });
    let outcomes = [admitted, refused, gone].map(|count| count.load(SeqCst));
    assert_eq!(outcomes.iter().sum::<usize>(), THREADS * REQUESTS, "{outcomes:?}");
    for (limit, max) in limits.iter().zip(max) {
        let expected = AdmissionFigures { max_in_flight: max, ..AdmissionFigures::default() };
        assert_eq!(limit.figures(), expected, "{outcomes:?}");
        // No permit was lost, and none was made.
        limit.set_bounds(bounds(max, 0), at(0));
    }
    for _ in 0..max[1] {
        assert_eq!(enter(&wide, Priority::Low, at(0)), Entry::Admitted);
    }
    assert_eq!(enter(&wide, Priority::Low, at(0)), Entry::Refused(AdmissionRefusal::QueueFull));
}

#[test]
fn threads_never_have_more_than_the_limit_and_lose_no_permit() {
    for (workers, max, max_queue, patience) in [
        (1, [1, 1], 100, 5),
        (2, [2, 3], 0, 5),
        (8, [3, 4], 100, u64::MAX),
        (8, [3, 4], 2, 3),
        (2, [6, 12], 100, 10),
        (4, [20, 28], 100, 10),
        (8, [40, 1_000], 3, 10),
        (3, [1_000, 1_000], 0, 10),
    ] {
        rush(workers, max, max_queue, patience);
    }
}

//! Puts adaptive limits in force, by the responses that all workers note.

use std::{
    fmt,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use cardea_clock::Mono;

use super::{
    AdmissionBounds, AdmissionLimit, Holding,
    gradient::{AdaptiveBounds, Gradient, Responses},
};

/// If a window lacks responses when its time is over, it is looked at again after this.
const AGAIN: Duration = Duration::from_millis(10);
/// A word counts responses above this bit, and adds up their times below it. The difference of two readings is exact for up to
/// 16 million responses and 39 hours of waiting.
const COUNT_BIT: u32 = 40;
/// Times are added up in units of 128 ns.
const TIME_SHIFT: u32 = 7;

/// The requests in flight that a limit admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxInFlight {
    /// So many.
    Fixed(u32),
    /// As many as the times of responses allow.
    Adaptive(AdaptiveBounds),
}

impl MaxInFlight {
    /// The least and the greatest limit: the same where it is fixed.
    #[must_use]
    pub const fn bounds(self) -> AdaptiveBounds {
        match self {
            Self::Fixed(limit) => AdaptiveBounds { floor: limit, ceiling: limit },
            Self::Adaptive(bounds) => bounds,
        }
    }
}

/// `200`, `8-1000 (adaptive)`.
impl fmt::Display for MaxInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(limit) => limit.fmt(f),
            Self::Adaptive(AdaptiveBounds { floor, ceiling }) => write!(f, "{floor}-{ceiling} (adaptive)"),
        }
    }
}

/// What a limit is configured to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Requests in flight.
    pub max_in_flight: MaxInFlight,
    /// Requests that wait; as many as may be in flight where `None`.
    pub max_queue: Option<u32>,
    /// How long a request waits at most.
    pub max_age: Duration,
}

impl AdmissionSettings {
    /// The bounds with the limit that is in force.
    #[must_use]
    pub fn bounds(&self, in_force: u32) -> AdmissionBounds {
        let max_queue = self.max_queue.unwrap_or(in_force);
        AdmissionBounds { max_in_flight: in_force, max_queue, max_age: self.max_age }
    }

    /// The bounds before anything is known of the service.
    #[must_use]
    pub fn initial(&self) -> AdmissionBounds {
        match self.max_in_flight {
            MaxInFlight::Fixed(limit) => self.bounds(limit),
            MaxInFlight::Adaptive(bounds) => self.bounds(Gradient::initial(bounds)),
        }
    }
}

/// An adaptive limit on the requests in flight.
pub struct AdaptiveLimit {
    /// Only the one that was last put in force changes the limit.
    id: u64,
    settings: AdmissionSettings,
    limit: Arc<AdmissionLimit>,
    workers: Box<[WorkerResponses]>,
    /// When the window begins and may end. Written once in a window.
    opens: AtomicU64,
    closes: AtomicU64,
    state: Mutex<State>,
}

/// What a worker has noted, by class. On cache lines that no other worker writes.
#[repr(align(128))]
struct WorkerResponses(Box<[Padded]>);

/// The words of up to sixteen classes.
#[derive(Default)]
#[repr(align(128))]
struct Padded([AtomicU64; Padded::CLASSES]);

impl Padded {
    const CLASSES: usize = 16;
}

impl WorkerResponses {
    fn new(classes: usize) -> Self {
        Self((0..classes.div_ceil(Padded::CLASSES)).map(|_| Padded::default()).collect())
    }

    fn of(&self, class: usize) -> Option<&AtomicU64> {
        self.0.get(class / Padded::CLASSES)?.0.get(class % Padded::CLASSES)
    }
}

struct State {
    gradient: Gradient,
    /// The sums of all workers when they were last read, by class.
    read: Vec<u64>,
    /// Of a reading, to be reused.
    responses: Vec<Responses>,
}

impl AdaptiveLimit {
    /// An adaptive limit for the responses of so many classes. It begins with the limit that is in force, if it goes on from
    /// another configuration. It has no effect before it is [enforced](Self::enforce).
    #[must_use]
    pub fn new(
        limit: Arc<AdmissionLimit>,
        settings: AdmissionSettings,
        classes: usize,
        in_force: Option<u32>,
        now: Mono,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let gradient = Gradient::new(settings.max_in_flight.bounds(), classes, in_force, now);
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            settings,
            workers: (0..limit.leases.workers()).map(|_| WorkerResponses::new(classes)).collect(),
            limit,
            opens: AtomicU64::new(gradient.opens().nanos()),
            closes: AtomicU64::new(gradient.closes().nanos()),
            state: Mutex::new(State {
                gradient,
                read: vec![0; classes],
                responses: vec![Responses::default(); classes],
            }),
        }
    }

    /// What it is configured to.
    #[must_use]
    pub const fn settings(&self) -> AdmissionSettings {
        self.settings
    }

    /// Puts the limit in force, in place of any other one.
    pub fn enforce(&self, now: Mono) {
        let bounds = self.settings.bounds(self.lock().gradient.limit());
        self.limit
            .shared
            .with(|queue, after| queue.set_bounds(self.limit.id, bounds, Some(self.id), now, after));
    }

    /// Notes how long the service took for a request, unless its client has more than its share while others lack permits.
    #[inline]
    pub fn note_of(&self, holding: &Holding, worker: usize, class: usize, took: Duration, now: Mono) {
        let percent = self.limit.shared.client_share.load(Relaxed);
        if !self.limit.shares.is_over(holding, percent) {
            self.note(worker, class, took, now);
        }
    }

    /// Notes how long the service took until a response of a class began.
    #[inline]
    pub fn note(&self, worker: usize, class: usize, took: Duration, now: Mono) {
        if now.nanos() < self.opens.load(Acquire) {
            return;
        }
        let responses =
            self.workers.get(worker).or_else(|| self.workers.get(worker % self.workers.len().max(1)));
        let Some(word) = responses.and_then(|responses| responses.of(class)) else { return };
        let units = u64::try_from(took.as_nanos() >> TIME_SHIFT).unwrap_or(0) & ((1 << COUNT_BIT) - 1);
        word.fetch_add((1 << COUNT_BIT) + units, Relaxed);
        if now.nanos() >= self.closes.load(Relaxed) {
            self.end_window(now);
        }
    }

    #[cold]
    fn end_window(&self, now: Mono) {
        // Another worker is at it.
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if now.nanos() < self.closes.load(Relaxed) {
            return;
        }
        self.read(&mut state);
        let gradient = &mut state.gradient;
        if !gradient.is_due(now) {
            self.closes.store(now.saturating_add(AGAIN).nanos(), Relaxed);
            return;
        }
        let limit = &self.limit;
        let before = gradient.limit();
        let usage = limit.shared.with(|queue, _| queue.take_usage(limit.id));
        gradient.end_window(usage, now);
        self.closes.store(gradient.closes().nanos(), Relaxed);
        self.opens.store(gradient.opens().nanos(), Release);
        let in_force = gradient.limit();
        if in_force != before {
            let bounds = self.settings.bounds(in_force);
            limit.shared.with(|queue, after| queue.adapt(limit.id, bounds, self.id, now, after));
        }
    }

    /// Reads what the workers have noted since the last reading.
    fn read(&self, state: &mut State) {
        let State { gradient, read, responses } = state;
        for (class, (read, new)) in read.iter_mut().zip(&mut *responses).enumerate() {
            let words = self.workers.iter().filter_map(|worker| worker.of(class));
            let sum = words.fold(0_u64, |sum, word| sum.wrapping_add(word.load(Relaxed)));
            let difference = sum.wrapping_sub(std::mem::replace(read, sum));
            new.count = difference >> COUNT_BIT;
            new.nanos = (difference & ((1 << COUNT_BIT) - 1)) << TIME_SHIFT;
        }
        gradient.add(responses);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for AdaptiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimit").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{
        super::{Admission, Arrival, Entry, Gate, Priority},
        *,
    };

    const START: Mono = Mono::from_nanos(1 << 40);

    fn settings(max_queue: Option<u32>) -> AdmissionSettings {
        let max_in_flight = MaxInFlight::Adaptive(AdaptiveBounds { floor: 4, ceiling: 100 });
        AdmissionSettings { max_in_flight, max_queue, max_age: Duration::from_secs(1) }
    }

    fn after(milliseconds: u64) -> Mono {
        START.saturating_add(Duration::from_millis(milliseconds))
    }

    fn fill(gate: &Gate) -> usize {
        (0..)
            .take_while(|_| gate.enter(0, || Arrival::new(Priority::Normal, START)) == Entry::Admitted)
            .count()
    }

    /// A window of 150 responses at the limit.
    fn window(limit: &AdaptiveLimit, from: u64) {
        for number in 0..150 {
            limit.note(number % 2, 0, Duration::from_millis(10), after(from + number as u64));
        }
    }

    #[test]
    fn responses_raise_a_limit_and_the_queue_with_it() {
        let admission = Admission::new(2);
        let limit = admission.limit(settings(None).initial());
        let gate = admission.gate([Arc::clone(&limit)]);
        let adaptive = AdaptiveLimit::new(Arc::clone(&limit), settings(None), 1, None, START);
        adaptive.enforce(START);
        assert_eq!(limit.figures().max_in_flight, 32);
        let ticket =
            (0..33).find_map(|_| match gate.enter(0, || Arrival::new(Priority::Normal, after(900))) {
                Entry::Waits(ticket) => Some(ticket),
                _ => None,
            });
        window(&adaptive, 100);
        assert_eq!(limit.figures().max_in_flight, 64);
        assert_eq!(
            gate.poll(&ticket.unwrap(), after(900), std::task::Waker::noop()),
            std::task::Poll::Ready(Ok(()))
        );
        assert_eq!(fill(&gate), 31);
        assert_eq!(limit.figures().waiting, 1);
    }

    /// Requests of an earlier configuration end later.
    #[test]
    fn a_limit_that_is_no_longer_in_force_changes_nothing() {
        let admission = Admission::new(2);
        let limit = admission.limit(settings(Some(0)).initial());
        let gate = admission.gate([Arc::clone(&limit)]);
        let adaptive =
            |in_force| AdaptiveLimit::new(Arc::clone(&limit), settings(Some(0)), 1, in_force, START);
        let former = adaptive(None);
        former.enforce(START);
        assert_eq!(fill(&gate), 32);
        let bounds = settings(Some(0)).bounds(10);
        limit.set_bounds(bounds, START);
        window(&former, 100);
        assert_eq!(limit.figures().max_in_flight, 10);
        let next = adaptive(Some(limit.figures().max_in_flight));
        next.enforce(START);
        window(&former, 400);
        assert_eq!(limit.figures().max_in_flight, 10);
        former.enforce(START);
        assert_eq!(limit.figures().max_in_flight, 64, "what it has learned meanwhile");
    }

    #[test]
    fn all_responses_of_all_threads_are_read_once() {
        const EACH: u64 = 20_000;
        let admission = Admission::new(3);
        let limit = admission.limit(settings(None).initial());
        let adaptive = AdaptiveLimit::new(limit, settings(None), 40, None, START);
        thread::scope(|scope| {
            for worker in 0..4 {
                let adaptive = &adaptive;
                scope.spawn(move || {
                    for number in 0..EACH {
                        // Long enough that the sums of times exceed 32 bits.
                        let class = number as usize % 40;
                        adaptive.note(worker, class, Duration::from_secs(5), after(1));
                    }
                });
            }
        });
        let mut state = adaptive.lock();
        adaptive.read(&mut state);
        for responses in &state.responses {
            let count = 4 * EACH / 40;
            assert_eq!(responses.count, count);
            let expected = count * 5_000_000_000;
            assert!(responses.nanos <= expected && expected - responses.nanos <= count << TIME_SHIFT);
        }
        adaptive.read(&mut state);
        assert!(state.responses.iter().all(|responses| *responses == Responses::default()));
    }
}

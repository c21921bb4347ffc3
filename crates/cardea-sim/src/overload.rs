//! A gateway before a service that gets more requests than it can serve: what admission leaves of its capacity.
//!
//! The queue and the adaptive limit are those of the gateway. Requests arrive whatever becomes of earlier ones. The service
//! processes all it gets in order, also what nobody waits for any more.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use cardea_clock::Mono;
use cardea_guard::{
    AdaptiveBounds, AdaptiveLimit, Admission, AdmissionBounds, AdmissionLimit, AdmissionSettings, Arrival,
    Cohort, Entry, Gate, MaxInFlight, Priority, Ticket,
};

use crate::events::Events;
use crate::random::Random;
use crate::server::{Begun, Job, Server};
use crate::world::Work;

/// How finely goodput is counted.
const BUCKET: u64 = 100_000_000;
/// How many buckets a gateway has to follow a change.
const RECOVERY: usize = 20;
/// Who sends requests, each as often as the others.
const CALLERS: usize = 1_000;
/// The shares of priorities among the callers, from the highest on.
const SHARES: [f64; 4] = [0.05, 0.15, 0.5, 0.3];

/// How requests are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiting {
    /// Not at all.
    Nothing,
    /// To a number in flight, and as many that wait.
    Fixed(u32),
    /// By the time of responses.
    Adaptive,
    /// The same, and the least important callers are refused.
    Shedding,
}

impl Limiting {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Nothing => "no limit".to_owned(),
            Self::Fixed(limit) => format!("fixed at {limit}"),
            Self::Adaptive => "adaptive".to_owned(),
            Self::Shedding => "adaptive, sheds callers".to_owned(),
        }
    }
}

/// What happens to the service or the load.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// It has so many slots.
    Slots(usize),
    /// It has this speed.
    Speed(f64),
    /// Requests arrive at this multiple of its first capacity.
    Load(f64),
}

/// A service, its load, and what happens.
#[derive(Clone, Debug)]
pub struct Overload {
    /// Requests that the service processes at once.
    pub slots: usize,
    /// What a request takes.
    pub work: Work,
    /// How many times the capacity arrives.
    pub load: f64,
    /// In the order of time.
    pub changes: Vec<(Duration, Change)>,
    /// How long it lasts.
    pub lasts: Duration,
    /// From then on, losses and times are counted.
    pub warm_up: Duration,
    /// How long clients wait for a response.
    pub patience: Duration,
    /// How long requests wait in the gateway.
    pub max_age: Duration,
    /// The source of all chance.
    pub seed: u64,
}

/// What became of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Responses in time, as a share of what the service could serve of what arrived.
    pub goodput: f64,
    /// Milliseconds that the slowest hundredth of responses took.
    pub served_p99_ms: f64,
    /// Milliseconds that the slowest hundredth of refusals took.
    pub refused_p99_ms: f64,
    /// The share of requests without a response in time, by priority.
    pub lost: [f64; 4],
    /// Goodput from two seconds after each change to the next one, as a share of what the service could serve then.
    pub recovered: Vec<f64>,
    /// The share of callers that lost less than a tenth of their requests.
    pub unharmed: f64,
    /// The least and the greatest limit after the warm-up.
    pub limits: (u32, u32),
}

enum Event {
    Arrival,
    Deadline { request: usize },
    Done { begun: Begun },
    Change { index: usize },
    Sample,
}

struct Request {
    priority: Priority,
    caller: usize,
    arrived: u64,
    sent: u64,
    ticket: Option<Ticket>,
}

/// Puts a request that is woken on a list.
struct Wakes {
    request: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.request);
    }
}

struct Engine<'a> {
    world: &'a Overload,
    now: u64,
    events: Events<Event>,
    random: Random,
    load: f64,
    server: Server,
    requests: Vec<Request>,
    gate: Option<Arc<Gate>>,
    limit: Option<Arc<AdmissionLimit>>,
    adaptive: Option<AdaptiveLimit>,
    woken: Arc<Mutex<Vec<usize>>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    /// Responses in time, by bucket.
    good: Vec<f64>,
    /// What could be served, by bucket.
    possible: Vec<f64>,
    served: Vec<u64>,
    refused: Vec<u64>,
    arrived: [f64; 4],
    good_of: [f64; 4],
    /// Requests and responses in time, by caller.
    callers: Vec<(f64, f64)>,
    limits: Option<(u32, u32)>,
}

/// Runs `world` under a limit.
#[must_use]
pub fn run(world: &Overload, limiting: Limiting) -> Outcome {
    let mut engine = Engine::new(world, limiting);
    engine.events.add(1, Event::Arrival);
    engine.events.add(BUCKET, Event::Sample);
    for (index, (at, _)) in world.changes.iter().enumerate() {
        engine.events.add(nanos(*at), Event::Change { index });
    }
    while let Some((at, event)) = engine.events.pop() {
        engine.now = at;
        engine.handle(event);
        engine.poll_woken();
    }
    engine.outcome()
}

impl<'a> Engine<'a> {
    fn new(world: &'a Overload, limiting: Limiting) -> Self {
        let admission = Admission::new(2);
        let bounds = |max| AdmissionBounds { max_in_flight: max, max_queue: max, max_age: world.max_age };
        let limit = match limiting {
            Limiting::Nothing => None,
            Limiting::Fixed(limit) => Some(admission.limit(bounds(limit))),
            Limiting::Adaptive | Limiting::Shedding => Some(admission.limit(bounds(0))),
        };
        admission.set_shedding(limiting == Limiting::Shedding);
        let is_adaptive = matches!(limiting, Limiting::Adaptive | Limiting::Shedding);
        let adaptive = limit.as_ref().filter(|_| is_adaptive).map(|limit| {
            let max_in_flight = MaxInFlight::Adaptive(AdaptiveBounds { floor: 8, ceiling: 10_000 });
            let settings = AdmissionSettings { max_in_flight, max_queue: None, max_age: world.max_age };
            let adaptive = AdaptiveLimit::new(Arc::clone(limit), settings, 1, None, mono(1));
            adaptive.enforce(mono(1));
            adaptive
        });
        Self {
            world,
            now: 0,
            events: Events::new(),
            random: Random::part(world.seed, 1),
            load: world.load,
            server: Server::new(0, world.slots, 1.0, usize::MAX),
            requests: Vec::new(),
            gate: limit.as_ref().map(|limit| admission.gate([Arc::clone(limit)])),
            limit,
            adaptive,
            woken: Arc::default(),
            counts: Counts { callers: vec![(0.0, 0.0); CALLERS], ..Counts::default() },
        }
    }

    /// Requests per second that the service can serve.
    fn capacity(&self) -> f64 {
        self.server.slots as f64 * self.server.speed() / self.world.work.mean().as_secs_f64()
    }

    fn offered(&self) -> f64 {
        self.load * self.world.slots as f64 / self.world.work.mean().as_secs_f64()
    }

    fn is_counted(&self, arrived: u64) -> bool {
        arrived >= nanos(self.world.warm_up)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival => self.arrive(),
            Event::Deadline { request } => self.poll(request),
            Event::Done { begun } => self.done(begun),
            Event::Change { index } => self.change(index),
            Event::Sample => self.sample(),
        }
    }

    fn arrive(&mut self) {
        let next = self.now + self.random.exponential(1e9 / self.offered()) as u64;
        if next < nanos(self.world.lasts) {
            self.events.add(next, Event::Arrival);
        }
        let caller = self.random.below(CALLERS);
        let mut draw = caller as f64 / CALLERS as f64;
        let class = SHARES.iter().position(|share| {
            draw -= share;
            draw < 0.0
        });
        let priority = Priority::ALL[class.unwrap_or(2)];
        let request = self.requests.len();
        self.requests.push(Request { priority, caller, arrived: self.now, sent: 0, ticket: None });
        if self.is_counted(self.now) {
            self.counts.arrived[priority as usize] += 1.0;
            self.counts.callers[caller].0 += 1.0;
        }
        let now = mono(self.now);
        // Of the seed alone.
        let cohort = Cohort::of((caller as u64).wrapping_mul(0xA24B_AED4_963E_E407), now);
        match self
            .gate
            .as_ref()
            .map(|gate| gate.enter(request % 2, || Arrival { cohort, ..Arrival::new(priority, now) }))
        {
            None | Some(Entry::Admitted) => self.send(request),
            Some(Entry::Refused(_)) => self.refused(request),
            Some(Entry::Waits(ticket)) => {
                self.requests[request].ticket = Some(ticket);
                self.poll(request);
            }
        }
    }

    fn poll_woken(&mut self) {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
            if woken.is_empty() {
                return;
            }
            woken.into_iter().for_each(|request| self.poll(request));
        }
    }

    fn poll(&mut self, request: usize) {
        let (Some(gate), Some(ticket)) = (&self.gate, &self.requests[request].ticket) else { return };
        let waker = Waker::from(Arc::new(Wakes { request, woken: Arc::clone(&self.woken) }));
        match gate.poll(ticket, mono(self.now), &waker) {
            Poll::Pending => {
                let at = gate.deadline(ticket).nanos();
                self.events.add(at, Event::Deadline { request });
            }
            Poll::Ready(admitted) => {
                self.requests[request].ticket = None;
                if admitted.is_ok() { self.send(request) } else { self.refused(request) }
            }
        }
    }

    fn refused(&mut self, request: usize) {
        let arrived = self.requests[request].arrived;
        if self.is_counted(arrived) {
            self.counts.refused.push(self.now - arrived);
        }
    }

    fn send(&mut self, request: usize) {
        self.requests[request].sent = self.now;
        let work = self.world.work.draw(&mut self.random);
        let job = Job { request, attempt: 0, work, came: (0, 0) };
        if let Ok(begun) = self.server.arrive(self.now, job) {
            self.begun(begun);
        }
    }

    fn begun(&mut self, begun: impl IntoIterator<Item = Begun>) {
        for begun in begun {
            self.events.add(begun.done, Event::Done { begun });
        }
    }

    fn done(&mut self, begun: Begun) {
        let Some(next) = self.server.done(self.now, begun) else { return };
        self.begun(next);
        let Request { priority, caller, arrived, sent, .. } = self.requests[begun.job.request];
        let took = self.now - arrived;
        if took <= nanos(self.world.patience) {
            let bucket = (self.now / BUCKET) as usize;
            self.counts.good.resize(self.counts.good.len().max(bucket + 1), 0.0);
            self.counts.good[bucket] += 1.0;
            if self.is_counted(arrived) {
                self.counts.good_of[priority as usize] += 1.0;
                self.counts.callers[caller].1 += 1.0;
                self.counts.served.push(took);
            }
        }
        if let Some(adaptive) = &self.adaptive {
            let time = Duration::from_nanos(self.now - sent);
            adaptive.note(begun.job.request % 2, 0, time, mono(self.now));
        }
        if let Some(gate) = &self.gate {
            gate.leave(begun.job.request % 2, || mono(self.now));
        }
    }

    fn change(&mut self, index: usize) {
        match self.world.changes[index].1 {
            Change::Slots(slots) => {
                let begun = self.server.set_slots(self.now, slots);
                self.begun(begun);
            }
            Change::Speed(speed) => self.server.slowdown = speed,
            Change::Load(load) => self.load = load,
        }
    }

    /// A bucket has ended.
    fn sample(&mut self) {
        let possible = self.capacity().min(self.offered()) * BUCKET as f64 / 1e9;
        self.counts.possible.push(possible);
        if let Some(limit) = self.limit.as_ref().filter(|_| self.is_counted(self.now)) {
            let now = limit.figures().max_in_flight;
            let (least, most) = self.counts.limits.unwrap_or((now, now));
            self.counts.limits = Some((least.min(now), most.max(now)));
        }
        if self.now + BUCKET <= nanos(self.world.lasts) {
            self.events.add(self.now + BUCKET, Event::Sample);
        }
    }

    fn outcome(mut self) -> Outcome {
        let Counts { good, possible, served, refused, arrived, good_of, callers, limits } = &mut self.counts;
        good.resize(possible.len().max(good.len()), 0.0);
        let first = (nanos(self.world.warm_up) / BUCKET) as usize;
        let sum =
            |of: &[f64], from: usize, to: usize| of[from.min(of.len())..to.min(of.len())].iter().sum::<f64>();
        let end = possible.len();
        let changes = self.world.changes.iter().map(|(at, _)| (nanos(*at) / BUCKET) as usize);
        let ends = changes.clone().skip(1).chain([end]);
        let recovered = changes.zip(ends).map(|(at, next)| {
            let from = at + RECOVERY;
            sum(good, from, next) / sum(possible, from, next)
        });
        let recovered = recovered.collect();
        let lost = |class: usize| 1.0 - good_of[class] / arrived[class].max(1.0);
        let is_unharmed = |(asked, got): &&(f64, f64)| *got >= asked * 0.9;
        let unharmed = callers.iter().filter(is_unharmed).count() as f64 / CALLERS as f64;
        Outcome {
            unharmed,
            goodput: sum(good, first, end) / sum(possible, first, end),
            recovered,
            served_p99_ms: p99_ms(served),
            refused_p99_ms: p99_ms(refused),
            lost: [0, 1, 2, 3].map(lost),
            limits: limits.unwrap_or_default(),
        }
    }
}

fn p99_ms(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times.get(times.len() * 99 / 100).map_or(0.0, |time| *time as f64 / 1e6)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn mono(nanos: u64) -> Mono {
    Mono::from_nanos(nanos)
}

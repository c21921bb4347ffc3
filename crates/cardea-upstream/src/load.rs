//! The load of an endpoint: requests in flight, response times and errors, counted by worker and compared by all.
//!
//! A request writes the figures of its own worker alone. Where workers compare endpoints they use figures that one of
//! them has summed up a moment ago, corrected by what their own worker has begun and ended since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use cardea_clock::Mono;

use crate::window::SlidingCount;

/// How old the figures may be that workers share, of an endpoint that many requests look at.
const PUBLISH_EVERY: Duration = Duration::from_millis(10);
/// The same of any endpoint.
const PUBLISH_EVERY_MAX: Duration = Duration::from_millis(100);
/// So many looks of all workers together pay for summing up before [`PUBLISH_EVERY_MAX`], which reads a cache line of each
/// worker.
const LOOKS: usize = 64;
/// So few workers are summed up at no cost.
const WORKERS_FEW: usize = 4;

/// In which time a response time loses all but a third of its weight.
const DECAY: Duration = Duration::from_secs(5);

/// The least weight of a request in the share of errors, so that a burst within an instant counts.
const ERROR_WEIGHT_MIN: f32 = 1.0 / 256.0;

/// What an error costs, in seconds, and in response times where these are long. It stands for the second try, and for
/// the risk of the next.
const ERROR_SECONDS: f32 = 1.0;
const ERROR_RESPONSES: f32 = 5.0;

/// Below this, response times are not told apart, in seconds: what differs there is noise.
const LATENCY_MIN: f32 = 50e-6;

/// What a worker counts, on cache lines of its own: two, as processors fetch them in pairs. What is summed up is in the
/// first.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct WorkerLoad {
    in_flight: AtomicUsize,
    /// When the two below were last written, in nanoseconds of [`Mono`]; 0: never.
    sampled: AtomicU64,
    /// The moving average of response times that follows a peak at once, in seconds: the bits of an `f32`.
    latency: AtomicU32,
    /// The share of errors, from 0 to 1: the bits of an `f32`.
    errors: AtomicU32,
    /// The published figures that this worker saw last, by the low half of their time, and its requests in flight then.
    seen: AtomicU64,
    /// How often it has looked at these figures.
    looks: AtomicUsize,
    requests: AtomicU64,
    connecting: AtomicUsize,
    /// Attempts that came to an end, well or not.
    ended: SlidingCount,
}

/// What workers share: written a hundred times a second at most, and only while requests look at it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Published {
    /// In nanoseconds of [`Mono`]; 0: never.
    at: AtomicU64,
    in_flight: AtomicUsize,
    /// In seconds, errors included: the bits of an `f32`.
    latency: AtomicU32,
    /// How much that says, from 0 (nothing was heard for long) to 1: the bits of an `f32`.
    confidence: AtomicU32,
}

/// What is known of the load of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Requests there, those included that wait for a connection.
    pub(crate) in_flight: f32,
    /// How long a response takes, in seconds, with what errors cost.
    pub(crate) latency: f32,
    /// How much the latency says, from 0 to 1.
    pub(crate) confidence: f32,
}

/// The load of one endpoint.
#[derive(Debug)]
pub(crate) struct Load {
    workers: Box<[Arc<WorkerLoad>]>,
    published: Published,
}

impl Load {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers.max(1)).map(|_| Arc::default()).collect(),
            published: Published::default(),
        }
    }

    fn worker(&self, worker: usize) -> &Arc<WorkerLoad> {
        // There is at least one.
        &self.workers[worker % self.workers.len()]
    }

    pub(crate) fn begin(&self, worker: usize) -> InFlight {
        let load = Arc::clone(self.worker(worker));
        load.requests.fetch_add(1, Relaxed);
        load.in_flight.fetch_add(1, Relaxed);
        InFlight { load }
    }

    pub(crate) fn connecting(&self, worker: usize) -> Connecting {
        let load = Arc::clone(self.worker(worker));
        load.connecting.fetch_add(1, Relaxed);
        Connecting { load }
    }

    /// Notes how long `worker` waited for a response, or for an error.
    pub(crate) fn sample(&self, worker: usize, now: Mono, latency: Duration, error: bool) {
        let load = self.worker(worker);
        let taken = latency.as_secs_f32().max(LATENCY_MIN);
        let error_now = f32::from(u8::from(error));
        let last = load.sampled.load(Relaxed);
        let (latency, errors) = if last == 0 {
            (taken, error_now)
        } else {
            let kept = kept(now.saturating_since(Mono::from_nanos(last)));
            let average = read(&load.latency);
            // A quick error says nothing good of the time that responses take.
            let lower = if error { average } else { average * kept + taken * (1.0 - kept) };
            let errors = read(&load.errors);
            (taken.max(lower), errors + (error_now - errors) * (1.0 - kept).max(ERROR_WEIGHT_MIN))
        };
        write(&load.latency, latency);
        write(&load.errors, errors);
        load.sampled.store(now.nanos().max(1), Relaxed);
    }

    /// Counts an attempt that came to its end, for the share of failures in `window`.
    pub(crate) fn ended(&self, worker: usize, now: Mono, window: Duration) {
        self.worker(worker).ended.add(now, window);
    }

    /// How many attempts came to their end within `window`.
    pub(crate) fn ended_within(&self, now: Mono, window: Duration) -> f64 {
        self.workers.iter().map(|load| load.ended.sum(now, window)).sum()
    }

    /// Forgets response times and errors, which say nothing of an endpoint that was away.
    pub(crate) fn forget(&self) {
        for load in &self.workers {
            load.sampled.store(0, Relaxed);
        }
        write(&self.published.confidence, 0.0);
    }

    /// The load as `worker` sees it.
    pub(crate) fn estimate(&self, worker: usize, now: Mono) -> Estimate {
        let published = &self.published;
        let at = published.at.load(Relaxed);
        // Of several workers that notice, one sums up.
        if self.is_due(worker, at, now)
            && published.at.compare_exchange(at, now.nanos().max(1), Relaxed, Relaxed).is_ok()
        {
            self.publish(now);
        }
        Estimate {
            in_flight: self.in_flight_for(worker) as f32,
            latency: read(&published.latency),
            confidence: read(&published.confidence),
        }
    }

    fn is_due(&self, worker: usize, at: u64, now: Mono) -> bool {
        let age = now.saturating_since(Mono::from_nanos(at));
        if at == 0 || age >= PUBLISH_EVERY_MAX {
            return true;
        }
        let workers = self.workers.len();
        let looks = self.worker(worker).looks.load(Relaxed) * workers;
        age >= PUBLISH_EVERY && (workers <= WORKERS_FEW || looks >= LOOKS)
    }

    /// Requests in flight: those of `worker` now, those of the others when they were last summed up.
    fn in_flight_for(&self, worker: usize) -> usize {
        let load = self.worker(worker);
        let own = load.in_flight.load(Relaxed);
        if self.workers.len() == 1 {
            return own;
        }
        let tag = self.published.at.load(Relaxed) & HALF;
        let seen = load.seen.load(Relaxed);
        let own_then = if seen >> 32 == tag {
            load.looks.store(load.looks.load(Relaxed) + 1, Relaxed);
            seen & HALF
        } else {
            load.seen.store(tag << 32 | (own as u64 & HALF), Relaxed);
            load.looks.store(1, Relaxed);
            own as u64
        };
        let others = self.published.in_flight.load(Relaxed) as u64;
        usize::try_from(others.saturating_sub(own_then)).unwrap_or(0) + own
    }

    fn publish(&self, now: Mono) {
        let (latency, confidence) = self.combined(now);
        if confidence > 0.0 {
            write(&self.published.latency, latency);
        }
        write(&self.published.confidence, confidence);
        self.published.in_flight.store(self.in_flight(), Relaxed);
    }

    /// The response time of all workers, errors included, in seconds, and how much it says.
    fn combined(&self, now: Mono) -> (f32, f32) {
        let (mut sum, mut weights) = (0.0, 0.0_f32);
        for load in &self.workers {
            let sampled = load.sampled.load(Relaxed);
            if sampled != 0 {
                let weight = kept(now.saturating_since(Mono::from_nanos(sampled)));
                let latency = read(&load.latency);
                sum += weight * (latency + read(&load.errors) * ERROR_SECONDS.max(ERROR_RESPONSES * latency));
                weights += weight;
            }
        }
        if weights > 0.0 { (sum / weights, weights.min(1.0)) } else { (0.0, 0.0) }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.workers.iter().map(|load| load.in_flight.load(Relaxed)).sum()
    }

    pub(crate) fn connects_pending(&self) -> usize {
        self.workers.iter().map(|load| load.connecting.load(Relaxed)).sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.workers.iter().map(|load| load.requests.load(Relaxed)).sum()
    }

    /// The response time at the time of the last response, errors included; none before the first.
    pub(crate) fn latency(&self) -> Option<Duration> {
        let last =
            self.workers.iter().map(|load| load.sampled.load(Relaxed)).max().filter(|last| *last != 0)?;
        Duration::try_from_secs_f32(self.combined(Mono::from_nanos(last)).0).ok()
    }
}

/// The low half of a number of 64 bits.
const HALF: u64 = 0xFFFF_FFFF;

/// How much of its weight something keeps after `age`.
fn kept(age: Duration) -> f32 {
    (-age.as_secs_f32() / DECAY.as_secs_f32()).exp()
}

fn read(bits: &AtomicU32) -> f32 {
    f32::from_bits(bits.load(Relaxed))
}

fn write(bits: &AtomicU32, value: f32) {
    bits.store(value.to_bits(), Relaxed);
}

/// A request that is at an endpoint, or waits for a connection to it; dropped when its exchange ends.
#[derive(Debug)]
#[must_use = "the request counts as long as this lives"]
pub struct InFlight {
    /// Whose count it is in, wherever it is dropped.
    load: Arc<WorkerLoad>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Relaxed);
    }
}

/// A connection to an endpoint that is being made; dropped when it is made, or has failed.
#[derive(Debug)]
#[must_use = "the connection counts as pending as long as this lives"]
pub struct Connecting {
    load: Arc<WorkerLoad>,
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.load.connecting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn seconds_of(load: &Load, now: Mono) -> f32 {
        load.estimate(0, now).latency
    }

    fn near(one: f32, other: f32) -> bool {
        (one - other).abs() <= other.abs() * 0.01
    }

    #[test]
    fn a_peak_counts_at_once_and_fades() {
        let load = Load::new(1);
        assert_eq!(load.estimate(0, at(0)), Estimate { in_flight: 0.0, latency: 0.0, confidence: 0.0 });
        load.sample(0, at(100), millis(10), false);
        assert!(near(seconds_of(&load, at(100)), 0.01));
        load.sample(0, at(200), millis(500), false);
        assert!(near(seconds_of(&load, at(200)), 0.5));
        load.sample(0, at(5_200), millis(10), false);
        let faded = seconds_of(&load, at(5_200));
        assert!(near(faded, 0.01 + 0.49 / std::f32::consts::E), "{faded}");
    }

    #[test]
    fn a_quick_error_makes_an_endpoint_dear() {
        let (good, bad) = (Load::new(1), Load::new(1));
        for now in (100..1_000).step_by(10) {
            good.sample(0, at(now), millis(20), false);
            bad.sample(0, at(now), if now == 500 { millis(1) } else { millis(20) }, now == 500);
        }
        let (good, bad) = (seconds_of(&good, at(1_000)), seconds_of(&bad, at(1_000)));
        assert!(bad > good + 0.002, "one error of ninety: {bad} {good}");
        let failing = Load::new(1);
        failing.sample(0, at(100), millis(1), true);
        assert!(seconds_of(&failing, at(100)) > 1.0);
        let slow = Load::new(1);
        slow.sample(0, at(100), millis(2_000), true);
        assert!(seconds_of(&slow, at(100)) >= 12.0);
    }

    #[test]
    fn old_response_times_lose_confidence_and_forgotten_ones_have_none() {
        let load = Load::new(1);
        load.sample(0, at(100), millis(10), false);
        assert!(near(load.estimate(0, at(100)).confidence, 1.0));
        let later = load.estimate(0, at(50_100));
        assert!(later.confidence < 0.001 && near(later.latency, 0.01));
        load.sample(0, at(50_100), millis(10), false);
        load.forget();
        assert!(load.estimate(0, at(50_200)).confidence.abs() < f32::EPSILON);
        assert_eq!(load.latency(), None);
    }

    #[test]
    fn workers_see_their_own_requests_at_once_and_the_others_soon() {
        let load = Load::new(3);
        let in_flight = |worker, now| load.estimate(worker, at(now)).in_flight as usize;
        assert_eq!((in_flight(0, 1), in_flight(1, 1)), (0, 0));
        let mut held: Vec<_> = (0..5).map(|_| load.begin(0)).collect();
        assert_eq!((in_flight(0, 2), in_flight(1, 2)), (5, 0));
        assert_eq!((in_flight(1, 12), in_flight(0, 12), in_flight(2, 12)), (5, 5, 5));
        held.truncate(2);
        held.push(load.begin(1));
        assert_eq!((in_flight(0, 13), in_flight(1, 13), in_flight(2, 13)), (2, 6, 5));
        assert_eq!((in_flight(2, 30), in_flight(1, 30), in_flight(0, 30)), (3, 3, 3));
        assert_eq!((load.in_flight(), load.requests()), (3, 6));
    }

    #[test]
    fn many_workers_are_summed_up_as_often_as_it_pays() {
        let load = Load::new(64);
        let _held = load.begin(1);
        assert_eq!(load.estimate(0, at(1)).in_flight as usize, 1);
        let _another = load.begin(1);
        assert_eq!(load.estimate(0, at(9)).in_flight as usize, 1);
        assert_eq!(load.estimate(0, at(12)).in_flight as usize, 2, "one look of each of 64 workers");
        let quiet = Load::new(8);
        assert_eq!(quiet.estimate(0, at(1)).in_flight as usize, 0);
        let _held = quiet.begin(1);
        let sees = |now| quiet.estimate(0, at(now)).in_flight as usize;
        assert_eq!([sees(20), sees(30), sees(100), sees(101)], [0, 0, 0, 1]);
    }

    #[test]
    fn response_times_of_all_workers_count() {
        let load = Load::new(2);
        load.sample(0, at(100), millis(10), false);
        load.sample(1, at(100), millis(30), false);
        assert!(near(load.latency().unwrap().as_secs_f32(), 0.02), "whether they are compared or not");
        assert!(near(seconds_of(&load, at(100)), 0.02));
    }
}

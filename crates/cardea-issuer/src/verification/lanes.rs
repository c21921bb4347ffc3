//! Batches of PBKDF2 jobs that share SIMD lanes.

use std::{num::NonZeroU32, thread, time::Duration};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use cardea_clock::Stopwatch;
use cardea_kdf::{
    Engine, Error, Job, Kernel, Prf,
    stored::{Target, check_secret},
};
use tokio::sync::oneshot;

use super::{queue::Work, stats::Counters};

/// How the result of a job is used. The receiver may be gone.
enum JobReply {
    Verify { expected: Vec<u8>, answer: oneshot::Sender<bool> },
    Hash { target: Target, salt: [u8; 16], answer: oneshot::Sender<Option<String>> },
}

impl JobReply {
    fn answer(self, derived: Result<&[u8], Error>) {
        match self {
            Self::Verify { expected, answer } => {
                let equal = derived.is_ok_and(|derived| verify_slices_are_equal(derived, &expected).is_ok());
                let _ = answer.send(equal);
            }
            Self::Hash { target, salt, answer } => {
                let _ = answer.send(derived.ok().map(|derived| target.text(&salt, derived)));
            }
        }
    }
}

/// The thread yields after this many iterations: 12 µs or less with full lanes. With 128 the 99th percentile of proxied
/// requests was 46 µs higher during a flood of wrong secrets.
const STEP: NonZeroU32 = NonZeroU32::new(32).unwrap();

/// The share of a busy processor that hashes keep: an eighth of the time that other threads had.
const SHARE: u32 = 8;

/// How far the thread may be ahead of its share before it keeps the processor: time it ran without being delayed counts
/// for this long at the most.
const CREDIT: Duration = Duration::from_millis(10);

/// Runs the jobs that `source` returns until it has none. It waits for nothing: a single job runs at once, and jobs that
/// arrive meanwhile share its lanes.
pub(super) fn run_lanes(prf: Prf, source: impl FnMut() -> Option<Work>, counters: &Counters) {
    run_with_pauses(prf, source, counters, || true);
}

/// Like [`run_lanes`], but calls `pause` before each step of 32 iterations. `pause` may run other jobs. If it returns false,
/// unfinished jobs are dropped.
pub(super) fn run_with_pauses(
    prf: Prf,
    mut source: impl FnMut() -> Option<Work>,
    counters: &Counters,
    mut pause: impl FnMut() -> bool,
) {
    let mut engine = Engine::new(prf).with_step(STEP);
    let mut yields = YieldPolicy::new();
    let mut jobs = 0;
    let mut take = || {
        let job = source().and_then(|work| job(prf, work, counters))?;
        jobs += 1;
        Some(job)
    };
    while pause() && engine.step(&mut take, &mut JobReply::answer) {
        counters.lane_step(engine.lanes(), engine.filled());
        yields.step();
    }
    counters.lane_run(jobs);
}

fn job(prf: Prf, work: Work, counters: &Counters) -> Option<Job<JobReply>> {
    match work {
        Work::Verify { stored, secret, answer, .. } => {
            let lane_job = stored.lane_job()?;
            counters.hashed(stored.algorithm());
            Some(Job {
                schedule: secret.schedule(prf),
                salt: lane_job.salt.into(),
                iterations: lane_job.iterations,
                output_len: lane_job.expected.len(),
                tag: JobReply::Verify { expected: lane_job.expected.to_vec(), answer },
            })
        }
        Work::Hash { target, salt, secret, answer } => {
            if check_secret(secret.as_bytes()).is_err() {
                let _ = answer.send(None);
                return None;
            }
            counters.made();
            target.job(&secret, &salt, JobReply::Hash { target, salt, answer }).ok()
        }
    }
}

/// When a hash thread yields the processor to the threads that serve requests.
///
/// Without yields the kernel would let a hash run for milliseconds, and a request that becomes ready meanwhile would wait
/// as long. So the thread yields after each step, which costs next to nothing on an idle processor. On a busy one, each
/// yield may cost a whole time slice (since Linux 6.18 a yield forfeits the slice), and steps of microseconds between
/// slices of milliseconds would make no progress. So the thread then keeps the processor for a share of the time that it
/// was delayed, if it ran for less than that share lately.
struct YieldPolicy {
    stopwatch: Stopwatch,
    /// The time that the thread may still run to reach its share, plus [`CREDIT`].
    due: Duration,
}

impl YieldPolicy {
    fn new() -> Self {
        Self { stopwatch: Stopwatch::start(), due: Duration::ZERO }
    }

    /// To be called after each step.
    fn step(&mut self) {
        let ran = self.stopwatch.lap();
        self.account(ran, |stopwatch| {
            thread::yield_now();
            stopwatch.lap()
        });
    }

    /// Accounts for a step that took `ran`. `yield_now` returns how long the yield took.
    fn account(&mut self, ran: Duration, yield_now: impl FnOnce(&mut Stopwatch) -> Duration) {
        self.due = self.due.saturating_sub(ran);
        if self.due <= CREDIT {
            // Bounded, for the case that the whole machine was suspended.
            self.due = (self.due + yield_now(&mut self.stopwatch) / SHARE).min(CREDIT * 2);
        }
    }
}

/// Measures the kernels for `prf`, once per process. It takes some milliseconds, and the thread yields after each slice of
/// about 50 µs. It runs when the queue is empty, never before a hash that somebody waits for.
pub(super) fn calibrate(prf: Prf) {
    let mut stopwatch = Stopwatch::start();
    let measured = cardea_kdf::calibrate(prf, &mut || {
        let passed = stopwatch.lap();
        thread::yield_now();
        // The time of the yield is not counted.
        stopwatch.lap();
        passed
    });
    if measured {
        let name = |waiting| Kernel::choose(prf, waiting, None).map(Kernel::to_string);
        let (lone, full) = (name(1), name(usize::from(u16::MAX)));
        tracing::debug!(%prf, ?lone, ?full, "kernels measured");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cardea_kdf::{Password, stored::StoredSecret};

    use super::*;

    fn presented(secret: &[u8]) -> Arc<Password> {
        Arc::new(Password::new(secret.to_vec().into()))
    }

    #[test]
    fn hashes_to_store_are_computed_in_lanes_too() {
        let counters = Counters::default();
        let target = Target::new(10_000).unwrap();
        let asked = |secret: &[u8]| {
            let (answer, mut receiver) = oneshot::channel();
            let secret = presented(secret);
            let mut works = Some(Work::Hash { target, salt: [9; 16], secret, answer });
            run_lanes(Target::PRF, || works.take(), &counters);
            receiver.try_recv()
        };
        assert_eq!(asked(b"chosen"), Ok(target.hash(b"chosen", &[9; 16]).ok()));
        assert_eq!(asked(b"no\0secret"), Ok(None));
        assert_eq!(counters.read().hashes_made, 1);
    }

    #[test]
    fn each_job_gets_its_own_answer_however_lanes_are_shared() {
        let counters = Counters::default();
        let mut works = Vec::new();
        let mut answers = Vec::new();
        for number in 0_u8..20 {
            let (answer, receiver) = oneshot::channel();
            let target = Target::new(10_000 + u32::from(number) * 7).unwrap();
            let stored = target.hash(&[b'a' + number], &[number; 16]).unwrap();
            // Every third job presents another secret.
            let secret = presented(&[if number % 3 == 0 { b'A' } else { b'a' + number }]);
            works.push(Work::Verify {
                stored: StoredSecret::parse(&stored).unwrap(),
                secret,
                taken: Arc::default(),
                answer,
            });
            answers.push((number % 3 != 0, receiver));
        }
        let mut works = works.into_iter();
        run_lanes(Prf::HmacSha512, || works.next(), &counters);
        for (right, mut answer) in answers {
            assert_eq!(answer.try_recv(), Ok(right));
        }
        let stats = counters.read();
        assert_eq!((stats.lane_runs, stats.lane_jobs), (1, 20));
        assert!(stats.lanes_filled > 0 && stats.lanes_filled <= stats.lanes_run, "{stats:?}");
    }

    #[test]
    fn the_secrets_of_a_client_that_rotates_share_the_key_schedule_of_what_is_presented() {
        let counters = Counters::default();
        let secret = presented(b"presented");
        let mut answers = Vec::new();
        let mut works: Vec<Work> = [&b"old"[..], b"presented", b"new"]
            .into_iter()
            .map(|stored| {
                let stored = Target::new(10_000).unwrap().hash(stored, &[3; 16]).unwrap();
                let (answer, receiver) = oneshot::channel();
                answers.push(receiver);
                let stored = StoredSecret::parse(&stored).unwrap();
                Work::Verify { stored, secret: Arc::clone(&secret), taken: Arc::default(), answer }
            })
            .collect();
        let of_one = Arc::downgrade(&secret.schedule(Prf::HmacSha512));
        let mut under_way = 0;
        run_with_pauses(
            Prf::HmacSha512,
            || works.pop(),
            &counters,
            || {
                // The password holds one reference, and so does each running job.
                under_way = under_way.max(of_one.strong_count() - 1);
                true
            },
        );
        let matched: Vec<_> = answers.into_iter().map(|mut answer| answer.try_recv()).collect();
        assert_eq!(matched, [Ok(false), Ok(true), Ok(false)]);
        assert_eq!(under_way, Engine::<()>::new(Prf::HmacSha512).lanes().min(3));
        drop(secret);
        assert_eq!(of_one.strong_count(), 0, "and it ends with the last of them");
    }

    const RAN: Duration = Duration::from_micros(12);

    /// The thread's share of the time, and its longest stretch without a yield, where each yield takes `delayed`.
    fn share(delayed: Duration) -> (f64, Duration) {
        let mut yield_policy = YieldPolicy::new();
        let (mut own, mut others) = (Duration::ZERO, Duration::ZERO);
        let (mut stretch, mut longest) = (Duration::ZERO, Duration::ZERO);
        while own + others < Duration::from_secs(2) {
            own += RAN;
            stretch += RAN;
            yield_policy.account(RAN, |_| {
                others += delayed;
                longest = longest.max(stretch);
                stretch = Duration::ZERO;
                delayed
            });
        }
        (own.as_secs_f64() / (own + others).as_secs_f64(), longest)
    }

    #[test]
    fn with_idle_time_on_the_processor_it_yields_after_each_step() {
        for delayed in [0, 1, 12, 90].map(Duration::from_micros) {
            assert_eq!(share(delayed).1, RAN, "{delayed:?}");
        }
        // A single long delay changes nothing.
        let mut yield_policy = YieldPolicy::new();
        for round in 0..10_000 {
            let delayed = if round % 100 == 99 { Duration::from_millis(4) } else { Duration::ZERO };
            let mut yielded = false;
            yield_policy.account(RAN, |_| {
                yielded = true;
                delayed
            });
            assert!(yielded, "{round}");
        }
    }

    #[test]
    fn on_a_busy_processor_it_keeps_its_share() {
        for delayed in [200, 3_000, 20_000].map(Duration::from_micros) {
            let (share, longest) = share(delayed);
            assert!((0.10..0.12).contains(&share), "{delayed:?}: {share}");
            assert!(longest <= delayed / SHARE + RAN, "{delayed:?}: {longest:?}");
        }
    }
}

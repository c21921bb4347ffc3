//! A run of PBKDF2 jobs that share lanes.

use std::num::NonZeroU32;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use cardea_kdf::{
    Engine, Error, Job, Prf,
    stored::{Target, check_secret},
};
use tokio::sync::oneshot;

use super::{courtesy::Courtesy, queue::Work, stats::Counters};

/// What is asked of a job, and by whom. Whoever asked may be gone.
enum Asked {
    Verify { expected: Vec<u8>, answer: oneshot::Sender<bool> },
    Hash { target: Target, salt: [u8; 16], answer: oneshot::Sender<Option<String>> },
}

impl Asked {
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

/// After so many iterations the thread lets others have the processor that wait for it: 12 µs or less with full lanes.
/// With 128 the slowest hundredth of proxied requests waited 46 µs more beside a flood of wrong secrets.
const STEP: NonZeroU32 = NonZeroU32::new(32).unwrap();

/// Does the jobs that `source` gives until it has none. Nothing is waited for: a job that is alone is done alone, and
/// those that arrive while it runs join it.
pub(super) fn run_lanes(prf: Prf, source: impl FnMut() -> Option<Work>, counters: &Counters) {
    run_with_pauses(prf, source, counters, || true);
}

/// Does the same, and asks `pause` before each step of 32 iterations, within which others may do what they like with the
/// thread. Where it says no, what is unfinished is given up.
pub(super) fn run_with_pauses(
    prf: Prf,
    mut source: impl FnMut() -> Option<Work>,
    counters: &Counters,
    mut pause: impl FnMut() -> bool,
) {
    let mut engine = Engine::new(prf).with_step(STEP);
    let mut courtesy = Courtesy::new();
    let mut jobs = 0;
    let mut take = || {
        let job = source().and_then(|work| job(prf, work, counters))?;
        jobs += 1;
        Some(job)
    };
    while pause() && engine.step(&mut take, &mut Asked::answer) {
        counters.lane_step(engine.lanes(), engine.filled());
        courtesy.step();
    }
    counters.lane_run(jobs);
}

fn job(prf: Prf, work: Work, counters: &Counters) -> Option<Job<Asked>> {
    match work {
        Work::Verify { stored, secret, answer, .. } => {
            let lane_job = stored.lane_job()?;
            counters.hashed(stored.algorithm());
            Some(Job {
                schedule: secret.schedule(prf),
                salt: lane_job.salt.into(),
                iterations: lane_job.iterations,
                output_len: lane_job.expected.len(),
                tag: Asked::Verify { expected: lane_job.expected.to_vec(), answer },
            })
        }
        Work::Hash { target, salt, secret, answer } => {
            if check_secret(secret.as_bytes()).is_err() {
                let _ = answer.send(None);
                return None;
            }
            counters.made();
            target.job(&secret, &salt, Asked::Hash { target, salt, answer }).ok()
        }
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
    fn what_is_to_be_stored_is_made_in_lanes_too() {
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
            // Every third one presents another secret.
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
                // The password has it, and each job under way.
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
}

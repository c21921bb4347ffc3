//! A run of PBKDF2 jobs that share lanes.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use cardea_kdf::{Engine, Job, Prf, Schedule};
use tokio::sync::oneshot;

use super::{queue::Work, stats::Counters};

/// What is to come out of a job, and who asked.
struct Asked {
    expected: Vec<u8>,
    answer: oneshot::Sender<bool>,
}

/// Does the jobs that `source` gives until it has none. Nothing is waited for: a job that is alone is done alone, and
/// those that arrive while it runs join it.
pub(super) fn run_lanes(prf: Prf, mut source: impl FnMut() -> Option<Work>, counters: &Counters) {
    let mut engine = Engine::new(prf);
    let mut jobs = 0_u64;
    let mut take = || {
        let job = source().and_then(|work| job(prf, work, counters))?;
        jobs += 1;
        Some(job)
    };
    while engine.step(&mut take, &mut |asked: Asked, derived| {
        let equal = derived.is_ok_and(|derived| verify_slices_are_equal(derived, &asked.expected).is_ok());
        // Whoever asked may be gone.
        let _ = asked.answer.send(equal);
    }) {}
    counters.lane_run(jobs);
}

fn job(prf: Prf, work: Work, counters: &Counters) -> Option<Job<Asked>> {
    let Work::Verify { stored, secret, answer } = work else { return None };
    let lane_job = stored.lane_job()?;
    counters.hashed(stored.algorithm());
    Some(Job {
        schedule: Schedule::new(prf, &secret),
        salt: lane_job.salt.into(),
        iterations: lane_job.iterations,
        output_len: lane_job.expected.len(),
        tag: Asked { expected: lane_job.expected.to_vec(), answer },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cardea_kdf::stored::{StoredSecret, Target};
    use zeroize::Zeroizing;

    use super::*;

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
            let presented = if number % 3 == 0 { b'A' } else { b'a' + number };
            let secret = Arc::new(Zeroizing::new(vec![presented]));
            works.push(Work::Verify { stored: StoredSecret::parse(&stored).unwrap(), secret, answer });
            answers.push((number % 3 != 0, receiver));
        }
        let mut works = works.into_iter();
        run_lanes(Prf::HmacSha512, || works.next(), &counters);
        for (right, mut answer) in answers {
            assert_eq!(answer.try_recv(), Ok(right));
        }
        let stats = counters.read();
        assert_eq!((stats.lane_runs, stats.lane_jobs), (1, 20));
    }
}

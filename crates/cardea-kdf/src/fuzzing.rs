//! Properties of the lanes that hold for any jobs: the entry point of a fuzzer, whose corpus the tests replay.

use std::num::NonZeroU32;

use crate::engine::{Engine, Job};
use crate::kernel::Backend;
use crate::prf::Prf;
use crate::schedule::Schedule;

/// Decodes jobs from any bytes, runs them together on each back-end, and each alone on the portable one.
///
/// # Panics
///
/// If a back-end derives another result, or omits a job.
pub fn fuzz_lanes(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let prf = Prf::ALL[usize::from(first) % Prf::ALL.len()];
    // The number of jobs that arrive before each step.
    let arrive = usize::from(first >> 2) + 1;
    let mut jobs = Vec::new();
    while let Some((&[iterations, password, salt, output], after)) = rest.split_first_chunk() {
        let (password, after) = after.split_at(after.len().min(usize::from(password)));
        let (salt, after) = after.split_at(after.len().min(usize::from(salt)));
        jobs.push((password, salt, u32::from(iterations % 64) + 1, usize::from(output)));
        rest = after;
        if jobs.len() == 40 {
            break;
        }
    }
    let expected: Vec<Option<Vec<u8>>> = jobs
        .iter()
        .map(|job| run(Engine::with_backend(prf, Backend::Portable), std::slice::from_ref(job), 1).remove(0))
        .collect();
    for (job, output) in jobs.iter().zip(&expected) {
        assert_eq!(output.as_ref().map(Vec::len), (job.3 > 0).then_some(job.3));
    }
    for backend in Backend::ALL {
        if let Some(engine) = Engine::with_backend(prf, backend) {
            assert_eq!(run(Some(engine), &jobs, arrive), expected, "{backend}");
        }
    }
    assert_eq!(run(Some(Engine::new(prf)), &jobs, arrive), expected);
}

/// Password, salt, iterations and length of the output.
type Raw<'a> = (&'a [u8], &'a [u8], u32, usize);

/// The output of each job; `None` if the job was refused.
fn run(engine: Option<Engine<usize>>, jobs: &[Raw<'_>], arrive: usize) -> Vec<Option<Vec<u8>>> {
    let mut outputs = vec![None; jobs.len()];
    let Some(mut engine) = engine else { return outputs };
    let prf = engine.prf();
    let mut finished = 0;
    let mut source = jobs.iter().enumerate();
    while finished < jobs.len() {
        let mut left = arrive;
        engine.step(
            &mut || {
                left = left.checked_sub(1)?;
                let (tag, (password, salt, iterations, output_len)) = source.next()?;
                Some(Job {
                    schedule: Schedule::new(prf, password).into(),
                    salt: (*salt).into(),
                    iterations: NonZeroU32::new(*iterations)?,
                    output_len: *output_len,
                    tag,
                })
            },
            &mut |tag, output| {
                finished += 1;
                outputs[tag] = output.ok().map(<[u8]>::to_vec);
            },
        );
    }
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_runs_alike_on_every_back_end() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/kdf_lanes");
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            fuzz_lanes(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 4);
    }
}

//! Tests that are small enough for Miri (`cargo xtask test miri`), which has no vector instructions: the path of
//! processors without them.

use std::num::NonZeroU32;

use crate::{Backend, Engine, Job, Prf, Schedule, derive, verify};

fn count(iterations: u32) -> NonZeroU32 {
    NonZeroU32::new(iterations).unwrap()
}

#[test]
fn known_answers_of_few_iterations() {
    // RFC 6070, RFC 7914 §11, and Python's hashlib.
    let sha1 = "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957";
    let sha256 = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                  49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783";
    let sha512 = "e1d9c16aa681708a45f5c7c4e215ceb66e011a2e9f0040713f18aefdb866d53c\
                  f76cab2868a39b9f7840edce4fef5a82be67335c77a6068e04112754f27ccf4e";
    for (prf, password, iterations, expected) in [
        (Prf::HmacSha1, &b"password"[..], 2, sha1),
        (Prf::HmacSha256, b"passwd", 1, sha256),
        (Prf::HmacSha512, b"password", 2, sha512),
    ] {
        let mut out = vec![0; expected.len() / 2];
        derive(prf, password, b"salt", count(iterations), &mut out).unwrap();
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
        assert_eq!(verify(prf, password, b"salt", count(iterations), &out), Ok(true));
        out[0] ^= 1;
        assert_eq!(verify(prf, password, b"salt", count(iterations), &out), Ok(false));
    }
}

#[test]
fn jobs_of_all_sizes_go_through_lanes_as_one_at_a_time() {
    for prf in Prf::ALL {
        let mut engine = Engine::with_backend(prf, Backend::Portable).unwrap().with_step(count(2));
        let jobs: Vec<(Vec<u8>, u32, usize)> = (0..5)
            .map(|n: u8| (vec![n; usize::from(n) * 40], 1 + u32::from(n), 1 + usize::from(n) * 33))
            .collect();
        let mut source = jobs.iter();
        let mut done = 0;
        let mut finished = |tag: &(Vec<u8>, u32, usize), derived: Result<&[u8], crate::Error>| {
            let mut expected = vec![0; tag.2];
            derive(prf, &tag.0, b"salt", count(tag.1), &mut expected).unwrap();
            assert_eq!(derived, Ok(&expected[..]));
            done += 1;
        };
        while engine.step(
            &mut || {
                let tag = source.next()?;
                let schedule = Schedule::new(prf, &tag.0).into();
                Some(Job {
                    schedule,
                    salt: Box::from(&b"salt"[..]),
                    iterations: count(tag.1),
                    output_len: tag.2,
                    tag,
                })
            },
            &mut finished,
        ) {}
        assert_eq!(done, jobs.len());
    }
}

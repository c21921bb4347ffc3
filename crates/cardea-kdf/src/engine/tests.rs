//! Lanes compared with one job at a time, on every back-end.

use proptest::prelude::*;

use super::*;
use crate::derive;

fn count(iterations: u32) -> NonZeroU32 {
    NonZeroU32::new(iterations).unwrap()
}

fn job<T>(prf: Prf, password: &[u8], salt: &[u8], iterations: u32, output_len: usize, tag: T) -> Job<T> {
    Job {
        schedule: Schedule::new(prf, password).into(),
        salt: salt.into(),
        iterations: count(iterations),
        output_len,
        tag,
    }
}

/// All supported engines: the one that chooses, and one per back-end.
fn engines<T>(prf: Prf) -> Vec<Engine<T>> {
    let forced = Backend::ALL.iter().filter_map(|backend| Engine::with_backend(prf, *backend));
    std::iter::once(Engine::new(prf)).chain(forced).collect()
}

#[test]
fn every_back_end_derives_jobs_of_all_sizes_as_one_at_a_time_does() {
    for prf in Prf::ALL {
        // More jobs than lanes, with different iterations and lengths of password, salt and output.
        let jobs: Vec<(Vec<u8>, Vec<u8>, u32, usize)> = (0..70)
            .map(|n: u8| {
                let n = usize::from(n);
                (vec![n as u8; n * 5], vec![!n as u8; n * 3], 1 + (n as u32 * 37) % 90, 1 + (n * 29) % 200)
            })
            .collect();
        for mut engine in engines(prf) {
            let mut source = jobs.iter().enumerate();
            let mut results = vec![Vec::new(); jobs.len()];
            while engine.step(
                &mut || {
                    let (index, (password, salt, iterations, length)) = source.next()?;
                    Some(job(prf, password, salt, *iterations, *length, index))
                },
                &mut |tag: usize, output| results[tag] = output.unwrap().to_vec(),
            ) {
                assert!(engine.filled() <= engine.lanes());
            }
            for ((password, salt, iterations, length), result) in jobs.iter().zip(&results) {
                let mut expected = vec![0; *length];
                derive_portably(prf, password, salt, *iterations, &mut expected);
                assert_eq!(*result, expected, "{engine:?} {iterations}");
            }
        }
    }
}

/// By the portable back-end alone, one job at a time.
fn derive_portably(prf: Prf, password: &[u8], salt: &[u8], iterations: u32, out: &mut [u8]) {
    let mut engine = Engine::with_backend(prf, Backend::Portable).unwrap();
    let mut waiting = Some(job(prf, password, salt, iterations, out.len(), ()));
    while engine.step(&mut || waiting.take(), &mut |(), output| out.copy_from_slice(output.unwrap())) {}
}

#[test]
fn every_number_of_waiting_jobs_is_derived_alike() {
    for prf in Prf::ALL {
        for waiting in 1..=33 {
            let mut engine = Engine::new(prf);
            let mut left = 0..waiting;
            let mut done = 0;
            while engine.step(
                &mut || left.next().map(|n: u8| job(prf, &[n], b"salt", 5, 20, n)),
                &mut |n, output| {
                    let mut expected = [0; 20];
                    derive(prf, &[n], b"salt", count(5), &mut expected).unwrap();
                    assert_eq!(output, Ok(&expected[..]));
                    done += 1;
                },
            ) {}
            assert_eq!(done, waiting);
        }
    }
}

#[test]
fn a_short_job_finishes_first_and_its_lane_is_reused() {
    let mut engine = Engine::new(Prf::HmacSha256);
    let mut jobs = vec![(50_u32, 'b'), (10, 'a'), (3000, 'z')];
    let mut order = String::new();
    while engine.step(
        &mut || jobs.pop().map(|(iterations, tag)| job(Prf::HmacSha256, b"p", b"s", iterations, 32, tag)),
        &mut |tag, _| order.push(tag),
    ) {}
    assert_eq!(order, "abz");
}

#[test]
fn a_job_that_arrives_joins_those_that_run() {
    let mut engine = Engine::new(Prf::HmacSha512);
    let mut first = Some(job(Prf::HmacSha512, b"p", b"s", 100_000, 64, 1));
    let mut finished = Vec::new();
    assert!(engine.step(&mut || first.take(), &mut |tag, _| finished.push(tag)));
    let mut second = Some(job(Prf::HmacSha512, b"p", b"s", 1, 64, 2));
    assert!(engine.step(&mut || second.take(), &mut |tag, _| finished.push(tag)));
    assert_eq!((finished, engine.filled()), (vec![2], 1));
}

#[test]
fn what_cannot_be_done_is_handed_back_and_takes_no_lane() {
    let refused = [
        (Prf::HmacSha1, 20, Error::PrfMismatch),
        (Prf::HmacSha512, 0, Error::OutputEmpty),
        (Prf::HmacSha512, 4097, Error::OutputTooLong),
        (Prf::HmacSha512, usize::MAX, Error::OutputTooLong),
    ];
    for (prf, length, error) in refused {
        let mut engine = Engine::new(Prf::HmacSha512);
        let mut waiting = Some(job(prf, b"p", b"s", 10, length, 7));
        let mut answers = Vec::new();
        let under_way = engine
            .step(&mut || waiting.take(), &mut |tag, output| answers.push((tag, output.map(<[u8]>::to_vec))));
        assert_eq!((under_way, answers), (false, vec![(7, Err(error))]));
    }
    let mut control = Some(job(Prf::HmacSha512, b"p", b"s", 1, 4096, ()));
    let mut done = 0;
    let mut engine = Engine::new(Prf::HmacSha512);
    while engine.step(&mut || control.take(), &mut |(), output| done += output.unwrap().len()) {}
    assert_eq!(done, 4096);
}

#[test]
fn an_engine_without_jobs_does_nothing() {
    for prf in Prf::ALL {
        let mut engine = Engine::<()>::new(prf);
        assert!(!engine.step(&mut || None, &mut |(), _| unreachable!()));
        assert_eq!(engine.filled(), 0);
    }
}

/// By another library.
fn reference(prf: Prf, password: &[u8], salt: &[u8], iterations: u32, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    match prf {
        Prf::HmacSha1 => pbkdf2::pbkdf2_hmac::<sha1::Sha1>(password, salt, iterations, &mut out),
        Prf::HmacSha256 => pbkdf2::pbkdf2_hmac::<sha2::Sha256>(password, salt, iterations, &mut out),
        Prf::HmacSha512 => pbkdf2::pbkdf2_hmac::<sha2::Sha512>(password, salt, iterations, &mut out),
    }
    out
}

/// Lengths around special values: zero, the ends of blocks of 64 and 128 bytes and of their padding, and long ones.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    const EDGES: [usize; 23] =
        [0, 1, 31, 32, 33, 47, 48, 51, 52, 55, 56, 63, 64, 65, 107, 108, 111, 112, 127, 128, 129, 255, 1000];
    let length = prop_oneof![proptest::sample::select(&EDGES[..]), 0..300_usize];
    length.prop_flat_map(|length| proptest::collection::vec(any::<u8>(), length))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn one_job_is_derived_as_by_another_library(
        password in bytes(), salt in bytes(), iterations in 1..40_u32, length in 1..200_usize,
    ) {
        for prf in Prf::ALL {
            let mut out = vec![0; length];
            derive(prf, &password, &salt, count(iterations), &mut out).unwrap();
            prop_assert_eq!(&out, &reference(prf, &password, &salt, iterations, length));
        }
    }

    #[test]
    fn any_mix_in_the_lanes_of_any_back_end_is_derived_as_by_another_library(
        jobs in proptest::collection::vec((bytes(), bytes(), 1..60_u32, 1..150_usize), 1..50),
        arrive in 1..9_usize,
    ) {
        for prf in Prf::ALL {
            for mut engine in engines(prf) {
                let mut source = jobs.iter().enumerate();
                let mut done = 0;
                // Jobs arrive in groups before each step, so that lanes are filled to varying degrees.
                while done < jobs.len() {
                    let mut left = arrive;
                    engine.step(
                        &mut || {
                            left = left.checked_sub(1)?;
                            let (index, (password, salt, iterations, length)) = source.next()?;
                            Some(job(prf, password, salt, *iterations, *length, index))
                        },
                        &mut |index: usize, output| {
                            let (password, salt, iterations, length) = &jobs[index];
                            assert_eq!(output.unwrap(), reference(prf, password, salt, *iterations, *length));
                            done += 1;
                        },
                    );
                }
            }
        }
    }
}

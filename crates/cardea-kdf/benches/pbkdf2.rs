//! PBKDF2 beside other libraries: one job, full lanes of equal and of mixed jobs, and each kernel for itself.
//!
//! Each id says what one iteration of the bench computes; `cargo xtask bench micro` divides by that.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use cardea_kdf::{Engine, Job, Kernel, Prf, Schedule, derive};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};

const PASSWORD: &[u8] = b"correct horse battery staple";
const SALT: &[u8] = b"0123456789abcdef";
/// Iterations of each job where all are equal.
const ITERATIONS: u32 = 2_000;
/// Jobs of a run in lanes: a multiple of the lanes of each kernel.
const JOBS: u32 = 64;
/// Jobs of a run where each is done after the other, so that more of them only take longer.
const JOBS_OF_PEERS: u32 = 5;

fn count(iterations: u32) -> NonZeroU32 {
    NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN)
}

fn name(prf: Prf) -> &'static str {
    match prf {
        Prf::HmacSha1 => "sha1",
        Prf::HmacSha256 => "sha256",
        _ => "sha512",
    }
}

fn group<'a>(c: &'a mut Criterion, prf: Prf, what: &str, iterations: u64) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(format!("{}-{what}", name(prf)));
    // All samples of the same size: else the last one of something slow takes most of the time.
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(iterations));
    group
}

/// Peers, all by one job after the other.
fn peer(library: &str, prf: Prf, iterations: NonZeroU32, out: &mut [u8]) {
    match library {
        "aws-lc" => {
            use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA512};
            let algorithm = match prf {
                Prf::HmacSha1 => PBKDF2_HMAC_SHA1,
                Prf::HmacSha256 => PBKDF2_HMAC_SHA256,
                _ => PBKDF2_HMAC_SHA512,
            };
            pbkdf2::derive(algorithm, iterations, SALT, PASSWORD, out);
        }
        "ring" => {
            use ring::pbkdf2::{self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA512};
            let algorithm = match prf {
                Prf::HmacSha1 => PBKDF2_HMAC_SHA1,
                Prf::HmacSha256 => PBKDF2_HMAC_SHA256,
                _ => PBKDF2_HMAC_SHA512,
            };
            pbkdf2::derive(algorithm, iterations, SALT, PASSWORD, out);
        }
        _ => match prf {
            Prf::HmacSha1 => pbkdf2::pbkdf2_hmac::<sha1::Sha1>(PASSWORD, SALT, iterations.get(), out),
            Prf::HmacSha256 => pbkdf2::pbkdf2_hmac::<sha2::Sha256>(PASSWORD, SALT, iterations.get(), out),
            _ => pbkdf2::pbkdf2_hmac::<sha2::Sha512>(PASSWORD, SALT, iterations.get(), out),
        },
    }
}

const PEERS: [&str; 3] = ["aws-lc", "ring", "rustcrypto"];

/// Runs `jobs` through an engine, the i-th with `iterations(i)`.
fn in_lanes(engine: &mut Engine<()>, jobs: u32, iterations: impl Fn(u32) -> u32) {
    let prf = engine.prf();
    let mut next = 0;
    while engine.step(
        &mut || {
            (next < jobs).then(|| {
                next += 1;
                Job {
                    schedule: Schedule::new(prf, PASSWORD),
                    salt: SALT.into(),
                    iterations: count(iterations(next)),
                    output_len: prf.output_len(),
                    tag: (),
                }
            })
        },
        &mut |(), output| {
            let _ = black_box(output);
        },
    ) {}
}

/// What stored secrets look like that were made over the years.
fn mixed(job: u32) -> u32 {
    [500, 1_000, 2_000, 2_500, 4_000][job as usize % 5]
}

fn one(c: &mut Criterion) {
    for prf in Prf::ALL {
        let mut out = vec![0; prf.output_len()];
        let mut group = group(c, prf, "one", u64::from(ITERATIONS));
        group.bench_function("cardea", |b| {
            b.iter(|| derive(prf, PASSWORD, SALT, count(ITERATIONS), black_box(&mut out)));
        });
        for library in PEERS {
            group.bench_function(library, |b| {
                b.iter(|| peer(library, prf, count(ITERATIONS), black_box(&mut out)));
            });
        }
    }
}

fn lanes(c: &mut Criterion) {
    for prf in Prf::ALL {
        let mut out = vec![0; prf.output_len()];
        let mut group = group(c, prf, "lanes", u64::from(ITERATIONS * JOBS));
        let mut engine = Engine::new(prf);
        group.bench_function("cardea", |b| b.iter(|| in_lanes(&mut engine, JOBS, |_| ITERATIONS)));
        group.throughput(Throughput::Elements(u64::from(ITERATIONS * JOBS_OF_PEERS)));
        for library in PEERS {
            group.bench_function(library, |b| {
                b.iter(|| {
                    (0..JOBS_OF_PEERS)
                        .for_each(|_| peer(library, prf, count(ITERATIONS), black_box(&mut out)));
                });
            });
        }
    }
}

fn lanes_mixed(c: &mut Criterion) {
    const MIXED_JOBS: u32 = 320;
    for prf in Prf::ALL {
        let mut out = vec![0; prf.output_len()];
        let total = |jobs: u32| (1..=jobs).map(|job| u64::from(mixed(job))).sum();
        let mut group = group(c, prf, "lanes-mixed", total(MIXED_JOBS));
        let mut engine = Engine::new(prf);
        group.bench_function("cardea", |b| b.iter(|| in_lanes(&mut engine, MIXED_JOBS, mixed)));
        group.throughput(Throughput::Elements(total(JOBS_OF_PEERS)));
        for library in PEERS {
            group.bench_function(library, |b| {
                b.iter(|| {
                    (1..=JOBS_OF_PEERS)
                        .for_each(|job| peer(library, prf, count(mixed(job)), black_box(&mut out)));
                });
            });
        }
    }
}

/// Each kernel with each lane filled: nanoseconds of one iteration of all lanes, which the table in the source holds.
fn kernels(c: &mut Criterion) {
    for prf in Prf::ALL {
        let mut group = group(c, prf, "kernels", u64::from(ITERATIONS));
        for kernel in Kernel::all(prf).iter().filter(|kernel| kernel.backend.is_available()) {
            group.bench_function(kernel.to_string(), |b| b.iter(|| kernel.exercise(prf, ITERATIONS)));
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300));
    targets = one, lanes, lanes_mixed, kernels
}
criterion_main!(benches);

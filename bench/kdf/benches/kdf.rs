//! PBKDF2 beside other libraries and beside the method of fastpbkdf2, in one run: one job, full lanes of equal and of
//! mixed jobs, many hashes of SHA-512 with 10,000 iterations and 64 bytes on one thread and on all, and each kernel for
//! itself.
//!
//! Each id says what one iteration of the bench computes; `cargo xtask bench micro` divides by that.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use bench_kdf::fastpbkdf2;
use cardea_kdf::{Engine, Job, Kernel, Password, Prf, derive};
use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use openssl::hash::MessageDigest;

const PASSWORD: &[u8] = b"correct horse battery staple";
const SALT: &[u8] = b"0123456789abcdef";
const ITERATIONS: u32 = 2_000;
/// A multiple of the lanes of each kernel.
const JOBS: u32 = 64;
const MIXED_JOBS: u32 = 320;
/// Where jobs are done one after the other, more of them only take longer.
const JOBS_OF_PEERS: u32 = 5;
/// Hashes of a sample, of which there are ten: in lanes, as many as fill them to the end on two threads.
const HASHES: u32 = 400;
const HASHES_OF_PEERS: u32 = 100;
const HASH_ITERATIONS: u32 = 10_000;
const LIBRARIES: [&str; 6] = ["cardea", "openssl", "fastpbkdf2", "aws-lc", "ring", "rustcrypto"];
/// Of which many hashes are made: ours, and the first two.
const LIBRARIES_OF_HASHES: usize = 3;

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

fn openssl(prf: Prf, iterations: u32, out: &mut [u8]) {
    let digest = match prf {
        Prf::HmacSha1 => MessageDigest::sha1(),
        Prf::HmacSha256 => MessageDigest::sha256(),
        _ => MessageDigest::sha512(),
    };
    openssl::pkcs5::pbkdf2_hmac(PASSWORD, SALT, iterations as usize, digest, out).expect("OpenSSL derives");
}

fn aws_lc(prf: Prf, iterations: NonZeroU32, out: &mut [u8]) {
    use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA512};
    let algorithm = match prf {
        Prf::HmacSha1 => PBKDF2_HMAC_SHA1,
        Prf::HmacSha256 => PBKDF2_HMAC_SHA256,
        _ => PBKDF2_HMAC_SHA512,
    };
    pbkdf2::derive(algorithm, iterations, SALT, PASSWORD, out);
}

fn ring(prf: Prf, iterations: NonZeroU32, out: &mut [u8]) {
    use ring::pbkdf2::{self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA512};
    let algorithm = match prf {
        Prf::HmacSha1 => PBKDF2_HMAC_SHA1,
        Prf::HmacSha256 => PBKDF2_HMAC_SHA256,
        _ => PBKDF2_HMAC_SHA512,
    };
    pbkdf2::derive(algorithm, iterations, SALT, PASSWORD, out);
}

fn rust_crypto(prf: Prf, iterations: u32, out: &mut [u8]) {
    match prf {
        Prf::HmacSha1 => pbkdf2::pbkdf2_hmac::<sha1::Sha1>(PASSWORD, SALT, iterations, out),
        Prf::HmacSha256 => pbkdf2::pbkdf2_hmac::<sha2::Sha256>(PASSWORD, SALT, iterations, out),
        _ => pbkdf2::pbkdf2_hmac::<sha2::Sha512>(PASSWORD, SALT, iterations, out),
    }
}

fn one_job(library: &str, prf: Prf, iterations: u32, out: &mut [u8]) {
    match library {
        "cardea" => derive(prf, PASSWORD, SALT, count(iterations), out).expect("the output is short"),
        "openssl" => openssl(prf, iterations, out),
        "aws-lc" => aws_lc(prf, count(iterations), out),
        "ring" => ring(prf, count(iterations), out),
        "rustcrypto" => rust_crypto(prf, iterations, out),
        _ => fastpbkdf2(prf, PASSWORD, SALT, count(iterations), out),
    }
}

/// Many jobs, the i-th with `iterations(i)`: in lanes with us, one after the other elsewhere.
fn many(library: &str, prf: Prf, jobs: u32, iterations: impl Fn(u32) -> u32) {
    let mut out = vec![0; prf.output_len()];
    if library != "cardea" {
        (1..=jobs).for_each(|job| one_job(library, prf, iterations(job), black_box(&mut out)));
        return;
    }
    let mut left = 1..=jobs;
    let mut engine = Engine::new(prf);
    let mut source = || {
        left.next().map(|job| Job {
            schedule: Password::new(PASSWORD.to_vec().into()).schedule(prf),
            salt: SALT.into(),
            iterations: count(iterations(job)),
            output_len: prf.output_len(),
            tag: (),
        })
    };
    while engine.step(&mut source, &mut |(), output| {
        let _ = black_box(output);
    }) {}
}

/// What stored secrets look like that were made over the years.
fn mixed(job: u32) -> u32 {
    [500, 1_000, 2_000, 2_500, 4_000][job as usize % 5]
}

/// What fills our lanes, or what suffices for the others.
fn jobs(library: &str, ours: u32, theirs: u32) -> u32 {
    if library == "cardea" { ours } else { theirs }
}

/// All samples of the same size: else the last one of something slow takes most of the time.
fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    group
}

fn one(c: &mut Criterion) {
    for prf in Prf::ALL {
        let mut group = group(c, &format!("{}-one", name(prf)));
        group.throughput(Throughput::Elements(u64::from(ITERATIONS)));
        let mut out = vec![0; prf.output_len()];
        for library in LIBRARIES {
            group.bench_function(library, |b| {
                b.iter(|| one_job(library, prf, ITERATIONS, black_box(&mut out)));
            });
        }
    }
}

fn lanes(c: &mut Criterion) {
    for prf in Prf::ALL {
        for (what, ours, each) in
            [("lanes", JOBS, (|_| ITERATIONS) as fn(u32) -> u32), ("lanes-mixed", MIXED_JOBS, mixed)]
        {
            let mut group = group(c, &format!("{}-{what}", name(prf)));
            for library in LIBRARIES {
                let jobs = jobs(library, ours, JOBS_OF_PEERS);
                group.throughput(Throughput::Elements((1..=jobs).map(|job| u64::from(each(job))).sum()));
                group.bench_function(library, |b| b.iter(|| many(library, prf, jobs, each)));
            }
        }
    }
}

/// The figure is that of a hash: of a thousand of them, a thousand times as much.
fn hashes(c: &mut Criterion) {
    let mut group = group(c, "sha512-10000-iterations-64-bytes");
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    for library in LIBRARIES.into_iter().take(LIBRARIES_OF_HASHES) {
        let hashes = jobs(library, HASHES, HASHES_OF_PEERS);
        group.throughput(Throughput::Elements(u64::from(hashes)));
        for threads in [1, processors] {
            group.bench_function(BenchmarkId::new(library, format!("{threads}-threads")), |b| {
                b.iter(|| {
                    std::thread::scope(|scope| {
                        for thread in 0..threads {
                            let jobs = hashes / threads + u32::from(thread < hashes % threads);
                            scope.spawn(move || many(library, Prf::HmacSha512, jobs, |_| HASH_ITERATIONS));
                        }
                    });
                });
            });
            if processors == 1 {
                break;
            }
        }
    }
}

/// Each kernel with each lane filled: an iteration of all lanes.
fn kernels(c: &mut Criterion) {
    for prf in Prf::ALL {
        let mut group = group(c, &format!("{}-kernels", name(prf)));
        group.throughput(Throughput::Elements(u64::from(ITERATIONS)));
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
    targets = one, lanes, hashes, kernels
}
criterion_main!(benches);

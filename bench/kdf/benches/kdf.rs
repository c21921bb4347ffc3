//! PBKDF2 beside OpenSSL and beside the method of fastpbkdf2, in one run: one job, full lanes, and a thousand hashes of
//! SHA-512 with 10,000 iterations on one thread and on all.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use bench_kdf::fastpbkdf2;
use cardea_kdf::{Engine, Job, Prf, Schedule, derive};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use openssl::hash::MessageDigest;

const PASSWORD: &[u8] = b"correct horse battery staple";
const SALT: &[u8] = b"0123456789abcdef";
const ITERATIONS: u32 = 2_000;
/// A multiple of the lanes of each kernel.
const JOBS: u32 = 64;
/// The figures of the seed's table.
const HASHES: u32 = 1_000;
const HASH_ITERATIONS: u32 = 10_000;
const LIBRARIES: [&str; 3] = ["cardea", "openssl", "fastpbkdf2"];

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

fn one_job(library: &str, prf: Prf, iterations: u32, out: &mut [u8]) {
    match library {
        "cardea" => derive(prf, PASSWORD, SALT, count(iterations), out).expect("the output is short"),
        "openssl" => openssl(prf, iterations, out),
        _ => fastpbkdf2(prf, PASSWORD, SALT, count(iterations), out),
    }
}

/// Many equal jobs: in lanes with us, one after the other elsewhere.
fn many(library: &str, prf: Prf, jobs: u32, iterations: u32) {
    let mut out = vec![0; prf.output_len()];
    if library != "cardea" {
        (0..jobs).for_each(|_| one_job(library, prf, iterations, black_box(&mut out)));
        return;
    }
    let mut left = 0..jobs;
    let mut engine = Engine::new(prf);
    let mut source = || {
        left.next().map(|_| Job {
            schedule: Schedule::new(prf, PASSWORD),
            salt: SALT.into(),
            iterations: count(iterations),
            output_len: prf.output_len(),
            tag: (),
        })
    };
    while engine.step(&mut source, &mut |(), output| {
        let _ = black_box(output);
    }) {}
}

fn one(c: &mut Criterion) {
    for prf in Prf::ALL {
        let mut group = c.benchmark_group(format!("{}-one", name(prf)));
        group.sample_size(20).measurement_time(Duration::from_secs(1));
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
        let mut group = c.benchmark_group(format!("{}-lanes", name(prf)));
        group.sample_size(20).measurement_time(Duration::from_secs(2));
        group.throughput(Throughput::Elements(u64::from(ITERATIONS * JOBS)));
        for library in LIBRARIES {
            group.bench_function(library, |b| b.iter(|| many(library, prf, JOBS, ITERATIONS)));
        }
    }
}

fn thousand(c: &mut Criterion) {
    let mut group = c.benchmark_group("sha512-thousand-hashes");
    group.sample_size(10).throughput(Throughput::Elements(u64::from(HASHES)));
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    for library in LIBRARIES {
        for threads in [1, processors] {
            group.bench_function(BenchmarkId::new(library, threads), |b| {
                b.iter(|| {
                    std::thread::scope(|scope| {
                        for thread in 0..threads {
                            let jobs = HASHES / threads + u32::from(thread < HASHES % threads);
                            scope.spawn(move || many(library, Prf::HmacSha512, jobs, HASH_ITERATIONS));
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

criterion_group!(benches, one, lanes, thousand);
criterion_main!(benches);

//! A parsed stored secret in any format: algorithm, cost, limits, verification.

use std::num::NonZeroU32;

use argon2::Argon2;
use base64::Engine as _;
use pbkdf2::hmac::SimpleHmac;
use sha3::{Sha3_224, Sha3_384};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::{
    base64::{BCRYPT, in_base64, number},
    digest::{hmac_sha256, sha256, sha256_hex, sha512},
    error::{FormatError, wrong},
};
use crate::{Prf, derive};

/// The most iterations, times blocks of output: five seconds of one core for HMAC-SHA-512.
const ITERATIONS_MAX: u64 = 10_000_000;
/// The most memory of one verification, in KiB.
const MEMORY_KIB_MAX: u64 = 256 * 1_024;
/// The most memory that one verification passes over, in KiB, which takes some seconds.
const TRAFFIC_KIB_MAX: u64 = 4 * 1_024 * 1_024;
/// The most lanes of Argon2 and the largest `p` of scrypt, which run one after the other.
const LANES_MAX: u32 = 16;
const BCRYPT_COST_MIN: u32 = 4;
const BCRYPT_COST_MAX: u32 = 15;
/// The part of a secret that bcrypt reads, in bytes.
const BCRYPT_SECRET_BYTES_MAX: usize = 72;
const SALT_BYTES_MIN: usize = 8;
const SALT_BYTES_MAX: usize = 256;
const OUTPUT_BYTES_MIN: usize = 16;
const OUTPUT_BYTES_MAX: usize = 128;

/// An algorithm, for the labels of metrics.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Algorithm {
    /// PBKDF2-HMAC-SHA-1.
    Pbkdf2Sha1,
    /// PBKDF2-HMAC-SHA-256.
    Pbkdf2Sha256,
    /// PBKDF2-HMAC-SHA-512.
    Pbkdf2Sha512,
    /// PBKDF2 with HMAC over a SHA-3.
    Pbkdf2Sha3,
    /// Argon2id or Argon2i.
    Argon2,
    /// scrypt.
    Scrypt,
    /// bcrypt.
    Bcrypt,
    /// One unsalted SHA-256 or SHA-512.
    Digest,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Pbkdf2Sha1,
        Self::Pbkdf2Sha256,
        Self::Pbkdf2Sha512,
        Self::Pbkdf2Sha3,
        Self::Argon2,
        Self::Scrypt,
        Self::Bcrypt,
        Self::Digest,
    ];

    /// The name in metrics and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pbkdf2Sha1 => "pbkdf2-sha1",
            Self::Pbkdf2Sha256 => "pbkdf2-sha256",
            Self::Pbkdf2Sha512 => "pbkdf2-sha512",
            Self::Pbkdf2Sha3 => "pbkdf2-sha3",
            Self::Argon2 => "argon2",
            Self::Scrypt => "scrypt",
            Self::Bcrypt => "bcrypt",
            Self::Digest => "digest",
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Sha3 {
    Bits224,
    Bits384,
}

#[derive(Clone, Copy)]
pub(super) enum Argon2Kind {
    Id,
    I,
}

/// The input of bcrypt, which reads no more than 72 bytes.
#[derive(Clone, Copy)]
pub(super) enum BcryptInput {
    Secret,
    /// Django's: the SHA-256 of the secret, in hexadecimal.
    Sha256Hex,
    /// passlib's first version: the SHA-256 of the secret, in base64.
    Sha256Base64,
    /// passlib's second version: the HMAC-SHA-256 of the secret under the text of the salt, in base64.
    HmacBase64,
}

#[derive(Clone, Copy)]
pub(super) enum Digest {
    Sha256,
    Sha512,
}

#[derive(Clone)]
pub(super) enum Scheme {
    Pbkdf2 {
        prf: Prf,
        iterations: NonZeroU32,
        salt: Vec<u8>,
        expected: Vec<u8>,
    },
    Pbkdf2Sha3 {
        sha3: Sha3,
        iterations: NonZeroU32,
        salt: Vec<u8>,
        expected: Vec<u8>,
    },
    Argon2 {
        kind: Argon2Kind,
        version: u32,
        memory_kib: u32,
        passes: u32,
        lanes: u32,
        salt: Vec<u8>,
        expected: Vec<u8>,
    },
    Scrypt {
        log_n: u8,
        r: u32,
        p: u32,
        salt: Vec<u8>,
        expected: Vec<u8>,
    },
    Bcrypt {
        input: BcryptInput,
        cost: u32,
        salt: [u8; 16],
        expected: [u8; 23],
    },
    Digest {
        digest: Digest,
        expected: Vec<u8>,
    },
}

impl Scheme {
    /// Refuses parameters that are too expensive, too small or too large, with the name of the field.
    pub(super) fn check(&self) -> Result<(), FormatError> {
        match self {
            Self::Pbkdf2 { prf, iterations, salt, expected } => {
                lengths(salt, expected)?;
                rounds(*iterations, expected.len().div_ceil(prf.output_len()))
            }
            Self::Pbkdf2Sha3 { sha3, iterations, salt, expected } => {
                lengths(salt, expected)?;
                let output = match sha3 {
                    Sha3::Bits224 => 28,
                    Sha3::Bits384 => 48,
                };
                rounds(*iterations, expected.len().div_ceil(output))
            }
            Self::Argon2 { memory_kib, passes, lanes, salt, expected, .. } => {
                lengths(salt, expected)?;
                if *passes == 0 || *lanes == 0 || *lanes > LANES_MAX || *memory_kib < 8 * lanes {
                    return Err(wrong("parameters", "t and p from 1, p at most 16, m at least 8 for each p"));
                }
                memory(u64::from(*memory_kib), u64::from(*passes))
            }
            Self::Scrypt { log_n, r, p, salt, expected } => {
                lengths(salt, expected)?;
                if *log_n == 0 || *log_n > 24 || *r == 0 || *r > 64 || *p == 0 || *p > LANES_MAX {
                    return Err(wrong("parameters", "ln from 1 to 24, r from 1 to 64, p from 1 to 16"));
                }
                // 128 · N · r bytes.
                memory(((1_u64 << log_n) * u64::from(*r)).div_ceil(8), u64::from(*p))
            }
            Self::Bcrypt { cost, .. } => {
                if (BCRYPT_COST_MIN..=BCRYPT_COST_MAX).contains(cost) {
                    Ok(())
                } else {
                    Err(wrong("cost", "expected 4 to 15"))
                }
            }
            Self::Digest { .. } => Ok(()),
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Pbkdf2 { prf: Prf::HmacSha1, .. } => Algorithm::Pbkdf2Sha1,
            Self::Pbkdf2 { prf: Prf::HmacSha256, .. } => Algorithm::Pbkdf2Sha256,
            Self::Pbkdf2 { prf: Prf::HmacSha512, .. } => Algorithm::Pbkdf2Sha512,
            Self::Pbkdf2Sha3 { .. } => Algorithm::Pbkdf2Sha3,
            Self::Argon2 { .. } => Algorithm::Argon2,
            Self::Scrypt { .. } => Algorithm::Scrypt,
            Self::Bcrypt { .. } => Algorithm::Bcrypt,
            Self::Digest { .. } => Algorithm::Digest,
        }
    }

    /// The work of guessing, in an arbitrary unit; `None` for formats that are never replaced. The weights of PBKDF2
    /// follow OWASP's password storage cheat sheet, which considers 1,300,000 iterations of SHA-1, 600,000 of SHA-256
    /// and 210,000 of SHA-512 equivalent.
    pub(super) fn strength(&self) -> Option<u64> {
        match self {
            Self::Pbkdf2 { prf, iterations, .. } => Some(strength(*prf, *iterations)),
            Self::Pbkdf2Sha3 { iterations, .. } => Some(strength(Prf::HmacSha256, *iterations)),
            Self::Digest { .. } => Some(0),
            Self::Argon2 { .. } | Self::Scrypt { .. } | Self::Bcrypt { .. } => None,
        }
    }

    pub(super) fn verify(&self, secret: &[u8]) -> bool {
        match self {
            Self::Pbkdf2 { prf, iterations, salt, expected } => {
                let derived =
                    output(expected.len(), |out| derive(*prf, secret, salt, *iterations, out).is_ok());
                equal(derived, expected)
            }
            Self::Pbkdf2Sha3 { sha3, iterations, salt, expected } => {
                let rounds = iterations.get();
                let derived = output(expected.len(), |out| match sha3 {
                    Sha3::Bits224 => {
                        pbkdf2::pbkdf2::<SimpleHmac<Sha3_224>>(secret, salt, rounds, out).is_ok()
                    }
                    Sha3::Bits384 => {
                        pbkdf2::pbkdf2::<SimpleHmac<Sha3_384>>(secret, salt, rounds, out).is_ok()
                    }
                });
                equal(derived, expected)
            }
            Self::Argon2 { kind, version, memory_kib, passes, lanes, salt, expected } => {
                let kind = match kind {
                    Argon2Kind::Id => argon2::Algorithm::Argon2id,
                    Argon2Kind::I => argon2::Algorithm::Argon2i,
                };
                let version = if *version == 0x10 { argon2::Version::V0x10 } else { argon2::Version::V0x13 };
                let derived = output(expected.len(), |out| {
                    argon2::Params::new(*memory_kib, *passes, *lanes, Some(out.len())).is_ok_and(|params| {
                        Argon2::new(kind, version, params).hash_password_into(secret, salt, out).is_ok()
                    })
                });
                equal(derived, expected)
            }
            Self::Scrypt { log_n, r, p, salt, expected } => {
                let derived = output(expected.len(), |out| {
                    scrypt::Params::new(*log_n, *r, *p)
                        .is_ok_and(|params| scrypt::scrypt(secret, salt, &params, out).is_ok())
                });
                equal(derived, expected)
            }
            Self::Bcrypt { input, cost, salt, expected } => {
                let secret = match input {
                    BcryptInput::Secret => Zeroizing::new(secret.to_vec()),
                    BcryptInput::Sha256Hex => sha256_hex(secret),
                    BcryptInput::Sha256Base64 => in_base64(&sha256(secret)),
                    BcryptInput::HmacBase64 => {
                        in_base64(&hmac_sha256(BCRYPT.encode(salt).as_bytes(), secret))
                    }
                };
                bcrypt(*cost, *salt, &secret, expected)
            }
            Self::Digest { digest, expected } => {
                let derived = match digest {
                    Digest::Sha256 => sha256(secret),
                    Digest::Sha512 => sha512(secret),
                };
                equal(Some(derived), expected)
            }
        }
    }

    pub(super) fn profile(&self) -> String {
        let name = self.algorithm().as_str();
        match self {
            Self::Pbkdf2 { iterations, expected, .. } => {
                format!("{name};i={iterations};l={}", expected.len())
            }
            Self::Pbkdf2Sha3 { sha3, iterations, expected, .. } => {
                let bits = match sha3 {
                    Sha3::Bits224 => 224,
                    Sha3::Bits384 => 384,
                };
                format!("{name};b={bits};i={iterations};l={}", expected.len())
            }
            Self::Argon2 { kind, memory_kib, passes, lanes, expected, .. } => {
                let kind = match kind {
                    Argon2Kind::Id => "id",
                    Argon2Kind::I => "i",
                };
                format!("{name};{kind};m={memory_kib};t={passes};p={lanes};l={}", expected.len())
            }
            Self::Scrypt { log_n, r, p, expected, .. } => {
                format!("{name};ln={log_n};r={r};p={p};l={}", expected.len())
            }
            Self::Bcrypt { cost, .. } => format!("{name};c={cost}"),
            Self::Digest { expected, .. } => format!("{name};l={}", expected.len()),
        }
    }

    pub(super) fn of_profile(profile: &str) -> Result<Self, FormatError> {
        let unknown = || wrong("profile", "unknown");
        let (name, costs) = profile.split_once(';').ok_or_else(unknown)?;
        let (kind, costs) = match costs.strip_prefix("id;") {
            Some(costs) => (Argon2Kind::Id, costs),
            None => (Argon2Kind::I, costs.strip_prefix("i;").unwrap_or(costs)),
        };
        let mut values = Vec::with_capacity(4);
        for part in costs.split(';').take(5) {
            let (_, value) = part.split_once('=').ok_or_else(unknown)?;
            values.push(number(value, "profile")?);
        }
        let salt = vec![0; 16];
        let expected =
            |length: u32| vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(OUTPUT_BYTES_MAX + 1)];
        let pbkdf2 = |prf, count, length| {
            Ok(Self::Pbkdf2 {
                prf,
                iterations: iterations(count)?,
                salt: salt.clone(),
                expected: expected(length),
            })
        };
        match (name, &values[..]) {
            ("pbkdf2-sha1", &[count, length]) => pbkdf2(Prf::HmacSha1, count, length),
            ("pbkdf2-sha256", &[count, length]) => pbkdf2(Prf::HmacSha256, count, length),
            ("pbkdf2-sha512", &[count, length]) => pbkdf2(Prf::HmacSha512, count, length),
            ("pbkdf2-sha3", &[bits @ (224 | 384), count, length]) => Ok(Self::Pbkdf2Sha3 {
                sha3: if bits == 224 { Sha3::Bits224 } else { Sha3::Bits384 },
                iterations: iterations(count)?,
                salt,
                expected: expected(length),
            }),
            ("argon2", &[memory_kib, passes, lanes, length]) => Ok(Self::Argon2 {
                kind,
                version: 0x13,
                memory_kib,
                passes,
                lanes,
                salt,
                expected: expected(length),
            }),
            ("scrypt", &[log_n, r, p, length]) => Ok(Self::Scrypt {
                log_n: u8::try_from(log_n).map_err(|_| unknown())?,
                r,
                p,
                salt,
                expected: expected(length),
            }),
            ("bcrypt", &[cost]) => {
                Ok(Self::Bcrypt { input: BcryptInput::Secret, cost, salt: [0; 16], expected: [0; 23] })
            }
            ("digest", &[32]) => Ok(Self::Digest { digest: Digest::Sha256, expected: expected(32) }),
            ("digest", &[64]) => Ok(Self::Digest { digest: Digest::Sha512, expected: expected(64) }),
            _ => Err(unknown()),
        }
    }
}

pub(super) fn strength(prf: Prf, iterations: NonZeroU32) -> u64 {
    let weight = match prf {
        Prf::HmacSha1 => 21,
        Prf::HmacSha256 => 46,
        Prf::HmacSha512 => 130,
    };
    u64::from(iterations.get()) * weight
}

pub(super) fn iterations(count: u32) -> Result<NonZeroU32, FormatError> {
    NonZeroU32::new(count).ok_or_else(|| wrong("iterations", "expected at least 1"))
}

/// The exponent of scrypt's N.
pub(super) fn log_n(n: u32) -> Result<u8, FormatError> {
    if !n.is_power_of_two() {
        return Err(wrong("n", "not a power of two"));
    }
    u8::try_from(n.trailing_zeros()).map_err(|_| wrong("n", "too large"))
}

fn lengths(salt: &[u8], expected: &[u8]) -> Result<(), FormatError> {
    if !(SALT_BYTES_MIN..=SALT_BYTES_MAX).contains(&salt.len()) {
        return Err(wrong("salt", "expected 8 to 256 bytes"));
    }
    if !(OUTPUT_BYTES_MIN..=OUTPUT_BYTES_MAX).contains(&expected.len()) {
        return Err(wrong("hash", "expected 16 to 128 bytes"));
    }
    Ok(())
}

fn rounds(iterations: NonZeroU32, blocks: usize) -> Result<(), FormatError> {
    let blocks = u64::try_from(blocks).unwrap_or(u64::MAX);
    if u64::from(iterations.get()).saturating_mul(blocks) > ITERATIONS_MAX {
        return Err(wrong("iterations", "more than 10000000, each block of output counted"));
    }
    Ok(())
}

fn memory(kib: u64, passes: u64) -> Result<(), FormatError> {
    if kib > MEMORY_KIB_MAX {
        return Err(wrong("memory", "more than 256 MiB"));
    }
    if kib.saturating_mul(passes) > TRAFFIC_KIB_MAX {
        return Err(wrong("passes", "more than 4 GiB are passed over"));
    }
    Ok(())
}

/// The output of `fill`; `None` if it fails.
fn output(length: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(vec![0; length]);
    fill(&mut out).then_some(out)
}

fn equal(derived: Option<Zeroizing<Vec<u8>>>, expected: &[u8]) -> bool {
    derived.is_some_and(|derived| bool::from(derived.ct_eq(expected)))
}

/// bcrypt reads 72 bytes. A longer secret never matches, because its first 72 bytes would; it takes as long as any
/// other.
fn bcrypt(cost: u32, salt: [u8; 16], secret: &[u8], expected: &[u8; 23]) -> bool {
    let read = secret.len().min(BCRYPT_SECRET_BYTES_MAX);
    let mut terminated = Zeroizing::new([0; BCRYPT_SECRET_BYTES_MAX]);
    terminated[..read].copy_from_slice(&secret[..read]);
    let derived =
        Zeroizing::new(bcrypt::bcrypt(cost, salt, &terminated[..(read + 1).min(BCRYPT_SECRET_BYTES_MAX)]));
    bool::from(derived[..23].ct_eq(expected)) & (secret.len() <= BCRYPT_SECRET_BYTES_MAX)
}

//! Other hashes in place of ours, so that `cargo xtask bench secrets` can measure what these are worth. Nothing of it is
//! in a program that is shipped: the feature `bench-hashes` is in no default.
//!
//! `CARDEA_BENCH_HASH=openssl` verifies PBKDF2 by OpenSSL, a hash at a time. `CARDEA_BENCH_HASH=delay-us=3600` lets so
//! many microseconds pass before a verification, on no thread: over a stored secret that costs nothing, it is what a
//! hash would be that takes its time and no processor. Neither accepts what is wrong.

use std::{env, sync::OnceLock, time::Duration};

use cardea_kdf::{Prf, stored::StoredSecret};
use openssl::{hash::MessageDigest, memcmp, pkcs5::pbkdf2_hmac};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Instead {
    Nothing,
    OpenSsl,
    Delay(Duration),
}

fn instead() -> Instead {
    static INSTEAD: OnceLock<Instead> = OnceLock::new();
    *INSTEAD.get_or_init(|| {
        let instead = of(env::var("CARDEA_BENCH_HASH").ok().as_deref());
        tracing::warn!(?instead, "this build is for a bench, and its hashes may not be ours");
        instead
    })
}

fn of(variable: Option<&str>) -> Instead {
    let delay = variable.and_then(|variable| variable.strip_prefix("delay-us=")?.parse().ok());
    match (variable, delay) {
        (Some("openssl"), _) => Instead::OpenSsl,
        (_, Some(microseconds)) => Instead::Delay(Duration::from_micros(microseconds)),
        _ => Instead::Nothing,
    }
}

/// Whether jobs share lanes.
pub(super) fn has_lanes() -> bool {
    instead() != Instead::OpenSsl
}

/// Lets the time of a hash pass, where that is all that there is to be of it.
pub(super) async fn delay() {
    if let Instead::Delay(time) = instead() {
        tokio::time::sleep(time).await;
    }
}

/// Whether this is the secret.
pub(super) fn verify(stored: &StoredSecret, secret: &[u8]) -> bool {
    match stored.lane_job() {
        Some(job) if !has_lanes() => {
            let digest = match job.prf {
                Prf::HmacSha1 => MessageDigest::sha1(),
                Prf::HmacSha256 => MessageDigest::sha256(),
                Prf::HmacSha512 => MessageDigest::sha512(),
                _ => return false,
            };
            let mut derived = vec![0; job.expected.len()];
            let iterations = usize::try_from(job.iterations.get()).unwrap_or(usize::MAX);
            pbkdf2_hmac(secret, job.salt, iterations, digest, &mut derived).is_ok()
                && memcmp::eq(&derived, job.expected)
        }
        _ => stored.verify(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_changes_nothing() {
        for (variable, expected) in [
            (None, Instead::Nothing),
            (Some(""), Instead::Nothing),
            (Some("delay-us=x"), Instead::Nothing),
            (Some("openssl"), Instead::OpenSsl),
            (Some("delay-us=3600"), Instead::Delay(Duration::from_micros(3600))),
        ] {
            assert_eq!(of(variable), expected, "{variable:?}");
        }
    }
}

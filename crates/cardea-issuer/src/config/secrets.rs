//! The configuration of the verification of client secrets.

use std::time::Duration;

use cardea_kdf::stored::Target;

use super::invalid;
use crate::IssuerError;

const THREADS_MAX: usize = 256;
const QUEUE_MAX: usize = 65_536;
const WAIT_MAX: Duration = Duration::from_secs(60);
const REMEMBER_FOR_MAX: Duration = Duration::from_secs(3_600);
const REMEMBERED_MAX: usize = 1_000_000;
const FAILURES_MAX: u32 = 10_000;
const FORGIVEN_EVERY_MAX: Duration = Duration::from_secs(3_600);

/// How chosen and imported client secrets are verified. Generated secrets need only one SHA-256 and none of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretConfig {
    /// The number of hash threads. Default 0: half of the processors, rounded up. At most 256.
    pub hash_threads: usize,
    /// The most waiting hashes. Default 256; 2 to 65,536.
    pub hash_queue_max: usize,
    /// The longest time that a request waits for its hash, unless its own deadline is earlier. Default 2 s; 1 ms to 60
    /// s.
    pub hash_wait_max: Duration,
    /// The PBKDF2-HMAC-SHA-512 iterations of newly stored secrets. Default 210,000; 10,000 to 10,000,000.
    pub iterations: u32,
    /// How long a verified secret is cached, so that it isn't hashed again. Default 60 s, at most 1 h; zero disables
    /// the cache.
    pub remember_for: Duration,
    /// The most cached secrets. Default 10,000; at most 1,000,000.
    pub remembered_max: usize,
    /// How many failures a client may have from one address before attempts are refused. Default 20; 1 to 10,000.
    pub failures_max: u32,
    /// The time after which one failure is forgiven. Default 6 s; 1 ms to 1 h.
    pub failure_forgiven_every: Duration,
}

impl Default for SecretConfig {
    fn default() -> Self {
        Self {
            hash_threads: 0,
            hash_queue_max: 256,
            hash_wait_max: Duration::from_secs(2),
            iterations: Target::ITERATIONS_DEFAULT,
            remember_for: Duration::from_secs(60),
            remembered_max: 10_000,
            failures_max: 20,
            failure_forgiven_every: Duration::from_secs(6),
        }
    }
}

impl SecretConfig {
    pub(super) fn check(&self) -> Result<(), IssuerError> {
        let least = Duration::from_millis(1);
        for (field, holds, problem) in [
            ("secrets.hash_threads", self.hash_threads <= THREADS_MAX, "expected at most 256"),
            ("secrets.hash_queue_max", (2..=QUEUE_MAX).contains(&self.hash_queue_max), "expected 2 to 65536"),
            (
                "secrets.hash_wait_max",
                (least..=WAIT_MAX).contains(&self.hash_wait_max),
                "expected 1 ms to 60 s",
            ),
            ("secrets.remember_for", self.remember_for <= REMEMBER_FOR_MAX, "expected at most 1 h"),
            ("secrets.remembered_max", self.remembered_max <= REMEMBERED_MAX, "expected at most 1000000"),
            ("secrets.failures_max", (1..=FAILURES_MAX).contains(&self.failures_max), "expected 1 to 10000"),
            (
                "secrets.failure_forgiven_every",
                (least..=FORGIVEN_EVERY_MAX).contains(&self.failure_forgiven_every),
                "expected 1 ms to 1 h",
            ),
        ] {
            if !holds {
                return Err(invalid(field, problem.to_owned()));
            }
        }
        self.target().map(drop)
    }

    /// The parameters of new hashes.
    pub(crate) fn target(&self) -> Result<Target, IssuerError> {
        Target::new(self.iterations).map_err(|error| invalid("secrets.iterations", error.problem.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_holds_and_its_neighbour_passes() {
        type Change = fn(&mut SecretConfig);
        let cases: [(&str, Change, bool); 12] = [
            ("threads", |c| c.hash_threads = 257, false),
            ("threads", |c| c.hash_threads = 256, true),
            ("queue", |c| c.hash_queue_max = 1, false),
            ("queue", |c| c.hash_queue_max = 2, true),
            ("wait", |c| c.hash_wait_max = Duration::ZERO, false),
            ("iterations", |c| c.iterations = 9_999, false),
            ("iterations", |c| c.iterations = 10_000, true),
            ("remembering", |c| c.remember_for = Duration::from_secs(3_601), false),
            ("remembering", |c| c.remember_for = Duration::ZERO, true),
            ("failures", |c| c.failures_max = 0, false),
            ("failures", |c| c.failures_max = 1, true),
            ("forgiving", |c| c.failure_forgiven_every = Duration::ZERO, false),
        ];
        for (what, change, valid) in cases {
            let mut config = SecretConfig::default();
            change(&mut config);
            assert_eq!(config.check().is_ok(), valid, "{what}");
        }
    }
}

//! How client secrets are verified.

use std::time::Duration;

use cardea_issuer::SecretConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{super::text::DurationText, threads::Threads};

/// How many threads hash client secrets.
pub(crate) type HashThreads = Threads<256>;

/// How client secrets are verified that somebody chose or brought along from another server. Those that the server
/// generated take one SHA-256, and nothing of this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClientSecrets {
    /// How many threads hash. `"auto"`: half of the processors, rounded up, so that a flood of secrets to hash leaves
    /// the other half to traffic.
    pub(crate) hash_threads: HashThreads,
    /// Hashes that may wait for a thread. What comes beyond them is answered 503 with `Retry-After`.
    #[schemars(range(min = 2, max = 65_536))]
    pub(crate) hash_queue_max: usize,
    /// How long a request may wait for its hash, where its own time isn't over before; 503 after that.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub(crate) hash_wait_max: Duration,
    /// The iterations of PBKDF2-HMAC-SHA-512 under which secrets are stored from now on. Weaker hashes are replaced as
    /// their secrets turn out to be right. `cardea bench kdf` says what they cost here; the default is OWASP's.
    #[schemars(range(min = 10_000, max = 10_000_000))]
    pub(crate) iterations: u32,
    /// How long a right secret is remembered, under a key that is made at each start, so that it isn't hashed on each
    /// request. `"0s"`: not at all. A secret that is rotated and a client that is disabled are refused at once all
    /// the same.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-maximum" = "1h"))]
    pub(crate) remember_for: Duration,
    /// How many right secrets are remembered.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) remembered_max: usize,
    /// How often a client may fail from one address (IPv6: one /64) before further attempts are answered 429. Secrets
    /// that are remembered are not concerned, and neither is the same client at another address.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) failures_max: u32,
    /// After how long one of these failures is forgiven.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub(crate) failure_forgiven_every: Duration,
}

impl Default for ClientSecrets {
    fn default() -> Self {
        let library = SecretConfig::default();
        Self {
            hash_threads: HashThreads::Auto,
            hash_queue_max: library.hash_queue_max,
            hash_wait_max: library.hash_wait_max,
            iterations: library.iterations,
            remember_for: library.remember_for,
            remembered_max: library.remembered_max,
            failures_max: library.failures_max,
            failure_forgiven_every: library.failure_forgiven_every,
        }
    }
}

//! The verification of client secrets: first the cache, then the failure budget, then the hash.
//!
//! The order keeps one caller from affecting another. The cache is asked before any budget, so guessing locks no cached
//! client out. A proven secret has a budget of its own, so guessing locks no client out whose entry has expired. The budget
//! is checked before the hash, so guessing can't occupy the hash threads. Attempts that are refused whatever the client's
//! record says are refused before the store is read (docs/adr/0010-refused-before-the-store-is-read.md).

use std::{fmt, net::IpAddr, sync::Arc, thread, time::Duration};

use aws_lc_rs::rand;
use cardea_clock::{Mono, Timestamp};
use cardea_kdf::{
    Password,
    stored::{StoredSecret, Target, check_secret},
};
use cardea_store::{ClientRecord, IssuerStore, SecretMix, SecretRecord, StoreError};
use zeroize::Zeroizing;

use crate::{
    IssuerError, SecretConfig, client_auth::FORMAT_SHA256, client_auth::Reading, client_auth::is_live,
    client_auth::is_permitted,
};

mod cache;
mod dummy;
mod failures;
mod lanes;
mod pool;
mod proven;
mod queue;
mod stats;

pub(crate) use stats::RejectReason;
pub use stats::SecretStats;

use self::{
    cache::{Fingerprint, SlowHashClients, VerificationCache},
    dummy::{DummySecret, DummySecrets},
    failures::{Charge, Failures, Outcome, ProvenSecret},
    pool::HashPool,
    queue::Presented,
    stats::Counters,
};

/// The client address and the deadline of a token request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    /// The address that failures are counted for. `None`: the address is unknown, and the request is never refused for
    /// failures.
    pub address: Option<IpAddr>,
    /// The deadline of the request. `None`: only the configured wait for the hash applies.
    pub deadline: Option<Mono>,
}

/// The priority of a job. Each but the last has turns, so none is starved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// The client has authenticated from this address prefix before.
    KnownPair,
    /// No recent failure from this prefix.
    Normal,
    /// As normal, but the client is being guessed at.
    TargetedClient,
    /// Few recent failures from this prefix, or an unknown address.
    FewFailures,
    /// More recent failures from this prefix.
    ManyFailures,
    /// Nobody waits for the result. It runs when no other job waits, and is interrupted by others.
    Background,
}

/// Why no hash was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashError {
    QueueFull,
    TimedOut,
    Stopped,
}

/// An attempt that was rejected without a hash.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) reason: RejectReason,
    pub(crate) retry_after: Duration,
}

/// One reading of the presented credentials, with the client that it names.
pub(crate) struct Candidate<'a> {
    pub(crate) reading: &'a Reading,
    pub(crate) record: Option<ClientRecord>,
}

impl Candidate<'_> {
    fn is_permitted(&self) -> bool {
        self.record.as_ref().is_some_and(|record| is_permitted(record, self.reading))
    }

    /// The version that cache entries are bound to.
    fn version(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.version)
    }
}

/// A stored secret to compare a reading with.
struct Comparison {
    candidate: usize,
    stored: StoredSecret,
    /// The secret of the record; `None` for a dummy secret.
    secret: Option<SecretRecord>,
}

/// Verifies secrets: the hash threads, the caches and the failure budgets.
pub(crate) struct Verifier {
    pool: Arc<HashPool>,
    cache: Arc<VerificationCache>,
    failures: Failures,
    slow_hash_clients: SlowHashClients,
    dummies: DummySecrets,
    counters: Arc<Counters>,
    target: Target,
    wait_max: Duration,
}

impl Verifier {
    /// `dummy_key` is the registry's key for dummy secrets.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`] without randomness; [`IssuerError::InvalidConfig`].
    pub(crate) fn new(config: &SecretConfig, dummy_key: &[u8; 32]) -> Result<Self, IssuerError> {
        let mut keys = Zeroizing::new([[0_u8; 32]; 3]);
        for key in keys.iter_mut() {
            rand::fill(key).map_err(|_| IssuerError::Crypto("no randomness"))?;
        }
        let counters = Arc::<Counters>::default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = if config.hash_threads == 0 { processors.div_ceil(2) } else { config.hash_threads };
        Ok(Self {
            pool: Arc::new(HashPool::new(
                threads,
                config.hash_queue_max,
                config.hash_wait_max,
                Arc::clone(&counters),
            )),
            cache: Arc::new(VerificationCache::new(&keys[0], config.remember_for, config.remembered_max)),
            failures: Failures::new(&keys[1], config.failures_max, config.failure_forgiven_every),
            slow_hash_clients: SlowHashClients::new(&keys[2]),
            dummies: DummySecrets::new(dummy_key),
            counters,
            target: config.target()?,
            wait_max: config.hash_wait_max,
        })
    }

    /// Sets the distribution of the registry's secrets, which dummy secrets follow.
    pub(crate) fn set_mix(&self, mix: &[SecretMix]) {
        self.dummies.set_mix(mix);
    }

    /// Forgets which clients need a slow hash, because clients have changed in this process.
    pub(crate) fn clients_changed(&self) {
        self.slow_hash_clients.clear();
    }

    /// Rejects attempts that [`Self::verify`] would reject whatever the clients' records say: the secret is not cached and
    /// needs a slow hash, and the failure budget is exhausted or the queue is full.
    ///
    /// # Errors
    /// [`Rejection`]. No failure is counted.
    pub(crate) fn reject_before_read(
        &self,
        readings: &[Reading],
        context: RequestContext,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let needs_slow_hash = |reading: &Reading| {
            check_secret(&reading.secret).is_ok()
                && self.slow_hash_clients.contains(&reading.id, now.mono)
                && self.cache.client_version(&self.fingerprint(reading), now).is_none()
        };
        if readings.is_empty() || !readings.iter().all(needs_slow_hash) {
            return Ok(());
        }
        let proven = self.proven(readings, context, now);
        let peeked = self.failures.peek(&ids(readings), proven.as_ref(), context.address, now.mono);
        let priority = peeked.map_err(|retry_after| self.exceeded(retry_after))?;
        if self.pool.admits(priority, now.mono) { Ok(()) } else { Err(self.rejection(HashError::QueueFull)) }
    }

    /// The index of the first candidate that is authenticated.
    ///
    /// A client that doesn't exist, is disabled, has no secret or has another encoding takes the same steps as an accepted
    /// one up to the comparison: its own secrets are hashed, or dummy secrets.
    ///
    /// # Errors
    /// [`Rejection`]: no hash was computed, or the result of a started one was not awaited.
    pub(crate) async fn verify(
        &self,
        store: &Arc<dyn IssuerStore>,
        candidates: &[Candidate<'_>],
        context: RequestContext,
        now: Timestamp,
    ) -> Result<Option<usize>, Rejection> {
        let mut generated = None;
        for (index, candidate) in candidates.iter().enumerate() {
            let matched = candidate.reading.holds_generated(candidate.record.as_ref(), now.wall);
            if matched & candidate.is_permitted() && generated.is_none() {
                generated = Some(index);
            }
        }
        if generated.is_some() {
            return Ok(generated);
        }
        if let Some(index) = self.cached(candidates, now) {
            self.counters.cache_hit();
            return Ok(Some(index));
        }
        let comparisons = self.comparisons(candidates, now);
        if comparisons.is_empty() {
            return Ok(None);
        }
        let proven = self.proven(candidates.iter().map(|candidate| candidate.reading), context, now);
        let charge = self.charge(candidates, proven.as_ref(), context, now)?;
        let matched = match self.hash(candidates, &comparisons, &charge, context, now).await {
            Ok(matched) => matched,
            Err(error) => return Err(self.rejection(error)),
        };
        let right = comparisons.iter().zip(matched).find(|(comparison, matched)| {
            // A dummy secret authenticates nobody.
            *matched && comparison.secret.is_some() && candidates[comparison.candidate].is_permitted()
        });
        let Some((comparison, _)) = right else {
            if let Some(proven) = &proven {
                self.failures.forget_proven(proven);
            }
            charge.settle(Outcome::Wrong);
            return Ok(None);
        };
        charge.settle(Outcome::Right);
        let candidate = &candidates[comparison.candidate];
        let may_cache =
            self.cache.is_enabled() && candidate.record.as_ref().is_some_and(|record| record.remember_secret);
        let fingerprint = may_cache.then(|| self.fingerprint(candidate.reading));
        self.failures.record_success(&candidate.reading.id, fingerprint, context.address, now.mono);
        self.record_success(store, &candidates[comparison.candidate], comparison, now);
        Ok(Some(comparison.candidate))
    }

    /// The profile and stored form of a secret that an operator chose. It waits for a hash thread without a limit.
    ///
    /// # Errors
    /// [`IssuerError::Busy`]; [`IssuerError::InvalidClient`] if the secret is not allowed.
    pub(crate) async fn hash_chosen(&self, secret: &str, now: Mono) -> Result<(String, String), IssuerError> {
        let secret: Presented = Arc::new(Password::new(Zeroizing::new(secret.as_bytes().to_vec())));
        let hashed = self.pool.hash(secret, self.target, salt()?, Priority::Normal, now).await;
        match hashed {
            Ok(Some(text)) => Ok((self.target.profile(), text)),
            Ok(None) => {
                let problem = "expected 1 to 1024 bytes without NUL".to_owned();
                Err(IssuerError::InvalidClient { field: "secret", problem })
            }
            Err(_) => Err(IssuerError::Busy),
        }
    }

    pub(crate) fn stats(&self, now: Mono) -> SecretStats {
        let (queue_size, oldest) = self.pool.waiting();
        SecretStats {
            queue_size,
            queue_age: oldest.map_or(Duration::ZERO, |oldest| now.saturating_since(oldest)),
            cache_size: self.cache.len(),
            failures_size: self.failures.len(),
            ..self.counters.read()
        }
    }

    /// The stored secrets to compare each reading with: the valid secrets of its client that need a slow hash, or dummy
    /// secrets. Clients without other secrets are recorded in [`SlowHashClients`].
    fn comparisons(&self, candidates: &[Candidate<'_>], now: Timestamp) -> Vec<Comparison> {
        let mut comparisons = Vec::new();
        for (index, candidate) in candidates.iter().enumerate() {
            if check_secret(&candidate.reading.secret).is_err() {
                continue;
            }
            let before = comparisons.len();
            let secrets = candidate.record.as_ref().map_or(&[][..], |record| &record.secrets);
            let mut live = secrets.iter().filter(|secret| is_live(secret, now.wall)).peekable();
            let mut needs_no_hash = false;
            if live.peek().is_none() {
                let DummySecret { hashed, has_generated } = self.dummies.of(&candidate.reading.id);
                needs_no_hash = has_generated;
                let of = |stored| Comparison { candidate: index, stored, secret: None };
                comparisons.extend(hashed.into_iter().map(of));
            }
            for secret in live {
                if secret.format == FORMAT_SHA256 {
                    needs_no_hash = true;
                    continue;
                }
                let text = std::str::from_utf8(&secret.verifier).ok();
                match text.and_then(|text| StoredSecret::parse(text).ok()) {
                    Some(stored) => {
                        comparisons.push(Comparison {
                            candidate: index,
                            stored,
                            secret: Some(secret.clone()),
                        });
                    }
                    None => tracing::warn!(
                        secret_id = secret.id,
                        "a stored secret of unknown format matches nothing"
                    ),
                }
            }
            if comparisons.len() > before && !needs_no_hash {
                self.slow_hash_clients.insert(&candidate.reading.id, now.mono);
            }
        }
        comparisons
    }

    fn cached(&self, candidates: &[Candidate<'_>], now: Timestamp) -> Option<usize> {
        let mut found = None;
        for (index, candidate) in candidates.iter().enumerate() {
            let version = self.cache.client_version(&self.fingerprint(candidate.reading), now);
            let holds = version.is_some_and(|version| version == candidate.version());
            if holds & candidate.is_permitted() && found.is_none() {
                found = Some(index);
            }
        }
        found
    }

    fn charge(
        &self,
        candidates: &[Candidate<'_>],
        proven: Option<&ProvenSecret>,
        context: RequestContext,
        now: Timestamp,
    ) -> Result<Charge<'_>, Rejection> {
        let ids = ids(candidates.iter().map(|candidate| candidate.reading));
        let charged = self.failures.charge(&ids, proven, context.address, now.mono);
        charged.map_err(|retry_after| self.exceeded(retry_after))
    }

    /// The first reading whose secret is proven for the address.
    fn proven<'a>(
        &self,
        readings: impl IntoIterator<Item = &'a Reading>,
        context: RequestContext,
        now: Timestamp,
    ) -> Option<ProvenSecret> {
        readings.into_iter().find_map(|reading| {
            self.failures.proven(&reading.id, &self.fingerprint(reading), context.address, now.mono)
        })
    }

    fn fingerprint(&self, reading: &Reading) -> Fingerprint {
        self.cache.fingerprint(&reading.id, &reading.secret)
    }

    async fn hash(
        &self,
        candidates: &[Candidate<'_>],
        comparisons: &[Comparison],
        charge: &Charge<'_>,
        context: RequestContext,
        now: Timestamp,
    ) -> Result<Vec<bool>, HashError> {
        let left = context.deadline.map_or(self.wait_max, |deadline| deadline.saturating_since(now.mono));
        let wait = left.min(self.wait_max);
        if wait.is_zero() {
            return Err(HashError::TimedOut);
        }
        let secrets: Vec<Presented> = candidates
            .iter()
            .map(|candidate| Arc::new(Password::new(candidate.reading.secret.clone())))
            .collect();
        let jobs = comparisons
            .iter()
            .map(|comparison| (comparison.stored.clone(), Arc::clone(&secrets[comparison.candidate])));
        self.pool.verify(jobs.collect(), charge.priority, &charge.taken, wait, now.mono).await
    }

    fn exceeded(&self, retry_after: Duration) -> Rejection {
        self.counters.rejected(RejectReason::FailuresExceeded);
        Rejection { reason: RejectReason::FailuresExceeded, retry_after }
    }

    fn rejection(&self, error: HashError) -> Rejection {
        let reason = match error {
            HashError::QueueFull | HashError::Stopped => RejectReason::QueueFull,
            HashError::TimedOut => RejectReason::TimedOut,
        };
        self.counters.rejected(reason);
        Rejection { reason, retry_after: Duration::from_secs(1) }
    }

    /// Caches a right secret, and hashes it again if its stored hash is weaker than configured.
    fn record_success(
        &self,
        store: &Arc<dyn IssuerStore>,
        candidate: &Candidate<'_>,
        comparison: &Comparison,
        now: Timestamp,
    ) {
        let (Some(record), Some(secret)) = (&candidate.record, &comparison.secret) else { return };
        let reading = candidate.reading;
        if record.remember_secret {
            let fingerprint = self.fingerprint(reading);
            self.cache.insert(fingerprint, record.version, secret.expires_at, now);
        }
        if comparison.stored.needs_rehash(&self.target) {
            let rehash = Rehash {
                pool: Arc::clone(&self.pool),
                cache: Arc::clone(&self.cache),
                store: Arc::clone(store),
                target: self.target,
                record: record.clone(),
                secret_id: secret.id.clone(),
                secret: Arc::new(Password::new(reading.secret.clone())),
            };
            // If the queue is full, the next right secret tries again.
            tokio::spawn(rehash.run(now));
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Replaces the stored hash of a secret that was just verified.
struct Rehash {
    pool: Arc<HashPool>,
    cache: Arc<VerificationCache>,
    store: Arc<dyn IssuerStore>,
    target: Target,
    record: ClientRecord,
    secret_id: String,
    secret: Presented,
}

impl Rehash {
    async fn run(mut self, now: Timestamp) {
        let Ok(salt) = salt() else { return };
        let secret = Arc::clone(&self.secret);
        let Ok(Some(text)) = self.pool.hash(secret, self.target, salt, Priority::Background, now.mono).await
        else {
            return;
        };
        let Some(stored) = self.record.secrets.iter_mut().find(|secret| secret.id == self.secret_id) else {
            return;
        };
        stored.format = self.target.profile();
        stored.verifier = text.into_bytes();
        let expires_at = stored.expires_at;
        // Compare-and-swap on the version, so that no concurrent change of the client is undone.
        match self.store.update_client(&self.record).await {
            Ok(()) => {
                tracing::info!(
                    client_id = self.record.id,
                    secret_id = self.secret_id,
                    "client secret hashed again"
                );
                if self.record.remember_secret {
                    let fingerprint = self.cache.fingerprint(&self.record.id, self.secret.as_bytes());
                    let version = self.record.version.saturating_add(1);
                    self.cache.insert(fingerprint, version, expires_at, now);
                }
            }
            // A concurrent request or change was first. The next right secret tries again.
            Err(StoreError::Changed) => {}
            Err(error) => tracing::warn!(%error, client_id = self.record.id, "secret can't be hashed again"),
        }
    }
}

/// The ids of the clients that were named, without repetition.
fn ids<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Vec<&'a str> {
    let mut ids: Vec<&str> = readings.into_iter().map(|reading| reading.id.as_str()).collect();
    ids.dedup();
    ids
}

fn salt() -> Result<[u8; 16], IssuerError> {
    let mut salt = [0; 16];
    rand::fill(&mut salt).map_err(|_| IssuerError::Crypto("no randomness"))?;
    Ok(salt)
}

#[cfg(test)]
mod tests;

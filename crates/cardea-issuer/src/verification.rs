//! Whether a presented secret is one of a client's: remembered ones first, then the budget of failures, then the hash.
//!
//! The order is what keeps one caller from hurting another. Remembered secrets come before any budget, so guessing
//! locks nobody out, and a secret that was right from there before has a budget of its own, so guessing locks nobody out
//! who is no longer remembered either; the budget comes before the hash, so guessing takes no more of the hash threads than it may. Where
//! that much is known without the client's record, what would be refused isn't worth reading it
//! (docs/adr/0010-refused-before-the-store-is-read.md).

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

mod calibration;
mod courtesy;
mod failures;
mod hash_needed;
#[cfg(feature = "bench-hashes")]
mod instead;
mod keyed;
mod lanes;
mod pool;
mod proven;
mod queue;
mod remembered;
mod stand_in;
mod stats;

pub(crate) use stats::Rejected;
pub use stats::SecretStats;

use self::{
    failures::{Charge, Failures, Outcome, ProvenSecret},
    hash_needed::HashNeeded,
    pool::Pool,
    queue::Presented,
    remembered::{Fingerprint, Remembered},
    stand_in::{StandIn, StandIns},
    stats::Counters,
};

/// Where a token request comes from, and how long it may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source {
    /// The address that failures are counted for; `None`: not known, and never refused for failures.
    pub address: Option<IpAddr>,
    /// When the request's time is over; `None`: as configured for the hash alone.
    pub deadline: Option<Mono>,
}

/// Which jobs go first. Each but the last has turns, and none is kept out for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// On a client from where it was right before: ahead of all that only may be.
    Familiar,
    /// From where nobody failed lately.
    Usual,
    /// The same, on a client that is being guessed at.
    Doubtful,
    /// From where few failed lately, or from nobody knows where.
    Failed,
    /// From where more did.
    Suspect,
    /// Nobody waits for it: when there is nothing else to do, and put aside when there is.
    Later,
}

/// Why there was no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    Full,
    TooOld,
    Stopped,
}

/// An attempt that was not made.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) why: Rejected,
    pub(crate) retry_after: Duration,
}

/// One reading of what was presented, with the client that it names.
pub(crate) struct Candidate<'a> {
    pub(crate) reading: &'a Reading,
    pub(crate) record: Option<ClientRecord>,
}

impl Candidate<'_> {
    fn is_permitted(&self) -> bool {
        self.record.as_ref().is_some_and(|record| is_permitted(record, self.reading))
    }

    /// The version that remembering is bound to.
    fn version(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.version)
    }
}

/// A stored secret that a reading is to be compared with.
struct Comparison {
    candidate: usize,
    stored: StoredSecret,
    /// The record's secret; a stand-in has none.
    secret: Option<SecretRecord>,
}

/// The verification of secrets: threads, memory and budget.
pub(crate) struct Verifier {
    pool: Arc<Pool>,
    remembered: Arc<Remembered>,
    failures: Failures,
    hash_needed: HashNeeded,
    stand_ins: StandIns,
    counters: Arc<Counters>,
    target: Target,
    wait_max: Duration,
}

impl Verifier {
    /// `stand_in_key` is the registry's.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`] without randomness; [`IssuerError::InvalidConfig`].
    pub(crate) fn new(config: &SecretConfig, stand_in_key: &[u8; 32]) -> Result<Self, IssuerError> {
        let mut keys = Zeroizing::new([[0_u8; 32]; 3]);
        for key in keys.iter_mut() {
            rand::fill(key).map_err(|_| IssuerError::Crypto("no randomness"))?;
        }
        let counters = Arc::<Counters>::default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = if config.hash_threads == 0 { processors.div_ceil(2) } else { config.hash_threads };
        Ok(Self {
            pool: Arc::new(Pool::new(
                threads,
                config.hash_queue_max,
                config.hash_wait_max,
                Arc::clone(&counters),
            )),
            remembered: Arc::new(Remembered::new(&keys[0], config.remember_for, config.remembered_max)),
            failures: Failures::new(&keys[1], config.failures_max, config.failure_forgiven_every),
            hash_needed: HashNeeded::new(&keys[2]),
            stand_ins: StandIns::new(stand_in_key),
            counters,
            target: config.target()?,
            wait_max: config.hash_wait_max,
        })
    }

    /// Takes over what secrets the registry has, for the stand-ins.
    pub(crate) fn follow(&self, mix: &[SecretMix]) {
        self.stand_ins.follow(mix);
    }

    /// Clients have changed in this process: what it knows of those it read before may be wrong.
    pub(crate) fn forget_read(&self) {
        self.hash_needed.forget();
    }

    /// Refuses what [`Self::verify`] would refuse whatever the clients' records say: what is not remembered, can be nothing
    /// but hashed, and may not be, or has no place to wait in.
    ///
    /// # Errors
    /// [`Rejection`]. Nothing was counted as a failure.
    pub(crate) fn refuse_unread(
        &self,
        readings: &[Reading],
        source: Source,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let is_hashed_only = |reading: &Reading| {
            check_secret(&reading.secret).is_ok()
                && self.hash_needed.holds(&reading.id, now.mono)
                && self.remembered.version(&self.fingerprint(reading), now).is_none()
        };
        if readings.is_empty() || !readings.iter().all(is_hashed_only) {
            return Ok(());
        }
        let proven = self.proven(readings, source, now);
        let looked = self.failures.look(&ids(readings), proven.as_ref(), source.address, now.mono);
        let class = looked.map_err(|retry_after| self.exceeded(retry_after))?;
        if self.pool.admits(class, now.mono) { Ok(()) } else { Err(self.rejection(Busy::Full)) }
    }

    /// Which of the candidates is authenticated, the first of them where there are more.
    ///
    /// A client that doesn't exist, is disabled, has no secret or is read otherwise takes the steps of one that is
    /// right up to the comparison: its own secrets are hashed, or stand-ins.
    ///
    /// # Errors
    /// [`Rejection`]; then no hash was computed, but one that had begun.
    pub(crate) async fn verify(
        &self,
        store: &Arc<dyn IssuerStore>,
        candidates: &[Candidate<'_>],
        source: Source,
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
        if let Some(index) = self.remembered(candidates, now) {
            self.counters.remembered();
            return Ok(Some(index));
        }
        let comparisons = self.comparisons(candidates, now);
        if comparisons.is_empty() {
            return Ok(None);
        }
        let proven = self.proven(candidates.iter().map(|candidate| candidate.reading), source, now);
        let charge = self.charge(candidates, proven.as_ref(), source, now)?;
        let matched = match self.hash(candidates, &comparisons, &charge, source, now).await {
            Ok(matched) => matched,
            Err(busy) => return Err(self.rejection(busy)),
        };
        let right = comparisons.iter().zip(matched).find(|(comparison, matched)| {
            // A stand-in is right for nobody.
            *matched && comparison.secret.is_some() && candidates[comparison.candidate].is_permitted()
        });
        let Some((comparison, _)) = right else {
            if let Some(proven) = &proven {
                self.failures.disprove(proven);
            }
            charge.settle(Outcome::Wrong);
            return Ok(None);
        };
        charge.settle(Outcome::Right);
        let candidate = &candidates[comparison.candidate];
        let remembers =
            self.remembered.is_on() && candidate.record.as_ref().is_some_and(|record| record.remember_secret);
        let fingerprint = remembers.then(|| self.fingerprint(candidate.reading));
        self.failures.welcome(&candidate.reading.id, fingerprint, source.address, now.mono);
        self.settle(store, &candidates[comparison.candidate], comparison, now);
        Ok(Some(comparison.candidate))
    }

    /// What is stored of a secret that somebody chose. It waits for a thread as long as it takes.
    ///
    /// # Errors
    /// [`IssuerError::Busy`]; [`IssuerError::InvalidClient`] where it can be no secret.
    pub(crate) async fn store_chosen(
        &self,
        secret: &str,
        now: Mono,
    ) -> Result<(String, String), IssuerError> {
        let secret: Presented = Arc::new(Password::new(Zeroizing::new(secret.as_bytes().to_vec())));
        let hashed = self.pool.hash(secret, self.target, salt()?, Class::Usual, now).await;
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
            remembered_size: self.remembered.len(),
            failures_size: self.failures.len(),
            ..self.counters.read()
        }
    }

    /// What each reading is to be compared with: the live secrets of its client that need a hash, or stand-ins. Clients
    /// that have no others are taken note of.
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
                let StandIn { hashed, has_generated } = self.stand_ins.of(&candidate.reading.id);
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
                self.hash_needed.learn(&candidate.reading.id, now.mono);
            }
        }
        comparisons
    }

    fn remembered(&self, candidates: &[Candidate<'_>], now: Timestamp) -> Option<usize> {
        let mut found = None;
        for (index, candidate) in candidates.iter().enumerate() {
            let remembered = self.remembered.version(&self.fingerprint(candidate.reading), now);
            let holds = remembered.is_some_and(|version| version == candidate.version());
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
        source: Source,
        now: Timestamp,
    ) -> Result<Charge<'_>, Rejection> {
        let ids = ids(candidates.iter().map(|candidate| candidate.reading));
        let charged = self.failures.charge(&ids, proven, source.address, now.mono);
        charged.map_err(|retry_after| self.exceeded(retry_after))
    }

    /// A reading whose secret was right from there before.
    fn proven<'a>(
        &self,
        readings: impl IntoIterator<Item = &'a Reading>,
        source: Source,
        now: Timestamp,
    ) -> Option<ProvenSecret> {
        readings.into_iter().find_map(|reading| {
            self.failures.proven(&reading.id, &self.fingerprint(reading), source.address, now.mono)
        })
    }

    fn fingerprint(&self, reading: &Reading) -> Fingerprint {
        self.remembered.fingerprint(&reading.id, &reading.secret)
    }

    async fn hash(
        &self,
        candidates: &[Candidate<'_>],
        comparisons: &[Comparison],
        charge: &Charge<'_>,
        source: Source,
        now: Timestamp,
    ) -> Result<Vec<bool>, Busy> {
        let left = source.deadline.map_or(self.wait_max, |deadline| deadline.saturating_since(now.mono));
        let wait = left.min(self.wait_max);
        if wait.is_zero() {
            return Err(Busy::TooOld);
        }
        let secrets: Vec<Presented> = candidates
            .iter()
            .map(|candidate| Arc::new(Password::new(candidate.reading.secret.clone())))
            .collect();
        let jobs = comparisons
            .iter()
            .map(|comparison| (comparison.stored.clone(), Arc::clone(&secrets[comparison.candidate])));
        self.pool.verify(jobs.collect(), charge.class, &charge.taken, wait, now.mono).await
    }

    fn exceeded(&self, retry_after: Duration) -> Rejection {
        self.counters.rejected(Rejected::FailuresExceeded);
        Rejection { why: Rejected::FailuresExceeded, retry_after }
    }

    fn rejection(&self, busy: Busy) -> Rejection {
        let why = match busy {
            Busy::Full | Busy::Stopped => Rejected::QueueFull,
            Busy::TooOld => Rejected::TooOld,
        };
        self.counters.rejected(why);
        Rejection { why, retry_after: Duration::from_secs(1) }
    }

    /// What a right secret leaves behind: memory of it, and a better hash where its own is weaker than configured.
    fn settle(
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
            self.remembered.remember(fingerprint, record.version, secret.expires_at, now);
        }
        if comparison.stored.needs_rehash(&self.target) {
            let rehash = Rehash {
                pool: Arc::clone(&self.pool),
                remembered: Arc::clone(&self.remembered),
                store: Arc::clone(store),
                target: self.target,
                record: record.clone(),
                secret_id: secret.id.clone(),
                secret: Arc::new(Password::new(reading.secret.clone())),
            };
            // Nobody waits for it. Where the queue is full it is left to the next time.
            tokio::spawn(rehash.run(now));
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Hashes a secret anew that was just right.
struct Rehash {
    pool: Arc<Pool>,
    remembered: Arc<Remembered>,
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
        let Ok(Some(text)) = self.pool.hash(secret, self.target, salt, Class::Later, now.mono).await else {
            return;
        };
        let Some(stored) = self.record.secrets.iter_mut().find(|secret| secret.id == self.secret_id) else {
            return;
        };
        stored.format = self.target.profile();
        stored.verifier = text.into_bytes();
        let expires_at = stored.expires_at;
        // Compare-and-swap on the version: whatever happened to the client meanwhile is not undone.
        match self.store.update_client(&self.record).await {
            Ok(()) => {
                tracing::info!(
                    client_id = self.record.id,
                    secret_id = self.secret_id,
                    "client secret hashed anew"
                );
                if self.record.remember_secret {
                    let fingerprint = self.remembered.fingerprint(&self.record.id, self.secret.as_bytes());
                    let version = self.record.version.saturating_add(1);
                    self.remembered.remember(fingerprint, version, expires_at, now);
                }
            }
            // Another request was faster, or the client was changed: the next right secret tries again.
            Err(StoreError::Changed) => {}
            Err(error) => tracing::warn!(%error, client_id = self.record.id, "a secret can't be hashed anew"),
        }
    }
}

/// The clients that were named, each once.
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

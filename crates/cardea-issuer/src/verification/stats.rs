//! Counters of the verification of secrets.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use cardea_kdf::stored::Algorithm;

/// Figures of the verification of secrets, as of one moment. Counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretStats {
    /// Jobs that wait for a hash thread.
    pub queue_size: usize,
    /// How long the oldest waiting job has waited.
    pub queue_age: Duration,
    /// Hashes computed to verify secrets, including dummy secrets, by algorithm.
    pub hashes: Vec<(&'static str, u64)>,
    /// Hashes computed to store secrets.
    pub hashes_made: u64,
    /// Batches of jobs that shared lanes.
    pub lane_runs: u64,
    /// Jobs in these batches. Divided by the batches, it shows how well lanes were shared.
    pub lane_jobs: u64,
    /// Lanes, counted at each step of up to 32 iterations.
    pub lanes_run: u64,
    /// Lanes that held a job at the end of the step. Divided by all lanes, it shows how well they were filled.
    pub lanes_filled: u64,
    /// Secrets that were found in the verification cache, so that no hash was computed.
    pub cache_hits: u64,
    /// Entries of the verification cache, including expired ones.
    pub cache_size: usize,
    /// Entries of the failure budgets, of known pairs and of proven secrets.
    pub failures_size: usize,
    /// Attempts that were rejected before a hash, by reason.
    pub rejected: Vec<(&'static str, u64)>,
}

/// Why an attempt was rejected before a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    QueueFull,
    TimedOut,
    FailuresExceeded,
}

impl RejectReason {
    const ALL: [Self; 3] = [Self::QueueFull, Self::TimedOut, Self::FailuresExceeded];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "hash_queue_full",
            Self::TimedOut => "hash_too_old",
            Self::FailuresExceeded => "failures_exceeded",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    hashes: [AtomicU64; Algorithm::ALL.len()],
    made: AtomicU64,
    lane_runs: AtomicU64,
    lane_jobs: AtomicU64,
    lanes_run: AtomicU64,
    lanes_filled: AtomicU64,
    cache_hits: AtomicU64,
    rejected: [AtomicU64; RejectReason::ALL.len()],
}

impl Counters {
    pub(super) fn hashed(&self, algorithm: Algorithm) {
        let place = Algorithm::ALL.iter().position(|known| *known == algorithm);
        if let Some(count) = place.and_then(|place| self.hashes.get(place)) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn made(&self) {
        self.made.fetch_add(1, Relaxed);
    }

    pub(super) fn lane_run(&self, jobs: u64) {
        self.lane_runs.fetch_add(1, Relaxed);
        self.lane_jobs.fetch_add(jobs, Relaxed);
    }

    pub(super) fn lane_step(&self, lanes: usize, filled: usize) {
        let exact = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.lanes_run.fetch_add(exact(lanes), Relaxed);
        self.lanes_filled.fetch_add(exact(filled), Relaxed);
    }

    pub(super) fn cache_hit(&self) {
        self.cache_hits.fetch_add(1, Relaxed);
    }

    pub(super) fn rejected(&self, reason: RejectReason) {
        let place = RejectReason::ALL.iter().position(|known| *known == reason);
        if let Some(count) = place.and_then(|place| self.rejected.get(place)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The counts. The caller sets the sizes.
    pub(super) fn read(&self) -> SecretStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        SecretStats {
            hashes: Algorithm::ALL
                .iter()
                .map(|algorithm| algorithm.as_str())
                .zip(self.hashes.iter().map(read))
                .collect(),
            hashes_made: read(&self.made),
            lane_runs: read(&self.lane_runs),
            lane_jobs: read(&self.lane_jobs),
            lanes_run: read(&self.lanes_run),
            lanes_filled: read(&self.lanes_filled),
            cache_hits: read(&self.cache_hits),
            rejected: RejectReason::ALL
                .iter()
                .map(|reason| reason.as_str())
                .zip(self.rejected.iter().map(read))
                .collect(),
            ..SecretStats::default()
        }
    }
}

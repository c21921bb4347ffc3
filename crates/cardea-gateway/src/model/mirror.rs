//! Mirrors: other services that get copies of a route's requests.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::Service;

/// The service that gets copies of a route's requests, and how many.
#[derive(Debug)]
pub struct Mirror {
    /// The service.
    pub service: Arc<Service>,
    /// One request in so many is copied, by its id.
    pub sample_one_in: NonZeroU32,
    /// So many copies may be under way.
    pub in_flight_max: u32,
    /// For a copy and all of its response.
    pub timeout: Duration,
    /// Whether it gets the `Authorization` that the route's service gets.
    pub forward_authorization: bool,
    /// What is counted, in all models that have the route.
    pub stats: Arc<MirrorStats>,
}

/// What became of a copy, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorOutcome {
    /// It was answered, with a status of this class.
    Success,
    /// See [`Self::Success`].
    Redirection,
    /// See [`Self::Success`].
    ClientError,
    /// See [`Self::Success`].
    ServerError,
    /// It could not be sent, or its response broke off or was none.
    Failed,
    /// It took too long.
    TimedOut,
    /// Its body is larger than what may be kept.
    BodyTooLarge,
    /// The request did not come to its end.
    Incomplete,
    /// There was no room for it.
    Limited,
}

impl MirrorOutcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Success,
        Self::Redirection,
        Self::ClientError,
        Self::ServerError,
        Self::Failed,
        Self::TimedOut,
        Self::BodyTooLarge,
        Self::Incomplete,
        Self::Limited,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Failed => "failed",
            Self::TimedOut => "timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::Incomplete => "incomplete",
            Self::Limited => "limited",
        }
    }

    /// That of a response with this status.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Success,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Failed,
        }
    }
}

/// What is counted of the copies of a route's requests, for as long as the route has a mirror.
#[derive(Debug, Default)]
pub struct MirrorStats {
    in_flight: AtomicU32,
    /// In the order of [`MirrorOutcome::ALL`].
    outcomes: [AtomicU64; MirrorOutcome::ALL.len()],
}

impl MirrorStats {
    /// Copies that are being made or are under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// How often each outcome was counted.
    #[must_use]
    pub fn outcomes(&self) -> [(MirrorOutcome, u64); MirrorOutcome::ALL.len()] {
        let mut counted = MirrorOutcome::ALL.map(|outcome| (outcome, 0));
        for ((_, count), counter) in counted.iter_mut().zip(&self.outcomes) {
            *count = counter.load(Relaxed);
        }
        counted
    }

    /// Counts one more under way; false where there are as many as may be.
    pub(crate) fn begin(&self, max: u32) -> bool {
        self.in_flight.fetch_update(Relaxed, Relaxed, |count| (count < max).then_some(count + 1)).is_ok()
    }

    /// Counts one fewer.
    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    pub(crate) fn count(&self, outcome: MirrorOutcome) {
        let counters = self.outcomes.iter().zip(MirrorOutcome::ALL);
        counters.filter(|(_, other)| *other == outcome).for_each(|(counter, _)| {
            counter.fetch_add(1, Relaxed);
        });
    }
}

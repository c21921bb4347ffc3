//! Splits: routes that distribute their requests over several services.
//!
//! A service is chosen by weighted rendezvous hashing, so that a change of weights moves no more requests than it has to: only
//! away from a service whose share shrinks, and only to one whose share grows.

use std::sync::Arc;

use cardea_env::Template;
use cardea_upstream::Affinity;

use super::{RouteAdmission, Service};
use crate::exchange::Exchange;

/// The most services of a split.
pub const SHARES_MAX: usize = 64;

/// The services among which a route distributes its requests.
#[derive(Debug)]
pub struct Split {
    key: Option<Template<Exchange>>,
    shares: Box<[Share]>,
    /// By the names of their services, so that they are the same in all gateways and on all routes.
    affinities: Box<[Affinity]>,
}

/// A service of a split, with what holds for the requests that it gets.
#[derive(Debug)]
pub struct Share {
    /// The service.
    pub service: Arc<Service>,
    /// Its part of the requests, relative to the others; none with 0.
    pub weight: u32,
    /// The throttles that count its requests once they are authorized, by their places in the model.
    pub throttles: Box<[usize]>,
    /// The limits that its requests have to pass.
    pub admission: RouteAdmission,
}

/// The place of a share in its split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShareIndex(u8);

/// A split among which nothing can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// No service has a weight.
    #[error("no service of the split has a weight above 0")]
    Weightless,
    /// There are more services than a split may have.
    #[error("a split has at most {SHARES_MAX} services")]
    TooMany,
}

impl Split {
    /// Requests for which `key` gives the same value go to the same service; each request goes to any where it has none.
    ///
    /// # Errors
    /// If nothing can be chosen.
    pub fn new(key: Option<Template<Exchange>>, shares: Vec<Share>) -> Result<Self, SplitError> {
        if shares.len() > SHARES_MAX {
            return Err(SplitError::TooMany);
        }
        if shares.iter().all(|share| share.weight == 0) {
            return Err(SplitError::Weightless);
        }
        let affinities = shares.iter().map(|share| Affinity::of(share.service.name.as_bytes())).collect();
        Ok(Self { key, shares: shares.into(), affinities })
    }

    /// The services.
    #[must_use]
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// A service of it.
    pub(crate) fn share(&self, index: ShareIndex) -> Option<&Share> {
        self.shares.get(usize::from(index.0))
    }

    /// The service of a request: by its key, or else by its id.
    pub(crate) fn choose(&self, exchange: &Exchange) -> ShareIndex {
        self.by_key(exchange).unwrap_or_else(|| self.of(Affinity::of(&exchange.id.sample().to_be_bytes())))
    }

    /// The service of a request by its key; none where it has none.
    pub(crate) fn by_key(&self, exchange: &Exchange) -> Option<ShareIndex> {
        let mut key = Vec::new();
        let rendered = self.key.as_ref()?.render_key(exchange, &mut key);
        (!rendered.absent).then(|| self.of(Affinity::of(&key)))
    }

    /// The service with the greatest weight, the first of several.
    pub(crate) fn heaviest(&self) -> ShareIndex {
        let shares = self.shares.iter().enumerate();
        let heavier = |best: (usize, u32), other: (usize, u32)| if other.1 > best.1 { other } else { best };
        ShareIndex::new(
            shares.map(|(place, share)| (place, share.weight)).reduce(heavier).map(|(place, _)| place),
        )
    }

    fn of(&self, key: Affinity) -> ShareIndex {
        let weights = self.shares.iter().map(|share| share.weight);
        ShareIndex::new(key.choose(self.affinities.iter().copied().zip(weights)))
    }
}

impl ShareIndex {
    /// There are fewer than [`SHARES_MAX`], one of which has a weight.
    fn new(place: Option<usize>) -> Self {
        Self(place.and_then(|place| u8::try_from(place).ok()).unwrap_or_default())
    }
}

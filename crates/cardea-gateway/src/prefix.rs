//! What counts as one place that connections come from.

use std::{
    collections::HashMap,
    hash::BuildHasher as _,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::quality::RandomState;

/// Locks that prefixes are spread over.
const SHARDS: usize = 16;

/// An IPv4 address, or the half of an IPv6 address that its owner can't choose (RFC 4291 §2.5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Prefix(u64, bool);

impl Prefix {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits()), true),
            IpAddr::V6(address) => Self(u64::try_from(address.to_bits() >> 64).unwrap_or(0), false),
        }
    }
}

/// How many of something each prefix has. What a prefix has none of is not kept.
#[derive(Debug, Default)]
pub(crate) struct PrefixCounts {
    hasher: RandomState,
    shards: [Mutex<HashMap<Prefix, u32>>; SHARDS],
}

/// The prefix has as many as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// One of them; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Nobody counts those of trusted proxies and Unix sockets.
    of: Option<(Arc<PrefixCounts>, Prefix)>,
}

impl PrefixCounts {
    /// Counts one more from an address, of which there may be `max`.
    pub(crate) fn enter(self: &Arc<Self>, from: Option<IpAddr>, max: u32) -> Result<Counted, TooMany> {
        let Some(prefix) = from.map(Prefix::of) else { return Ok(Counted { of: None }) };
        let mut shard = self.shard(prefix);
        let count = shard.get(&prefix).copied().unwrap_or_default();
        if count >= max {
            return Err(TooMany);
        }
        shard.insert(prefix, count + 1);
        drop(shard);
        Ok(Counted { of: Some((Arc::clone(self), prefix)) })
    }

    fn shard(&self, prefix: Prefix) -> MutexGuard<'_, HashMap<Prefix, u32>> {
        let index = usize::try_from(self.hasher.hash_one(prefix) % SHARDS as u64).unwrap_or(0);
        // The remainder is an index of the array.
        let shard = self.shards.get(index).unwrap_or(&self.shards[0]);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many prefixes are kept.
    #[cfg(test)]
    pub(crate) fn prefixes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some((all, prefix)) = &self.of {
            let mut shard = all.shard(*prefix);
            match shard.get_mut(prefix) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(shard.remove(prefix)),
            }
        }
    }
}

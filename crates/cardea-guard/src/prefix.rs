//! Address prefixes, and how many of something each has.

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
pub struct AddressPrefix(pub(crate) u64, pub(crate) bool);

impl AddressPrefix {
    /// The prefix of an address. An IPv4 address that is mapped into IPv6 is an IPv4 address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits()), true),
            IpAddr::V6(address) => Self(u64::try_from(address.to_bits() >> 64).unwrap_or(0), false),
        }
    }

    /// Its bytes, as a key or a part of one.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 9] {
        let mut bytes = [u8::from(self.1); 9];
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
        bytes
    }
}

/// How many of something each prefix has. A prefix that has none is not kept.
#[derive(Debug, Default)]
pub struct PrefixCounts {
    hasher: RandomState,
    shards: [Mutex<HashMap<AddressPrefix, u32>>; SHARDS],
}

/// The prefix has as many as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

/// One of them; it is over when this is dropped.
#[derive(Debug)]
pub struct Counted {
    /// `None` for trusted proxies and Unix sockets, which are exempt.
    of: Option<(Arc<PrefixCounts>, AddressPrefix)>,
}

impl PrefixCounts {
    /// Counts one more from an address whose prefix may have `max`. Nothing is counted where there is no address.
    ///
    /// # Errors
    /// [`TooMany`] where the prefix has that many.
    pub fn enter(self: &Arc<Self>, from: Option<IpAddr>, max: u32) -> Result<Counted, TooMany> {
        let Some(prefix) = from.map(AddressPrefix::of) else { return Ok(Counted { of: None }) };
        let mut shard = self.shard(prefix);
        let count = shard.get(&prefix).copied().unwrap_or_default();
        if count >= max {
            return Err(TooMany);
        }
        shard.insert(prefix, count + 1);
        drop(shard);
        Ok(Counted { of: Some((Arc::clone(self), prefix)) })
    }

    fn shard(&self, prefix: AddressPrefix) -> MutexGuard<'_, HashMap<AddressPrefix, u32>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_64_bits_and_an_ipv4_address() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "0:0:c000:201::1", false),
        ] {
            let [one_of, other_of] = [one, other].map(|text| AddressPrefix::of(text.parse().unwrap()));
            assert_eq!(one_of == other_of, same, "{one} {other}");
            assert_eq!(one_of.to_bytes() == other_of.to_bytes(), same, "{one} {other}");
        }
    }
}

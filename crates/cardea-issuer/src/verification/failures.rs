//! The budget of failures: who guesses too often is refused, and nobody else.
//!
//! What is refused is a pair of client and address prefix. A client that many addresses guess at, and a prefix that
//! guesses at many clients, are never refused for it: their attempts only wait behind others, and on such a client those
//! from prefixes that failed seldom go before the rest. A pair that was right before goes ahead of all these, so that
//! no flood from elsewhere stands before it.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lc_rs::hmac;
use cardea_clock::Mono;

use super::{Class, bounded::Bounded};

/// The most entries of each table. One takes 60 bytes.
const ENTRIES_MAX: usize = 65_536;
/// What a client as a whole may fail before attempts on it wait behind others: so many times what a pair may. A prefix
/// as a whole may fail as often as a pair.
const WIDER: u32 = 4;
/// A prefix has failed seldom up to this part of what a pair may.
const SELDOM: u32 = 10;

type Key = [u8; 16];

/// Failures as virtual scheduling sees them (GCRA, ITU-T I.371): when the last one will be forgiven.
pub(super) struct Failures {
    key: hmac::Key,
    failures_max: u32,
    forgiven_every: Duration,
    /// When all failures of a key are forgiven, in nanoseconds of the monotonic clock.
    forgiven_at: Mutex<Bounded<Key, u64>>,
    /// Pairs that were right before. It buys a place in the queue and nothing else, and the budget comes first, so that
    /// it needs no end.
    familiar: Mutex<Bounded<Key, ()>>,
}

/// An attempt that has been counted as a failure, until it turns out to be none.
pub(super) struct Charge {
    /// Of pairs and of clients.
    keys: Vec<Key>,
    prefix: Option<Key>,
    pub(super) class: Class,
}

impl Failures {
    pub(super) fn new(key: &[u8; 32], failures_max: u32, forgiven_every: Duration) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            failures_max,
            forgiven_every,
            forgiven_at: Mutex::new(Bounded::new(3 * ENTRIES_MAX)),
            familiar: Mutex::new(Bounded::new(ENTRIES_MAX)),
        }
    }

    /// Counts an attempt on these clients as failed, before it is made, so that attempts at once count too.
    ///
    /// # Errors
    /// How long until one more may be made, where the budget of a client and this address is used up. Then nothing is
    /// counted. An address that isn't known has no budget and is never refused.
    pub(super) fn charge(
        &self,
        ids: &[&str],
        address: Option<IpAddr>,
        now: Mono,
    ) -> Result<Charge, Duration> {
        let prefix = address.map(prefix);
        let narrow: Vec<Key> =
            prefix.iter().flat_map(|prefix| ids.iter().map(|id| self.key_of(b"pair", id, prefix))).collect();
        let clients: Vec<Key> = ids.iter().map(|id| self.key_of(b"client", id, &[])).collect();
        let prefix = prefix.map(|prefix| self.key_of(b"prefix", "", &prefix));

        let mut forgiven_at = self.forgiven_at.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &narrow {
            let ahead = self.ahead(forgiven_at.value(key), now);
            let most = self.nanos(self.failures_max);
            if ahead > most {
                return Err(Duration::from_nanos(ahead - most));
            }
        }
        let most = self.nanos(self.failures_max.saturating_mul(WIDER));
        let exceeds =
            |key: &Key, failures: u32| self.ahead(forgiven_at.value(key), now) > self.nanos(failures);
        let guessed_at = clients.iter().any(|key| exceeds(key, self.failures_max.saturating_mul(WIDER)));
        // Of an address that isn't known, nothing good is.
        let often = prefix.as_ref().is_none_or(|key| exceeds(key, (self.failures_max / SELDOM).max(1)));
        let too_often = prefix.as_ref().is_some_and(|key| exceeds(key, self.failures_max));
        let class = match (guessed_at, often) {
            _ if self.is_familiar(&narrow) => Class::Familiar,
            (true, true) => Class::Suspect,
            (true, false) => Class::Doubtful,
            (false, _) if too_often => Class::Suspect,
            (false, _) => Class::Usual,
        };
        let keys: Vec<Key> = narrow.into_iter().chain(clients).collect();
        for key in keys.iter().chain(&prefix) {
            // Bounded, so that an excess ends soon after the guessing does.
            let ahead = self.ahead(forgiven_at.value(key), now).min(most.saturating_add(self.nanos(1)));
            forgiven_at.insert(*key, now.nanos().saturating_add(ahead));
        }
        Ok(Charge { keys, prefix, class })
    }

    /// The attempt was right.
    pub(super) fn refund(&self, charge: &Charge) {
        self.forgive(charge.keys.iter().chain(&charge.prefix));
    }

    /// The attempt was never made, for want of time. What it asked of a server that is short of it still counts for the
    /// prefix, which nobody is refused for: a flood must not look as if nobody had sent it.
    pub(super) fn refund_unmade(&self, charge: &Charge) {
        self.forgive(&charge.keys);
    }

    fn forgive<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let one = self.nanos(1);
        let mut forgiven_at = self.forgiven_at.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if let Some(at) = forgiven_at.value_mut(key) {
                *at = at.saturating_sub(one);
            }
        }
    }

    /// The client was right from there.
    pub(super) fn welcome(&self, id: &str, address: Option<IpAddr>) {
        if let Some(address) = address {
            let key = self.key_of(b"pair", id, &prefix(address));
            self.familiar.lock().unwrap_or_else(PoisonError::into_inner).insert(key, ());
        }
    }

    fn is_familiar(&self, pairs: &[Key]) -> bool {
        let familiar = self.familiar.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.iter().any(|pair| familiar.value(pair).is_some())
    }

    /// Entries of both tables.
    pub(super) fn len(&self) -> usize {
        let familiar = self.familiar.lock().unwrap_or_else(PoisonError::into_inner).len();
        familiar + self.forgiven_at.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How far from now all failures would be forgiven, were there one more.
    fn ahead(&self, forgiven_at: Option<&u64>, now: Mono) -> u64 {
        forgiven_at.map_or(0, |at| at.saturating_sub(now.nanos())).saturating_add(self.nanos(1))
    }

    fn nanos(&self, failures: u32) -> u64 {
        u64::try_from(self.forgiven_every.saturating_mul(failures).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Keyed, so that nobody makes two pairs share an entry.
    fn key_of(&self, table: &[u8], id: &str, prefix: &[u8]) -> Key {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [table, id.as_bytes(), prefix] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut key = [0; 16];
        key.copy_from_slice(&context.sign().as_ref()[..16]);
        key
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// What one party has for itself: an IPv4 address, or 64 bits of an IPv6 one.
fn prefix(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => Ipv6Addr::octets(&address)[..8].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn failures() -> Failures {
        Failures::new(&[3; 32], 3, Duration::from_secs(10))
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_pair_has_its_failures_and_gets_one_back_in_time() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        for _ in 0..3 {
            assert!(failures.charge(&["a"], address("192.0.2.1"), now).is_ok());
        }
        let wait = failures.charge(&["a"], address("192.0.2.1"), now).err();
        assert_eq!(wait, Some(Duration::from_secs(10)));
        assert!(failures.charge(&["a"], address("192.0.2.2"), now).is_ok(), "the client from elsewhere");
        assert!(failures.charge(&["b"], address("192.0.2.1"), now).is_ok(), "another client from there");
        let later = Mono::from_nanos(110 * SECOND);
        assert!(failures.charge(&["a"], address("192.0.2.1"), later).is_ok());
        assert!(failures.charge(&["a"], address("192.0.2.1"), later).is_err());
    }

    #[test]
    fn what_was_right_costs_nothing() {
        let failures = failures();
        for _ in 0..50 {
            let charge = failures
                .charge(&["a"], address("192.0.2.1"), Mono::from_nanos(SECOND))
                .unwrap_or_else(|_| panic!("refused"));
            assert!(charge.class == Class::Usual);
            failures.refund(&charge);
        }
    }

    #[test]
    fn a_prefix_is_64_bits_and_an_ipv4_address() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            assert_eq!(prefix(one.parse().unwrap()) == prefix(other.parse().unwrap()), same, "{one} {other}");
        }
    }

    #[test]
    fn an_excess_on_a_client_or_from_a_prefix_lowers_the_class_and_refuses_nobody() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let class =
            |ids: &[&str], from: &str| failures.charge(ids, address(from), now).map(|charge| charge.class);
        for host in 1..=12 {
            assert!(class(&["victim"], &format!("192.0.2.{host}")) == Ok(Class::Usual), "{host}");
        }
        assert!(class(&["victim"], "198.51.100.1") == Ok(Class::Doubtful), "from there nobody failed yet");
        assert!(class(&["victim"], "198.51.100.1") == Ok(Class::Suspect));
        assert!(class(&["other"], "198.51.100.2") == Ok(Class::Usual), "the control");
        for guess in 0..3 {
            assert!(class(&[&format!("id{guess}")], "203.0.113.7") == Ok(Class::Usual), "{guess}");
        }
        assert!(class(&["fresh"], "203.0.113.7") == Ok(Class::Suspect));
        assert!(class(&["victim"], "203.0.113.7") == Ok(Class::Suspect));
        // However long it was, an excess is over soon after.
        for host in 0..200 {
            let _ = class(&["victim"], &format!("10.0.0.{host}"));
        }
        let later = Mono::from_nanos(125 * SECOND);
        assert!(
            failures
                .charge(&["victim"], address("192.0.2.200"), later)
                .is_ok_and(|charge| charge.class == Class::Usual)
        );
    }

    #[test]
    fn a_pair_that_was_right_goes_ahead_until_it_has_failed_too_often() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let class =
            |id: &str, from: &str| failures.charge(&[id], address(from), now).map(|charge| charge.class);
        failures.welcome("victim", address("192.0.2.1"));
        failures.welcome("victim", None);
        for host in 0..200 {
            let _ = class("victim", &format!("10.0.0.{host}"));
        }
        assert!(class("victim", "198.51.100.1") == Ok(Class::Doubtful), "the flood reached it");
        for _ in 0..3 {
            assert!(class("victim", "192.0.2.1") == Ok(Class::Familiar));
        }
        assert!(class("victim", "192.0.2.1").is_err(), "the budget comes first");
        assert!(class("other", "192.0.2.1") == Ok(Class::Suspect), "it is familiar with one client alone");
    }

    #[test]
    fn what_was_never_made_is_no_failure_but_its_prefix_goes_behind() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        for host in 0..50 {
            let _ = failures.charge(&["victim"], address(&format!("10.0.0.{host}")), now);
        }
        let flooding = address("192.0.2.1");
        for expected in [Class::Doubtful, Class::Suspect, Class::Suspect, Class::Suspect, Class::Suspect] {
            let charge = failures.charge(&["victim"], flooding, now).unwrap_or_else(|_| panic!("refused"));
            assert!(charge.class == expected);
            failures.refund_unmade(&charge);
        }
    }

    #[test]
    fn an_address_that_is_not_known_is_never_refused() {
        let failures = failures();
        for _ in 0..50 {
            assert!(failures.charge(&["a"], None, Mono::from_nanos(SECOND)).is_ok());
        }
    }
}

//! Failure budgets, which limit guessing without locking out the rightful client.
//!
//! Attempts are refused per pair of client and address prefix. A client that is guessed at from many addresses, and a
//! prefix that guesses at many clients, are never refused: their attempts only get a lower priority. A proven secret has a
//! budget of its own, which guesses from the same address don't use up. A known pair has the highest priority. Otherwise
//! the priority falls with the recent failures of the prefix, so that a flood delays only clients behind the same prefixes,
//! once each of its addresses has failed.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::Mono;
use cardea_guard::{AddressPrefix, Bounded, FailureCounts, FailureKey as Key};

use super::{
    Priority,
    cache::{Fingerprint, KeyedHash},
    proven::ProvenSecrets,
};

/// The most entries of each table. An entry takes 60 bytes.
const ENTRIES_MAX: usize = 65_536;
/// A client may have this many times the failures of a pair before attempts on it get a lower priority.
const CLIENT_LIMIT_FACTOR: u32 = 4;
/// A failure of a prefix lasts this many times as long as one of a pair. It refuses nobody, and an attacker needs ten times
/// as many addresses for each to have no failure when its turn comes.
const PREFIX_FAILURE_FACTOR: u32 = 10;
/// Up to this many recent failures of a prefix are few.
const FEW_FAILURES_MAX: u32 = 2;
/// The most failures of a prefix that are counted, so that they expire soon after the guessing ends.
const PREFIX_FAILURES_MAX: u32 = 4;

/// The failure budgets, with known pairs and proven secrets.
pub(super) struct Failures {
    keyed: KeyedHash,
    failures_max: u32,
    forgiven_every: Duration,
    counts: Mutex<Counts>,
    /// Pairs of client and prefix that have authenticated before. An entry raises the priority and grants nothing else,
    /// and the budget is checked first, so entries need not expire.
    known_pairs: Mutex<Bounded<Key, ()>>,
    proven: ProvenSecrets,
}

/// A presented secret that was verified before from the same prefix.
#[derive(Clone, Copy)]
pub(super) struct ProvenSecret {
    client: Key,
    /// The key of its own budget.
    budget: Key,
    fingerprint: Fingerprint,
}

/// The failures counted. Each kind has its own table, so that attempts with invented clients evict no prefix.
struct Counts {
    pairs: FailureCounts,
    clients: FailureCounts,
    prefixes: FailureCounts,
}

/// The keys that an attempt is counted under.
struct Keys {
    pairs: Vec<Key>,
    clients: Vec<Key>,
    prefix: Option<Key>,
}

impl Keys {
    /// A proven secret is counted under its own budget instead of those of the pair and the client.
    fn of(self, proven: Option<&ProvenSecret>) -> Self {
        match proven {
            Some(proven) => Self { pairs: vec![proven.budget], clients: Vec::new(), prefix: self.prefix },
            None => self,
        }
    }
}

/// The weight of failures and the limits of budgets, in nanoseconds.
struct Units {
    /// How long a failure of a pair or client lasts.
    failure: u64,
    /// How long a failure of a prefix lasts.
    prefix_failure: u64,
    pair_max: u64,
    client_max: u64,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Right,
    Wrong,
    /// No answer was given: the queue was full, the time was up, or the client disconnected.
    Unanswered,
}

/// An attempt that is counted as a failure until its outcome is known. If it is dropped before [`Self::settle`], no answer
/// was given.
pub(super) struct Charge<'a> {
    failures: &'a Failures,
    /// Each key with the amount that was added.
    pairs: Vec<(Key, u64)>,
    clients: Vec<(Key, u64)>,
    prefix: Option<(Key, u64)>,
    pub(super) priority: Priority,
    /// Set when a hash thread starts the job.
    pub(super) taken: Arc<AtomicBool>,
    outcome: Outcome,
}

impl Charge<'_> {
    pub(super) fn settle(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Charge<'_> {
    /// An attempt without an answer revealed nothing and is no failure of the pair or the client. But a client that always
    /// disconnects before the answer must not keep a clean prefix: a hash that was started counts for the prefix, which
    /// never causes a refusal.
    fn drop(&mut self) {
        let (refund_pair, refund_prefix) = match self.outcome {
            Outcome::Right => (true, true),
            Outcome::Wrong => (false, false),
            Outcome::Unanswered => (true, !self.taken.load(Relaxed)),
        };
        let mut counts = self.failures.counts();
        if refund_pair {
            take_back(&mut counts.pairs, &self.pairs);
            take_back(&mut counts.clients, &self.clients);
        }
        if refund_prefix {
            take_back(&mut counts.prefixes, &self.prefix);
        }
    }
}

fn take_back<'a>(counts: &mut FailureCounts, added: impl IntoIterator<Item = &'a (Key, u64)>) {
    for (key, added) in added {
        counts.take_back(key, *added);
    }
}

impl Failures {
    pub(super) fn new(key: &[u8; 32], failures_max: u32, forgiven_every: Duration) -> Self {
        let table = || FailureCounts::new(ENTRIES_MAX);
        Self {
            keyed: KeyedHash::new(key),
            failures_max,
            forgiven_every,
            counts: Mutex::new(Counts { pairs: table(), clients: table(), prefixes: table() }),
            known_pairs: Mutex::new(Bounded::new(ENTRIES_MAX)),
            proven: ProvenSecrets::new(),
        }
    }

    /// The presented secret as a proven one, if it was verified from that address prefix before.
    pub(super) fn proven(
        &self,
        id: &str,
        fingerprint: &Fingerprint,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Option<ProvenSecret> {
        let (client, pair) = (self.client(id), self.pair(id, AddressPrefix::of(address?)));
        self.proven.contains(&client, &pair, fingerprint, now).then(|| ProvenSecret {
            client,
            budget: self.keyed.short(&[b"proven", &pair, fingerprint.bytes()]),
            fingerprint: *fingerprint,
        })
    }

    /// Removes a proven secret that was wrong.
    pub(super) fn forget_proven(&self, proven: &ProvenSecret) {
        self.proven.remove(&proven.client, &proven.fingerprint);
    }

    /// Counts an attempt on these clients as failed before it is made, so that concurrent attempts count too.
    ///
    /// An attempt from an unknown address has no budget and is never refused. A proven secret uses its own budget instead
    /// of the pair's.
    ///
    /// # Errors
    /// The time until the next attempt is allowed, if the budget of a pair is exhausted. Then nothing is counted.
    pub(super) fn charge(
        &self,
        ids: &[&str],
        proven: Option<&ProvenSecret>,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Result<Charge<'_>, Duration> {
        let keys = self.keys(ids, address);
        let is_known_pair = self.is_known_pair(&keys.pairs);
        let keys = keys.of(proven);
        let Units { failure, prefix_failure, pair_max, client_max } = self.units();
        let counts = &mut *self.counts();
        let priority = self.priority(counts, &keys, is_known_pair, now)?;
        let add = |counts: &mut FailureCounts, key: Key, amount: u64, max: u64| {
            (key, counts.add(key, amount, max, now))
        };
        let prefix_max = prefix_failure.saturating_mul(PREFIX_FAILURES_MAX.into());
        Ok(Charge {
            failures: self,
            pairs: keys.pairs.into_iter().map(|key| add(&mut counts.pairs, key, failure, pair_max)).collect(),
            clients: keys
                .clients
                .into_iter()
                .map(|key| add(&mut counts.clients, key, failure, client_max.saturating_add(failure)))
                .collect(),
            prefix: keys.prefix.map(|key| add(&mut counts.prefixes, key, prefix_failure, prefix_max)),
            priority,
            taken: Arc::default(),
            outcome: Outcome::Unanswered,
        })
    }

    /// The priority that [`Self::charge`] would give the attempt. Nothing is counted.
    ///
    /// # Errors
    /// As [`Self::charge`].
    pub(super) fn peek(
        &self,
        ids: &[&str],
        proven: Option<&ProvenSecret>,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Result<Priority, Duration> {
        let keys = self.keys(ids, address);
        let is_known_pair = self.is_known_pair(&keys.pairs);
        self.priority(&self.counts(), &keys.of(proven), is_known_pair, now)
    }

    fn keys(&self, ids: &[&str], address: Option<IpAddr>) -> Keys {
        let prefix = address.map(AddressPrefix::of);
        Keys {
            pairs: prefix.iter().flat_map(|prefix| ids.iter().map(|id| self.pair(id, *prefix))).collect(),
            clients: ids.iter().map(|id| self.client(id)).collect(),
            prefix: prefix.map(|prefix| self.keyed.short(&[b"prefix", &prefix.to_bytes()])),
        }
    }

    fn pair(&self, id: &str, prefix: AddressPrefix) -> Key {
        self.keyed.short(&[b"pair", id.as_bytes(), &prefix.to_bytes()])
    }

    fn client(&self, id: &str) -> Key {
        self.keyed.short(&[b"client", id.as_bytes()])
    }

    fn units(&self) -> Units {
        let failure = nanos(self.forgiven_every).max(1);
        let pair_max = failure.saturating_mul(self.failures_max.max(1).into());
        Units {
            failure,
            prefix_failure: failure.saturating_mul(PREFIX_FAILURE_FACTOR.into()),
            pair_max,
            client_max: pair_max.saturating_mul(CLIENT_LIMIT_FACTOR.into()),
        }
    }

    fn priority(
        &self,
        counts: &Counts,
        keys: &Keys,
        is_known_pair: bool,
        now: Mono,
    ) -> Result<Priority, Duration> {
        let Units { failure, prefix_failure, pair_max, client_max } = self.units();
        for key in &keys.pairs {
            let debt = counts.pairs.debt(key, now);
            if debt > pair_max - failure {
                return Err(Duration::from_nanos(debt - (pair_max - failure)));
            }
        }
        let is_targeted = keys.clients.iter().any(|key| counts.clients.debt(key, now) > client_max - failure);
        // An unknown address counts as one with a failure.
        let failed =
            keys.prefix.as_ref().map_or(1, |key| counts.prefixes.debt(key, now).div_ceil(prefix_failure));
        Ok(match failed {
            _ if is_known_pair => Priority::KnownPair,
            0 if is_targeted => Priority::TargetedClient,
            0 => Priority::Normal,
            _ if failed <= FEW_FAILURES_MAX.into() => Priority::FewFailures,
            _ => Priority::ManyFailures,
        })
    }

    /// Records that a client authenticated from `address`. `fingerprint` is that of its secret, if it may be cached.
    pub(super) fn record_success(
        &self,
        id: &str,
        fingerprint: Option<Fingerprint>,
        address: Option<IpAddr>,
        now: Mono,
    ) {
        let Some(address) = address else { return };
        let pair = self.pair(id, AddressPrefix::of(address));
        self.known_pairs.lock().unwrap_or_else(PoisonError::into_inner).insert(pair, ());
        if let Some(fingerprint) = fingerprint {
            self.proven.insert(self.client(id), pair, fingerprint, now);
        }
    }

    fn is_known_pair(&self, pairs: &[Key]) -> bool {
        let known_pairs = self.known_pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.iter().any(|pair| known_pairs.value(pair).is_some())
    }

    /// The number of entries of all tables.
    pub(super) fn len(&self) -> usize {
        let known_pairs = self.known_pairs.lock().unwrap_or_else(PoisonError::into_inner).len();
        let counts = self.counts();
        known_pairs + self.proven.len() + counts.pairs.len() + counts.clients.len() + counts.prefixes.len()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures").field("len", &self.len()).finish_non_exhaustive()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{super::cache::VerificationCache, *};

    const SECOND: u64 = 1_000_000_000;

    fn failures() -> Failures {
        Failures::new(&[3; 32], 3, Duration::from_secs(10))
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_pair_has_a_budget_and_failures_expire() {
        let failures = failures();
        let wrong =
            |id: &str, from: &str, second| priority_at(&failures, &[id], from, Outcome::Wrong, second);
        for _ in 0..3 {
            assert!(wrong("a", "192.0.2.1", 100).is_some());
        }
        let wait = failures.charge(&["a"], None, address("192.0.2.1"), Mono::from_nanos(100 * SECOND)).err();
        assert_eq!(wait, Some(Duration::from_secs(10)));
        assert!(wrong("a", "192.0.2.2", 100).is_some(), "the client from elsewhere");
        assert!(wrong("b", "192.0.2.1", 100).is_some(), "another client from there");
        assert!(wrong("a", "192.0.2.1", 110).is_some());
        assert!(wrong("a", "192.0.2.1", 110).is_none());
    }

    #[test]
    fn a_peek_returns_what_a_charge_would_and_counts_nothing() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let peeks = [(); 50].map(|()| failures.peek(&["a"], None, address("192.0.2.1"), now));
            let charged = failures.charge(&["a"], None, address("192.0.2.1"), now);
            let priority = charged.as_ref().map(|charge| charge.priority).map_err(|wait| *wait);
            assert!(peeks.iter().all(|peek| *peek == priority), "{priority:?}");
            seen.push(priority);
            if let Ok(charge) = charged {
                charge.settle(Outcome::Wrong);
            }
        }
        let expected = [
            Ok(Priority::Normal),
            Ok(Priority::FewFailures),
            Ok(Priority::FewFailures),
            Err(Duration::from_secs(10)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_right_secret_costs_no_budget() {
        let failures = failures();
        for _ in 0..50 {
            assert_eq!(priority(&failures, &["a"], "192.0.2.1", Outcome::Right), Some(Priority::Normal));
        }
    }

    /// The priority of an attempt with that outcome; `None` if it is refused.
    fn priority(failures: &Failures, ids: &[&str], from: &str, outcome: Outcome) -> Option<Priority> {
        priority_at(failures, ids, from, outcome, 100)
    }

    fn priority_at(
        failures: &Failures,
        ids: &[&str],
        from: &str,
        outcome: Outcome,
        second: u64,
    ) -> Option<Priority> {
        let charge = failures.charge(ids, None, address(from), Mono::from_nanos(second * SECOND)).ok()?;
        let priority = charge.priority;
        charge.settle(outcome);
        Some(priority)
    }

    #[test]
    fn too_many_failures_of_a_client_lower_the_priority_and_refuse_nobody() {
        let failures = failures();
        let priority = |id: &str, from: &str| priority(&failures, &[id], from, Outcome::Wrong);
        for host in 1..=12 {
            assert_eq!(priority("victim", &format!("192.0.2.{host}")), Some(Priority::Normal), "{host}");
        }
        assert_eq!(priority("victim", "198.51.100.1"), Some(Priority::TargetedClient));
        assert_eq!(priority("other", "198.51.100.2"), Some(Priority::Normal), "the control");
        // However many failures there were, the limit is left again soon after.
        for host in 0..200 {
            let _ = priority("victim", &format!("10.0.0.{host}"));
        }
        assert_eq!(
            priority_at(&failures, &["victim"], "192.0.2.200", Outcome::Right, 125),
            Some(Priority::Normal),
            "25 s later"
        );
    }

    #[test]
    fn a_prefix_has_a_lower_priority_from_its_first_failure_for_a_while() {
        let failures = failures();
        let priority =
            |second| priority_at(&failures, &[&format!("id{second}")], "203.0.113.7", Outcome::Wrong, second);
        let expected = [
            Priority::Normal,
            Priority::FewFailures,
            Priority::FewFailures,
            Priority::ManyFailures,
            Priority::ManyFailures,
            Priority::ManyFailures,
        ];
        for (second, expected) in (100..).zip(expected) {
            assert_eq!(priority(second), Some(expected), "{second}");
        }
        let right = |second| priority_at(&failures, &["a"], "203.0.113.7", Outcome::Right, second);
        assert_eq!(right(100 + 199), Some(Priority::ManyFailures), "all else is as long ago as it can be");
        assert_eq!(right(100 + 210), Some(Priority::FewFailures));
        assert_eq!(right(100 + 410), Some(Priority::Normal), "however often it failed");
        assert_eq!(
            priority_at(&failures, &["b"], "203.0.113.8", Outcome::Wrong, 105),
            Some(Priority::Normal)
        );
    }

    #[test]
    fn concurrent_attempts_count_before_their_outcome_is_known() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let at_once: Vec<_> = (0..4)
            .map(|id| failures.charge(&[&format!("id{id}")], None, address("192.0.2.1"), now))
            .collect();
        let classes: Vec<_> = at_once.iter().flatten().map(|charge| charge.priority).collect();
        assert_eq!(
            classes,
            [Priority::Normal, Priority::FewFailures, Priority::FewFailures, Priority::ManyFailures]
        );
        drop(at_once);
        assert_eq!(priority(&failures, &["a"], "192.0.2.1", Outcome::Right), Some(Priority::Normal));
    }

    #[test]
    fn a_known_pair_has_the_highest_priority_until_its_budget_is_exhausted() {
        let failures = failures();
        let priority = |id: &str, from: &str| priority(&failures, &[id], from, Outcome::Wrong);
        let now = Mono::from_nanos(100 * SECOND);
        failures.record_success("victim", None, address("192.0.2.1"), now);
        failures.record_success("victim", None, None, now);
        for host in 0..200 {
            let _ = priority("victim", &format!("10.0.0.{host}"));
        }
        assert_eq!(
            priority("victim", "198.51.100.1"),
            Some(Priority::TargetedClient),
            "the flood reached it"
        );
        for _ in 0..3 {
            assert_eq!(priority("victim", "192.0.2.1"), Some(Priority::KnownPair));
        }
        assert_eq!(priority("victim", "192.0.2.1"), None, "the budget comes first");
        assert_eq!(
            priority("other", "192.0.2.1"),
            Some(Priority::ManyFailures),
            "it is a known pair with one client only"
        );
    }

    #[test]
    fn a_proven_secret_has_its_own_budget() {
        let failures = failures();
        let cache = VerificationCache::new(&[1; 32], Duration::ZERO, 0);
        let (right, other) = (cache.fingerprint("victim", b"right"), cache.fingerprint("victim", b"other"));
        let (home, now) = (address("192.0.2.1"), Mono::from_nanos(100 * SECOND));
        failures.record_success("victim", Some(right), home, now);
        while priority(&failures, &["victim"], "192.0.2.1", Outcome::Wrong).is_some() {}
        assert!(failures.peek(&["victim"], None, home, now).is_err());

        let proven = failures.proven("victim", &right, home, now).unwrap();
        for _ in 0..10 {
            let charge = failures.charge(&["victim"], Some(&proven), home, now).unwrap();
            assert_eq!(charge.priority, Priority::KnownPair);
            charge.settle(Outcome::Right);
        }
        // Nothing else has it: no guess, no other client, and not the same secret from another prefix.
        assert!(failures.proven("victim", &other, home, now).is_none());
        assert!(failures.proven("other", &right, home, now).is_none());
        assert!(failures.proven("victim", &right, address("192.0.2.2"), now).is_none());
        assert!(failures.proven("victim", &right, None, now).is_none());
        // Concurrent attempts are bounded too, and a wrong secret is no longer proven.
        let at_once: Vec<_> =
            (0..4).map(|_| failures.charge(&["victim"], Some(&proven), home, now).is_ok()).collect();
        assert_eq!(at_once, [true; 4], "each was dropped before the next");
        let held: Vec<_> = (0..4).map(|_| failures.charge(&["victim"], Some(&proven), home, now)).collect();
        assert_eq!(held.iter().filter(|charge| charge.is_ok()).count(), 3);
        failures.forget_proven(&proven);
        assert!(failures.proven("victim", &right, home, now).is_none());
    }

    #[test]
    fn an_attempt_without_answer_is_no_failure_but_its_hash_counts_for_the_prefix() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let unanswered = |from: &str, hashed: bool| {
            let charge = failures.charge(&["victim"], None, address(from), now).ok()?;
            charge.taken.store(hashed, Relaxed);
            Some(charge.priority)
        };
        for _ in 0..50 {
            assert_eq!(unanswered("192.0.2.1", false), Some(Priority::Normal), "the queue was full");
        }
        let classes: Vec<_> = (0..50).map(|_| unanswered("192.0.2.2", true)).collect();
        assert_eq!(
            classes[..3],
            [Some(Priority::Normal), Some(Priority::FewFailures), Some(Priority::FewFailures)]
        );
        assert!(
            classes[3..].iter().all(|priority| *priority == Some(Priority::ManyFailures)),
            "it disconnected before the answers"
        );
    }

    #[test]
    fn an_unknown_address_is_never_refused() {
        let failures = failures();
        for _ in 0..50 {
            assert!(failures.charge(&["a"], None, None, Mono::from_nanos(SECOND)).is_ok());
        }
    }
}

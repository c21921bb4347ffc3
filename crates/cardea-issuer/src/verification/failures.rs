//! The budget of failures: who guesses too often is refused, and nobody else.
//!
//! What is refused is a pair of client and address prefix. A client that many addresses guess at, and a prefix that
//! guesses at many clients, are never refused for it: their attempts only wait behind others. A secret that was right from
//! there before has a budget of its own, which no guess of a neighbour uses up. A pair that was right before
//! goes ahead of all; of the rest, the fewer failures a prefix had lately, the earlier, so that a flood stands before those
//! only who come from where it comes from, once each of its addresses has failed.

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

use super::{Class, keyed::Keyed, proven::Proven, remembered::Fingerprint};

/// The most entries of each table. One takes 60 bytes.
const ENTRIES_MAX: usize = 65_536;
/// What a client as a whole may fail before attempts on it wait behind others: so many times what a pair may.
const WIDER: u32 = 4;
/// A failure of a prefix lasts so many times as long as one of a pair: it refuses nobody, and who guesses from many
/// addresses, each of which seldom has its turn, needs ten times as many for each to look clean.
const LASTING: u32 = 10;
/// A prefix that had so many failures lately had few.
const FEW: u32 = 2;
/// More failures of a prefix than these are not counted, so that they end soon after the guessing does.
const PREFIX_MAX: u32 = 4;

/// The budgets of failures, and what was right before.
pub(super) struct Failures {
    keyed: Keyed,
    failures_max: u32,
    forgiven_every: Duration,
    counts: Mutex<Counts>,
    /// Pairs that were right before. It buys a place in the queue and nothing else, and the budget comes first, so that
    /// it needs no end.
    familiar: Mutex<Bounded<Key, ()>>,
    /// Secrets that were right before, from there.
    proven: Proven,
}

/// A secret that was right before, from where it is presented now.
#[derive(Clone, Copy)]
pub(super) struct ProvenSecret {
    client: Key,
    /// What its budget is kept under.
    budget: Key,
    fingerprint: Fingerprint,
}

/// Each kind has a table of its own: attempts with made-up clients evict no prefix.
struct Counts {
    pairs: FailureCounts,
    clients: FailureCounts,
    prefixes: FailureCounts,
}

/// What an attempt is counted under.
struct Keys {
    pairs: Vec<Key>,
    clients: Vec<Key>,
    prefix: Option<Key>,
}

impl Keys {
    /// A proven secret is counted under itself, and says nothing about who else is there.
    fn of(self, proven: Option<&ProvenSecret>) -> Self {
        match proven {
            Some(proven) => Self { pairs: vec![proven.budget], clients: Vec::new(), prefix: self.prefix },
            None => self,
        }
    }
}

/// In nanoseconds.
struct Units {
    /// How long a failure lasts.
    one: u64,
    /// How long one of a prefix does.
    lasting: u64,
    pair_max: u64,
    client_max: u64,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Right,
    Wrong,
    /// Whoever asked was not told: there was no place or no time, or it didn't wait.
    Unanswered,
}

/// An attempt that has been counted as a failure, until it turns out to be none. Where it is dropped before it is settled,
/// nobody was answered.
pub(super) struct Charge<'a> {
    failures: &'a Failures,
    /// With what was added to each.
    pairs: Vec<(Key, u64)>,
    clients: Vec<(Key, u64)>,
    prefix: Option<(Key, u64)>,
    pub(super) class: Class,
    /// Set once a hash thread has taken it up.
    pub(super) taken: Arc<AtomicBool>,
    outcome: Outcome,
}

impl Charge<'_> {
    pub(super) fn settle(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Charge<'_> {
    /// What was not answered told nobody anything, and is no failure of a pair or a client. But who always leaves before
    /// the answer must not look as if nobody had failed there: a hash that was begun counts for the prefix, which
    /// nobody is refused for.
    fn drop(&mut self) {
        let (narrow, prefix) = match self.outcome {
            Outcome::Right => (true, true),
            Outcome::Wrong => (false, false),
            Outcome::Unanswered => (true, !self.taken.load(Relaxed)),
        };
        let mut counts = self.failures.counts();
        if narrow {
            take_back(&mut counts.pairs, &self.pairs);
            take_back(&mut counts.clients, &self.clients);
        }
        if prefix {
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
            keyed: Keyed::new(key),
            failures_max,
            forgiven_every,
            counts: Mutex::new(Counts { pairs: table(), clients: table(), prefixes: table() }),
            familiar: Mutex::new(Bounded::new(ENTRIES_MAX)),
            proven: Proven::new(),
        }
    }

    /// Whether this secret of the client was right from there before.
    pub(super) fn proven(
        &self,
        id: &str,
        fingerprint: &Fingerprint,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Option<ProvenSecret> {
        let (client, pair) = (self.client(id), self.pair(id, AddressPrefix::of(address?)));
        self.proven.holds(&client, &pair, fingerprint, now).then(|| ProvenSecret {
            client,
            budget: self.keyed.short(&[b"proven", &pair, fingerprint.bytes()]),
            fingerprint: *fingerprint,
        })
    }

    /// It is right no more: it counts as any other.
    pub(super) fn disprove(&self, proven: &ProvenSecret) {
        self.proven.forget(&proven.client, &proven.fingerprint);
    }

    /// Counts an attempt on these clients as failed, before it is made, so that attempts at once count too.
    ///
    /// # Errors
    /// How long until one more may be made, where the budget of a client and this address is used up. Then nothing is
    /// counted. An address that isn't known has no budget and is never refused. A proven secret has a budget of its own in
    /// place of its client's there.
    pub(super) fn charge(
        &self,
        ids: &[&str],
        proven: Option<&ProvenSecret>,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Result<Charge<'_>, Duration> {
        let keys = self.keys(ids, address);
        let is_familiar = self.is_familiar(&keys.pairs);
        let keys = keys.of(proven);
        let Units { one, lasting, pair_max, client_max } = self.units();
        let counts = &mut *self.counts();
        let class = self.class(counts, &keys, is_familiar, now)?;
        let add = |counts: &mut FailureCounts, key: Key, one: u64, most: u64| {
            (key, counts.add(key, one, most, now))
        };
        let prefix_max = lasting.saturating_mul(PREFIX_MAX.into());
        Ok(Charge {
            failures: self,
            pairs: keys.pairs.into_iter().map(|key| add(&mut counts.pairs, key, one, pair_max)).collect(),
            clients: keys
                .clients
                .into_iter()
                .map(|key| add(&mut counts.clients, key, one, client_max.saturating_add(one)))
                .collect(),
            prefix: keys.prefix.map(|key| add(&mut counts.prefixes, key, lasting, prefix_max)),
            class,
            taken: Arc::default(),
            outcome: Outcome::Unanswered,
        })
    }

    /// What [`Self::charge`] would say. Nothing is counted.
    ///
    /// # Errors
    /// As there.
    pub(super) fn look(
        &self,
        ids: &[&str],
        proven: Option<&ProvenSecret>,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Result<Class, Duration> {
        let keys = self.keys(ids, address);
        let is_familiar = self.is_familiar(&keys.pairs);
        self.class(&self.counts(), &keys.of(proven), is_familiar, now)
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
        let one = nanos(self.forgiven_every).max(1);
        let pair_max = one.saturating_mul(self.failures_max.max(1).into());
        Units {
            one,
            lasting: one.saturating_mul(LASTING.into()),
            pair_max,
            client_max: pair_max.saturating_mul(WIDER.into()),
        }
    }

    fn class(&self, counts: &Counts, keys: &Keys, is_familiar: bool, now: Mono) -> Result<Class, Duration> {
        let Units { one, lasting, pair_max, client_max } = self.units();
        for key in &keys.pairs {
            let had = counts.pairs.debt(key, now);
            if had > pair_max - one {
                return Err(Duration::from_nanos(had - (pair_max - one)));
            }
        }
        let guessed_at = keys.clients.iter().any(|key| counts.clients.debt(key, now) > client_max - one);
        // Of an address that isn't known, nothing good is.
        let failed = keys.prefix.as_ref().map_or(1, |key| counts.prefixes.debt(key, now).div_ceil(lasting));
        Ok(match failed {
            _ if is_familiar => Class::Familiar,
            0 if guessed_at => Class::Doubtful,
            0 => Class::Usual,
            _ if failed <= FEW.into() => Class::Failed,
            _ => Class::Suspect,
        })
    }

    /// The client was right from there. `fingerprint` is that of its secret, where it may be remembered.
    pub(super) fn welcome(
        &self,
        id: &str,
        fingerprint: Option<Fingerprint>,
        address: Option<IpAddr>,
        now: Mono,
    ) {
        let Some(address) = address else { return };
        let pair = self.pair(id, AddressPrefix::of(address));
        self.familiar.lock().unwrap_or_else(PoisonError::into_inner).insert(pair, ());
        if let Some(fingerprint) = fingerprint {
            self.proven.learn(self.client(id), pair, fingerprint, now);
        }
    }

    fn is_familiar(&self, pairs: &[Key]) -> bool {
        let familiar = self.familiar.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.iter().any(|pair| familiar.value(pair).is_some())
    }

    /// Entries of all tables.
    pub(super) fn len(&self) -> usize {
        let familiar = self.familiar.lock().unwrap_or_else(PoisonError::into_inner).len();
        let counts = self.counts();
        familiar + self.proven.len() + counts.pairs.len() + counts.clients.len() + counts.prefixes.len()
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
    use super::{super::remembered::Remembered, *};

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
        let wrong = |id: &str, from: &str, second| class_at(&failures, &[id], from, Outcome::Wrong, second);
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
    fn a_look_says_what_a_charge_would_and_counts_nothing() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let looks = [(); 50].map(|()| failures.look(&["a"], None, address("192.0.2.1"), now));
            let charged = failures.charge(&["a"], None, address("192.0.2.1"), now);
            let class = charged.as_ref().map(|charge| charge.class).map_err(|wait| *wait);
            assert!(looks.iter().all(|look| *look == class), "{class:?}");
            seen.push(class);
            if let Ok(charge) = charged {
                charge.settle(Outcome::Wrong);
            }
        }
        let expected = [Ok(Class::Usual), Ok(Class::Failed), Ok(Class::Failed), Err(Duration::from_secs(10))];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_was_right_costs_nothing() {
        let failures = failures();
        for _ in 0..50 {
            assert_eq!(class(&failures, &["a"], "192.0.2.1", Outcome::Right), Some(Class::Usual));
        }
    }

    /// The class of an attempt with that outcome; nothing where it is refused.
    fn class(failures: &Failures, ids: &[&str], from: &str, outcome: Outcome) -> Option<Class> {
        class_at(failures, ids, from, outcome, 100)
    }

    fn class_at(
        failures: &Failures,
        ids: &[&str],
        from: &str,
        outcome: Outcome,
        second: u64,
    ) -> Option<Class> {
        let charge = failures.charge(ids, None, address(from), Mono::from_nanos(second * SECOND)).ok()?;
        let class = charge.class;
        charge.settle(outcome);
        Some(class)
    }

    #[test]
    fn an_excess_on_a_client_lowers_the_class_and_refuses_nobody() {
        let failures = failures();
        let class = |id: &str, from: &str| class(&failures, &[id], from, Outcome::Wrong);
        for host in 1..=12 {
            assert_eq!(class("victim", &format!("192.0.2.{host}")), Some(Class::Usual), "{host}");
        }
        assert_eq!(class("victim", "198.51.100.1"), Some(Class::Doubtful));
        assert_eq!(class("other", "198.51.100.2"), Some(Class::Usual), "the control");
        // However long it was, an excess is over soon after.
        for host in 0..200 {
            let _ = class("victim", &format!("10.0.0.{host}"));
        }
        assert_eq!(
            class_at(&failures, &["victim"], "192.0.2.200", Outcome::Right, 125),
            Some(Class::Usual),
            "25 s later"
        );
    }

    #[test]
    fn a_prefix_goes_behind_others_with_its_first_failure_and_for_a_while() {
        let failures = failures();
        let class =
            |second| class_at(&failures, &[&format!("id{second}")], "203.0.113.7", Outcome::Wrong, second);
        let expected =
            [Class::Usual, Class::Failed, Class::Failed, Class::Suspect, Class::Suspect, Class::Suspect];
        for (second, expected) in (100..).zip(expected) {
            assert_eq!(class(second), Some(expected), "{second}");
        }
        let right = |second| class_at(&failures, &["a"], "203.0.113.7", Outcome::Right, second);
        assert_eq!(right(100 + 199), Some(Class::Suspect), "all else is as long ago as it can be");
        assert_eq!(right(100 + 210), Some(Class::Failed));
        assert_eq!(right(100 + 410), Some(Class::Usual), "however often it failed");
        assert_eq!(class_at(&failures, &["b"], "203.0.113.8", Outcome::Wrong, 105), Some(Class::Usual));
    }

    #[test]
    fn attempts_at_once_count_before_their_outcome_is_known() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let at_once: Vec<_> = (0..4)
            .map(|id| failures.charge(&[&format!("id{id}")], None, address("192.0.2.1"), now))
            .collect();
        let classes: Vec<_> = at_once.iter().flatten().map(|charge| charge.class).collect();
        assert_eq!(classes, [Class::Usual, Class::Failed, Class::Failed, Class::Suspect]);
        drop(at_once);
        assert_eq!(class(&failures, &["a"], "192.0.2.1", Outcome::Right), Some(Class::Usual));
    }

    #[test]
    fn a_pair_that_was_right_goes_ahead_until_it_has_failed_too_often() {
        let failures = failures();
        let class = |id: &str, from: &str| class(&failures, &[id], from, Outcome::Wrong);
        let now = Mono::from_nanos(100 * SECOND);
        failures.welcome("victim", None, address("192.0.2.1"), now);
        failures.welcome("victim", None, None, now);
        for host in 0..200 {
            let _ = class("victim", &format!("10.0.0.{host}"));
        }
        assert_eq!(class("victim", "198.51.100.1"), Some(Class::Doubtful), "the flood reached it");
        for _ in 0..3 {
            assert_eq!(class("victim", "192.0.2.1"), Some(Class::Familiar));
        }
        assert_eq!(class("victim", "192.0.2.1"), None, "the budget comes first");
        assert_eq!(class("other", "192.0.2.1"), Some(Class::Suspect), "it is familiar with one client alone");
    }

    #[test]
    fn a_secret_that_was_right_has_a_budget_that_no_neighbour_uses_up() {
        let failures = failures();
        let memory = Remembered::new(&[1; 32], Duration::ZERO, 0);
        let (right, other) = (memory.fingerprint("victim", b"right"), memory.fingerprint("victim", b"other"));
        let (home, now) = (address("192.0.2.1"), Mono::from_nanos(100 * SECOND));
        failures.welcome("victim", Some(right), home, now);
        while class(&failures, &["victim"], "192.0.2.1", Outcome::Wrong).is_some() {}
        assert!(failures.look(&["victim"], None, home, now).is_err());

        let proven = failures.proven("victim", &right, home, now).unwrap();
        for _ in 0..10 {
            let charge = failures.charge(&["victim"], Some(&proven), home, now).unwrap();
            assert_eq!(charge.class, Class::Familiar);
            charge.settle(Outcome::Right);
        }
        // Nothing else is exempt: neither a guess, nor another client, nor the same secret from elsewhere.
        assert!(failures.proven("victim", &other, home, now).is_none());
        assert!(failures.proven("other", &right, home, now).is_none());
        assert!(failures.proven("victim", &right, address("192.0.2.2"), now).is_none());
        assert!(failures.proven("victim", &right, None, now).is_none());
        // Attempts at once are bounded, too, and who is wrong with it is one of many.
        let at_once: Vec<_> =
            (0..4).map(|_| failures.charge(&["victim"], Some(&proven), home, now).is_ok()).collect();
        assert_eq!(at_once, [true; 4], "each was dropped before the next");
        let held: Vec<_> = (0..4).map(|_| failures.charge(&["victim"], Some(&proven), home, now)).collect();
        assert_eq!(held.iter().filter(|charge| charge.is_ok()).count(), 3);
        failures.disprove(&proven);
        assert!(failures.proven("victim", &right, home, now).is_none());
    }

    #[test]
    fn what_had_no_answer_is_no_failure_but_a_hash_counts_for_its_prefix() {
        let failures = failures();
        let now = Mono::from_nanos(100 * SECOND);
        let unanswered = |from: &str, hashed: bool| {
            let charge = failures.charge(&["victim"], None, address(from), now).ok()?;
            charge.taken.store(hashed, Relaxed);
            Some(charge.class)
        };
        for _ in 0..50 {
            assert_eq!(unanswered("192.0.2.1", false), Some(Class::Usual), "it found no place");
        }
        let classes: Vec<_> = (0..50).map(|_| unanswered("192.0.2.2", true)).collect();
        assert_eq!(classes[..3], [Some(Class::Usual), Some(Class::Failed), Some(Class::Failed)]);
        assert!(
            classes[3..].iter().all(|class| *class == Some(Class::Suspect)),
            "it left before the answers"
        );
    }

    #[test]
    fn an_address_that_is_not_known_is_never_refused() {
        let failures = failures();
        for _ in 0..50 {
            assert!(failures.charge(&["a"], None, None, Mono::from_nanos(SECOND)).is_ok());
        }
    }
}

//! Subjects whose tokens are refused although they are authentic and have not expired.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cardea_clock::Wall;

use crate::verdict::Verdict;

/// The most subjects with an entry of their own.
const ENTRIES_MAX: usize = 262_144;

/// Revoked and disabled subjects, by issuer name and subject (for a token without `sub`: its client id).
///
/// A change is in effect when the call returns. The table is shared by all configurations of a process, so that a
/// reload loses nothing. It is bounded: beyond 262,144 subjects the entry that expires first is evicted, and its
/// revocation is applied to its whole issuer. So too many tokens are refused, never too few.
#[derive(Debug, Default)]
pub struct Revocations {
    /// The only value that is read while there are no entries.
    count: AtomicUsize,
    /// See [`Revocations::epoch`].
    epoch: AtomicU64,
    issuers: RwLock<HashMap<String, Entries>>,
}

#[derive(Debug, Default)]
struct Entries {
    subjects: HashMap<String, Entry>,
    /// The revocation that applies to every subject, after entries were evicted.
    everyone: Entry,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Entry {
    disabled: bool,
    revoked: Option<Revoked>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Revoked {
    issued_at_or_before: Wall,
    forget_after: Wall,
}

impl Revocations {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses the tokens of `subject` that were issued at or before the given time, and those without `iat`.
    /// `forget_after` is the time when the last of them has expired, including the skew.
    ///
    /// `iat` is in whole seconds: a token that was issued later in the same second is refused too.
    pub fn revoke(&self, issuer: &str, subject: &str, issued_at_or_before: Wall, forget_after: Wall) {
        let revoked = Revoked { issued_at_or_before, forget_after };
        self.change(issuer, subject, |entry| {
            entry.revoked = Some(later(entry.revoked, revoked));
        });
    }

    /// Refuses every token of `subject` until [`Revocations::enable`].
    pub fn disable(&self, issuer: &str, subject: &str) {
        self.change(issuer, subject, |entry| entry.disabled = true);
    }

    /// Ends [`Revocations::disable`]. Revocations stay in effect: to keep tokens from before the disabling refused,
    /// revoke them when disabling.
    pub fn enable(&self, issuer: &str, subject: &str) {
        let mut issuers = self.write();
        if let Some(entries) = issuers.get_mut(issuer)
            && let Some(entry) = entries.subjects.get_mut(subject)
        {
            entry.disabled = false;
            if entry.revoked.is_none() {
                entries.subjects.remove(subject);
            }
        }
        self.recount(&issuers);
    }

    /// Deletes revocations whose tokens have all expired.
    pub fn purge(&self, now: Wall) {
        if self.is_empty() {
            return;
        }
        let mut issuers = self.write();
        let expired = |entry: &mut Entry| {
            if entry.revoked.is_some_and(|revoked| revoked.forget_after < now) {
                entry.revoked = None;
            }
            *entry == Entry::default()
        };
        issuers.retain(|_, entries| {
            entries.subjects.retain(|_, entry| !expired(entry));
            !(expired(&mut entries.everyone) && entries.subjects.is_empty())
        });
        self.recount(&issuers);
    }

    /// Whether the verdict's token is refused. It costs one load while nothing is revoked.
    #[must_use]
    pub fn is_revoked(&self, verdict: &Verdict) -> bool {
        if self.is_empty() {
            return false;
        }
        let caller = &verdict.caller;
        let issuers = self.read();
        let Some(entries) = issuers.get(&*caller.issuer_name) else {
            return false;
        };
        let subject = caller.subject.as_ref().or(caller.client_id.as_ref());
        let entry = subject.and_then(|subject| entries.subjects.get(subject));
        let refuses = |entry: &Entry| {
            entry.disabled
                || entry.revoked.is_some_and(|revoked| {
                    caller.issued_at.is_none_or(|issued_at| issued_at <= revoked.issued_at_or_before)
                })
        };
        refuses(&entries.everyone) || entry.is_some_and(refuses)
    }

    /// The number of entries; a gauge.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether nothing is revoked or disabled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn change(&self, issuer: &str, subject: &str, change: impl FnOnce(&mut Entry)) {
        self.change_within(ENTRIES_MAX, issuer, subject, change);
    }

    fn change_within(
        &self,
        entries_max: usize,
        issuer: &str,
        subject: &str,
        change: impl FnOnce(&mut Entry),
    ) {
        let mut issuers = self.write();
        let known = issuers.get(issuer).is_some_and(|entries| entries.subjects.contains_key(subject));
        if !known && self.len() >= entries_max {
            make_room(&mut issuers);
        }
        let entries = issuers.entry(issuer.to_owned()).or_default();
        change(entries.subjects.entry(subject.to_owned()).or_default());
        self.recount(&issuers);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    fn recount(&self, issuers: &HashMap<String, Entries>) {
        let count = issuers
            .values()
            .map(|entries| entries.subjects.len() + usize::from(entries.everyone != Entry::default()))
            .sum();
        self.count.store(count, Ordering::Relaxed);
    }

    /// Changes with each revocation, after it is in effect; not when one is withdrawn or deleted.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Entries>> {
        self.issuers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Entries>> {
        self.issuers.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Merges two revocations: the later limit of each kind.
fn later(old: Option<Revoked>, new: Revoked) -> Revoked {
    old.map_or(new, |old| Revoked {
        issued_at_or_before: old.issued_at_or_before.max(new.issued_at_or_before),
        forget_after: old.forget_after.max(new.forget_after),
    })
}

/// Applies the entry that expires first to its whole issuer. Only an operator's mass action gets here, so a scan is
/// acceptable.
fn make_room(issuers: &mut HashMap<String, Entries>) {
    let first = issuers
        .iter()
        .flat_map(|(issuer, entries)| {
            entries.subjects.iter().map(move |(subject, entry)| (issuer, subject, entry))
        })
        .min_by_key(|(_, _, entry)| {
            let forget_after = entry.revoked.map_or(Wall::MAX, |revoked| revoked.forget_after);
            (entry.disabled, forget_after)
        })
        .map(|(issuer, subject, _)| (issuer.clone(), subject.clone()));
    let Some((issuer, subject)) = first else {
        return;
    };
    if let Some(entries) = issuers.get_mut(&issuer)
        && let Some(entry) = entries.subjects.remove(&subject)
    {
        entries.everyone.disabled |= entry.disabled;
        if let Some(revoked) = entry.revoked {
            entries.everyone.revoked = Some(later(entries.everyone.revoked, revoked));
        }
        tracing::error!(issuer, "too many revocations: one now applies to all subjects of the issuer");
    }
}

#[cfg(test)]
mod tests;

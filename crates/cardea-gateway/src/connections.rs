//! The open connections of clients: how to wake each, what each holds, and which have been idle for the longest.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{
            AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
    time::Duration,
};

use cardea_clock::Mono;
use slab::Slab;

use crate::memory::Account;

/// [`Activity::idle_since`] of a connection that is in use.
const IN_USE: u64 = 0;
/// [`Activity::idle_since`] of an idle connection that was told to give way.
const GIVES_WAY: u64 = u64::MAX;

/// After a search that found no idle connection the next one waits for so long: a search looks at all connections.
const SEARCH_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Of the idle connections this part is noted at a time, the oldest of them: a search over all connections pays for as
/// many that give way.
const NOTED_PART: usize = 8;
/// And so many at least.
const NOTED_MIN: usize = 64;

/// Whether a connection carries something, and what it makes the process hold. Written by its own tasks alone, but for
/// the word to give way.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Nanoseconds of [`Mono`], [`IN_USE`] or [`GIVES_WAY`].
    idle_since: AtomicU64,
    /// How many of its requests are in the tarpit.
    held: AtomicU32,
    account: Arc<Account>,
}

impl Activity {
    /// Nothing is under way: the connection may be told to give way.
    pub(crate) fn rest(&self, now: Mono) {
        self.idle_since.store(now.nanos().clamp(IN_USE + 1, GIVES_WAY - 1), Relaxed);
    }

    /// Something is under way. A word to give way is forgotten: what the client has begun goes on.
    pub(crate) fn resume(&self) {
        self.idle_since.store(IN_USE, Relaxed);
    }

    /// Whether this connection was told to give way.
    pub(crate) fn is_evicted(&self) -> bool {
        self.idle_since.load(Relaxed) == GIVES_WAY
    }

    /// Counts one more request in the tarpit, if there are fewer than `max`. Whether there are.
    pub(crate) fn hold_one(&self, max: u32) -> bool {
        self.held.fetch_update(Relaxed, Relaxed, |held| (held < max).then_some(held + 1)).is_ok()
    }

    /// Counts one less.
    pub(crate) fn held_one_less(&self) {
        self.held.fetch_sub(1, Relaxed);
    }

    /// What the connection makes the process hold.
    pub(crate) const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Since when the connection has been idle. One that still has something to send is not, whatever has ended on it.
    fn idle_since(&self) -> Option<u64> {
        let since = Some(self.idle_since.load(Relaxed)).filter(|since| !matches!(*since, IN_USE | GIVES_WAY));
        since.filter(|_| self.account.held() == 0)
    }
}

/// The open connections, by shards.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    count: AtomicUsize,
    shards: [Mutex<Slab<Arc<Entry>>>; 16],
    oldest: Mutex<Oldest>,
}

/// Those that were idle for the longest when all were last searched.
#[derive(Debug, Default)]
struct Oldest {
    /// The oldest in front.
    idle: VecDeque<(u64, Weak<Entry>)>,
    /// No search before.
    search_from: Mono,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Entry {
    waker: Waker,
    activity: Arc<Activity>,
}

/// Where a connection is entered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    shard: usize,
    place: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    pub(crate) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    pub(crate) fn insert(&self, waker: Waker, activity: Arc<Activity>) -> Place {
        let shard = self.count.fetch_add(1, SeqCst) % self.shards.len();
        let place = lock(&self.shards[shard]).insert(Arc::new(Entry { waker, activity }));
        Place { shard, place }
    }

    /// Whether it was the last one.
    pub(crate) fn remove(&self, Place { shard, place }: Place) -> bool {
        let entry = lock(&self.shards[shard]).try_remove(place);
        drop(entry);
        self.count.fetch_sub(1, SeqCst) == 1
    }

    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            let entries: Vec<_> = lock(shard).iter().map(|(_, entry)| Arc::clone(entry)).collect();
            entries.iter().for_each(|entry| entry.waker.wake_by_ref());
        }
    }

    /// Tells up to `count` idle connections to give way, those first that have been idle for the longest, and says how
    /// many were told. All are searched once in many calls: those that have been idle for the longest stay that as
    /// long as they are idle.
    pub(crate) fn evict(&self, count: usize, now: Mono) -> usize {
        let mut oldest = lock(&self.oldest);
        // How many were told when all were last searched: a search that leads to nobody is the last one for a while.
        let (mut told, mut searched) = (0, None);
        while told < count {
            match oldest.idle.pop_front() {
                Some((since, entry)) => {
                    told += usize::from(entry.upgrade().is_some_and(|entry| entry.tell(since)))
                }
                None if searched == Some(told) => {
                    oldest.search_from = now.saturating_add(SEARCH_AGAIN_AFTER);
                    break;
                }
                None if now < oldest.search_from => break,
                None => {
                    searched = Some(told);
                    oldest.idle = self.search();
                }
            }
        }
        told
    }

    /// How many are idle.
    pub(crate) fn idle(&self) -> usize {
        let is_idle = |(_, entry): &(usize, &Arc<Entry>)| entry.activity.idle_since().is_some();
        self.shards.iter().map(|shard| lock(shard).iter().filter(is_idle).count()).sum()
    }

    /// The connections that make the process hold something.
    pub(crate) fn holders(&self) -> Vec<Arc<Entry>> {
        let mut holders = Vec::new();
        for shard in &self.shards {
            holders.extend(
                lock(shard)
                    .iter()
                    .map(|(_, entry)| entry)
                    .filter(|entry| entry.account().held() > 0)
                    .cloned(),
            );
        }
        holders
    }

    fn search(&self) -> VecDeque<(u64, Weak<Entry>)> {
        let mut idle = Vec::new();
        for shard in &self.shards {
            for (_, entry) in lock(shard).iter() {
                idle.extend(entry.activity.idle_since().map(|since| (since, Arc::downgrade(entry))));
            }
        }
        let noted = (idle.len() / NOTED_PART).max(NOTED_MIN);
        if idle.len() > noted {
            idle.select_nth_unstable_by_key(noted, |(since, _)| *since);
            idle.truncate(noted);
        }
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.into()
    }
}

impl Entry {
    pub(crate) fn account(&self) -> &Arc<Account> {
        self.activity.account()
    }

    pub(crate) fn wake(&self) {
        self.waker.wake_by_ref();
    }

    /// Whether it is told, having been idle `since` then.
    fn tell(&self, since: u64) -> bool {
        let told = self.activity.idle_since.compare_exchange(since, GIVES_WAY, Relaxed, Relaxed).is_ok();
        if told {
            self.waker.wake_by_ref();
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    fn entered(all: &Connections, count: u64) -> Vec<(Place, Arc<Activity>)> {
        let enter = |number| {
            let activity = Arc::<Activity>::default();
            activity.rest(at(number));
            (all.insert(Waker::noop().clone(), Arc::clone(&activity)), activity)
        };
        (0..count).map(enter).collect()
    }

    fn told(entered: &[(Place, Arc<Activity>)]) -> Vec<usize> {
        let told = entered.iter().enumerate().filter(|(_, (_, activity))| activity.is_evicted());
        told.map(|(at, _)| at).collect()
    }

    #[test]
    fn those_give_way_that_have_been_idle_for_the_longest() {
        let all = Connections::default();
        let mut entered = entered(&all, 1_000);
        entered[0].1.resume();
        entered[1].1.resume();
        entered[1].1.rest(at(5_000));
        assert_eq!(all.evict(3, at(10_000)), 3);
        assert_eq!(told(&entered), [2, 3, 4]);
        // Used since the search, and gone.
        entered[5].1.resume();
        all.remove(entered[6].0);
        assert_eq!(all.evict(2, at(10_000)), 2);
        assert_eq!(told(&entered), [2, 3, 4, 7, 8]);
        assert_eq!(
            all.evict(10_000, at(10_000)),
            1_000 - 1 - 1 - 1 - 5,
            "all but those in use and the one that is gone"
        );
        assert!(!entered[0].1.is_evicted() && !entered[5].1.is_evicted() && entered[1].1.is_evicted());
        assert_eq!(all.evict(1, at(10_001)), 0);
        entered.remove(6);
        let last = entered.iter().map(|(place, _)| all.remove(*place)).filter(|last| *last).count();
        assert_eq!((last, all.count()), (1, 0));
    }

    #[test]
    fn a_connection_with_something_to_send_is_not_idle() {
        let all = Connections::default();
        let entered = entered(&all, 2);
        entered[0].1.account().change_for_test(1);
        assert_eq!(all.evict(2, at(10_000)), 1);
        assert_eq!(told(&entered), [1]);
        assert_eq!(all.holders().len(), 1);
    }

    #[test]
    fn a_search_that_finds_nobody_is_not_repeated_at_once() {
        let all = Connections::default();
        let busy = entered(&all, 1);
        busy[0].1.resume();
        assert_eq!(all.evict(1, at(100)), 0);
        busy[0].1.rest(at(100));
        assert_eq!(all.evict(1, at(100)), 0);
        assert_eq!(all.evict(1, at(101)), 1);
    }

    #[test]
    fn a_connection_that_is_used_again_gives_way_no_more() {
        let all = Connections::default();
        let entered = entered(&all, 1);
        assert_eq!(all.evict(1, at(10_000)), 1);
        entered[0].1.resume();
        assert!(!entered[0].1.is_evicted());
        assert_eq!(all.evict(1, at(10_001)), 0, "it is in use");
    }
}

//! Ends connections where more is held for messages under way than may be.
//!
//! Who ends is decided in two steps:
//!
//! 1. A client address prefix that holds more than a [`PREFIX_PART`] of the bound gives way until it does not: one caller
//!    must not take from the others. The prefix that holds the most comes first.
//! 2. Then connections end by what they hold times how long they have held it.
//!
//! Trusted proxies and Unix sockets carry many clients, so their connections are not added up by prefix.

use std::{
    collections::{BinaryHeap, HashMap},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use cardea_guard::AddressPrefix;

pub(crate) use super::account::tick;
use super::account::{Account, Ending, STREAMS_END_WITHIN};
use crate::{gateway::Gateway, termination::TerminationReason};

/// How often [`tick`] is to be called: the unit of ages.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Freed beyond what is too much: this part of what is held.
const ROOM_PART: usize = 16;

/// A prefix that holds more than this part of the bound is the first to give way.
const PREFIX_PART: usize = 16;

/// What is older does not count for more, in ticks: a quiet stream is no worse for being old.
const AGE_MAX: u32 = 300;

/// How long what a connection holds counts as freed that has to end, in ticks.
const CONNECTION_ENDS_WITHIN: u32 = 10;

/// Stalled streams were told to end since more was held than may be.
static STREAMS_TOLD: AtomicBool = AtomicBool::new(false);

/// A connection that holds something.
#[derive(Debug, Clone, Copy)]
struct Holder {
    prefix: Option<AddressPrefix>,
    held: usize,
    /// What goes if it is told to end now, in bytes.
    frees: usize,
    /// In ticks.
    age: u32,
}

impl Holder {
    fn of(account: &Account) -> Self {
        let (held, age) = (account.held(), account.age());
        let frees = match next_ending(account) {
            Ending::Streams => account.held_by_streams(),
            Ending::Connection | Ending::No => held,
        };
        Self { prefix: account.prefix(), held, frees, age }
    }

    /// Whose end does the least harm for what it frees.
    fn score(&self) -> u128 {
        self.held as u128 * u128::from(self.age.min(AGE_MAX) + 1)
    }
}

/// Ends what holds the most for the longest, where more is held than may be. Where that is not enough for longer than a
/// moment (`was_passed_before`), new requests are refused.
pub(crate) fn relieve(gateway: &Gateway, was_passed_before: bool) {
    let excess = super::excess();
    if excess == 0 {
        spare_streams(gateway);
        return super::set_exhausted(false);
    }
    // With some room, so that not every further buffer is too many.
    let wanted = excess.saturating_add(super::used() / ROOM_PART);
    let mut freed = 0_usize;
    // What connections hold beside, whose stalled streams end: if that is not enough, they end next.
    let mut left = 0_usize;
    let mut candidates = Vec::new();
    for connection in gateway.connections_that_hold() {
        let account = connection.account();
        match account.ending() {
            Ending::Streams
                if account.ending_age() < STREAMS_END_WITHIN && account.is_relieved_by_streams() =>
            {
                // Some may be stalled for long enough only now.
                gateway.streams.call_those_of(account);
                freed = freed.saturating_add(account.held_by_streams());
                left = left.saturating_add(account.held().saturating_sub(account.held_by_streams()));
            }
            Ending::No | Ending::Streams => candidates.push((Holder::of(account), connection)),
            Ending::Connection if account.ending_age() < CONNECTION_ENDS_WITHIN => {
                freed = freed.saturating_add(account.held());
            }
            Ending::Connection => {}
        }
    }
    let holders: Vec<_> = candidates.iter().map(|(holder, _)| *holder).collect();
    let mut told = 0;
    for at in choose(&holders, super::max(), wanted.saturating_sub(freed)) {
        let Some((holder, connection)) = candidates.get(at) else { continue };
        let account = connection.account();
        let ending = next_ending(account);
        account.end(ending);
        if ending == Ending::Streams {
            STREAMS_TOLD.store(true, Relaxed);
        }
        if ending == Ending::Connection {
            gateway.metrics.stream_ended(TerminationReason::BuffersExhausted);
            connection.wake();
        } else {
            gateway.streams.call_those_of(account);
        }
        freed = freed.saturating_add(holder.frees);
        left = left.saturating_add(holder.held.saturating_sub(holder.frees));
        told += 1;
    }
    if freed.saturating_add(left) >= excess {
        super::set_exhausted(false);
    } else if was_passed_before {
        super::set_exhausted(true);
    }
    if told > 0 || freed < excess {
        gateway.warn_of_buffers(super::used(), told);
    }
}

/// What was told to end is enough: the stalled streams that are left go on. Were they still counted as told, their connections would
/// be the next to end.
fn spare_streams(gateway: &Gateway) {
    if STREAMS_TOLD.swap(false, Relaxed) {
        gateway.connections_that_hold().iter().for_each(|connection| connection.account().spare_streams());
    }
}

/// How a connection ends that has to: its stalled streams first, where that helps, then all of it.
fn next_ending(account: &Account) -> Ending {
    let streams = account.is_relieved_by_streams() && account.ending() == Ending::No;
    if streams { Ending::Streams } else { Ending::Connection }
}

/// Which of `holders` have to end to free `wanted` bytes, where `max` may be held.
fn choose(holders: &[Holder], max: usize, wanted: usize) -> Vec<usize> {
    let mut by_score: Vec<_> = holders.iter().enumerate().map(|(at, holder)| (holder.score(), at)).collect();
    by_score.sort_unstable();
    let by_score = by_score.into_iter().map(|(_, at)| at);
    let mut choice =
        Choice { holders, wanted, freed: 0, chosen: Vec::new(), is_chosen: vec![false; holders.len()] };
    let share = max / PREFIX_PART;
    // The last of each is the first to end.
    let mut prefixes: HashMap<AddressPrefix, (usize, Vec<usize>)> = HashMap::new();
    for at in by_score.clone() {
        if let Some(Holder { prefix: Some(prefix), held, .. }) = holders.get(at) {
            let (total, of_prefix) = prefixes.entry(*prefix).or_default();
            *total = total.saturating_add(*held);
            of_prefix.push(at);
        }
    }
    let mut largest: BinaryHeap<_> = prefixes.into_values().filter(|(total, _)| *total > share).collect();
    while !choice.is_enough()
        && let Some((total, mut of_prefix)) = largest.pop()
    {
        let Some(at) = of_prefix.pop() else { continue };
        let left = total.saturating_sub(choice.take(at));
        if left > share {
            largest.push((left, of_prefix));
        }
    }
    for at in by_score.rev() {
        if choice.is_enough() {
            break;
        }
        choice.take(at);
    }
    choice.chosen
}

/// What was chosen so far.
struct Choice<'a> {
    holders: &'a [Holder],
    wanted: usize,
    freed: usize,
    chosen: Vec<usize>,
    is_chosen: Vec<bool>,
}

impl Choice<'_> {
    fn is_enough(&self) -> bool {
        self.freed >= self.wanted
    }

    /// Chooses a holder unless it was chosen before; what its end frees.
    fn take(&mut self, at: usize) -> usize {
        match (self.is_chosen.get_mut(at), self.holders.get(at)) {
            (Some(chosen @ false), Some(holder)) => {
                *chosen = true;
                self.chosen.push(at);
                self.freed = self.freed.saturating_add(holder.frees);
                holder.frees
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 16_000;

    fn from(network: u8, held: usize, age: u32) -> Holder {
        let prefix = AddressPrefix::of(std::net::IpAddr::from([192, 0, 2, network]));
        Holder { prefix: Some(prefix), held, frees: held, age }
    }

    #[test]
    fn those_end_first_that_hold_the_most_for_the_longest() {
        let holders =
            [from(1, 100, 10), from(2, 100, 50), from(3, 300, 10), from(4, 10, 299), from(5, 10, 90_000)];
        assert_eq!(choose(&holders, MAX, 1), [1]);
        assert_eq!(choose(&holders, MAX, 401), [1, 2, 4]);
        assert_eq!(choose(&holders, MAX, usize::MAX).len(), 5, "there are no more");
        assert_eq!(choose(&holders, MAX, 0), [0; 0]);
    }

    #[test]
    fn a_prefix_that_holds_more_than_its_share_gives_way_first_and_down_to_it() {
        // The share is 1,000: ten young ones of one caller, an old one of another, and two callers at their shares.
        let mut holders = vec![from(1, 150, 0); 10];
        holders.push(from(2, 500, 300));
        holders.push(from(3, 1_000, 200));
        assert_eq!(choose(&holders, MAX, 300), [9, 8]);
        // At its share a prefix is as good as any other.
        assert_eq!(choose(&holders, MAX, 700), [9, 8, 7, 6, 11]);
        let behind_a_proxy: Vec<_> =
            holders.iter().map(|holder| Holder { prefix: None, ..*holder }).collect();
        assert_eq!(choose(&behind_a_proxy, MAX, 300), [11], "many clients share it");
    }

    #[test]
    fn what_is_not_freed_is_not_counted_as_freed() {
        let mut holders = vec![from(1, 500, 50), from(2, 100, 10)];
        assert_eq!(choose(&holders, MAX, 400), [0], "the control");
        holders[0].frees = 399;
        assert_eq!(choose(&holders, MAX, 400), [0, 1]);
    }

    #[test]
    fn of_two_prefixes_the_larger_one_gives_way_until_they_hold_the_same() {
        let mut holders = vec![from(1, 100, 5); 40];
        holders.extend(vec![from(2, 100, 5); 30]);
        let chosen = choose(&holders, MAX, 1_200);
        let of_first = chosen.iter().filter(|at| **at < 40).count();
        assert_eq!((chosen.len(), of_first), (12, 11));
    }
}

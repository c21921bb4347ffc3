//! The queue of the hash threads: bounded, ordered by priority, and searched for jobs that can share lanes.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::Mono;
use cardea_kdf::{
    Password, Prf,
    stored::{StoredSecret, Target},
};
use tokio::sync::oneshot;

use super::Priority;

/// The most background jobs.
const BACKGROUND_MAX: usize = 64;
/// Each level is guaranteed one of this many parts of the queue: its jobs within that share are not evicted by other levels.
const SHARES: usize = 8;
/// How many jobs of a level are searched for one that can share lanes.
const SEARCHED_MAX: usize = 64;

/// A presented secret. The jobs of one request share it with its key schedules; it is wiped after the last.
pub(super) type Presented = Arc<Password>;

/// A job of a hash thread.
pub(super) enum Work {
    /// Compares the presented secret with a stored one.
    Verify {
        stored: StoredSecret,
        secret: Presented,
        /// Set when a thread starts the job.
        taken: Arc<AtomicBool>,
        answer: oneshot::Sender<bool>,
    },
    /// Computes the stored form of a secret; the answer is `None` if the secret is not allowed.
    Hash { target: Target, salt: [u8; 16], secret: Presented, answer: oneshot::Sender<Option<String>> },
}

impl Work {
    /// The lanes that the job can share.
    pub(super) fn lanes(&self) -> Option<Prf> {
        match self {
            Self::Verify { stored, .. } => stored.lane_job().map(|job| job.prf),
            Self::Hash { .. } => Some(Target::PRF),
        }
    }

    fn mark_taken(&self) {
        if let Self::Verify { taken, .. } = self {
            taken.store(true, Relaxed);
        }
    }

    /// Whether nobody waits for the result any more: the deadline passed, or the client disconnected.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Verify { answer, .. } => answer.is_closed(),
            Self::Hash { answer, .. } => answer.is_closed(),
        }
    }
}

struct Waiting {
    since: Mono,
    work: Work,
}

/// The levels of the queue, highest priority first: one for each priority but [`Priority::Background`].
const LEVELS: usize = 5;
const KNOWN_PAIR: usize = 0;
const NORMAL: usize = 1;
const TARGETED_CLIENT: usize = 2;
const FEW_FAILURES: usize = 3;
const MANY_FAILURES: usize = 4;

/// The level that is served first, in turn. Each level has a turn, so none is starved by another.
const SCHEDULE: [usize; 8] = [
    KNOWN_PAIR,
    KNOWN_PAIR,
    TARGETED_CLIENT,
    KNOWN_PAIR,
    FEW_FAILURES,
    NORMAL,
    TARGETED_CLIENT,
    MANY_FAILURES,
];

/// The level of a priority; background jobs have none.
const fn level_of(priority: Priority) -> Option<usize> {
    match priority {
        Priority::KnownPair => Some(KNOWN_PAIR),
        Priority::Normal => Some(NORMAL),
        Priority::TargetedClient => Some(TARGETED_CLIENT),
        Priority::FewFailures => Some(FEW_FAILURES),
        Priority::ManyFailures => Some(MANY_FAILURES),
        Priority::Background => None,
    }
}

/// The waiting jobs: those of the levels, which somebody waits for, and background jobs.
pub(super) struct Queue {
    levels: [Level; LEVELS],
    background: VecDeque<Work>,
    /// The most jobs of all levels.
    limit: usize,
    /// The next entry of [`SCHEDULE`].
    turn: usize,
    pub(super) closed: bool,
}

/// The jobs of one priority.
struct Level {
    waiting: VecDeque<Waiting>,
    /// When the oldest job has waited for longer, there is a standing queue. Its jobs would miss their deadlines, so the
    /// newest job is served first: then the hashes are still of use to somebody.
    standing_after: Duration,
    is_standing: bool,
}

impl Level {
    fn new(standing_after: Duration) -> Self {
        Self { waiting: VecDeque::new(), standing_after, is_standing: false }
    }

    fn update_standing(&mut self, now: Mono) {
        let first = self.waiting.front();
        self.is_standing = first.is_some_and(|first| now.saturating_since(first.since) > self.standing_after);
    }

    fn push(&mut self, jobs: Vec<Work>, now: Mono) {
        self.waiting.extend(jobs.into_iter().map(|work| Waiting { since: now, work }));
    }

    fn pop(&mut self) -> Option<Work> {
        loop {
            let next = if self.is_standing { self.waiting.pop_back() } else { self.waiting.pop_front() };
            let waiting = next?;
            if !waiting.work.is_abandoned() {
                return Some(waiting.work);
            }
        }
    }

    fn pop_for(&mut self, lanes: Prf) -> Option<Work> {
        let wanted = |waiting: &Waiting| waiting.work.lanes() == Some(lanes) && !waiting.work.is_abandoned();
        let place = if self.is_standing {
            self.waiting
                .len()
                .checked_sub(1 + self.waiting.iter().rev().take(SEARCHED_MAX).position(wanted)?)?
        } else {
            self.waiting.iter().take(SEARCHED_MAX).position(wanted)?
        };
        Some(self.waiting.remove(place)?.work)
    }
}

impl Queue {
    /// A queue for `limit` jobs, not counting background jobs. Each job is waited for at most `wait_max`.
    pub(super) fn new(limit: usize, wait_max: Duration) -> Self {
        let levels = [(); LEVELS].map(|()| Level::new(wait_max / 4));
        Self { levels, background: VecDeque::new(), limit, turn: 0, closed: false }
    }

    /// Adds all of the jobs or none. A quarter of the queue is reserved for known pairs, and jobs from prefixes with
    /// failures get half of it at the most.
    pub(super) fn push(&mut self, jobs: Vec<Work>, priority: Priority, now: Mono) -> bool {
        let Some(number) = level_of(priority) else {
            let fits = !self.closed && self.background.len() + jobs.len() <= BACKGROUND_MAX;
            if fits {
                self.background.extend(jobs);
            }
            return fits;
        };
        let Some(evicted) = self.evictions(jobs.len(), number, now) else { return false };
        for (level, evicted) in self.levels.iter_mut().zip(evicted) {
            // An evicted job is answered as one that found the queue full.
            level.waiting.drain(..evicted);
        }
        self.levels[number].push(jobs, now);
        true
    }

    /// Whether one job of that priority would be added.
    pub(super) fn admits(&mut self, priority: Priority, now: Mono) -> bool {
        match level_of(priority) {
            Some(number) => self.evictions(1, number, now).is_some(),
            None => !self.closed && self.background.len() < BACKGROUND_MAX,
        }
    }

    /// How many jobs each level must evict to add `wanted` jobs to the level `number`; `None` if there is no room.
    ///
    /// Abandoned jobs are removed first. Then jobs beyond their level's share are evicted: from lower levels, from any
    /// level if this one has less than its share, and from this level if it has a standing queue. The oldest go first.
    fn evictions(&mut self, wanted: usize, number: usize, now: Mono) -> Option<[usize; LEVELS]> {
        if self.closed {
            return None;
        }
        self.levels[number].update_standing(now);
        let share = self.limit / SHARES;
        let has_less = self.levels[number].waiting.len() + wanted <= share;
        let most = if number == KNOWN_PAIR || has_less { self.limit } else { self.limit - self.limit / 4 };
        if self.len() + wanted > most {
            for level in &mut self.levels {
                level.waiting.retain(|waiting| !waiting.work.is_abandoned());
            }
        }
        if number >= FEW_FAILURES && self.levels[number].waiting.len() + wanted > self.limit / 2 {
            return None;
        }
        let evictable = |other: usize, level: &Level| match level.waiting.len() {
            len if other == number && level.is_standing => len,
            len if other > number || other < number && has_less => len.saturating_sub(share),
            _ => 0,
        };
        let mut missing = (self.len() + wanted).saturating_sub(most);
        let mut evicted = [0; LEVELS];
        for other in (0..LEVELS).rev().filter(|other| *other != number).chain([number]) {
            evicted[other] = evictable(other, &self.levels[other]).min(missing);
            missing -= evicted[other];
        }
        (missing == 0).then_some(evicted)
    }

    /// The next job that is not a background job.
    pub(super) fn pop(&mut self) -> Option<Work> {
        self.next(Level::pop)
    }

    /// The next background job.
    pub(super) fn pop_background(&mut self) -> Option<Work> {
        self.background.pop_front()
    }

    /// The next job that can share these lanes, even if others are before it: it delays them by no more than the batch,
    /// which is bounded.
    pub(super) fn pop_for(&mut self, lanes: Prf) -> Option<Work> {
        self.next(|level| level.pop_for(lanes))
    }

    fn next(&mut self, pop: impl Fn(&mut Level) -> Option<Work>) -> Option<Work> {
        let first = SCHEDULE[self.turn];
        let work = [first].into_iter().chain(0..LEVELS).find_map(|number| pop(&mut self.levels[number]))?;
        self.turn = (self.turn + 1) % SCHEDULE.len();
        work.mark_taken();
        Some(work)
    }

    /// The number of jobs, not counting background jobs.
    pub(super) fn len(&self) -> usize {
        self.levels.iter().map(|level| level.waiting.len()).sum()
    }

    /// When the oldest job was added.
    pub(super) fn oldest(&self) -> Option<Mono> {
        self.levels.iter().filter_map(|level| level.waiting.front()).map(|waiting| waiting.since).min()
    }
}

#[cfg(test)]
mod tests;

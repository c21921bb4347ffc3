//! The one queue before the hash threads: bounded, in classes, searched for jobs that share lanes.

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

use super::Class;

/// The most jobs that nobody waits for.
const LATER_MAX: usize = 64;
/// Of so many parts of the places each line keeps one, once it has it, against all others.
const SHARES: usize = 8;
/// How far a job for the same lanes is searched for.
const SEARCHED_MAX: usize = 64;

/// A secret to be hashed, shared with its key schedules by the jobs of one request and wiped after the last.
pub(super) type Presented = Arc<Password>;

/// What a hash thread does.
pub(super) enum Work {
    /// Says whether this is the secret.
    Verify {
        stored: StoredSecret,
        secret: Presented,
        /// Set once a thread has taken it up.
        taken: Arc<AtomicBool>,
        answer: oneshot::Sender<bool>,
    },
    /// Makes what is stored; `None` where the secret can be none.
    Hash { target: Target, salt: [u8; 16], secret: Presented, answer: oneshot::Sender<Option<String>> },
}

impl Work {
    /// The lanes that it can share.
    pub(super) fn lanes(&self) -> Option<Prf> {
        #[cfg(feature = "bench-hashes")]
        if !super::instead::has_lanes() {
            return None;
        }
        match self {
            Self::Verify { stored, .. } => stored.lane_job().map(|job| job.prf),
            Self::Hash { .. } => Some(Target::PRF),
        }
    }

    fn take_up(&self) {
        if let Self::Verify { taken, .. } = self {
            taken.store(true, Relaxed);
        }
    }

    /// Whether nobody waits for it any more: its deadline passed, or the client went away.
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

/// Jobs in lines, the first one first: one for each class that somebody waits for.
const LINES: usize = 5;
const FAMILIAR: usize = 0;
const USUAL: usize = 1;
const DOUBTFUL: usize = 2;
const FAILED: usize = 3;
const SUSPECT: usize = 4;

/// Which line goes before all others when the next job is taken, in turn: no number of jobs in a line keeps those of another
/// out.
const TURNS: [usize; 8] = [FAMILIAR, FAMILIAR, DOUBTFUL, FAMILIAR, FAILED, USUAL, DOUBTFUL, SUSPECT];

/// The line of a class; what is for later has none.
const fn line_of(class: Class) -> Option<usize> {
    match class {
        Class::Familiar => Some(FAMILIAR),
        Class::Usual => Some(USUAL),
        Class::Doubtful => Some(DOUBTFUL),
        Class::Failed => Some(FAILED),
        Class::Suspect => Some(SUSPECT),
        Class::Later => None,
    }
}

/// Jobs that wait: in lines that have turns, and those that nobody waits for.
pub(super) struct Queue {
    lines: [Line; LINES],
    later: VecDeque<Work>,
    limit: usize,
    /// Which of [`TURNS`] is next.
    turn: usize,
    pub(super) closed: bool,
}

/// Jobs of a class.
struct Line {
    waiting: VecDeque<Waiting>,
    /// A line whose first has waited longer has formed for good: those in it will not be answered in their time, and who
    /// came last goes first, so that what is hashed is of use to somebody.
    standing_after: Duration,
    is_standing: bool,
}

impl Line {
    fn new(standing_after: Duration) -> Self {
        Self { waiting: VecDeque::new(), standing_after, is_standing: false }
    }

    fn look(&mut self, now: Mono) {
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
    /// For `limit` jobs that somebody waits for, for `wait_max`.
    pub(super) fn new(limit: usize, wait_max: Duration) -> Self {
        let lines = [(); LINES].map(|()| Line::new(wait_max / 4));
        Self { lines, later: VecDeque::new(), limit, turn: 0, closed: false }
    }

    /// Takes all of the jobs or none. All but the familiar leave a quarter of the places, and those from where somebody
    /// failed half of them; what is for later takes none.
    pub(super) fn push(&mut self, jobs: Vec<Work>, class: Class, now: Mono) -> bool {
        let Some(number) = line_of(class) else {
            let fits = !self.closed && self.later.len() + jobs.len() <= LATER_MAX;
            if fits {
                self.later.extend(jobs);
            }
            return fits;
        };
        let Some(given) = self.place(jobs.len(), number, now) else { return false };
        for (line, given) in self.lines.iter_mut().zip(given) {
            // What is dropped is answered as what found no place.
            line.waiting.drain(..given);
        }
        self.lines[number].push(jobs, now);
        true
    }

    /// Whether one job of that class would be taken.
    pub(super) fn admits(&mut self, class: Class, now: Mono) -> bool {
        match line_of(class) {
            Some(number) => self.place(1, number, now).is_some(),
            None => !self.closed && self.later.len() < LATER_MAX,
        }
    }

    /// What each line gives up so that there are so many places, once those that nobody waits for any more have given
    /// theirs up; nothing where it isn't enough. Where it takes more, lines give that have more than their share: those
    /// behind, any where the line itself has less than its share, and the line itself where it stands. The oldest of a
    /// line go first.
    fn place(&mut self, wanted: usize, number: usize, now: Mono) -> Option<[usize; LINES]> {
        if self.closed {
            return None;
        }
        self.lines[number].look(now);
        let share = self.limit / SHARES;
        let has_less = self.lines[number].waiting.len() + wanted <= share;
        let most = if number == FAMILIAR || has_less { self.limit } else { self.limit - self.limit / 4 };
        if self.len() + wanted > most {
            for line in &mut self.lines {
                line.waiting.retain(|waiting| !waiting.work.is_abandoned());
            }
        }
        if number >= FAILED && self.lines[number].waiting.len() + wanted > self.limit / 2 {
            return None;
        }
        let gives = |other: usize, line: &Line| match line.waiting.len() {
            len if other == number && line.is_standing => len,
            len if other > number || other < number && has_less => len.saturating_sub(share),
            _ => 0,
        };
        let mut missing = (self.len() + wanted).saturating_sub(most);
        let mut given = [0; LINES];
        for other in (0..LINES).rev().filter(|other| *other != number).chain([number]) {
            given[other] = gives(other, &self.lines[other]).min(missing);
            missing -= given[other];
        }
        (missing == 0).then_some(given)
    }

    /// The next job that somebody waits for.
    pub(super) fn pop(&mut self) -> Option<Work> {
        self.next(Line::pop)
    }

    /// The next job that nobody waits for.
    pub(super) fn pop_later(&mut self) -> Option<Work> {
        self.later.pop_front()
    }

    /// The next job for these lanes, though others wait before it: what shares a batch delays nobody by more than the
    /// batch, which is bounded.
    pub(super) fn pop_for(&mut self, lanes: Prf) -> Option<Work> {
        self.next(|line| line.pop_for(lanes))
    }

    fn next(&mut self, pop: impl Fn(&mut Line) -> Option<Work>) -> Option<Work> {
        let first = TURNS[self.turn];
        let work = [first].into_iter().chain(0..LINES).find_map(|number| pop(&mut self.lines[number]))?;
        self.turn = (self.turn + 1) % TURNS.len();
        work.take_up();
        Some(work)
    }

    /// Jobs that somebody waits for.
    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(|line| line.waiting.len()).sum()
    }

    /// Since when the oldest job waits.
    pub(super) fn oldest(&self) -> Option<Mono> {
        self.lines.iter().filter_map(|line| line.waiting.front()).map(|waiting| waiting.since).min()
    }
}

#[cfg(test)]
mod tests;

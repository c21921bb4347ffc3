//! The one queue before the hash threads: bounded, in classes, searched for jobs that share lanes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use cardea_clock::Mono;
use cardea_kdf::{
    Password, Prf,
    stored::{StoredSecret, Target},
};
use tokio::sync::oneshot;

use super::Class;

/// The most jobs that nobody waits for.
const LATER_MAX: usize = 64;
/// How far a job for the same lanes is searched for.
const SEARCHED_MAX: usize = 64;

/// A secret to be hashed, shared with its key schedules by the jobs of one request and wiped after the last.
pub(super) type Presented = Arc<Password>;

/// What a hash thread does.
pub(super) enum Work {
    /// Says whether this is the secret.
    Verify { stored: StoredSecret, secret: Presented, answer: oneshot::Sender<bool> },
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

/// Those that somebody waits for, the first one first.
const CLASSES: [Class; 4] = [Class::Familiar, Class::Usual, Class::Doubtful, Class::Suspect];
/// Of so many jobs that are taken, the last is a doubtful one or a suspect's where there is one, so that no number of
/// others keeps these out.
const TURNS: u8 = 4;

/// Jobs that wait: in lines that have turns, and those that nobody waits for.
pub(super) struct Queue {
    familiar: Line,
    usual: Line,
    doubtful: Line,
    suspect: Line,
    later: VecDeque<Work>,
    limit: usize,
    /// Counts the jobs that were taken, for the turn of suspects.
    taken: u8,
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
        let line = || Line::new(wait_max / 4);
        Self {
            familiar: line(),
            usual: line(),
            doubtful: line(),
            suspect: line(),
            later: VecDeque::new(),
            limit,
            taken: 0,
            closed: false,
        }
    }

    /// Takes all of the jobs or none. All but the familiar leave a quarter of the places, and suspects half of them; what is
    /// for later takes none.
    pub(super) fn push(&mut self, jobs: Vec<Work>, class: Class, now: Mono) -> bool {
        if class == Class::Later {
            let fits = !self.closed && self.later.len() + jobs.len() <= LATER_MAX;
            if fits {
                self.later.extend(jobs);
            }
            return fits;
        }
        self.line_mut(class).look(now);
        if self.closed || !self.makes_place(jobs.len(), class) {
            return false;
        }
        self.line_mut(class).push(jobs, now);
        true
    }

    /// Whether there are so many places, once those that nobody waits for any more have given theirs up, and where that
    /// isn't enough, the oldest of the classes behind; in a line that stands, the oldest of the same.
    fn makes_place(&mut self, wanted: usize, class: Class) -> bool {
        let most = match class {
            Class::Familiar | Class::Later => self.limit,
            Class::Usual | Class::Doubtful | Class::Suspect => self.limit - self.limit / 4,
        };
        if self.len() + wanted > most {
            for class in CLASSES {
                self.line_mut(class).waiting.retain(|waiting| !waiting.work.is_abandoned());
            }
        }
        let own = self.line_mut(class);
        let gives = if own.is_standing { own.waiting.len() } else { 0 };
        let behind = CLASSES.into_iter().rev().take_while(|behind| *behind != class);
        let given: usize = behind.clone().map(|behind| self.line_mut(behind).waiting.len()).sum();
        if self.len() - given - gives + wanted > most {
            return false;
        }
        while self.len() + wanted > most {
            // What is dropped is answered as what found no place.
            let mut lines = behind.clone().chain([class]);
            let Some(_) = lines.find_map(|line| self.line_mut(line).waiting.pop_front()) else {
                return false;
            };
        }
        class != Class::Suspect || self.suspect.waiting.len() + wanted <= self.limit / 2
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
        let Self { familiar, usual, doubtful, suspect, .. } = self;
        let order = if self.taken + 1 == TURNS {
            [familiar, doubtful, suspect, usual]
        } else {
            [familiar, usual, doubtful, suspect]
        };
        let work = order.into_iter().find_map(pop)?;
        self.taken = (self.taken + 1) % TURNS;
        Some(work)
    }

    /// Jobs that somebody waits for.
    pub(super) fn len(&self) -> usize {
        self.lines().into_iter().map(|line| line.waiting.len()).sum()
    }

    /// Since when the oldest job waits.
    pub(super) fn oldest(&self) -> Option<Mono> {
        self.lines().into_iter().filter_map(|line| line.waiting.front()).map(|waiting| waiting.since).min()
    }

    fn lines(&self) -> [&Line; 4] {
        [&self.familiar, &self.usual, &self.doubtful, &self.suspect]
    }

    fn line_mut(&mut self, class: Class) -> &mut Line {
        match class {
            Class::Familiar | Class::Later => &mut self.familiar,
            Class::Usual => &mut self.usual,
            Class::Doubtful => &mut self.doubtful,
            Class::Suspect => &mut self.suspect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(profile: &str) -> (Work, oneshot::Receiver<bool>) {
        let (answer, receiver) = oneshot::channel();
        let stored = StoredSecret::stand_in(profile).unwrap();
        (Work::Verify { stored, secret: Presented::default(), answer }, receiver)
    }

    const SHA512: &str = "pbkdf2-sha512;i=1;l=64";
    const BCRYPT: &str = "bcrypt;c=4";
    const WAIT: Duration = Duration::from_secs(2);

    #[test]
    fn the_queue_is_bounded_and_each_class_leaves_places_to_those_before_it() {
        let mut queue = Queue::new(8, WAIT);
        let now = Mono::from_nanos(5);
        let mut receivers = Vec::new();
        let mut push = |queue: &mut Queue, class, count: usize| {
            let (works, mut waiting): (Vec<_>, Vec<_>) = (0..count).map(|_| verify(SHA512)).unzip();
            receivers.append(&mut waiting);
            queue.push(works, class, now)
        };
        assert!(push(&mut queue, Class::Suspect, 4));
        assert!(!push(&mut queue, Class::Suspect, 1));
        assert!(push(&mut queue, Class::Doubtful, 2));
        assert!(!push(&mut queue, Class::Suspect, 1), "nothing is behind it");
        assert!(!push(&mut queue, Class::Usual, 7), "more than it may ever have");
        assert!(push(&mut queue, Class::Usual, 4), "suspects and what is doubtful give up their places");
        assert_eq!((queue.suspect.waiting.len(), queue.doubtful.waiting.len()), (0, 2));
        assert!(!push(&mut queue, Class::Usual, 3), "all or nothing");
        assert!(!push(&mut queue, Class::Familiar, 9));
        assert_eq!(queue.len(), 6, "nothing is given up for nothing");
        assert!(push(&mut queue, Class::Familiar, 8));
        assert!(!push(&mut queue, Class::Familiar, 1));
        assert!(!push(&mut queue, Class::Usual, 1));
        assert_eq!((queue.len(), queue.oldest()), (8, Some(now)));
    }

    #[test]
    fn who_goes_away_gives_its_place_up_and_nothing_is_hashed_for_it() {
        let mut queue = Queue::new(4, WAIT);
        let now = Mono::from_nanos(5);
        let (works, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| verify(SHA512)).unzip();
        assert!(queue.push(works, Class::Familiar, now));
        assert!(!push_one(&mut queue, now));
        drop(receivers);
        assert!(push_one(&mut queue, now));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn in_a_line_that_stands_the_oldest_give_their_places_up() {
        let mut queue = Queue::new(2, WAIT);
        let mut receivers = Vec::new();
        for (seconds, taken) in [(0, true), (0, true), (0, false), (9, true), (10, true), (11, true)] {
            let (work, receiver) = verify(SHA512);
            receivers.push(receiver);
            let now = Mono::from_nanos(seconds * 1_000_000_000);
            assert_eq!(queue.push(vec![work], Class::Usual, now), taken, "{seconds}");
            assert!(queue.len() <= 2);
        }
    }

    #[test]
    fn the_familiar_go_first_and_suspects_have_a_turn() {
        let mut queue = Queue::new(64, WAIT);
        let now = Mono::from_nanos(5);
        let mut receivers = Vec::new();
        for (class, profile) in [
            (Class::Suspect, "pbkdf2-sha512;i=4;l=64"),
            (Class::Doubtful, "pbkdf2-sha512;i=3;l=64"),
            (Class::Usual, "pbkdf2-sha512;i=2;l=64"),
            (Class::Familiar, "pbkdf2-sha512;i=1;l=64"),
        ] {
            for _ in 0..3 {
                let (work, receiver) = verify(profile);
                receivers.push(receiver);
                assert!(queue.push(vec![work], class, now));
            }
        }
        let iterations = |work: Option<Work>| match work {
            Some(Work::Verify { stored, .. }) => stored.lane_job().map(|job| job.iterations.get()),
            _ => None,
        };
        let order: Vec<_> = (0..12).filter_map(|_| iterations(queue.pop_for(Prf::HmacSha512))).collect();
        assert_eq!(order, [1, 1, 1, 3, 2, 2, 2, 3, 3, 4, 4, 4]);
    }

    #[test]
    fn in_a_line_that_stands_who_came_last_goes_first() {
        let (began, later) = (Mono::from_nanos(0), Mono::from_nanos(2_000_000_000));
        for (now, expected) in [(began, Some(Prf::HmacSha512)), (later, Some(Prf::HmacSha1))] {
            for any in [true, false] {
                let mut queue = Queue::new(8, WAIT);
                let ((first, _one), (last, _two)) = (verify(SHA512), verify("pbkdf2-sha1;i=1;l=20"));
                queue.push(vec![first], Class::Usual, began);
                queue.push(vec![last], Class::Usual, now);
                let next = if any { queue.pop() } else { expected.and_then(|lanes| queue.pop_for(lanes)) };
                assert_eq!(next.and_then(|work| work.lanes()), expected, "{now:?} {any}");
            }
        }
    }

    fn push_one(queue: &mut Queue, now: Mono) -> bool {
        let (work, receiver) = verify(SHA512);
        let pushed = queue.push(vec![work], Class::Usual, now);
        drop(receiver);
        pushed
    }

    #[test]
    fn usual_jobs_go_first_and_abandoned_ones_not_at_all() {
        let mut queue = Queue::new(8, WAIT);
        let now = Mono::from_nanos(5);
        let (suspect, _one) = verify(SHA512);
        let (gone, left) = verify(BCRYPT);
        let (usual, _two) = verify(BCRYPT);
        queue.push(vec![suspect], Class::Suspect, now);
        queue.push(vec![gone, usual], Class::Usual, now);
        drop(left);
        assert_eq!(queue.pop().map(|work| work.lanes()), Some(None), "the usual one, bcrypt");
        assert_eq!(queue.pop().map(|work| work.lanes()), Some(Some(Prf::HmacSha512)));
        assert!(queue.pop().is_none());
    }

    #[test]
    fn what_nobody_waits_for_takes_no_place_and_is_last() {
        let mut queue = Queue::new(2, WAIT);
        let now = Mono::from_nanos(5);
        let mut receivers = Vec::new();
        let mut push = |queue: &mut Queue, profile, class| {
            let (work, receiver) = verify(profile);
            receivers.push(receiver);
            queue.push(vec![work], class, now)
        };
        for _ in 0..LATER_MAX {
            assert!(push(&mut queue, SHA512, Class::Later));
        }
        assert!(!push(&mut queue, SHA512, Class::Later));
        assert_eq!((queue.len(), queue.oldest()), (0, None));
        assert!(push(&mut queue, BCRYPT, Class::Usual));
        assert!(queue.pop_for(Prf::HmacSha512).is_none(), "it joins no batch");
        assert_eq!(queue.pop().map(|work| work.lanes()), Some(None), "the usual one, bcrypt");
        assert!(queue.pop().is_none() && queue.pop_later().is_some());
    }

    #[test]
    fn jobs_for_the_same_lanes_are_found_behind_others() {
        let mut queue = Queue::new(8, WAIT);
        let now = Mono::from_nanos(5);
        let (other, _one) = verify(BCRYPT);
        let (wanted, _two) = verify(SHA512);
        queue.push(vec![other, wanted], Class::Usual, now);
        assert!(queue.pop_for(Prf::HmacSha1).is_none());
        assert!(queue.pop_for(Prf::HmacSha512).is_some());
        assert_eq!(queue.len(), 1);
    }
}

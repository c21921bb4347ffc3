//! The one queue before the hash threads: bounded, in two classes, searched for jobs that share lanes.

use std::{collections::VecDeque, sync::Arc};

use cardea_clock::Mono;
use cardea_kdf::{
    Prf,
    stored::{StoredSecret, Target},
};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::Class;

/// How far a job for the same lanes is searched for.
const SEARCHED_MAX: usize = 64;

/// A secret to be hashed, shared by the jobs of one request and wiped after the last.
pub(super) type Bytes = Arc<Zeroizing<Vec<u8>>>;

/// What a hash thread does.
pub(super) enum Work {
    /// Says whether this is the secret.
    Verify { stored: StoredSecret, secret: Bytes, answer: oneshot::Sender<bool> },
    /// Makes what is stored; `None` where the secret can be none.
    Hash { target: Target, salt: [u8; 16], secret: Bytes, answer: oneshot::Sender<Option<String>> },
}

impl Work {
    /// The lanes that it can share.
    pub(super) fn lanes(&self) -> Option<Prf> {
        match self {
            Self::Verify { stored, .. } => stored.lane_job().map(|job| job.prf),
            Self::Hash { .. } => None,
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

/// Jobs that wait, those of the usual class first.
pub(super) struct Queue {
    usual: VecDeque<Waiting>,
    suspect: VecDeque<Waiting>,
    limit: usize,
    pub(super) closed: bool,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self { usual: VecDeque::new(), suspect: VecDeque::new(), limit, closed: false }
    }

    /// Takes all of the jobs or none. Suspects get half of the places, so that others always find one.
    pub(super) fn push(&mut self, jobs: Vec<Work>, class: Class, now: Mono) -> bool {
        self.forget_abandoned(jobs.len());
        let full = self.len() + jobs.len() > self.limit;
        let suspects = class == Class::Suspect && self.suspect.len() + jobs.len() > self.limit / 2;
        if self.closed || full || suspects {
            return false;
        }
        let queue = match class {
            Class::Usual => &mut self.usual,
            Class::Suspect => &mut self.suspect,
        };
        queue.extend(jobs.into_iter().map(|work| Waiting { since: now, work }));
        true
    }

    /// The next job that somebody waits for.
    pub(super) fn pop(&mut self) -> Option<Work> {
        loop {
            let waiting = self.usual.pop_front().or_else(|| self.suspect.pop_front())?;
            if !waiting.work.is_abandoned() {
                return Some(waiting.work);
            }
        }
    }

    /// The next job for these lanes, though others wait before it: what shares a batch delays nobody by more than the
    /// batch, which is bounded.
    pub(super) fn pop_for(&mut self, lanes: Prf) -> Option<Work> {
        [&mut self.usual, &mut self.suspect].into_iter().find_map(|queue| {
            let wanted =
                |waiting: &Waiting| waiting.work.lanes() == Some(lanes) && !waiting.work.is_abandoned();
            let place = queue.iter().take(SEARCHED_MAX).position(wanted)?;
            Some(queue.remove(place)?.work)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.usual.len() + self.suspect.len()
    }

    /// Since when the oldest job waits.
    pub(super) fn oldest(&self) -> Option<Mono> {
        [&self.usual, &self.suspect]
            .into_iter()
            .filter_map(|queue| queue.front())
            .map(|waiting| waiting.since)
            .min()
    }

    /// Where there is no place left: those that nobody waits for give theirs up.
    fn forget_abandoned(&mut self, wanted: usize) {
        if self.len() + wanted > self.limit {
            for queue in [&mut self.usual, &mut self.suspect] {
                queue.retain(|waiting| !waiting.work.is_abandoned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(profile: &str) -> (Work, oneshot::Receiver<bool>) {
        let (answer, receiver) = oneshot::channel();
        let stored = StoredSecret::stand_in(profile).unwrap();
        (Work::Verify { stored, secret: Bytes::default(), answer }, receiver)
    }

    const SHA512: &str = "pbkdf2-sha512;i=1;l=64";
    const BCRYPT: &str = "bcrypt;c=4";

    #[test]
    fn the_queue_is_bounded_and_suspects_leave_half_of_it() {
        let mut queue = Queue::new(4);
        let now = Mono::from_nanos(5);
        let mut receivers = Vec::new();
        let mut push = |queue: &mut Queue, class, count: usize| {
            let (works, mut waiting): (Vec<_>, Vec<_>) = (0..count).map(|_| verify(SHA512)).unzip();
            receivers.append(&mut waiting);
            queue.push(works, class, now)
        };
        assert!(push(&mut queue, Class::Suspect, 2));
        assert!(!push(&mut queue, Class::Suspect, 1));
        assert!(!push(&mut queue, Class::Usual, 3), "all or nothing");
        assert!(push(&mut queue, Class::Usual, 2));
        assert!(!push(&mut queue, Class::Usual, 1));
        assert_eq!((queue.len(), queue.oldest()), (4, Some(now)));
        // The three clients first in line go away: their places are free, and no hash is computed for them.
        drop(receivers.drain(..3));
        assert!(push_one(&mut queue, now));
        assert!(queue.len() <= 3);
    }

    fn push_one(queue: &mut Queue, now: Mono) -> bool {
        let (work, receiver) = verify(SHA512);
        let pushed = queue.push(vec![work], Class::Usual, now);
        drop(receiver);
        pushed
    }

    #[test]
    fn usual_jobs_go_first_and_abandoned_ones_not_at_all() {
        let mut queue = Queue::new(8);
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
    fn jobs_for_the_same_lanes_are_found_behind_others() {
        let mut queue = Queue::new(8);
        let now = Mono::from_nanos(5);
        let (other, _one) = verify(BCRYPT);
        let (wanted, _two) = verify(SHA512);
        queue.push(vec![other, wanted], Class::Usual, now);
        assert!(queue.pop_for(Prf::HmacSha1).is_none());
        assert!(queue.pop_for(Prf::HmacSha512).is_some());
        assert_eq!(queue.len(), 1);
    }
}

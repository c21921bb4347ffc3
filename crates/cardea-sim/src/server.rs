//! A server: slots that work, a queue before them, a speed, and what is wrong with it.

use std::collections::VecDeque;

/// What a server does with a request that reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It serves.
    Serves,
    /// It closes its connections and refuses new ones.
    Refuses,
    /// It never responds.
    Silent,
    /// It answers 503 at once.
    Fails,
}

/// One attempt at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The request.
    pub request: usize,
    /// Which of its attempts.
    pub attempt: u32,
    /// The time that it takes at speed 1, in nanoseconds.
    pub work: u64,
    /// When it came to the server, and how many others were there.
    pub came: (u64, usize),
}

/// First come, first served.
#[derive(Debug)]
pub struct Server {
    /// Its region.
    pub region: usize,
    /// How many requests it works on at a time.
    pub slots: usize,
    /// As built, without antagonists.
    pub nominal_speed: f64,
    /// What a fault leaves of its speed.
    pub slowdown: f64,
    /// What other programs on its machine take.
    pub antagonist: f64,
    /// How it is.
    pub condition: Condition,
    queue: VecDeque<Job>,
    queue_max: usize,
    running: usize,
    /// Changes when it loses its requests: completions of earlier ones are void.
    epoch: u32,
    busy: Busy,
    /// The requests that ended last: how many others were there when they came, and how long they took, in nanoseconds.
    ended: VecDeque<(usize, u64)>,
}

/// How many of the last requests are remembered.
const REMEMBERED: usize = 64;
/// Of how many of them latency is the median.
const ALIKE: usize = 9;

/// The time that slots were busy.
#[derive(Debug, Default)]
struct Busy {
    since: u64,
    sum: u64,
}

/// A job that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The job.
    pub job: Job,
    /// When it will be done, in nanoseconds.
    pub done: u64,
    epoch: u32,
}

impl Server {
    /// A server without requests.
    #[must_use]
    pub fn new(region: usize, slots: usize, nominal_speed: f64, queue_max: usize) -> Self {
        Self {
            region,
            slots,
            nominal_speed,
            slowdown: 1.0,
            antagonist: 0.0,
            condition: Condition::Serves,
            queue: VecDeque::new(),
            queue_max,
            running: 0,
            epoch: 0,
            busy: Busy::default(),
            ended: VecDeque::new(),
        }
    }

    /// Its speed now.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.nominal_speed * self.slowdown * (1.0 - self.antagonist)
    }

    /// Requests that it works on or that wait there.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.running + self.queue.len()
    }

    /// How long a request takes with as many there as now, in nanoseconds: the median of those that ended last and met a
    /// similar number.
    #[must_use]
    pub fn latency(&self) -> u64 {
        let mut ended: Vec<(usize, u64)> =
            self.ended.iter().map(|(met, took)| (met.abs_diff(self.in_flight()), *took)).collect();
        ended.sort_unstable();
        ended.truncate(ALIKE);
        ended.sort_unstable_by_key(|(_, took)| *took);
        ended.get(ended.len() / 2).map_or(0, |(_, took)| *took)
    }

    /// A job arrives. `Ok` with what begins at once, if anything; `Err` if the queue is full.
    ///
    /// # Errors
    /// The job, where the queue is full.
    pub fn arrive(&mut self, now: u64, mut job: Job) -> Result<Option<Begun>, Job> {
        job.came = (now, self.in_flight());
        if self.running < self.slots {
            return Ok(Some(self.begin(now, job)));
        }
        if self.queue.len() >= self.queue_max {
            return Err(job);
        }
        self.queue.push_back(job);
        Ok(None)
    }

    fn begin(&mut self, now: u64, job: Job) -> Begun {
        self.count_busy(now);
        self.running += 1;
        let takes = job.work as f64 / self.speed().max(1e-6);
        Begun { job, done: now + takes as u64, epoch: self.epoch }
    }

    /// A job is done: what begins next. `None` if it was lost meanwhile.
    pub fn done(&mut self, now: u64, begun: Begun) -> Option<Option<Begun>> {
        if begun.epoch != self.epoch {
            return None;
        }
        let (came, met) = begun.job.came;
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((met, now - came));
        self.count_busy(now);
        self.running -= 1;
        Some(self.begin_next(now))
    }

    /// Changes the number of slots: what begins in new ones. Jobs in lost ones are completed.
    pub fn set_slots(&mut self, now: u64, slots: usize) -> Vec<Begun> {
        self.slots = slots;
        std::iter::from_fn(|| self.begin_next(now)).collect()
    }

    fn begin_next(&mut self, now: u64) -> Option<Begun> {
        let next = if self.running < self.slots { self.queue.pop_front() } else { None };
        next.map(|job| self.begin(now, job))
    }

    /// Loses all requests.
    pub fn lose(&mut self, now: u64) {
        self.count_busy(now);
        self.epoch += 1;
        self.running = 0;
        self.queue.clear();
    }

    /// The time that slots were busy since the last call, in nanoseconds of one slot.
    pub fn take_busy(&mut self, now: u64) -> u64 {
        self.count_busy(now);
        std::mem::take(&mut self.busy.sum)
    }

    fn count_busy(&mut self, now: u64) {
        self.busy.sum += (now - self.busy.since) * self.running as u64;
        self.busy.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(request: usize, work: u64) -> Job {
        Job { request, attempt: 0, work, came: (0, 0) }
    }

    #[test]
    fn slots_work_and_the_rest_waits() {
        let mut server = Server::new(0, 2, 0.5, 1);
        let first = server.arrive(0, job(0, 10)).unwrap().unwrap();
        assert_eq!(first.done, 20, "at half speed");
        assert!(server.arrive(5, job(1, 10)).unwrap().is_some());
        assert!(server.arrive(6, job(2, 10)).unwrap().is_none());
        assert_eq!(server.arrive(7, job(3, 10)).unwrap_err().request, 3);
        assert_eq!(server.in_flight(), 3);
        let next = server.done(20, first).unwrap().unwrap();
        assert_eq!((next.job.request, next.done), (2, 40));
        assert_eq!((next.job.came, server.latency()), ((6, 2), 20));
        assert_eq!(server.take_busy(20), 20 + 15);
    }

    #[test]
    fn other_slots_count_from_the_next_job_on() {
        let mut server = Server::new(0, 2, 1.0, 9);
        let [first, second] = [0, 1].map(|request| server.arrive(0, job(request, 10)).unwrap().unwrap());
        for request in 2..5 {
            assert!(server.arrive(1, job(request, 10)).unwrap().is_none());
        }
        assert!(server.set_slots(2, 1).is_empty());
        assert!(server.done(10, first).unwrap().is_none(), "the second still runs");
        assert_eq!(server.done(10, second).unwrap().unwrap().job.request, 2);
        let begun: Vec<_> = server.set_slots(11, 3).iter().map(|begun| begun.job.request).collect();
        assert_eq!(begun, [3, 4]);
    }

    #[test]
    fn lost_requests_never_end() {
        let mut server = Server::new(0, 1, 1.0, 9);
        let begun = server.arrive(0, job(0, 10)).unwrap().unwrap();
        server.lose(5);
        assert!(server.done(10, begun).is_none());
        assert_eq!((server.in_flight(), server.take_busy(10)), (0, 5));
    }
}

//! The hash threads. They are operating system threads, not threads of the async runtime.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    thread,
    time::Duration,
};

use cardea_clock::Mono;
use cardea_kdf::{
    Prf,
    stored::{StoredSecret, Target},
};
use tokio::{sync::oneshot, time::timeout};

use super::{
    HashError, Priority,
    lanes::{calibrate, run_lanes, run_with_pauses},
    queue::{Presented, Queue, Work},
    stats::Counters,
};

/// The most jobs of one batch. Then the queue is asked for the next job by priority.
const BATCH_MAX: usize = 64;

/// Hash threads with a bounded queue. They start with the first job and end when the pool is dropped.
pub(crate) struct HashPool {
    shared: Arc<Shared>,
    threads: usize,
    started: Mutex<bool>,
}

/// The next job of a hash thread.
enum Next {
    Urgent(Work),
    Background(Work),
}

struct Shared {
    queue: Mutex<Queue>,
    available: Condvar,
    counters: Arc<Counters>,
}

impl HashPool {
    /// A pool whose jobs are each waited for at most `wait_max`.
    pub(super) fn new(threads: usize, queue_max: usize, wait_max: Duration, counters: Arc<Counters>) -> Self {
        let queue = Mutex::new(Queue::new(queue_max, wait_max));
        let shared = Arc::new(Shared { queue, available: Condvar::new(), counters });
        Self { shared, threads, started: Mutex::new(false) }
    }

    /// Which of the stored secrets match. All are hashed, whichever matches; `taken` is set when the first job starts.
    ///
    /// # Errors
    /// [`HashError`] if the queue is full or `wait` passes first. Jobs that have not started by then are dropped.
    pub(super) async fn verify(
        &self,
        jobs: Vec<(StoredSecret, Presented)>,
        priority: Priority,
        taken: &Arc<AtomicBool>,
        wait: Duration,
        now: Mono,
    ) -> Result<Vec<bool>, HashError> {
        let mut works = Vec::with_capacity(jobs.len());
        let mut answers = Vec::with_capacity(jobs.len());
        for (stored, secret) in jobs {
            let (answer, receiver) = oneshot::channel();
            works.push(Work::Verify { stored, secret, taken: Arc::clone(taken), answer });
            answers.push(receiver);
        }
        self.submit(works, priority, now)?;
        let all = async {
            let mut matched = Vec::with_capacity(answers.len());
            for answer in answers {
                matched.push(answer.await.map_err(|_| HashError::Stopped)?);
            }
            Ok(matched)
        };
        timeout(wait, all).await.unwrap_or(Err(HashError::TimedOut))
    }

    /// The stored form of a secret; `None` if the secret is not allowed.
    ///
    /// # Errors
    /// [`HashError`] if the queue is full.
    pub(super) async fn hash(
        &self,
        secret: Presented,
        target: Target,
        salt: [u8; 16],
        priority: Priority,
        now: Mono,
    ) -> Result<Option<String>, HashError> {
        let (answer, receiver) = oneshot::channel();
        self.submit(vec![Work::Hash { target, salt, secret, answer }], priority, now)?;
        receiver.await.map_err(|_| HashError::Stopped)
    }

    /// Whether the queue would take one job of that priority now.
    pub(super) fn admits(&self, priority: Priority, now: Mono) -> bool {
        self.shared.lock().admits(priority, now)
    }

    /// The number of waiting jobs, and when the oldest was added.
    pub(super) fn waiting(&self) -> (usize, Option<Mono>) {
        let queue = self.shared.lock();
        (queue.len(), queue.oldest())
    }

    fn submit(&self, works: Vec<Work>, priority: Priority, now: Mono) -> Result<(), HashError> {
        self.start()?;
        let count = works.len();
        if !self.shared.lock().push(works, priority, now) {
            return Err(HashError::QueueFull);
        }
        // A running thread fills its lanes with further jobs; the other threads may find some left.
        for _ in 0..count.min(self.threads) {
            self.shared.available.notify_one();
        }
        Ok(())
    }

    fn start(&self) -> Result<(), HashError> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if *started {
            return Ok(());
        }
        for number in 0..self.threads {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name(format!("hash-{number}")).spawn(move || shared.run());
            if let Err(error) = thread {
                tracing::error!(%error, "hash thread can't be started");
                // One thread suffices.
                if number == 0 {
                    return Err(HashError::Stopped);
                }
                break;
            }
        }
        *started = true;
        Ok(())
    }
}

impl Drop for HashPool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.available.notify_all();
    }
}

impl fmt::Debug for HashPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a hash thread: jobs that share lanes run together, and background jobs run while no other job waits.
    fn run(&self) {
        while let Some(next) = self.next() {
            match next {
                Next::Urgent(work) => self.run_urgent(work),
                Next::Background(work) => self.run_background(work),
            }
        }
    }

    fn next(&self) -> Option<Next> {
        let mut queue = self.lock();
        loop {
            // Jobs that were added before the pool was closed are still answered.
            if let Some(work) = queue.pop() {
                return Some(Next::Urgent(work));
            }
            if queue.closed {
                return None;
            }
            if let Some(work) = queue.pop_background() {
                return Some(Next::Background(work));
            }
            queue = self.available.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_urgent(&self, work: Work) {
        match work.lanes() {
            Some(prf) => self.run_batch(prf, work),
            None => self.run_alone(work),
        }
    }

    /// Runs a background job. Other jobs that arrive meanwhile run between its steps.
    fn run_background(&self, work: Work) {
        let Some(prf) = work.lanes() else { return self.run_alone(work) };
        let mut work = Some(work);
        let go_on = || {
            loop {
                let mut queue = self.lock();
                let Some(urgent) = queue.pop() else { return !queue.closed };
                drop(queue);
                self.run_urgent(urgent);
            }
        };
        run_with_pauses(prf, || work.take(), &self.counters, go_on);
    }

    fn run_batch(&self, prf: Prf, first: Work) {
        let mut first = Some(first);
        let mut left = BATCH_MAX;
        let source = || {
            if left == 0 {
                return None;
            }
            let work = first.take().or_else(|| self.lock().pop_for(prf))?;
            left -= 1;
            Some(work)
        };
        run_lanes(prf, source, &self.counters);
        if self.lock().len() == 0 {
            calibrate(prf);
        }
    }

    fn run_alone(&self, work: Work) {
        match work {
            Work::Verify { stored, secret, answer, .. } => {
                self.counters.hashed(stored.algorithm());
                let _ = answer.send(stored.verify(secret.as_bytes()));
            }
            Work::Hash { target, salt, secret, answer } => {
                self.counters.made();
                let _ = answer.send(target.hash(secret.as_bytes(), &salt).ok());
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! The hash threads: the system's own, never the runtime's.

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
    Busy, Class,
    calibration::calibrate,
    lanes::{run_lanes, run_with_pauses},
    queue::{Presented, Queue, Work},
    stats::Counters,
};

/// The most jobs of one run of lanes: then others have their turn.
const BATCH_MAX: usize = 64;

/// Hash threads behind a bounded queue. They start with the first job, and end when the pool is dropped.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: usize,
    started: Mutex<bool>,
}

/// What a hash thread does next.
enum Next {
    Now(Work),
    /// Nobody waits for it.
    Later(Work),
}

struct Shared {
    queue: Mutex<Queue>,
    available: Condvar,
    counters: Arc<Counters>,
}

impl Pool {
    /// Of the jobs in the queue each is waited for as long as `wait_max`.
    pub(super) fn new(threads: usize, queue_max: usize, wait_max: Duration, counters: Arc<Counters>) -> Self {
        let queue = Mutex::new(Queue::new(queue_max, wait_max));
        let shared = Arc::new(Shared { queue, available: Condvar::new(), counters });
        Self { shared, threads, started: Mutex::new(false) }
    }

    /// Which of the stored secrets `secret` is. All are hashed, whichever matches; `taken` says whether one was begun with.
    ///
    /// # Errors
    /// [`Busy`] where the queue is full or `wait` passes first. Of what has not begun by then, no hash is computed.
    pub(super) async fn verify(
        &self,
        jobs: Vec<(StoredSecret, Presented)>,
        class: Class,
        taken: &Arc<AtomicBool>,
        wait: Duration,
        now: Mono,
    ) -> Result<Vec<bool>, Busy> {
        #[cfg(feature = "bench-hashes")]
        super::instead::delay().await;
        let mut works = Vec::with_capacity(jobs.len());
        let mut answers = Vec::with_capacity(jobs.len());
        for (stored, secret) in jobs {
            let (answer, receiver) = oneshot::channel();
            works.push(Work::Verify { stored, secret, taken: Arc::clone(taken), answer });
            answers.push(receiver);
        }
        self.submit(works, class, now)?;
        let all = async {
            let mut matched = Vec::with_capacity(answers.len());
            for answer in answers {
                matched.push(answer.await.map_err(|_| Busy::Stopped)?);
            }
            Ok(matched)
        };
        timeout(wait, all).await.unwrap_or(Err(Busy::TooOld))
    }

    /// What is stored of a secret from now on; `None` where it can be none.
    ///
    /// # Errors
    /// [`Busy`] where the queue is full.
    pub(super) async fn hash(
        &self,
        secret: Presented,
        target: Target,
        salt: [u8; 16],
        class: Class,
        now: Mono,
    ) -> Result<Option<String>, Busy> {
        let (answer, receiver) = oneshot::channel();
        self.submit(vec![Work::Hash { target, salt, secret, answer }], class, now)?;
        receiver.await.map_err(|_| Busy::Stopped)
    }

    /// Whether one job of that class would find a place now.
    pub(super) fn admits(&self, class: Class, now: Mono) -> bool {
        self.shared.lock().admits(class, now)
    }

    /// How many jobs wait, and since when the oldest does.
    pub(super) fn waiting(&self) -> (usize, Option<Mono>) {
        let queue = self.shared.lock();
        (queue.len(), queue.oldest())
    }

    fn submit(&self, works: Vec<Work>, class: Class, now: Mono) -> Result<(), Busy> {
        self.start()?;
        let count = works.len();
        if !self.shared.lock().push(works, class, now) {
            return Err(Busy::Full);
        }
        // A thread that is awake takes as many as its lanes hold; each of the others may find some left.
        for _ in 0..count.min(self.threads) {
            self.shared.available.notify_one();
        }
        Ok(())
    }

    fn start(&self) -> Result<(), Busy> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if *started {
            return Ok(());
        }
        for number in 0..self.threads {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name(format!("hash-{number}")).spawn(move || shared.run());
            if let Err(error) = thread {
                tracing::error!(%error, "a hash thread can't be started");
                // One is enough to go on with.
                if number == 0 {
                    return Err(Busy::Stopped);
                }
                break;
            }
        }
        *started = true;
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.available.notify_all();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a hash thread does: a lone job at once; jobs that share lanes together; and where nobody waits, what is for
    /// later.
    fn run(&self) {
        while let Some(next) = self.next() {
            match next {
                Next::Now(work) => self.run_now(work),
                Next::Later(work) => self.run_later(work),
            }
        }
    }

    fn next(&self) -> Option<Next> {
        let mut queue = self.lock();
        loop {
            // What was taken before the end is still answered.
            if let Some(work) = queue.pop() {
                return Some(Next::Now(work));
            }
            if queue.closed {
                return None;
            }
            if let Some(work) = queue.pop_later() {
                return Some(Next::Later(work));
            }
            queue = self.available.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_now(&self, work: Work) {
        match work.lanes() {
            Some(prf) => self.run_batch(prf, work),
            None => self.run_alone(work),
        }
    }

    /// Whoever comes meanwhile goes first, after a thousand iterations at most.
    fn run_later(&self, work: Work) {
        let Some(prf) = work.lanes() else { return self.run_alone(work) };
        let mut work = Some(work);
        let go_on = || {
            loop {
                let mut queue = self.lock();
                let Some(urgent) = queue.pop() else { return !queue.closed };
                drop(queue);
                self.run_now(urgent);
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
                #[cfg(feature = "bench-hashes")]
                let matched = super::instead::verify(&stored, secret.as_bytes());
                #[cfg(not(feature = "bench-hashes"))]
                let matched = stored.verify(secret.as_bytes());
                let _ = answer.send(matched);
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

//! The threads that do the work. All spawning goes through here, and nothing else knows what runtimes there are.
//!
//! Each worker is a thread with a runtime of its own, and a connection stays with the worker that it was given to:
//! its sockets, its buffers, its timers and the connections to services that it uses are that worker's alone. Work
//! that wanders between processors pays for it with the transfer of every cache line that it touches; see
//! `docs/adr/0003-a-runtime-per-worker.md`.

use std::{
    cell::Cell,
    future::Future,
    io,
    num::NonZero,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    thread,
    time::Duration,
};

use cardea_clock::{Clock, WATCH_EVERY};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    task::JoinHandle,
};

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread is a worker's.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// Whether what runs now is needed for as long as the process lives; see [`Vital`].
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of what runs now on this thread ends no more than the connection, or the stream of HTTP/2, that it
/// happens on: its task is dropped, and the worker goes on. Otherwise something is lost that the gateway needs.
#[must_use]
pub fn contains_panics() -> bool {
    IS_WORKER.get() && !IS_VITAL.get()
}

/// A task that the gateway needs for as long as it lives. A panic there must end the process.
struct Vital<F>(Pin<Box<F>>);

impl<F: Future> Future for Vital<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        IS_VITAL.set(true);
        let polled = self.0.as_mut().poll(cx);
        IS_VITAL.set(false);
        polled
    }
}

/// Marks what the gateway needs for as long as it lives; see [`contains_panics`].
pub(crate) fn vital<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    Vital(Box::pin(future))
}

/// How many workers there are where the configuration does not say: the processors that this process may use.
/// Affinity and the quota of a control group are counted.
#[must_use]
pub fn default_count() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The number of the worker that this thread is; 0 on other threads.
#[inline]
#[must_use]
pub fn current() -> usize {
    CURRENT.get()
}

/// A runtime on the thread that drives it, for whatever is no connection: administration, reloads, timers.
///
/// # Errors
/// If the operating system has no descriptors to give.
pub fn control_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// The workers. They stop when the last handle goes.
#[derive(Debug)]
pub struct Workers {
    workers: Box<[Worker]>,
    /// For what bounds the work of the workers: it must not wait behind that work.
    overseer: Handle,
    stop: watch::Sender<bool>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// A worker, on cache lines of its own: two, as processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Worker {
    runtime: Handle,
    connections: AtomicUsize,
}

impl Worker {
    fn new(runtime: Handle) -> Self {
        Self { runtime, connections: AtomicUsize::new(0) }
    }
}

impl Workers {
    /// Starts `count` workers, at least one.
    ///
    /// # Errors
    /// If the operating system has no threads or descriptors to give.
    pub fn start(count: usize) -> io::Result<Arc<Self>> {
        let (stop, stopped) = watch::channel(false);
        let mut workers = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        for number in 0..count.max(1) {
            let runtime = control_runtime()?;
            workers.push(Worker::new(runtime.handle().clone()));
            let stopped = stopped.clone();
            let run = move || {
                CURRENT.set(number);
                IS_WORKER.set(true);
                drive(runtime, stopped);
            };
            threads.push(thread::Builder::new().name(format!("cardea-worker-{number}")).spawn(run)?);
        }
        let runtime = control_runtime()?;
        let overseer = runtime.handle().clone();
        let oversee = move || drive(runtime, stopped);
        threads.push(thread::Builder::new().name("cardea-overseer".into()).spawn(oversee)?);
        Ok(Arc::new(Self { workers: workers.into(), overseer, stop, threads: Mutex::new(threads) }))
    }

    /// One worker: the runtime that this is called within.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn here() -> Arc<Self> {
        let workers = Box::new([Worker::new(Handle::current())]);
        let overseer = Handle::current();
        Arc::new(Self { workers, overseer, stop: watch::Sender::new(false), threads: Mutex::default() })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// The runtime of a worker: to register a socket there, or to spawn a task that is no connection.
    #[must_use]
    pub fn runtime(&self, worker: usize) -> &Handle {
        &self.workers[worker % self.workers.len()].runtime
    }

    /// The runtime of what bounds the work of the workers.
    pub(crate) const fn overseer(&self) -> &Handle {
        &self.overseer
    }

    /// The worker for one more connection that `worker` has accepted: itself, unless another has fewer.
    pub(crate) fn place(self: &Arc<Self>, worker: usize) -> Place {
        let load = |at: usize| self.workers[at].connections.load(Relaxed);
        let own = worker % self.workers.len();
        let least = (0..self.workers.len()).min_by_key(|at| (load(*at), *at != own)).unwrap_or(own);
        self.workers[least].connections.fetch_add(1, Relaxed);
        Place { workers: Arc::clone(self), worker: least }
    }

    /// Watches the clock from every worker's own timer, none of which depends on the clock's refresher; see
    /// [`Clock::watch`]. Ends with the workers.
    pub fn watch_clock(&self, clock: &Clock) {
        for worker in &self.workers {
            let clock = clock.clone();
            worker.runtime.spawn(vital(async move {
                let mut every = tokio::time::interval(WATCH_EVERY);
                every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    every.tick().await;
                    clock.watch();
                }
            }));
        }
    }

    /// Stops the workers and waits for them. What still runs on them is dropped.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.thread().id() != thread::current().id() {
                // A worker that panicked has said so.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A connection's place at a worker. It counts there for as long as this lives.
#[derive(Debug)]
pub(crate) struct Place {
    workers: Arc<Workers>,
    worker: usize,
}

impl Place {
    /// The runtime to spawn the connection on. Its future holds the place: a future around it would double its size.
    pub(crate) fn runtime(&self) -> Handle {
        self.workers.runtime(self.worker).clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.workers.workers[self.worker].connections.fetch_sub(1, Relaxed);
    }
}

/// The life of a worker's thread.
fn drive(runtime: Runtime, mut stopped: watch::Receiver<bool>) {
    runtime.block_on(async {
        // An error means that nobody is left who could say it.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    });
    // Work that blocks is given a moment to end.
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Runs `task` on the worker that this is called on.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(task)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn connections_go_to_the_worker_with_the_fewest_and_stay_where_they_are_if_none_has_fewer() {
        let workers = Workers::start(3).unwrap();
        let one = workers.place(1);
        let others = [workers.place(1), workers.place(1)];
        assert_eq!((one.worker, others.each_ref().map(|place| place.worker)), (1, [0, 2]));
        assert_eq!(workers.place(2).worker, 2, "all have one");
        drop(one);
        assert_eq!(workers.place(0).worker, 1);
    }

    #[test]
    fn a_panic_ends_its_task_alone_and_frees_what_it_held() {
        let workers = Workers::start(1).unwrap();
        let (tell, told) = mpsc::channel();
        let place = workers.place(0);
        let permits = Arc::new(tokio::sync::Semaphore::new(1));
        let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
        let panicking = place.runtime().spawn(async move {
            tokio::task::yield_now().await;
            let held = (place, permit);
            assert!(!contains_panics(), "on purpose: {held:?}");
        });
        let other = tell.clone();
        workers
            .runtime(0)
            .spawn(async move { other.send((contains_panics(), panicking.await.is_err())).unwrap() });
        assert_eq!(told.recv().unwrap(), (true, true));
        assert_eq!(permits.available_permits(), 1);
        assert_eq!(workers.workers[0].connections.load(Relaxed), 0);
        workers.runtime(0).spawn(vital(async move {
            tokio::task::yield_now().await;
            tell.send((contains_panics(), true)).unwrap();
        }));
        assert_eq!(told.recv().unwrap(), (false, true));
        assert!(!contains_panics(), "no worker");
    }

    #[test]
    fn each_worker_is_a_thread_that_knows_its_number_and_ends_with_its_tasks() {
        let workers = Workers::start(2).unwrap();
        let (tell, told) = mpsc::channel();
        for accepting in [0, 0] {
            let tell = tell.clone();
            let place = workers.place(accepting);
            place.runtime().spawn(async move {
                tell.send((current(), thread::current().name().map(str::to_owned))).unwrap();
                std::future::pending::<()>().await;
                drop((tell, place));
            });
        }
        drop(tell);
        let mut met = [told.recv().unwrap(), told.recv().unwrap()];
        met.sort();
        assert_eq!(met, [0, 1].map(|number| (number, Some(format!("cardea-worker-{number}")))));
        workers.stop();
        assert!(told.recv().is_err(), "the tasks are gone");
    }
}

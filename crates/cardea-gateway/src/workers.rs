//! The threads that do the work. All spawning goes through here, and nothing else knows what runtime there is.

use std::{future::Future, io, num::NonZero, time::Duration};

use cardea_clock::Clock;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// How many workers there are where the configuration does not say: the processors that this process may use.
/// Affinity and the quota of a control group are counted.
#[must_use]
pub fn default_count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// A runtime of `count` workers. With one, it has no other threads and steals no work.
///
/// # Errors
/// If the operating system has no threads or descriptors to give.
pub fn runtime(count: usize) -> io::Result<Runtime> {
    let mut builder = if count <= 1 {
        Builder::new_current_thread()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(count);
        builder
    };
    builder.thread_name("cardea-worker").enable_all().build()
}

/// Runs `task` on a worker.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(task)
}

/// Watches the clock from the runtime's own timer, which does not depend on the clock's refresher; see
/// [`Clock::watch`]. `report` is told each second whether the clock was fresh.
pub async fn watch_clock(clock: Clock, report: impl Fn(bool) + Send) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        report(clock.watch());
    }
}

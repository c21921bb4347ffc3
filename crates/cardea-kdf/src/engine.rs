//! Many derivations at once: keeps the SIMD lanes of one core filled.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::Error;
use crate::hash::{Hash, Sha1, Sha256, Sha512};
use crate::kernel::{Backend, Chain, Kernel, Kernels};
use crate::prf::Prf;
use crate::schedule::{Key, Keyed, Schedule};

/// The default number of iterations after which [`Engine::step`] asks its source again even if no lane has finished. It
/// is the delay before a new job joins the running ones: between 0.05 and 0.7 ms.
const STEP_ITERATIONS: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// A derivation to be done.
pub struct Job<T> {
    /// The password's key schedule, which jobs of the same password share.
    pub schedule: Arc<Schedule>,
    /// The salt.
    pub salt: Box<[u8]>,
    /// The iteration count. Counts from untrusted input must be capped first.
    pub iterations: NonZeroU32,
    /// Bytes of output, from 1 to [`Job::OUTPUT_LEN_MAX`].
    pub output_len: usize,
    /// The caller's identifier of the job.
    pub tag: T,
}

impl<T> Job<T> {
    /// The longest output of a job in bytes, which bounds a job's memory.
    pub const OUTPUT_LEN_MAX: usize = 4096;
}

impl<T: fmt::Debug> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// Runs independent jobs of one function in the lanes of one core. A lane that finishes takes the next job. Each step
/// chooses the instructions by the number of filled lanes ([`Kernel::choose`]), so a single job waits for nothing and
/// is not slowed by empty lanes.
///
/// It owns no thread: the caller of [`Engine::step`] computes.
pub struct Engine<T>(Lanes<T>);

/// By the hash function.
enum Lanes<T> {
    Sha1(LanePool<Sha1, T>),
    Sha256(LanePool<Sha256, T>),
    Sha512(LanePool<Sha512, T>),
}

impl<T> Engine<T> {
    /// An engine that uses all features of the processor.
    #[must_use]
    pub fn new(prf: Prf) -> Self {
        Self::with(prf, None)
    }

    /// An engine that uses only one back-end: for tests and measurements. `None` if the processor doesn't support it,
    /// or it has no kernel for `prf`.
    #[must_use]
    pub fn with_backend(prf: Prf, backend: Backend) -> Option<Self> {
        Kernel::choose(prf, 1, Some(backend)).map(|_| Self::with(prf, Some(backend)))
    }

    fn with(prf: Prf, forced: Option<Backend>) -> Self {
        Self(match prf {
            Prf::HmacSha1 => Lanes::Sha1(LanePool::new(forced)),
            Prf::HmacSha256 => Lanes::Sha256(LanePool::new(forced)),
            Prf::HmacSha512 => Lanes::Sha512(LanePool::new(forced)),
        })
    }

    /// Sets the most iterations of one [`Engine::step`], 1024 by default, for callers with other work in between. Below
    /// 100, more than a hundredth of the time is spent on loading and storing lanes.
    #[must_use]
    pub fn with_step(mut self, iterations: NonZeroU32) -> Self {
        match &mut self.0 {
            Lanes::Sha1(pool) => pool.step_iterations = iterations,
            Lanes::Sha256(pool) => pool.step_iterations = iterations,
            Lanes::Sha512(pool) => pool.step_iterations = iterations,
        }
        self
    }

    /// The function of its jobs.
    #[must_use]
    pub const fn prf(&self) -> Prf {
        match self.0 {
            Lanes::Sha1(_) => Prf::HmacSha1,
            Lanes::Sha256(_) => Prf::HmacSha256,
            Lanes::Sha512(_) => Prf::HmacSha512,
        }
    }

    /// The number of lanes, which is the maximum of [`Engine::filled`].
    #[must_use]
    pub const fn lanes(&self) -> usize {
        match &self.0 {
            Lanes::Sha1(pool) => pool.capacity,
            Lanes::Sha256(pool) => pool.capacity,
            Lanes::Sha512(pool) => pool.capacity,
        }
    }

    /// The number of lanes that hold a block of a job's output.
    #[must_use]
    pub fn filled(&self) -> usize {
        match &self.0 {
            Lanes::Sha1(pool) => pool.chains.len(),
            Lanes::Sha256(pool) => pool.chains.len(),
            Lanes::Sha512(pool) => pool.chains.len(),
        }
    }

    /// Fills free lanes from `source`, iterates all lanes until the first is done but at most 1024 times
    /// or what [`Engine::with_step`] says, and
    /// hands the output of each job that is done to `finished`. Returns whether there was anything to do: once it was
    /// not, `source` had no job and no lane is filled.
    ///
    /// `source` is asked until it has none or all lanes are filled. A job that can't be done is handed to `finished`
    /// at once: [`Error::OutputEmpty`], [`Error::OutputTooLong`], or [`Error::PrfMismatch`]. The output is wiped when
    /// `finished` returns.
    pub fn step(
        &mut self,
        source: &mut impl FnMut() -> Option<Job<T>>,
        finished: &mut impl FnMut(T, Result<&[u8], Error>),
    ) -> bool {
        match &mut self.0 {
            Lanes::Sha1(pool) => pool.step(source, finished),
            Lanes::Sha256(pool) => pool.step(source, finished),
            Lanes::Sha512(pool) => pool.step(source, finished),
        }
    }
}

impl<T> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("prf", &self.prf())
            .field("lanes", &self.lanes())
            .field("filled", &self.filled())
            .finish_non_exhaustive()
    }
}

/// Hash functions that recognise their key schedules.
trait Keys: Kernels {
    fn key(schedule: &Schedule) -> Option<&Key<Self>>;
}

macro_rules! keys {
    ($hash:ident) => {
        impl Keys for $hash {
            fn key(schedule: &Schedule) -> Option<&Key<Self>> {
                match &schedule.0 {
                    Keyed::$hash(key) => Some(key),
                    _ => None,
                }
            }
        }
    };
}
keys!(Sha1);
keys!(Sha256);
keys!(Sha512);

/// The lanes of one hash function.
struct LanePool<H: Hash, T> {
    forced: Option<Backend>,
    step_iterations: NonZeroU32,
    capacity: usize,
    /// The running blocks, without gaps.
    chains: Vec<Chain<H>>,
    /// The job and the position of each block.
    lanes: Vec<Lane>,
    /// The running jobs, each with at least one lane; at most as many as lanes.
    tasks: Vec<Option<Task<T>>>,
    /// The job whose blocks are not all in lanes yet.
    placing: Option<usize>,
}

/// The content of a lane.
#[derive(Clone, Copy)]
struct Lane {
    task: usize,
    /// From 1, as RFC 8018 counts.
    block: u32,
    /// The remaining iterations.
    remaining: u32,
}

/// A running job.
struct Task<T> {
    job: Job<T>,
    output: Zeroizing<Vec<u8>>,
    /// The number of blocks that were put into lanes.
    placed: u32,
    /// The number of blocks in `output`.
    done: u32,
    blocks: u32,
}

impl<H: Keys, T> LanePool<H, T> {
    fn new(forced: Option<Backend>) -> Self {
        let capacity = H::choose(usize::from(u16::MAX), forced).lanes;
        Self {
            forced,
            step_iterations: STEP_ITERATIONS,
            capacity,
            chains: Vec::with_capacity(capacity),
            lanes: Vec::with_capacity(capacity),
            tasks: Vec::with_capacity(capacity),
            placing: None,
        }
    }

    fn step(
        &mut self,
        source: &mut impl FnMut() -> Option<Job<T>>,
        finished: &mut impl FnMut(T, Result<&[u8], Error>),
    ) -> bool {
        self.fill(source, finished);
        let any = !self.chains.is_empty();
        self.run();
        self.harvest(finished);
        any
    }

    /// Fills free lanes: first with further blocks of the job that was started, then with new jobs.
    fn fill(
        &mut self,
        source: &mut impl FnMut() -> Option<Job<T>>,
        finished: &mut impl FnMut(T, Result<&[u8], Error>),
    ) {
        while self.chains.len() < self.capacity {
            let index = match self.placing {
                Some(index) => index,
                None => match source() {
                    Some(job) => match Task::new(job, H::PRF) {
                        Ok(task) => self.keep(task),
                        Err((tag, error)) => {
                            finished(tag, Err(error));
                            continue;
                        }
                    },
                    None => return,
                },
            };
            self.placing = self.place(index).then_some(index);
        }
    }

    fn keep(&mut self, task: Task<T>) -> usize {
        if let Some(index) = self.tasks.iter().position(Option::is_none) {
            self.tasks[index] = Some(task);
            index
        } else {
            self.tasks.push(Some(task));
            self.tasks.len() - 1
        }
    }

    /// Puts the next block of a job into a lane, and returns whether it has more.
    fn place(&mut self, index: usize) -> bool {
        let Some(task) = self.tasks.get_mut(index).and_then(Option::as_mut) else { return false };
        let Some(key) = H::key(&task.job.schedule) else { return false };
        task.placed += 1;
        self.chains.push(Chain::new(key, &task.job.salt, task.placed));
        self.lanes.push(Lane { task: index, block: task.placed, remaining: task.job.iterations.get() - 1 });
        task.placed < task.blocks
    }

    /// Iterates all lanes until the first of them is done.
    fn run(&mut self) {
        let most = self.step_iterations.get();
        let iterations = self.lanes.iter().map(|lane| lane.remaining).min().unwrap_or(0).min(most);
        if iterations == 0 {
            return;
        }
        let mut rest = &mut self.chains[..];
        while !rest.is_empty() {
            let kernel = H::choose(rest.len(), self.forced);
            let (now, later) = rest.split_at_mut(rest.len().min(kernel.lanes));
            H::run(kernel, now, iterations);
            rest = later;
        }
        for lane in &mut self.lanes {
            lane.remaining -= iterations;
        }
    }

    /// Removes finished blocks from their lanes.
    fn harvest(&mut self, finished: &mut impl FnMut(T, Result<&[u8], Error>)) {
        let mut at = 0;
        while let Some(lane) = self.lanes.get(at).copied() {
            if lane.remaining > 0 {
                at += 1;
                continue;
            }
            self.lanes.swap_remove(at);
            self.write(at, lane);
            let Some(slot) = self.tasks.get_mut(lane.task) else { continue };
            if let Some(task) = slot.take_if(|task| task.done == task.blocks) {
                finished(task.job.tag, Ok(&task.output));
            }
        }
    }

    /// Writes the result of a block into the output of its job, and frees its lane.
    fn write(&mut self, at: usize, lane: Lane) {
        if let (Some(chain), Some(task)) =
            (self.chains.get(at), self.tasks.get_mut(lane.task).and_then(Option::as_mut))
        {
            let start = (lane.block as usize - 1) * H::OUTPUT;
            let end = task.output.len().min(start + H::OUTPUT);
            H::write(&chain.sum, &mut task.output[start..end]);
            task.done += 1;
        }
        // It is dropped, and so wiped, in place: `swap_remove` would leave a copy of the moved bytes.
        let last = self.chains.len() - 1;
        self.chains.swap(at, last);
        self.chains.truncate(last);
    }
}

/// For use in a pattern.
const MAX: usize = Job::<()>::OUTPUT_LEN_MAX;

impl<T> Task<T> {
    fn new(job: Job<T>, prf: Prf) -> Result<Self, (T, Error)> {
        let error = match job.output_len {
            _ if job.schedule.prf() != prf => Error::PrfMismatch,
            0 => Error::OutputEmpty,
            1..=MAX => {
                let output = Zeroizing::new(vec![0; job.output_len]);
                let blocks = job.output_len.div_ceil(prf.output_len()) as u32;
                return Ok(Self { job, output, placed: 0, done: 0, blocks });
            }
            _ => Error::OutputTooLong,
        };
        Err((job.tag, error))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wiped;

//! PBKDF2-HMAC (RFC 8018 §5.2) as fast as the processor can: one job with the least latency, many jobs in SIMD lanes.
//!
//! [`derive()`] and [`verify()`] do one job. [`Engine`] keeps the lanes of one core filled with independent jobs of
//! different passwords, salts and iteration counts: a lane that finishes takes the next job. A [`Password`] that is
//! compared with several stored secrets has its key schedule made once.
//!
//! The cost of a job is its iterations times its blocks of output, and both come from what was stored. This crate
//! bounds neither beyond what the standard does: whoever reads them from others caps them first.
//!
//! Key schedules and outputs are wiped when they are dropped. What the compiler spills onto the stack during a
//! computation is not.

mod derive;
mod engine;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod hash;
mod kernel;
#[cfg(test)]
mod miri;
mod password;
mod prf;
mod schedule;
pub mod stored;
mod vector;

pub use derive::{derive, verify};
pub use engine::{Engine, Job};
pub use error::Error;
#[cfg(any(test, feature = "fuzzing"))]
pub use fuzzing::fuzz_lanes;
pub use kernel::{Backend, Kernel, calibrate};
pub use password::Password;
pub use prf::Prf;
pub use schedule::Schedule;

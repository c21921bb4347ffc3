//! The loop of PBKDF2 on the units of the processor, and which of them runs how many jobs.

mod calibration;
mod choice;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod sha_ni;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use calibration::calibrate;
pub use choice::{Backend, Kernel};
pub(crate) use lanes::{Chain, Kernels};

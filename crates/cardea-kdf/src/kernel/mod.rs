//! The inner loop of PBKDF2 for each instruction set, and the choice among them.

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

//! Runs one kernel for itself, so that `perf stat -e cycles:u` tells what an iteration of its lanes costs:
//! `kernel sha512 avx512-8 100000`. Cycles are the same on a busy machine, which times are not.

use std::process::ExitCode;

use cardea_kdf::{Kernel, Prf};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let prf = match arguments.next().as_deref() {
        Some("sha1") => Prf::HmacSha1,
        Some("sha256") => Prf::HmacSha256,
        Some("sha512") => Prf::HmacSha512,
        _ => return ExitCode::FAILURE,
    };
    let name = arguments.next().unwrap_or_default();
    let kernel =
        Kernel::all(prf).iter().find(|kernel| kernel.to_string() == name && kernel.backend.is_available());
    match (kernel, arguments.next().and_then(|count| count.parse().ok())) {
        (Some(kernel), Some(iterations)) => {
            kernel.exercise(prf, iterations);
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}

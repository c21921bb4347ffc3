//! Runs one kernel alone, so that `perf stat -e cycles:u` measures the cost of an iteration of its lanes: `kernel
//! sha512 avx512-8 100000`. Unlike times, cycles don't depend on the load of the machine.

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

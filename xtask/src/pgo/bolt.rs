//! The second step: BOLT arranges the finished program by how it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::Build;
use crate::process::pass;

/// For the compiler: the linker keeps what BOLT needs to move code.
pub(super) const RELOCATIONS: &str = "-Clink-arg=-Wl,--emit-relocs";

impl Build<'_> {
    /// Instruments `program`, trains it again and writes a rearranged one. Samples of the processor's branches would
    /// cost less, but virtual machines rarely have them.
    pub(super) fn rearrange(&self, bolt: &Path, program: &Path) -> Result<PathBuf> {
        let file = |name: &str| self.target.join(name);
        let (instrumented, profile, rearranged) =
            (file("cardea.instrumented"), file("cardea.fdata"), file("cardea.bolt"));
        self.progress("instrumenting it once more, for BOLT");
        let mut command = Command::new(bolt);
        command.arg(program).arg("-instrument").arg("-o").arg(&instrumented);
        let mut output = std::ffi::OsString::from("--instrumentation-file=");
        output.push(&profile);
        ensure!(pass(command.arg(output))?, "llvm-bolt can't instrument the program");
        self.train(&instrumented)?;
        ensure!(profile.exists(), "the trained program has left no profile at {}", profile.display());
        self.progress("rearranging it");
        let mut data = std::ffi::OsString::from("-data=");
        data.push(&profile);
        let mut command = Command::new(bolt);
        command.arg(program).arg("-o").arg(&rearranged).arg(data).args([
            "-reorder-blocks=ext-tsp",
            "-reorder-functions=cdsort",
            "-split-functions",
            "-split-all-cold",
            "-split-eh",
            "-icf=safe",
        ]);
        ensure!(pass(&mut command)?, "llvm-bolt fails");
        Ok(rearranged)
    }
}

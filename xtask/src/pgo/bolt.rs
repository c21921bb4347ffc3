//! The second step: BOLT optimises the layout of the finished program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::llvm::Llvm;
use super::{Build, files_of, flag, fresh};
use crate::process::pass;

/// For the compiler: the linker keeps what BOLT needs to move code.
pub(super) const RELOCATIONS: &str = "-Clink-arg=-Wl,--emit-relocs";

/// How code is arranged: paths that are taken fall through, and functions that call each other are neighbours.
const ARRANGEMENT: [&str; 6] = [
    "-reorder-blocks=ext-tsp",
    "-reorder-functions=cdsort",
    "-split-functions",
    "-split-all-cold",
    "-split-eh",
    "-icf=safe",
];

/// Where its programs are.
pub(super) struct Tools {
    bolt: PathBuf,
    merge: PathBuf,
}

impl Tools {
    /// # Errors
    ///
    /// Says how to get what is missing.
    pub(super) fn find(llvm: &Llvm) -> Result<Self> {
        Ok(Self { bolt: llvm.tool("llvm-bolt")?, merge: llvm.tool("merge-fdata")? })
    }
}

impl Build<'_> {
    /// Instruments `program`, trains it again and writes a rearranged one. Samples of the processor's branches would
    /// cost less, but virtual machines rarely have them.
    pub(super) fn rearrange(&self, tools: &Tools, program: &Path) -> Result<PathBuf> {
        let file = |name: &str| self.target.join(name);
        let (instrumented, profile, rearranged) =
            (file("cardea.instrumented"), file("cardea.fdata"), file("cardea.bolt"));
        self.progress("instrumenting the program for BOLT");
        let profiles = file("bolt");
        fresh(&profiles)?;
        let mut command = Command::new(&tools.bolt);
        command
            .arg(program)
            .args(["-instrument", "-o"])
            .arg(&instrumented)
            .arg(flag("--instrumentation-file=", &profiles.join("cardea")))
            // Each run is a process of its own, and leaves a file of its own.
            .arg("--instrumentation-file-append-pid");
        ensure!(pass(&mut command)?, "llvm-bolt can't instrument the program");
        self.train(&instrumented)?;
        let files = files_of(&profiles, OsStr::new("fdata"))?;
        let mut command = Command::new(&tools.merge);
        ensure!(pass(command.args(files).stdout(File::create(&profile)?))?, "merge-fdata fails");
        self.progress("optimising the layout");
        let data: OsString = flag("-data=", &profile);
        let mut command = Command::new(&tools.bolt);
        command.arg(program).arg("-o").arg(&rearranged).arg(data).args(ARRANGEMENT);
        ensure!(pass(&mut command)?, "llvm-bolt fails");
        Ok(rearranged)
    }
}

//! The tools of LLVM that belong to the compiler: profiles are read by the version that wrote them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process::catch;

const LIMIT: Duration = Duration::from_secs(20);

/// Which LLVM the compiler is built on, and for what it compiles.
#[derive(Debug, PartialEq)]
pub(super) struct Llvm {
    pub(super) host: String,
    major: u32,
    /// Where the component `llvm-tools` of the toolchain would be.
    component: PathBuf,
}

impl Llvm {
    /// Asks the compiler.
    pub(super) fn find(root: &Path) -> Result<Self> {
        let ask = |arguments: &[&str]| {
            let caught = catch(Command::new("rustc").args(arguments).current_dir(root), LIMIT)?;
            ensure!(caught.success, "rustc: {}", caught.last_line());
            Ok(caught.output)
        };
        let (version, sysroot) = (ask(&["-vV"])?, ask(&["--print", "sysroot"])?);
        parse(&version, Path::new(sysroot.trim())).context("rustc reports no LLVM version")
    }

    /// A tool: that of the toolchain, or Debian's of the same version.
    ///
    /// # Errors
    ///
    /// Says how to get it.
    pub(super) fn tool(&self, name: &str) -> Result<PathBuf> {
        let component = self.component.join(name);
        if component.exists() {
            return Ok(component);
        }
        // Debian's, under the name with a version; without one it may be any version.
        let versioned = format!("{name}-{}", self.major);
        for candidate in [&versioned, name] {
            let asked = catch(Command::new(candidate).arg("--version"), LIMIT);
            if asked.is_ok_and(|caught| caught.success && major_of(&caught.output) == Some(self.major)) {
                return Ok(PathBuf::from(candidate));
            }
        }
        let major = self.major;
        match name {
            "llvm-bolt" | "merge-fdata" => {
                bail!("missing: {name} of LLVM {major}; on Debian: apt-get install bolt-{major}")
            }
            _ => bail!(
                "missing: {name} of LLVM {major}; `rustup component add llvm-tools`, or on Debian: apt-get install \
                 llvm-{major}"
            ),
        }
    }
}

fn parse(version: &str, sysroot: &Path) -> Option<Llvm> {
    let field = |name: &str| version.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let host = field("host")?.trim().to_owned();
    let major = field("LLVM version")?.split('.').next()?.trim().parse().ok()?;
    let component = sysroot.join("lib/rustlib").join(&host).join("bin");
    Some(Llvm { host, major, component })
}

/// `LLVM version 22.1.8`, `Debian LLVM version 22.1.8`
fn major_of(output: &str) -> Option<u32> {
    let version = output.lines().find_map(|line| line.split_once("LLVM version "))?.1;
    version.split('.').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_says_which_version_it_is_built_on() {
        let version = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        let llvm = parse(version, Path::new("/s")).unwrap();
        assert_eq!((llvm.host.as_str(), llvm.major), ("x86_64-unknown-linux-gnu", 22));
        assert_eq!(llvm.component, Path::new("/s/lib/rustlib/x86_64-unknown-linux-gnu/bin"));
        assert_eq!(parse("rustc 1.95.0\n", Path::new("/s")), None);
    }

    #[test]
    fn a_tool_of_another_version_is_none_of_ours() {
        assert_eq!(major_of("Debian LLVM version 22.1.8\n  Optimized build.\n"), Some(22));
        assert_eq!(major_of("LLVM (http://llvm.org/):\n  LLVM version 14.0.6\n"), Some(14));
        assert_eq!(major_of("something else"), None);
        let llvm = Llvm { host: "h".to_owned(), major: 1, component: PathBuf::from("/nowhere") };
        let error = llvm.tool("llvm-profdata").unwrap_err().to_string();
        assert!(error.contains("llvm-tools") && error.contains("apt-get install llvm-1"), "{error}");
        assert!(llvm.tool("llvm-bolt").unwrap_err().to_string().contains("bolt-1"));
    }
}

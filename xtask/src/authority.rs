//! A real ACME authority: Let's Encrypt's Pebble, which `tests/authority` pins by checksum.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::needs;
use crate::process::{catch, target_directory};

/// For downloads and compilation.
const BUILD_LIMIT: Duration = Duration::from_secs(600);

/// Builds the authority below `target`, where Go finds that it is up to date in a second.
///
/// # Errors
///
/// Go can't be installed, or the build fails.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    needs::provide(&[needs::GO])?;
    let program = target_directory(root)?.join("authority/pebble");
    let mut command = Command::new("go");
    command
        .args(["build", "-buildvcs=false", "-mod=readonly", "-o"])
        .arg(&program)
        .arg("github.com/letsencrypt/pebble/v2/cmd/pebble")
        .current_dir(root.join("tests/authority"));
    let caught = catch(&mut command, BUILD_LIMIT)?;
    ensure!(caught.success, "go build of Pebble: {}", caught.output.trim());
    Ok(program)
}

//! The database's file: made private before SQLite sees it.

use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use crate::store::StoreError;

/// Creates the file with mode 0600, or takes group's and others' rights away from an existing one. SQLite gives its log and its
/// shared memory the mode of the database. Blocks.
pub(super) fn prepare(path: &Path) -> Result<(), StoreError> {
    let unusable = |problem: String| StoreError::Unusable { path: path.display().to_string(), problem };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => {
            // The name is durable before anything that is said to be stored under it.
            let synced = file.sync_all().and_then(|()| File::open(parent)?.sync_all());
            return synced.map_err(|error| unusable(format!("it can't be created: {error}")));
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(unusable(format!("the folder {} does not exist; create it", parent.display())));
        }
        Err(error) => return Err(unusable(format!("it can't be created: {error}"))),
    }
    let metadata = fs::metadata(path).map_err(|error| unusable(format!("it can't be read: {error}")))?;
    if !metadata.is_file() {
        return Err(unusable("it is not a file".into()));
    }
    let mode = metadata.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777), "database made private: mode 600");
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700))
            .map_err(|error| unusable(format!("others may read it, and that can't be changed: {error}")))?;
    }
    Ok(())
}

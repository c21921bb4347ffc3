//! The database's file: made private before SQLite sees it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use crate::store::StoreError;

/// Creates the file with mode 0600 where there is none. SQLite gives its log and its shared memory the mode of the
/// database. Blocks.
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
    Ok(())
}

/// Takes group's and others' rights away from the database and what stands beside it. Only once it is known to be ours.
/// Blocks.
pub(super) fn make_private(path: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        restrict(Path::new(&name)).map_err(|error| StoreError::Unusable {
            path: path.display().to_string(),
            problem: format!("others may read it, and that can't be changed: {error}"),
        })?;
    }
    Ok(())
}

fn restrict(path: &Path) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & 0o077 == 0 {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777), "database made private: mode 600");
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700))
}

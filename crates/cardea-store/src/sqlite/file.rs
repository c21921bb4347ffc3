//! The database's files: made private before SQLite opens them, distinguished from lost ones, and watched while they are
//! in use.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::StoreError;

/// The most bytes of a marker file.
const MARKER_BYTES_MAX: u64 = 256;
/// The hexadecimal digits of a database's id.
const INSTANCE_DIGITS: usize = 32;

/// Creates the file with mode 0600, unless it exists or existed before. SQLite gives its log and its shared memory the
/// mode of the database. Returns the marker, if there is one. Blocks.
///
/// # Errors
/// [`StoreError::Lost`] if a marker or a log shows that a database existed; [`StoreError::Unusable`].
pub(super) fn prepare(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let marker = check_not_lost(path)?;
    let unusable = |problem: String| StoreError::Unusable { path: path.display().to_string(), problem };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => {
            // The directory entry must be durable before any write is acknowledged.
            let synced = file.sync_all().and_then(|()| sync_folder(path));
            synced.map_err(|error| unusable(format!("it can't be created: {error}")))?;
            Ok(marker)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(marker),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(unusable(format!("the folder {} does not exist; create it", parent(path).display())))
        }
        Err(error) => Err(unusable(format!("it can't be created: {error}"))),
    }
}

/// Distinguishes a lost database from one that was never created. Returns the marker, if there is one. Blocks.
///
/// # Errors
/// [`StoreError::Lost`] if a marker or a log shows that a database existed; [`StoreError::Unusable`].
pub(super) fn check_not_lost(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let unusable = |problem: String| StoreError::Unusable { path: path.display().to_string(), problem };
    let cannot_read = |error: io::Error| unusable(format!("it can't be read: {error}"));
    // The marker is read first: another process may be creating the database, and writes the marker last.
    let (marker, log) = (trace(path, ".id", 0), trace(path, "-wal", 1));
    let (marker, log) = (marker.map_err(cannot_read)?, log.map_err(cannot_read)?);
    let found = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(unusable("it is not a file".into())),
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(cannot_read(error)),
    };
    if let (None | Some(0), Some(trace)) = (found, marker.as_ref().or(log.as_ref())) {
        return Err(StoreError::Lost {
            path: path.display().to_string(),
            what: if found.is_some() { "empty" } else { "missing" },
            trace: trace.display().to_string(),
        });
    }
    Ok(marker)
}

/// Compares the database's id with its marker `<database>.id`, and creates the marker if there is none. Blocks.
///
/// # Errors
/// [`StoreError::Unusable`] if the marker belongs to another database or can't be written.
pub(super) fn mark(path: &Path, instance: &str) -> Result<(), StoreError> {
    if is_marked(path, instance)? {
        return Ok(());
    }
    let marker = beside(path, ".id");
    write_marker(&marker, instance).map_err(|error| StoreError::Unusable {
        path: path.display().to_string(),
        problem: format!("its marker {} can't be written: {error}", marker.display()),
    })
}

/// Whether the marker has the database's id. A missing or incomplete marker has not. Blocks.
///
/// # Errors
/// [`StoreError::Unusable`] if the marker belongs to another database or can't be read.
pub(super) fn is_marked(path: &Path, instance: &str) -> Result<bool, StoreError> {
    let marker = beside(path, ".id");
    let unusable = |problem: String| StoreError::Unusable { path: path.display().to_string(), problem };
    let marked = read_marker(&marker)
        .map_err(|error| unusable(format!("its marker {} can't be read: {error}", marker.display())))?;
    match marked {
        None => Ok(false),
        Some(marked) if marked == instance => Ok(true),
        Some(_) => Err(unusable(format!(
            "it is another database than the one that {} was written for; restore the right one, or, where this \
             one is meant, remove that file",
            marker.display()
        ))),
    }
}

/// Removes the permissions of group and others from the database and its side files. The database must be known to be
/// ours. Blocks.
pub(super) fn make_private(path: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-wal", "-shm"] {
        restrict(&beside(path, suffix)).map_err(|error| StoreError::Unusable {
            path: path.display().to_string(),
            problem: format!("others may read it, and that can't be changed: {error}"),
        })?;
    }
    Ok(())
}

/// Identifies the database's file, its log and its shared memory, so that the removal or replacement of one is noticed:
/// commits are in the log until a checkpoint, and other processes find the log and its locks by their names.
#[derive(Clone, Debug)]
pub(super) struct Identity(Arc<[(PathBuf, Inode)]>);

/// Device and inode. The inode is not reused while a connection holds the file open.
type Inode = (u64, u64);

impl Identity {
    /// The identity of the present files, which a connection must have open. Blocks.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let files = ["", "-wal", "-shm"].map(|suffix| beside(path, suffix));
        let files = files.map(|file| inode(&file).map(|inode| (file, inode)));
        Ok(Self(files.into_iter().collect::<Result<_, _>>()?))
    }

    /// Checks that the same files are still there.
    ///
    /// # Errors
    /// [`StoreError::Replaced`].
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let files = Arc::clone(&self.0);
        let missing = tokio::task::spawn_blocking(move || {
            let missing = files.iter().find(|(file, known)| !inode(file).is_ok_and(|found| found == *known));
            missing.map(|(file, _)| file.display().to_string())
        });
        match missing.await {
            Ok(None) => Ok(()),
            Ok(Some(path)) => Err(StoreError::Replaced { path }),
            Err(error) => Err(StoreError::Failed(Box::new(error))),
        }
    }
}

fn inode(file: &Path) -> io::Result<Inode> {
    let metadata = fs::metadata(file)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A side file that shows that a database existed: its marker, or a non-empty log, which SQLite would discard.
fn trace(path: &Path, suffix: &str, bytes_min: u64) -> io::Result<Option<PathBuf>> {
    let trace = beside(path, suffix);
    match fs::metadata(&trace) {
        Ok(found) => Ok((found.len() >= bytes_min).then_some(trace)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` if the marker is missing or incomplete.
fn read_marker(marker: &Path) -> io::Result<Option<String>> {
    let file = match File::open(marker) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = io::read_to_string(io::Read::take(file, MARKER_BYTES_MAX))?;
    let instance = text.trim();
    let whole = instance.len() == INSTANCE_DIGITS && instance.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(whole.then(|| instance.to_owned()))
}

/// Two processes that open a new database at once write the same content.
fn write_marker(marker: &Path, instance: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(marker)?;
    file.write_all(format!("{instance}\n").as_bytes())?;
    file.sync_all()?;
    sync_folder(marker)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
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

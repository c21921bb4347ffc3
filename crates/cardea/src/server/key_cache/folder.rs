//! The folder of stored key sets, which only the gateway's user (or root) can have written.

use std::{
    fs::{self, DirBuilder, File, Metadata},
    io::{self, ErrorKind, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat, renameat},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, geteuid, unlinkat},
};

/// The largest file: a key set of 1 MiB, with escapes.
const BYTES_MAX: u64 = 4 << 20;

/// The folder, held open: its files stay those that were checked, whatever happens to its path.
pub(super) struct Folder(File);

impl Folder {
    /// The folder at `path`; `None` if it doesn't exist.
    ///
    /// # Errors
    /// It is a link or not a folder, or another user can write to it or replace it.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        check_parent(path)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let folder = match open(path, flags, Mode::empty()) {
            Ok(folder) => File::from(folder),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        check_private(&folder.metadata()?)?;
        Ok(Some(Self(folder)))
    }

    /// The same. A missing folder is created for the gateway's user only.
    ///
    /// # Errors
    /// Those of [`Self::open`]; it can't be created.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        check_parent(path)?;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Self::open(path)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// The text of a file; `None` if it doesn't exist.
    ///
    /// # Errors
    /// It is a link or not a file, another user can write to it, or it can't be read.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        // Without blocking: opening a pipe would wait for its writer.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        check_private(&metadata)?;
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Writes a file atomically and flushes it to the disk.
    ///
    /// # Errors
    /// The file system refuses. The previous file is unchanged.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let fresh = format!("{name}.{}.fresh", std::process::id());
        let put = || {
            let mut file = File::from(self.create(&fresh)?);
            file.write_all(content)?;
            file.sync_all()?;
            renameat(&self.0, fresh.as_str(), &self.0, name)?;
            self.0.sync_all()
        };
        let done = put();
        if done.is_err() {
            let _ = self.remove(&fresh);
        }
        done
    }

    /// Creates a new file with mode 0600. One that a process with the same id left is removed.
    fn create(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let create = || openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        match create() {
            Err(Errno::EEXIST) => {
                self.remove(name)?;
                Ok(create()?)
            }
            created => Ok(created?),
        }
    }

    /// Removes a file if it exists, and flushes that to the disk.
    ///
    /// # Errors
    /// The file system refuses.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => self.0.sync_all(),
            Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether no other user can replace the folder at `path`. In a sticky folder, users can move only what is theirs.
fn check_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let metadata = match fs::metadata(parent) {
        Ok(metadata) => metadata,
        // Then the folder doesn't exist either.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_sticky = metadata.mode() & 0o1000 != 0;
    if is_ours(&metadata) && (is_sticky || metadata.mode() & 0o022 == 0) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the parent folder {} is writable by other users or belongs to one; configure a folder inside one that \
         belongs to the gateway's user",
        parent.display()
    )))
}

fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() || metadata.uid() == 0
}

/// Whether it belongs to the gateway's user or to root, and nobody else may write to it.
fn check_private(metadata: &Metadata) -> io::Result<()> {
    if is_ours(metadata) && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other("it or its folder is writable by other users or belongs to one; remove it"))
}

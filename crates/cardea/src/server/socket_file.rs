//! The file of a listening Unix socket, and its permissions.

use std::{
    fs::{self, Metadata, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;

/// The file of a socket that this process bound.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    mode: u32,
}

impl SocketFile {
    /// The socket that was bound at `bound` with this mode and will be renamed to `path`.
    ///
    /// # Errors
    /// Its metadata can't be read.
    pub(super) fn new(bound: &Path, path: &Path, mode: u32) -> io::Result<Self> {
        let identity = identity(&fs::symlink_metadata(bound)?);
        Ok(Self { path: path.to_path_buf(), identity, mode })
    }

    /// The present permissions.
    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    /// Changes the permissions. Symbolic links are not followed, and a file that replaced the socket is not changed.
    ///
    /// # Errors
    /// It was removed, it belongs to another user, or the file system refuses.
    pub(super) fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        // A handle to the file itself: the path may be replaced between the check and the change.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&self.path)?;
        let found = file.metadata()?;
        if !found.file_type().is_socket() || identity(&found) != self.identity {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another file is in its place"));
        }
        // fchmod(2) doesn't accept such a handle; its entry in /proc is a link to the file itself.
        let handle = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(handle, Permissions::from_mode(mode))?;
        self.mode = mode;
        Ok(())
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn only_the_mode_of_the_socket_itself_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("socket"), folder.path().join("other"));
        let _listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let mut file = SocketFile::new(&path, &path, 0o600).unwrap();
        file.set_mode(0o660).unwrap();
        assert_eq!((mode(&path), file.mode()), (0o660, 0o660));

        fs::rename(&path, folder.path().join("moved")).unwrap();
        assert!(file.set_mode(0o666).is_err(), "it is gone");
        fs::write(&other, "").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        symlink(&other, &path).unwrap();
        assert!(file.set_mode(0o666).is_err(), "a link is in its place");
        fs::remove_file(&path).unwrap();
        symlink(folder.path().join("moved"), &path).unwrap();
        assert!(file.set_mode(0o666).is_err(), "a link to the socket is in its place");
        fs::remove_file(&path).unwrap();
        let _another = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(file.set_mode(0o666).is_err(), "another socket is in its place");
        assert_eq!((mode(&other), mode(&path), file.mode()), (0o600, 0o600, 0o660));
        assert_eq!(mode(&folder.path().join("moved")), 0o660);
    }
}

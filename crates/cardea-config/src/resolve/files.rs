//! Files that a configuration refers to.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{
    super::{KeyFiles, document::Cursor},
    Resolver,
};

/// The largest file that a configuration may refer to: certificates, keys, bodies of responses.
const REFERENCED_BYTES_MAX: u64 = 1 << 20;

impl Resolver<'_> {
    /// A path, relative to the folder of the file that contains it.
    pub(super) fn path(&self, at: Cursor<'_>, written: &str) -> PathBuf {
        self.sources.folder(at.location()).join(written)
    }

    /// The path of a certificate, key or secret file, which is read if key files are.
    pub(super) fn key_file(&mut self, at: Cursor<'_>, written: &str) -> (PathBuf, Option<Vec<u8>>) {
        if self.key_files == KeyFiles::Skip && !written.is_empty() {
            return (self.path(at, written), None);
        }
        self.file(at, written)
    }

    /// The path of a file with a certificate or its key. Whether it is usable, and whether that matters, is found out where it is
    /// loaded: one certificate of several that can't be read does not keep the others from being served.
    pub(super) fn certificate_file(&mut self, at: Cursor<'_>, written: &str) -> PathBuf {
        let path = self.path(at, written);
        if written.is_empty() {
            self.error(at, "the file's name is empty", "name a file");
        } else if self.key_files == KeyFiles::Read
            && let Ok(content) = read_bounded(&path)
        {
            let content = zeroize::Zeroizing::new(content);
            self.contents.note(at.location(), &content);
        }
        path
    }

    /// The path of a readable file and its content. Only reading proves that it is readable.
    pub(super) fn file(&mut self, at: Cursor<'_>, written: &str) -> (PathBuf, Option<Vec<u8>>) {
        let path = self.path(at, written);
        if written.is_empty() {
            self.error(at, "the file's name is empty", "name a file");
            return (path, None);
        }
        match read_bounded(&path) {
            Ok(content) => {
                self.contents.note(at.location(), &content);
                (path, Some(content))
            }
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound => {
                        "correct the name; relative paths start from this file's folder"
                    }
                    io::ErrorKind::PermissionDenied => "let the user that runs the program read it",
                    _ => "name a readable file of at most 1 MiB",
                };
                self.error(at, format!("cannot read {}: {error}", path.display()), remedy);
                (path, None)
            }
        }
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened, because opening a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let file = fs::File::open(path)?;
    let mut content = Vec::new();
    file.take(REFERENCED_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > REFERENCED_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 1 MiB"));
    }
    Ok(content)
}

//! Bounded reads of files, and stamps to notice changes.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::error::CertificateProblem;

/// Larger than any chain or key, and small enough for a mistaken path.
const SIZE_BYTES_MAX: u64 = 1 << 20;

/// A value that changes when a file is replaced by a rename (inode), written in place (times, size), or reached through
/// another symbolic link, as mounted secrets are (device and inode).
///
/// Two stamps of missing files are equal, so that a missing file counts as unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(Option<[i64; 6]>, u64);

impl Stamp {
    /// The stamp of content without a file; 0 if there is no content.
    pub(crate) fn version(version: u64) -> Self {
        Self(None, version)
    }

    /// Takes the stamp of the file at `path`. It must be taken before the file is read, so that a concurrent write
    /// counts as a change.
    pub(crate) fn of(path: &Path) -> Self {
        let Ok(meta) = fs::metadata(path) else { return Self(None, 0) };
        let (device, inode) = (meta.dev().cast_signed(), meta.ino().cast_signed());
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        let [modified, modified_nanos, changed, changed_nanos] = times;
        Self(Some([device, inode, modified, modified_nanos, changed, changed_nanos]), meta.size())
    }
}

/// Reads a PEM file of at most 1 MiB. The bytes are wiped when dropped, because they may contain a key.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, CertificateProblem> {
    let unreadable = |error: std::io::Error| CertificateProblem::Unreadable(error.to_string());
    let meta = fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() {
        // Opening a named pipe would wait for its writer.
        return Err(CertificateProblem::Unreadable("not a regular file".to_owned()));
    }
    let too_large = CertificateProblem::TooLarge { limit_bytes: SIZE_BYTES_MAX };
    let Some(size) = usize::try_from(meta.len()).ok().filter(|_| meta.len() <= SIZE_BYTES_MAX) else {
        return Err(too_large);
    };
    // One allocation for the whole file, because growing would leave copies of the key.
    let mut bytes = Zeroizing::new(Vec::with_capacity(size.saturating_add(1)));
    File::open(path)
        .and_then(|file| file.take(SIZE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > SIZE_BYTES_MAX {
        return Err(too_large);
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(CertificateProblem::Empty);
    }
    if bytes.first() == Some(&0x30) {
        // An ASN.1 SEQUENCE; PEM text starts differently.
        return Err(CertificateProblem::NotPem);
    }
    Ok(bytes)
}

/// Whether all users may read the file.
pub(crate) fn world_readable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o004 != 0)
}

/// Whether `bytes` contain `text`.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

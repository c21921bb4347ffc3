//! Key sets of issuers on disk, so that a restart doesn't depend on each issuer being reachable.
//!
//! Whoever can write there can sign tokens. So the folder and its files are made for the gateway's user alone, and are
//! believed only where they belong to it (or to root) and nobody else may write to them.

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use cardea_clock::{Mono, Timestamp, Wall};
use cardea_identity::{Authenticator, KeyDocument};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

/// The largest file that is read: a key set of 1 MiB, and what escaping adds.
const BYTES_MAX: u64 = 4 << 20;

/// Keeps key sets in a folder.
pub(super) struct KeyCache {
    folder: Option<PathBuf>,
    /// Which document of an issuer was written last.
    written: Mutex<HashMap<Arc<str>, Mono>>,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    issuer: String,
    source: String,
    fetched_at: i64,
    keys: String,
}

impl KeyCache {
    /// In that folder, or not at all.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, written: Mutex::default() }
    }

    /// Gives issuers whose keys are not known the keys that were kept. Blocks.
    pub(super) fn restore(&self, authenticator: &Authenticator, now: Timestamp) {
        let Some(folder) = &self.folder else { return };
        for issuer in authenticator.issuers_without_keys() {
            let path = place(folder, &issuer);
            let restored = match read(folder, &path) {
                Ok(None) => continue,
                Ok(Some(kept)) if kept.issuer != *issuer => Err("it is another issuer's".to_owned()),
                Ok(Some(kept)) => {
                    let fetched_at = Wall::from_unix_seconds(kept.fetched_at);
                    authenticator
                        .restore_keys(&issuer, kept.keys.as_bytes(), &kept.source, fetched_at, now)
                        .map(|()| fetched_at)
                        .map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            match restored {
                Ok(fetched_at) => tracing::info!(
                    %issuer,
                    fetched_at = fetched_at.unix_seconds(),
                    "the issuer's keys are those that were kept, until they are fetched again"
                ),
                Err(error) => {
                    tracing::warn!(%issuer, path = %path.display(), %error, "the keys that were kept are not used");
                }
            }
        }
    }

    /// Keeps the key sets that were fetched since the last time. Blocks.
    pub(super) fn save(&self, authenticator: &Authenticator, now: Timestamp) {
        let Some(folder) = &self.folder else { return };
        for document in authenticator.key_documents(now) {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            // What can't be written is left to the next document: no complaint every two seconds.
            if written.insert(Arc::clone(&document.issuer), document.fetched) == Some(document.fetched) {
                continue;
            }
            drop(written);
            if let Err(error) = write(folder, &document) {
                tracing::warn!(
                    issuer = %document.issuer, folder = %folder.display(), %error,
                    "an issuer's keys can't be kept: a restart while it can't be reached would know none"
                );
            }
        }
    }
}

/// The file of an issuer. Of names that may be more than a file name, what may not be in one is escaped.
fn place(folder: &Path, issuer: &str) -> PathBuf {
    let mut name = String::with_capacity(issuer.len() + 5);
    for byte in issuer.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name.push_str(".json");
    folder.join(name)
}

/// What was kept; nothing where nothing was.
fn read(folder: &Path, path: &Path) -> io::Result<Option<Kept>> {
    let found = |path: &Path| match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let (Some(folder), Some(file)) = (found(folder)?, found(path)?) else { return Ok(None) };
    if !folder.is_dir() || !file.is_file() {
        return Err(io::Error::other("it is not a file in a folder"));
    }
    if !is_private(&folder) || !is_private(&file) {
        return Err(io::Error::other(
            "others may write to it or to its folder, or it belongs to somebody else; remove it",
        ));
    }
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(serde_json::from_str(&text)?))
}

fn is_private(metadata: &Metadata) -> bool {
    let owner = metadata.uid();
    (owner == geteuid().as_raw() || owner == 0) && metadata.mode() & 0o022 == 0
}

/// Whole or not at all.
fn write(folder: &Path, document: &KeyDocument) -> io::Result<()> {
    let Ok(keys) = std::str::from_utf8(&document.bytes) else { return Ok(()) };
    let kept = Kept {
        issuer: document.issuer.to_string(),
        source: document.source.clone(),
        fetched_at: document.fetched_at.unix_seconds(),
        keys: keys.to_owned(),
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = place(folder, &document.issuer);
    let fresh = path.with_extension(format!("{}.fresh", std::process::id()));
    let put = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)
    };
    let done = put();
    if done.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    done
}

#[cfg(test)]
mod tests;

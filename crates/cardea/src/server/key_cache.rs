//! Fetched key sets on disk, so that a restart doesn't depend on every issuer being reachable.
//!
//! A user who can write there can sign tokens. So the folder and its files are created for the gateway's user only, and
//! are used only if they belong to it (or to root) and no other user may write to them.

mod folder;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use cardea_clock::{Mono, Timestamp, Wall};
use cardea_identity::{Authenticator, KeyDocument};
use serde::{Deserialize, Serialize};

use self::folder::Folder;

/// Stores key sets in a folder.
pub(super) struct KeyCache {
    folder: Option<PathBuf>,
    /// The document that was last written for each issuer.
    written: Mutex<HashMap<Arc<str>, Mono>>,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKeys {
    issuer: String,
    source: String,
    fetched_at: i64,
    keys: String,
}

impl KeyCache {
    /// With a folder, or disabled.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, written: Mutex::default() }
    }

    /// Restores the keys of issuers whose keys are not known. Blocks.
    pub(super) fn restore(&self, authenticator: &Authenticator, now: Timestamp) {
        let Some(folder) = &self.folder else { return };
        for issuer in authenticator.issuers_without_keys() {
            let name = file_name(&issuer);
            let restored = match read(folder, &name) {
                Ok(None) => continue,
                Ok(Some(kept)) if kept.issuer != *issuer => {
                    Err("the file belongs to another issuer".to_owned())
                }
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
                    "the issuer's stored keys are used until they are fetched again"
                ),
                Err(error) => {
                    let path = folder.join(&name);
                    tracing::warn!(%issuer, path = %path.display(), %error, "the issuer's stored keys are not used");
                }
            }
        }
    }

    /// Stores the key sets that were fetched since the last call. Blocks.
    pub(super) fn save(&self, authenticator: &Authenticator, now: Timestamp) {
        let Some(folder) = &self.folder else { return };
        for document in authenticator.key_documents(now) {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            // A failed write is not repeated before the next document, to avoid an error every two seconds.
            if written.insert(Arc::clone(&document.issuer), document.fetched) == Some(document.fetched) {
                continue;
            }
            drop(written);
            if let Err(error) = write(folder, &document) {
                tracing::warn!(
                    issuer = %document.issuer, folder = %folder.display(), %error,
                    "an issuer's keys can't be stored; after a restart they are missing until the issuer is reachable"
                );
            }
        }
    }
}

/// The file name of an issuer. Characters that are not allowed in file names are escaped.
fn file_name(issuer: &str) -> String {
    let mut name = String::with_capacity(issuer.len() + 5);
    for byte in issuer.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name.push_str(".json");
    name
}

/// The stored document, if any.
fn read(folder: &Path, name: &str) -> io::Result<Option<StoredKeys>> {
    let Some(folder) = Folder::open(folder)? else { return Ok(None) };
    let text = folder.read(name)?;
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

/// Stores a document. If that fails, an older one with other keys is removed: keys that the issuer has withdrawn must
/// not be trusted after a restart.
fn write(folder: &Path, document: &KeyDocument) -> io::Result<()> {
    let Ok(keys) = std::str::from_utf8(&document.bytes) else { return Ok(()) };
    let kept = StoredKeys {
        issuer: document.issuer.to_string(),
        source: document.source.clone(),
        fetched_at: document.fetched_at.unix_seconds(),
        keys: keys.to_owned(),
    };
    let (folder, name) = (Folder::make(folder)?, file_name(&document.issuer));
    let Err(error) = folder.write(&name, &serde_json::to_vec(&kept)?) else { return Ok(()) };
    let is_same = |text: &str| serde_json::from_str(text).is_ok_and(|old: StoredKeys| old.keys == kept.keys);
    if folder.read(&name).is_ok_and(|old| old.as_deref().is_some_and(is_same)) {
        return Err(error);
    }
    match folder.remove(&name) {
        Ok(()) => Err(error),
        Err(also) => {
            let message = format!("{error}; the older file still exists and can't be removed: {also}");
            Err(io::Error::new(error.kind(), message))
        }
    }
}

#[cfg(test)]
mod tests;

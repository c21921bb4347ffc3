//! The text files of the repository.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Folders with build output, downloads or fuzzer corpora, which contain no sources.
const SKIPPED_FOLDERS: [&str; 8] =
    [".git", "target", "node_modules", "venv", "__pycache__", "corpus", "artifacts", "coverage"];
/// Extensions of text files. Other files may be binary data.
const TEXT_EXTENSIONS: [&str; 24] = [
    "c",
    "conf",
    "dockerignore",
    "go",
    "html",
    "in",
    "java",
    "js",
    "json",
    "lock",
    "lua",
    "md",
    "mjs",
    "mod",
    "py",
    "rs",
    "service",
    "sh",
    "socket",
    "sum",
    "sysusers",
    "toml",
    "txt",
    "xml",
];
/// Text files without such an extension.
const TEXT_NAMES: [&str; 6] =
    [".gitignore", ".dockerignore", "Containerfile", "LICENSE-APACHE", "LICENSE-MIT", "run"];

/// A text file.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with `/` between folders.
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    pub(super) fn has_extension(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Without a slash at its end; empty for a file in the root.
    pub(super) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// Reads all text files below `root`, sorted by path.
pub(super) fn read(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder)).with_context(|| format!("cannot list {folder}"))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            // Links are not followed; their targets are checked at their own path.
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                folders.push(path);
            } else if kind.is_file() && is_text(&name) {
                let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
                files.push(File { path, text: String::from_utf8_lossy(&bytes).into_owned() });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_text(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    TEXT_NAMES.contains(&name) || TEXT_EXTENSIONS.contains(&extension) || matches!(extension, "yml" | "yaml")
}

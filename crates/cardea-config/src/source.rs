//! The files a configuration was read from, and places in them.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// A place in one of the files of a configuration: cheap to keep beside each value, turned into a line and a
/// column only when there is something to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// Index of the file in [`Sources`].
    pub(super) file: u32,
    /// Octets from the beginning of the file.
    pub(super) offset: u32,
}

impl Place {
    /// The place of a value that stands in for one that did not fit: nothing is reported there.
    pub(super) const NOWHERE: Self = Self { file: u32::MAX, offset: 0 };
}

/// A place as people write it; lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// The files a configuration was read from: the one that was named first, then what it includes, sorted.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    /// Files with a syntax error: what else seems wrong in them may follow from it.
    damaged: BTreeSet<u32>,
}

#[derive(Debug)]
struct SourceFile {
    path: PathBuf,
    text: String,
    /// Where each line begins; made for the first problem that is reported.
    lines: OnceLock<Vec<usize>>,
}

impl SourceFile {
    fn lines(&self) -> &[usize] {
        self.lines.get_or_init(|| {
            let newlines = self.text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
            std::iter::once(0).chain(newlines.map(|(offset, _)| offset + 1)).collect()
        })
    }
}

impl Sources {
    /// Takes in a file and returns its index for [`Place`]s.
    pub(super) fn add(&mut self, path: PathBuf, text: String) -> u32 {
        self.files.push(SourceFile { path, text, lines: OnceLock::new() });
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// Notes that a file has a syntax error.
    pub(super) fn mark_damaged(&mut self, file: u32) {
        self.damaged.insert(file);
    }

    /// The files with a syntax error.
    pub(super) fn damaged(&self) -> &BTreeSet<u32> {
        &self.damaged
    }

    /// Whether problems at a place are worth reporting.
    pub fn is_judged(&self, place: Place) -> bool {
        place != Place::NOWHERE && !self.damaged.contains(&place.file)
    }

    pub(super) fn text(&self, file: u32) -> &str {
        self.files.get(file as usize).map_or("", |file| file.text.as_str())
    }

    /// The folder that relative paths written at `place` start from.
    pub(super) fn folder(&self, place: Place) -> &Path {
        self.files.get(place.file as usize).and_then(|file| file.path.parent()).unwrap_or(Path::new(""))
    }

    /// A place within a text that begins at `place`, or its beginning where the text was written in another way than
    /// it reads, with escapes or from the environment.
    pub fn within(&self, place: Place, text: &str, position: usize) -> Place {
        let written = self.text(place.file).get(place.offset as usize..).unwrap_or_default();
        let quotes = if written.starts_with("\"\"\"") || written.starts_with("'''") { 3 } else { 1 };
        let is_same = written.get(quotes..).is_some_and(|rest| rest.starts_with(text));
        let shift = if is_same { quotes + position } else { 0 };
        Place { offset: place.offset.saturating_add(u32::try_from(shift).unwrap_or(0)), ..place }
    }

    /// File, line and column of a place.
    pub fn position(&self, place: Place) -> Position {
        let Some(file) = self.files.get(place.file as usize) else {
            return Position { file: PathBuf::new(), line: 1, column: 1 };
        };
        let offset = (place.offset as usize).min(file.text.len());
        let line = file.lines().partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|index| file.lines().get(index)).copied().unwrap_or(0);
        let before = file.text.as_bytes().get(start..offset).unwrap_or_default();
        // Characters are counted by the octets that begin them.
        let column = before.iter().filter(|&&octet| octet & 0xC0 != 0x80).count() + 1;
        Position { file: file.path.clone(), line: line.max(1), column }
    }
}

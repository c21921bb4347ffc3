//! The files of a configuration, and locations in them.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// A location in one of the files of a configuration. It is cheap to keep with each value, and is converted to line and
/// column only for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Location {
    /// Index of the file in [`Sources`].
    pub(super) file: u32,
    /// The byte offset in the file.
    pub(super) offset: u32,
}

impl Location {
    /// The location of a placeholder: nothing is reported there.
    pub(super) const NOWHERE: Self = Self { file: u32::MAX, offset: 0 };
}

/// A location in readable form. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file, as named.
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

/// The files of a configuration: the main one first, then the included ones, sorted.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    /// Files with a syntax error, from which further errors in them may follow.
    damaged: BTreeSet<u32>,
}

#[derive(Debug)]
struct SourceFile {
    path: PathBuf,
    text: String,
    /// The start of each line, computed for the first report.
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
    /// Adds a file and returns its index for [`Location`]s.
    pub(super) fn add(&mut self, path: PathBuf, text: String) -> u32 {
        self.files.push(SourceFile { path, text, lines: OnceLock::new() });
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// Marks a file as having a syntax error.
    pub(super) fn mark_damaged(&mut self, file: u32) {
        self.damaged.insert(file);
    }

    /// The files with a syntax error.
    pub(super) fn damaged(&self) -> &BTreeSet<u32> {
        &self.damaged
    }

    /// Whether problems at a location are reported.
    pub fn is_judged(&self, location: Location) -> bool {
        location != Location::NOWHERE && !self.damaged.contains(&location.file)
    }

    pub(super) fn text(&self, file: u32) -> &str {
        self.files.get(file as usize).map_or("", |file| file.text.as_str())
    }

    /// The folder that relative paths written at `location` start from.
    pub(super) fn folder(&self, location: Location) -> &Path {
        self.files.get(location.file as usize).and_then(|file| file.path.parent()).unwrap_or(Path::new(""))
    }

    /// A location within a text that begins at `location`. If the text as written differs, because of escapes or the
    /// environment, it is the beginning of the text.
    pub fn within(&self, location: Location, text: &str, position: usize) -> Location {
        let written = self.text(location.file).get(location.offset as usize..).unwrap_or_default();
        let quotes = if written.starts_with("\"\"\"") || written.starts_with("'''") { 3 } else { 1 };
        let is_same = written.get(quotes..).is_some_and(|rest| rest.starts_with(text));
        let shift = if is_same { quotes + position } else { 0 };
        Location { offset: location.offset.saturating_add(u32::try_from(shift).unwrap_or(0)), ..location }
    }

    /// File, line and column of a location.
    pub fn position(&self, location: Location) -> Position {
        let Some(file) = self.files.get(location.file as usize) else {
            return Position { file: PathBuf::new(), line: 1, column: 1 };
        };
        let offset = (location.offset as usize).min(file.text.len());
        let line = file.lines().partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|index| file.lines().get(index)).copied().unwrap_or(0);
        let before = file.text.as_bytes().get(start..offset).unwrap_or_default();
        // Characters are counted by their first octets.
        let column = before.iter().filter(|&&octet| octet & 0xC0 != 0x80).count() + 1;
        Position { file: file.path.clone(), line: line.max(1), column }
    }
}

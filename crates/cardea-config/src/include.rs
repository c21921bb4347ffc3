//! Reads a configuration file with its included files, and merges them into one tree.

use std::{
    collections::btree_map,
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Environment,
    document::{Document, Entry, Node, Table, Text, Value},
    expand::{ExpandError, expand},
    problem::Problems,
    source::{Location, Sources},
};

/// The largest file: a configuration of 10,000 routes has about 2 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most files of one `include`: enough for a file per service, and a bound for a wrong pattern.
const INCLUDED_MAX: usize = 10_000;

/// Reads `path` and its included files. It adds problems to the list and returns what could be read.
pub(super) fn read(path: &Path, environment: Environment<'_>, problems: &mut Problems) -> Document {
    let mut reader = Reader { document: Document::empty(), environment, problems };
    match read_text(path) {
        Ok(text) => reader.main(path, text),
        Err(error) => reader.unreadable(path, &error),
    }
    reader.document
}

/// The same for a text in memory. Relative paths in it start from the folder of `path`, and messages name it by `path`.
pub(super) fn parse(
    text: String,
    path: &Path,
    environment: Environment<'_>,
    problems: &mut Problems,
) -> Document {
    let mut reader = Reader { document: Document::empty(), environment, problems };
    reader.main(path, text);
    reader.document
}

struct Reader<'a> {
    document: Document,
    environment: Environment<'a>,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let file = self.document.sources.add(path.to_owned(), String::new());
        self.document.sources.mark_damaged(file);
        self.document.incomplete = true;
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "name the file with --config, or write a first one: cardea init",
            io::ErrorKind::InvalidInput => {
                "write the configuration to a file, and name that with --config: a reload reads it again"
            }
            _ => "name a readable TOML file with --config",
        };
        self.problems.add(Location { file, offset: 0 }, format!("cannot read the file: {error}"), remedy);
    }

    fn main(&mut self, path: &Path, text: String) {
        let root = self.parse(path.to_owned(), text);
        let includes = include_patterns(&root);
        self.document.root = root;

        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut included = Vec::new();
        for (location, pattern) in includes {
            match expand_pattern(&folder, &pattern) {
                Ok(paths) => included.extend(paths.into_iter().map(|path| (path, location))),
                Err(message) => {
                    self.damage(
                        location,
                        message,
                        "name a file, or a folder's files as in \"conf.d/*.toml\"",
                    );
                }
            }
        }
        included.sort();
        included.dedup_by(|(later, _), (earlier, _)| later == earlier);
        for (path, location) in included {
            self.include(&path, location);
        }
    }

    fn include(&mut self, path: &Path, location: Location) {
        let text = match read_included(path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot read the included file {}: {error}", path.display());
                self.damage(
                    location,
                    message,
                    "correct the file, its name or its permissions, or take it out of include",
                );
                return;
            }
        };
        let included = self.parse(path.to_owned(), text);
        let Value::Table(mut included) = included.value else { return };
        if let Some(entry) = included.entries.remove("include") {
            self.problems.add(
                entry.key_at,
                "an included file cannot include others",
                "list the file in the main file's include",
            );
        }
        if let Value::Table(root) = &mut self.document.root.value {
            merge(root, included, "", &self.document.sources, self.problems);
        }
    }

    /// Adds a problem that makes the configuration incomplete.
    fn damage(&mut self, location: Location, message: String, remedy: &str) {
        self.document.incomplete = true;
        self.problems.add(location, message, remedy);
    }

    fn parse(&mut self, path: PathBuf, text: String) -> Node {
        let file = self.document.sources.add(path, text);
        let text = self.document.sources.text(file).to_owned();
        let (table, errors) = DeTable::parse_recoverable(&text);
        for error in errors {
            let offset = error.span().map_or(0, |span| span.start);
            self.document.sources.mark_damaged(file);
            self.document.incomplete = true;
            let message = format!("not valid TOML: {}", error.message());
            self.problems.add(location(file, offset), message, "correct the syntax (https://toml.io)");
        }
        let at = location(file, 0);
        Node { at, value: Value::Table(self.table(file, table.into_inner())) }
    }

    fn table(&mut self, file: u32, table: DeTable<'_>) -> Table {
        let mut entries = std::collections::BTreeMap::new();
        for (key, value) in table {
            let key_at = location(file, key.span().start);
            let mut node = self.node(file, value);
            // A table that exists only through its keys (`a.b = 1`) has no location of its own.
            if matches!(node.value, Value::Table(_)) && node.at.offset == 0 {
                node.at = key_at;
            }
            entries.insert(key.into_inner().into_owned(), Entry { key_at, node });
        }
        Table { entries, ..Table::default() }
    }

    fn node(&mut self, file: u32, value: Spanned<DeValue<'_>>) -> Node {
        let at = location(file, value.span().start);
        let value = match value.into_inner() {
            DeValue::String(written) => self.text(at, written.into_owned()),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => Value::Float,
            },
            DeValue::Float(_) => Value::Float,
            DeValue::Boolean(boolean) => Value::Boolean(boolean),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.node(file, item)).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(file, table)),
        };
        Node { at, value }
    }

    fn text(&mut self, at: Location, written: String) -> Value {
        match expand(&written, self.environment) {
            Ok(None) => Value::String(Text { value: written, written: None }),
            Ok(Some(value)) => Value::String(Text { value, written: Some(written.into()) }),
            Err(error) => {
                match error {
                    ExpandError::Unset(name) => self.problems.add(
                        at,
                        format!("the environment variable {name} is not set"),
                        format!("set it, or give a default: ${{{name}:-value}}"),
                    ),
                    ExpandError::Malformed => self.problems.add(
                        at,
                        format!("{written:?} has a malformed reference to the environment"),
                        "write ${NAME} or ${NAME:-default}, and $$ for a dollar sign",
                    ),
                }
                Value::Unknown
            }
        }
    }
}

fn location(file: u32, offset: usize) -> Location {
    Location { file, offset: u32::try_from(offset).unwrap_or(u32::MAX) }
}

/// Reads an included file. An empty one is an error: an editor may be about to write it, and what it contained, such as a
/// policy, must not disappear meanwhile.
fn read_included(path: &Path) -> io::Result<String> {
    let text = read_text(path)?;
    if text.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is empty"));
    }
    Ok(text)
}

fn read_text(path: &Path) -> io::Result<String> {
    // Before it is opened, because opening a pipe waits for its writer. Its content could not be read again either.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("more than the {FILE_BYTES_MAX} octets that a configuration file may have");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// The patterns of `include` with their locations. Their shape is checked with everything else.
fn include_patterns(root: &Node) -> Vec<(Location, String)> {
    let Value::Table(table) = &root.value else { return Vec::new() };
    let Some(Value::Array(items)) = table.entries.get("include").map(|entry| &entry.node.value) else {
        return Vec::new();
    };
    let pattern = |node: &Node| match &node.value {
        Value::String(text) => Some((node.at, text.value.clone())),
        _ => None,
    };
    items.iter().filter_map(pattern).collect()
}

/// The files that match a pattern, relative to `folder`. `*` and `?` are allowed in the last part only.
fn expand_pattern(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let path = folder.join(pattern);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(format!("{pattern:?} names no file"));
    };
    let folders = Path::new(pattern).parent().map(Path::to_string_lossy).unwrap_or_default();
    if folders.contains(['*', '?']) {
        return Err(format!("{pattern:?} has a wildcard in a folder's name"));
    }
    if !name.contains(['*', '?']) {
        return Ok(vec![path]);
    }
    let listing = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let entries = match fs::read_dir(listing) {
        Ok(entries) => entries,
        // A missing folder contains no files.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot list {}: {error}", listing.display())),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot list {}: {error}", listing.display()))?;
        let found = entry.file_name();
        let Some(found) = found.to_str() else { continue };
        // As in a shell, a wildcard does not match hidden files.
        if !found.starts_with('.') && matches(name.as_bytes(), found.as_bytes()) {
            paths.push(parent.join(found));
        }
        if paths.len() > INCLUDED_MAX {
            return Err(format!("{pattern:?} names more than {INCLUDED_MAX} files"));
        }
    }
    Ok(paths)
}

/// Whether a name matches a pattern with `*` (any octets) and `?` (one octet), in time proportional to both.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at_pattern, mut at_name) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while at_name < name.len() {
        match pattern.get(at_pattern) {
            Some(b'*') => {
                retry = Some((at_pattern, at_name));
                at_pattern += 1;
            }
            Some(&expected) if expected == b'?' || expected == name[at_name] => {
                at_pattern += 1;
                at_name += 1;
            }
            _ => match &mut retry {
                Some((star, from)) => {
                    *from += 1;
                    at_pattern = *star + 1;
                    at_name = *from;
                }
                None => return false,
            },
        }
    }
    pattern[at_pattern..].iter().all(|&rest| rest == b'*')
}

/// Merges an included table into another: tables are merged, lists appended, and any other value may be set only once.
fn merge(into: &mut Table, from: Table, path: &str, sources: &Sources, problems: &mut Problems) {
    for (key, entry) in from.entries {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match into.entries.entry(key) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(entry);
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let first = occupied.get_mut();
                let Entry { key_at, node } = entry;
                match (&mut first.node.value, node.value) {
                    (Value::Table(first), Value::Table(second)) => {
                        merge(first, second, &path, sources, problems)
                    }
                    (Value::Array(first), Value::Array(second)) => first.extend(second),
                    _ => problems.add(
                        key_at,
                        format!("{path} is set twice; first at {}", sources.position(first.key_at)),
                        "keep one of them",
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_names() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.toml.bak", false),
            ("??-*.toml", "10-routes.toml", true),
            ("??-*.toml", "1-routes.toml", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("*", "", true),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}

//! Map files: one key and value per line.

use std::collections::HashMap;
use std::fmt;

/// The most entries of a map file.
const ENTRIES_MAX: usize = 1_000_000;

/// A map file: `key value` on each line, separated and surrounded by white space; the value is the rest of the line.
/// Empty lines and lines that begin with `#` are ignored.
#[derive(Default, PartialEq, Eq)]
pub struct MapFile {
    entries: HashMap<Box<[u8]>, Box<[u8]>>,
}

impl MapFile {
    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// [`MapFileError`] with the line: a key without a value, a repeated key, or more than a million entries.
    pub fn parse(text: &str) -> Result<Self, MapFileError> {
        let mut entries = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |what| MapFileError { line: index + 1, what };
            let (key, value) =
                line.split_once(char::is_whitespace).ok_or_else(|| error("a key without a value"))?;
            if entries.len() == ENTRIES_MAX {
                return Err(error("more than a million entries"));
            }
            if entries.insert(key.as_bytes().into(), value.trim_start().as_bytes().into()).is_some() {
                return Err(error("the key is there twice"));
            }
        }
        Ok(Self { entries })
    }

    /// The value of a key, compared byte by byte.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.get(key).map(|value| &**value)
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Entries from another syntax. For repeated keys, the last one counts.
impl FromIterator<(String, String)> for MapFile {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        let bytes = |text: String| text.into_bytes().into_boxed_slice();
        Self { entries: entries.into_iter().map(|(key, value)| (bytes(key), bytes(value))).collect() }
    }
}

impl fmt::Debug for MapFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapFile({})", self.len())
    }
}

/// A map file with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct MapFileError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub what: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_key_and_a_value() {
        let file = MapFile::parse("# tenants\nacme  gold plan \r\n\n\tglobex\tsilver\n").unwrap();
        assert_eq!(file.len(), 2);
        assert_eq!(file.get(b"acme"), Some(b"gold plan".as_slice()));
        assert_eq!(file.get(b"globex"), Some(b"silver".as_slice()));
        assert_eq!(file.get(b"Acme"), None);
        assert!(MapFile::parse("").unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("a 1\nb\n", "line 2: a key without a value"),
            ("a 1\n#\na 2", "line 3: the key is there twice"),
        ];
        for (text, expected) in cases {
            assert_eq!(MapFile::parse(text).unwrap_err().to_string(), expected);
        }
    }
}

//! The configuration as written: one tree of values with their locations.

use std::collections::BTreeMap;

use super::source::{Location, Sources};

/// All files in one tree.
pub(super) struct Document {
    /// The top level.
    pub(super) root: Node,
    /// The files.
    pub(super) sources: Sources,
    /// A file could not be read completely, so seemingly missing parts may be in it.
    pub(super) incomplete: bool,
}

impl Document {
    pub(super) fn empty() -> Self {
        let root = Node { at: Location::default(), value: Value::Table(Table::default()) };
        Self { root, sources: Sources::default(), incomplete: false }
    }
}

/// A value and its location.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Location,
    pub(super) value: Value,
}

/// A TOML 1.1 value, as far as the configuration uses them.
#[derive(Debug)]
pub(super) enum Value {
    String(Text),
    Integer(i64),
    Float,
    Boolean(bool),
    Datetime,
    Array(Vec<Node>),
    Table(Table),
    /// An unknown value, which was reported. Nothing that depends on it is checked.
    Unknown,
}

/// A string, after references to the environment were replaced.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) value: String,
    /// The text as written, if it differs. Messages show it, because the environment may contain secrets.
    pub(super) written: Option<Box<str>>,
}

/// A table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: BTreeMap<String, Entry>,
    /// Keys that were removed as invalid, or that unknown keys were probably meant to be.
    pub(super) lost: Vec<String>,
    /// Whether something in it was invalid.
    pub(super) is_flawed: bool,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key_at: Location,
    pub(super) node: Node,
}

impl Text {
    /// The text for messages.
    pub(super) fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.value)
    }
}

impl Value {
    /// The type of the value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::String(_) => "a string",
            Value::Integer(_) => "a whole number",
            Value::Float => "a number with a fraction",
            Value::Boolean(_) => "true or false",
            Value::Datetime => "a date or time",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
            Value::Unknown => "an unknown value",
        }
    }
}

/// The remedy for a value of the environment, which is not shown.
pub(super) const CHECK_ENVIRONMENT: &str = "correct the value in the environment";

/// A position in the tree that is followed in parallel with the deserialised structs, for messages and relative paths.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    node: Option<&'a Node>,
    key_at: Location,
    location: Location,
}

impl<'a> Cursor<'a> {
    pub(super) fn root(root: &'a Node) -> Self {
        Self { node: Some(root), key_at: root.at, location: root.at }
    }

    /// A location without a value.
    pub(super) fn nowhere(location: Location) -> Self {
        Self { node: None, key_at: location, location }
    }

    /// The value of a key. If the key is missing, the location is that of the table.
    pub(super) fn key(self, key: &str) -> Self {
        match self.table().and_then(|table| table.entries.get(key)) {
            Some(entry) => Self { node: Some(&entry.node), key_at: entry.key_at, location: entry.node.at },
            None => Self { node: None, key_at: self.location, location: self.location },
        }
    }

    /// An element of a list.
    pub(super) fn index(self, index: usize) -> Self {
        match self.node.map(|node| &node.value) {
            Some(Value::Array(items)) => match items.get(index) {
                Some(node) => Self { node: Some(node), key_at: node.at, location: node.at },
                None => Self { node: None, ..self },
            },
            // A single value is a list of one.
            _ => self,
        }
    }

    /// The start of the value.
    pub(super) fn location(self) -> Location {
        self.location
    }

    /// The start of the key of the value.
    pub(super) fn key_location(self) -> Location {
        self.key_at
    }

    /// Whether one of these keys was removed from the table as invalid.
    pub(super) fn lost_any(self, keys: &[&str]) -> bool {
        self.table().is_some_and(|table| table.lost.iter().any(|lost| keys.contains(&lost.as_str())))
    }

    /// Whether all parts of this value are valid.
    pub(super) fn is_sound(self) -> bool {
        match self.node.map(|node| &node.value) {
            Some(Value::Table(table)) => !table.is_flawed,
            Some(Value::Array(items)) => items.iter().all(|item| match &item.value {
                Value::Table(table) => !table.is_flawed,
                _ => true,
            }),
            _ => true,
        }
    }

    /// A string for messages: as written, without the values of the environment.
    pub(super) fn shown<'s>(self, value: &'s str) -> &'s str
    where
        'a: 's,
    {
        match self.node.map(|node| &node.value) {
            Some(Value::String(text)) => text.shown(),
            _ => value,
        }
    }

    /// A remedy that quotes the value, which is allowed only if the value was written in the file.
    pub(super) fn remedy(self, quoting: String) -> String {
        match self.node.map(|node| &node.value) {
            Some(Value::String(Text { written: Some(_), .. })) => CHECK_ENVIRONMENT.to_owned(),
            _ => quoting,
        }
    }

    fn table(self) -> Option<&'a Table> {
        match self.node.map(|node| &node.value) {
            Some(Value::Table(table)) => Some(table),
            _ => None,
        }
    }
}

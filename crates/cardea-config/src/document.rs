//! The configuration as it was written: one tree of values that know where they stand.

use std::collections::BTreeMap;

use super::source::{Place, Sources};

/// Everything that was read: one tree from all files.
pub(super) struct Document {
    /// The top level.
    pub(super) root: Node,
    /// The files.
    pub(super) sources: Sources,
    /// A file could not be read, or not to its end: what seems to be missing may be in there.
    pub(super) incomplete: bool,
}

impl Document {
    pub(super) fn empty() -> Self {
        let root = Node { at: Place::default(), value: Value::Table(Table::default()) };
        Self { root, sources: Sources::default(), incomplete: false }
    }
}

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

/// A value of TOML 1.1, as far as the configuration uses them.
#[derive(Debug)]
pub(super) enum Value {
    String(Text),
    Integer(i64),
    Float,
    Boolean(bool),
    Datetime,
    Array(Vec<Node>),
    Table(Table),
    /// A value that could not be found out, and was reported; nothing that depends on it is judged.
    Unknown,
}

/// A string, after references to the environment were replaced.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) value: String,
    /// As it was written, where that differs: what messages show, since the environment may hold secrets.
    pub(super) written: Option<Box<str>>,
}

/// A table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: BTreeMap<String, Entry>,
    /// Keys that were taken out because they did not fit, or were probably meant by ones that do not exist.
    pub(super) lost: Vec<String>,
    /// Something in it or below it did not fit.
    pub(super) is_flawed: bool,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key_at: Place,
    pub(super) node: Node,
}

impl Text {
    /// The text that messages may show.
    pub(super) fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.value)
    }
}

impl Value {
    /// The value's type, in words.
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

/// A place in the tree that is walked beside the deserialised structs, for messages and relative paths.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    node: Option<&'a Node>,
    key_at: Place,
    place: Place,
}

impl<'a> Cursor<'a> {
    pub(super) fn root(root: &'a Node) -> Self {
        Self { node: Some(root), key_at: root.at, place: root.at }
    }

    /// A place alone, without a value.
    pub(super) fn nowhere(place: Place) -> Self {
        Self { node: None, key_at: place, place }
    }

    /// The value of a key; where it was not written, the table's own place.
    pub(super) fn key(self, key: &str) -> Self {
        match self.table().and_then(|table| table.entries.get(key)) {
            Some(entry) => Self { node: Some(&entry.node), key_at: entry.key_at, place: entry.node.at },
            None => Self { node: None, key_at: self.place, place: self.place },
        }
    }

    /// An element of a list.
    pub(super) fn index(self, index: usize) -> Self {
        match self.node.map(|node| &node.value) {
            Some(Value::Array(items)) => match items.get(index) {
                Some(node) => Self { node: Some(node), key_at: node.at, place: node.at },
                None => Self { node: None, ..self },
            },
            // One value stands for a list of one.
            _ => self,
        }
    }

    /// Where the value begins.
    pub(super) fn place(self) -> Place {
        self.place
    }

    /// Where the key begins that leads to the value.
    pub(super) fn key_place(self) -> Place {
        self.key_at
    }

    /// Whether this table lost one of these keys because it did not fit.
    pub(super) fn lost_any(self, keys: &[&str]) -> bool {
        self.table().is_some_and(|table| table.lost.iter().any(|lost| keys.contains(&lost.as_str())))
    }

    /// Whether all that was written in this value fits.
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

    /// What messages may show of a string: as written, without the environment's values.
    pub(super) fn shown<'s>(self, value: &'s str) -> &'s str
    where
        'a: 's,
    {
        match self.node.map(|node| &node.value) {
            Some(Value::String(text)) => text.shown(),
            _ => value,
        }
    }

    /// A remedy that quotes the value, which it may only where the value was written here.
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

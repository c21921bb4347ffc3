//! Fingerprints of configurations, for comparisons: a hash of each value, including defaults, so that writing out a
//! default is no change, and no secret is kept. The value of a key that names a file includes the content of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use super::{
    document::{Node, Table, Value},
    effect::Effect,
    shape::{Kind, Shape, TableShape},
    source::Location,
    text::Format,
};

/// Fingerprints are compared within one process. With a key that only the process knows, no hash reveals anything about
/// a secret.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Hashes of the contents of files, by the location of the value that names the file.
#[derive(Debug, Default)]
pub(super) struct Contents(BTreeMap<Location, u64>);

impl Contents {
    /// Records the content of the file that is named at `at`.
    pub(super) fn note(&mut self, at: Location, content: &[u8]) {
        self.0.insert(at, HASH.hash_one(content));
    }
}

/// A key: the named table that it belongs to, if any, and its path in it.
type Key = (Option<Subject>, String);

/// A named table: a route, a service and so on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    /// The key of its list: `route`.
    kind: String,
    name: String,
}

/// The values of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Fingerprint(BTreeMap<Key, Entry>);

/// One value.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    /// Where it is written; for a default, where its table is.
    at: Location,
    effect: Effect,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// The part was added.
    Added,
    /// The part was removed.
    Removed,
    /// The value of the part changed.
    Changed,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The kind of the change.
    pub happened: Happened,
    /// `route`, `service` and so on, or `setting`.
    pub kind: String,
    /// The name; for a setting, its key.
    pub name: String,
    /// The keys that differ, if a named table changed.
    pub keys: Vec<String>,
}

impl Fingerprint {
    pub(super) fn of(root: &Node, shape: &Shape, contents: &Contents) -> Self {
        let mut reader = Reader { contents, found: BTreeMap::new() };
        if let (Value::Table(table), Kind::Table(shape)) = (&root.value, &shape.kind) {
            reader.table(Some(table), shape, "", None, root.at);
        }
        Self(reader.found)
    }

    /// Whether a key, of this or of another configuration, has an effect.
    fn has_effect(&self, other: &Self, key: &Key, effect: Effect) -> bool {
        self.0.get(key).or(other.0.get(key)).is_some_and(|entry| entry.effect == effect)
    }

    /// The keys whose values differ.
    fn changed<'a>(&'a self, new: &'a Self) -> BTreeSet<&'a Key> {
        let keys = self.0.keys().chain(new.0.keys());
        let hash = |found: Option<&Entry>| found.map(|entry| entry.hash);
        keys.filter(|key| hash(self.0.get(key)) != hash(new.0.get(key))).collect()
    }

    /// The keys with this effect whose values differ in `new`, in order.
    pub fn changed_with(&self, new: &Self, effect: Effect) -> Vec<String> {
        let changed = self.changed(new);
        let changed = changed.into_iter().filter(|key| self.has_effect(new, key, effect));
        changed.map(|(_, path)| path.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The keys with this effect whose values differ in `new`, and their locations there. For a section that was added
    /// or removed, only the section.
    pub fn changed_at(&self, new: &Self, effect: Effect) -> Vec<(String, Location)> {
        let changed = self.changed(new);
        let mut found: Vec<(String, Location)> = Vec::new();
        // Sorted: a section precedes its keys.
        for key in changed.iter().filter(|key| self.has_effect(new, key, effect)) {
            let is_within = |section: &str| {
                key.1.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
                    && self.0.contains_key(&(key.0.clone(), section.to_owned()))
                        != new.0.contains_key(&(key.0.clone(), section.to_owned()))
            };
            if !found.iter().any(|(section, _)| section == &key.1 || is_within(section)) {
                found.push((key.1.clone(), new.location(key)));
            }
        }
        found
    }

    /// The location of a key, or else of the closest section around it, or else the start of the configuration.
    fn location(&self, (subject, path): &Key) -> Location {
        let mut path = path.as_str();
        loop {
            if let Some(entry) = self.0.get(&(subject.clone(), path.to_owned())) {
                return entry.at;
            }
            match path.rsplit_once('.') {
                Some((section, _)) => path = section,
                None => return Location::default(),
            }
        }
    }

    /// The differences in `new`: settings first, then named tables, sorted.
    pub fn differences(&self, new: &Self) -> Vec<Difference> {
        let mut found: Vec<Difference> = Vec::new();
        for (subject, path) in self.changed(new) {
            let key = (subject.clone(), path.clone());
            let Some(subject) = subject else {
                found.push(Difference {
                    happened: happened(self.0.contains_key(&key), new.0.contains_key(&key)),
                    kind: "setting".to_owned(),
                    name: path.clone(),
                    keys: Vec::new(),
                });
                continue;
            };
            // The path of its list records its existence.
            let there = (Some(subject.clone()), subject.kind.clone());
            let happened = happened(self.0.contains_key(&there), new.0.contains_key(&there));
            let same = |one: &&mut Difference| one.kind == subject.kind && one.name == subject.name;
            // Sorted, so that all keys of a table are adjacent.
            let difference = match found.last_mut().filter(same) {
                Some(difference) => difference,
                None => {
                    let (kind, name) = (subject.kind.clone(), subject.name.clone());
                    found.push(Difference { happened, kind, name, keys: Vec::new() });
                    match found.last_mut() {
                        Some(last) => last,
                        None => continue,
                    }
                }
            };
            if happened == Happened::Changed
                && let Some(key) = path.strip_prefix(&format!("{}.", subject.kind))
            {
                difference.keys.push(key.to_owned());
            }
        }
        found
    }
}

/// Collects the values of a configuration.
struct Reader<'a> {
    contents: &'a Contents,
    found: BTreeMap<Key, Entry>,
}

impl Reader<'_> {
    fn table(
        &mut self,
        table: Option<&Table>,
        shape: &TableShape,
        path: &str,
        subject: Option<&Subject>,
        at: Location,
    ) {
        for (name, key) in &shape.keys {
            let effect = key.shape.effect;
            let entry = table.and_then(|table| table.entries.get(name));
            let (node, key_at) = (entry.map(|entry| &entry.node), entry.map_or(at, |entry| entry.key_at));
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match (&key.shape.kind, node.map(|node| &node.value)) {
                (Kind::List { item, .. }, Some(Value::Array(items)))
                    if subject.is_none() && is_named(item) =>
                {
                    items.iter().for_each(|node| self.item(node, item, name, &path));
                }
                (Kind::Table(inner), Some(Value::Table(table))) => {
                    if key.shape.default.is_none() {
                        // The existence of the section may be its only information.
                        self.enter(subject, path.clone(), "", key_at, effect);
                    }
                    self.table(Some(table), inner, &path, subject, key_at);
                }
                // There may be very many routes. Defaults of named tables are omitted, so that the cost follows what is
                // written.
                (_, None) if subject.is_some() => {}
                (Kind::Table(inner), None) if key.shape.default.is_some() => {
                    self.table(None, inner, &path, subject, at);
                }
                (_, Some(_)) => {
                    let Some(node) = node else { continue };
                    let (value, default) = (self.written(node, &key.shape), key.shape.default.as_ref());
                    let is_default = || default.is_some_and(|it| default_of(it, &key.shape) == value);
                    if subject.is_none() || !is_default() {
                        self.enter(subject, path, &value, key_at, effect);
                    }
                }
                (_, None) => {
                    if let Some(default) = &key.shape.default {
                        self.enter(subject, path, &default_of(default, &key.shape), at, effect);
                    }
                }
            }
        }
    }

    fn item(&mut self, node: &Node, shape: &Shape, kind: &str, path: &str) {
        let (Value::Table(table), Kind::Table(keys)) = (&node.value, &shape.kind) else { return };
        let Some(Value::String(name)) = table.entries.get("name").map(|entry| &entry.node.value) else {
            return;
        };
        let subject = Subject { kind: kind.to_owned(), name: name.value.clone() };
        self.enter(Some(&subject), path.to_owned(), "", node.at, shape.effect);
        self.table(Some(table), keys, path, Some(&subject), node.at);
    }

    fn enter(&mut self, subject: Option<&Subject>, path: String, value: &str, at: Location, effect: Effect) {
        self.found.insert((subject.cloned(), path), Entry { hash: HASH.hash_one(value), at, effect });
    }

    /// A value as text, with the content of the file that it names.
    fn written(&self, node: &Node, shape: &Shape) -> String {
        let item = item_of(shape);
        let mut value = match &node.value {
            Value::String(string) => text(&string.value, shape),
            Value::Integer(number) => number.to_string(),
            Value::Boolean(truth) => truth.to_string(),
            Value::Array(items) => {
                items.iter().map(|node| format!("{},", self.written(node, item))).collect()
            }
            Value::Table(table) => {
                let entries = table.entries.iter();
                entries.map(|(key, entry)| format!("{key:?}={},", self.written(&entry.node, item))).collect()
            }
            Value::Float | Value::Datetime | Value::Unknown => node.value.kind().to_owned(),
        };
        if let Some(content) = self.contents.0.get(&node.at) {
            value.push_str(&format!(" containing {content:x}"));
        }
        value
    }
}

fn happened(before: bool, after: bool) -> Happened {
    match (before, after) {
        (false, _) => Happened::Added,
        (true, false) => Happened::Removed,
        (true, true) => Happened::Changed,
    }
}

/// Whether these are tables with names.
fn is_named(item: &Shape) -> bool {
    matches!(&item.kind, Kind::Table(table) if table.keys.contains_key("name"))
}

/// The format of a text, for which `60s` and `1m` are equal.
fn format_of(shape: &Shape) -> Option<Format> {
    match &shape.kind {
        Kind::String { format, .. } => *format,
        Kind::Any(alternatives) => alternatives.iter().find_map(format_of),
        _ => None,
    }
}

fn text(value: &str, shape: &Shape) -> String {
    let measure = format_of(shape).and_then(|format| format.measure(value));
    measure.map_or_else(|| format!("{value:?}"), |measure| measure.to_string())
}

fn item_of(shape: &Shape) -> &Shape {
    match &shape.kind {
        Kind::List { item, .. } | Kind::Map(item) => item,
        _ => shape,
    }
}

fn default_of(value: &serde_json::Value, shape: &Shape) -> String {
    match value {
        serde_json::Value::String(string) => text(string, shape),
        serde_json::Value::Array(items) => {
            items.iter().map(|item| format!("{},", default_of(item, item_of(shape)))).collect()
        }
        serde_json::Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| format!("{key:?}={},", default_of(value, item_of(shape))))
            .collect(),
        other => other.to_string(),
    }
}

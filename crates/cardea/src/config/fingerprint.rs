//! What a configuration says, in a form that another one is compared with: a hash of each value, defaults included, so
//! that a default that is written out is no change, and no secret is kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{
    document::{Node, Table, Value},
    effect::Effect,
    shape::{Kind, Shape, TableShape},
    text::{Format, parse_duration, parse_size},
};

/// A key: what it belongs to, where that has a name, and its path without that name.
type Key = (Option<Subject>, String);

/// A route, a service and so on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    /// The key of its list: `route`.
    kind: String,
    name: String,
}

/// The values of a configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fingerprint(BTreeMap<Key, u64>);

/// What has become of a part of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happened {
    Added,
    Removed,
    Changed,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) happened: Happened,
    /// `route`, `service` and so on, or `setting`.
    pub(crate) kind: String,
    /// Its name; of a setting, its key.
    pub(crate) name: String,
    /// The keys that differ, where something with a name has changed.
    pub(crate) keys: Vec<String>,
}

impl Fingerprint {
    pub(super) fn of(root: &Node, shape: &Shape) -> Self {
        let mut this = Self::default();
        if let (Value::Table(table), Kind::Table(shape)) = (&root.value, &shape.kind) {
            this.table(Some(table), shape, "", None);
        }
        this
    }

    fn table(&mut self, table: Option<&Table>, shape: &TableShape, path: &str, subject: Option<&Subject>) {
        for (name, key) in &shape.keys {
            let node = table.and_then(|table| table.entries.get(name)).map(|entry| &entry.node);
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match (&key.shape.kind, node.map(|node| &node.value)) {
                (Kind::List { item, .. }, Some(Value::Array(items)))
                    if subject.is_none() && is_named(item) =>
                {
                    items.iter().for_each(|node| self.item(node, item, name, &path));
                }
                (Kind::Table(inner), Some(Value::Table(table))) => {
                    if key.shape.default.is_none() {
                        // That it is there may be all that there is to say.
                        self.enter(subject, path.clone(), "");
                    }
                    self.table(Some(table), inner, &path, subject);
                }
                // There may be very many routes. Defaults of what has a name are left out, so that this costs no more than
                // what is written.
                (_, None) if subject.is_some() => {}
                (Kind::Table(inner), None) if key.shape.default.is_some() => {
                    self.table(None, inner, &path, subject);
                }
                (_, Some(value)) => {
                    let (value, default) = (written(value, &key.shape), key.shape.default.as_ref());
                    let is_default = || default.is_some_and(|it| default_of(it, &key.shape) == value);
                    if subject.is_none() || !is_default() {
                        self.enter(subject, path, &value);
                    }
                }
                (_, None) => {
                    if let Some(default) = &key.shape.default {
                        self.enter(subject, path, &default_of(default, &key.shape));
                    }
                }
            }
        }
    }

    fn item(&mut self, node: &Node, shape: &Shape, kind: &str, path: &str) {
        let (Value::Table(table), Kind::Table(shape)) = (&node.value, &shape.kind) else { return };
        let Some(Value::String(name)) = table.entries.get("name").map(|entry| &entry.node.value) else {
            return;
        };
        let subject = Subject { kind: kind.to_owned(), name: name.value.clone() };
        self.enter(Some(&subject), path.to_owned(), "");
        self.table(Some(table), shape, path, Some(&subject));
    }

    fn enter(&mut self, subject: Option<&Subject>, path: String, value: &str) {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        self.0.insert((subject.cloned(), path), hasher.finish());
    }

    /// The keys whose values differ.
    fn changed<'a>(&'a self, new: &'a Self) -> BTreeSet<&'a Key> {
        let keys = self.0.keys().chain(new.0.keys());
        keys.filter(|key| self.0.get(key) != new.0.get(key)).collect()
    }

    /// The keys with this effect whose values differ in `new`, in order.
    pub(crate) fn changed_with(&self, new: &Self, effect: Effect) -> Vec<String> {
        let changed = self.changed(new);
        let paths = changed.iter().map(|(_, path)| path).filter(|path| Effect::of(path) == effect);
        paths.cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What is different in `new`: settings first, then what has a name, in order.
    pub(crate) fn differences(&self, new: &Self) -> Vec<Difference> {
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
            // Its list's path is that it is there.
            let there = (Some(subject.clone()), subject.kind.clone());
            let happened = happened(self.0.contains_key(&there), new.0.contains_key(&there));
            let same = |one: &&mut Difference| one.kind == subject.kind && one.name == subject.name;
            // They are in order, and what belongs to one comes together.
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

fn happened(before: bool, after: bool) -> Happened {
    match (before, after) {
        (false, _) => Happened::Added,
        (true, false) => Happened::Removed,
        (true, true) => Happened::Changed,
    }
}

/// Whether these are tables that have names.
fn is_named(item: &Shape) -> bool {
    matches!(&item.kind, Kind::Table(table) if table.keys.contains_key("name"))
}

/// The format of a text, by which `60s` and `1m` are the same.
fn format_of(shape: &Shape) -> Option<Format> {
    match &shape.kind {
        Kind::String { format, .. } => *format,
        Kind::Any(alternatives) => alternatives.iter().find_map(format_of),
        _ => None,
    }
}

fn text(value: &str, shape: &Shape) -> String {
    let meant = match format_of(shape) {
        Some(Format::Duration) => parse_duration(value).ok().map(|duration| format!("{duration:?}")),
        Some(Format::Size) => parse_size(value).ok().map(|size| size.to_string()),
        _ => None,
    };
    meant.unwrap_or_else(|| format!("{value:?}"))
}

fn item_of(shape: &Shape) -> &Shape {
    match &shape.kind {
        Kind::List { item, .. } | Kind::Map(item) => item,
        _ => shape,
    }
}

fn written(value: &Value, shape: &Shape) -> String {
    match value {
        Value::String(string) => text(&string.value, shape),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Array(items) => {
            items.iter().map(|node| format!("{},", written(&node.value, item_of(shape)))).collect()
        }
        Value::Table(table) => table
            .entries
            .iter()
            .map(|(key, entry)| format!("{key:?}={},", written(&entry.node.value, item_of(shape))))
            .collect(),
        Value::Float | Value::Datetime | Value::Unknown => value.kind().to_owned(),
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

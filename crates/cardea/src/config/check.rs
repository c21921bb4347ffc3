//! Holds a tree against the shape of the configuration: unknown keys, wrong types, values out of their limits,
//! missing keys. What does not fit is taken out, so that everything else can still be judged.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    document::{CHECK_ENVIRONMENT, Node, Table, Text, Value},
    problem::Problems,
    shape::{Kind, Shape, TableShape, words_of},
    source::Place,
    suggest,
    text::Format,
};

/// Elements of the lists at the top level (services, issuers, …) that were taken out, by their list.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    names: BTreeMap<String, Vec<Option<String>>>,
}

impl Dropped {
    /// Whether `name` may be that of an element that was written but did not fit.
    pub(super) fn may_be(&self, list: &str, name: &str) -> bool {
        let names = self.names.get(list);
        names.is_some_and(|names| {
            names.iter().any(|dropped| dropped.as_deref().is_none_or(|known| known == name))
        })
    }

    /// Whether the list lost an element.
    pub(super) fn any(&self, list: &str) -> bool {
        self.names.contains_key(list)
    }
}

/// One check of a whole tree.
pub(super) struct Checker<'a> {
    problems: &'a mut Problems,
    /// Files whose remains are not worth judging.
    damaged: &'a BTreeSet<u32>,
    dropped: Dropped,
    depth: usize,
    /// An element was taken out of a list.
    lost_element: bool,
}

impl<'a> Checker<'a> {
    pub(super) fn new(problems: &'a mut Problems, damaged: &'a BTreeSet<u32>) -> Self {
        Self { problems, damaged, dropped: Dropped::default(), depth: 0, lost_element: false }
    }

    /// Checks the tree and takes out what does not fit.
    pub(super) fn check(mut self, root: &mut Node, shape: &Shape) -> Dropped {
        self.fits(root, shape, "the configuration");
        self.dropped
    }

    fn report(&mut self, at: Place, message: String, remedy: impl Into<String>) {
        if !self.damaged.contains(&at.file) {
            self.problems.add(at, message, remedy);
        }
    }

    /// Whether a value fits its shape, at least after something was taken out of it.
    fn fits(&mut self, node: &mut Node, shape: &Shape, name: &str) -> bool {
        let at = node.at;
        if let Value::String(text) = &node.value
            && let Some(value) = converted(text, shape)
        {
            node.value = value;
        }
        match (&mut node.value, &shape.kind) {
            (Value::Unknown, _) => false,
            (_, Kind::Any(alternatives)) => match alternatives.iter().find(|shape| takes(&node.value, shape))
            {
                Some(alternative) => self.fits(node, alternative, name),
                None => self.wrong_type(node, shape, name),
            },
            (Value::Table(table), Kind::Table(shape)) => self.table(at, table, shape, name),
            (Value::Table(table), Kind::Map(item)) => {
                let mut lost = Vec::new();
                table.entries.retain(|key, entry| {
                    let keep = self.fits(&mut entry.node, item, key);
                    if !keep {
                        lost.push(key.clone());
                    }
                    keep
                });
                table.lost.append(&mut lost);
                true
            }
            (Value::Array(items), Kind::List { item, items_min }) => {
                self.list(at, items, item, *items_min, name)
            }
            (Value::String(text), Kind::String { format, minimum, maximum }) => {
                let limits = (minimum.as_deref(), maximum.as_deref());
                format.is_none_or(|format| self.text(at, text, format, limits, name))
            }
            (Value::String(text), Kind::Choice(words)) => {
                if words.iter().any(|word| word.value == text.value) {
                    return true;
                }
                let near = suggest::nearest(&text.value, words.iter().map(|word| word.value.as_str()));
                let remedy = match near {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("write {}", words_of(words)),
                };
                self.report(at, format!("{:?} is not a value of {name}", text.shown()), remedy);
                false
            }
            (Value::Integer(number), Kind::Integer { minimum, maximum }) => {
                let inside = (minimum..=maximum).contains(&&*number);
                if !inside {
                    let message = format!("{number} is out of the limits of {name}");
                    self.report(at, message, format!("write a number from {minimum} to {maximum}"));
                }
                inside
            }
            (Value::Boolean(_), Kind::Boolean) => true,
            _ => self.wrong_type(node, shape, name),
        }
    }

    fn wrong_type(&mut self, node: &Node, shape: &Shape, name: &str) -> bool {
        let message = format!("{name} is {}, not {}", node.value.kind(), shape.expected());
        let remedy = match (&node.value, &shape.kind) {
            (Value::Table(_), Kind::List { item, .. }) if matches!(item.kind, Kind::Table(_)) => {
                "write its header with two brackets, [[…]]: there may be several".to_owned()
            }
            (Value::String(text), Kind::List { .. }) => format!("write {name} = [{:?}]", text.shown()),
            (Value::Integer(_) | Value::Float, Kind::String { format: Some(format), .. }) => {
                format!("write {name} = {:?} (a text with its unit)", format.example())
            }
            _ => "see its entry in the reference of the configuration".to_owned(),
        };
        self.report(node.at, message, remedy);
        false
    }

    fn table(&mut self, at: Place, table: &mut Table, shape: &TableShape, name: &str) -> bool {
        let written: Vec<String> = table.entries.keys().cloned().collect();
        self.depth += 1;
        for key in written {
            let Some(entry) = table.entries.get_mut(&key) else { continue };
            self.lost_element = false;
            let meant = match shape.keys.get(&key) {
                Some(known) if self.fits(&mut entry.node, &known.shape, &key) => {
                    if self.lost_element {
                        table.lost.push(key);
                    }
                    continue;
                }
                Some(_) => Some(key.clone()),
                None => self.unknown_key(entry.key_at, &key, shape, name),
            };
            table.entries.remove(&key);
            if let Some(meant) = meant {
                self.note_missing(&meant, shape);
                table.lost.push(meant);
            }
        }
        self.depth -= 1;

        let mut complete = true;
        for (key, known) in shape.keys.iter().filter(|(_, known)| known.required) {
            if table.entries.contains_key(key) {
                continue;
            }
            complete = false;
            // A key that was there but did not fit was reported as what it is.
            if !table.lost.contains(key) {
                let remedy =
                    known.remedy.clone().unwrap_or_else(|| format!("add {key} = {}", example(&known.shape)));
                self.report(at, format!("{name} has no {key}"), remedy);
            }
        }
        complete
    }

    /// A whole list at the top level that did not fit may have held any name.
    fn note_missing(&mut self, key: &str, shape: &TableShape) {
        if self.depth == 1
            && shape.keys.get(key).is_some_and(|key| matches!(key.shape.kind, Kind::List { .. }))
        {
            self.dropped.names.entry(key.to_owned()).or_default().push(None);
        }
    }

    /// Reports a key that does not exist, and returns the one that was probably meant.
    fn unknown_key(&mut self, at: Place, key: &str, shape: &TableShape, name: &str) -> Option<String> {
        let known: Vec<&str> = shape.keys.keys().map(String::as_str).collect();
        let near = suggest::key(key, &known);
        let remedy = match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("remove it; {name} takes: {}", known.join(", ")),
        };
        self.report(at, format!("unknown key {key:?}"), remedy);
        near.map(str::to_owned)
    }

    fn list(&mut self, at: Place, items: &mut Vec<Node>, item: &Shape, items_min: usize, name: &str) -> bool {
        if items.len() < items_min {
            self.report(at, format!("{name} is empty"), format!("give at least {items_min}"));
            return false;
        }
        let top_level = self.depth == 1;
        let mut lost_element = false;
        items.retain_mut(|node| {
            let keep = self.fits(node, item, name);
            lost_element |= !keep;
            if !keep && top_level {
                self.dropped.names.entry(name.to_owned()).or_default().push(name_of(node));
            }
            keep
        });
        self.lost_element = lost_element;
        items.len() >= items_min
    }

    fn text(
        &mut self,
        at: Place,
        text: &Text,
        format: Format,
        (minimum, maximum): (Option<&str>, Option<&str>),
        name: &str,
    ) -> bool {
        let shown = text.shown();
        if let Err(error) = format.check(&text.value) {
            // Remedies quote the value.
            let remedy = if text.written.is_some() { CHECK_ENVIRONMENT.to_owned() } else { error.remedy };
            self.report(at, format!("{shown:?} {}", error.message), remedy);
            return false;
        }
        let measured = format.measure(&text.value);
        let limit = |limit: Option<&str>| limit.and_then(|limit| format.measure(limit));
        let below = measured.zip(limit(minimum)).is_some_and(|(measured, minimum)| measured < minimum);
        let above = measured.zip(limit(maximum)).is_some_and(|(measured, maximum)| measured > maximum);
        if below || above {
            let remedy = match (minimum, maximum) {
                (Some(minimum), Some(maximum)) => format!("write {minimum:?} to {maximum:?}"),
                (Some(minimum), None) => format!("write at least {minimum:?}"),
                (None, maximum) => format!("write at most {:?}", maximum.unwrap_or_default()),
            };
            self.report(at, format!("{shown:?} is out of the limits of {name}"), remedy);
        }
        !below && !above
    }
}

/// A number or a boolean that came from the environment, which knows text only.
fn converted(text: &Text, shape: &Shape) -> Option<Value> {
    text.written.as_ref()?;
    match &shape.kind {
        Kind::Integer { .. } => text.value.parse().ok().map(Value::Integer),
        Kind::Boolean => text.value.parse().ok().map(Value::Boolean),
        Kind::Any(alternatives) => alternatives.iter().find_map(|alternative| converted(text, alternative)),
        _ => None,
    }
}

/// Whether a value is of the type that a shape is about.
fn takes(value: &Value, shape: &Shape) -> bool {
    matches!(
        (value, &shape.kind),
        (Value::String(_), Kind::String { .. } | Kind::Choice(_))
            | (Value::Integer(_), Kind::Integer { .. })
            | (Value::Boolean(_), Kind::Boolean)
            | (Value::Array(_), Kind::List { .. })
            | (Value::Table(_), Kind::Table(_) | Kind::Map(_))
    )
}

/// The name that an element gives itself.
fn name_of(node: &Node) -> Option<String> {
    match &node.value {
        Value::Table(table) => match &table.entries.get("name")?.node.value {
            Value::String(text) => Some(text.value.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// A value to show where one is missing.
fn example(shape: &Shape) -> String {
    match &shape.kind {
        Kind::String { format: Some(format), .. } => format!("{:?}", format.example()),
        Kind::String { format: None, .. } => "\"…\"".to_owned(),
        Kind::Choice(words) => words.first().map_or_else(String::new, |word| format!("{:?}", word.value)),
        Kind::Integer { minimum, .. } => (*minimum).max(1).to_string(),
        Kind::Boolean => "true".to_owned(),
        Kind::List { .. } => "[…]".to_owned(),
        Kind::Map(_) | Kind::Table(_) => "{ … }".to_owned(),
        Kind::Any(alternatives) => alternatives.first().map_or_else(String::new, example),
    }
}

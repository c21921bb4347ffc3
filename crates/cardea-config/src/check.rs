//! Checks a tree against the shape of the configuration: unknown keys, wrong types, values out of range, missing keys.
//! Invalid parts are removed, so that the rest can still be checked.

use std::collections::BTreeSet;

use super::{
    document::{CHECK_ENVIRONMENT, Entry, Node, Table, Text, Value},
    problem::Problems,
    shape::{Kind, Shape, TableShape, Word, words_of},
    source::Location,
    suggest,
    text::Format,
};

/// The top-level lists (services, issuers, …) that may have an element whose name is unknown.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    lists: BTreeSet<String>,
    /// A file was not read completely, so any list may.
    anything: bool,
}

impl Dropped {
    /// Whether the list lost an element, or the name of one.
    pub(super) fn any(&self, list: &str) -> bool {
        self.anything || self.lists.contains(list)
    }
}

/// One check of a whole tree.
pub(super) struct Checker<'a> {
    problems: &'a mut Problems,
    dropped: Dropped,
    depth: usize,
    /// The number of lists around the current value.
    lists: usize,
    /// Whether an element was removed from a list.
    lost_element: bool,
    /// The number of invalid parts so far.
    faults: usize,
    /// The number of placeholders so far.
    placeholders: usize,
    /// The names of issuers.
    issuers: Vec<String>,
}

impl<'a> Checker<'a> {
    /// A check of a tree; `incomplete` if a file could not be read completely.
    pub(super) fn new(problems: &'a mut Problems, incomplete: bool) -> Self {
        let dropped = Dropped { anything: incomplete, ..Dropped::default() };
        Self {
            problems,
            dropped,
            depth: 0,
            lists: 0,
            lost_element: false,
            faults: 0,
            placeholders: 0,
            issuers: Vec::new(),
        }
    }

    /// Checks the tree and removes invalid parts. If that leaves a required key without a value, a placeholder is
    /// inserted, about which nothing is reported, so that everything beside it can be checked.
    pub(super) fn check(mut self, root: &mut Node, shape: &Shape) -> Dropped {
        self.issuers = names_of(root, "issuer");
        self.fits(root, shape, "the configuration");
        self.dropped
    }

    fn report(&mut self, at: Location, message: String, remedy: impl Into<String>) {
        self.faults += 1;
        self.problems.add(at, message, remedy);
    }

    /// Whether a value has its shape, at least after invalid parts were removed.
    fn fits(&mut self, node: &mut Node, shape: &Shape, name: &str) -> bool {
        let at = node.at;
        if let Value::String(text) = &node.value
            && let Some(value) = converted(text, shape)
        {
            node.value = value;
        }
        match (&mut node.value, &shape.kind) {
            (Value::Unknown, _) => {
                self.faults += 1;
                false
            }
            (_, Kind::Any(alternatives)) => {
                let alternative = alternatives.iter().find(|shape| takes(&node.value, shape));
                match (&node.value, alternative) {
                    (Value::String(text), Some(Shape { kind: Kind::Choice(words), .. })) => {
                        self.word(at, text, words, Some(shape), name)
                    }
                    (_, Some(alternative)) => self.fits(node, alternative, name),
                    (_, None) => self.wrong_type(node, shape, name),
                }
            }
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
            (Value::String(text), Kind::Choice(words)) => self.word(at, text, words, None, name),
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

    /// Checks a word of a choice. `beside` are the other forms that the value can have.
    fn word(
        &mut self,
        at: Location,
        text: &Text,
        words: &[Word],
        beside: Option<&Shape>,
        name: &str,
    ) -> bool {
        if words.iter().any(|word| word.value == text.value) {
            return true;
        }
        // A remedy never suggests a word that opens access.
        let harmless = words.iter().filter(|word| !word.opens);
        let near = suggest::nearest(&text.value, harmless.map(|word| word.value.as_str()));
        let remedy = match (near, beside) {
            (None, Some(beside)) if takes_issuer(beside) => {
                match suggest::nearest(&text.value, self.issuers.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean {name} = {{ issuer = {near:?} }}?"),
                    None => beside.remedy.clone().unwrap_or_default(),
                }
            }
            (Some(near), _) => format!("did you mean {near:?}?"),
            (None, Some(Shape { remedy: Some(remedy), .. })) => remedy.clone(),
            (None, Some(shape)) => format!("write {}", shape.expected()),
            (None, None) => format!("write {}", words_of(words)),
        };
        self.report(at, format!("{:?} is not a value of {name}", text.shown()), remedy);
        false
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
            _ => match &shape.remedy {
                Some(remedy) => remedy.clone(),
                None => "see its entry in the reference of the configuration".to_owned(),
            },
        };
        self.report(node.at, message, remedy);
        false
    }

    fn table(&mut self, at: Location, table: &mut Table, shape: &TableShape, name: &str) -> bool {
        let written: Vec<String> = table.entries.keys().cloned().collect();
        let faults = self.faults;
        if self.dropped.anything && self.lists == 0 {
            // The key may be in the file that was not read.
            let absent = shape.keys.keys().filter(|key| !table.entries.contains_key(*key));
            table.lost.extend(absent.cloned());
        }
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

        for (key, known) in shape.keys.iter().filter(|(_, known)| known.required) {
            if table.entries.contains_key(key) {
                continue;
            }
            // An invalid key was reported as such.
            if !table.lost.contains(key) {
                let remedy = known
                    .shape
                    .remedy
                    .clone()
                    .unwrap_or_else(|| format!("add {key} = {}", example(&known.shape)));
                self.report(at, format!("{name} has no {key}"), remedy);
                table.lost.push(key.clone());
            }
            let node = self.placeholder(&known.shape);
            table.entries.insert(key.clone(), Entry { key_at: Location::NOWHERE, node });
        }
        table.is_flawed |= self.faults > faults;
        true
    }

    /// A placeholder for a missing or invalid value. It is unique, and grants no access.
    fn placeholder(&mut self, shape: &Shape) -> Node {
        self.placeholders += 1;
        let value = match &shape.kind {
            Kind::String { format, minimum, .. } => {
                let value = match (format, minimum) {
                    (_, Some(minimum)) => minimum.clone(),
                    (Some(Format::BindAddress), None) => "127.0.0.1:0".to_owned(),
                    (Some(Format::Address), None) => format!("placeholder-{}.invalid:1", self.placeholders),
                    (Some(Format::Name) | None, None) => format!("placeholder-{}", self.placeholders),
                    (Some(format), None) => format.example().to_owned(),
                };
                Value::String(Text { value, written: None })
            }
            Kind::Choice(words) => {
                let value = words.first().map_or_else(String::new, |word| word.value.clone());
                Value::String(Text { value, written: None })
            }
            Kind::Integer { minimum, .. } => Value::Integer(*minimum),
            Kind::Boolean => Value::Boolean(false),
            Kind::List { item, items_min } => {
                Value::Array((0..*items_min).map(|_| self.placeholder(item)).collect())
            }
            Kind::Map(_) => Value::Table(Table { is_flawed: true, ..Table::default() }),
            Kind::Table(shape) => {
                let mut table = Table { is_flawed: true, ..Table::default() };
                for (key, known) in shape.keys.iter() {
                    table.lost.push(key.clone());
                    if known.required {
                        let node = self.placeholder(&known.shape);
                        table.entries.insert(key.clone(), Entry { key_at: Location::NOWHERE, node });
                    }
                }
                Value::Table(table)
            }
            // A table if there is one: of the forms of `auth`, the word means public access.
            Kind::Any(alternatives) => {
                let table = alternatives.iter().find(|shape| matches!(shape.kind, Kind::Table(_)));
                return match table.or(alternatives.first()) {
                    Some(shape) => self.placeholder(shape),
                    None => Node { at: Location::NOWHERE, value: Value::Boolean(false) },
                };
            }
        };
        Node { at: Location::NOWHERE, value }
    }

    /// A whole top-level list that is invalid may have contained any name.
    fn note_missing(&mut self, key: &str, shape: &TableShape) {
        if self.depth == 1
            && shape.keys.get(key).is_some_and(|key| matches!(key.shape.kind, Kind::List { .. }))
        {
            self.dropped.lists.insert(key.to_owned());
        }
    }

    /// Reports an unknown key, and returns the key that was probably meant.
    fn unknown_key(&mut self, at: Location, key: &str, shape: &TableShape, name: &str) -> Option<String> {
        let known: Vec<&str> = shape.keys.keys().map(String::as_str).collect();
        let near = suggest::key(key, &known);
        let remedy = match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("remove it; {name} takes: {}", known.join(", ")),
        };
        self.report(at, format!("unknown key {key:?}"), remedy);
        near.map(str::to_owned)
    }

    fn list(
        &mut self,
        at: Location,
        items: &mut Vec<Node>,
        item: &Shape,
        items_min: usize,
        name: &str,
    ) -> bool {
        if items.len() < items_min {
            self.report(at, format!("{name} is empty"), format!("give at least {items_min}"));
            return false;
        }
        let top_level = self.depth == 1;
        let mut lost_element = false;
        self.lists += 1;
        items.retain_mut(|node| {
            let keep = self.fits(node, item, name);
            lost_element |= !keep;
            if top_level && (!keep || lost_its_name(node)) {
                self.dropped.lists.insert(name.to_owned());
            }
            keep
        });
        self.lists -= 1;
        self.lost_element = lost_element;
        items.len() >= items_min
    }

    fn text(
        &mut self,
        at: Location,
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

/// A number or a boolean from the environment, which contains text only.
fn converted(text: &Text, shape: &Shape) -> Option<Value> {
    text.written.as_ref()?;
    match &shape.kind {
        Kind::Integer { .. } => text.value.parse().ok().map(Value::Integer),
        Kind::Boolean => text.value.parse().ok().map(Value::Boolean),
        Kind::Any(alternatives) => alternatives.iter().find_map(|alternative| converted(text, alternative)),
        _ => None,
    }
}

/// Whether a value has the type that a shape describes.
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

/// The names of the tables of a top-level list.
fn names_of(root: &Node, list: &str) -> Vec<String> {
    let Value::Table(root) = &root.value else { return Vec::new() };
    let Some(Value::Array(items)) = root.entries.get(list).map(|entry| &entry.node.value) else {
        return Vec::new();
    };
    let name = |item: &Node| match &item.value {
        Value::Table(table) => match &table.entries.get("name")?.node.value {
            // A value of the environment may be a misplaced secret.
            Value::String(Text { value, written: None }) => Some(value.clone()),
            _ => None,
        },
        _ => None,
    };
    items.iter().filter_map(name).collect()
}

/// Whether a value can be a table that names an issuer.
fn takes_issuer(shape: &Shape) -> bool {
    let Kind::Any(alternatives) = &shape.kind else { return false };
    alternatives
        .iter()
        .any(|one| matches!(&one.kind, Kind::Table(table) if table.keys.contains_key("issuer")))
}

/// Whether the element's own name was replaced by a placeholder.
fn lost_its_name(node: &Node) -> bool {
    matches!(&node.value, Value::Table(table) if table.lost.iter().any(|key| key == "name"))
}

/// An example value for a missing key.
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

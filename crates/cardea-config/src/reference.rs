//! Generates the reference page of the configuration from the documentation of the types.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    schema,
    shape::{Kind, Shape, TableShape, Word},
    text::Format,
};

/// The command that generates the page, as shown on the page.
const COMMAND: &str = "cargo run -p cardea -- schema --markdown > docs/configuration.md";

/// The reference of the configuration in Markdown.
pub fn markdown() -> String {
    let root = schema::shape();
    let mut page = Page(String::new());
    page.line("# Configuration");
    page.line("");
    page.line(&format!(
        "<!-- Written from the documentation of the types in crates/cardea-config by\n     {COMMAND}\n     so change it there. -->"
    ));
    page.line("");
    page.paragraph(&root.description);
    page.line(
        "`cardea check --config FILE` reports every error of a configuration with its location and its remedy; \
         `cardea schema` prints the JSON Schema for editors; `cardea init` writes a first file.",
    );
    page.line("");
    page.line(
        "`cardea reload` (or SIGHUP) puts a changed file in force, all of it or nothing. Each key says when a change takes \
         effect: **at once**, for requests that begin afterwards; for **new connections**; or at a **restart**, until which \
         the old value holds and the rest of the file is put in force. A reload that changes a key on which others rely is \
         **refused** as a whole, and the key and its line are named. Files that the configuration names (certificates, authorities, keys, \
         maps) are read again by each reload.",
    );
    page.line("");
    if let Kind::Table(table) = &root.kind {
        page.contents(table);
        page.line("## Top level");
        page.line("");
        let is_section = |shape: &Shape| section_of(shape).is_some();
        page.keys(table, |shape| !is_section(shape));
        for (name, key) in &table.keys {
            page.section(name, &key.shape, 2);
        }
    }
    page.0.truncate(page.0.trim_end().len());
    page.0.push('\n');
    page.0
}

/// The anchor of a heading, as GitHub generates it: punctuation is removed, and each space becomes a hyphen.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | ' '));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    fn paragraph(&mut self, text: &str) {
        if !text.is_empty() {
            self.line(text);
            self.line("");
        }
    }

    fn contents(&mut self, table: &TableShape) {
        for (name, key) in &table.keys {
            if section_of(&key.shape).is_some() {
                let header = header(name, &key.shape);
                self.line(&format!("- [`{header}`](#{})", anchor(&header)));
            }
        }
        self.line("");
    }

    /// A table with its own heading, and the tables below it.
    fn section(&mut self, path: &str, shape: &Shape, level: usize) {
        let Some((table, description)) = section_of(shape) else { return };
        self.line(&format!("{} `{}`", "#".repeat(level), header(path, shape)));
        self.line("");
        self.paragraph(description);
        self.keys(table, |_| true);
        for (name, key) in &table.keys {
            self.section(&format!("{path}.{name}"), &key.shape, (level + 1).min(4));
        }
    }

    /// The keys of a table: the name first, then required keys, then the rest.
    fn keys(&mut self, table: &TableShape, is_listed: impl Fn(&Shape) -> bool) {
        let mut keys: Vec<_> = table.keys.iter().filter(|(_, key)| is_listed(&key.shape)).collect();
        keys.sort_by_key(|(name, key)| (name.as_str() != "name", !key.required, name.as_str()));
        for (name, key) in keys {
            let mut facts = vec![type_of(&key.shape)];
            if key.required {
                facts.push("required".to_owned());
            }
            if let Some(default) = key.shape.default.as_ref().and_then(default_of) {
                facts.push(format!("default `{default}`"));
            }
            facts.extend(limits_of(&key.shape));
            facts.push(key.shape.effect.text().to_owned());
            let mut entry = format!("- **`{name}`** ({})", facts.join("; "));
            let description = key.shape.description.replace('\n', "\n  ");
            if !description.is_empty() {
                let _ = write!(entry, ": {description}");
            }
            self.line(&entry);
            for word in words_of(&key.shape) {
                if !word.description.is_empty() {
                    self.line(&format!("  - `{:?}`: {}", word.value, word.description.replace('\n', " ")));
                }
            }
        }
        self.line("");
    }
}

/// A table that gets its own section, alone or in a list or among alternatives.
fn section_of(shape: &Shape) -> Option<(&TableShape, &str)> {
    match &shape.kind {
        Kind::Table(table) => Some((table, &shape.description)),
        Kind::List { item, .. } => match &item.kind {
            Kind::Table(table) => Some((table, either(&shape.description, &item.description))),
            _ => None,
        },
        Kind::Any(alternatives) => alternatives
            .iter()
            .filter(|alternative| matches!(alternative.kind, Kind::Table(_)))
            .find_map(section_of),
        _ => None,
    }
}

fn either<'a>(first: &'a str, second: &'a str) -> &'a str {
    if first.is_empty() { second } else { first }
}

fn header(path: &str, shape: &Shape) -> String {
    match shape.kind {
        Kind::List { .. } => format!("[[{path}]]"),
        Kind::Any(_) => format!("{path} = {{ … }}"),
        _ => format!("[{path}]"),
    }
}

fn type_of(shape: &Shape) -> String {
    match &shape.kind {
        Kind::String { format, .. } => format.map_or("text", Format::title).to_owned(),
        Kind::Choice(words) => {
            words.iter().map(|word| format!("`{:?}`", word.value)).collect::<Vec<_>>().join(", ")
        }
        Kind::Integer { .. } => "number".to_owned(),
        Kind::Boolean => "`true` or `false`".to_owned(),
        Kind::List { item, .. } => match &item.kind {
            Kind::Table(_) => "tables".to_owned(),
            _ => format!("list of: {}", type_of(item)),
        },
        Kind::Map(item) => format!("table of: {}", type_of(item)),
        Kind::Table(_) => "table".to_owned(),
        Kind::Any(alternatives) => alternatives.iter().map(type_of).collect::<Vec<_>>().join(", or "),
    }
}

fn limits_of(shape: &Shape) -> Option<String> {
    match &shape.kind {
        Kind::String { minimum, maximum, .. } => match (minimum, maximum) {
            (Some(minimum), Some(maximum)) => Some(format!("`\"{minimum}\"` to `\"{maximum}\"`")),
            (Some(minimum), None) => Some(format!("at least `\"{minimum}\"`")),
            (None, Some(maximum)) => Some(format!("at most `\"{maximum}\"`")),
            (None, None) => None,
        },
        Kind::Integer { minimum, maximum } => Some(format!("{minimum} to {maximum}")),
        Kind::List { items_min, .. } if *items_min > 0 => Some(format!("at least {items_min}")),
        Kind::Any(alternatives) => alternatives.iter().find_map(limits_of),
        _ => None,
    }
}

fn words_of(shape: &Shape) -> &[Word] {
    match &shape.kind {
        Kind::Choice(words) => words,
        Kind::List { item, .. } => words_of(item),
        _ => &[],
    }
}

/// A default as it would be written. Tables show the defaults of their keys instead.
fn default_of(default: &Value) -> Option<String> {
    match default {
        Value::Object(_) | Value::Null => None,
        Value::Array(items) => {
            Some(format!("[{}]", items.iter().filter_map(default_of).collect::<Vec<_>>().join(", ")))
        }
        other => Some(other.to_string()),
    }
}

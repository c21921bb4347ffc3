//! Attributes of the configuration, and the changes that routes make to attributes.

use std::{collections::BTreeMap, sync::Arc};

use cardea_env::{MapFile, Owned, Template, ValueSource};
use cardea_gateway::{
    exchange::Exchange,
    model::{AttributeChange, AttributeRule},
};

use super::{
    super::{
        document::Cursor,
        model::SourceText,
        raw::{OneOrMany, RawAttribute, RawAttributeEdits},
    },
    Resolver,
};

impl Resolver<'_> {
    /// Declares the attributes in order: each can read those before it.
    pub(super) fn attributes(&mut self, raw: Vec<RawAttribute>, at: Cursor<'_>) {
        self.lost_attributes = self.dropped.any("attribute");
        for (index, raw) in raw.into_iter().enumerate() {
            self.attribute(raw, at.index(index));
        }
    }

    fn attribute(&mut self, raw: RawAttribute, at: Cursor<'_>) {
        let before = self.problems.reported();
        let is_word = raw.name.starts_with(|first: char| first.is_ascii_lowercase())
            && raw.name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !is_word {
            self.error(
                at.key("name"),
                format!("{:?} is not the name of an attribute", at.key("name").shown(&raw.name)),
                "use lower-case letters, digits and _, a letter first",
            );
        }
        let written = [
            ("header", raw.header.is_some()),
            ("claim", raw.claim.is_some()),
            ("template", raw.template.is_some()),
            ("expression", raw.expression.is_some()),
            ("map", raw.map.is_some()),
        ];
        let source = self.only_one(&written, at, "an attribute comes from one place", "keep one of them");
        let entries = raw.map.as_ref().map(|map| self.map_file(&map.file, at.key("map").key("file")));
        let is_sound = self.is_sound_since(before, at);
        self.lost_attributes |= !is_sound;

        let text = |at: Cursor<'_>, text: String| SourceText { text, at: at.location() };
        // An attribute whose source was reported is declared without one, so that its readers are not reported too.
        let value = if let Some(header) = raw.header {
            self.attribute_of(text(at.key("header"), format!("request.headers.{header}")))
        } else if let Some(claim) = raw.claim {
            self.attribute_of(text(at.key("claim"), format!("token.claims.{claim}")))
        } else if let Some(written) = raw.template {
            self.value_template(&text(at.key("template"), written)).map(ValueSource::Template)
        } else if raw.expression.is_some() {
            self.expression(raw.expression, at.key("expression")).map(ValueSource::Expression)
        } else if let Some((map, entries)) = raw.map.zip(entries) {
            let key = self.value_template(&text(at.key("map").key("key"), map.key));
            let default = map.default.as_ref().map(|text| Owned::text(text.as_bytes()));
            key.map(|key| ValueSource::Map { key, entries: Arc::new(entries), default })
        } else {
            None
        };
        let name = format!("custom.{}", raw.name);
        let declared = self.names.declare(&name, value.unwrap_or(ValueSource::Nothing));
        // A repeated name was reported.
        let is_repeated = self.attributes.insert(name, source.is_some()).is_some();
        if let Err(error) = declared
            && is_sound
            && !is_repeated
        {
            self.error(at, error.to_string(), "give it another name");
        }
    }

    fn attribute_of(&mut self, written: SourceText) -> Option<ValueSource<Exchange>> {
        self.reference(&written).map(ValueSource::Attribute)
    }

    /// The template of an attribute, which may be secret. The headers that it reads count once the attribute is read.
    fn value_template(&mut self, written: &SourceText) -> Option<Template<Exchange>> {
        Template::compile_raw(&written.text, &self.names)
            .map_or_else(|error| self.template_problem(written, error), Some)
    }

    fn map_file(&mut self, written: &str, at: Cursor<'_>) -> MapFile {
        let content = self.file(at, written).1.unwrap_or_default();
        map_of(written, &content).unwrap_or_else(|error| {
            self.error(
                at,
                format!("{}: {error}", at.shown(written)),
                "write lines of a key, white space and a value; or JSON: an object whose members are texts",
            );
            MapFile::default()
        })
    }

    /// The changes of a route to attributes.
    pub(super) fn attribute_rules(
        &mut self,
        raw: OneOrMany<RawAttributeEdits>,
        at: Cursor<'_>,
    ) -> Vec<AttributeRule> {
        let mut rules = Vec::new();
        for (index, raw) in raw.into_vec().into_iter().enumerate() {
            self.attribute_edits(raw, at.index(index), &mut rules);
        }
        rules
    }

    fn attribute_edits(&mut self, raw: RawAttributeEdits, at: Cursor<'_>, rules: &mut Vec<AttributeRule>) {
        let when = raw.when.map(|when| self.condition(Some(when), at.key("when")));
        let mut changes = Vec::new();
        for (index, text) in raw.remove.into_iter().enumerate() {
            let name = SourceText { text, at: at.key("remove").index(index).location() };
            changes.extend(self.reference(&name).map(|name| (name, AttributeChange::Remove)));
        }
        for (name, value) in raw.set {
            let entry = at.key("set").key(&name);
            if !self.attributes.contains_key(&name) && !self.dropped.any("attribute") {
                self.problems.add(
                    entry.key_location(),
                    format!("{name:?} is not an attribute that this configuration adds"),
                    "add an [[attribute]], and write \"custom.\" and its name",
                );
            }
            let name = SourceText { text: name, at: entry.key_location() };
            let value = SourceText { text: value, at: entry.location() };
            let change = self.template(&value).map(AttributeChange::Set);
            changes.extend(self.reference(&name).zip(change));
        }
        // A condition that was reported makes no rule.
        if let Some(when) = when.map_or(Some(None), |when| when.map(Some)) {
            let rule = |(name, change)| AttributeRule { when: when.clone(), name, change };
            rules.extend(changes.into_iter().map(rule));
        }
    }
}

/// The entries of a file: JSON if its name says so, otherwise lines.
pub(crate) fn map_of(name: &str, content: &[u8]) -> Result<MapFile, String> {
    let text = std::str::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())?;
    if name.ends_with(".json") {
        let entries = serde_json::from_str::<BTreeMap<String, String>>(text);
        return entries.map(MapFile::from_iter).map_err(|error| error.to_string());
    }
    MapFile::parse(text).map_err(|error| error.to_string())
}

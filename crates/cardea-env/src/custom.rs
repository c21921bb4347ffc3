//! Custom attributes: names that the configuration declares, and where their values come from.

use std::fmt;
use std::sync::Arc;

use crate::escape::Escape;
use crate::expression::{Expression, FaultKind, Scratch};
use crate::map_file::MapFile;
use crate::overrides::{Answer, HasOverrides};
use crate::redaction::Hide;
use crate::reference::Reference;
use crate::template::Template;
use crate::value::{Kind, Owned, Value};

/// Where the value of a custom attribute comes from.
#[derive(Debug)]
#[non_exhaustive]
pub enum Source<R: 'static> {
    /// Nowhere: it is absent until it is set while a request is served.
    Nothing,
    /// Another attribute, such as a header or a claim.
    Attribute(Reference<R>),
    /// Text with attributes in it; absent where one of them is, and has no default.
    Template(Template<R>),
    /// What an expression gives; absent where what it reads is, and a fault where it has another one.
    Expression(Expression<R>),
    /// What a map file has under a key.
    Map {
        /// The key; where it is absent, so is the value.
        key: Template<R>,
        /// What there is.
        entries: Arc<MapFile>,
        /// What there is under any other key.
        default: Option<Owned>,
    },
}

/// A custom attribute.
pub(crate) struct Custom<R: 'static> {
    name: Box<str>,
    slot: u16,
    registry: Arc<Registry>,
    source: Source<R>,
}

/// What the custom attributes of one configuration share.
pub(crate) struct Registry {
    /// Different for each configuration of the process.
    pub(crate) id: u64,
    /// How many custom attributes there are, by the time that requests are served.
    pub(crate) count: std::sync::atomic::AtomicUsize,
}

impl<R> Custom<R> {
    pub(crate) fn new(name: &str, slot: u16, registry: Arc<Registry>, source: Source<R>) -> Self {
        Self { name: name.into(), slot, registry, source }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn source(&self) -> &Source<R> {
        &self.source
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.source {
            Source::Nothing => Kind::Any,
            Source::Attribute(reference) => reference.kind,
            Source::Template(_) => Kind::Text,
            Source::Expression(expression) => expression.kind(),
            Source::Map { default, .. } => match default {
                None | Some(Owned::Text(_)) => Kind::Text,
                Some(_) => Kind::Any,
            },
        }
    }

    /// What must not be shown of it: all, if it is made of what must not be shown.
    pub(crate) fn hide(&self) -> Option<Hide> {
        match &self.source {
            Source::Nothing => None,
            Source::Attribute(reference) => reference.hide.clone(),
            Source::Template(template) | Source::Map { key: template, .. } => {
                template.reveals_secrets().then_some(Hide::Whole)
            }
            Source::Expression(expression) => expression.reveals_secrets().then_some(Hide::Whole),
        }
    }
}

impl<R: HasOverrides> Custom<R> {
    /// The value; computed for a request when it is first read, and then kept.
    pub(crate) fn read<'a>(&'a self, request: &'a R) -> Value<'a> {
        match &self.source {
            Source::Nothing => Value::Absent,
            Source::Attribute(reference) => reference.read(request),
            source => {
                let count = self.registry.count.load(std::sync::atomic::Ordering::Relaxed);
                let slot = usize::from(self.slot);
                request.overrides().memo(self.registry.id, count, slot, || compute(source, request))
            }
        }
    }
}

#[cold]
fn compute<R: HasOverrides>(source: &Source<R>, request: &R) -> Answer {
    let value = match source {
        Source::Nothing | Source::Attribute(_) => None,
        Source::Template(template) => match template.text(request) {
            (text, rendered) if !rendered.absent => Some(text),
            _ => None,
        },
        Source::Expression(expression) => match expression.evaluate(request, &Scratch::new()) {
            Ok(value) => Owned::of(value),
            Err(fault) if fault.kind == FaultKind::Absent => None,
            Err(_) => return Answer::Failed,
        },
        Source::Map { key, entries, default } => {
            let mut text = Vec::new();
            // The file is UTF-8.
            match key.render(request, Escape::Utf8, &mut text).absent {
                true => None,
                false => entries.get(&text).map(Owned::text).or_else(|| default.clone()),
            }
        }
    };
    value.map_or(Answer::Absent, Answer::Value)
}

impl<R> fmt::Debug for Custom<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Custom").field(&self.name).finish()
    }
}

//! Custom attributes: names that the configuration declares, and the sources of their values.

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

/// The source of a custom attribute's value.
#[derive(Debug)]
#[non_exhaustive]
pub enum ValueSource<R: 'static> {
    /// None: it is absent until it is set while a request is served.
    Nothing,
    /// Another attribute, such as a header or a claim.
    Attribute(Reference<R>),
    /// A template; absent if one of its attributes is and has no default.
    Template(Template<R>),
    /// An expression; absent if an attribute that it reads is, and failed after another fault.
    Expression(Expression<R>),
    /// A lookup in a map file.
    Map {
        /// The key; if it is absent, so is the value.
        key: Template<R>,
        /// The content of the file.
        entries: Arc<MapFile>,
        /// The value of unknown keys.
        default: Option<Owned>,
    },
}

/// A custom attribute.
pub(crate) struct Custom<R: 'static> {
    name: Box<str>,
    slot: u16,
    registry: Arc<Registry>,
    source: ValueSource<R>,
}

/// The state that the custom attributes of one configuration share.
pub(crate) struct Registry {
    /// Unique for each configuration of the process.
    pub(crate) id: u64,
    /// The number of custom attributes; final when requests are served.
    pub(crate) count: std::sync::atomic::AtomicUsize,
}

impl<R> Custom<R> {
    pub(crate) fn new(name: &str, slot: u16, registry: Arc<Registry>, source: ValueSource<R>) -> Self {
        Self { name: name.into(), slot, registry, source }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn source(&self) -> &ValueSource<R> {
        &self.source
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.source {
            ValueSource::Nothing => Kind::Any,
            ValueSource::Attribute(reference) => reference.kind,
            ValueSource::Template(_) => Kind::Text,
            ValueSource::Expression(expression) => expression.kind(),
            ValueSource::Map { default, .. } => match default {
                None | Some(Owned::Text(_)) => Kind::Text,
                Some(_) => Kind::Any,
            },
        }
    }

    /// The secret part: all of it, if its source reads a secret.
    pub(crate) fn hide(&self) -> Option<Hide> {
        match &self.source {
            ValueSource::Nothing => None,
            ValueSource::Attribute(reference) => reference.hide.clone(),
            ValueSource::Template(template) | ValueSource::Map { key: template, .. } => {
                template.reveals_secrets().then_some(Hide::Whole)
            }
            ValueSource::Expression(expression) => expression.reveals_secrets().then_some(Hide::Whole),
        }
    }
}

impl<R: HasOverrides> Custom<R> {
    /// The value, which is computed at the first read of a request, and then kept.
    pub(crate) fn read<'a>(&'a self, request: &'a R) -> Value<'a> {
        match &self.source {
            ValueSource::Nothing => Value::Absent,
            ValueSource::Attribute(reference) => reference.read(request),
            source => {
                let count = self.registry.count.load(std::sync::atomic::Ordering::Relaxed);
                let slot = usize::from(self.slot);
                request.overrides().memo(self.registry.id, count, slot, || compute(source, request))
            }
        }
    }
}

#[cold]
fn compute<R: HasOverrides>(source: &ValueSource<R>, request: &R) -> Answer {
    let value = match source {
        ValueSource::Nothing | ValueSource::Attribute(_) => None,
        ValueSource::Template(template) => match template.text(request) {
            (text, rendered) if !rendered.absent => Some(text),
            _ => None,
        },
        ValueSource::Expression(expression) => match expression.evaluate(request, &Scratch::new()) {
            Ok(value) => Owned::of(value),
            Err(fault) if fault.kind == FaultKind::Absent => None,
            Err(_) => return Answer::Failed,
        },
        ValueSource::Map { key, entries, default } => {
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

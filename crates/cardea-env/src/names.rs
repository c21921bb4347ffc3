//! The names of one configuration: the static table, and the custom attributes.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::FixedState;

use crate::custom::{Custom, Registry, ValueSource};
use crate::dictionary::Dictionary;
use crate::lookup::{Lookup, View, sealed};
use crate::overrides::HasOverrides;
use crate::redaction::Redaction;
use crate::reference::{Base, Reference};
use crate::table::{Table, shortened};
use crate::template::Template;
use crate::value::Kind;

#[cfg(test)]
mod tests;

/// The most custom attributes of a configuration.
const CUSTOM_MAX: usize = 256;

/// The kind of a name of the table, with its index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Attribute(usize),
    Family(usize),
}

/// A static table, the custom attributes of one configuration, and its redaction.
pub struct Names<R: 'static> {
    table: &'static Table<R>,
    custom: Vec<Arc<Custom<R>>>,
    registry: Arc<Registry>,
    redaction: Redaction,
    /// Attributes and families by name.
    index: HashMap<&'static str, Entry, FixedState>,
}

impl<R: HasOverrides> Names<R> {
    /// The names of a table.
    #[must_use]
    pub fn new(table: &'static Table<R>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let attributes = table.attributes().enumerate();
        let attributes = attributes.map(|(slot, attribute)| (attribute.name, Entry::Attribute(slot)));
        let families = table.families().enumerate().map(|(id, family)| (family.name(), Entry::Family(id)));
        Self {
            table,
            custom: Vec::new(),
            registry: Arc::new(Registry { id, count: AtomicUsize::new(0) }),
            redaction: Redaction::none(),
            // If both have the same name, the attribute is found, as in `Lookup::resolve`.
            index: families.chain(attributes).collect(),
        }
    }

    /// Sets the redaction. It must be called first, because it doesn't affect existing references.
    #[must_use]
    pub fn with_redaction(mut self, redaction: Redaction) -> Self {
        self.redaction = redaction;
        self
    }

    /// Declares a custom attribute. Its source can only read names that were declared before, so there are no cycles.
    ///
    /// # Errors
    ///
    /// If the name is taken or reserved for the table; if it is not made of lower-case words between dots; if there are
    /// 256 already.
    pub fn declare(&mut self, name: &str, source: ValueSource<R>) -> Result<(), DeclareError> {
        let word = |word: &str| {
            word.starts_with(|first: char| first.is_ascii_lowercase())
                && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        };
        let name_of = || name.to_owned();
        if !name.split('.').all(word) || name.len() > 128 {
            return Err(DeclareError::Form { name: name_of() });
        }
        // Names of the table share their first words: a later version may have this name.
        let first = name.split('.').next().unwrap_or(name);
        let taken = |known: &str| known.split('.').next() == Some(first);
        let attributes = self.table.attributes().map(|attribute| attribute.name);
        if attributes.chain(self.table.families().map(|family| family.prefix)).any(taken) {
            return Err(DeclareError::Reserved { name: name_of(), first: first.to_owned() });
        }
        let covers = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if self.custom.iter().any(|known| covers(known.name(), name) || covers(name, known.name())) {
            return Err(DeclareError::Taken { name: name_of() });
        }
        if self.custom.len() == CUSTOM_MAX {
            return Err(DeclareError::TooMany);
        }
        // Fewer than 256.
        let slot = self.custom.len() as u16;
        self.custom.push(Arc::new(Custom::new(name, slot, Arc::clone(&self.registry), source)));
        self.registry.count.store(self.custom.len(), Ordering::Relaxed);
        Ok(())
    }

    /// The custom attributes, in declaration order.
    pub fn custom(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.custom.iter().map(|custom| (custom.name(), custom.kind()))
    }

    /// The names of the table that a reference reads, through all custom attributes, and the custom attributes among
    /// them that only overrides set.
    #[must_use]
    pub fn sources(&self, reference: &Reference<R>) -> BTreeSet<String> {
        self.sources_of(vec![reference])
    }

    /// The names that the text of a template is computed from rather than contains: those read by its expressions, and
    /// by the expressions and map keys of its custom attributes.
    #[must_use]
    pub fn computed_from(&self, template: &Template<R>) -> BTreeSet<String> {
        let mut computed = Vec::new();
        let mut seen = BTreeSet::new();
        let mut shown = Vec::new();
        template.split(&mut computed, &mut shown);
        while let Some(reference) = shown.pop() {
            let Base::Custom(custom) = &reference.base else { continue };
            if !seen.insert(custom.slot()) {
                continue;
            }
            match custom.source() {
                ValueSource::Nothing => {}
                ValueSource::Attribute(reference) => shown.push(reference),
                ValueSource::Template(template) => template.split(&mut computed, &mut shown),
                ValueSource::Map { key, .. } => computed.extend(key.references()),
                ValueSource::Expression(expression) => {
                    computed.extend(expression.references().map(|(_, one)| one));
                }
            }
        }
        self.sources_of(computed)
    }

    fn sources_of(&self, mut rest: Vec<&Reference<R>>) -> BTreeSet<String> {
        let mut sources = BTreeSet::new();
        let mut seen = BTreeSet::new();
        while let Some(reference) = rest.pop() {
            let family = |id: u16| self.table.families.get(usize::from(id));
            let custom = match &reference.base {
                Base::Attribute { slot, .. } => {
                    let known = self.table.attributes.get(usize::from(*slot));
                    sources.extend(known.map(|known| known.name.to_owned()));
                    continue;
                }
                Base::Family { family: id, .. } => {
                    sources.extend(family(*id).map(|known| known.name().to_owned()));
                    continue;
                }
                Base::Member { family: id, key, .. } => {
                    sources.extend(family(*id).map(|known| format!("{}{}", known.prefix, key.text)));
                    continue;
                }
                Base::Custom(custom) if seen.insert(custom.slot()) => custom,
                Base::Custom(_) => continue,
            };
            match custom.source() {
                ValueSource::Nothing => {
                    sources.insert(custom.name().to_owned());
                }
                ValueSource::Attribute(reference) => rest.push(reference),
                ValueSource::Template(template) | ValueSource::Map { key: template, .. } => {
                    rest.extend(template.references());
                }
                ValueSource::Expression(expression) => {
                    rest.extend(expression.references().map(|(_, one)| one))
                }
            }
        }
        sources
    }

    /// The dictionary of a request.
    #[must_use]
    pub fn dictionary<'r>(&'r self, request: &'r R) -> Dictionary<'r, R> {
        Dictionary::new(self, request)
    }

    pub(crate) fn table(&self) -> &'static Table<R> {
        self.table
    }

    /// The attribute or family with that name.
    pub(crate) fn entry(&self, name: &str) -> Option<Entry> {
        self.index.get(name).copied()
    }

    pub(crate) fn custom_attributes(&self) -> &[Arc<Custom<R>>] {
        &self.custom
    }
}

impl<R> sealed::Sealed for Names<R> {}

impl<R> Lookup<R> for Names<R> {
    fn view(&self) -> View<'_, R> {
        View {
            attributes: self.table.attributes,
            families: self.table.families,
            custom: &self.custom,
            redaction: Some(&self.redaction),
        }
    }
}

impl<R> fmt::Debug for Names<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("custom", &self.custom).finish_non_exhaustive()
    }
}

/// A custom attribute that can't be declared, because of an error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclareError {
    /// The name is malformed.
    #[error("\"{}\" is not a valid name of an attribute: use lower-case words between dots", shortened(name))]
    Form {
        /// The name.
        name: String,
    },
    /// The first word is reserved for built-in attributes.
    #[error("\"{}\": names that begin with \"{first}\" are the gateway's own", shortened(name))]
    Reserved {
        /// The name.
        name: String,
        /// Its first word.
        first: String,
    },
    /// The name, or a prefix of it, is declared already.
    #[error("\"{}\" is declared already, or a name that it is a part of", shortened(name))]
    Taken {
        /// The name.
        name: String,
    },
    /// The limit is reached.
    #[error("at most {CUSTOM_MAX} custom attributes can be declared")]
    TooMany,
}

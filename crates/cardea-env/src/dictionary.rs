//! The environment of a request as a dictionary, by name.
//!
//! It consists of two references and costs nothing to create. Names in the configuration should be resolved when it is
//! loaded instead, with [`Lookup::resolve`](crate::Lookup::resolve).

use std::collections::BTreeMap;
use std::fmt;

use crate::lookup::split;
use crate::names::{Entry, Names};
use crate::overrides::{HasOverrides, Id};
use crate::value::{Owned, Value};

#[cfg(test)]
mod tests;

/// A request as a dictionary. Its entries are attributes, whole families, and custom attributes; absent ones are not
/// contained. Members of families can be looked up by their names.
pub struct Dictionary<'r, R: 'static> {
    names: &'r Names<R>,
    request: &'r R,
}

impl<'r, R: HasOverrides> Dictionary<'r, R> {
    pub(crate) fn new(names: &'r Names<R>, request: &'r R) -> Self {
        Self { names, request }
    }

    /// The value of a name, else `Absent`. It allocates nothing, except for members of a family without `map`.
    #[must_use]
    pub fn get(&self, name: &str) -> Value<'r> {
        match self.names.entry(name) {
            Some(Entry::Attribute(slot)) => return self.attribute(slot),
            Some(Entry::Family(id)) => return self.family(id),
            None => {}
        }
        if let Some(custom) = self.names.custom_attributes().iter().find(|custom| custom.name() == name) {
            return self.custom(usize::from(custom.slot()));
        }
        let families = self.names.table().families.iter().enumerate();
        let found = families
            .filter(|(_, family)| name.starts_with(family.name()))
            .filter(|(_, family)| matches!(name.as_bytes().get(family.name().len()), None | Some(b'.')))
            .max_by_key(|(_, family)| family.prefix.len());
        let Some((id, family)) = found else { return Value::Absent };
        let Some(key) = name.get(family.prefix.len()..).filter(|key| !key.is_empty()) else {
            return self.family(id);
        };
        if family.map.is_some() {
            let (key, path) = split(key, family.kind);
            return path
                .fold(self.family(id).member(key.as_bytes()), |value, key| value.member(key.as_bytes()));
        }
        let Ok(key) = (family.prepare)(key) else { return Value::Absent };
        let overrides = self.request.overrides();
        let changed =
            if overrides.is_untouched() { None } else { overrides.changed_member(id as u16, &key.text) };
        changed.unwrap_or_else(|| (family.read)(self.request, &key))
    }

    /// Whether a name has a value.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        !self.get(name).is_absent()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The entries: attributes, families, custom attributes, each in declaration order.
    pub fn iter(&self) -> impl Iterator<Item = (&'r str, Value<'r>)> {
        let table = self.names.table();
        let attributes =
            (0..table.attributes.len()).map(|slot| (table.attributes[slot].name, self.attribute(slot)));
        let families = (0..table.families.len()).map(|id| (table.families[id].name(), self.family(id)));
        let custom = self.names.custom_attributes().iter();
        let custom = custom.map(|custom| (custom.name(), self.custom(usize::from(custom.slot()))));
        attributes.chain(families).chain(custom).filter(|(_, value)| !value.is_absent())
    }

    /// An independent copy of all entries.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<String, Owned> {
        self.iter().filter_map(|(name, value)| Some((name.to_owned(), Owned::of(value)?))).collect()
    }

    fn attribute(&self, slot: usize) -> Value<'r> {
        let overrides = self.request.overrides();
        let changed =
            if overrides.is_untouched() { None } else { overrides.changed(&Id::Attribute(slot as u16)) };
        changed.unwrap_or_else(|| (self.names.table().attributes[slot].read)(self.request))
    }

    fn family(&self, id: usize) -> Value<'r> {
        let family = &self.names.table().families[id];
        let Some(read) = family.map else { return Value::Absent };
        let overrides = self.request.overrides();
        if overrides.is_untouched() {
            return read(self.request);
        }
        overrides.family(id as u16, family.folds_case(), || read(self.request))
    }

    fn custom(&self, slot: usize) -> Value<'r> {
        let overrides = self.request.overrides();
        let changed =
            if overrides.is_untouched() { None } else { overrides.changed(&Id::Custom(slot as u16)) };
        changed.unwrap_or_else(|| self.names.custom_attributes()[slot].read(self.request))
    }
}

/// Shows the names of the entries, but no values.
impl<R: HasOverrides> fmt::Debug for Dictionary<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

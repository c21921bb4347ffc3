//! A resolved name.

use std::fmt;
use std::sync::Arc;

use crate::custom::Custom;
use crate::overrides::{AttributeOverrides, FamilyId, HasOverrides, Id};
use crate::redaction::Hide;
use crate::table::Key;
use crate::value::{Kind, Value};

/// A resolved name of a table.
pub struct Reference<R: 'static> {
    pub(crate) kind: Kind,
    pub(crate) base: Base<R>,
    /// The path into the value.
    pub(crate) path: Box<[Box<str>]>,
    /// The secret part, if any.
    pub(crate) hide: Option<Hide>,
}

type ReadAttribute<R> = for<'a> fn(&'a R) -> Value<'a>;
type ReadMember<R> = for<'a> fn(&'a R, &Key) -> Value<'a>;

pub(crate) enum Base<R: 'static> {
    Attribute { slot: u16, read: ReadAttribute<R> },
    Member { family: FamilyId, key: Key, read: ReadMember<R> },
    Family { family: FamilyId, read: ReadAttribute<R>, fold: bool },
    Custom(Arc<Custom<R>>),
}

impl<R: HasOverrides> Reference<R> {
    /// Reads the value, including overrides. It allocates nothing, unless the table's function does, or a custom
    /// attribute is computed for the first time.
    ///
    /// Secrets are read too; writers must redact them.
    #[inline]
    #[must_use]
    pub fn read<'a>(&'a self, request: &'a R) -> Value<'a> {
        let overrides = request.overrides();
        let value = if overrides.is_untouched() {
            self.base.read(request)
        } else {
            self.base.read_changed(request, overrides)
        };
        if self.path.is_empty() { value } else { self.follow(value) }
    }

    fn follow<'a>(&self, value: Value<'a>) -> Value<'a> {
        self.path.iter().fold(value, |value, key| value.member(key.as_bytes()))
    }
}

impl<R: 'static> Reference<R> {
    /// The type of the values.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the value or a part of it is secret.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.hide.is_some()
    }

    /// The name that is changed by set or remove; `None` for a part of a value.
    pub(crate) fn id(&self) -> Option<Id> {
        self.path.is_empty().then(|| self.base.id())
    }
}

impl<R: 'static> Base<R> {
    fn id(&self) -> Id {
        match self {
            Base::Attribute { slot, .. } => Id::Attribute(*slot),
            Base::Member { family, key, .. } => Id::Member(*family, Arc::clone(&key.text)),
            Base::Family { family, .. } => Id::Family(*family),
            Base::Custom(custom) => Id::Custom(custom.slot()),
        }
    }
}

impl<R: HasOverrides> Base<R> {
    #[inline]
    fn read<'a>(&'a self, request: &'a R) -> Value<'a> {
        match self {
            Base::Attribute { read, .. } | Base::Family { read, .. } => read(request),
            Base::Member { read, key, .. } => read(request, key),
            Base::Custom(custom) => custom.read(request),
        }
    }

    #[cold]
    fn read_changed<'a>(&'a self, request: &'a R, overrides: &'a AttributeOverrides) -> Value<'a> {
        match self {
            Base::Attribute { slot, read } => {
                overrides.changed(&Id::Attribute(*slot)).unwrap_or_else(|| read(request))
            }
            Base::Member { family, key, read } => {
                overrides.changed_member(*family, &key.text).unwrap_or_else(|| read(request, key))
            }
            Base::Family { family, read, fold } => overrides.family(*family, *fold, || read(request)),
            Base::Custom(custom) => {
                overrides.changed(&Id::Custom(custom.slot())).unwrap_or_else(|| custom.read(request))
            }
        }
    }
}

impl<R: 'static> Clone for Reference<R> {
    fn clone(&self) -> Self {
        let base = match &self.base {
            Base::Attribute { slot, read } => Base::Attribute { slot: *slot, read: *read },
            Base::Member { family, key, read } => {
                Base::Member { family: *family, key: key.clone(), read: *read }
            }
            Base::Family { family, read, fold } => Base::Family { family: *family, read: *read, fold: *fold },
            Base::Custom(custom) => Base::Custom(Arc::clone(custom)),
        };
        Self { kind: self.kind, base, path: self.path.clone(), hide: self.hide.clone() }
    }
}

impl<R: 'static> fmt::Debug for Reference<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Reference");
        debug.field("kind", &self.kind).field("id", &self.base.id());
        if !self.path.is_empty() {
            debug.field("path", &self.path);
        }
        debug.finish()
    }
}

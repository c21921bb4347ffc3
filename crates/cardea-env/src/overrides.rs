//! The changes of one request to its environment: names that are set or removed, or all cleared.
//!
//! The table is static and shared by all requests. A change is stored in the request, and every read checks for one
//! first, which is a test of one flag if there are none. So a change affects only its request, and nothing is allocated
//! before the first one.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use crate::reference::Reference;
use crate::value::{Map, Owned, Value};

#[cfg(test)]
mod tests;

/// A request that may have overrides. Every read through a [`Reference`] checks them.
pub trait HasOverrides: 'static {
    /// The overrides of this request. A type without this method has none, and no computed custom attributes.
    fn overrides(&self) -> &AttributeOverrides {
        AttributeOverrides::none()
    }
}

/// The index of a family in its table.
pub(crate) type FamilyId = u16;

/// The overrides of one request, and its computed custom attributes.
///
/// It is part of the request. A new one allocates nothing; the first change takes 48 bytes, plus the value.
#[derive(Default)]
pub struct AttributeOverrides {
    touched: bool,
    cleared: bool,
    changes: Vec<Change>,
    memo: OnceLock<Box<Memo>>,
}

/// A name, or a whole family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Attribute(u16),
    Custom(u16),
    Family(FamilyId),
    Member(FamilyId, Arc<str>),
}

struct Change {
    id: Id,
    /// The new value; `None` if it was removed.
    value: Option<Owned>,
}

impl AttributeOverrides {
    /// No overrides.
    #[must_use]
    pub const fn new() -> Self {
        Self { touched: false, cleared: false, changes: Vec::new(), memo: OnceLock::new() }
    }

    /// The value for all requests that can't have overrides.
    #[must_use]
    pub fn none() -> &'static Self {
        static NONE: AttributeOverrides = AttributeOverrides::new();
        &NONE
    }

    /// Whether nothing was changed.
    #[inline]
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        !self.touched
    }

    /// Sets the value of a name. Setting a whole family replaces its members.
    ///
    /// # Errors
    ///
    /// If the reference is to a part of a value (`token.claims.a.b`): only names can be changed.
    pub fn set<R: HasOverrides>(&mut self, name: &Reference<R>, value: Owned) -> Result<(), NotAKey> {
        self.change(name, Some(value))
    }

    /// Removes a name; for a family, all of its members.
    ///
    /// # Errors
    ///
    /// If the reference is to a part of a value (`token.claims.a.b`): only names can be changed.
    pub fn remove<R: HasOverrides>(&mut self, name: &Reference<R>) -> Result<(), NotAKey> {
        self.change(name, None)
    }

    /// Removes all names until they are set.
    pub fn clear(&mut self) {
        self.touched = true;
        self.cleared = true;
        self.changes.clear();
        self.memo.take();
    }

    /// Resets it for the next request. A little memory is kept.
    pub fn reset(&mut self) {
        const KEPT_MAX: usize = 16;
        self.touched = false;
        self.cleared = false;
        self.changes.clear();
        self.changes.shrink_to(KEPT_MAX);
        self.memo.take();
    }

    fn change<R: HasOverrides>(&mut self, name: &Reference<R>, value: Option<Owned>) -> Result<(), NotAKey> {
        let id = name.id().ok_or(NotAKey)?;
        self.touched = true;
        // The values that were computed from the changed name.
        self.memo.take();
        if let Id::Family(family) = id {
            self.changes.retain(|change| !matches!(&change.id, Id::Member(of, _) if *of == family));
        }
        match self.changes.iter_mut().find(|change| change.id == id) {
            Some(change) => change.value = value,
            None => {
                // Most requests with changes have few, so no spare capacity is allocated.
                if self.changes.len() == self.changes.capacity() && self.changes.len() < 4 {
                    self.changes.reserve_exact(1);
                }
                self.changes.push(Change { id, value });
            }
        }
        Ok(())
    }

    /// The override of a name other than a member; `None` if it has none.
    pub(crate) fn changed(&self, id: &Id) -> Option<Value<'_>> {
        let change = self.changes.iter().find(|change| change.id == *id);
        match change {
            Some(change) => Some(change.value.as_ref().map_or(Value::Absent, Owned::value)),
            None => self.cleared.then_some(Value::Absent),
        }
    }

    /// The override of a member, its own or that of its family.
    pub(crate) fn changed_member(&self, family: FamilyId, key: &str) -> Option<Value<'_>> {
        self.member(family, key).or_else(|| Some(self.changed(&Id::Family(family))?.member(key.as_bytes())))
    }

    /// The override of a single member.
    fn member(&self, family: FamilyId, key: &str) -> Option<Value<'_>> {
        let same = |change: &&Change| matches!(&change.id, Id::Member(of, known) if *of == family && **known == *key);
        let change = self.changes.iter().find(same)?;
        Some(change.value.as_ref().map_or(Value::Absent, Owned::value))
    }

    /// A whole family with its overrides; `unchanged` reads it without. With `fold`, keys are case-insensitive.
    pub(crate) fn family<'a>(
        &'a self,
        family: FamilyId,
        fold: bool,
        unchanged: impl FnOnce() -> Value<'a>,
    ) -> Value<'a> {
        let base = self.changed(&Id::Family(family)).unwrap_or_else(unchanged);
        let member = |change: &Change| matches!(&change.id, Id::Member(of, _) if *of == family);
        if !self.changes.iter().any(member) {
            return base;
        }
        let map = match base {
            Value::Map(map) => map,
            _ => Map::of_entries(&[]),
        };
        let map = map.changed(Members { overrides: self, family, fold });
        let was_there = matches!(base, Value::Map(_));
        if was_there || !map.is_empty() { Value::Map(map) } else { Value::Absent }
    }
}

/// The overridden members of a family, through which its map is read.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    overrides: &'a AttributeOverrides,
    family: FamilyId,
    /// Whether keys are case-insensitive.
    fold: bool,
}

impl<'a> Members<'a> {
    /// The override of a member; `None` if it has none.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Value<'a>> {
        let same = |known: &str| {
            if self.fold { known.as_bytes().eq_ignore_ascii_case(key) } else { known.as_bytes() == key }
        };
        let change = self.overrides.changes.iter().find(
            |change| matches!(&change.id, Id::Member(of, known) if *of == self.family && same(known)),
        )?;
        Some(change.value.as_ref().map_or(Value::Absent, Owned::value))
    }

    /// Visits the members that were set.
    pub(crate) fn each(
        &self,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.overrides.changes.iter().try_for_each(|change| match (&change.id, &change.value) {
            (Id::Member(of, key), Some(value)) if *of == self.family => {
                visit(Value::Bytes(key.as_bytes()), value.value())
            }
            _ => ControlFlow::Continue(()),
        })
    }
}

/// Shows the number of overrides, but no values.
impl fmt::Debug for AttributeOverrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttributeOverrides")
            .field("cleared", &self.cleared)
            .field("changes", &self.changes.len())
            .finish_non_exhaustive()
    }
}

/// A reference to a part of a value, which can't be set or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only an attribute, a family or one of its members can be changed, not a part of a value")]
pub struct NotAKey;

/// The custom attributes that a request has computed since its last change.
struct Memo {
    /// The configuration that they belong to.
    registry: u64,
    answers: Box<[OnceLock<Answer>]>,
}

/// The result of computing a custom attribute.
pub(crate) enum Answer {
    Absent,
    Failed,
    Value(Owned),
}

impl AttributeOverrides {
    /// The result in a slot, which `compute` returns the first time. `registry` and `count` are those of the
    /// configuration; with another configuration it fails.
    pub(crate) fn memo(
        &self,
        registry: u64,
        count: usize,
        slot: usize,
        compute: impl FnOnce() -> Answer,
    ) -> Value<'_> {
        if std::ptr::eq(self, Self::none()) {
            return Value::Failed;
        }
        let memo = self.memo.get_or_init(|| {
            Box::new(Memo { registry, answers: (0..count).map(|_| OnceLock::new()).collect() })
        });
        match memo.answers.get(slot) {
            Some(answer) if memo.registry == registry => match answer.get_or_init(compute) {
                Answer::Absent => Value::Absent,
                Answer::Failed => Value::Failed,
                Answer::Value(value) => value.value(),
            },
            _ => Value::Failed,
        }
    }
}

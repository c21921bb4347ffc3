//! What one request changes in its environment: names set, removed, or all cleared.
//!
//! The table is static and the same for all requests. A change is noted beside it, in the request, and every
//! read asks for one first: a test of one flag where there are none. So a change belongs to its request, and
//! until the first one nothing is allocated.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use crate::reference::Reference;
use crate::value::{Map, Owned, Value};

#[cfg(test)]
mod tests;

/// A request that may have changes. Whatever reads through a [`Reference`] asks for them.
pub trait HasOverrides: 'static {
    /// The changes of this request. A type that leaves this out has none, and no custom attribute that is
    /// computed.
    fn overrides(&self) -> &AttributeOverrides {
        AttributeOverrides::none()
    }
}

/// The place of a family in its table.
pub(crate) type FamilyId = u16;

/// The changes of one request, and what it has computed of custom attributes.
///
/// Part of the request. A new one allocates nothing; the first change takes 48 bytes, and what was set.
#[derive(Default)]
pub struct AttributeOverrides {
    touched: bool,
    cleared: bool,
    changes: Vec<Change>,
    memo: OnceLock<Box<Memo>>,
}

/// A name, or all of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Attribute(u16),
    Custom(u16),
    Family(FamilyId),
    Member(FamilyId, Arc<str>),
}

struct Change {
    id: Id,
    /// What it is now; none where it was removed.
    value: Option<Owned>,
}

impl AttributeOverrides {
    /// No changes.
    #[must_use]
    pub const fn new() -> Self {
        Self { touched: false, cleared: false, changes: Vec::new(), memo: OnceLock::new() }
    }

    /// That of all requests which can't have changes.
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

    /// From here on, the name reads as this. Setting a family as a whole takes the place of its members.
    ///
    /// # Errors
    ///
    /// If the reference leads into a value (`token.claims.a.b`): only names can be changed.
    pub fn set<R: HasOverrides>(&mut self, name: &Reference<R>, value: Owned) -> Result<(), NotAKey> {
        self.change(name, Some(value))
    }

    /// From here on, the name reads as absent; the name of a family, all of its members.
    ///
    /// # Errors
    ///
    /// If the reference leads into a value (`token.claims.a.b`): only names can be changed.
    pub fn remove<R: HasOverrides>(&mut self, name: &Reference<R>) -> Result<(), NotAKey> {
        self.change(name, None)
    }

    /// From here on, each name reads as absent until it is set.
    pub fn clear(&mut self) {
        self.touched = true;
        self.cleared = true;
        self.changes.clear();
        self.memo.take();
    }

    /// As new, for the next request. A little memory is kept.
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
        // What was computed of what is changed now.
        self.memo.take();
        if let Id::Family(family) = id {
            self.changes.retain(|change| !matches!(&change.id, Id::Member(of, _) if *of == family));
        }
        match self.changes.iter_mut().find(|change| change.id == id) {
            Some(change) => change.value = value,
            None => {
                // A request that changes anything mostly changes little: no room for what may follow.
                if self.changes.len() == self.changes.capacity() && self.changes.len() < 4 {
                    self.changes.reserve_exact(1);
                }
                self.changes.push(Change { id, value });
            }
        }
        Ok(())
    }

    /// What a name other than a member was changed to; `None` where it was not.
    pub(crate) fn changed(&self, id: &Id) -> Option<Value<'_>> {
        let change = self.changes.iter().find(|change| change.id == *id);
        match change {
            Some(change) => Some(change.value.as_ref().map_or(Value::Absent, Owned::value)),
            None => self.cleared.then_some(Value::Absent),
        }
    }

    /// What a member was changed to, with its family or alone.
    pub(crate) fn changed_member(&self, family: FamilyId, key: &str) -> Option<Value<'_>> {
        self.member(family, key).or_else(|| Some(self.changed(&Id::Family(family))?.member(key.as_bytes())))
    }

    /// What a member was changed to alone.
    fn member(&self, family: FamilyId, key: &str) -> Option<Value<'_>> {
        let same = |change: &&Change| matches!(&change.id, Id::Member(of, known) if *of == family && **known == *key);
        let change = self.changes.iter().find(same)?;
        Some(change.value.as_ref().map_or(Value::Absent, Owned::value))
    }

    /// A family as a whole, with its changes; `unchanged` reads it without. `fold` says that keys which differ
    /// only in case are the same.
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

/// The changed members of a family, which its map is read through.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    overrides: &'a AttributeOverrides,
    family: FamilyId,
    /// Keys that differ only in case are the same.
    fold: bool,
}

impl<'a> Members<'a> {
    /// What a member was changed to; `None` where it was not.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Value<'a>> {
        let same = |known: &str| {
            if self.fold { known.as_bytes().eq_ignore_ascii_case(key) } else { known.as_bytes() == key }
        };
        let change = self.overrides.changes.iter().find(
            |change| matches!(&change.id, Id::Member(of, known) if *of == self.family && same(known)),
        )?;
        Some(change.value.as_ref().map_or(Value::Absent, Owned::value))
    }

    /// Shows the members that were set.
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

/// How many were changed, and nothing of what they hold.
impl fmt::Debug for AttributeOverrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttributeOverrides")
            .field("cleared", &self.cleared)
            .field("changes", &self.changes.len())
            .finish_non_exhaustive()
    }
}

/// A reference that leads into a value, and so can't be set or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only an attribute, a family or one of its members can be changed, not a part of a value")]
pub struct NotAKey;

/// What a request has computed of custom attributes since its last change.
struct Memo {
    /// Which configuration's they are.
    registry: u64,
    answers: Box<[OnceLock<Answer>]>,
}

/// What computing a custom attribute gave.
pub(crate) enum Answer {
    Absent,
    Failed,
    Value(Owned),
}

impl AttributeOverrides {
    /// The answer in a slot, which `compute` gives the first time. `registry` and `count` are those of the
    /// configuration: one of another is not mixed up with it, and fails.
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

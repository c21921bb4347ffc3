//! Lists and maps of the request, read in place.
//!
//! A view is a reference to a subject and a static set of functions that read it. A marker type selects the functions:
//! it can be implemented for foreign types, such as a JSON map, and a subject can have several views, as a request has
//! its headers and its cookies.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use super::Value;
use crate::overrides::Members;

/// Any type without borrows.
type Subject = dyn Any + 'static;

/// The callback for each entry of a map.
type Visit<'v, 'a> = &'v mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>;

/// Reads a subject as a map. Implemented by marker types.
pub trait MapOf: 'static {
    /// The type that is read.
    type Subject: 'static;

    /// The value of a key, else `Absent`. It must neither allocate nor block.
    fn get<'a>(subject: &'a Self::Subject, key: &[u8]) -> Value<'a>;

    /// Visits each key with its value once, until `visit` breaks; returns the last result of `visit`.
    fn each<'a>(
        subject: &'a Self::Subject,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()>;

    /// The number of keys.
    fn len(subject: &Self::Subject) -> usize {
        let mut count = 0;
        let _ = Self::each(subject, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }
}

/// Reads a subject as a list. Implemented by marker types.
pub trait ListOf: 'static {
    /// The type that is read.
    type Subject: 'static;

    /// The item with an index from 0, else `Absent`. It must neither allocate nor block.
    fn get(subject: &Self::Subject, index: usize) -> Value<'_>;

    /// The number of items.
    fn len(subject: &Self::Subject) -> usize;
}

struct MapFunctions {
    get: for<'a> fn(&'a Subject, &[u8]) -> Value<'a>,
    each: for<'a> fn(&'a Subject, Visit<'_, 'a>) -> ControlFlow<()>,
    len: fn(&Subject) -> usize,
}

struct ListFunctions {
    get: for<'a> fn(&'a Subject, usize) -> Value<'a>,
    len: fn(&Subject) -> usize,
}

/// The functions of a marker type. A view's subject always has the type that its functions expect, because both come
/// from the same marker; the other branch is unreachable.
struct Functions<M>(PhantomData<M>);

impl<M: MapOf> Functions<M> {
    const MAP: &'static MapFunctions = &MapFunctions {
        get: |subject, key| {
            subject.downcast_ref::<M::Subject>().map_or(Value::Absent, |subject| M::get(subject, key))
        },
        each: |subject, visit| match subject.downcast_ref::<M::Subject>() {
            Some(subject) => M::each(subject, visit),
            None => ControlFlow::Continue(()),
        },
        len: |subject| subject.downcast_ref::<M::Subject>().map_or(0, M::len),
    };
}

impl<L: ListOf> Functions<L> {
    const LIST: &'static ListFunctions = &ListFunctions {
        get: |subject, index| {
            subject.downcast_ref::<L::Subject>().map_or(Value::Absent, |subject| L::get(subject, index))
        },
        len: |subject| subject.downcast_ref::<L::Subject>().map_or(0, L::len),
    };
}

/// A map. Its keys are text, unless an expression created it.
#[derive(Clone, Copy)]
pub struct Map<'a> {
    form: MapForm<'a>,
    changes: Option<Members<'a>>,
}

#[derive(Clone, Copy)]
enum MapForm<'a> {
    View(&'a Subject, &'static MapFunctions),
    Entries(&'a [(Value<'a>, Value<'a>)]),
}

impl<'a> Map<'a> {
    /// A view of `subject`, as `M` reads it.
    #[must_use]
    pub fn of<M: MapOf>(subject: &'a M::Subject) -> Self {
        Self { form: MapForm::View(subject, Functions::<M>::MAP), changes: None }
    }

    /// A map of these entries with unique keys.
    pub(crate) fn of_entries(entries: &'a [(Value<'a>, Value<'a>)]) -> Self {
        Self { form: MapForm::Entries(entries), changes: None }
    }

    /// The same map with overrides.
    pub(crate) fn changed(self, changes: Members<'a>) -> Self {
        Self { form: self.form, changes: Some(changes) }
    }

    /// The value of a key, else `Absent`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Value<'a> {
        if let Some(changes) = self.changes
            && let Some(changed) = changes.get(key)
        {
            return changed;
        }
        match self.form {
            MapForm::View(subject, functions) => (functions.get)(subject, key),
            MapForm::Entries(entries) => entries
                .iter()
                .find(|(known, _)| matches!(known, Value::Bytes(known) if *known == key))
                .map_or(Value::Absent, |(_, value)| *value),
        }
    }

    /// The entries, if the map was created from entries.
    pub(crate) fn entries(&self) -> Option<&'a [(Value<'a>, Value<'a>)]> {
        match self.form {
            MapForm::Entries(entries) if self.changes.is_none() => Some(entries),
            _ => None,
        }
    }

    /// Visits each key with its value until `visit` breaks; returns the last result of `visit`.
    pub fn each(&self, visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>) -> ControlFlow<()> {
        match self.changes {
            None => self.each_unchanged(visit),
            Some(changes) => {
                self.each_unchanged(&mut |key, value| {
                    let hidden = matches!(key, Value::Bytes(key)
                        if changes.get(key).is_some());
                    if hidden { ControlFlow::Continue(()) } else { visit(key, value) }
                })?;
                changes.each(visit)
            }
        }
    }

    fn each_unchanged(
        &self,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self.form {
            MapForm::View(subject, functions) => (functions.each)(subject, visit),
            MapForm::Entries(entries) => entries.iter().try_for_each(|(key, value)| visit(*key, *value)),
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        match (self.changes, self.form) {
            (None, MapForm::View(subject, functions)) => (functions.len)(subject),
            (None, MapForm::Entries(entries)) => entries.len(),
            (Some(_), _) => {
                let mut count = 0;
                let _ = self.each(&mut |_, _| {
                    count += 1;
                    ControlFlow::Continue(())
                });
                count
            }
        }
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.each(&mut |_, _| ControlFlow::Break(())).is_continue()
    }
}

/// Keys are text and may be private: only their number is shown.
impl fmt::Debug for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({})", self.len())
    }
}

impl PartialEq for Map<'_> {
    fn eq(&self, other: &Self) -> bool {
        let same = |key: Value<'_>, value: Value<'_>| match key {
            Value::Bytes(key) if other.get(key) == value => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        self.len() == other.len() && self.each(&mut |key, value| same(key, value)).is_continue()
    }
}

/// A list.
#[derive(Clone, Copy)]
pub struct List<'a>(ListForm<'a>);

#[derive(Clone, Copy)]
enum ListForm<'a> {
    View(&'a Subject, &'static ListFunctions),
    Items(&'a [Value<'a>]),
}

impl<'a> List<'a> {
    /// A view of `subject`, as `L` reads it.
    #[must_use]
    pub fn of<L: ListOf>(subject: &'a L::Subject) -> Self {
        Self(ListForm::View(subject, Functions::<L>::LIST))
    }

    /// A list of these items.
    #[must_use]
    pub fn of_items(items: &'a [Value<'a>]) -> Self {
        Self(ListForm::Items(items))
    }

    /// The item with an index from 0, else `Absent`.
    #[must_use]
    pub fn get(&self, index: usize) -> Value<'a> {
        match self.0 {
            ListForm::View(subject, functions) => (functions.get)(subject, index),
            ListForm::Items(items) => items.get(index).copied().unwrap_or(Value::Absent),
        }
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            ListForm::View(subject, functions) => (functions.len)(subject),
            ListForm::Items(items) => items.len(),
        }
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Value<'a>> {
        (0..self.len()).map(move |index| self.get(index))
    }
}

/// Items may be private: only their number is shown.
impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({})", self.len())
    }
}

impl PartialEq for List<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

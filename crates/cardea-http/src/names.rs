//! Sets of field names, for fields that only the gateway may set, and what may not stand in trailers.
//!
//! Names are compared folded: without regard to case, and with every byte that is neither a letter nor a digit read as
//! `-`. CGI and what came after it (WSGI, Rack, PHP, lighttpd) make an environment variable of a field by such a rule,
//! so that `X.Auth~Subject` and `X-Auth-Subject` arrive at the program as the same `HTTP_X_AUTH_SUBJECT`.

#[cfg(test)]
mod tests;

use crate::chars::{self, ODD, is_token};
use crate::{Field, FieldError, Fields, Known};

/// A set of field names that are compared folded, with prefixes that include all names that begin with them.
#[derive(Debug, Clone, Default)]
pub struct HeaderNameSet {
    /// The members that are known names.
    known: u128,
    /// All members, folded, the shorter ones first.
    names: Vec<Box<[u8]>>,
    /// The ends of the members of each length in `names`; the last entry is for all longer ones.
    ends: Vec<u16>,
    /// Folded prefixes.
    prefixes: Vec<Box<[u8]>>,
    /// Names that no prefix includes.
    exceptions: Vec<Box<[u8]>>,
    /// The members in lower case, as given.
    spelled: Vec<Box<[u8]>>,
    /// Whether a member was given with punctuation other than `-`.
    is_odd: bool,
}

/// Names of this length and longer share an entry of [`HeaderNameSet::ends`].
const LENGTHS: usize = 48;

impl HeaderNameSet {
    /// A set of these names.
    ///
    /// # Errors
    /// [`FieldError::NameInvalid`] if one is no token.
    pub fn new<N: AsRef<[u8]>>(names: impl IntoIterator<Item = N>) -> Result<Self, FieldError> {
        let mut set = Self::default();
        for name in names {
            let name = name.as_ref();
            if !is_token(name) {
                return Err(FieldError::NameInvalid);
            }
            set.insert(name);
        }
        set.index();
        Ok(set)
    }

    /// This set with all names that begin with one of these. A [`Known`] name is a member only by its full name.
    ///
    /// # Errors
    /// [`FieldError::NameInvalid`] if one is no token.
    pub fn with_prefixes<N: AsRef<[u8]>>(
        mut self,
        prefixes: impl IntoIterator<Item = N>,
    ) -> Result<Self, FieldError> {
        for prefix in prefixes {
            let prefix = prefix.as_ref();
            if !is_token(prefix) {
                return Err(FieldError::NameInvalid);
            }
            self.prefixes.push(folded(prefix));
        }
        Ok(self)
    }

    /// This set, in which no prefix includes these names in this spelling, case-insensitive.
    ///
    /// # Errors
    /// [`FieldError::NameInvalid`] if one is no token.
    pub fn but_for<N: AsRef<[u8]>>(mut self, names: impl IntoIterator<Item = N>) -> Result<Self, FieldError> {
        for name in names {
            if !is_token(name.as_ref()) {
                return Err(FieldError::NameInvalid);
            }
            self.exceptions.push(name.as_ref().into());
        }
        Ok(self)
    }

    /// This set and the names of `other`.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for name in &other.spelled {
            self.insert(name);
        }
        self.prefixes.extend(other.prefixes.iter().cloned());
        self.exceptions.extend(other.exceptions.iter().cloned());
        self.index();
        self
    }

    fn insert(&mut self, name: &[u8]) {
        let folded = folded(name);
        if let Some(known) = Known::of(&folded) {
            self.known |= known.bit();
        }
        if !self.names.contains(&folded) {
            self.names.push(folded);
        }
        let spelled: Box<[u8]> = name.to_ascii_lowercase().into();
        if !self.spelled.contains(&spelled) {
            self.spelled.push(spelled);
        }
        self.is_odd |= is_odd(name);
    }

    fn index(&mut self) {
        self.names.sort_by_key(|name| name.len());
        self.ends = (0..=LENGTHS)
            .map(|len| {
                let end = self.names.partition_point(|name| name.len().min(LENGTHS) <= len);
                u16::try_from(end).unwrap_or(u16::MAX)
            })
            .collect();
    }

    /// Whether the name is in the set, in any spelling that folds to a member.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        let place = name.len().min(LENGTHS);
        let end_at = |place: usize| self.ends.get(place).map_or(0, |end| usize::from(*end));
        let start = place.checked_sub(1).map_or(0, end_at);
        let of_its_length = self.names.get(start..end_at(place)).unwrap_or_default();
        of_its_length.iter().any(|member| folds_to(name, member)) || self.has_prefix_of(name)
    }

    fn has_prefix_of(&self, name: &[u8]) -> bool {
        let begins = |prefix: &[u8]| name.get(..prefix.len()).is_some_and(|start| folds_to(start, prefix));
        self.prefixes.iter().any(|prefix| begins(prefix))
            && !self.exceptions.iter().any(|exception| name.eq_ignore_ascii_case(exception))
    }

    /// Whether the name is in the set in another spelling than the given one, case aside.
    #[must_use]
    pub fn contains_lookalike(&self, name: &[u8]) -> bool {
        self.contains(name) && !self.spelled.iter().any(|given| name.eq_ignore_ascii_case(given))
    }

    /// Whether the set has no names.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }
}

/// Removes all fields whose name is in the set, trailers or not; returns their number.
pub fn strip_named(fields: &mut Fields, names: &HeaderNameSet) -> usize {
    let hit = |field: Field<'_>| match field.known {
        Some(known) => names.known & known.bit() != 0,
        None => names.contains(field.name),
    };
    remove_if(fields, hit)
}

/// Removes every field whose name folds to a [`Known`] one without being it (`Content_Type`, `X.Forwarded.For`): a
/// service may read the one although decisions were based on the other. Returns their number.
pub fn strip_lookalikes(fields: &mut Fields) -> usize {
    if !fields.may_have_odd_names() {
        return 0;
    }
    remove_if(fields, |field| field.known.is_none() && known_by_fold(field.name).is_some())
}

/// Removes every field whose name folds to one in the set without having its spelling; returns their number.
pub fn strip_lookalikes_of(fields: &mut Fields, names: &HeaderNameSet) -> usize {
    if names.is_empty() || !(names.is_odd || fields.may_have_odd_names()) {
        return 0;
    }
    remove_if(fields, |field| names.contains_lookalike(field.name))
}

/// Removes the fields for which `hit` returns true. Usually there are none.
fn remove_if(fields: &mut Fields, mut hit: impl FnMut(Field<'_>) -> bool) -> usize {
    if !fields.iter().any(&mut hit) {
        return 0;
    }
    let before = fields.len();
    fields.retain(|field| !hit(field));
    before - fields.len()
}

/// Whether a field of this name is forbidden in a trailer section (RFC 9110 §6.5.1): fields for framing, routing,
/// authentication, request modifiers, response control or the format of the content.
///
/// Of the known names only `ETag` and `Server-Timing` are allowed. Names are folded.
#[must_use]
pub fn forbidden_in_trailers(name: &[u8]) -> bool {
    match Known::of(name).or_else(|| known_by_fold(name)) {
        Some(Known::Etag | Known::ServerTiming) => false,
        Some(_) => true,
        None => name.get(..8).is_some_and(|start| folds_to(start, b"content-")),
    }
}

/// Removes fields that are forbidden in trailers; returns the number of removed lines.
pub fn filter_trailers(trailers: &mut Fields) -> usize {
    let before = trailers.len();
    trailers.retain(|field| !forbidden_in_trailers(field.name));
    before - trailers.len()
}

/// Whether there is a field that some services treat as one of this name, with another spelling apart from case.
#[must_use]
pub fn has_lookalike(fields: &Fields, name: &[u8]) -> bool {
    (fields.may_have_odd_names() || is_odd(name))
        && fields.iter().any(|field| fold_alike(field.name, name) && !field.name.eq_ignore_ascii_case(name))
}

/// Whether two names are equal when folded.
#[must_use]
pub fn fold_alike(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(&one, &other)| fold(one) == fold(other))
}

/// Whether a name has punctuation other than `-`, so that it folds to another one.
pub(crate) fn is_odd(name: &[u8]) -> bool {
    name.iter().any(|&byte| chars::is(byte, ODD))
}

/// Whether `name` folds to `folded`.
pub(crate) fn folds_to(name: &[u8], folded: &[u8]) -> bool {
    name.len() == folded.len() && name.iter().zip(folded).all(|(&byte, &other)| fold(byte) == other)
}

/// The known name that a name folds to.
fn known_by_fold(name: &[u8]) -> Option<Known> {
    let mut room = [0; 64];
    let room = room.get_mut(..name.len())?;
    room.iter_mut().zip(name).for_each(|(to, &from)| *to = fold(from));
    Known::of(room)
}

fn folded(name: &[u8]) -> Box<[u8]> {
    name.iter().map(|&byte| fold(byte)).collect()
}

const fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

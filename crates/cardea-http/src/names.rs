//! Sets of field names, for fields that only we may set, and what may not stand in trailers.

#[cfg(test)]
mod tests;

use crate::chars::is_token;
use crate::{FieldError, Fields, Known};

/// A set of field names, read without regard to case and with `_` as `-`, as CGI and its heirs do.
#[derive(Debug, Clone, Default)]
pub struct HeaderNameSet {
    /// The members that are known names.
    known: u128,
    /// The others, folded.
    others: Vec<Box<[u8]>>,
    /// The lengths of the others: bit `len % 64`.
    lengths: u64,
}

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
            let folded: Box<[u8]> = name.iter().map(|&byte| fold(byte)).collect();
            if let Some(known) = Known::of(&folded) {
                set.known |= known.bit();
            }
            set.lengths |= length_bit(folded.len());
            if !set.others.contains(&folded) {
                set.others.push(folded);
            }
        }
        Ok(set)
    }

    /// Whether the name is in the set.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name.len()) != 0 && self.others.iter().any(|member| folds_to(name, member))
    }

    /// Whether the set has no names.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.others.is_empty()
    }
}

/// Removes all fields whose name is in the set, trailers or not; returns how many there were.
pub fn strip_named(fields: &mut Fields, names: &HeaderNameSet) -> usize {
    let hit = |field: crate::Field<'_>| match field.known {
        Some(known) => names.known & known.bit() != 0,
        None => names.contains(field.name),
    };
    // Nearly always there is nothing to remove.
    if !fields.iter().any(hit) {
        return 0;
    }
    let before = fields.len();
    fields.retain(|field| !hit(field));
    before - fields.len()
}

/// Whether a field of this name must not stand in a trailer section (RFC 9110 §6.5.1): what concerns framing,
/// routing, authentication, request modifiers, response control or the format of the content.
///
/// Of the names that we know only `ETag` and `Server-Timing` may stand there. Names are read with `_` as `-`.
#[must_use]
pub fn forbidden_in_trailers(name: &[u8]) -> bool {
    let known = Known::of(name).or_else(|| {
        let mut folded = [0; 64];
        let folded = folded.get_mut(..name.len())?;
        folded.iter_mut().zip(name).for_each(|(to, &from)| *to = fold(from));
        Known::of(folded)
    });
    match known {
        Some(Known::Etag | Known::ServerTiming) => false,
        Some(_) => true,
        None => name.get(..8).is_some_and(|start| folds_to(start, b"content-")),
    }
}

/// Removes what must not stand in trailers; returns how many lines that were.
pub fn filter_trailers(trailers: &mut Fields) -> usize {
    let before = trailers.len();
    trailers.retain(|field| !forbidden_in_trailers(field.name));
    before - trailers.len()
}

/// Whether `name` is `folded`, without regard to case and with `_` read as `-`.
pub(crate) fn folds_to(name: &[u8], folded: &[u8]) -> bool {
    name.len() == folded.len() && name.iter().zip(folded).all(|(&byte, &other)| fold(byte) == other)
}

const fn fold(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

const fn length_bit(len: usize) -> u64 {
    1 << (len % 64)
}

//! JSON records: one line per request, with fields that the configuration names.

use std::fmt;

use crate::escape::push_json;
use crate::lookup::Lookup;
use crate::overrides::HasOverrides;
use crate::reference::Reference;
use crate::table::{ResolveError, shortened};
use crate::value::format::Unit;
use crate::write::push_json_value;

#[cfg(test)]
mod tests;

/// The most fields of a record.
const FIELDS_MAX: usize = 128;

/// A compiled record: keys and their attributes.
///
/// Numbers and booleans are those of JSON. A duration is a number in the unit of its key's suffix (`_ms` with three
/// decimals, `_us`, `_ns`), else in seconds with six decimals; a time is an RFC 3339 string. Text that is not UTF-8 is
/// read as Latin-1. Lists are arrays and maps are objects. Absent values are omitted, and secrets are `"[redacted]"`.
pub struct JsonRecord<R: 'static> {
    fields: Box<[Field<R>]>,
}

struct Field<R: 'static> {
    /// `,"key":`
    intro: Box<[u8]>,
    unit: Unit,
    reference: Reference<R>,
}

impl<R: HasOverrides> JsonRecord<R> {
    /// Compiles a record of at most 128 fields, each a JSON key and an attribute.
    ///
    /// # Errors
    ///
    /// [`RecordError`], which names the field.
    pub fn compile<'f>(
        fields: impl IntoIterator<Item = (&'f str, &'f str)>,
        names: &impl Lookup<R>,
    ) -> Result<Self, RecordError> {
        let mut keys = Vec::new();
        let mut compiled = Vec::new();
        for (index, (key, name)) in fields.into_iter().enumerate() {
            if index == FIELDS_MAX {
                return Err(RecordError::TooManyFields);
            }
            if keys.contains(&key) {
                return Err(RecordError::DuplicateKey { index, key: key.to_owned() });
            }
            keys.push(key);
            let reference = names.resolve(name).map_err(|source| RecordError::Attribute { index, source })?;
            let mut intro = b",\"".to_vec();
            push_json(key.as_bytes(), &mut intro);
            intro.extend_from_slice(b"\":");
            compiled.push(Field { intro: intro.into(), unit: Unit::of_name(key), reference });
        }
        Ok(Self { fields: compiled.into() })
    }

    /// Appends one object and a line feed; the object contains no other line feed. It allocates only in `out`.
    pub fn write(&self, request: &R, out: &mut Vec<u8>) {
        let start = out.len();
        for field in &self.fields {
            let value = field.reference.read(request);
            if value.is_absent() {
                continue;
            }
            out.extend_from_slice(&field.intro);
            push_json_value(value, field.reference.hide.as_ref(), field.unit, out);
        }
        if out.len() == start {
            out.push(b'{');
        } else {
            // Replaces the first field's comma.
            out[start] = b'{';
        }
        out.extend_from_slice(b"}\n");
    }
}

impl<R> Clone for JsonRecord<R> {
    fn clone(&self) -> Self {
        let field = |field: &Field<R>| Field {
            intro: field.intro.clone(),
            unit: field.unit,
            reference: field.reference.clone(),
        };
        Self { fields: self.fields.iter().map(field).collect() }
    }
}

impl<R> fmt::Debug for JsonRecord<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let intros = self.fields.iter().map(|field| String::from_utf8_lossy(&field.intro));
        f.debug_list().entries(intros).finish()
    }
}

/// A record that does not compile, because of an error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A field reads an unknown attribute.
    #[error("{source}")]
    Attribute {
        /// The index of the field, from 0.
        index: usize,
        /// The error.
        source: ResolveError,
    },
    /// Two fields have the same key.
    #[error("the key \"{}\" is there twice", shortened(key))]
    DuplicateKey {
        /// The index of the second field, from 0.
        index: usize,
        /// The repeated key.
        key: String,
    },
    /// More fields than allowed.
    #[error("a record has at most {FIELDS_MAX} fields")]
    TooManyFields,
}

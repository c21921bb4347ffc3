//! Records as JSON: one line per request, of fields that the configuration names.

use std::fmt;

use crate::escape::push_json;
use crate::table::{Reference, ResolveError, Table, shortened};
use crate::value::{Unit, Value, address, integer, rfc3339};

#[cfg(test)]
mod tests;

/// The most fields of a record.
const FIELDS_MAX: usize = 128;

/// A compiled record: keys and what they read.
///
/// Numbers and truth values are JSON's own. A duration is a number in the unit that its key ends in (`_ms` with
/// three decimals, `_us`, `_ns`), else in seconds with six; a time is a string as RFC 3339 has it. Text that
/// is not UTF-8 is read as Latin-1. What is absent is left out.
pub struct JsonRecord<R: ?Sized> {
    fields: Box<[Field<R>]>,
}

struct Field<R: ?Sized> {
    /// `,"key":`
    intro: Box<[u8]>,
    unit: Unit,
    reference: Reference<R>,
}

impl<R: ?Sized> JsonRecord<R> {
    /// Compiles a record of at most 128 fields, each a JSON key and the attribute whose value it gets.
    ///
    /// # Errors
    ///
    /// [`RecordError`], which names the field.
    pub fn compile<'f>(
        fields: impl IntoIterator<Item = (&'f str, &'f str)>,
        table: &Table<R>,
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
            let reference = table.resolve(name).map_err(|source| RecordError::Attribute { index, source })?;
            let mut intro = b",\"".to_vec();
            push_json(key.as_bytes(), &mut intro);
            intro.extend_from_slice(b"\":");
            compiled.push(Field { intro: intro.into(), unit: Unit::of_name(key), reference });
        }
        Ok(Self { fields: compiled.into() })
    }

    /// Appends one object and a line feed; there is no other line feed in it. Allocates nothing but room in
    /// `out`.
    pub fn write(&self, request: &R, out: &mut Vec<u8>) {
        let start = out.len();
        for field in &self.fields {
            let value = field.reference.read(request);
            if value.is_absent() {
                continue;
            }
            out.extend_from_slice(&field.intro);
            push_value(value, field.unit, out);
        }
        if out.len() == start {
            out.push(b'{');
        } else {
            // In place of the first field's comma.
            out[start] = b'{';
        }
        out.extend_from_slice(b"}\n");
    }
}

impl<R: ?Sized> Clone for JsonRecord<R> {
    fn clone(&self) -> Self {
        let field = |field: &Field<R>| Field {
            intro: field.intro.clone(),
            unit: field.unit,
            reference: field.reference.clone(),
        };
        Self { fields: self.fields.iter().map(field).collect() }
    }
}

impl<R: ?Sized> fmt::Debug for JsonRecord<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let intros = self.fields.iter().map(|field| String::from_utf8_lossy(&field.intro));
        f.debug_list().entries(intros).finish()
    }
}

/// A record that does not compile. The fault of whoever wrote the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A field reads an attribute that there is not.
    #[error("{source}")]
    Attribute {
        /// Which field, from 0.
        index: usize,
        /// Why.
        source: ResolveError,
    },
    /// Two fields have the same key.
    #[error("the key \"{}\" is there twice", shortened(key))]
    DuplicateKey {
        /// The second of them, from 0.
        index: usize,
        /// The key.
        key: String,
    },
    /// More fields than a record may have.
    #[error("a record has at most {FIELDS_MAX} fields")]
    TooManyFields,
}

fn push_value(value: Value<'_>, unit: Unit, out: &mut Vec<u8>) {
    match value {
        // Left out by the caller; were it not, this is still JSON.
        Value::Absent => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => out.extend_from_slice(integer(number).as_bytes()),
        Value::Duration(duration) => out.extend_from_slice(unit.format(duration).as_bytes()),
        Value::Bytes(text) => quote(text, out),
        Value::Inline(text) => quote(text.as_bytes(), out),
        Value::Address(address) => quote(self::address(address).as_bytes(), out),
        Value::Time(nanos) => quote(rfc3339(nanos).as_bytes(), out),
    }
}

fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    push_json(text, out);
    out.push(b'"');
}

//! The table of attributes: what is known about a request, and how it is read.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::lookup::Lookup as _;
use crate::overrides::HasOverrides;
use crate::reference::Reference;
use crate::value::{Kind, Value};

#[cfg(test)]
mod tests;

/// An attribute of a request with a fixed name.
pub struct Attribute<R> {
    /// The name: lower-case words between dots, as in CEL and Envoy (`source.address`).
    pub name: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// The description in Markdown: unit, source, when it is absent.
    pub doc: &'static str,
    /// Reads the value. It is called for each request and must neither allocate nor block.
    pub read: for<'a> fn(&'a R) -> Value<'a>,
}

/// Attributes whose names end with a part that only the configuration knows, such as a header's name.
pub struct Family<R> {
    /// The start of the names, including the last dot: `request.headers.`.
    pub prefix: &'static str,
    /// The meaning of the rest of the name, for documents: `name`.
    pub argument: &'static str,
    /// The type of the members' values.
    pub kind: Kind,
    /// The description of the members, in Markdown.
    pub doc: &'static str,
    /// Converts the rest of a name (never empty) to a key when the configuration is loaded, or returns why there is no
    /// such member. It should refuse members that must not be read, such as credentials.
    pub prepare: fn(&str) -> Result<Key, &'static str>,
    /// Reads a member. It is called for each request and must neither allocate nor block.
    pub read: for<'a> fn(&'a R, &Key) -> Value<'a>,
    /// Reads all members as one `Value::Map` with the keys of `prepare`; `None` if members can only be read one by one.
    /// It is called for each request and must neither allocate nor block.
    pub map: Option<for<'a> fn(&'a R) -> Value<'a>>,
}

impl<R> Family<R> {
    /// The name of the whole family: the prefix without its last dot.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.prefix.strip_suffix('.').unwrap_or(self.prefix)
    }

    /// Whether keys are case-insensitive.
    pub(crate) fn folds_case(&self) -> bool {
        (self.prepare)("A").is_ok_and(|key| &*key.text == "a")
    }
}

/// The resolved argument of a [`Family`]'s member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The argument in the form that the family looks up, for instance in lower case.
    pub text: Arc<str>,
    /// Additional data of the family, for instance the id of a known header.
    pub id: Option<u32>,
}

impl Key {
    /// A key that is the unchanged argument, for use as [`Family::prepare`].
    ///
    /// # Errors
    ///
    /// None.
    pub fn verbatim(argument: &str) -> Result<Self, &'static str> {
        Ok(Self { text: argument.into(), id: None })
    }

    /// A key for the name of a header field (RFC 9110 §5.1), in lower case, for use as [`Family::prepare`].
    ///
    /// # Errors
    ///
    /// If it is not a token (RFC 9110 §5.6.2).
    pub fn field_name(argument: &str) -> Result<Self, &'static str> {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if argument.is_empty() || !argument.bytes().all(token) {
            return Err("not the name of a header");
        }
        Ok(Self { text: argument.to_ascii_lowercase().into(), id: None })
    }
}

/// All attributes of a type of requests.
pub struct Table<R: 'static> {
    pub(crate) attributes: &'static [Attribute<R>],
    pub(crate) families: &'static [Family<R>],
}

impl<R> Table<R> {
    /// A table of these. [`Table::check`] validates it.
    #[must_use]
    pub const fn new(attributes: &'static [Attribute<R>], families: &'static [Family<R>]) -> Self {
        assert!(
            attributes.len() < u16::MAX as usize && families.len() < u16::MAX as usize,
            "a table so large"
        );
        Self { attributes, families }
    }

    /// Looks a name up, as [`Lookup::resolve`](crate::Lookup::resolve) does.
    ///
    /// # Errors
    ///
    /// [`ResolveError`], if there is no such attribute, or no such member of the family.
    pub fn resolve(&self, name: &str) -> Result<Reference<R>, ResolveError> {
        self.view().resolve(name)
    }

    /// Reads a value. It allocates nothing, unless the table's function does.
    #[inline]
    #[must_use]
    pub fn read<'a>(&self, reference: &'a Reference<R>, request: &'a R) -> Value<'a>
    where
        R: HasOverrides,
    {
        reference.read(request)
    }

    /// The attributes, in the table's order.
    pub fn attributes(&self) -> impl Iterator<Item = &'static Attribute<R>> + use<R> {
        self.attributes.iter()
    }

    /// The families, in the table's order.
    pub fn families(&self) -> impl Iterator<Item = &'static Family<R>> + use<R> {
        self.families.iter()
    }

    /// Validates the table, for a test.
    ///
    /// # Errors
    ///
    /// A name that is malformed, repeated, hidden by a family, or undocumented.
    pub fn check(&self) -> Result<(), String> {
        let word = |word: &str| {
            word.starts_with(|first: char| first.is_ascii_lowercase())
                && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        };
        let names = self.attributes().map(|attribute| (attribute.name, attribute.name, attribute.doc));
        let prefixes = self
            .families()
            .map(|family| (family.prefix, family.prefix.strip_suffix('.').unwrap_or(""), family.doc));
        let mut seen = Vec::new();
        for (name, words, doc) in names.chain(prefixes) {
            if !words.split('.').all(word) {
                return Err(format!("\"{name}\" is not made of lower-case words and dots"));
            }
            if doc.trim().is_empty() || doc.contains(['\n', '|']) {
                return Err(format!("\"{name}\" has no documentation that fits into a table"));
            }
            if seen.contains(&name) {
                return Err(format!("\"{name}\" is there twice"));
            }
            seen.push(name);
        }
        for attribute in self.attributes() {
            if let Some(family) = self.families().find(|family| attribute.name.starts_with(family.prefix)) {
                return Err(format!("\"{}\" looks like a member of \"{}\"", attribute.name, family.prefix));
            }
        }
        Ok(())
    }
}

/// An unknown name, because of an error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// There is no such attribute.
    #[error("unknown attribute \"{}\"", shortened(name))]
    Unknown {
        /// The name, as written.
        name: String,
        /// A suggestion.
        suggestion: Option<String>,
    },
    /// The family exists, but can't have such a member.
    #[error("\"{}\": {reason}", shortened(name))]
    Argument {
        /// The name, as written.
        name: String,
        /// The reason.
        reason: &'static str,
    },
}

impl ResolveError {
    /// The suggestion, if any.
    #[must_use]
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            ResolveError::Unknown { suggestion, .. } => suggestion.as_deref(),
            ResolveError::Argument { .. } => None,
        }
    }
}

/// The start of a name, for an error of bounded length on one line.
pub(crate) fn shortened(name: &str) -> String {
    const LENGTH_MAX: usize = 64;
    let mut short: String = name.chars().take(LENGTH_MAX).flat_map(char::escape_debug).collect();
    if name.chars().nth(LENGTH_MAX).is_some() {
        short.push('…');
    }
    short
}

/// The reference page of a table: one Markdown table, in the table's order.
#[must_use]
pub fn markdown<R>(table: &Table<R>) -> String {
    let mut page = String::from("| attribute | type | meaning |\n|---|---|---|\n");
    let mut row = |name: fmt::Arguments<'_>, kind: Kind, doc: &str| {
        // Writing to a string can't fail.
        let _ = writeln!(page, "| `{name}` | {kind} | {doc} |");
    };
    for attribute in table.attributes() {
        row(format_args!("{}", attribute.name), attribute.kind, attribute.doc);
    }
    for family in table.families() {
        row(format_args!("{}<{}>", family.prefix, family.argument), family.kind, family.doc);
    }
    page
}

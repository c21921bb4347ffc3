//! Templates: text with attributes, for headers, log lines and throttle keys.
//!
//! `{name}` is an attribute, `{name|text}` the attribute or, if it is absent, the text; `{= expression}` is the value
//! of an expression; `{{` and `}}` are literal braces.

use std::fmt;
use std::sync::Arc;

use crate::escape::Escape;
use crate::expression::{Expression, ExpressionError, Scratch, closing_brace};
use crate::lookup::{Lookup, View};
use crate::overrides::HasOverrides;
use crate::reference::Reference;
use crate::table::ResolveError;
use crate::value::{Kind, Owned, Value};
use crate::write::{Written, push_text};

#[cfg(test)]
mod tests;

/// The most bytes of a template's text.
const LENGTH_MAX: usize = 8 * 1024;

/// A compiled template.
pub struct Template<R: 'static> {
    parts: Box<[Part<R>]>,
    /// Whether secrets are written unchanged.
    raw: bool,
}

enum Part<R: 'static> {
    Literal(Box<[u8]>),
    Reference { reference: Reference<R>, default: Option<Box<[u8]>> },
    Expression(Arc<Expression<R>>),
}

/// A piece of a template.
pub enum Piece<'t, R: 'static> {
    /// The template's own text.
    Literal(&'t [u8]),
    /// The place of a value.
    Value(ValuePiece<'t, R>),
}

/// The place of a value in a template.
pub struct ValuePiece<'t, R: 'static> {
    part: &'t Part<R>,
    raw: bool,
}

impl<R: HasOverrides> ValuePiece<'_, R> {
    /// Appends the value that a request has here, or its default.
    pub fn render(&self, request: &R, escape: Escape, out: &mut Vec<u8>) -> Rendered {
        self.part.push(self.raw, request, escape, out)
    }
}

impl<R: HasOverrides> Part<R> {
    /// Appends the value of a request. Literal text is not a value: it has none.
    fn push(&self, raw: bool, request: &R, escape: Escape, out: &mut Vec<u8>) -> Rendered {
        let (written, default) = match self {
            Self::Literal(_) => (Written::Nothing, None),
            Self::Reference { reference, default } => {
                let hide = reference.hide.as_ref().filter(|_| !raw);
                (push_text(reference.read(request), hide, escape, out), default.as_deref())
            }
            Self::Expression(expression) => {
                let scratch = Scratch::new();
                let value = expression.evaluate(request, &scratch).unwrap_or(Value::Absent);
                (push_text(value, None, escape, out), None)
            }
        };
        match (written, default) {
            (Written::Nothing, None) => Rendered { absent: true, altered: false },
            (Written::Nothing, Some(default)) => {
                Rendered { absent: false, altered: escape.push(default, out) }
            }
            (written, _) => Rendered { absent: false, altered: written == Written::Altered },
        }
    }
}

impl<R: HasOverrides> Template<R> {
    /// Compiles a template of at most 8 KiB. Secrets ([`Redaction`](crate::Redaction)) are written as `[redacted]`.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] with a position: unbalanced braces, or an unknown name.
    pub fn compile(text: &str, names: &impl Lookup<R>) -> Result<Self, TemplateError> {
        Self::compile_in(text, &names.view(), false)
    }

    /// The same without redaction: for keys, which are never shown, and for responses to the sender, such as a
    /// redirect. Not for logs.
    ///
    /// # Errors
    ///
    /// As [`Template::compile`].
    pub fn compile_raw(text: &str, names: &impl Lookup<R>) -> Result<Self, TemplateError> {
        Self::compile_in(text, &names.view(), true)
    }

    fn compile_in(text: &str, names: &View<'_, R>, raw: bool) -> Result<Self, TemplateError> {
        if text.len() > LENGTH_MAX {
            return Err(TemplateError::new(LENGTH_MAX, "a template has at most 8192 bytes"));
        }
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut position = 0;
        while let Some(offset) = text[position..].find(['{', '}']) {
            let brace = position + offset;
            literal.extend_from_slice(&text.as_bytes()[position..brace]);
            let rest = &text[brace..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                literal.push(rest.as_bytes()[0]);
                position = brace + 2;
            } else if rest.starts_with('}') {
                return Err(TemplateError::new(brace, "`}` without `{`; write `}}` for the brace itself"));
            } else {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal).into()));
                }
                let (part, length) = match rest.strip_prefix("{=") {
                    Some(rest) => compile_expression(rest, brace, names, raw)?,
                    None => compile_reference(&rest[1..], brace, names)?,
                };
                parts.push(part);
                position = brace + length;
            }
        }
        literal.extend_from_slice(&text.as_bytes()[position..]);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        Ok(Self { parts: parts.into(), raw })
    }

    /// Appends the template with a request's values.
    ///
    /// The rule applies to values and their defaults. The template's own text is unchanged, except with
    /// [`Escape::HeaderValue`]. It allocates only in `out`.
    pub fn render(&self, request: &R, escape: Escape, out: &mut Vec<u8>) -> Rendered {
        let start = out.len();
        let mut rendered = Rendered { absent: false, altered: false };
        for part in &self.parts {
            match part {
                Part::Literal(text) if escape == Escape::HeaderValue => {
                    rendered.altered |= escape.push(text, out);
                }
                Part::Literal(text) => out.extend_from_slice(text),
                value => {
                    let value = value.push(self.raw, request, escape, out);
                    rendered.absent |= value.absent;
                    rendered.altered |= value.altered;
                }
            }
        }
        if escape == Escape::HeaderValue {
            rendered.altered |= trim(start, out);
        }
        rendered
    }

    /// The pieces of the template in order, for a text whose values must be treated by what stands around them.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_, R>> + Clone {
        self.parts.iter().map(|part| match part {
            Part::Literal(text) => Piece::Literal(text),
            part => Piece::Value(ValuePiece { part, raw: self.raw }),
        })
    }

    /// The text as a value, for a custom attribute. A composed text is UTF-8; a template of one attribute and nothing
    /// else is the attribute's unchanged text.
    #[must_use]
    pub fn text(&self, request: &R) -> (Owned, Rendered) {
        if let [Part::Reference { reference, .. }] = &*self.parts
            && (self.raw || reference.hide.is_none())
            && reference.kind() == Kind::Text
            && let Some(text @ (Owned::Text(_) | Owned::Latin1(_))) = Owned::of(reference.read(request))
        {
            return (text, Rendered { absent: false, altered: false });
        }
        let mut text = Vec::new();
        let rendered = self.render(request, Escape::Utf8, &mut text);
        (Owned::text(text), rendered)
    }

    /// Appends a key, for throttles, hash balancing and caches. Two requests have the same key only if all values that
    /// the template reads are the same; absent and empty values differ.
    ///
    /// The bytes are for comparison only: the values, each preceded by its length.
    pub fn render_key(&self, request: &R, out: &mut Vec<u8>) -> Rendered {
        let mut rendered = Rendered { absent: false, altered: false };
        for part in &self.parts {
            let start = out.len();
            let scratch = Scratch::new();
            let (value, default) = match part {
                Part::Literal(_) => continue,
                Part::Reference { reference, default } => (reference.read(request), default.as_deref()),
                Part::Expression(expression) => {
                    (expression.evaluate(request, &scratch).unwrap_or(Value::Absent), None)
                }
            };
            out.extend_from_slice(&[0; 4]);
            let written = match (push_text(value, None, Escape::None, out), default) {
                (Written::Nothing, Some(default)) => {
                    out.extend_from_slice(default);
                    true
                }
                (Written::Nothing, None) => false,
                (Written::AsIs | Written::Altered, _) => true,
            };
            rendered.absent |= !written;
            // The limit of a request's head is far below 4 GiB; `MAX` marks an absent value.
            let length = if written { (out.len() - start - 4) as u32 } else { u32::MAX };
            if let Some(room) = out.get_mut(start..start + 4) {
                room.copy_from_slice(&length.to_be_bytes());
            }
        }
        rendered
    }
}

impl<R> Template<R> {
    /// The template's text, if it reads no attribute.
    #[must_use]
    pub fn constant(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(b""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether its output may contain secrets.
    pub(crate) fn reveals_secrets(&self) -> bool {
        self.raw && self.references().any(Reference::is_secret)
    }

    /// Separates the attributes that the template's expressions read from those that it contains.
    pub(crate) fn split<'t>(
        &'t self,
        computed: &mut Vec<&'t Reference<R>>,
        shown: &mut Vec<&'t Reference<R>>,
    ) {
        for part in &self.parts {
            match part {
                Part::Literal(_) => {}
                Part::Reference { reference, .. } => shown.push(reference),
                Part::Expression(expression) => {
                    computed.extend(expression.references().map(|(_, reference)| reference));
                }
            }
        }
    }

    /// The attributes that the template reads, in order.
    pub fn references(&self) -> impl Iterator<Item = &Reference<R>> {
        self.parts.iter().flat_map(|part| {
            let (reference, expression) = match part {
                Part::Literal(_) => (None, None),
                Part::Reference { reference, .. } => (Some(reference), None),
                Part::Expression(expression) => (None, Some(expression.references())),
            };
            reference.into_iter().chain(expression.into_iter().flatten().map(|(_, reference)| reference))
        })
    }
}

impl<R> Clone for Template<R> {
    fn clone(&self) -> Self {
        let part = |part: &Part<R>| match part {
            Part::Literal(text) => Part::Literal(text.clone()),
            Part::Reference { reference, default } => {
                Part::Reference { reference: reference.clone(), default: default.clone() }
            }
            Part::Expression(expression) => Part::Expression(Arc::clone(expression)),
        };
        Self { parts: self.parts.iter().map(part).collect(), raw: self.raw }
    }
}

impl<R> fmt::Debug for Template<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for part in &self.parts {
            match part {
                Part::Literal(text) => list.entry(&format_args!("\"{}\"", text.escape_ascii())),
                Part::Reference { reference, .. } => list.entry(reference),
                Part::Expression(expression) => list.entry(expression),
            };
        }
        list.finish()
    }
}

/// The result of rendering a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Whether a value without a default was absent: it was rendered as nothing. A header made only of it should not be
    /// sent.
    pub absent: bool,
    /// Whether [`Escape::HeaderValue`] replaced or trimmed bytes: two different values may then look the same, so a
    /// header with an identity must not be sent.
    pub altered: bool,
}

/// A template that does not compile, because of an error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// The position in the text, in bytes.
    pub position: usize,
    /// The problem, in one line.
    pub message: String,
    /// A suggestion.
    pub suggestion: Option<String>,
}

impl TemplateError {
    fn new(position: usize, message: &str) -> Self {
        Self { position, message: message.to_owned(), suggestion: None }
    }
}

/// Compiles a name with an optional default after a brace at `brace`. Returns the part and its length with braces.
fn compile_reference<R>(
    rest: &str,
    brace: usize,
    names: &View<'_, R>,
) -> Result<(Part<R>, usize), TemplateError> {
    let Some(length) = rest.find(['{', '}']).filter(|end| rest[*end..].starts_with('}')) else {
        return Err(unclosed(brace));
    };
    let (text, position) = (&rest[..length], brace + 1);
    let (name, default) = match text.split_once('|') {
        Some((name, default)) => (name, Some(default)),
        None => (text, None),
    };
    if name.is_empty() {
        return Err(TemplateError::new(position, "the braces do not contain the name of an attribute"));
    }
    if let Some(space) = name.find(char::is_whitespace) {
        return Err(TemplateError::new(position + space, "white space in the name of an attribute"));
    }
    match names.resolve(name) {
        Ok(reference) => {
            let default = default.map(|text| text.as_bytes().into());
            Ok((Part::Reference { reference, default }, length + 2))
        }
        Err(error) => Err(TemplateError {
            position,
            message: error.to_string(),
            suggestion: match error {
                ResolveError::Unknown { suggestion, .. } => suggestion,
                ResolveError::Argument { .. } => None,
            },
        }),
    }
}

/// Compiles an expression after a brace at `brace` and an equals sign.
fn compile_expression<R: HasOverrides>(
    rest: &str,
    brace: usize,
    names: &View<'_, R>,
    raw: bool,
) -> Result<(Part<R>, usize), TemplateError> {
    let position = brace + 2;
    let error = |error: ExpressionError| TemplateError {
        position: position + error.position,
        message: error.message,
        suggestion: error.suggestion,
    };
    let Some(length) = closing_brace(rest).map_err(error)? else { return Err(unclosed(brace)) };
    let expression = Expression::compile_in(&rest[..length], names, !raw).map_err(error)?;
    Ok((Part::Expression(Arc::new(expression)), length + 3))
}

fn unclosed(brace: usize) -> TemplateError {
    TemplateError::new(brace, "`{` without `}`; write `{{` for the brace itself")
}

/// Trims white space from both ends of the text from `start` on (RFC 9110 §5.5); returns whether there was any.
fn trim(start: usize, out: &mut Vec<u8>) -> bool {
    let length = out.len();
    let space = |byte: &&u8| matches!(byte, b' ' | b'\t');
    out.truncate(length - out[start..].iter().rev().take_while(space).count());
    let leading = out[start..].iter().take_while(space).count();
    out.drain(start..start + leading);
    out.len() < length
}

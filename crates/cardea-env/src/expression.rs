//! Expressions of CEL, the Common Expression Language, over the attributes of a request.
//!
//! They are compiled when the configuration is loaded: names, arguments and, as far as known, types are checked then.
//! For a request, a small tree is evaluated that reads attributes in place; it allocates only for new text, lists or
//! maps. `docs/adr/0006` lists the supported parts of CEL and the differences.

use std::fmt;

use crate::lookup::{Lookup, View};
use crate::overrides::HasOverrides;
use crate::redaction::Hide;
use crate::reference::Reference;
use crate::value::{Kind, Value};

mod arithmetic;
mod ast;
mod check;
mod compare;
mod condition;
mod convert;
mod evaluate;
mod fault;
mod functions;
mod lexer;
mod meter;
mod network;
mod node;
mod parser;
mod reference;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod types;

pub use condition::Condition;
pub use fault::{Fault, FaultKind};
pub use meter::Scratch;
pub use reference::functions_markdown;
pub use time::parse_time;

use lexer::{Lexer, TokenKind};
use node::Node;

/// The most bytes of an expression's text.
const LENGTH_MAX: usize = 16 * 1024;

/// The deepest nesting of expressions.
const DEPTH_MAX: u16 = 64;

/// A compiled expression.
pub struct Expression<R: 'static> {
    source: Box<str>,
    node: Node<R>,
    kind: Kind,
    names: Box<[(Box<str>, Reference<R>)]>,
    /// Secrets are read as `[redacted]`.
    show: bool,
}

impl<R: HasOverrides> Expression<R> {
    /// Compiles an expression of at most 16 KiB.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`] with a position: a syntax error, an unknown attribute or function, a wrong number of
    /// arguments, or a type mismatch.
    pub fn compile(text: &str, names: &impl Lookup<R>) -> Result<Self, ExpressionError> {
        Self::compile_in(text, &names.view(), false)
    }

    pub(crate) fn compile_in(text: &str, names: &View<'_, R>, show: bool) -> Result<Self, ExpressionError> {
        if text.len() > LENGTH_MAX {
            return Err(ExpressionError::new(LENGTH_MAX, "an expression has at most 16384 bytes"));
        }
        let ast = parser::parse(text)?;
        let (node, kind, names) = check::compile(&ast, names, show)?;
        Ok(Self { source: text.into(), node, kind, names: names.into(), show })
    }

    /// Evaluates it for a request. The value borrows from the expression, the request and `scratch`, which stores newly
    /// created values.
    ///
    /// # Errors
    ///
    /// [`Fault`]: an absent attribute or key, an operation that these values don't support, a limit.
    pub fn evaluate<'e>(&'e self, request: &'e R, scratch: &'e Scratch) -> Result<Value<'e>, Fault> {
        evaluate::evaluate(&self.node, request, scratch, self.show)
    }
}

impl<R> Expression<R> {
    /// The source text.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type of its values; `Any` if it depends on the request.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The attributes that it may read, without repetition.
    pub fn references(&self) -> impl Iterator<Item = (&str, &Reference<R>)> {
        self.names.iter().map(|(name, reference)| (&**name, reference))
    }

    /// Whether its value may contain secrets.
    pub(crate) fn reveals_secrets(&self) -> bool {
        let secret = |hide: &Option<Hide>| hide.is_some();
        !self.show && self.names.iter().any(|(_, reference)| secret(&reference.hide))
    }

    /// Describes a fault with the part of the text that caused it: ``` `token.claims.level` is absent ```.
    #[must_use]
    pub fn describe(&self, fault: Fault) -> String {
        let rest = self.source.get(fault.position as usize..).unwrap_or("");
        let part = |byte: char| byte.is_alphanumeric() || matches!(byte, '_' | '.');
        let mut length = rest.find(|character| !part(character)).unwrap_or(rest.len());
        if length == 0 {
            length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        }
        let name = crate::table::shortened(rest[..length].trim_end_matches('.'));
        format!("`{name}` at {}: {}", fault.position, fault.kind)
    }
}

/// The length of the expression at the start of a text, up to the closing brace of the surrounding template; `None` if
/// there is none.
pub(crate) fn closing_brace(text: &str) -> Result<Option<usize>, ExpressionError> {
    let mut lexer = Lexer::new(text);
    let mut open = 0_usize;
    loop {
        let token = lexer.next()?;
        match token.kind {
            TokenKind::End => return Ok(None),
            TokenKind::Sign("{") => open += 1,
            TokenKind::Sign("}") if open == 0 => return Ok(Some(token.at as usize)),
            TokenKind::Sign("}") => open -= 1,
            _ => {}
        }
    }
}

/// Shows its text.
impl<R> fmt::Debug for Expression<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// An expression that does not compile, because of an error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// The position in the text, in bytes.
    pub position: usize,
    /// The problem, in one line.
    pub message: String,
    /// The attribute or the function that was probably meant.
    pub suggestion: Option<String>,
}

impl ExpressionError {
    fn new(position: usize, message: &str) -> Self {
        Self { position, message: message.to_owned(), suggestion: None }
    }
}

//! Conditions: boolean expressions.

use std::fmt;
use std::sync::Arc;

use super::fault::Fault;
use super::meter::Scratch;
use super::{Expression, ExpressionError, evaluate};
use crate::lookup::Lookup;
use crate::overrides::HasOverrides;
use crate::reference::Reference;
use crate::value::Kind;

/// A boolean expression: the `when` of a rule, or which requests are logged.
///
/// Access is decided by a [`Policy`](crate::Policy), which handles faults.
pub struct Condition<R: 'static>(Arc<Expression<R>>);

impl<R: HasOverrides> Condition<R> {
    /// Compiles a condition, as [`Expression::compile`] does.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`], also if the value is known not to be boolean.
    pub fn compile(text: &str, names: &impl Lookup<R>) -> Result<Self, ExpressionError> {
        let expression = Expression::compile(text, names)?;
        match expression.kind {
            Kind::Bool | Kind::Any => Ok(Self(Arc::new(expression))),
            kind => {
                let message = format!("a condition must be true or false, but this is of type {kind}");
                Err(ExpressionError::new(0, &message))
            }
        }
    }

    /// Whether it is true for a request.
    ///
    /// # Errors
    ///
    /// [`Fault`] if it can't be evaluated to true or false.
    pub fn test(&self, request: &R) -> Result<bool, Fault> {
        let scratch = Scratch::new();
        evaluate::test(&self.0.node, request, &scratch, self.0.show)
    }
}

impl<R> Condition<R> {
    /// The source text.
    #[must_use]
    pub fn source(&self) -> &str {
        self.0.source()
    }

    /// The attributes that it may read, without repetition.
    pub fn references(&self) -> impl Iterator<Item = (&str, &Reference<R>)> {
        self.0.references()
    }

    /// Describes a fault with the part of the text that caused it.
    #[must_use]
    pub fn describe(&self, fault: Fault) -> String {
        self.0.describe(fault)
    }
}

/// Shows its text.
impl<R> Clone for Condition<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> fmt::Debug for Condition<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.0.source).finish()
    }
}

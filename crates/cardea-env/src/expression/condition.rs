//! Conditions: expressions that are true or false.

use std::fmt;

use super::fault::Fault;
use super::meter::Scratch;
use super::{Expression, ExpressionError, evaluate};
use crate::lookup::Lookup;
use crate::overrides::HasOverrides;
use crate::reference::Reference;
use crate::value::Kind;

/// An expression that is true or false: `when` of a rule, which requests are logged.
///
/// What decides about entry is a [`Policy`](crate::Policy), which knows what a fault means there.
pub struct Condition<R: 'static>(Expression<R>);

impl<R: HasOverrides> Condition<R> {
    /// Compiles a condition, as [`Expression::compile`] does.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`]; also where the value is known to be neither true nor false.
    pub fn compile(text: &str, names: &impl Lookup<R>) -> Result<Self, ExpressionError> {
        let expression = Expression::compile(text, names)?;
        match expression.kind {
            Kind::Bool | Kind::Any => Ok(Self(expression)),
            kind => {
                let message = format!("a condition is true or false, and this is of type {kind}");
                Err(ExpressionError::new(0, &message))
            }
        }
    }

    /// Whether it holds for a request.
    ///
    /// # Errors
    ///
    /// [`Fault`], where it is neither true nor false.
    pub fn test(&self, request: &R) -> Result<bool, Fault> {
        let scratch = Scratch::new();
        evaluate::test(&self.0.node, request, &scratch, self.0.show)
    }
}

impl<R> Condition<R> {
    /// The text that it was compiled from.
    #[must_use]
    pub fn source(&self) -> &str {
        self.0.source()
    }

    /// The attributes that it may read, each name once.
    pub fn references(&self) -> impl Iterator<Item = (&str, &Reference<R>)> {
        self.0.references()
    }

    /// What went wrong, with the part of the text where it did.
    #[must_use]
    pub fn describe(&self, fault: Fault) -> String {
        self.0.describe(fault)
    }
}

/// Its text.
impl<R> fmt::Debug for Condition<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.0.source).finish()
    }
}

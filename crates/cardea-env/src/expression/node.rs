//! The tree that is evaluated.

use super::ast::Operator;
use super::functions::Function;
use crate::reference::Reference;
use crate::value::Owned;

/// The terms of `&&` or `||` with their positions.
pub(super) type Terms<R> = Box<[(u32, Node<R>)]>;

pub(super) enum Node<R: 'static> {
    Constant(Owned),
    Type(&'static str),
    /// The variable of a surrounding macro, counted outwards.
    Variable(u8),
    Read {
        reference: Reference<R>,
        at: u32,
    },
    /// Whether an attribute is present.
    Has {
        reference: Reference<R>,
        at: u32,
    },
    Select {
        of: Box<Node<R>>,
        key: Box<str>,
        at: u32,
    },
    /// Whether a key is present.
    HasKey {
        of: Box<Node<R>>,
        key: Box<str>,
        at: u32,
    },
    Index {
        of: Box<Node<R>>,
        index: Box<Node<R>>,
        at: u32,
    },
    Not {
        of: Box<Node<R>>,
        at: u32,
    },
    Negate {
        of: Box<Node<R>>,
        at: u32,
    },
    And {
        terms: Terms<R>,
    },
    Or {
        terms: Terms<R>,
    },
    Conditional {
        parts: Box<[Node<R>; 3]>,
        at: u32,
    },
    Binary {
        operator: Operator,
        left: Box<Node<R>>,
        right: Box<Node<R>>,
        at: u32,
    },
    List {
        items: Box<[Node<R>]>,
        at: u32,
    },
    Map {
        entries: Box<[(Node<R>, Node<R>)]>,
        at: u32,
    },
    Call {
        function: &'static Function,
        /// The receiver of a method comes first.
        arguments: Box<[Node<R>]>,
        at: u32,
    },
    Matches {
        text: Box<Node<R>>,
        pattern: Box<regex::Regex>,
        at: u32,
    },
    /// A macro: an operation for each item of a list, or each key of a map.
    Each {
        each: Each,
        range: Box<Node<R>>,
        /// Skips items for which it is false; only in `map`.
        filter: Option<Box<Node<R>>>,
        body: Box<Node<R>>,
        at: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

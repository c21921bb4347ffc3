//! Converts the syntax tree to the tree that is evaluated, and checks names, arguments and types.

use super::arithmetic;
use super::ast::{Ast, AstKind, Literal, Operator};
use super::functions::type_named;
use super::node::{Node, Terms};
use super::types::Type;
use super::{DEPTH_MAX, ExpressionError};
use crate::lookup::View;
use crate::overrides::HasOverrides;
use crate::reference::{Base, Reference};
use crate::table::ResolveError;
use crate::value::{Kind, Owned};

mod call;
mod macros;

#[cfg(test)]
pub(super) use macros::NAMES as MACROS;

/// The deepest nesting of macros.
const MACROS_MAX: usize = 8;

type Checked<T> = Result<T, ExpressionError>;

/// A tree, the type of its values, and the attributes that it reads.
type Compiled<R> = (Node<R>, Kind, Vec<(Box<str>, Reference<R>)>);

pub(super) fn compile<R: HasOverrides>(ast: &Ast, names: &View<'_, R>, show: bool) -> Checked<Compiled<R>> {
    let mut checker = Checker { names, show, variables: Vec::new(), reads: Vec::new() };
    let (node, kind) = checker.node(ast)?;
    Ok((node, kind.kind(), checker.reads))
}

struct Checker<'n, R: 'static> {
    names: &'n View<'n, R>,
    /// Whether secrets must be redacted.
    show: bool,
    /// The variables of the surrounding macros.
    variables: Vec<(Box<str>, Type)>,
    reads: Vec<(Box<str>, Reference<R>)>,
}

impl<R: HasOverrides> Checker<'_, R> {
    fn node(&mut self, ast: &Ast) -> Checked<(Node<R>, Type)> {
        debug_assert!(ast.depth <= DEPTH_MAX);
        let at = ast.at;
        match &ast.kind {
            AstKind::Literal(literal) => Ok(constant(literal)),
            AstKind::Name(_) | AstKind::Select(..) => self.select(ast),
            AstKind::Index(of, index) => self.index(of, index, at),
            AstKind::Call(target, name, arguments) => self.call(target.as_deref(), name, arguments, at),
            AstKind::List(items) => {
                let items = items.iter().map(|item| self.node(item)).collect::<Checked<Vec<_>>>()?;
                Ok((list(items.into_iter().map(|(item, _)| item).collect(), at), Type::List))
            }
            AstKind::Map(entries) => self.map(entries, at),
            AstKind::Not(of) => {
                let of = self.bool(of)?;
                Ok((Node::Not { of: Box::new(of), at }, Type::Bool))
            }
            AstKind::Negate(of) => {
                let (of, kind) = self.node(of)?;
                if !matches!(kind, Type::Int | Type::Double | Type::Duration | Type::Dyn) {
                    return Err(error(at, format!("there is no `-` for a value of type {kind}")));
                }
                Ok((Node::Negate { of: Box::new(of), at }, kind))
            }
            AstKind::And(terms) => Ok((Node::And { terms: self.terms(terms)? }, Type::Bool)),
            AstKind::Or(terms) => Ok((Node::Or { terms: self.terms(terms)? }, Type::Bool)),
            AstKind::Conditional(parts) => {
                let condition = self.bool(&parts[0])?;
                let (then, one) = self.node(&parts[1])?;
                let (otherwise, other) = self.node(&parts[2])?;
                let kind = if one == other { one } else { Type::Dyn };
                Ok((Node::Conditional { parts: Box::new([condition, then, otherwise]), at }, kind))
            }
            AstKind::Binary(operator, left, right) => self.binary(*operator, left, right, at),
        }
    }

    /// Compiles a boolean expression.
    fn bool(&mut self, ast: &Ast) -> Checked<Node<R>> {
        match self.node(ast)? {
            (node, Type::Bool | Type::Dyn) => Ok(node),
            (_, kind) => {
                Err(error(ast.start(), format!("this is of type {kind}, but must be true or false")))
            }
        }
    }

    fn terms(&mut self, terms: &[Ast]) -> Checked<Terms<R>> {
        terms.iter().map(|term| Ok((term.start(), self.bool(term)?))).collect()
    }

    fn map(&mut self, entries: &[(Ast, Ast)], at: u32) -> Checked<(Node<R>, Type)> {
        let mut nodes = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (node, kind) = self.node(key)?;
            if !matches!(kind, Type::Text | Type::Bool | Type::Int | Type::Uint | Type::Dyn) {
                return Err(error(key.start(), format!("a value of type {kind} can't be a key")));
            }
            nodes.push((node, self.node(value)?.0));
        }
        Ok((Node::Map { entries: nodes.into(), at }, Type::Map))
    }

    fn binary(&mut self, operator: Operator, left: &Ast, right: &Ast, at: u32) -> Checked<(Node<R>, Type)> {
        let (left_node, left_type) = self.node(left)?;
        let (right_node, right_type) = match &right.kind {
            AstKind::List(items) if operator == Operator::In => {
                let mut nodes = Vec::with_capacity(items.len());
                for item in items {
                    let (node, kind) = self.node(item)?;
                    if !left_type.comparable(kind) {
                        return Err(mismatch(Operator::Equal, left_type, kind, item.start()));
                    }
                    nodes.push(node);
                }
                (list(nodes, right.at), Type::List)
            }
            _ => self.node(right)?,
        };
        let Some(kind) = arithmetic::result(operator, left_type, right_type) else {
            return Err(mismatch(operator, left_type, right_type, at));
        };
        Ok((Node::Binary { operator, left: Box::new(left_node), right: Box::new(right_node), at }, kind))
    }

    /// Compiles a name, or a member of a value.
    fn select(&mut self, ast: &Ast) -> Checked<(Node<R>, Type)> {
        if let Some(path) = ast.path() {
            if let Some(found) = self.variable(path[0]) {
                return path[1..].iter().try_fold(found, |of, key| member(of, key, ast.at));
            }
            if let Some(name) = type_named(&path.join(".")) {
                return Ok((Node::Type(name), Type::Name));
            }
            let (name, reference, used) = self.resolve(&path, ast.start())?;
            let kind = Type::of_kind(reference.kind());
            let node = self.read(&name, reference, ast.start())?;
            return path[used..].iter().try_fold((node, kind), |of, key| member(of, key, ast.start()));
        }
        let AstKind::Select(of, key) = &ast.kind else {
            return Err(error(ast.at, "expected a name"));
        };
        let of = self.node(of)?;
        member(of, key, ast.at)
    }

    fn index(&mut self, of: &Ast, index: &Ast, at: u32) -> Checked<(Node<R>, Type)> {
        if let Some((name, reference)) = self.family_member(of, index)? {
            let kind = Type::of_kind(reference.kind());
            return Ok((self.read(&name, reference, of.start())?, kind));
        }
        let (of_node, of_type) = self.node(of)?;
        let (index_node, index_type) = self.node(index)?;
        let fits = match of_type {
            Type::List => index_type.is_number() || index_type == Type::Dyn,
            Type::Map => matches!(index_type, Type::Text | Type::Bool | Type::Dyn) || index_type.is_number(),
            Type::Dyn => true,
            _ => return Err(error(at, format!("a value of type {of_type} has no items"))),
        };
        if !fits {
            return Err(error(index.start(), format!("a {of_type} has no index of type {index_type}")));
        }
        Ok((Node::Index { of: Box::new(of_node), index: Box::new(index_node), at }, Type::Dyn))
    }

    /// Resolves `family["key"]` at compile time.
    fn family_member(&mut self, of: &Ast, index: &Ast) -> Checked<Option<(String, Reference<R>)>> {
        let (Some(path), AstKind::Literal(Literal::Text(key))) = (of.path(), &index.kind) else {
            return Ok(None);
        };
        if self.variable(path[0]).is_some() {
            return Ok(None);
        }
        let Some(family) = self.names.family_id(&path.join(".")) else { return Ok(None) };
        match self.names.member(family, key) {
            Ok(reference) => Ok(Some((format!("{}.{key}", path.join(".")), reference))),
            Err(reason) => Err(error(index.at, reason)),
        }
    }

    fn variable(&self, name: &str) -> Option<(Node<R>, Type)> {
        let from_inside = self.variables.iter().rev().enumerate();
        let (out, (_, kind)) = from_inside.into_iter().find(|(_, (known, _))| **known == *name)?;
        // There are at most MACROS_MAX.
        Some((Node::Variable(out as u8), *kind))
    }

    /// The attribute or member with the longest name at the start of a path, and the number of words of its name.
    fn resolve(&self, path: &[&str], at: u32) -> Checked<(String, Reference<R>, usize)> {
        for used in (1..=path.len()).rev() {
            let name = path[..used].join(".");
            if let Some(reference) = self.names.attribute(&name) {
                return Ok((name, reference, used));
            }
            let Some(family) = self.names.family_id(&name) else { continue };
            let Some(key) = path.get(used) else {
                let group = || error(at, format!("`{name}` is a group of attributes; name one of them"));
                return self.names.family(&name).map(|whole| (name.clone(), whole, used)).ok_or_else(group);
            };
            return match self.names.member(family, key) {
                Ok(reference) => Ok((format!("{name}.{key}"), reference, used + 1)),
                Err(reason) => Err(error(at, format!("`{name}.{key}`: {reason}"))),
            };
        }
        let unknown = self.names.unknown(&path.join("."));
        let message = unknown.to_string();
        let ResolveError::Unknown { suggestion, .. } = unknown else { return Err(error(at, message)) };
        Err(ExpressionError { position: at as usize, message, suggestion })
    }

    fn read(&mut self, name: &str, reference: Reference<R>, at: u32) -> Checked<Node<R>> {
        self.note(name, &reference, at)?;
        Ok(Node::Read { reference, at })
    }

    /// Records an attribute that is read, and prevents secrets from being read through a map.
    fn note(&mut self, name: &str, reference: &Reference<R>, at: u32) -> Checked<()> {
        if self.show && reference.hide.is_some() && matches!(reference.base, Base::Family { .. }) {
            let message =
                format!("`{name}` contains secrets and can't be read as a whole; name a part of it");
            return Err(error(at, message));
        }
        if !self.reads.iter().any(|(known, _)| **known == *name) {
            self.reads.push((name.into(), reference.clone()));
        }
        Ok(())
    }
}

fn constant<R>(literal: &Literal) -> (Node<R>, Type) {
    let (constant, kind) = match literal {
        Literal::Null => (Owned::Null, Type::Null),
        Literal::Bool(truth) => (Owned::Bool(*truth), Type::Bool),
        Literal::Int(number) => (Owned::Int(*number), Type::Int),
        Literal::Uint(number) => (Owned::Uint(*number), Type::Uint),
        Literal::Double(number) => (Owned::Double(*number), Type::Double),
        Literal::Text(text) => (Owned::text(text.as_bytes()), Type::Text),
    };
    (Node::Constant(constant), kind)
}

/// A list. A constant list is created at compile time.
fn list<R>(items: Vec<Node<R>>, at: u32) -> Node<R> {
    if !items.iter().all(|item| matches!(item, Node::Constant(_))) {
        return Node::List { items: items.into(), at };
    }
    let constants = items.into_iter().filter_map(|item| match item {
        Node::Constant(constant) => Some(constant),
        _ => None,
    });
    Node::Constant(Owned::List(constants.collect()))
}

fn member<R>(of: (Node<R>, Type), key: &str, at: u32) -> Checked<(Node<R>, Type)> {
    match of {
        (of, Type::Map | Type::Dyn) => {
            Ok((Node::Select { of: Box::new(of), key: key.into(), at }, Type::Dyn))
        }
        (_, kind) => Err(error(at, format!("a value of type {kind} has no member `{key}`"))),
    }
}

fn error(at: u32, message: impl Into<String>) -> ExpressionError {
    ExpressionError { position: at as usize, message: message.into(), suggestion: None }
}

/// A type mismatch of an operator, with a suggestion.
fn mismatch(operator: Operator, left: Type, right: Type, at: u32) -> ExpressionError {
    let sign = operator.sign();
    let hint = match (left, right) {
        (Type::Address, Type::Text) | (Type::Text, Type::Address) => {
            "; write the address as `ip(\"192.0.2.1\")`"
        }
        (Type::Address, Type::Networks) => "; write `in cidr(\"192.0.2.0/24\")`",
        (Type::Duration, Type::Text | Type::Int) | (Type::Text | Type::Int, Type::Duration) => {
            "; write the duration as `duration(\"1m30s\")`"
        }
        (Type::Time, Type::Text | Type::Int) | (Type::Text | Type::Int, Type::Time) => {
            "; write the time as `timestamp(\"2026-01-31T12:00:00Z\")`"
        }
        (Type::Text, Type::Int) | (Type::Int, Type::Text) => {
            "; there is no implicit conversion: write `int(…)` or `string(…)`"
        }
        _ => "",
    };
    error(at, format!("there is no `{sign}` between values of type {left} and {right}{hint}"))
}

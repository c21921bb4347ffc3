//! Macros: loops and presence tests with the syntax of calls.

use super::super::ast::{Ast, AstKind, Literal};
use super::super::node::{Each, Node};
use super::super::types::Type;
use super::{Checked, Checker, MACROS_MAX, error};
use crate::overrides::HasOverrides;

/// The names of all macros.
pub(in crate::expression) const NAMES: [&str; 6] = ["has", "all", "exists", "exists_one", "map", "filter"];

impl<R: HasOverrides> Checker<'_, R> {
    /// Expands a macro, if this is one.
    pub(super) fn expand(
        &mut self,
        target: Option<&Ast>,
        name: &str,
        arguments: &[Ast],
        at: u32,
    ) -> Option<Checked<(Node<R>, Type)>> {
        let each = match (target, name, arguments.len()) {
            (None, "has", _) => {
                return Some(match arguments {
                    [argument] => self.has(argument, at),
                    _ => Err(error(at, "`has` takes one attribute, or one member of a map")),
                });
            }
            (Some(_), "all", _) => Each::All,
            (Some(_), "exists", _) => Each::Exists,
            (Some(_), "exists_one" | "existsOne", _) => Each::ExistsOne,
            (Some(_), "filter", _) => Each::Filter,
            (Some(_), "map", _) => Each::Map,
            _ => return None,
        };
        let target = target?;
        Some(match arguments {
            [variable, body] => self.each(each, target, variable, None, body, at),
            [variable, filter, body] if each == Each::Map => {
                self.each(each, target, variable, Some(filter), body, at)
            }
            _ => Err(error(at, format!("`{name}` takes a variable and an expression"))),
        })
    }

    fn each(
        &mut self,
        each: Each,
        range: &Ast,
        variable: &Ast,
        filter: Option<&Ast>,
        body: &Ast,
        at: u32,
    ) -> Checked<(Node<R>, Type)> {
        let AstKind::Name(name) = &variable.kind else {
            return Err(error(variable.at, "expected the name of a variable"));
        };
        if self.variables.len() == MACROS_MAX {
            return Err(error(at, format!("more than {MACROS_MAX} nested macros")));
        }
        let (range, kind) = self.node(range)?;
        // Macros iterate over the keys of a map.
        let item = match kind {
            Type::List | Type::Map | Type::Dyn => Type::Dyn,
            kind => return Err(error(at, format!("a value of type {kind} has no items"))),
        };
        self.variables.push((name.clone(), item));
        let inner = self.body(each, filter, body);
        self.variables.pop();
        let (filter, body) = inner?;
        let result = if matches!(each, Each::Filter | Each::Map) { Type::List } else { Type::Bool };
        Ok((
            Node::Each {
                each,
                range: Box::new(range),
                filter: filter.map(Box::new),
                body: Box::new(body),
                at,
            },
            result,
        ))
    }

    fn body(&mut self, each: Each, filter: Option<&Ast>, body: &Ast) -> Checked<(Option<Node<R>>, Node<R>)> {
        let filter = filter.map(|filter| self.bool(filter)).transpose()?;
        let body = if each == Each::Map { self.node(body)?.0 } else { self.bool(body)? };
        Ok((filter, body))
    }

    /// Whether an attribute or a member of a map is present.
    fn has(&mut self, of: &Ast, at: u32) -> Checked<(Node<R>, Type)> {
        let found = match &of.kind {
            AstKind::Index(outer, index) => match (self.family_member(outer, index)?, &index.kind) {
                (Some((name, reference)), _) => {
                    self.note(&name, &reference, of.start())?;
                    Node::Has { reference, at: of.start() }
                }
                (None, AstKind::Literal(Literal::Text(key))) => self.has_key(outer, key, at)?,
                (None, _) => return Err(error(at, "`has` takes a literal key")),
            },
            AstKind::Name(_) | AstKind::Select(..) => match of.path() {
                Some(path) if self.variable(path[0]).is_none() => {
                    let (name, reference, used) = self.resolve(&path, of.start())?;
                    match (&of.kind, used == path.len()) {
                        (_, true) => {
                            self.note(&name, &reference, of.start())?;
                            Node::Has { reference, at: of.start() }
                        }
                        (AstKind::Select(outer, key), false) => self.has_key(outer, key, at)?,
                        _ => return Err(error(at, "`has` takes an attribute, or a member of a map")),
                    }
                }
                _ => match &of.kind {
                    AstKind::Select(outer, key) => self.has_key(outer, key, at)?,
                    _ => return Err(error(at, "`has` takes an attribute, or a member of a map")),
                },
            },
            _ => return Err(error(at, "`has` takes an attribute, or a member of a map")),
        };
        Ok((found, Type::Bool))
    }

    fn has_key(&mut self, of: &Ast, key: &str, at: u32) -> Checked<Node<R>> {
        let (of, kind) = self.node(of)?;
        if !kind.may_be(Type::Map) {
            return Err(error(at, format!("a value of type {kind} has no members")));
        }
        Ok(Node::HasKey { of: Box::new(of), key: key.into(), at })
    }
}

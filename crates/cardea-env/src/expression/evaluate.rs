//! Evaluation: walks the tree, and reads attributes in place.

use std::ops::ControlFlow;

use super::arithmetic::{binary, negate};
use super::ast::Operator;
use super::compare;
use super::fault::{Fault, FaultKind};
use super::functions::ARGUMENTS_MAX;
use super::meter::{Meter, Scratch};
use super::node::{Each, Node};
use crate::overrides::HasOverrides;
use crate::redaction::{Hide, REDACTED, shown_query};
use crate::reference::Reference;
use crate::value::{List, Map, Owned, Value};

type Evaluated<'e> = Result<Value<'e>, Fault>;

/// The variables of macros, innermost first.
type Variables<'l, 'e> = Option<&'l Variable<'l, 'e>>;

struct Variable<'l, 'e> {
    value: Value<'e>,
    outer: Variables<'l, 'e>,
}

pub(super) fn evaluate<'e, R: HasOverrides>(
    node: &'e Node<R>,
    request: &'e R,
    scratch: &'e Scratch,
    show: bool,
) -> Evaluated<'e> {
    Run { request, meter: Meter::new(scratch), show }.node(node, None)
}

/// Like [`evaluate`], for boolean expressions.
pub(super) fn test<R: HasOverrides>(
    node: &Node<R>,
    request: &R,
    scratch: &Scratch,
    show: bool,
) -> Result<bool, Fault> {
    Run { request, meter: Meter::new(scratch), show }.truth(node, 0, None)
}

struct Run<'e, R> {
    request: &'e R,
    meter: Meter<'e>,
    show: bool,
}

impl<'e, R: HasOverrides> Run<'e, R> {
    /// The common nodes. The others are evaluated elsewhere, so that this stack frame stays small.
    fn node(&self, node: &'e Node<R>, variables: Variables<'_, 'e>) -> Evaluated<'e> {
        match node {
            Node::Constant(constant) => Ok(constant.value()),
            Node::Read { reference, at } => self.read(reference, *at),
            Node::And { .. } | Node::Or { .. } => self.truth(node, 0, variables).map(Value::Bool),
            Node::Binary { operator, left, right, at } => {
                self.meter.step().map_err(|kind| kind.at(*at))?;
                let left = self.operand(left, variables)?;
                let right = self.operand(right, variables)?;
                binary(*operator, left, right, &self.meter).map_err(|kind| kind.at(*at))
            }
            Node::Select { of, key, at } => {
                let of = self.operand(of, variables)?;
                member(of, key).and_then(present).map_err(|kind| kind.at(*at))
            }
            Node::Not { of, at } => match self.node(of, variables)? {
                Value::Bool(truth) => Ok(Value::Bool(!truth)),
                _ => Err(FaultKind::Type.at(*at)),
            },
            _ => self.rest(node, variables),
        }
    }

    /// Evaluates a node that usually is a leaf.
    #[inline]
    fn operand(&self, node: &'e Node<R>, variables: Variables<'_, 'e>) -> Evaluated<'e> {
        match node {
            Node::Constant(constant) => Ok(constant.value()),
            Node::Read { reference, at } => self.read(reference, *at),
            node => self.node(node, variables),
        }
    }

    /// Evaluates a boolean; `at` is its position. Common comparisons with constant text and integers are decided here,
    /// without intermediate values.
    fn truth(&self, node: &'e Node<R>, at: u32, variables: Variables<'_, 'e>) -> Result<bool, Fault> {
        match node {
            Node::And { terms } => return self.terms(terms, false, variables),
            Node::Or { terms } => return self.terms(terms, true, variables),
            Node::Binary { operator, left, right, at } => {
                if let Node::Constant(constant) = &**right {
                    return self.compare(*operator, left, constant, *at, variables);
                }
            }
            _ => {}
        }
        match self.node(node, variables)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(FaultKind::NotBool.at(at)),
        }
    }

    #[inline]
    fn compare(
        &self,
        operator: Operator,
        left: &'e Node<R>,
        constant: &'e Owned,
        at: u32,
        variables: Variables<'_, 'e>,
    ) -> Result<bool, Fault> {
        self.meter.step().map_err(|kind| kind.at(at))?;
        let left = self.operand(left, variables)?;
        if let Some(truth) = compare::with_constant(operator, &left, constant) {
            return Ok(truth);
        }
        match binary(operator, left, constant.value(), &self.meter) {
            Ok(Value::Bool(truth)) => Ok(truth),
            Ok(_) => Err(FaultKind::NotBool.at(at)),
            Err(kind) => Err(kind.at(at)),
        }
    }

    #[inline(never)]
    fn rest(&self, node: &'e Node<R>, variables: Variables<'_, 'e>) -> Evaluated<'e> {
        self.meter.step().map_err(|kind| kind.at(0))?;
        match node {
            Node::Type(name) => Ok(Value::Type(name)),
            Node::Variable(out) => Ok(variable(*out, variables)),
            Node::Has { reference, at } => match reference.read(self.request) {
                Value::Failed => Err(FaultKind::Custom.at(*at)),
                value => Ok(Value::Bool(!value.is_absent())),
            },
            Node::HasKey { of, key, at } => {
                let of = self.node(of, variables)?;
                let found = member(of, key).map_err(|kind| kind.at(*at))?;
                Ok(Value::Bool(!found.is_absent()))
            }
            Node::Index { of, index, at } => {
                let (of, index) = (self.node(of, variables)?, self.node(index, variables)?);
                compare::index(of, index, &self.meter).and_then(present).map_err(|kind| kind.at(*at))
            }
            Node::Negate { of, at } => negate(self.node(of, variables)?).map_err(|kind| kind.at(*at)),
            Node::Conditional { parts, at } => match self.node(&parts[0], variables)? {
                Value::Bool(true) => self.node(&parts[1], variables),
                Value::Bool(false) => self.node(&parts[2], variables),
                _ => Err(FaultKind::NotBool.at(*at)),
            },
            Node::Matches { text, pattern, at } => {
                let text = self.node(text, variables)?;
                let text = self.meter.utf8(&text).map_err(|kind| kind.at(*at))?;
                let Some(text) = text else { return Err(FaultKind::Type.at(*at)) };
                // Each byte may be read more than once.
                self.meter.product(text.len(), 8).map_err(|kind| kind.at(*at))?;
                Ok(Value::Bool(pattern.is_match(text)))
            }
            Node::Call { function, arguments, at } => {
                let mut values = [Value::Null; ARGUMENTS_MAX];
                for (room, argument) in values.iter_mut().zip(arguments) {
                    *room = self.node(argument, variables)?;
                }
                let values = values.get(..arguments.len()).unwrap_or(&values);
                (function.call)(values, &self.meter).map_err(|kind| kind.at(*at))
            }
            Node::List { items, at } => self.list(items, *at, variables),
            Node::Map { entries, at } => self.map(entries, *at, variables),
            Node::Each { each, range, filter, body, at } => {
                let range = self.node(range, variables)?;
                self.each(*each, range, filter.as_deref(), body, *at, variables)
            }
            // All others are in `node`.
            node => self.node(node, variables),
        }
    }

    #[inline]
    fn read(&self, reference: &'e Reference<R>, at: u32) -> Evaluated<'e> {
        let value = reference.read(self.request);
        if value.is_absent() {
            return present(value).map_err(|kind| kind.at(at));
        }
        match &reference.hide {
            Some(hide) if self.show => self.shown(value, hide).map_err(|kind| kind.at(at)),
            _ => Ok(value),
        }
    }

    #[cold]
    fn shown(&self, value: Value<'e>, hide: &'e Hide) -> Result<Value<'e>, FaultKind> {
        match (hide, self.meter.utf8(&value)?) {
            (Hide::Query(secret), Some(text)) => {
                let shown: Vec<u8> = shown_query(text.as_bytes(), secret).flatten().copied().collect();
                self.meter.text(&shown)
            }
            // The compiler prevents reading whole maps with secrets.
            _ => Ok(Value::Bytes(REDACTED)),
        }
    }

    /// `&&`, which is false if a term is, and `||`, which is true if a term is, whatever the other terms are, including
    /// faults.
    fn terms(
        &self,
        terms: &'e [(u32, Node<R>)],
        decides: bool,
        variables: Variables<'_, 'e>,
    ) -> Result<bool, Fault> {
        self.meter.step().map_err(|kind| kind.at(0))?;
        let mut fault = None;
        for (at, term) in terms {
            match self.truth(term, *at, variables) {
                Ok(truth) if truth == decides => return Ok(decides),
                Ok(_) => {}
                Err(error) if error.kind.is_limit() => return Err(error),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        fault.map_or(Ok(!decides), Err)
    }

    fn list(&self, items: &'e [Node<R>], at: u32, variables: Variables<'_, 'e>) -> Evaluated<'e> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.node(item, variables)?);
        }
        let items = self.meter.items(&values).map_err(|kind| kind.at(at))?;
        Ok(Value::List(List::of_items(items)))
    }

    fn map(&self, entries: &'e [(Node<R>, Node<R>)], at: u32, variables: Variables<'_, 'e>) -> Evaluated<'e> {
        let mut values: Vec<(Value<'e>, Value<'e>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.node(key, variables)?;
            let key = match self.meter.held(key).map_err(|kind| kind.at(at))? {
                Some(text) => Value::Bytes(text.as_bytes()),
                None if matches!(key, Value::Bool(_) | Value::Int(_) | Value::Uint(_)) => key,
                None => return Err(FaultKind::Key.at(at)),
            };
            for (known, _) in &values {
                if compare::equal(*known, key, &self.meter).map_err(|kind| kind.at(at))? {
                    return Err(FaultKind::Key.at(at));
                }
            }
            values.push((key, self.node(value, variables)?));
        }
        let entries = self.meter.entries(&values).map_err(|kind| kind.at(at))?;
        Ok(Value::Map(Map::of_entries(entries)))
    }

    fn each(
        &self,
        each: Each,
        range: Value<'e>,
        filter: Option<&'e Node<R>>,
        body: &'e Node<R>,
        at: u32,
        variables: Variables<'_, 'e>,
    ) -> Evaluated<'e> {
        let mut state = State { each, fault: None, count: 0, made: Vec::new() };
        let mut item = |value: Value<'e>| {
            let variable = Variable { value, outer: variables };
            self.item(&mut state, value, filter, body, at, Some(&variable))
        };
        let flow = match range {
            Value::List(list) => list.iter().try_for_each(&mut item),
            Value::Map(map) => {
                let mut last = ControlFlow::Continue(());
                let _ = map.each(&mut |key, _| {
                    last = item(key);
                    if last.is_continue() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                last
            }
            _ => return Err(FaultKind::Type.at(at)),
        };
        match (each, flow, state.fault) {
            (Each::All | Each::Exists, ControlFlow::Break(Ok(())), _) => {
                Ok(Value::Bool(each == Each::Exists))
            }
            (_, ControlFlow::Break(Err(fault)), _) | (_, _, Some(fault)) => Err(fault),
            (Each::All, ..) => Ok(Value::Bool(true)),
            (Each::Exists, ..) => Ok(Value::Bool(false)),
            (Each::ExistsOne, ..) => Ok(Value::Bool(state.count == 1)),
            (Each::Filter | Each::Map, ..) => {
                let items = self.meter.items(&state.made).map_err(|kind| kind.at(at))?;
                Ok(Value::List(List::of_items(items)))
            }
        }
    }

    /// One item of a macro's range. Breaks if the remaining items don't matter: with `Ok` if the result is known.
    fn item(
        &self,
        state: &mut State<'e>,
        value: Value<'e>,
        filter: Option<&'e Node<R>>,
        body: &'e Node<R>,
        at: u32,
        variables: Variables<'_, 'e>,
    ) -> ControlFlow<Result<(), Fault>> {
        if let Err(kind) = self.meter.step() {
            return ControlFlow::Break(Err(kind.at(at)));
        }
        let truth = |node: &'e Node<R>| self.truth(node, at, variables);
        let done = match state.each {
            Each::All | Each::Exists => match truth(body) {
                Ok(truth) if truth == (state.each == Each::Exists) => return ControlFlow::Break(Ok(())),
                Ok(_) => Ok(()),
                Err(fault) if fault.kind.is_limit() => Err(fault),
                // A later item may decide.
                Err(fault) => {
                    state.fault.get_or_insert(fault);
                    Ok(())
                }
            },
            Each::ExistsOne => truth(body).map(|truth| state.count += usize::from(truth)),
            Each::Filter => {
                truth(body).and_then(|keep| if keep { self.make(state, value, at) } else { Ok(()) })
            }
            Each::Map => filter.map_or(Ok(true), truth).and_then(|keep| match keep {
                true => self.node(body, variables).and_then(|value| self.make(state, value, at)),
                false => Ok(()),
            }),
        };
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(fault) => ControlFlow::Break(Err(fault)),
        }
    }

    fn make(&self, state: &mut State<'e>, value: Value<'e>, at: u32) -> Result<(), Fault> {
        let bytes = (state.made.len() + 1) * size_of::<Value<'_>>();
        self.meter.fits(bytes).map_err(|kind| kind.at(at))?;
        state.made.push(value);
        Ok(())
    }
}

/// The intermediate state of a macro.
struct State<'e> {
    each: Each,
    fault: Option<Fault>,
    count: usize,
    made: Vec<Value<'e>>,
}

fn variable<'e>(out: u8, mut variables: Variables<'_, 'e>) -> Value<'e> {
    for _ in 0..out {
        variables = variables.and_then(|variable| variable.outer);
    }
    // By construction there is one for each surrounding macro.
    variables.map_or(Value::Null, |variable| variable.value)
}

fn member<'e>(of: Value<'e>, key: &str) -> Result<Value<'e>, FaultKind> {
    match of {
        Value::Map(map) => Ok(map.get(key.as_bytes())),
        _ => Err(FaultKind::Type),
    }
}

fn present(value: Value<'_>) -> Result<Value<'_>, FaultKind> {
    match value {
        Value::Absent => Err(FaultKind::Absent),
        Value::Failed => Err(FaultKind::Custom),
        value => Ok(value),
    }
}

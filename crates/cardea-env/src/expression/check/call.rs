//! Calls: resolves the function, checks its arguments, and evaluates constant calls.

use super::super::ast::Ast;
use super::super::functions::{ARGUMENTS_MAX, FUNCTIONS, Function};
use super::super::meter::{Meter, Scratch};
use super::super::node::Node;
use super::super::types::Type;
use super::{Checked, Checker, ExpressionError, error, macros};
use crate::overrides::HasOverrides;
use crate::suggest::nearest;
use crate::value::{Owned, Value};

/// The memory limit of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 512 * 1024;

impl<R: HasOverrides> Checker<'_, R> {
    pub(super) fn call(
        &mut self,
        target: Option<&Ast>,
        name: &str,
        arguments: &[Ast],
        at: u32,
    ) -> Checked<(Node<R>, Type)> {
        if let Some(expanded) = self.expand(target, name, arguments, at) {
            return expanded;
        }
        if name == "matches" {
            return self.matches(target, arguments, at);
        }
        let group = target.and_then(Ast::path).filter(|path| self.variable(path[0]).is_none());
        let full = group.map(|path| format!("{}.{name}", path.join(".")));
        let grouped = full.as_deref().filter(|full| FUNCTIONS.iter().any(|known| known.name == *full));
        let (target, name) = match grouped {
            Some(full) => (None, full),
            None => (target, name),
        };
        let mut nodes = Vec::with_capacity(arguments.len() + 1);
        let mut types = Vec::with_capacity(arguments.len() + 1);
        let function = find(name, target.is_some(), arguments.len(), at)?;
        for argument in target.into_iter().chain(arguments) {
            let (node, kind) = self.node(argument)?;
            nodes.push(node);
            types.push(kind);
        }
        let fitting: Vec<Type> =
            function.signatures.iter().filter(|(of, _)| fits(of, &types)).map(|(_, of)| *of).collect();
        let Some(first) = fitting.first() else {
            let types: Vec<String> = types.iter().map(Type::to_string).collect();
            return Err(error(at, format!("`{name}` does not take {}", types.join(", "))));
        };
        let kind = if fitting.iter().all(|kind| kind == first) { *first } else { Type::Dyn };
        Ok((evaluated(function, nodes, at)?, kind))
    }

    fn matches(&mut self, target: Option<&Ast>, arguments: &[Ast], at: u32) -> Checked<(Node<R>, Type)> {
        let ((Some(text), [pattern]) | (None, [text, pattern])) = (target, arguments) else {
            return Err(error(at, "`matches` takes a text and a pattern"));
        };
        let (text, kind) = self.node(text)?;
        if !kind.may_be(Type::Text) {
            return Err(error(at, format!("`matches` does not take {kind}")));
        }
        let Node::Constant(Owned::Text(written)) = self.node(pattern)?.0 else {
            return Err(error(
                pattern.start(),
                "the pattern must be a literal, so that it is compiled in advance",
            ));
        };
        let Ok(written) = std::str::from_utf8(&written) else {
            return Err(error(pattern.start(), "the pattern is not UTF-8"));
        };
        let built = regex::RegexBuilder::new(written)
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .nest_limit(64)
            .build();
        let regex = built.map_err(|why| {
            // The last line has the message; those before show the position.
            let why = why.to_string();
            let line = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            error(pattern.start(), format!("the pattern does not compile: {}", crate::table::shortened(line)))
        })?;
        Ok((Node::Matches { text: Box::new(text), pattern: Box::new(regex), at }, Type::Bool))
    }
}

/// The function with that name; otherwise an error with a suggestion.
fn find(name: &str, method: bool, count: usize, at: u32) -> Checked<&'static Function> {
    let Some(function) = FUNCTIONS.iter().find(|known| known.name == name && known.method == method) else {
        if FUNCTIONS.iter().any(|known| known.name == name) {
            let message = if method {
                format!("`{name}` takes its value in parentheses: `{name}(value)`")
            } else {
                format!("`{name}` is called on a value: `value.{name}()`")
            };
            return Err(error(at, message));
        }
        let names = FUNCTIONS.iter().map(|known| known.name).chain(macros::NAMES).chain(["matches"]);
        let suggestion = nearest(name, names).map(str::to_owned);
        let message = format!("unknown function \"{}\"", crate::table::shortened(name));
        return Err(ExpressionError { position: at as usize, message, suggestion });
    };
    let count = count + usize::from(method);
    if count > ARGUMENTS_MAX || !function.signatures.iter().any(|(of, _)| of.len() == count) {
        let mut counts: Vec<usize> =
            function.signatures.iter().map(|(of, _)| of.len() - usize::from(method)).collect();
        counts.sort_unstable();
        counts.dedup();
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        let given = count - usize::from(method);
        return Err(error(at, format!("`{name}` takes {} arguments, not {given}", counts.join(" or "))));
    }
    Ok(function)
}

fn fits(signature: &[Type], types: &[Type]) -> bool {
    signature.len() == types.len() && signature.iter().zip(types).all(|(of, kind)| kind.may_be(*of))
}

/// A call. A call with constant arguments is evaluated at compile time, so that its errors are reported then.
fn evaluated<R>(function: &'static Function, nodes: Vec<Node<R>>, at: u32) -> Checked<Node<R>> {
    let constants = nodes.iter().map(|node| match node {
        Node::Constant(constant) => Some(constant.value()),
        _ => None,
    });
    // The result of `type` is no constant, and `dyn` hides a type on purpose.
    let values: Option<Vec<Value<'_>>> = constants.collect();
    let Some(values) = values.filter(|_| !matches!(function.name, "type" | "dyn")) else {
        return Ok(Node::Call { function, arguments: nodes.into(), at });
    };
    let scratch = Scratch::new();
    let value = (function.call)(&values, &Meter::new(&scratch))
        .map_err(|kind| error(at, format!("`{}`: {kind}", function.name)))?;
    let owned = Owned::of(value).ok_or_else(|| error(at, format!("`{}` gives no value", function.name)))?;
    Ok(Node::Constant(owned))
}

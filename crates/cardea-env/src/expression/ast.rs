//! The syntax tree of an expression, before names and types are known.

/// A node, its position, and the depth of the tree below it.
#[derive(Debug)]
pub(super) struct Ast {
    pub(super) at: u32,
    pub(super) depth: u16,
    pub(super) kind: AstKind,
}

#[derive(Debug)]
pub(super) enum AstKind {
    Literal(Literal),
    Name(Box<str>),
    Select(Box<Ast>, Box<str>),
    Index(Box<Ast>, Box<Ast>),
    /// A function, or a method of the first argument.
    Call(Option<Box<Ast>>, Box<str>, Vec<Ast>),
    List(Vec<Ast>),
    Map(Vec<(Ast, Ast)>),
    Not(Box<Ast>),
    Negate(Box<Ast>),
    Binary(Operator, Box<Ast>, Box<Ast>),
    /// Two or more terms, so that a long chain is not deep.
    And(Vec<Ast>),
    Or(Vec<Ast>),
    Conditional(Box<[Ast; 3]>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Operator {
    /// As written.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::In => "in",
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
        }
    }
}

impl Ast {
    /// The words of a dotted name, if this is one: `request.path`.
    pub(super) fn path(&self) -> Option<Vec<&str>> {
        match &self.kind {
            AstKind::Name(name) => Some(vec![name]),
            AstKind::Select(of, field) => {
                let mut path = of.path()?;
                path.push(field);
                Some(path)
            }
            _ => None,
        }
    }

    /// The position of the first word.
    pub(super) fn start(&self) -> u32 {
        match &self.kind {
            AstKind::Select(of, _) | AstKind::Index(of, _) => of.start(),
            _ => self.at,
        }
    }
}

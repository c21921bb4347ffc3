//! The grammar of CEL, by recursive descent.
//!
//! Not supported: bytes literals, and messages (`Type{field: value}`), which do not exist here.

use super::ast::{Ast, AstKind, Literal, Operator};
use super::lexer::{Lexer, Token, TokenKind};
use super::{DEPTH_MAX, ExpressionError};

/// The most items of a list, arguments of a function, or terms of `&&` and `||`.
const ITEMS_MAX: usize = 1024;

/// Reserved words of CEL, which can't be names.
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Ast, ExpressionError> {
    let mut lexer = Lexer::new(text);
    let token = lexer.next()?;
    let mut parser = Parser { lexer, token, nested: 0 };
    let ast = parser.expression()?;
    match parser.token.kind {
        TokenKind::End => Ok(ast),
        _ => Err(ExpressionError::new(parser.token.at as usize, "the expression ends before this")),
    }
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token,
    /// The current nesting.
    nested: u16,
}

type Parsed = Result<Ast, ExpressionError>;

impl Parser<'_> {
    fn expression(&mut self) -> Parsed {
        self.nested += 1;
        if self.nested > DEPTH_MAX {
            return Err(too_deep(self.token.at));
        }
        let condition = self.or()?;
        let ast = if self.takes("?")? {
            let at = condition.at;
            let then = self.or()?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            node(at, AstKind::Conditional(Box::new([condition, then, otherwise])))?
        } else {
            condition
        };
        self.nested -= 1;
        Ok(ast)
    }

    fn or(&mut self) -> Parsed {
        self.chain("||", Self::and, AstKind::Or)
    }

    fn and(&mut self) -> Parsed {
        self.chain("&&", Self::relation, AstKind::And)
    }

    fn chain(&mut self, sign: &str, term: fn(&mut Self) -> Parsed, make: fn(Vec<Ast>) -> AstKind) -> Parsed {
        let first = term(self)?;
        if !self.is(sign) {
            return Ok(first);
        }
        let at = first.at;
        let mut terms = vec![first];
        while self.takes(sign)? {
            self.limit(terms.len())?;
            terms.push(term(self)?);
        }
        node(at, make(terms))
    }

    fn relation(&mut self) -> Parsed {
        const OPERATORS: [Operator; 7] = [
            Operator::Equal,
            Operator::NotEqual,
            Operator::Less,
            Operator::LessOrEqual,
            Operator::Greater,
            Operator::GreaterOrEqual,
            Operator::In,
        ];
        self.binary(&OPERATORS, Self::sum)
    }

    fn sum(&mut self) -> Parsed {
        self.binary(&[Operator::Add, Operator::Subtract], Self::product)
    }

    fn product(&mut self) -> Parsed {
        self.binary(&[Operator::Multiply, Operator::Divide, Operator::Modulo], Self::unary)
    }

    fn binary(&mut self, operators: &[Operator], operand: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = operand(self)?;
        while let Some(operator) = operators.iter().find(|operator| self.is(operator.sign())) {
            let at = self.token.at;
            self.advance()?;
            let right = operand(self)?;
            left = node(at, AstKind::Binary(*operator, Box::new(left), Box::new(right)))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.token.at;
        let (sign, make): (_, fn(Box<Ast>) -> AstKind) =
            if self.is("!") { ("!", AstKind::Not) } else { ("-", AstKind::Negate) };
        let mut count = 0;
        while self.takes(sign)? {
            count += 1;
            if sign == "-" && matches!(self.token.kind, TokenKind::Int(_) | TokenKind::Double(_)) {
                // The sign belongs to the number, because the smallest integer has no positive counterpart.
                let number = self.number(at, true)?;
                let mut ast = self.members(number)?;
                for _ in 1..count {
                    ast = node(at, make(Box::new(ast)))?;
                }
                return Ok(ast);
            }
            if count > DEPTH_MAX {
                return Err(too_deep(at));
            }
        }
        let mut ast = self.member()?;
        for _ in 0..count {
            ast = node(at, make(Box::new(ast)))?;
        }
        Ok(ast)
    }

    fn member(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut ast: Ast) -> Parsed {
        loop {
            let at = self.token.at;
            if self.takes(".")? {
                let (at, name) = self.name()?;
                ast = if self.takes("(")? {
                    let arguments = self.items(")")?;
                    node(at, AstKind::Call(Some(Box::new(ast)), name, arguments))?
                } else {
                    node(at, AstKind::Select(Box::new(ast), name))?
                };
            } else if self.takes("[")? {
                let index = self.expression()?;
                self.expect("]")?;
                ast = node(at, AstKind::Index(Box::new(ast), Box::new(index)))?;
            } else {
                return Ok(ast);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.token.at;
        match self.token.kind.clone() {
            TokenKind::Int(_) | TokenKind::Double(_) => self.number(at, false),
            TokenKind::Uint(number) => self.literal(Literal::Uint(number)),
            TokenKind::Text(text) => self.literal(Literal::Text(text)),
            TokenKind::Word(word) => match &*word {
                "true" => self.literal(Literal::Bool(true)),
                "false" => self.literal(Literal::Bool(false)),
                "null" => self.literal(Literal::Null),
                _ => self.name_or_call(),
            },
            TokenKind::Sign("(") => {
                self.advance()?;
                let ast = self.expression()?;
                self.expect(")")?;
                Ok(ast)
            }
            TokenKind::Sign("[") => {
                self.advance()?;
                let items = self.items("]")?;
                node(at, AstKind::List(items))
            }
            TokenKind::Sign("{") => {
                self.advance()?;
                self.map(at)
            }
            // A name in the outermost scope, which is the only one here.
            TokenKind::Sign(".") => {
                self.advance()?;
                self.name_or_call()
            }
            TokenKind::End => Err(ExpressionError::new(at as usize, "the expression is incomplete")),
            TokenKind::Sign(sign) => {
                let hint = match sign {
                    "=" => "unexpected `=`; write `==` to compare",
                    "|" => "unexpected `|`; write `||` for or",
                    _ => "expected a value",
                };
                Err(ExpressionError::new(at as usize, hint))
            }
        }
    }

    fn name_or_call(&mut self) -> Parsed {
        let (at, name) = self.name()?;
        if self.takes("(")? {
            let arguments = self.items(")")?;
            return node(at, AstKind::Call(None, name, arguments));
        }
        if self.is("{") {
            return Err(ExpressionError::new(
                at as usize,
                "there are no messages; a map is written `{\"key\": value}`",
            ));
        }
        node(at, AstKind::Name(name))
    }

    fn name(&mut self) -> Result<(u32, Box<str>), ExpressionError> {
        let at = self.token.at;
        match &self.token.kind {
            TokenKind::Word(word) if RESERVED.contains(&&**word) => {
                let message = format!("\"{word}\" is reserved and can't be a name");
                Err(ExpressionError::new(at as usize, &message))
            }
            TokenKind::Word(word) => {
                let word = word.clone();
                self.advance()?;
                Ok((at, word))
            }
            _ => Err(ExpressionError::new(at as usize, "expected a name")),
        }
    }

    fn number(&mut self, at: u32, negative: bool) -> Parsed {
        let too_large = || ExpressionError::new(at as usize, "the number does not fit into 64 bits");
        let literal = match self.token.kind {
            TokenKind::Double(number) => Literal::Double(if negative { -number } else { number }),
            TokenKind::Int(number) if negative => {
                Literal::Int(0_i64.checked_sub_unsigned(number).ok_or_else(too_large)?)
            }
            TokenKind::Int(number) => Literal::Int(i64::try_from(number).map_err(|_| too_large())?),
            _ => return Err(ExpressionError::new(at as usize, "expected a number")),
        };
        self.advance()?;
        node(at, AstKind::Literal(literal))
    }

    fn literal(&mut self, literal: Literal) -> Parsed {
        let at = self.token.at;
        self.advance()?;
        node(at, AstKind::Literal(literal))
    }

    /// Comma-separated items up to a closing sign, with an optional trailing comma.
    fn items(&mut self, close: &'static str) -> Result<Vec<Ast>, ExpressionError> {
        let mut items = Vec::new();
        while !self.takes(close)? {
            self.limit(items.len())?;
            items.push(self.expression()?);
            if !self.takes(",")? {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn map(&mut self, at: u32) -> Parsed {
        let mut entries = Vec::new();
        while !self.takes("}")? {
            self.limit(entries.len())?;
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.takes(",")? {
                self.expect("}")?;
                break;
            }
        }
        node(at, AstKind::Map(entries))
    }

    fn limit(&self, length: usize) -> Result<(), ExpressionError> {
        if length < ITEMS_MAX {
            Ok(())
        } else {
            Err(ExpressionError::new(self.token.at as usize, "too many items"))
        }
    }

    fn is(&self, sign: &str) -> bool {
        match &self.token.kind {
            TokenKind::Sign(known) => *known == sign,
            TokenKind::Word(word) => &**word == sign && sign == "in",
            _ => false,
        }
    }

    fn takes(&mut self, sign: &str) -> Result<bool, ExpressionError> {
        let takes = self.is(sign);
        if takes {
            self.advance()?;
        }
        Ok(takes)
    }

    fn expect(&mut self, sign: &str) -> Result<(), ExpressionError> {
        if self.takes(sign)? {
            return Ok(());
        }
        Err(ExpressionError::new(self.token.at as usize, &format!("expected `{sign}`")))
    }

    fn advance(&mut self) -> Result<(), ExpressionError> {
        self.token = self.lexer.next()?;
        Ok(())
    }
}

fn too_deep(at: u32) -> ExpressionError {
    ExpressionError::new(at as usize, &format!("nested deeper than {DEPTH_MAX} levels"))
}

/// A node; an error if the tree would become too deep to be walked.
fn node(at: u32, kind: AstKind) -> Parsed {
    let of = |asts: &[Ast]| asts.iter().map(|ast| ast.depth).max().unwrap_or(0);
    let below = match &kind {
        AstKind::Literal(_) | AstKind::Name(_) => 0,
        AstKind::Select(of, _) | AstKind::Not(of) | AstKind::Negate(of) => of.depth,
        AstKind::Index(left, right) | AstKind::Binary(_, left, right) => left.depth.max(right.depth),
        AstKind::Call(target, _, arguments) => {
            of(arguments).max(target.as_ref().map_or(0, |target| target.depth))
        }
        AstKind::List(items) | AstKind::And(items) | AstKind::Or(items) => of(items),
        AstKind::Map(entries) => {
            entries.iter().map(|(key, value)| key.depth.max(value.depth)).max().unwrap_or(0)
        }
        AstKind::Conditional(parts) => of(&**parts),
    };
    let depth = below + 1;
    if depth > DEPTH_MAX { Err(too_deep(at)) } else { Ok(Ast { at, depth, kind }) }
}

//! The tokens of CEL.

use super::ExpressionError;

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) at: u32,
    pub(super) kind: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// A name or a reserved word.
    Word(Box<str>),
    /// The digits of an integer without a sign, so that the smallest integer can be written.
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    /// Punctuation, as written.
    Sign(&'static str),
    End,
}

/// The longest first.
const SIGNS: [&str; 26] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "<", ">", "+", "-",
    "*", "/", "%", "!", "=", "|",
];

/// Splits a text into tokens.
pub(super) struct Lexer<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    /// The next token; at the end, `End`.
    pub(super) fn next(&mut self) -> Result<Token, ExpressionError> {
        self.skip();
        let start = self.position;
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else {
            return Ok(Token { at: start as u32, kind: TokenKind::End });
        };
        let second = rest[first.len_utf8()..].chars().next();
        let kind = match first {
            '"' | '\'' => self.quoted(false)?,
            'r' | 'R' if matches!(second, Some('"' | '\'')) => {
                self.position += 1;
                self.quoted(true)?
            }
            'b' | 'B' if matches!(second, Some('"' | '\'')) => {
                return Err(self.error(start, "there are no literals of bytes; a string can hold any bytes"));
            }
            '0'..='9' => self.number()?,
            '.' if second.is_some_and(|second| second.is_ascii_digit()) => self.number()?,
            first if first.is_ascii_alphabetic() || first == '_' => {
                let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let length = rest.bytes().take_while(|byte| word(byte)).count();
                self.position += length;
                TokenKind::Word(rest[..length].into())
            }
            _ => {
                let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
                    return Err(self.error(start, "this begins nothing that can stand in an expression"));
                };
                self.position += sign.len();
                TokenKind::Sign(sign)
            }
        };
        Ok(Token { at: start as u32, kind })
    }

    /// Skips white space and comments (from `//` to the end of the line).
    fn skip(&mut self) {
        loop {
            let rest = self.text[self.position..].trim_start_matches([' ', '\t', '\n', '\r', '\x0C']);
            self.position = self.text.len() - rest.len();
            if !rest.starts_with("//") {
                return;
            }
            self.position += rest.find('\n').unwrap_or(rest.len());
        }
    }

    fn number(&mut self) -> Result<TokenKind, ExpressionError> {
        let start = self.position;
        let rest = &self.text[start..];
        let hexadecimal = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
        if let Some(digits) = hexadecimal {
            let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
            let number = u64::from_str_radix(&digits[..length], 16);
            self.position += 2 + length;
            return self.whole(start, number.ok());
        }
        let digits = |at: usize| rest[at..].bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(0);
        let mut length = whole;
        if rest[length..].starts_with('.') && digits(length + 1) > 0 {
            length += 1 + digits(length + 1);
        }
        let exponent =
            rest[length..].strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
        if let Some(exponent) = exponent {
            let before = rest.len() - exponent.len();
            if digits(before) > 0 {
                length = before + digits(before);
            }
        }
        self.position += length;
        if length == whole {
            return self.whole(start, rest[..whole].parse().ok());
        }
        match rest[..length].parse::<f64>() {
            Ok(number) if number.is_finite() => self.end_of_number(start, TokenKind::Double(number)),
            _ => Err(self.error(start, "a number that is too large")),
        }
    }

    fn whole(&mut self, start: usize, number: Option<u64>) -> Result<TokenKind, ExpressionError> {
        let Some(number) = number else {
            return Err(self.error(start, "a number that is too large or invalid"));
        };
        if self.text[self.position..].starts_with(['u', 'U']) {
            self.position += 1;
            return self.end_of_number(start, TokenKind::Uint(number));
        }
        self.end_of_number(start, TokenKind::Int(number))
    }

    /// Letters right after a number are an error.
    fn end_of_number(&self, start: usize, kind: TokenKind) -> Result<TokenKind, ExpressionError> {
        let next = self.text[self.position..].chars().next();
        if next.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_') {
            return Err(self.error(start, "a number followed by a letter"));
        }
        Ok(kind)
    }

    fn quoted(&mut self, raw: bool) -> Result<TokenKind, ExpressionError> {
        let start = self.position;
        let rest = &self.text[start..];
        let quote = &rest[..1];
        let triple = rest.len() >= 6 && rest[1..].starts_with(quote) && rest[2..].starts_with(quote);
        let delimiter = if triple { &rest[..3] } else { quote };
        self.position += delimiter.len();
        let mut text = String::new();
        loop {
            let rest = &self.text[self.position..];
            if rest.starts_with(delimiter) {
                self.position += delimiter.len();
                return Ok(TokenKind::Text(text.into()));
            }
            let Some(next) = rest.chars().next() else {
                return Err(self.error(start, "an unterminated string"));
            };
            match next {
                '\n' | '\r' if !triple => return Err(self.error(start, "a string with a line break")),
                '\\' if !raw => text.push(self.escape()?),
                _ => {
                    self.position += next.len_utf8();
                    text.push(next);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, ExpressionError> {
        let start = self.position;
        let rest = &self.text[start + 1..];
        let unknown = || ExpressionError::new(start, "an unknown escape; write `\\\\` for the backslash");
        let next = rest.chars().next().ok_or_else(unknown)?;
        let (digits, radix, skip) = match next {
            'x' | 'X' => (2, 16, 1),
            'u' => (4, 16, 1),
            'U' => (8, 16, 1),
            '0'..='3' => (3, 8, 0),
            _ => {
                self.position += 1 + next.len_utf8();
                return Ok(match next {
                    'a' => '\x07',
                    'b' => '\x08',
                    'f' => '\x0C',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\x0B',
                    '\\' | '?' | '"' | '\'' | '`' => next,
                    _ => return Err(unknown()),
                });
            }
        };
        let digits =
            rest.get(skip..skip + digits).filter(|digits| digits.chars().all(|digit| digit.is_digit(radix)));
        let digits = digits.ok_or_else(|| self.error(start, "an escape with too few digits"))?;
        let code = u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        self.position += 1 + skip + digits.len();
        code.ok_or_else(|| self.error(start, "an escape that names no character"))
    }

    fn error(&self, at: usize, message: &str) -> ExpressionError {
        ExpressionError::new(at, message)
    }
}

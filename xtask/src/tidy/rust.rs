//! Rust sources as the rules read them: comments and the content of literals blanked out, tests told apart.

/// A source file, byte by byte as long as the original, in which only code is left.
pub(super) struct Code {
    text: String,
    /// For each line, whether it belongs to tests.
    tests: Vec<bool>,
}

impl Code {
    /// Reads a source file. One that doesn't lex leaves the rest of it blank: the compiler complains about it.
    pub(super) fn of(source: &str) -> Self {
        let text = blank(source);
        let tests = test_lines(&text);
        Self { text, tests }
    }

    /// The lines with their numbers from 1, and whether they belong to tests.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line, self.is_test(index + 1)))
    }

    /// Whether a line, counted from 1, belongs to tests.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.tests.get(line - 1).copied().unwrap_or(false)
    }

    /// The attributes, inner and outer: the line on which each begins, and its text without white space.
    pub(super) fn attributes(&self) -> Vec<(usize, String)> {
        let bytes = self.text.as_bytes();
        let mut found = Vec::new();
        for (start, _) in self.text.match_indices('#') {
            let open = start + 1 + usize::from(bytes.get(start + 1) == Some(&b'!'));
            if bytes.get(open) != Some(&b'[') {
                continue;
            }
            let end = matching(bytes, open, b'[', b']');
            let text = self.text[open..end].split_whitespace().collect();
            found.push((line_of(&self.text, start), text));
        }
        found
    }
}

/// Whether `word` stands in `line` as a whole word.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next())
    })
}

fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut kept = vec![b' '; bytes.len()];
    for (index, &byte) in bytes.iter().enumerate() {
        if byte == b'\n' {
            kept[index] = byte;
        }
    }
    let mut at = 0;
    let mut in_word = false;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !in_word && raw_string(bytes, at).is_some() => raw_string(bytes, at).unwrap_or(at + 1),
            b'b' | b'c'
                if !in_word && bytes.get(at + 1) == Some(&b'r') && raw_string(bytes, at + 1).is_some() =>
            {
                raw_string(bytes, at + 1).unwrap_or(at + 1)
            }
            b'\'' => char_end(source, at),
            _ => at,
        };
        if end > at {
            in_word = false;
            at = end;
            continue;
        }
        kept[at] = if bytes[at].is_ascii() { bytes[at] } else { b'_' };
        in_word = bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_' || !bytes[at].is_ascii();
        at += 1;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length)
}

/// Comments nest.
fn comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a raw string whose `r` is at `start`, if it is one and not a raw identifier.
fn raw_string(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let found = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(found.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// The end of a character literal, or `start` where the quote begins a lifetime.
fn char_end(source: &str, start: usize) -> usize {
    let rest = &source[start + 1..];
    let mut characters = rest.chars();
    match characters.next() {
        Some('\\') => {
            // The escaped character itself may be a quote.
            let after = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            rest[after..].find('\'').map_or(source.len(), |length| start + 1 + after + length + 1)
        }
        Some(character) if characters.next() == Some('\'') => start + 1 + character.len_utf8() + 1,
        _ => start,
    }
}

/// Marks what is under `#[cfg(test)]`, from the attribute to the end of the item, and everything where that stands
/// at the head of the file.
fn test_lines(code: &str) -> Vec<bool> {
    let bytes = code.as_bytes();
    let mut tests = vec![code.contains("#![cfg(test)]"); code.lines().count()];
    for (start, attribute) in code.match_indices("#[cfg(test)]") {
        let body = start + attribute.len();
        let Some(length) = bytes[body..].iter().position(|byte| matches!(byte, b'{' | b';')) else {
            continue;
        };
        let first = body + length;
        let end = if bytes[first] == b'{' { matching(bytes, first, b'{', b'}') } else { first };
        for line in line_of(code, start)..=line_of(code, end) {
            if let Some(mark) = tests.get_mut(line - 1) {
                *mark = true;
            }
        }
    }
    tests
}

/// The index of the bracket that closes the one at `open`, or the last index.
fn matching(bytes: &[u8], open: usize, opening: u8, closing: u8) -> usize {
    let mut depth = 0_usize;
    for (index, &byte) in bytes.iter().enumerate().skip(open) {
        if byte == opening {
            depth += 1;
        } else if byte == closing {
            depth -= 1;
            if depth == 0 {
                return index;
            }
        }
    }
    bytes.len().saturating_sub(1)
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays_in_place() {
        let cases = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x\"y") + g"#, "f(      ) + g"),
            (r##"r#"a"b"# + c"##, "         + c"),
            (r#"br"\" + c"#, "      + c"),
            (r"'\'' + '{' + 'a", "     +     + 'a"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("r#type + bar\"x\"", "r#type + bar   "),
            ("'é' + b", "     + b"),
            (r"'\u{7d}' + b", "         + b"),
        ];
        for (source, expected) in cases {
            assert_eq!(blank(source), expected, "{source}");
        }
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for source in ["\"a", "/* a", "r#\"a\"", "'\\", "\"a\\", "'", "r", "#", "#![", "#[a"] {
            let code = Code::of(source);
            assert_eq!(blank(source).len(), source.len(), "{source}");
            code.attributes();
        }
    }

    #[test]
    fn tests_reach_to_the_end_of_their_item() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n";
        let tests: Vec<bool> = Code::of(source).lines().map(|(_, _, test)| test).collect();
        assert_eq!(tests, [false, true, true, true, true, false]);
        let tests: Vec<bool> =
            Code::of("#[cfg(test)]\nmod tests;\nfn c() {}\n").lines().map(|(.., t)| t).collect();
        assert_eq!(tests, [true, true, false]);
    }

    #[test]
    fn attributes_are_found_over_several_lines() {
        let source = "#![a]\n#[allow(\n    b,\n    c(d[0])\n)]\nfn e() {}\n// #[f]\n";
        assert_eq!(
            Code::of(source).attributes(),
            [(1, "[a".to_owned()), (2, "[allow(b,c(d[0]))".to_owned())]
        );
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("x = unsafe { y }", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
        assert!(!has_word("an_unsafe", "unsafe"));
    }
}

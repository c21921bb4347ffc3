//! The reader of field lines, beside the tokenizer `httparse` and at its limits.

use proptest::prelude::*;

use super::*;

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

fn read(head: &[u8]) -> Option<(usize, Lines)> {
    let mut fields = Fields::default();
    let length = fields.read(head, 0, 256)?;
    Some((length, fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect()))
}

/// The same by `httparse`, which also accepts LF without CR.
fn by_httparse(head: &[u8]) -> Option<(usize, Lines)> {
    let mut lines = [httparse::EMPTY_HEADER; 256];
    let Ok(httparse::Status::Complete((length, lines))) = httparse::parse_headers(head, &mut lines) else {
        return None;
    };
    let block = &head[..length];
    let is_strict =
        block.iter().enumerate().all(|(at, &byte)| byte != b'\n' || (at > 0 && block[at - 1] == b'\r'));
    let lines = lines.iter().map(|line| (line.name.as_bytes().to_vec(), line.value.trim_ascii().to_vec()));
    is_strict.then(|| (length, lines.collect()))
}

#[test]
fn lines_are_read_up_to_the_empty_one() {
    let head = b"Host: a\r\nx-y:\tb c \t\r\nX_Z:  \r\n\r\nnext: one\r\n\r\n";
    let expected = [("Host", "a"), ("x-y", "b c"), ("X_Z", "")];
    let expected = expected.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(read(head), Some((31, expected.to_vec())));
    let mut fields = Fields::default();
    fields.read(head, 0, 3).unwrap();
    assert!(fields.contains(Known::Host) && fields.may_have_odd_names());
    assert_eq!(fields.read(head, 0, 2), None, "one line too many");
    assert!(fields.is_empty() && !fields.contains(Known::Host) && !fields.may_have_odd_names());
    for end in 0..31 {
        assert_eq!(read(&head[..end]), None, "{end} bytes");
    }
}

#[test]
fn every_byte_at_every_place_is_judged_as_the_grammar_has_it() {
    for len in 1..20 {
        for place in 0..len {
            for byte in 0..=255_u8 {
                let mut text = vec![b'a'; len];
                text[place] = byte;
                let name = [&text[..], b": v\r\n\r\n"].concat();
                let is_name = crate::chars::is_token(&text);
                // A colon ends the name earlier.
                let expected = if byte == b':' { place > 0 } else { is_name };
                assert_eq!(read(&name).is_some(), expected, "{name:?}");
                let value = [b"n: ", &text[..], b"\r\n\r\n"].concat();
                let is_value = byte == b'\t' || (byte >= b' ' && byte != 0x7F);
                assert_eq!(read(&value).is_some(), is_value, "{value:?}");
                assert_eq!((read(&name), read(&value)), (by_httparse(&name), by_httparse(&value)));
            }
        }
    }
}

proptest! {
    #[test]
    fn it_reads_what_httparse_reads(head in "([a-zA-Z_-]{0,12}[: ]{0,3}[\\x00-\\x7F\u{e4}]{0,20}(\r\n|\n|\r)?){0,4}(\r\n){0,2}") {
        prop_assert_eq!(read(head.as_bytes()), by_httparse(head.as_bytes()));
    }

    #[test]
    fn it_reads_all_that_is_well_formed(
        lines in prop::collection::vec(("[!#$%&'*+.^_`|~0-9a-zA-Z-]{1,40}", "[ \t]{0,3}", "([!-~\u{e4}]([ -~\t]{0,40}[!-~])?)?", "[ \t]{0,3}"), 0..20)
    ) {
        let mut head = String::new();
        for (name, before, value, behind) in &lines {
            head.extend([name, ":", before, value, behind, "\r\n"]);
        }
        head.push_str("\r\n");
        let expected: Vec<_> =
            lines.iter().map(|(name, _, value, _)| (name.clone().into_bytes(), value.clone().into_bytes())).collect();
        prop_assert_eq!(read(head.as_bytes()), Some((head.len(), expected)));
    }
}

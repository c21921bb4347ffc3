//! Reads the small part of YAML that the cases of request smuggling are written in.

use std::path::PathBuf;

/// One request of the collection.
#[derive(Debug, Default)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) uri: Vec<u8>,
    pub(crate) method: Vec<u8>,
    pub(crate) version: Vec<u8>,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) tier: String,
}

/// The folder of the vectors: `CARDEA_VECTORS`, or `shared/vectors` beside the checkout.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("CARDEA_VECTORS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors"),
        PathBuf::from,
    )
}

/// The cases of one file.
pub(crate) fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim_start().split_once(':') else {
            continue;
        };
        if line.trim_start().starts_with('#') {
            continue;
        }
        let value = scalar(value.trim());
        if (indent, key) == (0, "- name") {
            cases.push(Case { name: String::from_utf8(value).unwrap(), ..Case::default() });
            continue;
        }
        let Some(case) = cases.last_mut() else {
            continue;
        };
        match (indent, key) {
            (2, "uri") => case.uri = value,
            (2, "method") => case.method = value,
            (2, "version") => case.version = value,
            (4, "- name") => case.headers.push((value, Vec::new())),
            (6, "value") => case.headers.last_mut().unwrap().1 = value,
            (4, "tier") => case.tier = String::from_utf8(value).unwrap(),
            _ => {}
        }
    }
    cases
}

/// A plain, a single-quoted or a double-quoted scalar; `\x80` and above stand for single bytes.
fn scalar(text: &str) -> Vec<u8> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        return inner.replace("''", "'").into_bytes();
    }
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return text.as_bytes().to_vec();
    };
    let mut out = Vec::new();
    let mut rest = inner.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let escape = rest[0];
        rest = &rest[1..];
        out.push(match escape {
            b'x' => {
                let byte = u8::from_str_radix(std::str::from_utf8(&rest[..2]).unwrap(), 16).unwrap();
                rest = &rest[2..];
                byte
            }
            b't' => b'\t',
            b'r' => b'\r',
            b'n' => b'\n',
            other => other,
        });
    }
    out
}

#[test]
fn scalars_and_cases_are_read() {
    let text = "# x\n- name: 'it''s'\n  uri: /a\\t\n  method: GET\n  version: \"\"\n  headers:\n    - name: \"A\\x01\\\\\"\n      value: 1000\n      tier: Bad\n  expected:\n    tier: Severe\n";
    let cases = cases(text);
    assert_eq!(cases.len(), 1);
    assert_eq!((cases[0].name.as_str(), cases[0].tier.as_str()), ("it's", "Severe"));
    assert_eq!((&cases[0].uri[..], &cases[0].version[..]), (&b"/a\\t"[..], &b""[..]));
    assert_eq!(cases[0].headers, [(b"A\x01\\".to_vec(), b"1000".to_vec())]);
}

//! The collection of request smuggling attempts, through the gateway: what arrives at the origin, byte by byte.

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::support::{Origin, Spec, run};

#[derive(Debug, Default)]
struct Case {
    name: String,
    uri: Vec<u8>,
    method: Vec<u8>,
    version: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    tier: String,
}

fn folder() -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    std::env::var_os("CARDEA_VECTORS").map_or_else(beside, PathBuf::from).join("http-desync")
}

/// Reads the small part of YAML that the cases are written in.
fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let indent = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim_start().split_once(':') else { continue };
        let value = scalar(value.trim());
        if (indent, key) == (0, "- name") {
            cases.push(Case { name: String::from_utf8(value).unwrap(), ..Case::default() });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
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

fn scalar(text: &str) -> Vec<u8> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        return inner.replace("''", "'").into_bytes();
    }
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return text.as_bytes().to_vec();
    };
    let mut out = Vec::new();
    let mut bytes = inner.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().unwrap() {
            b'x' => {
                let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap()
            }
            b't' => b'\t',
            b'r' => b'\r',
            b'n' => b'\n',
            other => other,
        });
    }
    out
}

/// The request as bytes, with a body that matches the framing that it claims most plainly.
fn serialize(case: &Case) -> Vec<u8> {
    let mut out = [&case.method[..], b" ", &case.uri].concat();
    if !case.version.is_empty() {
        out.extend_from_slice(&[b" ", &case.version[..]].concat());
    }
    out.extend_from_slice(b"\r\n");
    if !case.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host")) {
        out.extend_from_slice(b"Host: a.example\r\n");
    }
    let mut body = Vec::new();
    for (name, value) in &case.headers {
        out.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            body = b"3\r\nabc\r\n0\r\n\r\n".to_vec();
        } else if name.eq_ignore_ascii_case(b"content-length")
            && let Some(length) =
                std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<usize>().ok())
            && length < 1_000_000
        {
            body = vec![b'x'; length];
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
    out
}

/// Splits what an origin received by the framing of each head, which must be unmistakable.
fn messages(mut bytes: &[u8], name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let end =
            memchr::memmem::find(bytes, b"\r\n\r\n").unwrap_or_else(|| panic!("{name}: no whole head")) + 4;
        let head: String = bytes[..end].iter().map(|byte| char::from(*byte)).collect();
        bytes = &bytes[end..];
        let lower = head.to_lowercase();
        let lengths: Vec<&str> =
            lower.split("\r\n").filter_map(|line| line.strip_prefix("content-length: ")).collect();
        let codings: Vec<&str> =
            lower.split("\r\n").filter_map(|line| line.strip_prefix("transfer-encoding: ")).collect();
        assert_eq!(lower.matches("content-length").count(), lengths.len(), "{name}: {head}");
        assert_eq!(lower.matches("transfer-encoding").count(), codings.len(), "{name}: {head}");
        match (&lengths[..], &codings[..]) {
            ([], []) => {}
            ([length], []) => {
                assert!(length.bytes().all(|byte| byte.is_ascii_digit()), "{name}: {head}");
                bytes = &bytes[length.parse::<usize>().unwrap()..];
            }
            ([], ["chunked"]) => {
                let end = memchr::memmem::find(bytes, b"0\r\n\r\n")
                    .unwrap_or_else(|| panic!("{name}: no last chunk"));
                bytes = &bytes[end + 5..];
            }
            _ => panic!("{name}: more than one framing: {head}"),
        }
        lines.push(head.split("\r\n").next().unwrap().to_owned());
    }
    lines
}

/// The reasons for which harmless requests are refused by the gateway, beside those that the codec has by itself. Each
/// with the section that carries it, and the number of cases.
const DEVIATIONS: &[(&str, usize)] = &[
    ("space_before_colon", 3),         // RFC 9112 §5.1
    ("field_name_invalid", 1),         // RFC 9110 §5.1
    ("version_unsupported", 2),        // RFC 9110 §15.6.6
    ("start_line_invalid", 2),         // RFC 9112 §3
    ("transfer_encoding_repeated", 3), // RFC 9112 §6.1
    ("target_byte_invalid", 1),        // RFC 3986 §2
    ("target_fragment", 1),            // RFC 9112 §3.2
];

#[test]
fn no_attempt_reaches_the_origin_in_two_readings() {
    let folder = folder();
    if !folder.is_dir() {
        eprintln!("skipped: no vectors in {}", folder.display());
        return;
    }
    run(async move {
        let mut refused: BTreeMap<String, usize> = BTreeMap::new();
        let (mut total, mut forwarded) = (0, 0);
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        for file in ["acceptable", "ambiguous", "edge-cases", "rfc-compliant", "severe"] {
            let text = fs::read_to_string(folder.join(file).with_extension("yaml")).unwrap();
            for case in cases(&text) {
                total += 1;
                let name = format!("{file}: {} ({})", case.name, case.tier);
                let harmless = matches!(case.tier.as_str(), "Compliant" | "Acceptable");
                let before = origin.received().len();
                let next = "GET /next HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
                let mut client = gateway.client().await;
                client.try_send([&serialize(&case)[..], next.as_bytes()].concat()).await;
                let to_head = case.method == b"HEAD";
                let response =
                    client.try_response(to_head).await.unwrap_or_else(|error| panic!("{name}: {error}"));
                let received: Vec<u8> = origin.received()[before.min(origin.received().len())..].concat();
                if response.status == 200 {
                    assert_ne!(case.tier, "Severe", "{name}");
                    forwarded += 1;
                    if !response.closes() {
                        assert_eq!(client.response().await.status, 200, "{name}");
                    }
                } else {
                    let code = if to_head { "head".to_owned() } else { response.code() };
                    println!("{name}: {} {code}", response.status);
                    assert!(response.closes(), "{name}: {}", response.head);
                    // Of a head that can't be read it is not known whether its response may have a body.
                    let rest = client.rest().await.expect("a clean end");
                    assert!(rest.is_empty() || to_head, "{name}");
                    assert!(received.is_empty(), "{name}: {}", String::from_utf8_lossy(&received));
                    if harmless {
                        *refused.entry(code).or_default() += 1;
                    }
                }
            }
        }
        // The same connections carried all that was forwarded: each boundary was found where it is.
        let lines: Vec<String> =
            origin.received().iter().flat_map(|bytes| messages(bytes, "what arrived")).collect();
        let next = lines.iter().filter(|line| *line == "GET /next HTTP/1.1").count();
        assert_eq!(lines.len(), forwarded + next, "{lines:?}");
        assert!(
            total == 95 && forwarded > 10 && next > 10,
            "{total} cases, {forwarded} forwarded, {next} followed"
        );
        let expected = DEVIATIONS.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect();
        assert_eq!(refused, expected);
    });
}

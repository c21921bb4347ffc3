//! The collection of request smuggling attempts: severe ones are refused, ambiguous ones are refused or framed so
//! that the next request is found where it begins, and of the harmless ones only those in a list are refused.

use std::collections::BTreeMap;
use std::fs;

use cardea_http::h1::{
    ChunkedDecoder, ChunkedLimits, Framing, HeadLimits, RequestDecoder, Step, request_framing,
};
use cardea_http::{
    LastAuthority, RequestError, RequestHead, Scheme, normalize_path, parse_target, request_authority,
};

use crate::vectors::{Case, cases, folder};

const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: next.example\r\n\r\n";

/// The reasons for which harmless requests are refused all the same, with the RFC section that carries each. Beside
/// the reason, the number of cases.
const DEVIATIONS: &[(&str, usize)] = &[
    // RFC 9112 §5.1: a server MUST reject white space before the colon.
    ("space_before_colon", 3),
    // RFC 9110 §5.1: a name is a token.
    ("field_name_invalid", 1),
    // RFC 9110 §15.6.6.
    ("version_unsupported", 2),
    // RFC 9112 §3: a request line without a version (HTTP/0.9), or without a target.
    ("start_line_invalid", 2),
    // RFC 9112 §6.1: codings that a server does not implement; we implement chunked alone.
    ("transfer_encoding_repeated", 3),
    // RFC 3986 §2: non-ASCII bytes are to be percent-encoded.
    ("target_byte_invalid", 1),
    // RFC 9112 §3.2: no form of the target has a fragment.
    ("target_fragment", 1),
];

/// A request as bytes, up to where its body begins.
fn serialize(case: &Case) -> Vec<u8> {
    let mut out = [&case.method[..], b" ", &case.uri].concat();
    if !case.version.is_empty() {
        out.extend_from_slice(&[b" ", &case.version[..]].concat());
    }
    out.extend_from_slice(b"\r\n");
    if !case.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host")) {
        out.extend_from_slice(b"Host: a.example\r\n");
    }
    for (name, value) in &case.headers {
        out.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// The framing of a request that is forwarded, and where its body begins; or why it is refused.
fn judge(bytes: &[u8]) -> Result<(Framing, usize), String> {
    let mut head = RequestHead::default();
    let code = |error: RequestError| error.code().to_owned();
    let length = RequestDecoder::new(HeadLimits::default()).decode(bytes, &mut head).map_err(code)?.unwrap();
    let framing = request_framing(&head).map_err(code)?;
    let target = parse_target(head.method, head.target()).map_err(|error| error.code().to_owned())?;
    request_authority(&head, &target, Scheme::Http, &mut LastAuthority::default()).map_err(code)?;
    normalize_path(target.path, &mut Vec::new()).map_err(|error| error.code().to_owned())?;
    Ok((framing, length))
}

/// Where the body ends that begins at `start`.
fn end_of_body(bytes: &[u8], start: usize, framing: Framing) -> usize {
    match framing {
        Framing::None => start,
        Framing::Length(length) => start + usize::try_from(length).unwrap(),
        Framing::Chunked => {
            let mut decoder = ChunkedDecoder::new(ChunkedLimits::default());
            let mut at = start;
            loop {
                match decoder.step(&bytes[at..]).unwrap() {
                    Step::Skip(n) | Step::Data(n) => at += n,
                    Step::Done(n) => return at + n,
                    Step::NeedMore => panic!("the body does not end"),
                }
            }
        }
        Framing::UntilClose => panic!("no request ends like this"),
    }
}

#[test]
fn no_request_has_two_readings() {
    let folder = folder().join("http-desync");
    if !folder.is_dir() {
        eprintln!("skipped: no vectors in {}", folder.display());
        return;
    }
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut total, mut framed) = (0, 0);
    for file in ["acceptable", "ambiguous", "edge-cases", "rfc-compliant", "severe"] {
        let text = fs::read_to_string(folder.join(file).with_extension("yaml")).unwrap();
        for case in cases(&text) {
            total += 1;
            let harmless = matches!(case.tier.as_str(), "Compliant" | "Acceptable");
            let mut bytes = serialize(&case);
            let name = format!("{file}: {}", case.name);
            match judge(&bytes) {
                Err(code) => {
                    println!("{name}: refused, {code}");
                    assert_ne!(code, "host_missing", "{name}");
                    if harmless {
                        *refused.entry(code).or_default() += 1;
                    }
                }
                Ok((framing, start)) => {
                    println!("{name}: {framing:?}");
                    assert_ne!(case.tier, "Severe", "{name}");
                    match framing {
                        Framing::Length(length) => {
                            bytes.resize(start + usize::try_from(length).unwrap(), b'x')
                        }
                        Framing::Chunked => bytes.extend_from_slice(b"3\r\nabc\r\n0\r\n\r\n"),
                        _ => {}
                    }
                    let end = bytes.len();
                    bytes.extend_from_slice(NEXT);
                    assert_eq!(end_of_body(&bytes, start, framing), end, "{name}");
                    let mut next = RequestHead::default();
                    let decoded = RequestDecoder::new(HeadLimits::default()).decode(&bytes[end..], &mut next);
                    assert_eq!((decoded, next.target()), (Ok(Some(NEXT.len())), &b"/next"[..]), "{name}");
                    framed += 1;
                }
            }
        }
    }
    assert!(total == 95 && framed > 10, "{total} cases, {framed} framed");
    let expected = DEVIATIONS.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect();
    assert_eq!(refused, expected);
}

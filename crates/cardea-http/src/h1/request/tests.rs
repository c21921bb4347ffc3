//! Request heads: accepted, and refused with the right reason, at every split and limit.

use proptest::prelude::*;

use super::*;
use crate::{Known, MethodError, TargetError};

fn decode(input: &[u8]) -> Result<Option<(usize, RequestHead)>, RequestError> {
    let mut head = RequestHead::default();
    let length = RequestDecoder::new(HeadLimits::default()).decode(input, &mut head)?;
    Ok(length.map(|length| (length, head)))
}

const TYPICAL: &[u8] = b"GET /a/b?c=d HTTP/1.1\r\nHost: example.com\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\
    accept-encoding: gzip, br\r\nX-Empty:\r\nX-Space: \t padded \t \r\nX-Latin: caf\xE9\r\n\r\n";

#[test]
fn a_head_is_read_as_it_was_sent() {
    let mut input = TYPICAL.to_vec();
    input.extend_from_slice(b"GET /next");
    let (length, head) = decode(&input).unwrap().unwrap();
    assert_eq!(length, TYPICAL.len());
    assert_eq!((head.method, head.version, head.target()), (Method::Get, Version::Http11, &b"/a/b?c=d"[..]));
    let lines: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
    let expected: [(&[u8], &[u8]); 7] = [
        (b"Host", b"example.com"),
        (b"User-Agent", b"curl/8"),
        (b"Accept", b"*/*"),
        (b"accept-encoding", b"gzip, br"),
        (b"X-Empty", b""),
        (b"X-Space", b"padded"),
        (b"X-Latin", b"caf\xE9"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(head.fields.get(Known::AcceptEncoding), Some(&b"gzip, br"[..]));
}

#[test]
fn every_cut_gives_the_same_head() {
    let (_, whole) = decode(TYPICAL).unwrap().unwrap();
    for first in 0..TYPICAL.len() {
        let mut decoder = RequestDecoder::new(HeadLimits::default());
        let mut head = RequestHead::default();
        assert_eq!(decoder.decode(&TYPICAL[..first], &mut head), Ok(None), "{first}");
        assert_eq!(decoder.decode(TYPICAL, &mut head), Ok(Some(TYPICAL.len())), "{first}");
        assert_eq!(head, whole);
    }
}

#[test]
fn one_decoder_takes_one_head_after_another() {
    let mut decoder = RequestDecoder::new(HeadLimits::default());
    let mut head = RequestHead::default();
    let input = b"POST /1 HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n\r\nGET /2 HTTP/1.0\r\n\r\n";
    let first = decoder.decode(input, &mut head).unwrap().unwrap();
    assert_eq!((head.target(), head.fields.len()), (&b"/1"[..], 2));
    let second = decoder.decode(&input[first..], &mut head).unwrap().unwrap();
    assert_eq!((head.target(), head.fields.len(), head.version), (&b"/2"[..], 0, Version::Http10));
    assert_eq!(first + second, input.len());
}

#[test]
fn some_empty_lines_before_a_request_are_skipped_however_they_come() {
    let request = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    for lines in 0..=4 {
        let input = [b"\r\n".repeat(lines).as_slice(), request].concat();
        let (mut decoder, mut head) = (RequestDecoder::new(HeadLimits::default()), RequestHead::default());
        for end in 0..input.len() {
            assert_eq!(decoder.decode(&input[..end], &mut head), Ok(None), "{lines} {end}");
        }
        assert_eq!(decoder.decode(&input, &mut head), Ok(Some(input.len())));
        assert_eq!(head.target(), b"/1");
    }
}

#[test]
fn what_the_grammar_does_not_have_is_refused_with_its_reason() {
    use HeadError as H;
    use RequestError as E;
    let line = |text: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{text}\r\n\r\n").into_bytes();
    let table: Vec<(Vec<u8>, RequestError)> = vec![
        // Lines (RFC 9112 §2.2).
        (b"GET / HTTP/1.1\nHost: a\r\n\r\n".to_vec(), H::BareLf.into()),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n".to_vec(), H::BareLf.into()),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\n".to_vec(), H::BareLf.into()),
        (b"\nGET / HTTP/1.1\r\n\r\n".to_vec(), H::BareLf.into()),
        (b"\r\n\nGET / HTTP/1.1\r\n\r\n".to_vec(), H::BareLf.into()),
        (b"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n".to_vec(), H::EmptyLine.into()),
        (b"\r\n\r\n\nGET / HTTP/1.1\r\n\r\n".to_vec(), H::BareLf.into()),
        (b"\r\n\rGET / HTTP/1.1\r\n\r\n".to_vec(), H::BareCr.into()),
        (b"\rGET / HTTP/1.1\r\n\r\n".to_vec(), H::BareCr.into()),
        (b"GET / HTTP/1.1\r\r\n\r\n".to_vec(), H::BareCr.into()),
        (b"GET /\rHTTP/1.1\r\n\r\n".to_vec(), H::BareCr.into()),
        (line("X: a\rb"), H::BareCr.into()),
        (line("X: a\r"), H::BareCr.into()),
        (line("X\r: a"), H::BareCr.into()),
        (line("\rX: a"), H::BareCr.into()),
        // Fields (RFC 9112 §5).
        (line("X: a\r\n b"), H::ObsFold.into()),
        (line("X: a\r\n\tb"), H::ObsFold.into()),
        (line("X: a\r\n \r\nY: b"), H::ObsFold.into()),
        (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_vec(), H::ObsFold.into()),
        (line("X : a"), H::SpaceBeforeColon.into()),
        (line("X\t: a"), H::SpaceBeforeColon.into()),
        (line("Transfer-Encoding : chunked"), H::SpaceBeforeColon.into()),
        (line(": a"), H::FieldNameInvalid.into()),
        (line("X Y: a"), H::FieldNameInvalid.into()),
        (line("X(: a"), H::FieldNameInvalid.into()),
        (line("X\x01: a"), H::FieldNameInvalid.into()),
        (line("caf\u{e9}: a"), H::FieldNameInvalid.into()),
        (line("X"), H::ColonMissing.into()),
        (line("X: a\0"), H::FieldValueInvalid.into()),
        (line("X: a\x01b"), H::FieldValueInvalid.into()),
        (line("X: a\x7F"), H::FieldValueInvalid.into()),
        (line("X: \x0B"), H::FieldValueInvalid.into()),
        // The request line (RFC 9112 §3).
        (b"\x16\x03\x01".to_vec(), H::StartLineInvalid.into()),
        (b" GET / HTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET  / HTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET /  HTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / HTTP/1.1 \r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET\t/ HTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / a HTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET /\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / \r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET HTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET  HTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / http/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / HTTP/1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / HTTP/1.10\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / HTTP/01.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / XTTP/1.1\r\n\r\n".to_vec(), H::StartLineInvalid.into()),
        (b"GET / HTTP/1.2\r\n\r\n".to_vec(), E::VersionUnsupported),
        (b"GET / HTTP/0.9\r\n\r\n".to_vec(), E::VersionUnsupported),
        (b"GET / HTTP/2.0\r\n\r\n".to_vec(), E::VersionUnsupported),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), E::VersionUnsupported),
        (b"G(T / HTTP/1.1\r\n\r\n".to_vec(), MethodError::Invalid.into()),
        (b"bad\x01 / HTTP/1.1\r\n\r\n".to_vec(), MethodError::Invalid.into()),
        (b"AAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n\r\n".to_vec(), MethodError::TooLong.into()),
        (b"GET /caf\xC3\xA9 HTTP/1.1\r\n\r\n".to_vec(), TargetError::ByteInvalid.into()),
        (b"GET /\x7F HTTP/1.1\r\n\r\n".to_vec(), TargetError::ByteInvalid.into()),
        (b"GET /\0 HTTP/1.1\r\n\r\n".to_vec(), TargetError::ByteInvalid.into()),
        (b"GET /a\tb HTTP/1.1\r\n\r\n".to_vec(), TargetError::ByteInvalid.into()),
    ];
    for (input, expected) in table {
        let text = input.escape_ascii();
        assert_eq!(decode(&input).as_ref().err(), Some(&expected), "{text}");
        // The reason is the same wherever the input is split.
        for cut in 0..input.len() {
            let mut decoder = RequestDecoder::new(HeadLimits::default());
            let mut head = RequestHead::default();
            let found = match decoder.decode(&input[..cut], &mut head) {
                Ok(None) => decoder.decode(&input, &mut head),
                other => other,
            };
            assert_eq!(found, Err(expected), "{text} at {cut}");
        }
    }
    assert!(decode(&line("X: a")).unwrap().is_some(), "the control");
}

#[test]
fn limits_hold_before_the_head_is_complete() {
    let limits = HeadLimits { head_bytes_max: 200, target_bytes_max: 20, fields_max: 3 };
    let run = |input: &[u8]| RequestDecoder::new(limits).decode(input, &mut RequestHead::default());
    let target = |len: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(len - 1)).into_bytes();
    assert!(run(&target(20)).unwrap().is_some());
    assert_eq!(run(&target(21)), Err(RequestError::TargetTooLong));
    assert_eq!(run(&[b'a'; 60]), Err(RequestError::TargetTooLong));
    assert_eq!(run(&[b'a'; 300]), Err(RequestError::TargetTooLong));
    assert_eq!(run(&[b'a'; 30]), Ok(None));

    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(count)).into_bytes();
    let complete = |count: usize| [fields(count), b"\r\n".to_vec()].concat();
    assert!(run(&complete(3)).unwrap().is_some());
    assert_eq!(run(&fields(3)), Ok(None));
    assert_eq!(run(&fields(4)), Err(HeadError::TooManyFields.into()));

    let sized = |len: usize| {
        let rest = b"GET / HTTP/1.1\r\na: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(len - rest)).into_bytes()
    };
    assert_eq!(run(&sized(200)), Ok(Some(200)));
    assert_eq!(run(&sized(201)), Err(HeadError::TooLarge.into()));
    assert_eq!(run(&sized(201)[..200]), Err(HeadError::TooLarge.into()));
    assert_eq!(run(&sized(201)[..199]), Ok(None));
}

#[test]
fn the_statuses_are_those_of_the_rfcs() {
    assert_eq!(RequestError::TargetTooLong.status(), 414);
    assert_eq!(RequestError::Head(HeadError::TooLarge).status(), 431);
    assert_eq!(RequestError::Head(HeadError::TooManyFields).status(), 431);
    assert_eq!(RequestError::VersionUnsupported.status(), 505);
    assert_eq!(RequestError::Method(MethodError::TooLong).status(), 501);
    assert_eq!((RequestError::HostMissing.status(), RequestError::HostMissing.code()), (400, "host_missing"));
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b" ".to_vec()),
        Just(b":".to_vec()),
        Just(b"GET / HTTP/1.1\r\n".to_vec()),
        Just(b"Host: a\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
        "[a-zA-Z-]{1,6}: [ -~]{0,6}\r\n".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_bytes_hold_the_properties_of_the_fuzz_target(
        start in any::<bool>(), pieces in prop::collection::vec(piece(), 0..8)
    ) {
        let mut input = if start { b"POST /x HTTP/1.1\r\n".to_vec() } else { Vec::new() };
        input.extend(pieces.concat());
        crate::fuzzing::request_head(&input);
    }
}

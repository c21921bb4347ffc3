//! Response heads: origins must follow the grammar as clients must.

use proptest::prelude::*;

use super::*;
use crate::Known;

fn decode(input: &[u8]) -> Result<Option<(usize, ResponseHead)>, ResponseError> {
    let mut head = ResponseHead::default();
    let length = ResponseDecoder::new(HeadLimits::default()).decode(input, &mut head)?;
    Ok(length.map(|length| (length, head)))
}

#[test]
fn a_head_is_read_as_it_was_sent() {
    let input = b"HTTP/1.1 404 Not Found\r\nServer: x\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\n\r\nbody";
    for cut in 0..input.len() - 4 {
        assert_eq!(decode(&input[..cut]), Ok(None));
    }
    let (length, head) = decode(input).unwrap().unwrap();
    assert_eq!((length, head.status, head.version), (input.len() - 4, 404, Version::Http11));
    assert_eq!(head.fields.get_all(Known::SetCookie).collect::<Vec<_>>(), [b"a=b", b"c=d"]);
    for line in [
        "HTTP/1.1 200",
        "HTTP/1.1 200 ",
        "HTTP/1.0 200 Fine  by me",
        "HTTP/1.1 200 caf\u{e9}",
        "HTTP/1.1 599 x",
    ] {
        assert!(decode(format!("{line}\r\n\r\n").as_bytes()).unwrap().is_some(), "{line}");
    }
}

#[test]
fn what_the_grammar_does_not_have_is_refused_with_its_reason() {
    use HeadError as H;
    let table: &[(&[u8], ResponseError)] = &[
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", ResponseError::Head(H::EmptyLine)),
        (b"HTTP/1.1 200 OK\n\r\n", ResponseError::Head(H::BareLf)),
        (b"HTTP/1.1 200 OK\r\nA: b\n\r\n", ResponseError::Head(H::BareLf)),
        (b"HTTP/1.1 200 O\rK\r\n\r\n", ResponseError::Head(H::BareCr)),
        (b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", ResponseError::Head(H::BareCr)),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", ResponseError::Head(H::ObsFold)),
        (b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n", ResponseError::Head(H::ObsFold)),
        (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", ResponseError::Head(H::SpaceBeforeColon)),
        (b"HTTP/1.1 200 OK\r\n: b\r\n\r\n", ResponseError::Head(H::FieldNameInvalid)),
        (b"HTTP/1.1 200 OK\r\nA\r\n\r\n", ResponseError::Head(H::ColonMissing)),
        (b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", ResponseError::Head(H::FieldValueInvalid)),
        (b"HTTP/1.1 200 O\x01K\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"HTTP/1.1  200 OK\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"HTTP/1.1 20 OK\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"HTTP/1.1 2000 OK\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"HTTP/1.1 200OK\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"HTTP/1.1\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"http/1.1 200 OK\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"ICY 200 OK\r\n\r\n", ResponseError::Head(H::StartLineInvalid)),
        (b"HTTP/1.2 200 OK\r\n\r\n", ResponseError::VersionUnsupported),
        (b"HTTP/2.0 200 OK\r\n\r\n", ResponseError::VersionUnsupported),
        (b"HTTP/1.1 099 x\r\n\r\n", ResponseError::StatusInvalid),
        (b"HTTP/1.1 600 x\r\n\r\n", ResponseError::StatusInvalid),
    ];
    for (input, expected) in table {
        assert_eq!(decode(input).as_ref().err(), Some(expected), "{}", input.escape_ascii());
        assert_eq!(expected.status(), 502);
        for cut in 0..input.len() {
            let mut decoder = ResponseDecoder::new(HeadLimits::default());
            let mut head = ResponseHead::default();
            let found = match decoder.decode(&input[..cut], &mut head) {
                Ok(None) => decoder.decode(input, &mut head),
                other => other,
            };
            assert_eq!(found, Err(*expected), "{} at {cut}", input.escape_ascii());
        }
    }
}

#[test]
fn limits_hold_before_the_head_is_complete() {
    let limits = HeadLimits { head_bytes_max: 100, target_bytes_max: 0, fields_max: 2 };
    let run = |input: &[u8]| ResponseDecoder::new(limits).decode(input, &mut ResponseHead::default());
    assert_eq!(run(b"HTTP/1.1 200 OK\r\nA: b\r\nA: b\r\n\r\n"), Ok(Some(31)));
    assert_eq!(run(b"HTTP/1.1 200 OK\r\nA: b\r\nA: b\r\nA: b\r\n"), Err(HeadError::TooManyFields.into()));
    assert_eq!(run(&[b'H'; 100]), Err(HeadError::TooLarge.into()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_bytes_hold_the_properties_of_the_fuzz_target(
        line in "HTTP/1.[01] [0-9]{3}( [ -~]{0,4})?\r\n", rest in "([a-c]{1,2} ?: ?[ -~]{0,4}(\r\n|\n|\r)){0,3}(\r\n)?"
    ) {
        crate::fuzzing::response_head(format!("{line}{rest}").as_bytes());
    }
}

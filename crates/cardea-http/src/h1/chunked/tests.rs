//! Chunked bodies: data, framing, and errors.

use proptest::prelude::*;

use super::*;
use crate::h1::{write_chunk_size, write_last_chunk};

const LIMITS: ChunkedLimits =
    ChunkedLimits { extension_bytes_max: 32, trailers: TrailerLimits { bytes_max: 64, fields_max: 2 } };

type Body = (Vec<u8>, usize, Option<Fields>);

/// The data, the bytes taken and the trailers, or `None` if the body is not complete.
fn decode(input: &[u8], size: usize) -> Result<Option<Body>, ChunkedError> {
    let mut decoder = ChunkedDecoder::new(LIMITS);
    let (mut data, mut taken) = (Vec::new(), 0);
    for piece in input.chunks(size) {
        let mut rest = piece;
        loop {
            match decoder.step(rest)? {
                Step::NeedMore => break,
                Step::Skip(n) => (taken, rest) = (taken + n, &rest[n..]),
                Step::Data(n) => {
                    data.extend_from_slice(&rest[..n]);
                    (taken, rest) = (taken + n, &rest[n..]);
                }
                Step::Done(n) => {
                    assert!(decoder.is_done());
                    assert_eq!(decoder.step(b"GET"), Ok(Step::Done(0)));
                    return Ok(Some((data, taken + n, decoder.trailers().cloned())));
                }
            }
        }
        assert!(!decoder.is_done());
    }
    Ok(None)
}

#[test]
fn a_body_is_its_data() {
    for (body, expected) in [
        ("0\r\n\r\n", ""),
        ("000\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5\r\nhello\r\n6\r\n\r\nx\r\ny\r\n0\r\n\r\n", "hello\r\nx\r\ny"),
        ("a;b=c;d\r\n0123456789\r\n0;x=\"a b\"\r\n\r\n", "0123456789"),
        ("0A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("0000000000000001\r\nx\r\n0\r\n\r\n", "x"),
    ] {
        let input = format!("{body}GET / HTTP/1.1\r\n");
        for size in [1, 2, 3, 7, 1000] {
            let found = decode(input.as_bytes(), size).unwrap().unwrap();
            assert_eq!(found, (expected.as_bytes().to_vec(), body.len(), None), "{body:?} {size}");
        }
        for cut in 0..body.len() {
            assert_eq!(decode(&body.as_bytes()[..cut], 1000), Ok(None), "{body:?} {cut}");
        }
    }
}

#[test]
fn what_is_malformed_is_refused() {
    use ChunkedError as E;
    use HeadError as H;
    let table: &[(&[u8], ChunkedError)] = &[
        (b"\r\n", E::SizeInvalid),
        (b"g\r\n", E::SizeInvalid),
        (b"-1\r\n", E::SizeInvalid),
        (b"+1\r\n", E::SizeInvalid),
        (b"0x1\r\n", E::SizeInvalid),
        (b" 1\r\n", E::SizeInvalid),
        (b"1 \r\n", E::SizeInvalid),
        (b"1\t;a\r\n", E::SizeInvalid),
        (b"1\n", E::SizeInvalid),
        (b";a\r\n", E::SizeInvalid),
        (b"8000000000000000\r\n", E::SizeInvalid),
        (b"10000000000000000\r\n", E::SizeInvalid),
        (b"00000000000000001\r\n", E::SizeInvalid),
        (b"1\rx", E::ExtensionInvalid),
        (b"1\r\r\n", E::ExtensionInvalid),
        (b"1;a\n", E::ExtensionInvalid),
        (b"1;a\rb\r\n", E::ExtensionInvalid),
        (b"1;a\0\r\n", E::ExtensionInvalid),
        (b"1;\x7F\r\n", E::ExtensionInvalid),
        (b"1\r\nxy", E::DataEndInvalid),
        (b"1\r\nx\n0\r\n\r\n", E::DataEndInvalid),
        (b"1\r\nx\ry", E::DataEndInvalid),
        (b"1\r\nx0\r\n\r\n", E::DataEndInvalid),
        (b"0\r\n\n", E::Trailer(TrailerError(H::BareLf))),
        (b"0\r\nA: b\n\r\n", E::Trailer(TrailerError(H::BareLf))),
        (b"0\r\n A: b\r\n\r\n", E::Trailer(TrailerError(H::ObsFold))),
        (b"0\r\nA: b\r\n c\r\n\r\n", E::Trailer(TrailerError(H::ObsFold))),
        (b"0\r\nA : b\r\n\r\n", E::Trailer(TrailerError(H::SpaceBeforeColon))),
        (b"0\r\nA\r\n\r\n", E::Trailer(TrailerError(H::ColonMissing))),
        (b"0\r\n: b\r\n\r\n", E::Trailer(TrailerError(H::FieldNameInvalid))),
        (b"0\r\nA: b\rc\r\n\r\n", E::Trailer(TrailerError(H::BareCr))),
        (b"0\r\nA: \0\r\n\r\n", E::Trailer(TrailerError(H::FieldValueInvalid))),
        (b"0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", E::Trailer(TrailerError(H::ColonMissing))),
    ];
    for (body, expected) in table {
        for size in [1, 1000] {
            let found = decode(body, size);
            assert_eq!(found.as_ref().err(), Some(expected), "{} {size}", body.escape_ascii());
        }
    }
}

#[test]
fn trailers_come_out_and_are_bounded() {
    let body = b"1\r\nx\r\n0\r\nA: b\r\nC:d\r\n\r\n";
    for size in [1, 2, 5, 1000] {
        let (_, taken, trailers) = decode(body, size).unwrap().unwrap();
        let trailers = trailers.unwrap();
        assert_eq!((taken, trailers.len(), trailers.get_by_name(b"c")), (body.len(), 2, Some(&b"d"[..])));
    }
    assert_eq!(
        decode(b"0\r\nA: b\r\nA: b\r\nA: b\r\n", 1000),
        Err(ChunkedError::Trailer(TrailerError(HeadError::TooManyFields)))
    );
    let long = format!("0\r\nA: {}", "b".repeat(100));
    for size in [1, 10, 1000] {
        assert_eq!(
            decode(long.as_bytes(), size),
            Err(ChunkedError::Trailer(TrailerError(HeadError::TooLarge)))
        );
    }
}

#[test]
fn extensions_are_bounded_over_the_whole_body() {
    let chunk = |len: usize| format!("1;{}\r\nx\r\n", "e".repeat(len - 1));
    assert!(decode(format!("{}{}0\r\n\r\n", chunk(16), chunk(16)).as_bytes(), 1000).unwrap().is_some());
    let found = decode(format!("{}{}0\r\n\r\n", chunk(16), chunk(17)).as_bytes(), 1000);
    assert_eq!(found, Err(ChunkedError::ExtensionsTooLarge));
}

proptest! {
    #[test]
    fn what_was_written_is_read_at_any_cut(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        trailer in any::<bool>(),
        size in 1..50_usize,
    ) {
        let mut body = Vec::new();
        for chunk in &chunks {
            write_chunk_size(&mut body, chunk.len());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        let mut trailers = Fields::default();
        trailers.append(b"x-sum", b"1").unwrap();
        let trailers = trailer.then_some(trailers);
        write_last_chunk(&mut body, trailers.as_ref());
        prop_assert_eq!(decode(&body, size), Ok(Some((chunks.concat(), body.len(), trailers))));
    }

    #[test]
    fn any_bytes_hold_the_properties_of_the_fuzz_target(body in "[0-3;a\r\n: ]{0,24}", cut in any::<u8>()) {
        let mut input = vec![cut];
        input.extend_from_slice(body.as_bytes());
        crate::fuzzing::chunked(&input);
    }
}

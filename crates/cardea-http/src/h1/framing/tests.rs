//! The length of a body: every case of RFC 9112 §6.3, and ambiguous framing, which is refused.

use super::*;

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in lines {
        fields.append(name.as_bytes(), value.as_bytes()).unwrap();
    }
    fields
}

type Case<'a> = (&'a [(&'a str, &'a str)], Result<Framing, FramingError>);

const AMBIGUOUS: &[Case<'static>] = &[
    (
        &[("Content-Length", "1"), ("Transfer-Encoding", "chunked")],
        Err(FramingError::ContentLengthWithTransferEncoding),
    ),
    (
        &[("transfer-encoding", "gzip"), ("content-length", "1")],
        Err(FramingError::ContentLengthWithTransferEncoding),
    ),
    (&[("Content-Length", "5"), ("Content-Length", "6")], Err(FramingError::ContentLengthRepeated)),
    (&[("Content-Length", "5"), ("Content-Length", "5")], Err(FramingError::ContentLengthRepeated)),
    (&[("Content-Length", "5, 5")], Err(FramingError::ContentLengthRepeated)),
    (&[("Content-Length", "5,")], Err(FramingError::ContentLengthRepeated)),
    (&[("Content-Length", "")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "-1")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "+1")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "1 1")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "0x1")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "1.0")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "1e3")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "9223372036854775808")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "18446744073709551616")], Err(FramingError::ContentLengthInvalid)),
    (&[("Content-Length", "00000000000000000001")], Err(FramingError::ContentLengthInvalid)),
    (
        &[("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")],
        Err(FramingError::TransferEncodingRepeated),
    ),
    (
        &[("Transfer-Encoding", "gzip"), ("Transfer-Encoding", "chunked")],
        Err(FramingError::TransferEncodingRepeated),
    ),
    (&[("Transfer-Encoding", "chunked, chunked")], Err(FramingError::TransferEncodingRepeated)),
    (&[("Transfer-Encoding", "gzip, chunked")], Err(FramingError::TransferEncodingRepeated)),
    (&[("Transfer-Encoding", ", chunked")], Err(FramingError::TransferEncodingRepeated)),
    (&[("Transfer-Encoding", "gzip")], Err(FramingError::TransferEncodingUnknown)),
    (&[("Transfer-Encoding", "identity")], Err(FramingError::TransferEncodingUnknown)),
    (&[("Transfer-Encoding", "xchunked")], Err(FramingError::TransferEncodingUnknown)),
    (&[("Transfer-Encoding", "chunked;a=b")], Err(FramingError::TransferEncodingUnknown)),
    (&[("Transfer-Encoding", "\"chunked\"")], Err(FramingError::TransferEncodingUnknown)),
    (&[("Transfer-Encoding", "chunked\u{80}")], Err(FramingError::TransferEncodingUnknown)),
    (&[("Transfer-Encoding", "")], Err(FramingError::TransferEncodingUnknown)),
];

const PLAIN: &[Case<'static>] = &[
    (&[("Content-Length", "0")], Ok(Framing::Length(0))),
    (&[("content-length", "42")], Ok(Framing::Length(42))),
    (&[("Content-Length", "007")], Ok(Framing::Length(7))),
    (&[("Content-Length", "9223372036854775807")], Ok(Framing::Length(9_223_372_036_854_775_807))),
    (&[("Transfer-Encoding", "chunked")], Ok(Framing::Chunked)),
    (&[("TRANSFER-ENCODING", " Chunked ")], Ok(Framing::Chunked)),
];

#[test]
fn a_request_is_framed_in_one_way_or_refused() {
    let run = |lines: &[(&str, &str)], version| {
        request_framing(&RequestHead { version, fields: fields(lines), ..RequestHead::default() })
    };
    assert_eq!(run(&[], Version::Http11), Ok(Framing::None));
    for (lines, expected) in AMBIGUOUS.iter().chain(PLAIN) {
        assert_eq!(run(lines, Version::Http11), expected.map_err(RequestError::Framing), "{lines:?}");
    }
    let lookalike = Err(FramingError::FramingFieldLookalike.into());
    assert_eq!(run(&[("Content_Length", "5")], Version::Http11), lookalike);
    assert_eq!(run(&[("transfer_encoding", "chunked")], Version::Http11), lookalike);
    assert_eq!(run(&[("Content.Length", "5")], Version::Http11), lookalike);
    assert_eq!(run(&[("transfer!encoding", "chunked")], Version::Http11), lookalike);
    assert_eq!(run(&[("content~length", "5")], Version::Http2), lookalike);
    assert_eq!(
        run(&[("My_Field", "x"), ("Transfer--Encoding", "chunked")], Version::Http11),
        Ok(Framing::None)
    );

    let chunked = [("Transfer-Encoding", "chunked")];
    assert_eq!(run(&chunked, Version::Http10), Err(FramingError::TransferEncodingInHttp10.into()));
    assert_eq!(run(&[("Content-Length", "5")], Version::Http10), Ok(Framing::Length(5)));
}

#[test]
fn http_2_has_no_connection_fields() {
    let run = |lines: &[(&str, &str)]| {
        request_framing(&RequestHead {
            version: Version::Http2,
            fields: fields(lines),
            ..RequestHead::default()
        })
    };
    for (name, value) in [
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("Keep-Alive", "x"),
        ("Upgrade", "websocket"),
        ("Proxy-Connection", "close"),
        ("TE", "gzip"),
        ("TE", "trailers, gzip"),
    ] {
        assert_eq!(run(&[(name, value)]), Err(FramingError::ConnectionFieldInHttp2.into()), "{name}");
    }
    assert_eq!(run(&[("TE", "Trailers"), ("Content-Length", "5")]), Ok(Framing::Length(5)));
    assert_eq!(run(&[]), Ok(Framing::None));
    assert_eq!(run(&[("Content-Length", "5, 5")]), Err(FramingError::ContentLengthRepeated.into()));
}

#[test]
fn a_response_is_framed_in_one_way_or_refused() {
    let run = |status, lines: &[(&str, &str)], method| {
        response_framing(&ResponseHead { fields: fields(lines), ..ResponseHead::new(status) }, method)
    };
    for status in [200, 404, 304, 100, 204] {
        for (lines, expected) in AMBIGUOUS {
            assert_eq!(
                run(status, lines, Method::Get),
                expected.map_err(ResponseError::Framing),
                "{status} {lines:?}"
            );
            assert!(run(status, lines, Method::Head).is_err());
        }
    }
    for (lines, expected) in PLAIN {
        assert_eq!(run(200, lines, Method::Get), expected.map_err(ResponseError::Framing));
        assert_eq!(run(200, lines, Method::Head), Ok(Framing::None));
        assert_eq!(run(304, lines, Method::Get), Ok(Framing::None));
    }
    let (length, zero, chunked) =
        ([("Content-Length", "5")], [("Content-Length", "0")], [("Transfer-Encoding", "chunked")]);
    assert_eq!(run(200, &[], Method::Get), Ok(Framing::UntilClose));
    for status in [100, 101, 103, 204] {
        assert_eq!(run(status, &[], Method::Get), Ok(Framing::None));
        assert_eq!(run(status, &zero, Method::Get), Ok(Framing::None));
        assert_eq!(run(status, &length, Method::Get), Err(FramingError::BodyNotAllowed.into()));
        assert_eq!(run(status, &chunked, Method::Get), Err(FramingError::BodyNotAllowed.into()));
    }
    let old = ResponseHead { version: Version::Http10, fields: fields(&chunked), ..ResponseHead::new(200) };
    assert_eq!(response_framing(&old, Method::Get), Err(FramingError::TransferEncodingInHttp10.into()));
}

#[test]
fn connections_persist_as_their_version_says() {
    let table: &[(Version, &[&str], bool)] = &[
        (Version::Http11, &[], true),
        (Version::Http11, &["close"], false),
        (Version::Http11, &["x, CLOSE"], false),
        (Version::Http11, &["keep-alive", "close"], false),
        (Version::Http11, &["closed"], true),
        (Version::Http10, &[], false),
        (Version::Http10, &["Keep-Alive"], true),
        (Version::Http10, &["keep-alive, close"], false),
        (Version::Http2, &[], true),
    ];
    for (version, values, expected) in table {
        let lines: Vec<_> = values.iter().map(|value| ("Connection", *value)).collect();
        assert_eq!(wants_keep_alive(*version, &fields(&lines)), *expected, "{version} {values:?}");
    }
}

//! Heads and trailers against the rules of RFC 9113 §8, line by line.

use super::super::error::{HeadFault, Malformed};
use super::super::hpack::{Encoder, LineError};
use super::super::role::RequestKind;
use super::*;
use crate::h1::HeadLimits;
use crate::{
    Field, Fields, FramingError, HeadError, Known, Method, MethodError, RequestError, RequestHead,
    ResponseHead, Scheme, TargetError, TrailerLimits, Version,
};

/// A block of lines as they stand, sound or not.
pub(crate) fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in lines {
        // A literal without indexing, of strings below 127 bytes.
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

const BASE: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.example")];

fn rules() -> RequestRules {
    let limits = HeadLimits { head_bytes_max: 4096, target_bytes_max: 100, fields_max: 20 };
    RequestRules { limits, scheme: Scheme::Https, connect_protocol: false }
}

fn read(
    rules: &RequestRules,
    lines: &[(&str, &str)],
) -> (Result<super::request::RequestFacts, HeadFault>, RequestHead) {
    let mut head = RequestHead::default();
    let read = read_request(&mut Decoder::default(), &block(lines), rules, &mut head).unwrap();
    (read, head)
}

/// The base with lines behind it.
fn with<'a>(lines: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&BASE[..], lines].concat()
}

fn malformed(error: impl Into<Malformed>) -> Option<HeadFault> {
    Some(HeadFault::Malformed(error.into()))
}

fn refused(error: impl Into<RequestError>) -> Option<HeadFault> {
    Some(HeadFault::Refused(error.into()))
}

#[test]
fn a_request_is_read_into_the_head_of_every_version() {
    let (facts, head) =
        read(&rules(), &with(&[("content-length", "12"), ("x-a", "b"), ("priority", "u=1, i")]));
    let facts = facts.unwrap();
    assert_eq!((facts.length, facts.protocol), (Some(12), None));
    assert_eq!((facts.priority.urgency, facts.priority.incremental), (1, true));
    assert_eq!((head.method, head.version, head.target()), (Method::Get, Version::Http2, &b"/"[..]));
    assert_eq!(head.fields.get(Known::Host), Some(&b"a.example"[..]));
    assert_eq!(head.fields.get_by_name(b"x-a"), Some(&b"b"[..]));
}

#[test]
fn pseudo_header_fields_are_those_of_section_8_3() {
    let other = |place: usize, line: (&'static str, &'static str)| {
        let mut lines = BASE.to_vec();
        lines[place] = line;
        lines
    };
    let without = |place: usize| {
        let mut lines = BASE.to_vec();
        lines.remove(place);
        lines
    };
    let long = "/".repeat(101);
    let table = [
        (BASE.to_vec(), None),
        (without(0), malformed(Malformed::PseudoSet)),
        (without(1), malformed(Malformed::PseudoSet)),
        (without(2), malformed(Malformed::PseudoSet)),
        // `Host` may be there instead; if there is none, the pipeline refuses it as over HTTP/1.1.
        (without(3), None),
        (with(&[(":path", "/")]), malformed(Malformed::PseudoRepeated)),
        (with(&[("a", "b"), (":protocol", "x")]), malformed(Malformed::PseudoMisplaced)),
        (with(&[(":status", "200")]), malformed(Malformed::PseudoUndefined)),
        (with(&[(":x", "200")]), malformed(Malformed::PseudoUndefined)),
        (with(&[(":protocol", "websocket")]), malformed(Malformed::PseudoUndefined)),
        (other(0, (":method", "G ET")), malformed(Malformed::PseudoInvalid)),
        (other(0, (":method", "")), malformed(Malformed::PseudoInvalid)),
        (other(0, (":method", "PROPFIND")), None),
        (other(0, (":method", "AAAAAAAAAAAAAAAAAAAAAAAA")), refused(MethodError::TooLong)),
        (other(1, (":scheme", "HTTPS")), None),
        (other(1, (":scheme", "http")), refused(RequestError::SchemeDisagrees)),
        (other(1, (":scheme", "ftp")), refused(TargetError::SchemeUnknown)),
        (other(2, (":path", "")), malformed(Malformed::PseudoInvalid)),
        (other(2, (":path", "a")), malformed(Malformed::PseudoInvalid)),
        (other(2, (":path", "*")), malformed(Malformed::PseudoInvalid)),
        (other(2, (":path", "http://b.example/")), malformed(Malformed::PseudoInvalid)),
        (other(2, (":path", "/a b")), malformed(Malformed::PseudoInvalid)),
        (other(2, (":path", "/a\u{e9}")), malformed(Malformed::PseudoInvalid)),
        (other(2, (":path", "/a#b")), refused(TargetError::Fragment)),
        (other(2, (":path", "/a\r\nb")), malformed(LineError::ValueInvalid)),
        (other(2, (":path", " /a")), malformed(LineError::ValueSurrounded)),
        (other(2, (":path", &*long.leak())), refused(RequestError::TargetTooLong)),
    ];
    for (lines, expected) in table {
        assert_eq!(read(&rules(), &lines).0.err(), expected, "{lines:?}");
    }
    let options = [(":method", "OPTIONS"), (":scheme", "https"), (":path", "*"), (":authority", "a")];
    assert_eq!(read(&rules(), &options).1.target(), b"*");
}

#[test]
fn connect_has_an_authority_only_unless_it_is_extended() {
    let plain = [(":method", "CONNECT"), (":authority", "a.example:443")];
    let (facts, head) = read(&rules(), &plain);
    assert_eq!((facts.unwrap().protocol, head.target()), (None, &b"a.example:443"[..]));
    for lines in [
        &[(":method", "CONNECT")][..],
        &[(":method", "CONNECT"), (":authority", "a:1"), (":path", "/")],
        &[(":method", "CONNECT"), (":authority", "a:1"), (":scheme", "https")],
    ] {
        assert_eq!(read(&rules(), lines).0.err(), malformed(Malformed::PseudoSet), "{lines:?}");
    }
    let extended = [&[(":method", "CONNECT"), (":protocol", "websocket")], &BASE[1..]].concat();
    assert_eq!(read(&rules(), &extended).0.err(), malformed(Malformed::PseudoUndefined));
    let offered = RequestRules { connect_protocol: true, ..rules() };
    assert_eq!(read(&offered, &extended).0.unwrap().protocol, Some(Protocol::WebSocket));
    let other = [&[(":method", "CONNECT"), (":protocol", "connect-udp")], &BASE[1..]].concat();
    assert_eq!(read(&offered, &other).0.unwrap().protocol, Some(Protocol::Other));
    let get = with(&[(":protocol", "websocket")]);
    assert_eq!(read(&offered, &get).0.err(), malformed(Malformed::PseudoUndefined));
    let incomplete = [(":method", "CONNECT"), (":protocol", "websocket"), (":authority", "a:1")];
    assert_eq!(read(&offered, &incomplete).0.err(), malformed(Malformed::PseudoSet));
}

#[test]
fn fields_are_as_strict_as_over_http_1() {
    let connection = malformed(FramingError::ConnectionFieldInHttp2);
    let table = [
        (("te", "trailers"), None),
        (("te", "gzip"), connection),
        (("te", "trailers, gzip"), connection),
        (("connection", "close"), connection),
        (("keep-alive", "1"), connection),
        (("proxy-connection", "close"), connection),
        (("transfer-encoding", "chunked"), connection),
        (("upgrade", "h2c"), connection),
        (("X-A", "b"), malformed(LineError::NameInvalid)),
        (("", "b"), malformed(LineError::NameEmpty)),
        (("x a", "b"), malformed(LineError::NameInvalid)),
        (("x-a", "b\nc"), malformed(LineError::ValueInvalid)),
        (("x-a", "b\0"), malformed(LineError::ValueInvalid)),
        (("x-a", " b"), malformed(LineError::ValueSurrounded)),
        (("x-a", "b "), malformed(LineError::ValueSurrounded)),
        (("content-length", "1x"), malformed(FramingError::ContentLengthInvalid)),
        (("content-length", "1, 1"), malformed(FramingError::ContentLengthRepeated)),
        (("content_length", "1"), refused(FramingError::FramingFieldLookalike)),
        (("host", "A.EXAMPLE"), None),
        (("host", "b.example"), refused(RequestError::HostDisagrees)),
    ];
    for (line, expected) in table {
        assert_eq!(read(&rules(), &with(&[line])).0.err(), expected, "{line:?}");
    }
    let twice = with(&[("content-length", "1"), ("content-length", "1")]);
    assert_eq!(read(&rules(), &twice).0.err(), malformed(FramingError::ContentLengthRepeated));
}

#[test]
fn crumbs_of_cookies_are_one_header() {
    let mut lines = BASE.to_vec();
    for _ in 0..60 {
        lines.push(("cookie", "ab=c"));
    }
    lines.push(("x-a", "b"));
    lines.push(("cookie", "last=1"));
    let (facts, head) = read(&rules(), &lines);
    facts.unwrap();
    assert_eq!(head.fields.count(Known::Cookie), 1);
    let expected = [["ab=c"; 60].join("; "), "last=1".to_owned()].join("; ");
    assert_eq!(head.fields.get(Known::Cookie), Some(expected.as_bytes()));
    assert_eq!(head.fields.get_by_name(b"x-a"), Some(&b"b"[..]));
}

#[test]
fn heads_are_bounded_while_they_are_decoded() {
    let many: Vec<(&str, &str)> = (0..21).map(|_| ("a", "b")).collect();
    assert_eq!(read(&rules(), &with(&many)).0.err(), refused(HeadError::TooManyFields));
    assert_eq!(read(&rules(), &with(&many[1..])).0.err(), None);
    // One octet of the block for each entry of 4,000 bytes (RFC 9113 §10.5.1).
    let mut decoder = Decoder::default();
    let mut bomb = vec![0x40, 1, b'a', 0x7F, 0xA1, 0x1E];
    bomb.extend_from_slice(&[b'x'; 4000]);
    bomb.extend_from_slice(&[0xBE; 10_000]);
    let mut head = RequestHead::default();
    let rules = RequestRules { limits: HeadLimits { head_bytes_max: 20_000, ..rules().limits }, ..rules() };
    let fault = read_request(&mut decoder, &[block(&BASE), bomb].concat(), &rules, &mut head).unwrap().err();
    assert_eq!(fault, refused(HeadError::TooLarge));
    assert!(head.memory_bytes() < 64 * 1024, "{}", head.memory_bytes());
    // The tables are still in step.
    let mut found = 0;
    decoder.decode(&[0xBE], &mut |line: &FieldLine<'_>| found = line.value.len()).unwrap();
    assert_eq!(found, 4000);
}

#[test]
fn responses_have_a_status_and_a_length() {
    let limits = HeadLimits { fields_max: 4, ..HeadLimits::default() };
    let read = |request: RequestKind, lines: &[(&str, &str)]| {
        let mut head = ResponseHead::default();
        let read = read_response(&mut Decoder::default(), &block(lines), &limits, request, &mut head);
        read.unwrap().map(|facts| (head.status, facts.length, facts.is_informational))
    };
    let table = [
        (&[(":status", "200"), ("content-length", "5")][..], Ok((200, Some(5), false))),
        (&[(":status", "204")], Ok((204, Some(0), false))),
        (&[(":status", "304"), ("content-length", "5")], Ok((304, Some(0), false))),
        (&[(":status", "103"), ("link", "x")], Ok((103, None, true))),
        (&[], Err(Malformed::PseudoSet)),
        (&[("a", "b"), (":status", "200")], Err(Malformed::PseudoMisplaced)),
        (&[(":status", "200"), (":status", "200")], Err(Malformed::PseudoRepeated)),
        (&[(":status", "20")], Err(Malformed::PseudoInvalid)),
        (&[(":status", "600")], Err(Malformed::PseudoInvalid)),
        (&[(":status", "+20")], Err(Malformed::PseudoInvalid)),
        (&[(":status", "101")], Err(Malformed::InformationalInvalid)),
        (&[(":method", "GET")], Err(Malformed::PseudoUndefined)),
        (&[(":status", "200"), ("connection", "x")], Err(FramingError::ConnectionFieldInHttp2.into())),
        (&[(":status", "204"), ("content-length", "5")], Err(FramingError::BodyNotAllowed.into())),
        (&[(":status", "200"), ("A", "b")], Err(LineError::NameInvalid.into())),
        (
            &[(":status", "200"), ("a", ""), ("a", ""), ("a", ""), ("a", ""), ("a", "")],
            Err(Malformed::TooLarge),
        ),
    ];
    for (lines, expected) in table {
        assert_eq!(read(RequestKind::Other, lines), expected.map_err(HeadFault::Malformed), "{lines:?}");
    }
    let with_length = |status: &'static str| [(":status", status), ("content-length", "5")];
    assert_eq!(read(RequestKind::Head, &with_length("200")), Ok((200, Some(0), false)));
    // A length is ignored where a tunnel begins (RFC 9110 §9.3.6), and only there.
    assert_eq!(read(RequestKind::Connect, &with_length("200")), Ok((200, None, false)));
    assert_eq!(read(RequestKind::Connect, &with_length("403")), Ok((403, Some(5), false)));
}

#[test]
fn trailers_have_the_limits_of_http_1() {
    let limits = TrailerLimits { bytes_max: 2 + 11, fields_max: 2 };
    let read = |lines: &[(&str, &str)]| {
        let mut fields = Fields::default();
        read_trailers(&mut Decoder::default(), &block(lines), &limits, &mut fields).unwrap()
    };
    let error = |error: HeadError| Err(Malformed::Trailers(crate::TrailerError(error)));
    let table = [
        (&[("a", "b"), ("c", "")][..], Ok(())),
        (&[("a", "bcdefg")], Ok(())),
        (&[("a", "bcdefgh")], error(HeadError::TooLarge)),
        (&[("a", ""), ("b", ""), ("c", "")], error(HeadError::TooManyFields)),
        (&[(":path", "")], Err(Malformed::PseudoMisplaced)),
        (&[("A", "")], Err(LineError::NameInvalid.into())),
        (&[("te", "x")], Err(FramingError::ConnectionFieldInHttp2.into())),
    ];
    for (lines, expected) in table {
        assert_eq!(read(lines), expected, "{lines:?}");
    }
}

#[test]
fn what_is_written_is_read_as_it_was_meant() {
    let mut head = RequestHead { method: Method::Post, version: Version::Http2, ..RequestHead::default() };
    head.set_target(b"/a?b=c");
    head.fields.append_known(Known::Host, b"a.example").unwrap();
    head.fields.append_known(Known::Te, b"trailers").unwrap();
    head.fields.append(b"X-A", b"b").unwrap();
    let expected = head.clone();
    head.fields.append_known(Known::Connection, b"close").unwrap();
    head.fields.append_known(Known::TransferEncoding, b"chunked").unwrap();
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    write_request(&mut encoder, (&head).into(), Scheme::Https, None, &mut out);
    let mut again = RequestHead::default();
    read_request(&mut Decoder::default(), &out, &rules(), &mut again).unwrap().unwrap();
    let lower = |field: Field<'_>| (field.name.to_ascii_lowercase(), field.value.to_vec());
    assert!(again.fields.iter().map(lower).eq(expected.fields.iter().map(lower)));
    assert_eq!((again.method, again.target()), (Method::Post, &b"/a?b=c"[..]));
    // Said once, also where the fields say it.
    head.fields.remove(Known::Te);
    for _ in 0..2 {
        out.clear();
        let request = OutgoingRequest { accepts_trailers: true, ..(&head).into() };
        write_request(&mut Encoder::default(), request, Scheme::Https, None, &mut out);
        read_request(&mut Decoder::default(), &out, &rules(), &mut again).unwrap().unwrap();
        assert!(again.fields.get_all(Known::Te).eq([b"trailers"]));
        head.fields.append_known(Known::Te, b"trailers").unwrap();
    }
    // An extended CONNECT has the method for its protocol, whatever the head says.
    out.clear();
    head.method = Method::Get;
    write_request(&mut Encoder::default(), (&head).into(), Scheme::Https, Some(b"websocket"), &mut out);
    let rules = RequestRules { connect_protocol: true, ..rules() };
    let facts = read_request(&mut Decoder::default(), &out, &rules, &mut again).unwrap().unwrap();
    assert_eq!((facts.protocol, again.method), (Some(Protocol::WebSocket), Method::Connect));
}

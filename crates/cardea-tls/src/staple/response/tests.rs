//! Encodings that the library accepts and this parser refuses.

use super::*;
use crate::der::tests::der;

#[test]
fn times_are_read() {
    let read = |text: &str| whole(time(&der(Tag::GeneralizedTime, text.as_bytes()))).map(Wall::unix_seconds);
    for (text, expected) in [
        ("19700101000000Z", Some(0)),
        ("20000229120000Z", Some(951_825_600)),
        ("20261121085500Z", Some(1_795_251_300)),
        ("20991231235959Z", Some(4_102_444_799)),
        ("20261321085500Z", None),
        ("20260230085500Z", None),
        ("20261121245500Z", None),
        ("202611210855Z", None),
        ("202611210855.5Z", None),
        ("20261121085500", None),
        ("20261121085500+", None),
        ("2026112108550+Z", None),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

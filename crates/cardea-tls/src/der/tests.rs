//! What the library would let pass, and what is refused.

use proptest::prelude::*;

use super::*;

/// A value of this tag in its shortest form.
pub(crate) fn der(tag: Tag, content: &[u8]) -> Vec<u8> {
    let header = x509_parser::asn1_rs::Header::new(
        Class::Universal,
        tag == Tag::Sequence,
        tag,
        x509_parser::asn1_rs::Length::Definite(content.len()),
    );
    [header.to_der_vec().unwrap(), content.to_vec()].concat()
}

#[test]
fn a_value_has_one_encoding() {
    let good = der(Tag::Sequence, &[]);
    assert_eq!(good, [0x30, 0]);
    assert!(value(&good, Tag::Sequence).is_ok());
    for bad in [&[0x30, 0x81, 0][..], &[0x30, 0x80, 0, 0], &[0x10, 0], &[0xb0, 0], &[0x30, 1], &[0x30], &[]] {
        assert!(value(bad, Tag::Sequence).is_err(), "{bad:02x?}");
    }
    assert!(value(&[0x24, 0], Tag::OctetString).is_err(), "in parts");
    for (unused, expected) in [(0, true), (1, false), (8, false)] {
        assert_eq!(bits(&der(Tag::BitString, &[unused, 0x80])).is_ok(), expected, "{unused}");
    }
    assert!(bits(&der(Tag::BitString, &[])).is_err());
}

proptest! {
    #[test]
    fn what_is_written_is_read(content in proptest::collection::vec(any::<u8>(), 0..70_000), more: u8) {
        let mut raw = der(Tag::Sequence, &content);
        prop_assert_eq!(whole(value(&raw, Tag::Sequence)), Some(&content[..]));
        raw.push(more);
        prop_assert_eq!(whole(value(&raw, Tag::Sequence)), None);
        prop_assert!(value(&raw[..content.len()], Tag::Sequence).is_err());
    }
}

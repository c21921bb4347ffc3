//! The examples of RFC 7541 Appendix C, and the encoder against the decoder.

use proptest::prelude::*;

use super::*;
use crate::{Fields, Known, Method, Scheme};

type Lines = Vec<(String, String)>;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Lines, HpackError> {
    let mut lines = Vec::new();
    decoder.decode(block, &mut |line: &FieldLine<'_>| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        lines.push((text(line.name), text(line.value)));
    })?;
    Ok(lines)
}

fn lines(pairs: &[(&str, &str)]) -> Lines {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn literals_of_appendix_c_2_are_decoded() {
    let table = [
        ("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "custom-key", "custom-header"),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path", "/sample/path"),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password", "secret"),
        ("82", ":method", "GET"),
    ];
    for (hex, name, value) in table {
        let mut never = None;
        let mut decoder = Decoder::default();
        decoder.decode(&unhex(hex), &mut |line: &FieldLine<'_>| never = Some(line.never_indexed)).unwrap();
        assert_eq!(never, Some(name == "password"));
        assert_eq!(decode(&mut Decoder::default(), &unhex(hex)), Ok(lines(&[(name, value)])));
    }
}

#[test]
fn requests_of_appendix_c_3_and_c_4_are_decoded() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::default();
        let mut expected = lines(&[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ]);
        assert_eq!(decode(&mut decoder, &unhex(blocks[0])), Ok(expected.clone()));
        expected.push(("cache-control".to_owned(), "no-cache".to_owned()));
        assert_eq!(decode(&mut decoder, &unhex(blocks[1])), Ok(expected));
        let third = lines(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ]);
        assert_eq!(decode(&mut decoder, &unhex(blocks[2])), Ok(third));
    }
}

#[test]
fn responses_of_appendix_c_5_and_c_6_are_decoded_with_eviction() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120
         474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738
         666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33
         3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718
         63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7
         b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::default();
        decoder.set_limit(256);
        // The examples assume the smaller table from the beginning.
        assert_eq!(decode(&mut decoder, &unhex("3fe1 01")), Ok(vec![]));
        let first = lines(&[
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ]);
        assert_eq!(decode(&mut decoder, &unhex(blocks[0])), Ok(first.clone()));
        let mut second = first;
        second[0].1 = "307".to_owned();
        assert_eq!(decode(&mut decoder, &unhex(blocks[1])), Ok(second));
        let third = lines(&[
            (":status", "200"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            ("location", "https://www.example.com"),
            ("content-encoding", "gzip"),
            ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ]);
        assert_eq!(decode(&mut decoder, &unhex(blocks[2])), Ok(third));
    }
}

#[test]
fn malformed_blocks_are_refused() {
    let table = [
        ("80", HpackError::IndexInvalid),
        ("be", HpackError::IndexInvalid),
        ("ff ff ff ff 7f", HpackError::IntegerTooLarge),
        ("ff 80 80 80 80 80 00", HpackError::IntegerTooLarge),
        ("ff 80", HpackError::Truncated),
        ("40", HpackError::Truncated),
        ("40 0a 61", HpackError::Truncated),
        ("40 01 61", HpackError::Truncated),
        ("7f 00 00", HpackError::IndexInvalid),
        ("0f 80 01 00", HpackError::IndexInvalid),
        ("82 20", HpackError::SizeUpdateMisplaced),
        ("3f e2 1f", HpackError::SizeUpdateTooLarge),
        ("04 81 00", HpackError::HuffmanInvalid),
        ("04 84 ff ff ff ff", HpackError::HuffmanInvalid),
    ];
    for (hex, error) in table {
        assert_eq!(decode(&mut Decoder::default(), &unhex(hex)), Err(error), "{hex}");
    }
    // Controls: the largest allowed update, twice; the same integer in its longer form.
    assert_eq!(decode(&mut Decoder::default(), &unhex("20 3f e1 1f 82")), Ok(lines(&[(":method", "GET")])));
    assert_eq!(decode(&mut Decoder::default(), &unhex("bf")), Err(HpackError::IndexInvalid));
}

#[test]
fn a_lowered_limit_demands_an_update() {
    let mut decoder = Decoder::default();
    decoder.set_limit(100);
    assert_eq!(decode(&mut decoder, &unhex("82")), Err(HpackError::SizeUpdateMissing));
    let mut decoder = Decoder::default();
    decoder.set_limit(100);
    assert_eq!(decode(&mut decoder, &unhex("3f 45 82")), Ok(lines(&[(":method", "GET")])));
    assert_eq!(decode(&mut decoder, &unhex("82")), Ok(lines(&[(":method", "GET")])));
    assert_eq!(decode(&mut decoder, &unhex("3f 46 82")), Err(HpackError::SizeUpdateTooLarge));
}

#[test]
fn a_name_may_be_that_of_the_entry_which_its_own_line_evicts() {
    let mut decoder = Decoder::default();
    decoder.set_limit(64);
    let block = [unhex("3f 21 40 04"), b"name".to_vec(), unhex("02"), b"v1".to_vec()].concat();
    assert_eq!(decode(&mut decoder, &block), Ok(lines(&[("name", "v1")])));
    let block = [unhex("7e 02"), b"v2".to_vec(), unhex("be")].concat();
    assert_eq!(decode(&mut decoder, &block), Ok(lines(&[("name", "v2"), ("name", "v2")])));
}

#[test]
fn soundness_is_judged_as_in_http_1() {
    let table = [
        ("a", "b", Ok(())),
        ("a", "", Ok(())),
        ("a_b", "b c\td", Ok(())),
        ("", "b", Err(LineError::NameEmpty)),
        ("A", "b", Err(LineError::NameInvalid)),
        ("Content-Type", "b", Err(LineError::NameInvalid)),
        ("a b", "b", Err(LineError::NameInvalid)),
        ("a:", "b", Err(LineError::NameInvalid)),
        ("a", "b\r\nc", Err(LineError::ValueInvalid)),
        ("a", "b\0", Err(LineError::ValueInvalid)),
        ("a", "\x7f", Err(LineError::ValueInvalid)),
        ("a", " b", Err(LineError::ValueSurrounded)),
        ("a", "b\t", Err(LineError::ValueSurrounded)),
        ("a", " ", Err(LineError::ValueSurrounded)),
    ];
    for (name, value, expected) in table {
        let mut block = vec![0x40];
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
        // The second time it comes from the table, without validation.
        block.push(0xBE);
        let mut found = Vec::new();
        let mut fields = Fields::default();
        let mut added = Vec::new();
        Decoder::default()
            .decode(&block, &mut |line: &FieldLine<'_>| {
                found.push(line.check());
                added.push(fields.append_line(line).is_ok());
            })
            .unwrap();
        assert_eq!(found, [expected; 2], "{name:?}: {value:?}");
        assert_eq!(added, [expected.is_ok(); 2]);
        assert_eq!(fields.may_have_odd_names(), name == "a_b");
    }
}

/// A request block as a client of the data path sends it.
fn encode_request(encoder: &mut Encoder, fields: &Fields) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.method(Method::Get, &mut out);
    encoder.scheme(Scheme::Https, &mut out);
    encoder.authority(b"api.example.com", &mut out);
    encoder.path(b"/orders", &mut out);
    for field in fields.iter() {
        encoder.field(&field, &mut out);
    }
    out
}

#[test]
fn what_recurs_is_indexed_and_secrets_never_are() {
    let mut fields = Fields::default();
    fields.append(b"User-Agent", b"orders-sync/2.14.1").unwrap();
    fields.append(b"X-Tenant", b"4711").unwrap();
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let sizes: Vec<usize> = (0..3)
        .map(|_| {
            let block = encode_request(&mut encoder, &fields);
            let decoded = decode(&mut decoder, &block).unwrap();
            assert_eq!(decoded.last(), Some(&("x-tenant".to_owned(), "4711".to_owned())));
            block.len()
        })
        .collect();
    // Method, scheme, authority, path in full, two fields.
    assert_eq!(sizes[2], 1 + 1 + 1 + 9 + 1 + 1, "{sizes:?}");

    fields.append_known(Known::Authorization, b"Bearer s3cret").unwrap();
    fields.append_known(Known::Cookie, b"sid=s3cret").unwrap();
    for _ in 0..3 {
        let block = encode_request(&mut encoder, &fields);
        let mut marked = Vec::new();
        decoder
            .decode(&block, &mut |line: &FieldLine<'_>| {
                if line.never_indexed {
                    marked.push(line.name.to_vec());
                }
            })
            .unwrap();
        assert_eq!(marked, [b"authorization".to_vec(), b"cookie".to_vec()]);
    }
    assert!(!encoder.memory_has(b"s3cret"));
    let mut encoder = Encoder::new(EncoderConfig { index_cookies: true, ..EncoderConfig::default() });
    for _ in 0..2 {
        encode_request(&mut encoder, &fields);
    }
    assert!(encoder.memory_has(b"sid=s3cret") && !encoder.memory_has(b"Bearer"));
}

#[test]
fn a_mark_of_the_sender_is_kept() {
    let block = [unhex("10 01"), b"k".to_vec(), unhex("01"), b"v".to_vec()].concat();
    let mut fields = Fields::default();
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    decoder.decode(&block, &mut |line: &FieldLine<'_>| fields.append_line(line).unwrap()).unwrap();
    let mut out = Vec::new();
    for _ in 0..3 {
        out.clear();
        encoder.field(&fields.iter().next().unwrap(), &mut out);
        assert_eq!(out, block);
    }
}

#[test]
fn size_changes_are_announced_once_with_the_smallest_in_between() {
    let mut encoder = Encoder::default();
    encoder.set_limit(0);
    encoder.set_limit(9000);
    let mut out = Vec::new();
    encoder.begin(&mut out);
    assert_eq!(out, unhex("20 3f e1 1f"));
    encoder.begin(&mut out);
    assert_eq!(out.len(), 4);
    let mut small = Encoder::new(EncoderConfig { table_bytes_max: 10, ..EncoderConfig::default() });
    out.clear();
    small.begin(&mut out);
    assert_eq!(out, unhex("2a"));
}

fn field() -> impl Strategy<Value = (String, Vec<u8>)> {
    let name = prop_oneof![
        Just("content-type".to_owned()),
        Just("accept-encoding".to_owned()),
        Just("traceparent".to_owned()),
        "[a-c]{1,2}",
        "x-[a-z]{1,40}",
    ];
    let value = prop_oneof![
        Just(b"gzip, deflate".to_vec()),
        "[a-b]{0,3}".prop_map(String::into_bytes),
        proptest::collection::vec(0x80..=0xFF_u8, 0..300),
    ];
    (name, value)
}

proptest! {
    #[test]
    fn blocks_survive_whatever_the_sizes_of_tables(
        blocks in proptest::collection::vec(
            (proptest::collection::vec(field(), 0..12), proptest::option::of(0..600_usize)), 1..40),
    ) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for (list, limit) in blocks {
            if let Some(limit) = limit {
                encoder.set_limit(limit);
                decoder.set_limit(limit);
            }
            let mut fields = Fields::default();
            for (name, value) in &list {
                fields.append(name.as_bytes(), value).unwrap();
            }
            let block = encode_request(&mut encoder, &fields);
            let mut found = Vec::new();
            decoder.decode(&block, &mut |line: &FieldLine<'_>| found.push((line.name.to_vec(), line.value.to_vec()))).unwrap();
            let expected: Vec<_> = list.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone())).collect();
            prop_assert_eq!(&found[4..], &expected[..]);
            prop_assert!(decoder.memory_bytes() < 32 * 1024 && encoder.memory_bytes() < 32 * 1024);
        }
    }

    #[test]
    fn any_block_is_decoded_or_refused(block in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&mut Decoder::default(), &block);
    }
}

//! Headers and payloads against the tables of RFC 9113 §6.

use proptest::prelude::*;

use super::*;

fn header(len: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER_LEN] {
    FrameHeader { len, kind: FrameType::of(kind), flags: Flags(flags), stream }.to_bytes()
}

#[test]
fn sizes_and_streams_are_those_of_section_6() {
    use FrameError::{SizeInvalid, StreamInvalid, TooLarge};
    // Length, type, flags, stream.
    let table = [
        ((0, 0x0, 0, 1), Ok(())),
        ((16_384, 0x0, 0, 1), Ok(())),
        ((16_385, 0x0, 0, 1), Err(TooLarge)),
        ((16_385, 0x77, 0, 0), Err(TooLarge)),
        ((1, 0x0, 0, 0), Err(StreamInvalid)),
        ((0, 0x0, 0x8, 1), Err(SizeInvalid)),
        ((1, 0x0, 0x8, 1), Ok(())),
        ((0, 0x1, 0, 0), Err(StreamInvalid)),
        ((0, 0x1, 0, 1), Ok(())),
        ((0, 0x1, 0x8, 1), Err(SizeInvalid)),
        ((4, 0x1, 0x20, 1), Err(SizeInvalid)),
        ((5, 0x1, 0x20, 1), Ok(())),
        ((5, 0x1, 0x28, 1), Err(SizeInvalid)),
        ((6, 0x1, 0x28, 1), Ok(())),
        ((5, 0x2, 0, 0), Err(StreamInvalid)),
        ((4, 0x2, 0, 1), Ok(())),
        ((4, 0x3, 0, 0), Err(StreamInvalid)),
        ((3, 0x3, 0, 1), Err(SizeInvalid)),
        ((5, 0x3, 0, 1), Err(SizeInvalid)),
        ((4, 0x3, 0, 1), Ok(())),
        ((6, 0x4, 0, 1), Err(StreamInvalid)),
        ((5, 0x4, 0, 0), Err(SizeInvalid)),
        ((6, 0x4, 1, 0), Err(SizeInvalid)),
        ((0, 0x4, 1, 0), Ok(())),
        ((12, 0x4, 0, 0), Ok(())),
        ((8, 0x6, 0, 1), Err(StreamInvalid)),
        ((7, 0x6, 0, 0), Err(SizeInvalid)),
        ((8, 0x6, 0, 0), Ok(())),
        ((8, 0x7, 0, 1), Err(StreamInvalid)),
        ((7, 0x7, 0, 0), Err(SizeInvalid)),
        ((30, 0x7, 0, 0), Ok(())),
        ((3, 0x8, 0, 0), Err(SizeInvalid)),
        ((4, 0x8, 0, 0), Ok(())),
        ((4, 0x8, 0, 1), Ok(())),
        ((0, 0x9, 0, 0), Err(StreamInvalid)),
        ((3, 0x10, 0, 0), Err(SizeInvalid)),
        ((8, 0x10, 0, 1), Err(StreamInvalid)),
        ((0, 0x77, 0xFF, 0), Ok(())),
    ];
    for ((len, kind, flags, stream), expected) in table {
        let bytes = header(len, kind, flags, stream);
        let found = FrameHeader::parse(&bytes).map(|header| assert_eq!(header.unwrap().len, len));
        assert_eq!(found, expected, "length {len}, type {kind:#x}, flags {flags:#x}, stream {stream}");
        for cut in 0..HEADER_LEN {
            assert_eq!(FrameHeader::parse(&bytes[..cut]), Ok(None));
        }
    }
}

#[test]
fn the_reserved_bit_is_ignored() {
    let mut bytes = header(4, 0x8, 0, 7);
    bytes[5] |= 0x80;
    assert_eq!(FrameHeader::parse(&bytes).unwrap().unwrap().stream, 7);
    assert_eq!(window_increment(&[0x80, 0, 0, 0]), 0);
    assert_eq!(goaway_payload(&[0x80, 0, 0, 5, 0, 0, 0, 0xb, 1]), (5, ErrorCode::EnhanceYourCalm));
    assert_eq!(priority_dependency(&[0x80, 0, 0, 3, 16]), Some(3));
    assert_eq!(priority_dependency(&[0; 4]), None);
}

#[test]
fn padding_and_priority_are_removed() {
    let read = |flags: u8, payload: &[u8]| {
        let bytes = header(payload.len(), 0x1, flags, 1);
        let header = FrameHeader::parse(&bytes).unwrap().unwrap();
        headers_payload(&header, payload).map(|read| (read.fragment.to_vec(), read.dependency))
    };
    assert_eq!(read(0, b"abc"), Ok((b"abc".to_vec(), None)));
    assert_eq!(read(0x8, b"\x02abc"), Ok((b"a".to_vec(), None)));
    assert_eq!(read(0x8, b"\x03abc"), Ok((b"".to_vec(), None)));
    assert_eq!(read(0x8, b"\x04abc"), Err(FrameError::PaddingInvalid));
    assert_eq!(read(0x20, b"\x80\0\0\x05\x10abc"), Ok((b"abc".to_vec(), Some(5))));
    assert_eq!(read(0x28, b"\x01\0\0\0\x05\x10abc"), Ok((b"ab".to_vec(), Some(5))));
    assert_eq!(read(0x28, b"\x04\0\0\0\x05\x10abc"), Err(FrameError::PaddingInvalid));
}

#[test]
fn error_codes_survive() {
    for number in (0..20).chain([u32::MAX]) {
        assert_eq!(ErrorCode::of(number).number(), number);
    }
    assert_eq!(reset_code(&[0, 0, 0, 8]), ErrorCode::Cancel);
}

#[test]
fn written_frames_are_read_as_they_were_meant() {
    let mut out = Vec::new();
    write_settings(&[(1, 2), (0x8, u32::MAX)], &mut out);
    write_settings_ack(&mut out);
    write_ping(true, *b"12345678", &mut out);
    write_goaway(9, ErrorCode::NoError, &mut out);
    write_rst_stream(3, ErrorCode::Cancel, &mut out);
    write_window_update(0, 77, &mut out);
    write_data_header(5, 0, true, &mut out);
    let mut rest = &out[..];
    let mut found = Vec::new();
    while let Some(header) = FrameHeader::parse(rest).unwrap() {
        let payload = &rest[HEADER_LEN..HEADER_LEN + header.len];
        found.push((header.kind, header.flags, header.stream, payload.to_vec()));
        rest = &rest[HEADER_LEN + header.len..];
    }
    assert!(rest.is_empty());
    let settings: Vec<_> = settings_payload(&found[0].3).collect();
    assert_eq!(settings, [(1, 2), (8, u32::MAX)]);
    let expected = [
        (FrameType::Settings, Flags::default(), 0, found[0].3.clone()),
        (FrameType::Settings, Flags::ACK, 0, vec![]),
        (FrameType::Ping, Flags::ACK, 0, b"12345678".to_vec()),
        (FrameType::GoAway, Flags::default(), 0, vec![0, 0, 0, 9, 0, 0, 0, 0]),
        (FrameType::RstStream, Flags::default(), 3, vec![0, 0, 0, 8]),
        (FrameType::WindowUpdate, Flags::default(), 0, vec![0, 0, 0, 77]),
        (FrameType::Data, Flags::END_STREAM, 5, vec![]),
    ];
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn any_header_survives(len in 0..=PAYLOAD_MAX, kind in any::<u8>(), flags in any::<u8>(), stream in 0..=MAX_31) {
        let bytes = header(len, kind, flags, stream);
        if let Ok(read) = FrameHeader::parse(&bytes) {
            prop_assert_eq!(read.unwrap().to_bytes(), bytes);
        }
    }

    #[test]
    fn a_divided_block_is_whole(block in proptest::collection::vec(any::<u8>(), 0..100), payload_max in 1..40_usize, end in any::<bool>()) {
        let mut out = b"before".to_vec();
        let mark = begin_block(&mut out);
        out.extend_from_slice(&block);
        end_block(mark, 3, end, payload_max, &mut out);
        let mut rest = out.strip_prefix(b"before").unwrap();
        let (mut joined, mut ended, mut count) = (Vec::new(), false, 0);
        while let Some(header) = FrameHeader::parse(rest).unwrap() {
            prop_assert!(!ended && header.len <= payload_max && header.stream == 3);
            let kind = if count == 0 { FrameType::Headers } else { FrameType::Continuation };
            prop_assert_eq!(header.kind, kind);
            prop_assert_eq!(header.flags.has(Flags::END_STREAM), end && count == 0);
            ended = header.flags.has(Flags::END_HEADERS);
            joined.extend_from_slice(&rest[HEADER_LEN..HEADER_LEN + header.len]);
            rest = &rest[HEADER_LEN + header.len..];
            count += 1;
        }
        prop_assert!(ended && rest.is_empty());
        prop_assert_eq!(joined, block);
    }
}

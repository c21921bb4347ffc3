//! The code against a decoder that goes bit by bit.

use proptest::prelude::*;

use super::*;

fn decoded(input: &[u8]) -> Result<Vec<u8>, HpackError> {
    let mut out = b"before".to_vec();
    decode(input, &mut out)?;
    Ok(out.strip_prefix(b"before").unwrap().to_vec())
}

fn encoded(string: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(string, &mut out);
    assert_eq!(out.len(), encoded_len(string));
    out
}

/// The obvious decoder: bit by bit against all codes.
fn decoded_plainly(input: &[u8]) -> Result<Vec<u8>, HpackError> {
    let (mut out, mut code, mut length) = (Vec::new(), 0_u32, 0_u8);
    for bit in input.iter().flat_map(|octet| (0..8).rev().map(move |at| u32::from(octet >> at & 1))) {
        code = code << 1 | bit;
        length += 1;
        if let Some(symbol) = CODES.iter().position(|&entry| entry == (code, length)) {
            out.push(u8::try_from(symbol).map_err(|_| HpackError::HuffmanInvalid)?);
            (code, length) = (0, 0);
        }
    }
    if length < 8 && code == (1 << length) - 1 { Ok(out) } else { Err(HpackError::HuffmanInvalid) }
}

#[test]
fn the_codes_are_those_of_appendix_b() {
    // A sample of each length (RFC 7541 Appendix B).
    let table: [(u16, u32, u8); 25] = [
        (48, 0x0, 5),
        (116, 0x9, 5),
        (32, 0x14, 6),
        (117, 0x2d, 6),
        (58, 0x5c, 7),
        (122, 0x7b, 7),
        (38, 0xf8, 8),
        (90, 0xfd, 8),
        (33, 0x3f8, 10),
        (63, 0x3fc, 10),
        (39, 0x7fa, 11),
        (124, 0x7fc, 11),
        (35, 0xffa, 12),
        (0, 0x1ff8, 13),
        (126, 0x1ffd, 13),
        (94, 0x3ffc, 14),
        (60, 0x7ffc, 15),
        (92, 0x7fff0, 19),
        (208, 0x7fff2, 19),
        (239, 0x7ffff4, 23),
        (9, 0xffffea, 24),
        (1, 0x7fffd8, 23),
        (249, 0xffffffe, 28),
        (22, 0x3ffffffe, 30),
        (256, 0x3fffffff, 30),
    ];
    for (symbol, code, length) in table {
        assert_eq!(CODES[usize::from(symbol)], (code, length), "symbol {symbol}");
    }
}

#[test]
fn every_symbol_survives_in_every_alignment() {
    for octet in 0..=u8::MAX {
        for before in 0..8 {
            // `0` has 5 bits: eight alignments.
            let string = [vec![b'0'; before], vec![octet, octet, b'a']].concat();
            assert_eq!(decoded(&encoded(&string)), Ok(string));
        }
    }
}

#[test]
fn padding_is_less_than_an_octet_of_ones() {
    assert_eq!(decoded(b""), Ok(vec![]));
    // `a` is 00011, then three bits of padding.
    assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
    for bad in [&[0b0001_1110][..], &[0b0001_1011], &[0b0001_1000], &[0b0001_1111, 0xFF], &[0xFF], &[0xFF; 3]]
    {
        assert_eq!(decoded(bad), Err(HpackError::HuffmanInvalid), "{bad:x?}");
    }
}

#[test]
fn eos_is_refused() {
    for bad in [&[0xFF, 0xFF, 0xFF, 0xFF][..], &[0xFF; 12], &[0x1F, 0xFF, 0xFF, 0xFF, 0xFF]] {
        assert_eq!(decoded(bad), Err(HpackError::HuffmanInvalid));
    }
}

proptest! {
    #[test]
    fn what_is_coded_is_decoded(string in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(decoded(&encoded(&string)), Ok(string));
    }

    #[test]
    fn any_bytes_are_judged_as_bit_by_bit(input in proptest::collection::vec(any::<u8>(), 0..40), ones in any::<bool>()) {
        let input: Vec<u8> = input.into_iter().map(|octet| if ones { octet | 0xF0 } else { octet }).collect();
        prop_assert_eq!(decoded(&input), decoded_plainly(&input));
    }
}

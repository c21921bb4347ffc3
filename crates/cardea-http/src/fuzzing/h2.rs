//! Properties of the HTTP/2 codec.

use super::check_fields;
use crate::h2::hpack::{Decoder, Encoder, EncoderConfig, FieldLine};
use crate::{FieldError, Fields};

/// Blocks are decoded or refused within bounds, and what is sound survives encoding. The first octet chooses the size of
/// the encoder's table; each block follows its length.
pub fn hpack(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    let config = EncoderConfig { table_bytes_max: usize::from(choice) * 20, index_cookies: choice & 1 == 1 };
    let (mut decoder, mut encoder, mut mirror) =
        (Decoder::default(), Encoder::new(config), Decoder::default());
    let mut fields = Fields::default();
    let mut out = Vec::new();
    while let Some((&len, after)) = rest.split_first() {
        let (block, after) = after.split_at_checked(usize::from(len)).unwrap_or((after, b""));
        rest = after;
        fields.clear();
        let mut list_len = 0;
        let decoded = decoder.decode(block, &mut |line: &FieldLine<'_>| {
            list_len += line.list_len();
            match (fields.append_line(line), line.check()) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(reason)) => assert_eq!(error, FieldError::from(reason)),
                // A pseudo-header field.
                (Err(_), Ok(())) => assert!(line.name.first() == Some(&b':')),
                (Ok(()), Err(reason)) => unreachable!("{reason}"),
            }
        });
        // An octet makes one entry at most, of at most the size of the table.
        assert!(list_len <= block.len() * (4096 + 32) && decoder.memory_bytes() < 64 * 1024);
        if decoded.is_err() {
            return;
        }
        check_fields(&fields);
        out.clear();
        encoder.begin(&mut out);
        for field in fields.iter() {
            encoder.field(&field, &mut out);
        }
        let mut again = Fields::default();
        let mirrored = mirror.decode(&out, &mut |line: &FieldLine<'_>| {
            assert_eq!(again.append_line(line), Ok(()));
        });
        assert_eq!(mirrored, Ok(()));
        assert_eq!(fields, again);
        for (one, two) in fields.iter().zip(again.iter()) {
            assert!(two.never_indexed || !one.never_indexed);
        }
        assert!(encoder.memory_bytes() < 64 * 1024);
    }
}

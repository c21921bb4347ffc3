//! Integers with a prefix (RFC 7541 §5.1).

use super::HpackError;

/// The largest accepted integer. Nothing in a block is larger, and sums of two can't overflow.
pub(super) const INTEGER_MAX: usize = 1 << 28;

/// Reads an integer whose prefix is the low `bits` of `first`, and advances `rest` behind it.
pub(super) fn decode(first: u8, bits: u32, rest: &mut &[u8]) -> Result<usize, HpackError> {
    let full = (1_usize << bits) - 1;
    let prefix = usize::from(first) & full;
    if prefix < full {
        return Ok(prefix);
    }
    let mut value = full;
    for shift in [0, 7, 14, 21, 28] {
        let (&octet, after) = rest.split_first().ok_or(HpackError::Truncated)?;
        *rest = after;
        value += usize::from(octet & 0x7F) << shift;
        if value > INTEGER_MAX {
            return Err(HpackError::IntegerTooLarge);
        }
        if octet & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(HpackError::IntegerTooLarge)
}

/// Appends an integer behind `pattern`, the high bits of the first octet.
pub(super) fn encode(value: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let full = (1_usize << bits) - 1;
    if value < full {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | full as u8);
    let mut rest = value - full;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

//! The Huffman code of strings (RFC 7541 §5.2, Appendix B).
//!
//! The code is canonical: within a length, codes ascend with their symbols, and a longer code follows all shorter ones.
//! So the lengths are all there is to write down, and the tables are computed from them at compile time.

#[cfg(test)]
mod tests;

use super::HpackError;

/// The length of the code of each octet, and of EOS.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];

/// The symbol that ends no string.
const EOS: u16 = 256;

/// Codes up to this length, which are those of nearly all text, are decoded by one load.
const QUICK_BITS: u32 = 10;

/// Decodes a string and appends it.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let start = out.len();
    // The shortest code has 5 bits.
    out.resize(start + input.len() * 8 / 5, 0);
    let mut slots = out.get_mut(start..).unwrap_or_default().iter_mut();
    let room = slots.len();
    let mut rest = input;
    // The next bits, from the highest on; below them zeros.
    let (mut bits, mut count) = (0_u64, 0_u32);
    loop {
        if count < 32 {
            if let Some((word, after)) = rest.split_first_chunk::<4>() {
                bits |= u64::from(u32::from_be_bytes(*word)) << (32 - count);
                count += 32;
                rest = after;
            } else {
                while let Some((&octet, after)) = rest.split_first() {
                    bits |= u64::from(octet) << (56 - count);
                    count += 8;
                    rest = after;
                }
            }
        }
        let (symbol, length) = symbol_at(bits);
        if length > count {
            break;
        }
        let Ok(octet) = u8::try_from(symbol) else { return Err(HpackError::HuffmanInvalid) };
        let Some(slot) = slots.next() else { break };
        *slot = octet;
        bits <<= length;
        count -= length;
    }
    let written = room - slots.len();
    out.truncate(start + written);
    // Less than an octet may be left, and only ones: the beginning of EOS.
    let padding = !(u64::MAX >> count.min(8));
    if count < 8 && bits == padding { Ok(()) } else { Err(HpackError::HuffmanInvalid) }
}

/// The symbol whose code begins `bits`, and its length.
fn symbol_at(bits: u64) -> (u16, u32) {
    let quick = QUICK.get((bits >> (64 - QUICK_BITS)) as usize).copied().unwrap_or(0);
    if quick != 0 {
        return (quick >> 8, u32::from(quick & 0xFF));
    }
    let code = (bits >> 32) as u32;
    for (length, range) in (0_u32..).zip(&RANGES).skip(QUICK_BITS as usize + 1) {
        // The bits compare as numbers because the code is canonical.
        if u64::from(code) < range.end {
            let place = usize::from(range.symbols) + ((code - range.start) >> (32 - length)) as usize;
            return (SYMBOLS.get(place).copied().unwrap_or(EOS), length);
        }
    }
    (EOS, 0)
}

/// The size of the coded string, in bytes.
pub(super) fn encoded_len(string: &[u8]) -> usize {
    let bits: usize =
        string.iter().map(|&octet| usize::from(LENGTHS.get(usize::from(octet)).copied().unwrap_or(0))).sum();
    bits.div_ceil(8)
}

/// Codes a string and appends it.
pub(super) fn encode(string: &[u8], out: &mut Vec<u8>) {
    // The pending bits are the low ones.
    let (mut bits, mut count) = (0_u64, 0_u32);
    for &octet in string {
        let (code, length) = CODES.get(usize::from(octet)).copied().unwrap_or((0, 0));
        bits = (bits << length) | u64::from(code);
        count += u32::from(length);
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        // The beginning of EOS pads it.
        out.push((bits << (8 - count)) as u8 | (0xFF >> count));
    }
}

/// The codes of one length, aligned with the highest bit.
#[derive(Clone, Copy)]
struct Range {
    start: u32,
    /// Behind the last.
    end: u64,
    /// The place of the first in [`SYMBOLS`].
    symbols: u16,
}

struct Tables {
    codes: [(u32, u8); 257],
    symbols: [u16; 257],
    ranges: [Range; 31],
    quick: [u16; 1 << QUICK_BITS],
}

static CODES: [(u32, u8); 257] = TABLES.codes;
/// All symbols in the order of their codes.
static SYMBOLS: [u16; 257] = TABLES.symbols;
/// By length.
static RANGES: [Range; 31] = TABLES.ranges;
/// The symbol, shifted by 8, and the length of its code, by the next bits. 0 if the code is longer.
static QUICK: [u16; 1 << QUICK_BITS] = TABLES.quick;

const TABLES: Tables = tables();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler: an index out of range does not build"
)]
const fn tables() -> Tables {
    let mut tables = Tables {
        codes: [(0, 0); 257],
        symbols: [EOS; 257],
        ranges: [Range { start: 0, end: 0, symbols: 0 }; 31],
        quick: [0; 1 << QUICK_BITS],
    };
    let (mut code, mut placed, mut length) = (0_u64, 0, 1);
    while length <= 30 {
        let start = (code << (32 - length)) as u32;
        let symbols = placed as u16;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] == length as u8 {
                tables.codes[symbol] = (code as u32, length as u8);
                tables.symbols[placed] = symbol as u16;
                placed += 1;
                if length <= QUICK_BITS {
                    let below = QUICK_BITS - length;
                    let mut at = (code as usize) << below;
                    let end = ((code + 1) as usize) << below;
                    while at < end {
                        tables.quick[at] = ((symbol as u16) << 8) | length as u16;
                        at += 1;
                    }
                }
                code += 1;
            }
            symbol += 1;
        }
        tables.ranges[length as usize] = Range { start, end: code << (32 - length), symbols };
        code <<= 1;
        length += 1;
    }
    // A complete code: after the last one of 30 bits, none is left.
    assert!(placed == 257 && code == 1 << 31);
    tables
}

//! Finds bytes eight at a time, in plain integers. A test sets the high bit of each byte that it holds for. It is exact up to
//! the first one, beyond which a borrow may set more, so only the first one counts.

/// How many bytes are tested at a time.
const LEN: usize = size_of::<u64>();

/// The high bit of each byte.
const HIGH: u64 = all(0x80);

/// Eight times `byte`.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; LEN])
}

/// The bytes below `bound`, which is at most 0x80.
const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(all(bound)) & !word & HIGH
}

/// The bytes that are `byte`.
const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ all(byte), 1)
}

/// The control bytes other than HTAB: 0x00–0x1F and 0x7F (RFC 9110 §5.5).
pub(crate) const fn controls(word: u64) -> u64 {
    let found = below(word, 0x20) | equal(word, 0x7F);
    if found == 0 || equal(word, b'\t') == 0 {
        return found;
    }
    // A space in place of each HTAB. The test for them is to be exact, so it is one without borrows.
    let differs = word ^ all(b'\t');
    let tabs = !(((differs & !HIGH) + all(0x7F)) | differs) & HIGH;
    let word = word ^ ((tabs >> 7) * (b'\t' ^ b' ') as u64);
    below(word, 0x20) | equal(word, 0x7F)
}

/// The bytes that are not visible ASCII, 0x21–0x7E.
pub(crate) const fn invisible(word: u64) -> u64 {
    below(word, 0x21) | equal(word, 0x7F) | (word & HIGH)
}

/// The colons.
pub(crate) const fn colons(word: u64) -> u64 {
    equal(word, b':')
}

/// The first byte of `bytes`, from `at` on, that `test` holds for.
#[inline]
pub(crate) fn find(bytes: &[u8], at: usize, test: impl Fn(u64) -> u64) -> Option<usize> {
    let (words, rest) = bytes.get(at..)?.as_chunks();
    for (index, word) in words.iter().enumerate() {
        let found = test(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(at + index * LEN + first(found));
        }
    }
    if rest.is_empty() {
        return None;
    }
    let last = match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (LEN - rest.len())),
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    // The zeros behind them may be found, too.
    let found = first(test(last));
    (found < rest.len()).then_some(at + words.len() * LEN + found)
}

/// The index of the first byte whose high bit is set; behind all if none is.
const fn first(found: u64) -> usize {
    found.trailing_zeros() as usize / LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    type Test = fn(u64) -> u64;
    type Plain = fn(u8) -> bool;

    #[test]
    fn every_byte_is_found_at_every_place_and_no_other() {
        let tests: [(Test, Plain); 3] = [
            (controls, |byte| (byte < 0x20 && byte != b'\t') || byte == 0x7F),
            (invisible, |byte| !byte.is_ascii_graphic()),
            (colons, |byte| byte == b':'),
        ];
        for (test, expected) in tests {
            for len in 0..20 {
                for place in 0..len {
                    for filler in [b'a', b'~', b'!', 0x80, 0xFF].into_iter().filter(|&byte| !expected(byte)) {
                        for byte in 0..=255 {
                            let mut bytes = vec![filler; len];
                            bytes[place] = byte;
                            for from in 0..=place {
                                let found = expected(byte).then_some(place);
                                assert_eq!(find(&bytes, from, test), found, "{byte:#x} at {place} of {len}");
                            }
                        }
                    }
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn it_finds_what_a_plain_search_finds(bytes: Vec<u8>, from in 0..40_usize) {
            let plain = |is: fn(u8) -> bool| {
                bytes.iter().enumerate().skip(from).find(|&(_, &byte)| is(byte)).map(|(at, _)| at)
            };
            assert_eq!(find(&bytes, from, controls), plain(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7F));
            assert_eq!(find(&bytes, from, invisible), plain(|byte| !byte.is_ascii_graphic()));
            assert_eq!(find(&bytes, from, colons), plain(|byte| byte == b':'));
        }
    }
}

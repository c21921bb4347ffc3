//! Base64 (RFC 4648 §4), for header fields that carry certificates. Nothing secret goes through here.

const ALPHABET: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in Base64, with padding.
pub(crate) fn encode(bytes: &[u8], out: &mut String) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let word = (at(0) << 16) | (at(1) << 8) | at(2);
        for index in 0..4 {
            let letter = ALPHABET.get(((word >> (18 - 6 * index)) & 63) as usize).copied().unwrap_or(b'=');
            out.push(if index > group.len() { '=' } else { char::from(letter) });
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_vectors_of_the_rfc() {
        for (plain, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("\u{3ff}\u{7bf}", "z7/evw=="),
        ] {
            let mut out = String::new();
            super::encode(plain.as_bytes(), &mut out);
            assert_eq!(out, expected, "{plain}");
        }
    }
}

//! Reads from standard input.

use std::io::Read;

use zeroize::Zeroizing;

use super::Failure;
use crate::cli::Exit;

/// Reads a secret: all of the input except a line end. If it is longer than `bytes_max`, only as much is read as needed
/// to refuse it.
pub(super) fn secret(input: impl Read, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // A secret, a line end, and one byte too many. The buffer never grows, so no copy is left.
    let limit = bytes_max + 3;
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit + 32));
    input
        .take(limit as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot read the secret: {error}")))?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_input_without_its_line_end() {
        for (input, expected) in [
            (&b"abc"[..], &b"abc"[..]),
            (b"abc\n", b"abc"),
            (b"abc\r\n", b"abc"),
            (b"abc\r", b"abc\r"),
            (b" a b \n\n", b" a b \n"),
            (b"\xff\0\n", b"\xff\0"),
            (b"", b""),
        ] {
            let read = secret(input, 8).map_err(|failure| failure.message).unwrap();
            assert_eq!(read.as_slice(), expected);
        }
    }

    #[test]
    fn too_long_input_is_still_too_long_after_reading() {
        for (length, longer) in [(8, false), (9, true), (100, true)] {
            let mut input = vec![b'x'; length];
            input.extend(b"\r\n");
            let read = secret(&input[..], 8).map_err(|failure| failure.message).unwrap();
            assert_eq!(read.len() > 8, longer, "{length}");
        }
    }
}

//! One pair of limits, whatever form a section comes in.

use proptest::prelude::*;

use super::*;
use crate::h1::{ChunkedDecoder, ChunkedLimits, Step};

/// What HTTP/1.1 makes of the same section.
fn by_lines(section: &[(String, String)], limits: TrailerLimits) -> Result<Option<Fields>, &'static str> {
    let lines: String = section.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let input = format!("0\r\n{lines}\r\n");
    let mut decoder = ChunkedDecoder::new(ChunkedLimits { trailers: limits, ..ChunkedLimits::default() });
    let mut rest = input.as_bytes();
    loop {
        match decoder.step(rest).map_err(|error| error.code())? {
            Step::Skip(count) => rest = &rest[count..],
            Step::Done(count) => {
                assert_eq!(count, rest.len());
                return Ok(decoder.take_trailers());
            }
            step => panic!("{step:?}"),
        }
    }
}

proptest! {
    #[test]
    fn a_section_is_held_to_the_same_limits_as_in_http_1(
        section in proptest::collection::vec(("[a-z]{1,8}", "[!-~]{0,12}"), 1..8),
        bytes_max in 8_usize..120,
        fields_max in 1_usize..8,
    ) {
        let limits = TrailerLimits { bytes_max, fields_max };
        let collected = limits.collect(section.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        prop_assert_eq!(collected.map(Some).map_err(|error| error.code()), by_lines(&section, limits));
    }
}

#[test]
fn what_no_line_can_hold_is_invalid() {
    for (name, value) in [("a b", "1"), ("", "1"), ("a", "1\n2")] {
        let section = [(name.as_bytes(), value.as_bytes())];
        let refused = TrailerLimits::default().collect(section).unwrap_err();
        assert_eq!((refused.code(), refused.status()), ("trailer_invalid", 400), "{name:?}: {value:?}");
    }
}

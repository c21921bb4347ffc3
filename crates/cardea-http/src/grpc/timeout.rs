//! The time that the caller of a gRPC call allows for it.

use core::time::Duration;

use crate::{FieldError, Fields};

/// The name of the field.
const TIMEOUT: &[u8] = b"grpc-timeout";

/// A number has at most so many digits.
const DIGITS_MAX: usize = 8;

/// The units by their letters, in nanoseconds, the smallest first.
const UNITS: [(u8, u64); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60_000_000_000),
    (b'H', 3_600_000_000_000),
];

/// Why a call has no timeout that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrpcTimeoutError {
    /// It is not one to eight digits and a unit.
    #[error("the timeout of a gRPC call is malformed")]
    Invalid,
    /// There is more than one.
    #[error("a gRPC call has several timeouts")]
    Repeated,
}

impl GrpcTimeoutError {
    /// The stable reason code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Invalid => "grpc_timeout_invalid",
            Self::Repeated => "grpc_timeout_repeated",
        }
    }

    /// The status of the refusal.
    #[must_use]
    pub const fn status(self) -> u16 {
        400
    }
}

/// The timeout in the head of a request.
///
/// # Errors
/// If it is malformed.
pub fn timeout_of(fields: &Fields) -> Result<Option<Duration>, GrpcTimeoutError> {
    let mut values = fields.get_all_by_name(TIMEOUT);
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(GrpcTimeoutError::Repeated);
    }
    parse(first).map(Some)
}

/// Replaces the timeout by what is left, rounded down to a unit in which it fits.
///
/// # Errors
/// If `fields` have no room.
pub fn set_timeout(fields: &mut Fields, left: Duration) -> Result<(), FieldError> {
    fields.remove_by_name(TIMEOUT);
    fields.append(TIMEOUT, write(left).as_bytes())
}

fn parse(value: &[u8]) -> Result<Duration, GrpcTimeoutError> {
    let Some((unit, digits)) = value.split_last() else { return Err(GrpcTimeoutError::Invalid) };
    let unit = UNITS.iter().find(|(letter, _)| letter == unit);
    if !(1..=DIGITS_MAX).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return Err(GrpcTimeoutError::Invalid);
    }
    let number = digits.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'));
    unit.map(|&(_, unit)| Duration::from_nanos(unit).saturating_mul(number)).ok_or(GrpcTimeoutError::Invalid)
}

/// In the smallest unit in which it fits.
fn write(left: Duration) -> String {
    const NUMBER_MAX: u128 = 99_999_999;
    let nanoseconds = left.as_nanos();
    let fits = UNITS.iter().map(|&(letter, unit)| (letter, nanoseconds / u128::from(unit)));
    let (letter, number) =
        fits.clone().find(|&(_, number)| number <= NUMBER_MAX).unwrap_or((b'H', NUMBER_MAX));
    format!("{number}{}", char::from(letter))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(value: &str) -> Option<Duration> {
        parse(value.as_bytes()).ok()
    }

    #[test]
    fn timeouts_are_one_to_eight_digits_and_a_unit() {
        for (value, expected) in [
            ("1n", Duration::from_nanos(1)),
            ("250u", Duration::from_micros(250)),
            ("100m", Duration::from_millis(100)),
            ("5S", Duration::from_secs(5)),
            ("2M", Duration::from_secs(120)),
            ("00000003H", Duration::from_secs(3 * 3600)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
            ("0S", Duration::ZERO),
        ] {
            assert_eq!(parsed(value), Some(expected), "{value}");
        }
        for value in [
            "",
            "S",
            "5",
            "5s",
            "5h",
            "000000001S",
            "-1S",
            "+1S",
            "1.5S",
            " 1S",
            "1S ",
            "1 S",
            "0x1S",
            "\u{661}S",
        ] {
            assert_eq!(parsed(value), None, "{value:?}");
        }
    }

    #[test]
    fn two_timeouts_are_none() {
        let mut fields = Fields::default();
        assert_eq!(timeout_of(&fields), Ok(None));
        fields.append(b"Grpc-Timeout", b"1S").unwrap();
        assert_eq!(timeout_of(&fields), Ok(Some(Duration::from_secs(1))));
        fields.append(b"grpc-timeout", b"1S").unwrap();
        assert_eq!(timeout_of(&fields), Err(GrpcTimeoutError::Repeated));
        set_timeout(&mut fields, Duration::from_millis(20)).unwrap();
        assert_eq!(timeout_of(&fields), Ok(Some(Duration::from_millis(20))));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_hardly_less(seconds in 0_u64..99_999_999 * 3600, nanos in 0_u32..1_000_000_000) {
            for left in [Duration::new(seconds, nanos), Duration::new(0, nanos), Duration::new(seconds % 1000, nanos)] {
                let read = parsed(&write(left)).unwrap();
                prop_assert!(read <= left);
                // A unit is at most 1,000 times the next smaller one: a number in it has at least five digits.
                prop_assert!(left - read <= left / 50_000, "{left:?} {read:?}");
            }
        }
    }
}

//! The text of other values: numbers, durations, times, addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::Inline;

/// The unit of a duration that is written as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// With six decimals.
    Seconds,
    /// With three decimals.
    Milliseconds,
    /// Whole.
    Microseconds,
    /// Whole.
    Nanoseconds,
}

impl Unit {
    /// The unit of a field name's suffix; seconds if it has none.
    pub(crate) fn of_name(name: &str) -> Self {
        match name.rsplit_once('_') {
            Some((_, "ms")) => Unit::Milliseconds,
            Some((_, "us")) => Unit::Microseconds,
            Some((_, "ns")) => Unit::Nanoseconds,
            _ => Unit::Seconds,
        }
    }

    /// Nanoseconds as a decimal number, rounded towards zero. The longest has 21 digits, so it always fits.
    pub(crate) fn format(self, nanos: i64) -> Inline {
        let mut text = Inline::new();
        if nanos < 0 {
            text.push(b"-");
        }
        let nanos = nanos.unsigned_abs();
        let (whole, fraction, decimals) = match self {
            Unit::Seconds => (nanos / 1_000_000_000, nanos / 1_000 % 1_000_000, 6),
            Unit::Milliseconds => (nanos / 1_000_000, nanos / 1_000 % 1_000, 3),
            Unit::Microseconds => (nanos / 1_000, 0, 0),
            Unit::Nanoseconds => (nanos, 0, 0),
        };
        text.push(itoa::Buffer::new().format(whole).as_bytes());
        if decimals > 0 {
            let mut room = *b".000000";
            // Less than a million.
            digits(&mut room[1..=decimals], fraction as u32);
            text.push(&room[..=decimals]);
        }
        text
    }
}

pub(crate) fn integer(number: i64) -> Inline {
    let mut text = Inline::new();
    text.push(itoa::Buffer::new().format(number).as_bytes());
    text
}

pub(crate) fn unsigned(number: u64) -> Inline {
    let mut text = Inline::new();
    text.push(itoa::Buffer::new().format(number).as_bytes());
    text
}

/// The shortest number that parses to the same value; with an exponent if it would be long.
pub(crate) fn double(number: f64) -> Inline {
    let mut text = Inline::new();
    let size = number.abs();
    let plain = size == 0.0 || (1e-6..1e17).contains(&size) || !number.is_finite();
    // At most 24 bytes either way, so it can't fail.
    let _ = if plain {
        fmt::write(&mut text, format_args!("{number}"))
    } else {
        fmt::write(&mut text, format_args!("{number:e}"))
    };
    text
}

pub(crate) fn address(address: IpAddr) -> Inline {
    match address {
        IpAddr::V4(address) => dotted(address),
        IpAddr::V6(address) => Inline::display(&address),
    }
}

/// IPv4 is the most frequent value in logs; `Display` takes several times as long.
fn dotted(address: Ipv4Addr) -> Inline {
    let mut text = [0; 15];
    let mut length = 0;
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text[length] = b'.';
            length += 1;
        }
        if octet >= 100 {
            text[length] = b'0' + octet / 100;
            length += 1;
        }
        if octet >= 10 {
            text[length] = b'0' + octet / 10 % 10;
            length += 1;
        }
        text[length] = b'0' + octet % 10;
        length += 1;
    }
    Inline::of(text, length)
}

/// An RFC 3339 time in UTC, with milliseconds (rounded down): `2026-11-21T02:09:11.123Z`.
///
/// Every `i64` of nanoseconds is in the years 1677 to 2262, so the year always has four digits.
pub(crate) fn rfc3339(unix_nanos: i64) -> [u8; 24] {
    const DAY: i64 = 86_400;
    let seconds = unix_nanos.div_euclid(1_000_000_000);
    let millis = unix_nanos.rem_euclid(1_000_000_000) / 1_000_000;
    let (year, month, day) = civil_date(seconds.div_euclid(DAY));
    let second = seconds.rem_euclid(DAY);

    let mut text = *b"0000-00-00T00:00:00.000Z";
    digits(&mut text[0..4], year);
    digits(&mut text[5..7], month);
    digits(&mut text[8..10], day);
    digits(&mut text[11..13], (second / 3_600) as u32);
    digits(&mut text[14..16], (second / 60 % 60) as u32);
    digits(&mut text[17..19], (second % 60) as u32);
    digits(&mut text[20..23], millis as u32);
    text
}

/// A time in the common log format, in UTC: `10/Oct/2026:13:55:36`.
pub(crate) fn common_log(unix_nanos: i64) -> [u8; 20] {
    const DAY: i64 = 86_400;
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let seconds = unix_nanos.div_euclid(1_000_000_000);
    let (year, month, day) = civil_date(seconds.div_euclid(DAY));
    let second = seconds.rem_euclid(DAY);
    let mut text = *b"00/Jan/0000:00:00:00";
    digits(&mut text[0..2], day);
    // Months are from 1 to 12.
    let month = (month as usize - 1) * 3;
    text[3..6].copy_from_slice(&MONTHS[month..month + 3]);
    digits(&mut text[7..11], year);
    digits(&mut text[12..14], (second / 3_600) as u32);
    digits(&mut text[15..17], (second / 60 % 60) as u32);
    digits(&mut text[18..20], (second % 60) as u32);
    text
}

/// Year, month and day of the proleptic Gregorian calendar from days since the Unix epoch, from year 0 on.
///
/// It counts from 1 March of year 0: with the leap day at the end of the year, a cycle of four years has 1,461 days, of
/// a hundred 36,524, of four hundred 146,097; and the months from March on start after `(153 * month + 2) / 5` days.
#[must_use]
pub fn civil_date(unix_days: i64) -> (u32, u32, u32) {
    const MARCH_OF_YEAR_0: i64 = 719_468;
    const CYCLE: i64 = 146_097;
    let days = unix_days + MARCH_OF_YEAR_0;
    let cycle = days.div_euclid(CYCLE);
    let day_of_cycle = days.rem_euclid(CYCLE);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * cycle + year_of_cycle + i64::from(month <= 2);
    (year as u32, month as u32, day as u32)
}

/// Fills `room` with the last decimal digits of `number`.
pub(crate) fn digits(room: &mut [u8], mut number: u32) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

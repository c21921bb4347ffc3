//! Times and durations: their syntax and their parts. UTC, or a fixed offset from it.

use crate::value::format::civil_date;

const SECOND: i128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Parses an RFC 3339 §5.6 time to nanoseconds since the Unix epoch; `None` if it is invalid or outside the years 1677
/// to 2262. A leap second is the second after it.
#[must_use]
pub fn parse_time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, length: usize| -> Option<i64> {
        let digits = text.get(from..from + length)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let sign = |at: usize, signs: &[u8]| bytes.get(at).is_some_and(|byte| signs.contains(byte));
    let form = sign(4, b"-") && sign(7, b"-") && sign(10, b"Tt ") && sign(13, b":") && sign(16, b":");
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let valid = (1..=12).contains(&month) && hour < 24 && minute < 60 && second <= 60;
    if !form || !valid || !(1..=days_of_month(year, month)).contains(&day) {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanos = 0_i64;
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return None;
        }
        for place in 0..9 {
            let digit =
                fraction.as_bytes().get(place).filter(|_| place < length).map_or(0, |byte| byte - b'0');
            nanos = nanos * 10 + i64::from(digit);
        }
        rest = &fraction[length..];
    }
    let offset = match rest {
        "Z" | "z" => 0,
        rest => parse_offset(rest)?,
    };
    let seconds = days_of_date(year, month, day) * DAY_SECONDS + hour * 3_600 + minute * 60 + second - offset;
    i64::try_from(i128::from(seconds) * SECOND + i128::from(nanos)).ok()
}

/// Parses an offset from UTC in seconds: `UTC`, `Z`, or `+01:00` with an optional plus.
pub(super) fn parse_offset(text: &str) -> Option<i64> {
    if matches!(text, "UTC" | "Z") {
        return Some(0);
    }
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |digits: &str| -> Option<i64> {
        (digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| digits.parse().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Parses a duration in Go's syntax to nanoseconds: `1h30m`, `1.5s`, `-250ms`.
pub(super) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let length = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, tail) = rest.split_at(length);
        let unit_length = tail.bytes().take_while(|byte| !byte.is_ascii_digit() && *byte != b'.').count();
        let (unit, tail) = tail.split_at(unit_length);
        let unit: i128 = match unit {
            "h" => 3_600 * SECOND,
            "m" => 60 * SECOND,
            "s" => SECOND,
            "ms" => SECOND / 1_000,
            "us" | "µs" | "μs" => SECOND / 1_000_000,
            "ns" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 20 {
            return None;
        }
        let mut nanos = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(unit)? };
        let mut place = unit;
        for digit in fraction.bytes() {
            place /= 10;
            nanos += i128::from(digit - b'0') * place;
        }
        total = total.checked_add(nanos)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A part of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    FullYear,
    /// From 0.
    Month,
    /// Of the month, from 1.
    Date,
    /// Of the month, from 0.
    DayOfMonth,
    /// From 0, which is Sunday.
    DayOfWeek,
    /// From 0.
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

/// A part of a time, in a zone that is `offset` seconds ahead of UTC.
pub(super) fn part(part: Part, unix_nanos: i64, offset: i64) -> i64 {
    let seconds = unix_nanos.div_euclid(1_000_000_000) + offset;
    let (days, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil_date(days);
    match part {
        Part::FullYear => year.into(),
        Part::Month => i64::from(month) - 1,
        Part::Date => day.into(),
        Part::DayOfMonth => i64::from(day) - 1,
        // The epoch was a Thursday.
        Part::DayOfWeek => (days + 4).rem_euclid(7),
        Part::DayOfYear => days - days_of_date(year.into(), 1, 1),
        Part::Hours => second / 3_600,
        Part::Minutes => second / 60 % 60,
        Part::Seconds => second % 60,
        Part::Milliseconds => unix_nanos.rem_euclid(1_000_000_000) / 1_000_000,
    }
}

/// Formats a time as RFC 3339, with as many decimals as needed.
pub(super) fn write_time(unix_nanos: i64) -> String {
    let text = crate::value::format::rfc3339(unix_nanos);
    let date = std::str::from_utf8(&text).ok().and_then(|text| text.get(..19)).unwrap_or("");
    let mut time = date.to_owned();
    push_fraction(unix_nanos.rem_euclid(1_000_000_000), &mut time);
    time.push('Z');
    time
}

/// A duration in seconds, with as many decimals as needed: `1.5s`.
pub(super) fn write_duration(nanos: i64) -> String {
    let size = nanos.unsigned_abs();
    let mut text = format!("{}{}", if nanos < 0 { "-" } else { "" }, size / 1_000_000_000);
    push_fraction((size % 1_000_000_000) as i64, &mut text);
    text.push('s');
    text
}

fn push_fraction(nanos: i64, text: &mut String) {
    if nanos > 0 {
        text.push_str(format!(".{nanos:09}").trim_end_matches('0'));
    }
}

/// The days since the Unix epoch of a date of the proleptic Gregorian calendar; the inverse of [`civil_date`].
fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let (cycle, year_of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    cycle * 146_097 + day_of_cycle - 719_468
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

//! What reading an attribute gives: a small value that borrows from the request and never allocates.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The value of one attribute of one request.
///
/// Values are `Copy` and at most 48 bytes: they are returned, matched and forgotten within one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// The request has no such thing: no such header, no token, no response yet.
    Absent,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Text that the request holds. Any bytes: header values may be Latin-1 (RFC 9110 §5.5).
    Bytes(&'a [u8]),
    /// Short text that is made while reading, such as an identifier in hexadecimal.
    Inline(Inline),
    /// An address; IPv6 is written as RFC 5952 says.
    Address(IpAddr),
    /// A span of time.
    Duration(Duration),
    /// A point in time, in nanoseconds since the Unix epoch.
    Time(i64),
}

impl<'a> Value<'a> {
    /// `Bytes` of what there is, else `Absent`.
    #[must_use]
    pub fn bytes<T: AsRef<[u8]> + ?Sized>(bytes: Option<&'a T>) -> Self {
        bytes.map_or(Value::Absent, |bytes| Value::Bytes(bytes.as_ref()))
    }

    /// `Int` of what there is, else `Absent`. What does not fit into an `i64` becomes `i64::MAX`.
    #[must_use]
    pub fn unsigned(number: Option<u64>) -> Self {
        number.map_or(Value::Absent, |number| Value::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    /// Whether there is no value.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Value::Absent)
    }

    /// The value as text, or `None` where it is absent. `scratch` holds the text of what is not text already.
    ///
    /// Durations are in seconds with six decimals, times as RFC 3339 has them, in UTC with milliseconds.
    #[must_use]
    pub fn text<'v>(&'v self, scratch: &'v mut Inline) -> Option<&'v [u8]> {
        *scratch = match self {
            Value::Absent => return None,
            Value::Bytes(bytes) => return Some(bytes),
            Value::Inline(inline) => return Some(inline.as_bytes()),
            Value::Bool(true) => Inline::from_array(*b"true"),
            Value::Bool(false) => Inline::from_array(*b"false"),
            Value::Int(number) => integer(*number),
            Value::Address(address) => self::address(*address),
            Value::Duration(duration) => Unit::Seconds.format(*duration),
            Value::Time(nanos) => rfc3339(*nanos),
        };
        Some(scratch.as_bytes())
    }
}

/// The type of an attribute's values, for documents and for checks when the configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `Value::Bool`.
    Bool,
    /// `Value::Int`.
    Int,
    /// `Value::Bytes` or `Value::Inline`.
    Text,
    /// `Value::Address`.
    Address,
    /// `Value::Duration`.
    Duration,
    /// `Value::Time`.
    Time,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Text => "string",
            Kind::Address => "address",
            Kind::Duration => "duration",
            Kind::Time => "timestamp",
        })
    }
}

/// Up to [`Inline::CAPACITY`] bytes of text, held in place.
#[derive(Clone, Copy)]
pub struct Inline {
    length: u8,
    bytes: [u8; Self::CAPACITY],
}

impl Inline {
    /// The most bytes that fit: enough for an IPv6 address, a UUID or a 128-bit number.
    pub const CAPACITY: usize = 46;

    /// No text.
    #[must_use]
    pub const fn new() -> Self {
        Self { length: 0, bytes: [0; Self::CAPACITY] }
    }

    /// The text of an array; one that does not fit does not compile.
    #[must_use]
    pub fn from_array<const N: usize>(text: [u8; N]) -> Self {
        const { assert!(N <= Self::CAPACITY, "longer than Inline::CAPACITY") };
        let mut inline = Self::new();
        inline.push(&text);
        inline
    }

    /// The text of a slice, or `None` where it does not fit.
    #[must_use]
    pub fn from_slice(text: &[u8]) -> Option<Self> {
        let mut inline = Self::new();
        inline.push(text).then_some(inline)
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Appends all of `text`, or, where it does not fit, nothing; says which.
    fn push(&mut self, text: &[u8]) -> bool {
        let start = usize::from(self.length);
        let Some(room) = self.bytes.get_mut(start..start + text.len()) else { return false };
        room.copy_from_slice(text);
        // It fitted, so the sum is at most CAPACITY.
        self.length += text.len() as u8;
        true
    }
}

impl Default for Inline {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Inline {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Inline {}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl fmt::Write for Inline {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.push(text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The unit in which a duration is written as a number.
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
    /// The unit that a field's name ends in; seconds where it names none.
    pub(crate) fn of_name(name: &str) -> Self {
        match name.rsplit_once('_') {
            Some((_, "ms")) => Unit::Milliseconds,
            Some((_, "us")) => Unit::Microseconds,
            Some((_, "ns")) => Unit::Nanoseconds,
            _ => Unit::Seconds,
        }
    }

    /// The duration as a decimal number, rounded down. The longest has 29 digits, so it always fits.
    pub(crate) fn format(self, duration: Duration) -> Inline {
        let mut text = Inline::new();
        match self {
            Unit::Seconds => {
                text.push(itoa::Buffer::new().format(duration.as_secs()).as_bytes());
                let mut fraction = *b".000000";
                digits(&mut fraction[1..], duration.subsec_micros());
                text.push(&fraction);
            }
            Unit::Milliseconds => {
                text.push(itoa::Buffer::new().format(duration.as_millis()).as_bytes());
                let mut fraction = *b".000";
                digits(&mut fraction[1..], duration.subsec_micros() % 1_000);
                text.push(&fraction);
            }
            Unit::Microseconds => {
                text.push(itoa::Buffer::new().format(duration.as_micros()).as_bytes());
            }
            Unit::Nanoseconds => {
                text.push(itoa::Buffer::new().format(duration.as_nanos()).as_bytes());
            }
        }
        text
    }
}

pub(crate) fn integer(number: i64) -> Inline {
    let mut text = Inline::new();
    text.push(itoa::Buffer::new().format(number).as_bytes());
    text
}

pub(crate) fn address(address: IpAddr) -> Inline {
    let mut text = Inline::new();
    match address {
        IpAddr::V4(address) => dotted(address, &mut text),
        // At most 39 bytes, so it can't fail.
        IpAddr::V6(address) => {
            let _ = fmt::write(&mut text, format_args!("{address}"));
        }
    }
    text
}

/// IPv4 is most of what a log holds; going by way of `Display` would cost several times as much.
fn dotted(address: Ipv4Addr, text: &mut Inline) {
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push(b".");
        }
        text.push(itoa::Buffer::new().format(octet).as_bytes());
    }
}

/// A time as RFC 3339 has it, in UTC, with milliseconds (rounded down): `2026-11-21T02:09:11.123Z`.
///
/// Every `i64` of nanoseconds lies in the years 1677 to 2262, so that the year always has four digits.
pub(crate) fn rfc3339(unix_nanos: i64) -> Inline {
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
    Inline::from_array(text)
}

/// Year, month and day of the proleptic Gregorian calendar from days since the Unix epoch.
///
/// Counts from 1 March of year 0: with the leap day at the end of the year, a cycle of four years is
/// 1,461 days, of a hundred 36,524, of four hundred 146,097; and the months from March on follow
/// `(153 * month + 2) / 5` days.
fn civil_date(unix_days: i64) -> (u32, u32, u32) {
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
fn digits(room: &mut [u8], mut number: u32) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

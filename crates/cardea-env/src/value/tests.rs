//! Tests of values.

use super::format::{address, civil_date};
use super::*;

fn text(value: Value<'_>) -> Option<String> {
    let mut scratch = Inline::new();
    value.text(&mut scratch).map(|text| String::from_utf8(text.to_vec()).unwrap())
}

#[test]
fn each_kind_has_its_text() {
    let cases = [
        (Value::Absent, None),
        (Value::Bool(true), Some("true")),
        (Value::Bool(false), Some("false")),
        (Value::Int(i64::MIN), Some("-9223372036854775808")),
        (Value::Int(0), Some("0")),
        (Value::Bytes(b"abc"), Some("abc")),
        (Value::Bytes(b""), Some("")),
        (Value::Inline(Inline::from_array(*b"xyz")), Some("xyz")),
        (Value::Address("203.0.113.9".parse().unwrap()), Some("203.0.113.9")),
        (Value::Address("2001:DB8::0:1".parse().unwrap()), Some("2001:db8::1")),
        (Value::Duration(1_500_042_000), Some("1.500042")),
        (Value::Time(0), Some("1970-01-01T00:00:00.000Z")),
    ];
    for (value, expected) in cases {
        assert_eq!(text(value).as_deref(), expected, "{value:?}");
    }
}

#[test]
fn times_follow_the_calendar() {
    let cases = [
        (951_782_399_999_000_000, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000_000_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_000_000_000, "2000-03-01T00:00:00.000Z"),
        (1_709_164_800_000_000_000, "2024-02-29T00:00:00.000Z"),
        (1_735_689_599_000_000_000, "2024-12-31T23:59:59.000Z"),
        (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (i64::MIN, "1677-09-21T00:12:43.145Z"),
        (i64::MAX, "2262-04-11T23:47:16.854Z"),
    ];
    for (nanos, expected) in cases {
        assert_eq!(text(Value::Time(nanos)).as_deref(), Some(expected));
    }
}

#[test]
fn consecutive_days_are_consecutive_dates() {
    let lengths = |year: u32| {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    };
    let (mut year, mut month, mut day) = (1970, 1, 1);
    for unix_days in 0..106_000 {
        assert_eq!(civil_date(unix_days), (year, month, day));
        day += 1;
        if day > lengths(year)[month as usize - 1] {
            (day, month) = (1, month + 1);
        }
        if month > 12 {
            (month, year) = (1, year + 1);
        }
    }
}

#[test]
fn durations_are_written_in_the_unit_of_the_name() {
    let duration = 12_003_004_005;
    let cases = [
        ("duration", "12.003004"),
        ("duration_seconds", "12.003004"),
        ("duration_ms", "12003.004"),
        ("duration_us", "12003004"),
        ("duration_ns", "12003004005"),
        ("ms", "12.003004"),
    ];
    for (name, expected) in cases {
        assert_eq!(Unit::of_name(name).format(duration).as_bytes(), expected.as_bytes(), "{name}");
    }
}

#[test]
fn the_longest_values_fit() {
    assert_eq!(Unit::Nanoseconds.format(i64::MIN).as_bytes(), b"-9223372036854775808");
    assert_eq!(Unit::Seconds.format(i64::MIN).as_bytes(), b"-9223372036.854775");
    assert_eq!(format::double(f64::MIN_POSITIVE).as_bytes(), b"2.2250738585072014e-308");
    assert_eq!(
        address("1111:2222:3333:4444:5555:6666:7777:8888".parse().unwrap()).as_bytes(),
        b"1111:2222:3333:4444:5555:6666:7777:8888"
    );
    assert!(size_of::<Value<'_>>() <= 48);
}

#[test]
fn inline_text_is_whole_or_not_at_all() {
    assert_eq!(Inline::from_slice(&[b'x'; 46]).unwrap().as_bytes(), [b'x'; 46]);
    assert_eq!(Inline::from_slice(&[b'x'; 47]), None);
    let mut inline = Inline::from_array([b'x'; 40]);
    assert!(std::fmt::write(&mut inline, format_args!("1234567")).is_err());
    assert_eq!(inline.as_bytes(), [b'x'; 40]);
}

#[test]
fn large_unsigned_numbers_saturate() {
    assert_eq!(Value::unsigned(Some(u64::MAX)), Value::Int(i64::MAX));
    assert_eq!(Value::unsigned(None), Value::Absent);
    assert_eq!(Value::bytes(Some("a")), Value::Bytes(b"a"));
    assert_eq!(Value::bytes(None::<&str>), Value::Absent);
}

#[test]
fn addresses_are_written_as_the_standard_library_does() {
    for octet in 0..=u8::MAX {
        for octets in [[octet; 4], [octet, 0, 10, 100], [255, octet, 9, 99], [1, 2, 3, octet]] {
            let address = std::net::Ipv4Addr::from(octets);
            assert_eq!(format::address(address.into()).as_bytes(), address.to_string().as_bytes());
        }
    }
}

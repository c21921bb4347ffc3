//! Tests of values written as text.

use proptest::prelude::*;

use super::*;

#[test]
fn durations_are_a_number_and_a_unit() {
    for (text, milliseconds) in
        [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000), ("0s", 0)]
    {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in
        ["", "10", "s", "10 s", "-1s", "+1s", "1.5s", "10S", "10sec", "1h30m", "99999999999999999999s", "１s"]
    {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn sizes_are_a_number_and_a_unit() {
    for (text, octets) in [
        ("0B", 0),
        ("512B", 512),
        ("64KiB", 65_536),
        ("1MiB", 1 << 20),
        ("10MB", 10_000_000),
        ("1TiB", 1 << 40),
    ] {
        assert_eq!(parse_size(text), Ok(octets), "{text}");
    }
    for text in ["", "10", "10k", "10kb", "10 KiB", "-1B", "1.5MiB", "99999999999TiB"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn prefixes_are_taken_only_where_they_are_exact() {
    for (text, shown) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("192.0.2.1", "192.0.2.1"),
        ("fd00::/8", "fd00::/8"),
        ("::/0", "::/0"),
        ("::1", "::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1/128", "192.0.2.1"),
    ] {
        assert_eq!(parse_prefix(text).unwrap().to_string(), shown);
    }
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0/8",
        "fd00::/129",
        "x/8",
        "10.0.0.0/8/8",
        "::ffff:10.0.0.0/104",
    ] {
        assert!(parse_prefix(text).is_err(), "{text}");
    }
    let error = parse_prefix("10.1.2.3/8").unwrap_err();
    assert!(error.remedy.contains("\"10.0.0.0/8\""), "{}", error.remedy);
}

#[test]
fn addresses_round_trip() {
    for text in ["127.0.0.1:80", "[::1]:80", "orders.internal:8080", "localhost:1", "unix:/run/orders.sock"] {
        assert_eq!(parse_address(text).unwrap().to_string(), text);
    }
    for text in [
        "127.0.0.1",
        "127.0.0.1:0",
        "name",
        "name:0",
        "name:99999",
        "http://a:80",
        "a b:80",
        "unix:rel",
        "unix:/",
        "1.2.3:80",
        "-a:80",
        ":80",
    ] {
        assert!(parse_address(text).is_err(), "{text}");
    }
    for text in ["0.0.0.0:8443", "[::]:0", "unix:/run/cardea/http.sock"] {
        assert_eq!(text.parse::<BindAddress>().unwrap().to_string(), text);
    }
    for text in ["8443", ":8443", "localhost:80", "unix:", "unix:/a/"] {
        assert!(text.parse::<BindAddress>().is_err(), "{text}");
    }
    assert!(format!("unix:/{}", "a".repeat(107)).parse::<BindAddress>().is_err());
}

#[test]
fn rates_are_a_number_a_slash_and_a_unit() {
    for text in [
        "",
        "/",
        "1",
        "/s",
        "1/",
        "0/s",
        "00/s",
        "+1/s",
        "-1/s",
        "1.5/s",
        "1 /s",
        "1/ s",
        "1/S",
        "1/ms",
        "1/1s",
        "18446744073709551616/s",
    ] {
        assert!(parse_rate(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn durations_are_read_as_they_are_written(milliseconds in 0u64..1 << 50) {
        let duration = Duration::from_millis(milliseconds);
        prop_assert_eq!(parse_duration(&display_duration(duration)), Ok(duration));
    }

    #[test]
    fn rates_are_read_as_they_are_written(count in 1u64.., unit in 0_usize..4) {
        let rate = Rate { count, per: Duration::from_secs([1, 60, 3_600, 86_400][unit]) };
        prop_assert_eq!(parse_rate(&display_rate(rate)), Ok(rate));
    }

    #[test]
    fn sizes_are_read_as_they_are_written(octets in any::<u64>()) {
        prop_assert_eq!(parse_size(&display_size(octets)), Ok(octets));
    }

    #[test]
    fn positions_are_read_as_they_are_written(north in -90.0..=90.0, east in -180.0..=180.0) {
        let position = Position::new(north, east).unwrap();
        prop_assert_eq!(parse_position(&position.to_string()), Ok(position));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC*") {
        for format in ["cardea-duration", "cardea-rate", "cardea-size", "cardea-prefix", "cardea-bind-address", "cardea-address",
            "cardea-srv", "cardea-name-server", "cardea-name", "cardea-file-mode", "cardea-position"]
        {
            let _ = Format::of_schema(format).unwrap().check(&text);
        }
    }
}

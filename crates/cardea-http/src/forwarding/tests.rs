//! Forwarding fields: what origins are sent, and which addresses are trusted.

use super::*;

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in lines {
        fields.append(name.as_bytes(), value.as_bytes()).unwrap();
    }
    fields
}

const HOP: Hop<'static> = Hop {
    client: IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 7)),
    scheme: Scheme::Https,
    host: "a.example:8443",
};

const SPOOFED: [(&str, &str); 6] = [
    ("X-Forwarded-For", "10.0.0.1"),
    ("X-Forwarded-Proto", "http"),
    ("X-Real-IP", "10.0.0.3"),
    ("Forwarded", "for=10.0.0.4"),
    ("X-Forwarded-Host", "evil"),
    ("Accept", "*/*"),
];

#[test]
fn set_and_off_leave_nothing_that_the_client_said() {
    let mut given = fields(&SPOOFED);
    set_forwarded(&mut given, ForwardedPolicy::Set, ForwardedHeader::XForwarded, &HOP).unwrap();
    let ours = [
        ("Accept", "*/*"),
        ("X-Forwarded-For", "192.0.2.7"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "a.example:8443"),
    ];
    assert_eq!(given, fields(&ours));

    let mut given = fields(&SPOOFED);
    set_forwarded(&mut given, ForwardedPolicy::Set, ForwardedHeader::Forwarded, &HOP).unwrap();
    let ours = [("Accept", "*/*"), ("Forwarded", "for=192.0.2.7;host=\"a.example:8443\";proto=https")];
    assert_eq!(given, fields(&ours));

    let mut given = fields(&SPOOFED);
    set_forwarded(&mut given, ForwardedPolicy::Off, ForwardedHeader::XForwarded, &HOP).unwrap();
    assert_eq!(given, fields(&[("Accept", "*/*")]));
}

#[test]
fn append_adds_our_hop_and_trust_fills_gaps() {
    let mut given = fields(&SPOOFED);
    given.append(b"x-forwarded-for", b"10.0.0.9, 10.0.0.8").unwrap();
    let mut trusted = given.clone();
    set_forwarded(&mut given, ForwardedPolicy::Append, ForwardedHeader::XForwarded, &HOP).unwrap();
    let list = given.get_all(Known::XForwardedFor).collect::<Vec<_>>();
    assert_eq!(list, [b"10.0.0.1, 10.0.0.9, 10.0.0.8, 192.0.2.7"]);
    assert_eq!(given.get(Known::XForwardedProto), Some(&b"https"[..]));
    assert_eq!((given.count(Known::Forwarded), given.count(Known::XRealIp)), (0, 0));

    let before = trusted.clone();
    set_forwarded(&mut trusted, ForwardedPolicy::Trust, ForwardedHeader::XForwarded, &HOP).unwrap();
    assert_eq!(trusted, before);
    let mut empty = Fields::default();
    set_forwarded(&mut empty, ForwardedPolicy::Trust, ForwardedHeader::XForwarded, &HOP).unwrap();
    assert_eq!(empty.len(), 3);
}

#[test]
fn forwarded_quotes_ipv6() {
    let hop = Hop { client: "2001:db8::17".parse().unwrap(), host: "a.example", ..HOP };
    let mut given = fields(&[("Forwarded", "for=192.0.2.1")]);
    set_forwarded(&mut given, ForwardedPolicy::Append, ForwardedHeader::Forwarded, &hop).unwrap();
    let expected = "for=192.0.2.1, for=\"[2001:db8::17]\";host=a.example;proto=https";
    assert_eq!(given, fields(&[("Forwarded", expected)]));
    let mapped = Hop { client: "::ffff:192.0.2.1".parse().unwrap(), ..hop };
    assert!(forwarded_element(&mapped).starts_with(b"for=192.0.2.1;"));
}

#[test]
fn via_names_the_version_received() {
    let mut given = fields(&[("Via", "1.0 fred")]);
    append_via(&mut given, Version::Http11, "cardea").unwrap();
    append_via(&mut given, Version::Http2, "cardea").unwrap();
    assert_eq!(given.get_all(Known::Via).collect::<Vec<_>>(), [&b"1.0 fred"[..], b"1.1 cardea", b"2 cardea"]);
    assert!(append_via(&mut given, Version::Http11, "a\r\nb").is_err());
}

#[test]
fn the_client_is_the_rightmost_untrusted_hop() {
    let trusted =
        |address: IpAddr| address.to_string().starts_with("10.") || address.to_string().starts_with("fd00:");
    // The peer, the lines, and the source if it is known.
    let table: &[(&str, &[&str], &str)] = &[
        ("192.0.2.1", &["203.0.113.1"], "192.0.2.1"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.1"], "203.0.113.1"),
        ("::ffff:10.0.0.1", &["203.0.113.1"], "203.0.113.1"),
        ("10.0.0.1", &["1.1.1.1, 203.0.113.1"], "203.0.113.1"),
        ("10.0.0.1", &["1.1.1.1, 203.0.113.1 , 10.0.0.2,10.0.0.3"], "203.0.113.1"),
        ("10.0.0.1", &["1.1.1.1", "203.0.113.1", "10.0.0.2"], "203.0.113.1"),
        ("10.0.0.1", &["10.0.0.2, 10.0.0.3"], "10.0.0.2"),
        ("10.0.0.1", &["203.0.113.1:4711, 10.0.0.2:80"], "203.0.113.1"),
        ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
        ("fd00::1", &["[2001:db8::1]:443, fd00::2"], "2001:db8::1"),
        ("10.0.0.1", &["203.0.113.1, unknown, 10.0.0.2"], ""),
        ("10.0.0.1", &["203.0.113.1, evil"], ""),
        ("10.0.0.1", &["203.0.113.1,,"], "203.0.113.1"),
        ("10.0.0.1", &["203.0.113.1", "unknown"], ""),
        ("192.0.2.1", &["203.0.113.1, unknown"], "192.0.2.1"),
        ("10.0.0.1", &["[203.0.113.1]"], ""),
        ("10.0.0.1", &["203.0.113.1:"], ""),
        ("10.0.0.1", &["203.0.113.1:65536"], ""),
        ("10.0.0.1", &["[2001:db8::1"], ""),
        ("10.0.0.1", &["fe80::1%eth0"], ""),
        ("10.0.0.1", &["010.0.0.1"], ""),
        ("10.0.0.1", &[""], "10.0.0.1"),
    ];
    for (peer, lines, expected) in table {
        let lines: Vec<_> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
        let found =
            client_address(&fields(&lines), peer.parse().unwrap(), trusted, ForwardedHeader::XForwarded);
        assert_eq!(found, expected.parse().ok(), "{peer} {lines:?}");
    }
}

#[test]
fn forwarded_is_read_from_the_right_as_well() {
    let trusted = |address: IpAddr| address.to_string().starts_with("10.");
    let table = [
        ("for=203.0.113.1", "203.0.113.1"),
        ("for=1.1.1.1, For=203.0.113.1;proto=http;by=10.0.0.9, for=10.0.0.2", "203.0.113.1"),
        ("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
        ("proto=https;for=\"203.0.113.1:80\"", "203.0.113.1"),
        ("for=203.0.113.1, for=unknown", ""),
        ("for=203.0.113.1, for=_hidden, for=10.0.0.2", ""),
        ("for=203.0.113.1, for=\"_hidden:80\"", ""),
        ("for=203.0.113.1, for=\"unknown:80\"", ""),
        ("for=203.0.113.1:80", ""),
        ("for=[2001:db8:cafe::17]", ""),
        ("for=_hidden, for=203.0.113.1", "203.0.113.1"),
        ("for=203.0.113.1, proto=http", ""),
        ("for=203.0.113.1;for=10.0.0.2", ""),
        ("for=203.0.113.1;x", ""),
        ("for=\"203.0.113.1", ""),
        ("for=\"x, for=203.0.113.1", "203.0.113.1"),
        ("x=\"a, for=10.0.0.66, for=1.1.1.1\"", ""),
    ];
    for (value, expected) in table {
        let given = fields(&[("Forwarded", value)]);
        let found = client_address(&given, "10.0.0.1".parse().unwrap(), trusted, ForwardedHeader::Forwarded);
        assert_eq!(found, expected.parse().ok(), "{value}");
    }
}

#[test]
fn the_walk_is_bounded() {
    let source = |trusted: usize| {
        let value = format!("203.0.113.1{}", ", 10.0.0.2".repeat(trusted));
        let given = fields(&[("X-Forwarded-For", &value)]);
        let is_trusted = |address: IpAddr| address.to_string().starts_with("10.");
        client_address(&given, "10.0.0.1".parse().unwrap(), is_trusted, ForwardedHeader::XForwarded)
    };
    assert_eq!(source(HOPS_MAX - 1), "203.0.113.1".parse().ok());
    assert_eq!(source(HOPS_MAX), None);
}

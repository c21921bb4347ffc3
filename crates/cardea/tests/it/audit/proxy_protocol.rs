//! A listener with the PROXY protocol serves those it trusts, with a header, and nobody else.

use std::net::Ipv4Addr;

use super::lab::{Hello, Lab, PROXIED, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"
request_headers = { set = { "x-source" = "{source.address}" } }
"#;

/// Beside the one address that is trusted.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

const PROXIES: [Way; 3] = [Way::Proxy, Way::ProxyTls, Way::ProxyTlsH2];

#[test]
fn strangers_are_not_served_with_a_header_or_without() {
    let lab = Lab::new(ROUTES);
    for way in PROXIES {
        let record = lab.reach(way, &Request::get(HOST, "/")).expect("the control");
        assert_eq!(record.only().values("x-source"), [PROXIED], "{way:?}");
        for header in [true, false] {
            let wire = lab.connect_from(STRANGER, way, header, Hello::to(HOST));
            let status = wire.map_or(0, |mut wire| wire.send(&Request::get(HOST, "/")).status);
            assert_eq!(status, 0, "{way:?}, header: {header}");
        }
        // Nor is one that is trusted without its header.
        let wire = lab.connect_from(Ipv4Addr::LOCALHOST, way, false, Hello::to(HOST));
        let status = wire.map_or(0, |mut wire| wire.send(&Request::get(HOST, "/")).status);
        assert_eq!(status, 0, "{way:?} without a header");
    }
    // Elsewhere it is a client like any other, and its header is no request.
    let mut wire = lab.connect_from(STRANGER, Way::Plain, false, Hello::to(HOST)).unwrap();
    let record = lab.arrived(&wire.send(&Request::get(HOST, "/"))).expect("the control");
    assert_eq!(record.only().values("x-source"), ["127.0.0.2"]);
    let wire = lab.connect_from(STRANGER, Way::Plain, true, Hello::to(HOST));
    assert!(matches!(wire.unwrap().send(&Request::get(HOST, "/")).status, 0 | 400));
    lab.finish("/");
}

#[test]
fn strangers_are_not_served_after_a_reload() {
    let lab = Lab::new(ROUTES);
    lab.reload("", &ROUTES.replace("\"open\"", "\"opened\""));
    let wire = lab.connect_from(STRANGER, Way::Proxy, true, Hello::to(HOST));
    assert_eq!(wire.map_or(0, |mut wire| wire.send(&Request::get(HOST, "/")).status), 0);
    // Whom a reload no longer trusts is a stranger from then on.
    let text = lab.folder.read("cardea.toml").replace("[\"127.0.0.1/32\"]", "[\"192.0.2.1/32\"]");
    lab.folder.write("cardea.toml", &text);
    let (taken, line) = lab.server.reload();
    assert!(taken, "{line}");
    for way in PROXIES {
        let wire = lab.connect(way, Hello::to(HOST));
        assert_eq!(wire.map_or(0, |mut wire| wire.send(&Request::get(HOST, "/")).status), 0, "{way:?}");
    }
    lab.finish("/");
}

#[test]
fn invalid_headers_are_refused() {
    let lab = Lab::new(ROUTES);
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let v2 = |command: u8, family: u8, length: u8| {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([command, family, 0, length]);
        header.extend([203, 0, 113, 9, 127, 0, 0, 1, 0x12, 0x67, 1, 0xbb]);
        header
    };
    let send = |header: &[u8]| {
        let mut wire = lab.connect_from(Ipv4Addr::LOCALHOST, Way::Proxy, false, Hello::to(HOST)).unwrap();
        wire.raw(&[header, request.as_bytes()].concat(), false)
    };
    let record = lab.arrived(&send(&v2(0x21, 0x11, 12))).expect("the control");
    assert_eq!(record.only().values("x-source"), [PROXIED]);
    for header in [
        &b"PROXY TCP4 203.0.113.9 127.0.0.1 4711 443\n"[..],
        b"PROXY TCP4 203.0.113.9 127.0.0.1 4711\r\n",
        b"PROXY TCP4 203.0.113.999 127.0.0.1 4711 443\r\n",
        b"PROXY TCP4 ::1 ::1 4711 443\r\n",
        b"PROXY TCP4 203.0.113.9 127.0.0.1 65536 443\r\n",
        b"PROXY TCP4  203.0.113.9 127.0.0.1 4711 443\r\n",
        b"proxy TCP4 203.0.113.9 127.0.0.1 4711 443\r\n",
        b" PROXY TCP4 203.0.113.9 127.0.0.1 4711 443\r\n",
        b"PROXY TCP4 203.0.113.9 127.0.0.1 4711 443\r\nPROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\n",
        b"PROXY TCP4 0203.0.113.9 127.0.0.1 4711 443\r\n",
        &v2(0x31, 0x11, 12),
        &v2(0x22, 0x11, 12),
        &v2(0x21, 0x11, 4),
    ] {
        let status = send(header).status;
        assert!(matches!(status, 0 | 400), "{}: {status}", header.escape_ascii());
    }
    lab.finish("/");
}

/// What a proxy sends that does not say whom it stands for.
fn unattributed() -> [(&'static str, Vec<u8>); 5] {
    let v2 = |command: u8, family: u8, rest: usize| {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([command, family]);
        header.extend(u16::try_from(rest).unwrap().to_be_bytes());
        header.resize(16 + rest, 0);
        header
    };
    [
        ("v1 UNKNOWN", b"PROXY UNKNOWN\r\n".to_vec()),
        ("v1 UNKNOWN with more", b"PROXY UNKNOWN 198.51.100.7 127.0.0.1 1 2\r\n".to_vec()),
        ("v2 LOCAL", v2(0x20, 0x00, 0)),
        ("v2 PROXY without a family", v2(0x21, 0x00, 0)),
        ("v2 PROXY of a Unix socket", v2(0x21, 0x31, 216)),
    ]
}

#[test]
fn a_proxy_header_without_an_address_gives_no_trust() {
    // The balancer is trusted with more than the PROXY protocol.
    let trusting = format!("[trusted_proxies]\nprefixes = [\"127.0.0.1/32\"]\n{ROUTES}");
    let lab = Lab::new(&trusting);
    let fields = "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Ssl: on\r\nX-Request-Id: forged\r\n";
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n");
    let send = |way: Way, header: &[u8]| {
        let mut wire = lab.connect_from(Ipv4Addr::LOCALHOST, way, false, Hello::to(HOST)).unwrap();
        lab.arrived(&wire.raw(&[header, request.as_bytes()].concat(), false)).expect("it is served")
    };
    // The controls: it is trusted where it comes itself, and its clients where they are trusted.
    assert_eq!(send(Way::Plain, b"").only().values("x-source"), ["198.51.100.7"]);
    let known = send(Way::Proxy, b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 80\r\n");
    assert_eq!(known.only().values("x-source"), ["198.51.100.7"]);
    for (what, header) in unattributed() {
        let record = send(Way::Proxy, &header);
        let seen = record.only();
        assert_eq!(seen.values("x-source"), ["127.0.0.1"], "{what}");
        assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"], "{what}");
        assert_eq!(seen.values("x-forwarded-proto"), ["http"], "{what}");
        assert!(seen.values("x-forwarded-ssl").is_empty(), "{what}");
        assert_ne!(seen.values("x-request-id"), ["forged"], "{what}");
    }
    lab.finish("/");
}

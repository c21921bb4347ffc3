//! Hop-by-hop fields are removed, and no other field can be.

use super::*;

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in lines {
        fields.append(name.as_bytes(), value.as_bytes()).unwrap();
    }
    fields
}

#[test]
fn hop_by_hop_fields_and_named_ones_are_removed() {
    let mut given = fields(&[
        ("Host", "a"),
        ("Connection", "close, X-Hop"),
        ("x-hop", "1"),
        ("X-HOP", "2"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABk"),
        ("Proxy-Authorization", "Basic x"),
        ("Connection", "keep-alive,, TE , upgrade,http2-settings"),
        ("X-Other", "3"),
        ("Trailer", "x"),
    ]);
    let mut response = given.clone();
    let left = fields(&[("Host", "a"), ("X-Other", "3"), ("Trailer", "x")]);
    strip_hop_by_hop(&mut given).unwrap();
    assert_eq!(given, left);
    strip_hop_by_hop_response(&mut response);
    assert_eq!(response, left);
}

#[test]
fn a_request_cannot_have_end_to_end_fields_dropped() {
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Authorization",
        "Cookie",
        "Content-Type",
        "Cache-Control",
        "X-Forwarded-For",
        "x-real-ip",
        "Forwarded",
        "Via",
        "Client-Cert",
        "X-Request-Id",
        "Expect",
        "Origin",
    ] {
        let given = fields(&[(name, "x"), ("Connection", &format!("close, {name}"))]);
        let stripped = strip_hop_by_hop(&mut given.clone());
        assert_eq!(stripped, Err(RequestError::ConnectionNamesEndToEnd), "{name}");
        let mut response = given;
        strip_hop_by_hop_response(&mut response);
        assert_eq!(response.len(), usize::from(name != "Transfer-Encoding"), "{name}");
    }
}

#[test]
fn the_options_are_tokens_and_few() {
    for value in ["a b", "a;b", "\"close\"", "x=y", &"a,".repeat(17)] {
        let mut given = fields(&[("Connection", value)]);
        assert_eq!(strip_hop_by_hop(&mut given), Err(RequestError::ConnectionInvalid), "{value}");
    }
    assert!(strip_hop_by_hop(&mut fields(&[("Connection", &"a,".repeat(16))])).is_ok());
    assert!(strip_hop_by_hop(&mut fields(&[("Connection", "")])).is_ok());
}

#[test]
fn names_in_connection_match_in_every_spelling() {
    let given = fields(&[("Connection", "close, X-Once, keep-alive"), ("x-once", "1")]);
    for named in
        [strip_hop_by_hop(&mut given.clone()).unwrap(), strip_hop_by_hop_response(&mut given.clone())]
    {
        for (name, expected) in
            [("x-once", true), ("X_ONCE", true), ("x-twice", false), ("close", false), ("keep-alive", false)]
        {
            assert_eq!(named.contains(name.as_bytes()), expected, "{name}");
        }
    }
}

#[test]
fn only_a_plain_websocket_handshake_is_an_upgrade() {
    let good = [("Host", "a"), ("Upgrade", "WebSocket"), ("Connection", "keep-alive, Upgrade")];
    let head = |lines: &[(&str, &str)]| RequestHead { fields: fields(lines), ..RequestHead::default() };
    assert!(upgrade_websocket(&head(&good)));
    assert!(!upgrade_websocket(&RequestHead { method: Method::Post, ..head(&good) }));
    assert!(!upgrade_websocket(&RequestHead { version: Version::Http10, ..head(&good) }));
    let bad: [&[(&str, &str)]; 7] = [
        &[("Upgrade", "websocket")],
        &[("Connection", "upgrade")],
        &[("Upgrade", "websocket"), ("Connection", "close")],
        &[("Upgrade", "h2c"), ("Connection", "upgrade")],
        &[("Upgrade", "websocket, h2c"), ("Connection", "upgrade")],
        &[("Upgrade", "websocket"), ("Upgrade", "h2c"), ("Connection", "upgrade")],
        &[("Upgrade", "websocket"), ("Connection", "upgrade"), ("Content-Length", "1")],
    ];
    for lines in bad {
        assert!(!upgrade_websocket(&head(lines)), "{lines:?}");
    }
}

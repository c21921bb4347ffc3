//! Differences between two configurations.

use super::{Fixture, LEAST};
use crate::Happened;

/// The differences between two configurations, with their keys.
fn differences(before: &str, after: &str) -> Vec<(Happened, String, Vec<String>)> {
    let load = |more: &str| Fixture::new(&format!("{LEAST}{more}")).config();
    let (before, after) = (load(before), load(after));
    let found = before.fingerprint.differences(&after.fingerprint).into_iter();
    found.map(|one| (one.happened, format!("{} {}", one.kind, one.name), one.keys)).collect()
}

const SERVICE: &str = "[[service]]\nname = \"s\"\nendpoint = [{ address = \"a.test:1\" }]\n";

#[test]
fn defaults_order_and_other_spellings_are_no_differences() {
    for (before, after) in [
        ("", "[limits]\nconnections_max = 20000\n"),
        ("", "# A remark.\n[timeouts]\nrequest = \"5m\"\n"),
        ("[timeouts]\nrequest = \"1m\"\n", "[timeouts]\nrequest = \"60s\"\n"),
        (SERVICE, &format!("{SERVICE}pool = {{ idle_max = 1024 }}\n")),
        (SERVICE, &format!("{SERVICE}[limits]\n")),
    ] {
        assert_eq!(differences(before, after), [], "{before:?} and {after:?}");
        assert_eq!(differences(after, before), [], "{after:?} and {before:?}");
    }
}

#[test]
fn named_objects_are_reported_as_added_changed_or_removed() {
    let changed = SERVICE.replace("a.test:1", "a.test:2");
    let one = |happened, keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        vec![(happened, "service s".to_owned(), keys)]
    };
    assert_eq!(differences("", SERVICE), one(Happened::Added, &[]));
    assert_eq!(differences(SERVICE, ""), one(Happened::Removed, &[]));
    assert_eq!(differences(SERVICE, &changed), one(Happened::Changed, &["endpoint"]));
    let pooled = format!("{SERVICE}connect_timeout = \"1s\"\npool = {{ idle_max = 7 }}\n");
    assert_eq!(differences(SERVICE, &pooled), one(Happened::Changed, &["connect_timeout", "pool.idle_max"]));
    let setting = differences("", "[timeouts]\nrequest = \"7m\"\n");
    assert_eq!(setting, [(Happened::Changed, "setting timeouts.request".to_owned(), vec![])]);
}

#[test]
fn the_content_of_every_file_that_is_named_is_part_of_the_value() {
    let text = r#"
[authorization_server]
issuer = "https://a.test"
default_audience = "b"
wrapping_key = { file = "wrapping.key" }
[acme]
directory = "https://acme.test/d"
terms_of_service_agreed = true
wrapping_key = { file = "wrapping-2.key" }
ca_file = "acme-ca.pem"
external_account = { key_id = "x", hmac_key = { file = "hmac.key" } }
[[client_authority]]
name = "partners"
ca_file = "partners.pem"
crl_files = ["first.crl", "second.crl"]
[[listener]]
name = "tls"
address = "127.0.0.1:1"
[listener.tls]
ticket_secret = "tickets.secret"
[[listener.tls.certificate]]
chain = "chain.pem"
key = "key.pem"
ocsp_staple = "staple.der"
[[issuer]]
name = "i"
issuer = "https://i.test"
audiences = ["b"]
jwks_file = "keys.json"
ca_file = "issuer-ca.pem"
[[attribute]]
name = "tier"
map = { file = "tiers.map", key = "{token.sub}" }
[[service]]
name = "s"
endpoint = [{ address = "a.test:1" }]
tls = { ca_file = "service-ca.pem" }
[[route]]
name = "r"
auth = "public"
respond = { file = "page.html" }
"#;
    let files = [
        ("wrapping.key", "setting authorization_server.wrapping_key"),
        ("wrapping-2.key", "setting acme.wrapping_key"),
        ("acme-ca.pem", "setting acme.ca_file"),
        ("hmac.key", "setting acme.external_account.hmac_key"),
        ("partners.pem", "client_authority partners"),
        ("first.crl", "client_authority partners"),
        ("second.crl", "client_authority partners"),
        ("tickets.secret", "listener tls"),
        ("chain.pem", "listener tls"),
        ("key.pem", "listener tls"),
        ("staple.der", "listener tls"),
        ("keys.json", "issuer i"),
        ("issuer-ca.pem", "issuer i"),
        ("tiers.map", "attribute tier"),
        ("service-ca.pem", "service s"),
        ("page.html", "route r"),
    ];
    let mut fixture = Fixture::new(text);
    for (file, _) in files {
        fixture = fixture.file(file, if file == "tiers.map" { "a b" } else { "aaaa" });
    }
    let mut before = fixture.config();
    for (file, expected) in files {
        fixture = fixture.file(file, if file == "tiers.map" { "a c" } else { "bbbb" });
        let after = fixture.config();
        let found = before.fingerprint.differences(&after.fingerprint);
        let [one] = found.as_slice() else { panic!("{file}: {found:?}") };
        // A secret is identified by its source.
        let name = format!("{} {}", one.kind, one.name);
        assert_eq!(name.strip_suffix(".file").unwrap_or(&name), expected, "{file}");
        assert_eq!(one.happened, Happened::Changed, "{file}");
        before = after;
    }
}

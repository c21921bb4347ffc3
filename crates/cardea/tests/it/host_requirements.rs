//! What `check` says of hosts that require client certificates, and of routes that are bound to listeners.

use cardea_clock::Wall;
use cardea_tls::authority::Authority;

use crate::support::{Folder, folder::Settings};

const FROM: Wall = Wall::from_unix_seconds(0);
const TO: Wall = Wall::from_unix_seconds(4_000_000_000);

const CONFIGURATION: &str = r#"
[admin]
address = "off"
socket = "off"

[[client_authority]]
name = "staff"
ca_file = "ca.pem"

[[client_authority]]
name = "partners"
ca_file = "ca.pem"

[[listener]]
name = "public"
address = "127.0.0.1:0"

[[listener.tls.certificate]]
chain = "www.pem"
key = "www.key"

[[listener.tls.certificate]]
chain = "partners.pem"
key = "partners.key"
hosts = ["*.partners.example.com"]
trust_domain = "partners"
client_certificate = "require"
client_authorities = ["partners"]

[[listener]]
name = "plain"
address = "127.0.0.1:0"

[[listener]]
name = "second"
address = "127.0.0.1:0"

[[listener.tls.certificate]]
chain = "{chain}.pem"
key = "{chain}.key"
{certificate}

[[route]]
name = "partners"
hosts = ["{host}"]
auth = "public"
respond = {}
{route}
"#;

struct Setting(Folder);

impl Setting {
    fn new() -> Self {
        let folder = Folder::new(&Settings::default());
        let web = Authority::new("web", FROM, TO).unwrap();
        for (file, host) in [
            ("www", "www.example.com"),
            ("partners", "*.partners.example.com"),
            ("other", "other.example.com"),
        ] {
            let issued = web.issue(&[host], FROM, TO).unwrap();
            folder.write(&format!("{file}.pem"), &issued.chain_pem);
            folder.write(&format!("{file}.key"), &issued.key_pem);
        }
        Self(folder)
    }

    /// What `check` says of the configuration, with the number of the line that is blamed first; empty where it is good.
    fn check(&self, chain: &str, certificate: &str, host: &str, route: &str) -> String {
        let text = CONFIGURATION
            .replace("{chain}", chain)
            .replace("{certificate}", certificate)
            .replace("{host}", host)
            .replace("{route}", route);
        self.0.write("cardea.toml", &text);
        let ran = self.0.run(&["check"]);
        assert!(matches!((ran.code, ran.stderr.contains("cardea.toml:")), (Some(0 | 2), _)), "{ran:?}");
        if ran.code == Some(0) { String::new() } else { ran.stderr }
    }
}

#[test]
fn a_host_has_one_requirement() {
    let setting = Setting::new();
    let host = "a.partners.example.com";
    let same = "client_certificate = \"require\"\nclient_authorities = [\"partners\"]\nhosts = [\"*.partners.example.com\"]";
    for (chain, certificate) in [("other", ""), ("partners", same)] {
        assert_eq!(setting.check(chain, certificate, host, ""), "", "{certificate}");
    }
    for certificate in [
        "",
        "client_certificate = \"request\"\nclient_authorities = [\"partners\"]",
        "client_certificate = \"require\"\nclient_authorities = [\"staff\"]\nhosts = [\"*.partners.example.com\"]",
    ] {
        let told = setting.check("partners", certificate, host, "");
        // The place of the one certificate, and within the message that of the other.
        assert!(
            told.contains("cardea.toml:38:") && told.contains("cardea.toml:22:"),
            "{certificate}: {told}"
        );
        assert!(told.contains("*.partners.example.com"), "{told}");
    }
}

/// Files of certificates are replaced. What a host requires must not depend on what the next one says.
#[test]
fn a_file_alone_opens_no_host() {
    let setting = Setting::new();
    let host = "a.partners.example.com";
    let strict = "client_certificate = \"require\"\nclient_authorities = [\"staff\"]";
    let told = setting.check("other", strict, host, "");
    assert!(
        told.contains("cardea.toml:38:") && told.contains("only its file tells for which hosts"),
        "{told}"
    );
    assert_eq!(setting.check("other", &format!("{strict}\nhosts = [\"other.example.com\"]"), host, ""), "");

    // A name below the wildcard in a file that asks for nothing, and the same where it is configured.
    let issued =
        Authority::new("web", FROM, TO).unwrap().issue(&["other.example.com", host], FROM, TO).unwrap();
    setting.0.write("other.pem", &issued.chain_pem);
    setting.0.write("other.key", &issued.key_pem);
    let told = setting.check("other", "", host, "");
    assert!(told.contains(host) && told.contains("requires a client certificate"), "{told}");
    assert_eq!(setting.check("other", &format!("hosts = [\"other.example.com\", {host:?}]"), host, ""), "");
}

#[test]
fn a_route_whose_host_requires_a_certificate_needs_a_listener_that_requests_it() {
    let setting = Setting::new();
    for host in ["a.partners.example.com", "*.partners.example.com"] {
        for bound in ["", "listeners = [\"public\"]", "listeners = [\"plain\", \"public\"]"] {
            assert_eq!(setting.check("other", "", host, bound), "", "{host} {bound}");
        }
        for bound in ["listeners = [\"plain\"]", "listeners = [\"plain\", \"second\"]"] {
            let told = setting.check("other", "", host, bound);
            assert!(
                told.contains("cardea.toml:43:") && told.contains("requires client certificates"),
                "{told}"
            );
            assert!(told.contains("bind the route to a listener that does: public"), "{told}");
        }
    }
    // A name of two labels is not the wildcard's.
    let control = setting.check("other", "", "a.b.partners.example.com", "listeners = [\"plain\"]");
    assert_eq!(control, "");

    let rule = "client_certificate = \"required\"\nlisteners = ";
    assert_eq!(setting.check("other", "", "www.example.com", &format!("{rule}[\"public\"]")), "");
    for bound in ["[\"plain\"]", "[\"plain\", \"second\"]"] {
        let told = setting.check("other", "", "www.example.com", &format!("{rule}{bound}"));
        assert!(told.contains("no listener of the route"), "{told}");
    }
}

#[test]
fn hosts_without_a_certificate_are_reported() {
    let setting = Setting::new();
    for (host, bound, is_told) in [
        ("www.example.com", "", false),
        ("a.partners.example.com", "", false),
        ("*.partners.example.com", "", false),
        ("a.b.partners.example.com", "", true),
        ("*.example.com", "", true),
        ("partners.example.com", "", true),
        ("other.example.com", "listeners = [\"public\"]", true),
        ("other.example.com", "listeners = [\"plain\"]", false),
        ("other.example.com", "listeners = [\"second\"]", false),
    ] {
        assert_eq!(setting.check("other", "", host, bound), "", "it is no error");
        let ran = setting.0.run(&["check", "--deny-warnings"]);
        let told =
            ran.stderr.contains("cardea.toml:43:1: warning: no certificate of the route's listeners names");
        assert_eq!(told, is_told, "{host} {bound}: {ran:?}");
        assert!(!is_told || ran.code == Some(2), "{ran:?}");
    }
}

#[test]
fn listeners_of_routes_exist() {
    let setting = Setting::new();
    for (bound, expected) in [
        ("listeners = [\"pubic\"]", "did you mean \"public\"?"),
        ("listeners = []", "is empty"),
        ("listeners = [\"plain\", \"plain\"]", "is there twice"),
    ] {
        let told = setting.check("other", "", "www.example.com", bound);
        assert!(told.contains("cardea.toml:48:") && told.contains(expected), "{bound}: {told}");
    }
    // Routes for the same requests of other listeners are other routes.
    let second = |listener: &str| {
        format!(
            "listeners = [\"public\"]\n[[route]]\nname = \"second\"\nhosts = [\"www.example.com\"]\n\
             listeners = [\"{listener}\"]\nauth = \"public\"\nrespond = {{}}\n"
        )
    };
    assert_eq!(setting.check("other", "", "www.example.com", &second("plain")), "");
    let told = setting.check("other", "", "www.example.com", &second("public"));
    assert!(told.contains("is for the same requests as \"partners\""), "{told}");
}

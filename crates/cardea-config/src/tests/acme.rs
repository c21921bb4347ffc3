//! Tests of certificates from an ACME authority.

use super::*;

const AUTHORITY: &str = "[acme]\ndirectory = \"https://ca.example/directory\"\nterms_of_service_agreed = true\nwrapping_key = { env = \"WRAPPING_KEY\" }\n";
const LISTENER: &str = "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n[[listener.tls.certificate]]\nacme = true\nhosts = [\"A.example.com\", \"b.example.com\"]\n";

#[test]
fn an_authority_and_hosts_are_enough() {
    let config = Fixture::new(&format!("{AUTHORITY}{LISTENER}")).config();
    let acme = config.acme.unwrap();
    assert_eq!(acme.challenges, [ChallengeKind::TlsAlpn01]);
    assert_eq!((acme.key_type, acme.renew_before_percent), (RequestedKey::EcdsaP256, 33));
    assert!(acme.database.ends_with("cardea.db"));
    let certificate = &config.listeners[0].tls.as_ref().unwrap().certificates[0];
    assert_eq!(certificate.source, CertificateSource::Acme);
    assert_eq!(certificate.hosts, ["a.example.com", "b.example.com"]);
}

#[test]
fn an_external_account_has_the_key_in_octets() {
    let config = Fixture::new(&format!(
        "{AUTHORITY}external_account = {{ key_id = \"kid\", hmac_key = {{ file = \"hmac\" }} }}\n{LISTENER}"
    ))
    .file("hmac", "_-8=\n")
    .config();
    let account = config.acme.unwrap().external_account.unwrap();
    assert_eq!((account.key_id.as_str(), account.hmac_key.expose()), ("kid", &[0xff, 0xef][..]));
}

#[test]
fn unissuable_certificates_are_configuration_errors() {
    let host = |host: &str| format!("{AUTHORITY}{}", LISTENER.replace("b.example.com", host));
    for (text, expected) in [
        (LISTENER.to_owned(), "none is configured; add the section [acme]"),
        (format!("{}{LISTENER}", AUTHORITY.replace("https:", "http:")), "is not the URL of a directory"),
        (format!("{}{LISTENER}", AUTHORITY.replace("true", "false")), "does not agree to its terms"),
        (
            format!("{}{LISTENER}", AUTHORITY.replace("terms_of_service_agreed = true\n", "")),
            "acme has no terms_of_service_agreed",
        ),
        (format!("{AUTHORITY}contacts = [\"me\"]\n{LISTENER}"), "\"me\" is not a contact"),
        (format!("{AUTHORITY}database = \"postgres://x\"\n{LISTENER}"), "is not a database"),
        (format!("{AUTHORITY}challenges = []\n{LISTENER}"), "challenges is empty"),
        (format!("{AUTHORITY}challenges = [\"dns-01\"]\n{LISTENER}"), "\"dns-01\" is not a value"),
        (
            format!("{AUTHORITY}challenges = [\"http-01\", \"http-01\"]\n{LISTENER}"),
            "\"http-01\" is there twice",
        ),
        (
            format!("{AUTHORITY}challenges = [\"http-01\"]\n{LISTENER}"),
            "http-01 is answered by a listener without TLS, and there is none",
        ),
        (format!("{AUTHORITY}renew_before_percent = 4\n{LISTENER}"), "4 is out of the limits"),
        (
            format!(
                "{AUTHORITY}external_account = {{ key_id = \"\", hmac_key = {{ env = \"WRAPPING_KEY\" }} }}\n{LISTENER}"
            ),
            "the key's name is empty",
        ),
        (
            format!(
                "{AUTHORITY}external_account = {{ key_id = \"k\", hmac_key = {{ env = \"WORKERS\" }} }}\n{LISTENER}"
            ),
            "the key in $WORKERS is not base64url",
        ),
        (host("*.example.com"), "gives out wildcards by DNS alone"),
        (host("10.0.0.1"), "is no public name"),
        (host("[::1]"), "is no public name"),
        (host("localhost"), "is no public name"),
        (host("a.example.com"), "is there twice"),
        (
            format!(
                "{AUTHORITY}{}",
                LISTENER.replace("hosts = [\"A.example.com\", \"b.example.com\"]\n", "")
            ),
            "a certificate from an authority needs hosts",
        ),
        (format!("{AUTHORITY}{LISTENER}key = \"x\"\n"), "with acme = true there are no files; remove key"),
        (
            LISTENER.replace("acme = true\n", ""),
            "the certificate has no chain; name a PEM file: chain = \"…\"; or write acme = true",
        ),
    ] {
        let problems = Fixture::new(&text).problems();
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}:\n{problems:#?}");
        assert!(!problems.iter().any(|problem| problem.contains("hunter2")), "{problems:#?}");
    }
    let many: Vec<String> = (0..101).map(|index| format!("\"h{index}.example.com\"")).collect();
    let text = format!("{AUTHORITY}{}", LISTENER.replace("\"b.example.com\"", &many.join(", ")));
    let problems = Fixture::new(&text).problems();
    assert!(problems[0].contains("at most 100 hosts, this one for 102"), "{problems:#?}");
}

//! Certificates from a real authority: ordered, served, kept, shared, renewed, and missed in an orderly way.
//!
//! These need Pebble, which `cargo xtask test authority` builds.

use std::sync::Arc;

use cardea_store::{AcmeStore as _, CertificateRecord, Database as _, sqlite::SqliteStore};
use rustls::{
    ClientConfig,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::Value;

use crate::support::{
    Connection, Folder, Server,
    client::HOST,
    folder::Settings,
    pebble::{EXTERNAL_KEY, Manner, Place},
    until,
};

const A: &str = "a.acme.test";
const B: &str = "b.acme.test";

/// The sections of a gateway whose certificates for [`A`] and [`B`] come from the authority at `place`, at the ports where
/// that asks or at others.
fn sections(place: &Place, asked: bool, more: &str) -> String {
    let (http, tls) = match asked {
        true => (place.http.to_string(), place.tls.to_string()),
        false => ("127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned()),
    };
    format!(
        r#"
[[listener]]
name = "redirect"
address = "{http}"
redirect_to_https = true

[[listener]]
name = "secure"
address = "{tls}"

[[listener.tls.certificate]]
chain = "gateway.pem"
key = "gateway.key"

[[listener.tls.certificate]]
acme = true
hosts = ["{A}"]

[[listener.tls.certificate]]
acme = true
hosts = ["www.{B}", "{B}"]

[acme]
directory = "https://{}/dir"
terms_of_service_agreed = true
contacts = ["mailto:certificates@acme.test"]
wrapping_key = {{ file = "wrapping.key" }}
ca_file = "{}"
{more}
"#,
        place.directory,
        place.ca_file().display()
    )
}

fn settings(place: &Place, more: &str) -> Settings {
    Settings { more: sections(place, true, more), ..Settings::default() }
}

/// What is served at the port where the authority asks, and whom the certificate is from.
fn served(place: &Place, host: &'static str) -> Option<Vec<u8>> {
    Connection::tls_for(host, place.tls, &credulous(&[])).ok().map(|connection| connection.certificate())
}

fn wait_served(place: &Place, host: &'static str, not: Option<&[u8]>) -> Vec<u8> {
    until("a certificate", || served(place, host).filter(|der| Some(der.as_slice()) != not))
}

/// The certificate of a host, as the command line shows it.
fn shown(folder: &Folder, host: &str) -> Value {
    let ran = folder.run(&["certificates", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let all = ran.json();
    let of_host = |one: &&Value| one["hosts"].as_array().unwrap().iter().any(|name| name == host);
    all.as_array().unwrap().iter().find(of_host).unwrap().clone()
}

fn renew(folder: &Folder, host: &str) {
    let ran = folder.run(&["certificates", "renew", host]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

fn metrics(server: &Server) -> String {
    let mut admin = Connection::plain(server.admin).unwrap();
    admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    admin.answer().unwrap().unwrap().text()
}

#[test]
#[ignore = "needs Pebble: cargo xtask test authority"]
fn tls_alpn_01_certificates_survive_restarts_and_an_unreachable_authority() {
    let place = Place::new();
    let folder = Folder::new(&settings(&place, ""));
    let server = Server::start(&folder);

    // No authority: these names fail, others are served, and it is said why.
    server.program.stderr.wait_for("there is no certificate yet", 0);
    let line = server.program.stderr.wait_for("no certificate was issued", 0);
    assert!(line.contains("\"reason\":\"unreachable\"") && line.contains("acme.directory"), "{line}");
    assert_eq!(served(&place, A), None);
    served(&place, HOST).unwrap();
    let missing =
        until("what was logged", || Some(shown(&folder, A)).filter(|shown| shown["problem"].is_string()));
    assert_eq!(
        (&missing["not_after"], &missing["source"]),
        (&Value::Null, &Value::from("acme")),
        "{missing}"
    );
    assert!(missing["failures"].as_u64() > Some(0), "{missing}");

    // Then there is one, which refuses every tenth nonce.
    let authority = place.open(Manner { bad_nonces_percent: 10, ..Manner::default() });
    renew(&folder, A);
    renew(&folder, B);
    let (a, b) = (wait_served(&place, A, None), wait_served(&place, B, None));
    assert_eq!(served(&place, "www.b.acme.test").as_ref(), Some(&b));
    let there = until("all of it", || Some(shown(&folder, A)).filter(|shown| shown["failures"] == 0));
    assert!(there["not_after"].as_i64() > Some(0) && there["problem"].is_null(), "{there}");
    assert_eq!(there["listeners"], serde_json::json!(["secure"]));
    let text = metrics(&server);
    assert!(text.contains("cardea_acme_issued_total 2"), "{text}");
    assert!(
        text.contains("cardea_acme_certificate_expiry_timestamp_seconds{hosts=\"a.acme.test\"} "),
        "{text}"
    );
    assert!(text.contains("cardea_acme_failures_total{reason=\"unreachable\"}"), "{text}");

    // A stranger who asks as the authority did gets nothing, and ordinary ones are redirected.
    Connection::tls_for(A, place.tls, &credulous(&["acme-tls/1"])).err().unwrap();
    let mut plain = Connection::plain(place.http).unwrap();
    let known_to_nobody = "/.well-known/acme-challenge/../../etc/passwd";
    assert_eq!(plain.get(known_to_nobody).unwrap().status, 308);
    assert_eq!(plain.get("/.well-known/acme-challenge/token").unwrap().status, 308);

    // Private keys are neither told nor readable where they are kept.
    let log = server.program.stderr.text();
    server.stop();
    let database = std::fs::read(folder.file("cardea.db")).unwrap();
    assert!(!log.contains("PRIVATE KEY"));
    // The object identifier of keys on P-256, as it stands in every PKCS #8 of one.
    let p256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04];
    assert!(!database.windows(p256.len()).any(|window| window == p256), "an unencrypted key");

    // What was issued is served from the start, and the account goes on.
    let server = Server::start(&folder);
    assert_eq!((served(&place, A), served(&place, B)), (Some(a.clone()), Some(b)));
    renew(&folder, A);
    let second = wait_served(&place, A, Some(&a));
    assert!(!server.program.stderr.text().contains("an account was registered"));

    // Also where the authority goes.
    drop(authority);
    renew(&folder, A);
    server.program.stderr.wait_for("\"reason\":\"unreachable\"", 0);
    assert_eq!(served(&place, A), Some(second.clone()));

    // And where it comes back and knows nobody.
    let _authority = place.open(Manner::default());
    renew(&folder, A);
    wait_served(&place, A, Some(&second));
    assert!(server.program.stderr.text().contains("no longer knows the account"));
    drop(server);
}

#[test]
#[ignore = "needs Pebble: cargo xtask test authority"]
fn http_01_works_on_a_redirecting_listener_and_certificates_are_renewed() {
    let place = Place::new();
    let _authority = place.open(Manner { lifetime_seconds: 30, external: true, ..Manner::default() });
    let (id, key) = EXTERNAL_KEY;
    let more = format!(
        "challenges = [\"http-01\"]\nrenew_before_percent = 80\nkey_type = \"ecdsa-p384\"\n\
         external_account = {{ key_id = \"{id}\", hmac_key = {{ file = \"hmac.key\" }} }}"
    );
    let folder = Folder::new(&settings(&place, &more));
    folder.write("hmac.key", key);
    let server = Server::start(&folder);
    let first = wait_served(&place, A, None);
    // A connection from before goes on while others get each new one.
    let mut old = Connection::tls_for(A, place.tls, &credulous(&[])).unwrap();
    assert_eq!(old.get("/version").unwrap().status, 200);
    let second = wait_served(&place, A, Some(&first));
    let third = wait_served(&place, A, Some(&second));
    assert_ne!(third, first);
    assert_eq!(old.get("/version").unwrap().status, 200);
    let text = server.program.stderr.text();
    assert_eq!(text.matches("an account was registered").count(), 1, "{text}");
    assert!(!text.contains(key));
}

#[test]
#[ignore = "needs Pebble: cargo xtask test authority"]
fn a_failed_challenge_is_reported_and_retried_after_a_delay() {
    let place = Place::new();
    place.set_names_known(false);
    let _authority = place.open(Manner::default());
    let folder = Folder::new(&settings(&place, "challenges = [\"tls-alpn-01\", \"http-01\"]"));
    let server = Server::start(&folder);
    let line = server.program.stderr.wait_for("no certificate was issued", 0);
    assert!(line.contains("\"reason\":\"challenge\"") && line.contains("443 (tls-alpn-01)"), "{line}");
    let failed =
        until("what was logged", || Some(shown(&folder, A)).filter(|shown| shown["problem"].is_string()));
    let wait = failed["next_attempt_at"].as_i64().unwrap() - crate::support::now().wall.unix_seconds();
    assert!((200..=400).contains(&wait), "{failed}");
    let ran = folder.run(&["certificates"]);
    assert!(ran.stdout.contains("awaited") && ran.stderr.contains(A), "{ran:?}");
    assert_eq!(folder.run(&["certificates", "renew", "nobody.test"]).code, Some(3));

    place.set_names_known(true);
    renew(&folder, A);
    wait_served(&place, A, None);
    drop(server);
}

#[test]
#[ignore = "needs Pebble: cargo xtask test authority"]
fn gateways_with_one_database_share_orders_challenges_and_certificates() {
    let place = Place::new();
    let _authority = place.open(Manner::default());
    let folder = Folder::new(&settings(&place, ""));
    let other = Folder::new(&Settings::default());
    let database = format!("database = \"sqlite:{}\"", folder.file("cardea.db").display());
    // The other one is asked by nobody, and may be the one that orders.
    other.configure(&Settings { more: sections(&place, false, &database), ..Settings::default() });
    let (one, two) = (Server::start(&folder), Server::start(&other));
    let a = wait_served(&place, A, None);
    wait_served(&place, B, None);
    until("the same at both", || {
        (shown(&other, A)["not_after"].is_i64() && shown(&other, B)["not_after"].is_i64()).then_some(())
    });
    let issued = |server: &Server| {
        let text = metrics(server);
        let line = text.lines().find(|line| line.starts_with("cardea_acme_issued_total ")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(issued(&one) + issued(&two), 2, "each was ordered once");
    // Asked of the one, done by whichever, served by both.
    renew(&other, A);
    wait_served(&place, A, Some(&a));
    assert_eq!(issued(&one) + issued(&two), 3);
}

#[test]
#[ignore = "needs Pebble: cargo xtask test authority"]
fn certificates_are_renewed_when_the_authority_suggests_it() {
    let place = Place::new();
    let authority = place.open(Manner::default());
    // By the lifetime alone it would be when 54 days of 90 are left.
    let folder = Folder::new(&settings(&place, "renew_before_percent = 60"));
    let server = Server::start(&folder);
    let first = wait_served(&place, A, None);
    until("Pebble's suggestion: two thirds of the lifetime, or a day more or less", || {
        let shown = shown(&folder, A);
        let left = shown["not_after"].as_i64().unwrap() - shown["next_attempt_at"].as_i64().unwrap();
        (29 * 86_400 - 60..=31 * 86_400 + 60).contains(&left).then_some(())
    });
    server.stop();

    // Hours later the certificate has to be revoked.
    place.suggest(&first, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", &credulous(&[]));
    let hours = std::time::Duration::from_secs(7 * 3_600);
    change_record(&folder, &place, A, |record| {
        record.ask_renewal_at = record.ask_renewal_at.map(|at| at.saturating_sub(hours));
        let issued = record.issued.as_mut().unwrap();
        issued.issued_at = issued.issued_at.saturating_sub(hours);
    });
    let server = Server::start(&folder);
    let second = wait_served(&place, A, Some(&first));
    assert_eq!(authority.stdout.text().matches("is a replacement of").count(), 1);

    // An authority that does not know what is to be replaced.
    drop(authority);
    let _authority = place.open(Manner::default());
    renew(&folder, A);
    wait_served(&place, A, Some(&second));
    server.stop();
}

/// Changes what is kept of the certificate of a host while no gateway runs.
fn change_record(folder: &Folder, place: &Place, host: &str, change: impl FnOnce(&mut CertificateRecord)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&folder.file("cardea.db")).await.unwrap();
        let records = store.acme_certificates(&format!("https://{}/dir", place.directory)).await.unwrap();
        let mut record =
            records.into_iter().find(|record| record.hosts.iter().any(|one| one == host)).unwrap();
        change(&mut record);
        store.put_acme_certificate(&record).await.unwrap();
        store.close().await;
    });
}

/// A client that believes any certificate: these tests look at them themselves.
fn credulous(alpn: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(cardea_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        cardea_tls::provider().signature_verification_algorithms.supported_schemes()
    }
}

//! Hosts whose certificates are set later, change, or can't be served.

use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use rustls::{ClientConnection, ServerConnection};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivateKeyDer, ServerName};

use super::*;
use crate::authority::{Authority, Issued};
use crate::testing::carry;
use crate::{ClientTlsConfig, Roots, ServerTls, ServerTlsConfig, client_config};

const NOW: Wall = Wall::from_unix_seconds(1_800_000_000);
const EARLIER: Wall = Wall::from_unix_seconds(1_000_000_000);
const LATER: Wall = Wall::from_unix_seconds(9_000_000_000);

fn authority() -> Authority {
    Authority::new("test", EARLIER, LATER).unwrap()
}

fn key(issued: &Issued) -> Vec<u8> {
    PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap().secret_der().to_vec()
}

fn place(hosts: &[&str]) -> Arc<ManagedCertificate> {
    ManagedCertificate::new("acme", hosts.iter().map(|&host| host.to_owned()).collect())
}

/// The name of the server's certificate, or the error of the handshake.
fn handshake(tls: &ServerTls, authority: &Authority, host: &str) -> Result<Vec<u8>, rustls::Error> {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.certificate_pem()).unwrap();
    let client = client_config(&ClientTlsConfig { roots: Roots::File(ca), ..ClientTlsConfig::default() });
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(client.unwrap(), name).unwrap();
    let mut server = ServerConnection::new(tls.config()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        carry(&mut client, &mut server)?;
        carry(&mut server, &mut client)?;
    }
    Ok(client.peer_certificates().unwrap()[0].to_vec())
}

#[test]
fn a_host_without_a_certificate_fails_alone_and_serves_each_new_one() {
    let authority = authority();
    let (awaited, there) = (place(&["a.test"]), place(&["b.test"]));
    let b = authority.issue(&["b.test"], EARLIER, LATER).unwrap();
    there.put(b.chain_pem.as_bytes(), &key(&b), NOW).unwrap();
    let clock = ManualClock::new(NOW);
    let config = ServerTlsConfig {
        certificates: vec![awaited.config("default"), there.config("default")],
        ..ServerTlsConfig::default()
    };
    let tls = ServerTls::load(&config, &clock.clock()).unwrap();
    assert_eq!(tls.certificates().len(), 1);
    let refused = handshake(&tls, &authority, "a.test").unwrap_err().to_string();
    assert!(refused.contains("no server certificate chain resolved"), "not the default one: {refused}");
    handshake(&tls, &authority, "b.test").unwrap();
    assert!(!tls.is_misdirected(Some("b.test"), "a.test"), "its trust domain is known before it is there");

    let mut last = Vec::new();
    for _ in 0..2 {
        let a = authority.issue(&["a.test"], EARLIER, LATER).unwrap();
        awaited.put(a.chain_pem.as_bytes(), &key(&a), NOW).unwrap();
        assert!(tls.reload_if_changed(NOW).unwrap());
        let served = handshake(&tls, &authority, "a.test").unwrap();
        assert_ne!(served, last);
        last = served;
    }
    assert!(!tls.reload_if_changed(NOW).unwrap());
}

#[test]
fn an_unservable_certificate_changes_nothing() {
    let authority = authority();
    let hosts = ["a.test", "b.test"];
    let place = place(&hosts);
    let issue = |names: &[&str], until| authority.issue(names, EARLIER, until).unwrap();
    let good = issue(&hosts, LATER);
    let expected = place.put(good.chain_pem.as_bytes(), &key(&good), NOW).unwrap();
    assert_eq!(expected, Validity { not_before: EARLIER, not_after: LATER });

    let other = issue(&hosts, LATER);
    let narrow = issue(&["a.test"], LATER);
    let expired = issue(&hosts, NOW.saturating_sub(Duration::from_secs(60)));
    for (chain, key, text) in [
        (other.chain_pem.as_str(), key(&good), "does not belong to the key"),
        (narrow.chain_pem.as_str(), key(&narrow), "which it does not cover"),
        (expired.chain_pem.as_str(), key(&expired), "expired"),
        ("no PEM", key(&good), "holds no certificate"),
        (good.chain_pem.as_str(), b"no key".to_vec(), "is not a key"),
    ] {
        let error = place.put(chain.as_bytes(), &key, NOW).unwrap_err().to_string();
        assert!(error.starts_with("acme: ") && error.contains(text), "{error}");
        assert_eq!((place.validity(), place.version()), (Some(expected), 1));
    }
}

#[test]
fn an_expired_stored_certificate_does_not_prevent_the_start() {
    let authority = authority();
    let place = place(&["a.test"]);
    let until = NOW.saturating_add(Duration::from_secs(60));
    let issued = authority.issue(&["a.test"], EARLIER, until).unwrap();
    place.put(issued.chain_pem.as_bytes(), &key(&issued), NOW).unwrap();
    let config =
        ServerTlsConfig { certificates: vec![place.config("default")], ..ServerTlsConfig::default() };
    let clock = ManualClock::new(LATER.saturating_sub(Duration::from_secs(60)));
    let tls = ServerTls::load(&config, &clock.clock()).unwrap();
    assert_eq!(tls.certificates(), []);
    assert!(handshake(&tls, &authority, "a.test").is_err());
}

#[test]
fn a_host_in_two_trust_domains_is_reported_without_certificates() {
    let certificates = vec![place(&["a.test"]).config("one"), place(&["a.test"]).config("two")];
    let config = ServerTlsConfig { certificates, ..ServerTlsConfig::default() };
    let error = ServerTls::load(&config, &ManualClock::new(NOW).clock()).unwrap_err().to_string();
    assert!(error.contains("trust domain \"two\""), "{error}");
}

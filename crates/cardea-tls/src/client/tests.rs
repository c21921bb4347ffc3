//! Valid and invalid roots and server names.

use std::fs;

use cardea_clock::Wall;

use super::{client_config, server_name};
use crate::authority::Authority;
use crate::{ClientTlsConfig, Roots, TlsError};

fn with_roots(text: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("roots.pem");
    fs::write(&path, text).unwrap();
    let config = ClientTlsConfig { roots: Roots::File(path), ..Default::default() };
    let folder = format!("{}/", dir.path().display());
    client_config(&config).map(|_| ()).map_err(|error| error.to_string().replace(&folder, ""))
}

#[test]
fn roots_come_from_a_file() {
    let (from, to) = (Wall::from_unix_seconds(0), Wall::MAX);
    let pem = Authority::new("one", from, to).unwrap().certificate_pem()
        + &Authority::new("two", from, to).unwrap().certificate_pem();
    assert_eq!(with_roots(&pem), Ok(()));
}

#[test]
fn a_bad_file_of_roots_is_named_with_its_fault() {
    assert_eq!(with_roots("").unwrap_err(), "roots.pem: is empty; write the PEM file again");
    assert!(with_roots("text").unwrap_err().starts_with("roots.pem: holds no certificate"));
    let malformed = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(with_roots(malformed).unwrap_err().starts_with("roots.pem: certificate 1 can't be parsed"));
}

#[test]
fn system_roots_work_or_say_what_to_install() {
    match client_config(&ClientTlsConfig::default()) {
        Ok(config) => assert_eq!(config.alpn_protocols, [b"http/1.1"]),
        Err(TlsError::SystemRoots(reason)) => assert!(!reason.is_empty()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn server_names_are_hosts_without_ports() {
    for (host, expected) in
        [("a.example", "a.example"), ("a.example.", "a.example"), ("10.0.0.1", "10.0.0.1"), ("[::1]", "::1")]
    {
        assert_eq!(server_name(host).unwrap().to_str(), expected);
    }
    for host in ["", ".", "a.example:443", "a b", "-a.example", "[::1]:443", "*.example"] {
        assert!(matches!(server_name(host), Err(TlsError::ServerName(_))), "{host}");
    }
}

//! All errors of chains and keys, each beside a valid one.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use cardea_clock::Wall;
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;

use super::{Certificate, KeyType};
use crate::CertificateConfig;
use crate::authority::{Authority, Issued};

const NOW: Wall = Wall::from_unix_seconds(1_800_000_000);
const EARLIER: Wall = Wall::from_unix_seconds(1_700_000_000);
const LATER: Wall = Wall::from_unix_seconds(1_900_000_000);

fn authority() -> Authority {
    Authority::new("test", EARLIER, LATER).unwrap()
}

fn issue(names: &[&str]) -> Issued {
    authority().issue(names, EARLIER, LATER).unwrap()
}

struct Files {
    dir: TempDir,
    hosts: Vec<String>,
}

impl Files {
    fn new(chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("chain.pem"), chain).unwrap();
        fs::write(dir.path().join("key.pem"), key).unwrap();
        Self { dir, hosts: Vec::new() }
    }

    fn hosts(mut self, hosts: &[&str]) -> Self {
        self.hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        self
    }

    fn config(&self) -> CertificateConfig {
        CertificateConfig {
            chain: self.dir.path().join("chain.pem"),
            key: self.dir.path().join("key.pem"),
            hosts: self.hosts.clone(),
            managed: None,
            trust_domain: "default".to_owned(),
            client_auth: None,
            ocsp: None,
        }
    }

    fn load(&self) -> Result<Certificate, String> {
        self.load_at(NOW)
    }

    /// The errors as shown to an operator, without the folder.
    fn load_at(&self, now: Wall) -> Result<Certificate, String> {
        let folder = format!("{}/", self.dir.path().display());
        Certificate::load(&self.config(), now).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(|error| error.to_string().replace(&folder, "")).collect();
            lines.join("\n")
        })
    }
}

fn assert_refused(files: &Files, expected: &str) {
    let error = files.load().expect_err(expected);
    assert!(error.starts_with(expected), "expected: {expected}\nfound: {error}");
    // Every message ends with a remedy.
    assert!(error.contains(';') || error.contains('?'), "no remedy: {error}");
}

#[test]
fn hosts_default_to_the_subject_alternative_names() {
    let issued = issue(&["API.example.com", "*.example.org", "127.0.0.1", "::1"]);
    let certificate = Files::new(&issued.chain_pem, issued.key_pem.as_bytes()).load().unwrap();
    assert_eq!(certificate.info.hosts, ["api.example.com", "*.example.org", "127.0.0.1", "::1"]);
    assert_eq!((certificate.info.not_before, certificate.info.not_after), (EARLIER, LATER));
}

#[test]
fn each_key_type_is_recognised() {
    for key_type in [KeyType::Ecdsa, KeyType::Ed25519, KeyType::Rsa] {
        let issued = authority().issue_with(key_type, &["a.example"], EARLIER, LATER).unwrap();
        let certificate = Files::new(&issued.chain_pem, issued.key_pem.as_bytes()).load().unwrap();
        assert_eq!(certificate.info.key_type, key_type);
    }
}

#[test]
fn configured_hosts_must_be_covered() {
    let issued = issue(&["a.example.com", "*.example.org", "10.0.0.1"]);
    let files = Files::new(&issued.chain_pem, issued.key_pem.as_bytes());
    let files = files.hosts(&["A.example.com.", "b.example.org", "*.example.org", "10.0.0.1"]);
    let certificate = files.load().unwrap();
    assert_eq!(certificate.info.hosts, ["a.example.com", "b.example.org", "*.example.org", "10.0.0.1"]);

    for host in ["b.example.com", "*.example.com", "example.org", "a.b.example.org", "10.0.0.2"] {
        let files = Files::new(&issued.chain_pem, issued.key_pem.as_bytes()).hosts(&[host]);
        assert_refused(
            &files,
            &format!("chain.pem: is configured for \"{host}\", which it does not cover (it covers a.ex"),
        );
    }
    for host in ["", "*", "*.*.example.org", "a b", "example.com:443", "*.10.0.0.1"] {
        let files = Files::new(&issued.chain_pem, issued.key_pem.as_bytes()).hosts(&[host]);
        assert_refused(&files, &format!("chain.pem: is configured for \"{host}\", which is no host"));
    }
}

#[test]
fn a_leaf_without_names_is_refused() {
    let issued = issue(&[]);
    assert_refused(&Files::new(&issued.chain_pem, issued.key_pem.as_bytes()), "chain.pem: names no host");
}

#[test]
fn files_that_are_no_pem_are_refused() {
    let issued = issue(&["a.example"]);
    let (chain, key) = (issued.chain_pem.as_bytes(), issued.key_pem.as_bytes());
    let cases: &[(&[u8], &[u8], &str)] = &[
        (b"", key, "chain.pem: is empty"),
        (b" \n", key, "chain.pem: is empty"),
        (b"nothing", key, "chain.pem: holds no certificate (no \"BEGIN CERTIFICATE\" line); name"),
        (key, chain, "chain.pem: holds no certificate (no \"BEGIN CERTIFICATE\" line); it holds a key"),
        (&[0x30, 0x82, 1, 0], key, "chain.pem: is DER"),
        (chain, b"", "key.pem: is empty"),
        (chain, b"nothing", "key.pem: holds no private key; name"),
        (chain, chain, "key.pem: holds no private key; it holds a certificate: are chain and key swapped?"),
        (chain, &[0x30, 0x82, 1, 0], "key.pem: is DER"),
        (&chain[..chain.len() / 2], key, "chain.pem: is truncated or damaged (a section has no \"END\" line)"),
        (chain, &key[..key.len() / 2], "key.pem: is truncated or damaged (a section has no \"END\" line)"),
        (b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", key, "chain.pem: is truncated or damaged (not Base64"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", key, "chain.pem: certificate 1 can't be parsed"),
        (chain, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "key.pem: is not a key that TLS can use"),
        (chain, b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "key.pem: is encrypted"),
        (chain, b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n", "key.pem: is encrypted"),
    ];
    for (chain, key, expected) in cases {
        assert_refused(&Files::new(chain, key), expected);
    }
    assert!(Files::new(chain, key).load().is_ok());
}

#[test]
fn a_message_never_quotes_the_key() {
    let issued = issue(&["a.example"]);
    let key = issued.key_pem.replace("-----END", "----END");
    let secret = key.lines().nth(1).unwrap();
    let error = Files::new(&issued.chain_pem, &key).load().unwrap_err();
    assert!(!error.contains(secret), "{error}");
    assert!(!format!("{issued:?}").contains(secret));
}

#[test]
fn chain_and_key_are_complained_of_together() {
    let error = Files::new("", "nothing").load().unwrap_err();
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let issued = issue(&["a.example"]);
    let files = Files::new(&issued.chain_pem, issued.key_pem.as_bytes());
    let mut config = files.config();
    config.key = PathBuf::from("/nowhere/key.pem");
    let errors = Certificate::load(&config, NOW).unwrap_err();
    assert!(
        errors[0].to_string().starts_with("/nowhere/key.pem: can't be read: No such file"),
        "{}",
        errors[0]
    );
    config.key = files.dir.path().to_owned();
    let errors = Certificate::load(&config, NOW).unwrap_err();
    assert!(errors[0].to_string().contains("not a regular file"), "{}", errors[0]);
    let large = Files::new(&issued.chain_pem, vec![b'x'; (1 << 20) + 1]);
    assert_refused(&large, "key.pem: is larger than 1048576 bytes");
}

#[test]
fn a_chain_must_start_at_the_leaf_and_go_up() {
    let authority = authority();
    let (ours, other) =
        (authority.certificate_pem(), self::authority().issue(&["x"], EARLIER, LATER).unwrap());
    let issued = authority.issue(&["a.example"], EARLIER, LATER).unwrap();
    let leaf = &issued.chain_pem;
    let load = |chain: String| Files::new(chain, issued.key_pem.as_bytes());

    assert_eq!(load(format!("{leaf}{ours}")).load().unwrap().certified.cert.len(), 2);
    assert_refused(
        &load(format!("{ours}{leaf}")),
        "chain.pem: is in the wrong order: the key belongs to certificate 2",
    );
    assert_refused(
        &load(format!("{leaf}{}{ours}", other.chain_pem)),
        "chain.pem: is in the wrong order: certificate 1 is not issued by the next one",
    );
    assert_refused(&load(other.chain_pem.clone()), "chain.pem: does not belong to the key ");
    assert_refused(&load(format!("{leaf}{}", ours.repeat(16))), "chain.pem: holds more than 16 certificates");
}

#[test]
fn a_leaf_is_served_only_while_it_is_valid() {
    let issued = issue(&["a.example"]);
    let files = Files::new(&issued.chain_pem, issued.key_pem.as_bytes());
    let second = std::time::Duration::from_secs(1);
    assert!(files.load_at(EARLIER).is_ok());
    assert!(files.load_at(LATER).is_ok());
    assert_eq!(
        files.load_at(EARLIER.saturating_sub(second)).unwrap_err(),
        "chain.pem: is not valid before 2023-11-14T22:13:20Z; check the clock of this machine, or wait"
    );
    assert_eq!(
        files.load_at(LATER.saturating_add(second)).unwrap_err(),
        "chain.pem: expired on 2030-03-17T17:46:40Z; renew it"
    );
}

proptest! {
    #[test]
    fn a_damaged_file_is_an_error_or_the_same_certificate(at in any::<Index>(), bit in 0..8_u8) {
        static ISSUED: OnceLock<Issued> = OnceLock::new();
        let issued = ISSUED.get_or_init(|| issue(&["a.example"]));
        let mut chain = issued.chain_pem.clone().into_bytes();
        let at = at.index(chain.len());
        chain[at] ^= 1_u8 << bit;
        let files = Files::new(&chain, issued.key_pem.as_bytes());
        // The signature isn't verified here, so only the name and the key must not change unnoticed.
        if let Ok(certificate) = files.load() {
            prop_assert_eq!(certificate.info.hosts.len(), 1);
            prop_assert!(certificate.certified.keys_match().is_ok());
        }
    }
}

//! Responses that OpenSSL makes, unchanged and manipulated.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cardea_clock::{CoarseClock, PERIOD_DEFAULT};
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;

use super::*;
use crate::{CertificateConfig, ServerTls, ServerTlsConfig};

const OPENSSL: &str = r"
[req]
distinguished_name = dn
[dn]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[leaf]
subjectAltName = DNS:a.example
authorityInfoAccess = OCSP;URI:http://ocsp.example/x
[responder]
extendedKeyUsage = OCSPSigning
[other]
extendedKeyUsage = serverAuth
";

/// An authority, a leaf, a delegated responder, and a certificate for another purpose.
struct Bench {
    dir: TempDir,
    now: Wall,
}

impl Bench {
    fn new() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("SKIPPED: no openssl on this machine");
            return None;
        }
        let mut bench = Self { dir: tempfile::tempdir().unwrap(), now: Wall::from_unix_seconds(0) };
        fs::write(bench.path().join("x.cnf"), OPENSSL).unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        for ca in ["ca", "stranger"] {
            bench.openssl(&format!(
                "req -x509 -config x.cnf -extensions ca {key} -keyout {ca}.key -out {ca}.pem -days 30 -subj /CN=ca"
            ));
        }
        for (name, ca, serial) in
            [("leaf", "ca", 7), ("responder", "ca", 8), ("other", "ca", 9), ("forger", "stranger", 8)]
        {
            let extensions = if name == "forger" { "responder" } else { name };
            bench.openssl(&format!(
                "req -config x.cnf {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"
            ));
            bench.openssl(&format!(
                "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -set_serial {serial} -days 20 -extfile x.cnf -extensions {extensions} -out {name}.pem"
            ));
        }
        let chain = fs::read_to_string(bench.path().join("leaf.pem")).unwrap()
            + &fs::read_to_string(bench.path().join("ca.pem")).unwrap();
        fs::write(bench.path().join("chain.pem"), chain).unwrap();
        bench.index("V\t401231235959Z\t\t07\tunknown\t/CN=leaf\n");
        // Not earlier: OpenSSL's certificates are valid from its own time on.
        bench.now = CoarseClock::start(PERIOD_DEFAULT).unwrap().clock().wall();
        Some(bench)
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn openssl(&self, arguments: &str) {
        let ran = Command::new("openssl")
            .current_dir(self.path())
            .args(arguments.split(' '))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{arguments}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// The responder's database.
    fn index(&self, text: &str) {
        fs::write(self.path().join("index.txt"), text).unwrap();
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(self.path().join("chain.pem")).unwrap().map(Result::unwrap).collect()
    }

    /// The response to our request, signed by `signer`.
    fn respond(&self, signer: &str, more: &str) -> Vec<u8> {
        let request = StapleRequest::new(0, "x".into(), &self.chain()).unwrap();
        assert_eq!(request.url, "http://ocsp.example/x");
        fs::write(self.path().join("request.der"), request.body).unwrap();
        self.openssl(&format!(
            "ocsp -reqin request.der -index index.txt -CA ca.pem -rsigner {signer}.pem -rkey {signer}.key -respout response.der {more}"
        ));
        fs::read(self.path().join("response.der")).unwrap()
    }

    /// A server with the leaf's certificate and this source of responses.
    fn server(&self, ocsp: OcspConfig) -> ServerTls {
        let certificate = CertificateConfig {
            chain: self.path().join("chain.pem"),
            key: self.path().join("leaf.key"),
            hosts: Vec::new(),
            managed: None,
            trust_domain: "default".to_owned(),
            client_auth: None,
            ocsp: Some(ocsp),
        };
        let config = ServerTlsConfig { certificates: vec![certificate], ..ServerTlsConfig::default() };
        ServerTls::load(&config, &cardea_clock::ManualClock::new(self.now).clock()).unwrap()
    }

    fn check(&self, response: &[u8]) -> Result<Staple, StapleError> {
        Staple::check(response.to_vec(), &self.chain(), self.now)
    }
}

#[test]
fn staples_of_the_issuer_and_its_responder_are_accepted() {
    let Some(bench) = Bench::new() else { return };
    for (signer, expected) in [
        ("ca", Ok(())),
        ("responder", Ok(())),
        ("other", Err(StapleError::NotSigned)),
        ("leaf", Err(StapleError::NotSigned)),
        ("forger", Err(StapleError::NotSigned)),
        ("stranger", Err(StapleError::NotSigned)),
    ] {
        let response = bench.respond(signer, "-ndays 2");
        assert_eq!(bench.check(&response).map(drop), expected, "{signer}");
    }
}

#[test]
fn only_good_ones_about_this_certificate_are_served() {
    let Some(bench) = Bench::new() else { return };
    // Without an end of validity, nobody could tell when it expires.
    assert_eq!(bench.check(&bench.respond("ca", "-resp_no_certs")), Err(StapleError::OutOfTime));
    bench.index("R\t401231235959Z\t251231235959Z\t07\tunknown\t/CN=leaf\n");
    assert_eq!(bench.check(&bench.respond("ca", "-ndays 2")), Err(StapleError::Revoked));
    bench.index("V\t401231235959Z\t\t08\tunknown\t/CN=other\n");
    assert_eq!(bench.check(&bench.respond("ca", "-ndays 2")), Err(StapleError::Unknown));
    bench.index("V\t401231235959Z\t\t07\tunknown\t/CN=leaf\n");
    let response = bench.respond("ca", "-ndays 2");
    let staple = bench.check(&response).unwrap();
    let day = Duration::from_secs(86_400);
    for (now, expected) in [
        (bench.now.saturating_add(day), Ok(())),
        (bench.now.saturating_add(3 * day), Err(StapleError::OutOfTime)),
        (bench.now.saturating_sub(day), Err(StapleError::OutOfTime)),
    ] {
        assert_eq!(Staple::check(response.clone(), &bench.chain(), now).map(drop), expected);
    }
    assert!(!staple.is_aged(bench.now) && staple.is_aged(bench.now.saturating_add(day + day / 2)));
    // About the responder's certificate, which has the same issuer.
    let mut chain = bench.chain();
    chain[0] = CertificateDer::from_pem_file(bench.path().join("responder.pem")).unwrap();
    assert_eq!(Staple::check(response.clone(), &chain, bench.now), Err(StapleError::OtherCertificate));
    assert_eq!(Staple::check(response.clone(), &chain[..1], bench.now), Err(StapleError::NoIssuer));
    // "try later".
    assert_eq!(bench.check(&[0x30, 3, 0x0a, 1, 3]), Err(StapleError::Unsuccessful(3)));
    assert_eq!(bench.check(&[response, vec![0]].concat()), Err(StapleError::Malformed));
}

#[test]
fn no_bit_of_it_can_be_another() {
    let Some(bench) = Bench::new() else { return };
    let response = bench.respond("responder", "-ndays 2");
    let good = bench.check(&response).unwrap();
    for index in 0..response.len() {
        for bit in [0x01, 0x80] {
            let mut changed = response.clone();
            changed[index] ^= bit;
            // A change that is accepted, because no check covers it, changes no content.
            if let Ok(staple) = bench.check(&changed) {
                assert_eq!((staple.this_update, staple.next_update), (good.this_update, good.next_update));
            }
        }
        assert!(bench.check(&response[..index]).is_err());
    }
}

#[test]
fn a_staple_file_is_loaded_on_change_and_dropped_on_expiry() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path().join("staple.der");
    let write = |bytes: &[u8]| {
        fs::write(bench.path().join("new"), bytes).unwrap();
        fs::rename(bench.path().join("new"), &file).unwrap();
    };
    write(&bench.respond("ca", "-ndays 2"));
    let server = bench.server(OcspConfig::File(file.clone()));
    let until = || server.certificates()[0].staple_until;
    let first = until().unwrap();
    assert!(!server.reload_if_changed(bench.now).unwrap());
    // An invalid response doesn't affect the valid one.
    write(b"nothing");
    assert!(server.reload_if_changed(bench.now).unwrap_err().to_string().contains("staple.der"));
    assert_eq!((server.reload_if_changed(bench.now).unwrap(), until()), (false, Some(first)));
    write(&bench.respond("ca", "-ndays 9"));
    assert!(server.reload_if_changed(bench.now).unwrap());
    let second = until().unwrap();
    assert!(second > first);
    // It is not renewed.
    assert!(server.reload_if_changed(second).unwrap());
    assert_eq!(until(), None);
    assert!(server.staples_due(second).0.is_empty());
}

#[test]
fn what_is_fetched_is_asked_for_in_time_and_never_replaced_by_older_answers() {
    let Some(bench) = Bench::new() else { return };
    let server = bench.server(OcspConfig::Fetch);
    let (due, errors) = server.staples_due(bench.now);
    assert_eq!((due.len(), errors.len()), (1, 0));
    // Not asked again at once, whatever the result.
    assert!(server.staples_due(bench.now).0.is_empty());
    let minutes = |minutes: u64| bench.now.saturating_add(Duration::from_secs(60 * minutes));
    assert_eq!(server.staples_due(minutes(5)).0, due);
    let (short, long) = (bench.respond("ca", "-ndays 2"), bench.respond("ca", "-ndays 4"));
    assert_eq!(server.set_staple(&due[0], b"nothing".to_vec(), bench.now), Err(StapleError::Malformed));
    server.set_staple(&due[0], long, bench.now).unwrap();
    let until = server.certificates()[0].staple_until.unwrap();
    assert_eq!(server.set_staple(&due[0], short, bench.now), Err(StapleError::OutOfTime));
    assert_eq!(server.certificates()[0].staple_until, Some(until));
    assert!(server.staples_due(minutes(60)).0.is_empty());
    assert_eq!(server.staples_due(minutes(2 * 24 * 60 + 1)).0.len(), 1);
}

/// OpenSSL's client requests the response and verifies it.
#[test]
fn a_client_gets_it_in_the_handshake() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path().join("staple.der"), bench.respond("responder", "-ndays 2")).unwrap();
    let server = bench.server(OcspConfig::File(bench.path().join("staple.der")));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Command::new("openssl")
        .current_dir(bench.path())
        .args(["s_client", "-status", "-CAfile", "ca.pem", "-servername", "a.example", "-connect"])
        .arg(listener.local_addr().unwrap().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (socket, _) = listener.accept().unwrap();
    let connection = rustls::ServerConnection::new(server.config()).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    let said = String::from_utf8_lossy(&client.wait_with_output().unwrap().stdout).into_owned();
    assert!(
        said.contains("OCSP Response Status: successful") && said.contains("Cert Status: good"),
        "{said}"
    );
}

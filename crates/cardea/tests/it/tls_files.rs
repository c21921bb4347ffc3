//! Certificates that change on disk are taken without a restart, and broken ones are not.

use std::fs;

use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::support::{Folder, Server, folder::Settings, until};

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[test]
fn replaced_certificates_are_taken_and_broken_ones_are_not() {
    let folder = Folder::new(&Settings::default());
    let first = der(&folder.read("gateway.pem"));
    let server = Server::start(&folder);
    let mut old = server.connect();
    assert_eq!(old.certificate(), first);
    assert_eq!(old.get("/version").unwrap().status, 200);

    // By SIGHUP: at once.
    let second = folder.issue();
    folder.write_certificate(&second);
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    assert_eq!(server.connect().certificate(), der(&second.chain_pem));

    // A key that belongs to another certificate: the pair from before stays.
    folder.write("gateway.key", &folder.issue().key_pem);
    let from = server.program.stderr.len();
    let (_, line) = server.reload();
    let line =
        if line.contains("gateway.") { line } else { server.program.stderr.wait_for("gateway.", from) };
    assert!(line.contains("ERROR") && !line.contains("PRIVATE KEY"), "{line}");
    let mut fresh = server.connect();
    assert_eq!(fresh.certificate(), der(&second.chain_pem));
    assert_eq!(fresh.get("/version").unwrap().status, 200);

    // Of itself: within some seconds.
    let third = folder.issue();
    folder.write_certificate(&third);
    until("the new certificate", || (server.connect().certificate() == der(&third.chain_pem)).then_some(()));

    // Gone altogether: what was read serves on.
    fs::remove_file(folder.file("gateway.pem")).unwrap();
    let (_, _) = server.reload();
    assert_eq!(server.connect().certificate(), der(&third.chain_pem));
    assert_eq!(old.get("/version").unwrap().status, 200, "connections from before go on through all of it");
    server.stop();
}

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

/// The state of a certificate by the name of its file, and its problem.
fn state(folder: &Folder, name: &str) -> (String, Option<String>) {
    let ran = folder.run(&["certificates", "--json"]);
    let all = ran.json();
    let of = |one: &&serde_json::Value| one["source"].as_str().unwrap().ends_with(name);
    let found = all.as_array().unwrap().iter().find(of).unwrap().clone();
    (found["state"].as_str().unwrap().to_owned(), found["problem"].as_str().map(str::to_owned))
}

/// A folder whose listener has the certificate of `gateway.test`, and one of `shop.test` in another trust domain.
fn with_shop() -> Folder {
    let more =
        "\n[[listener.tls.certificate]]\nchain = \"shop.pem\"\nkey = \"shop.key\"\ntrust_domain = \"shop\"\n";
    let folder = Folder::new(&Settings::default());
    let text = folder.read("cardea.toml");
    let listener = "key = \"gateway.key\"\n";
    assert!(text.contains(listener));
    folder.write("cardea.toml", &text.replace(listener, &format!("{listener}{more}")));
    folder
}

#[test]
fn one_certificate_whose_file_is_lost_keeps_nothing_else_from_being_served() {
    let folder = with_shop();
    let issued = folder.issue_for(&["shop.test"]);
    folder.write("shop.key", &issued.key_pem);
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("shop.pem"), "{ran:?}");

    let server = Server::start(&folder);
    assert_eq!(server.connect().get("/version").unwrap().status, 200);
    let shop = || crate::support::Connection::tls_for("shop.test", server.address, &server.tls);
    assert!(shop().is_err(), "no other certificate takes its place");
    assert_eq!(state(&folder, "shop.pem").0, "unusable");
    let change = |name: &str| {
        let text = folder.read("cardea.toml");
        let route =
            format!("\n[[route]]\nname = {name:?}\npath = \"/{name}\"\nauth = \"public\"\nrespond = {{}}\n");
        folder.write("cardea.toml", &format!("{text}{route}"));
        let ran = folder.run(&["reload"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(server.connect().get(&format!("/{name}")).unwrap().status, 200);
    };
    change("one");

    folder.write("shop.pem", &issued.chain_pem);
    until("the certificate", || shop().is_ok().then_some(()));
    // Lost while it is served.
    fs::remove_file(folder.file("shop.pem")).unwrap();
    until("a complaint", || (state(&folder, "shop.pem").0 == "rejected").then_some(()));
    assert!(shop().is_ok(), "what was there before is served");
    change("two");
    assert!(shop().is_ok());
    server.stop();
}

#[test]
fn one_expired_certificate_among_several_keeps_nothing_else_from_being_served() {
    let folder = with_shop();
    let put = |issued: &cardea_tls::authority::Issued| {
        folder.write("shop.key", &issued.key_pem);
        folder.write("shop.pem", &issued.chain_pem);
    };
    put(&folder.issue_expired(&["shop.test"]));

    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("shop.pem") && ran.stderr.contains("expired"), "{ran:?}");

    let server = Server::start(&folder);
    assert_eq!(server.connect().get("/version").unwrap().status, 200);
    let shop = || crate::support::Connection::tls_for("shop.test", server.address, &server.tls);
    assert!(shop().is_err(), "no other certificate takes its place");
    assert!(server.program.stderr.text().contains("a certificate can't be used"));
    let (status, text) = server.ready();
    assert!(status == 200 && text.contains("certificate_unusable:https:"), "{status} {text}");
    let state = |name: &str| state(&folder, name);
    assert_eq!(state("gateway.pem"), ("served".to_owned(), None));
    let (standing, problem) = state("shop.pem");
    assert!(standing == "unusable" && problem.unwrap().contains("expired"));

    put(&folder.issue_for(&["shop.test"]));
    until("the new certificate", || shop().is_ok().then_some(()));
    assert_eq!(state("shop.pem").0, "served");
    // A replacement that is rejected does not look healthy.
    put(&folder.issue_expired(&["shop.test"]));
    until("a complaint", || (state("shop.pem").0 == "rejected").then_some(()));
    assert!(shop().is_ok(), "what was there before is served");
    server.stop();

    // Where nothing can be served, there is nothing to start for.
    folder.write_certificate(&folder.issue_expired(&["gateway.test"]));
    let ran = folder.run(&["run"]);
    assert!(ran.code != Some(0) && ran.stderr.contains("expired"), "{ran:?}");
}

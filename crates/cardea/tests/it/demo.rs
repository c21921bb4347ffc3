//! `cardea demo`: the first thing that anybody runs.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use nix::sys::signal::Signal;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde_json::Value;

use crate::support::{Connection, Program, cardea, now, run, since};

const ANY_PORTS: [&str; 4] = ["--port", "0", "--admin-port", "0"];

#[test]
fn the_check_makes_the_whole_trip() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &[&["demo", "--check", "--json"], &ANY_PORTS[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let steps = ran.json();
    let steps = steps.as_array().unwrap();
    assert!(steps.len() >= 10, "{steps:?}");
    for step in steps {
        assert_eq!(step["held"], true, "{step}");
    }
    for needed in ["token issued", "expired token", "forged signature", "origin down"] {
        assert!(steps.iter().any(|step| step["step"] == needed), "{needed}");
    }
}

#[test]
fn the_check_of_the_demo_reports_each_step() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &[&["demo", "--check"], &ANY_PORTS[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let (last, steps) = lines.split_last().unwrap();
    assert!(steps.iter().all(|line| line.starts_with("ok ")), "{ran:?}");
    assert_eq!(*last, format!("{0} of {0} steps succeeded", steps.len()));
}

#[test]
fn the_demo_serves_its_description_until_sigterm() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let folder = tempfile::tempdir().unwrap();
        let mut program =
            Program::start(&mut cardea(folder.path(), &[&["demo", "--json"], &ANY_PORTS[..]].concat()));
        let line = program.stdout.wait_for("{", 0);
        let description: Value = serde_json::from_str(&line).unwrap();
        let member = |name: &str| description[name].as_str().unwrap_or_else(|| panic!("{name}: {line}"));
        let address: SocketAddr = member("issuer").strip_prefix("https://").unwrap().parse().unwrap();

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(member("ca_file")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(cardea_tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connection = Connection::tls_for("localhost", address, &Arc::new(config)).unwrap();
        let mut get = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
            connection.send(request.as_bytes()).unwrap();
            connection.answer().unwrap().unwrap()
        };
        let page = get("/");
        assert_eq!((page.status, page.text().contains("/echo")), (200, true), "{page:?}");
        assert_eq!(get("/echo").status, 200);
        assert_eq!(get("/api").status, 401);

        // What it proposes to try: in effect when the command returns.
        let (id, secret) = (member("client_id"), member("client_secret"));
        let token = connection.token_at(&address.to_string(), id, secret).unwrap();
        let token = token.member("access_token").unwrap();
        let lines = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n");
        let mut call = || {
            connection.send(format!("GET /api HTTP/1.1\r\n{lines}\r\n").as_bytes()).unwrap();
            connection.answer().unwrap().unwrap()
        };
        assert_eq!(call().status, 200);
        let ran = run(folder.path(), &["client", "disable", id, "--config", member("config_file")]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(call().member("code").as_deref(), Some("token_revoked"));

        let begun = now();
        program.signal(signal);
        assert_eq!(program.wait(), Some(0), "{signal}");
        assert!(since(begun) < Duration::from_secs(10), "{signal}: {:?}", since(begun));
    }
}

#[test]
fn a_taken_port_gets_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (option, other) in [("--port", "--admin-port"), ("--admin-port", "--port")] {
        let ran = run(folder.path(), &["demo", "--check", option, &port, other, "0"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(&port) && ran.stderr.contains(&format!("{option} 0")), "{ran:?}");
        assert_eq!(ran.stdout, "");
    }
}

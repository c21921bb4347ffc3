//! OpenSSL's client with a listener's configuration, over loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy sees as plain functions here")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use cardea_tls::authority::Authority;
use cardea_tls::{
    CertificateConfig, HandshakeFacts, ServerTls, ServerTlsConfig, StatelessTickets, TicketKeys,
    TicketSecretConfig,
};
use rustls::{ServerConnection, StreamOwned};

const NOW: Wall = Wall::from_unix_seconds(1_800_000_000);
const EARLIER: Wall = Wall::from_unix_seconds(1_000_000_000);
const LATER: Wall = Wall::from_unix_seconds(9_000_000_000);

fn server(dir: &Path) -> ServerTls {
    server_with(dir, None)
}

/// A server with the certificates of that folder, which are created if they are missing.
fn server_with(dir: &Path, stateless_tickets: Option<StatelessTickets>) -> ServerTls {
    let is_new = !dir.join("ca.pem").exists();
    let authority = Authority::new("test", EARLIER, LATER).unwrap();
    if is_new {
        fs::write(dir.join("ca.pem"), authority.certificate_pem()).unwrap();
    }
    let certificates = ["a.example", "b.example"].map(|name| {
        let (chain, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        if is_new {
            let issued = authority.issue(&[name], EARLIER, LATER).unwrap();
            fs::write(&chain, issued.chain_pem).unwrap();
            fs::write(&key, issued.key_pem.as_bytes()).unwrap();
        }
        CertificateConfig {
            chain,
            key,
            hosts: Vec::new(),
            managed: None,
            trust_domain: name.to_owned(),
            client_auth: None,
            ocsp: None,
        }
    });
    let config =
        ServerTlsConfig { certificates: certificates.into(), stateless_tickets, ..Default::default() };
    ServerTls::load(&config, &ManualClock::new(NOW).clock()).unwrap()
}

/// Accepts one connection, does the handshake, and sends a word.
fn serve_one(listener: &TcpListener, server: &ServerTls) -> Option<HandshakeFacts> {
    let (socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut stream = StreamOwned::new(ServerConnection::new(server.config()).unwrap(), socket);
    stream.write_all(b"hello\n").ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()?;
    server.handshake_facts(&mut stream.conn).ok()
}

#[test]
fn openssl_connects_with_each_version_and_name() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: no openssl on this machine");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Arc::new(server(dir.path()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for (flag, protocol) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        for name in ["a.example", "b.example"] {
            let client = Command::new("openssl")
                .args(["s_client", "-brief", "-verify_return_error", flag, "-alpn", "http/1.1"])
                .args(["-connect", &address, "-servername", name, "-verify_hostname", name, "-CAfile"])
                .arg(dir.path().join("ca.pem"))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let facts = thread::scope(|scope| {
                scope.spawn(|| serve_one(&listener, &server)).join().unwrap().expect("a complete handshake")
            });
            let output = client.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains("Verification: OK"), "{flag} {name}: {said}");
            assert_eq!((facts.protocol, facts.sni.as_deref()), (protocol, Some(name)));
            assert_eq!(facts.alpn, Some("http/1.1"));
        }
    }
}

/// Runs OpenSSL's client, and serves its connection.
fn connect(listener: &TcpListener, server: &ServerTls, arguments: &[&str]) -> HandshakeFacts {
    let mut client = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-servername", "a.example", "-connect"])
        .arg(listener.local_addr().unwrap().to_string())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let facts = serve_one(listener, server).unwrap();
    client.wait().unwrap();
    facts
}

#[test]
fn openssl_resumes_by_session_id_and_by_ticket() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: no openssl on this machine");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (server(dir.path()), server(dir.path()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let session = dir.path().join("session").display().to_string();
    // A TLS 1.2 session may be used repeatedly, a TLS 1.3 ticket once.
    for (flag, again) in [("-tls1_2", true), ("-tls1_3", false)] {
        assert!(!connect(&listener, &one, &[flag, "-sess_out", &session]).resumed);
        assert!(fs::metadata(&session).is_ok_and(|file| file.len() > 0), "{flag}: the client has a session");
        assert!(
            !connect(&listener, &other, &[flag, "-sess_in", &session]).resumed,
            "{flag}: another listener"
        );
        assert!(connect(&listener, &one, &[flag, "-sess_in", &session]).resumed, "{flag}");
        assert_eq!(connect(&listener, &one, &[flag, "-sess_in", &session]).resumed, again, "{flag}");
        fs::remove_file(&session).unwrap();
    }
}

#[test]
fn openssl_resumes_at_another_node_of_a_fleet() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: no openssl on this machine");
        return;
    }
    let folders = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let node = |number: usize, digits: &str, certificates: usize| {
        let file = folders[number].path().join("tickets.secret");
        fs::write(&file, format!("{} {}", NOW.unix_seconds(), digits.repeat(32))).unwrap();
        let keys = TicketKeys::Fleet(TicketSecretConfig { file, context: "public".to_owned() });
        server_with(folders[certificates].path(), Some(StatelessTickets { keys, tls12: true }))
    };
    let (one, other, stranger) = (node(0, "ab", 0), node(1, "ab", 0), node(2, "cd", 0));
    let another_key = node(3, "ab", 3);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let session = folders[0].path().join("session").display().to_string();
    for flag in ["-tls1_2", "-tls1_3"] {
        assert!(!connect(&listener, &one, &[flag, "-sess_out", &session]).resumed);
        assert!(
            !connect(&listener, &stranger, &[flag, "-sess_in", &session]).resumed,
            "{flag}: another secret"
        );
        assert!(
            !connect(&listener, &another_key, &[flag, "-sess_in", &session]).resumed,
            "{flag}: a certificate with another key"
        );
        assert!(connect(&listener, &other, &[flag, "-sess_in", &session]).resumed, "{flag}");
        fs::remove_file(&session).unwrap();
    }
}

#[test]
fn openssl_resumes_by_a_ticket_of_this_process_until_it_ends() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: no openssl on this machine");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let start = |tls12| server_with(dir.path(), Some(StatelessTickets { keys: TicketKeys::Process, tls12 }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let session = dir.path().join("session").display().to_string();
    for (flag, tls12) in [("-tls1_2", true), ("-tls1_2", false), ("-tls1_3", false)] {
        let (server, restarted) = (start(tls12), start(tls12));
        assert!(!connect(&listener, &server, &[flag, "-sess_out", &session]).resumed);
        // A stateless ticket may be used repeatedly, as a session id may.
        for _ in 0..2 {
            assert!(connect(&listener, &server, &[flag, "-sess_in", &session]).resumed, "{flag} {tls12}");
        }
        let elsewhere = ["-servername", "b.example"];
        let crossed = connect(&listener, &server, &[&[flag, "-sess_in", &session], &elsewhere[..]].concat());
        assert_eq!((crossed.resumed, crossed.sni.as_deref()), (false, Some("b.example")), "{flag} {tls12}");
        assert!(!connect(&listener, &restarted, &[flag, "-sess_in", &session]).resumed, "{flag} {tls12}");
        let is_remembered = server.session_stats().hits > 0;
        assert_eq!(is_remembered, flag == "-tls1_2" && !tls12, "{flag} {tls12}");
        fs::remove_file(&session).unwrap();
    }
}

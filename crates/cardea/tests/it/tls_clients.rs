//! TLS as strangers speak it: OpenSSL, Python and Go connect, resume, and show certificates.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use cardea_clock::Wall;
use cardea_tls::authority::Authority;

use crate::support::{Folder, Server, client::HOST, folder::Settings};

const FROM: Wall = Wall::from_unix_seconds(0);
const TO: Wall = Wall::from_unix_seconds(4_000_000_000);

/// Where the certificates of the listener begin.
const FIRST: &str = "[[listener.tls.certificate]]";

/// A gateway whose second host demands a certificate of its clients.
fn start() -> (Folder, Server) {
    start_with("")
}

/// The same with more about its TLS.
fn start_with(tls: &str) -> (Folder, Server) {
    let folder = Folder::new(&Settings::default());
    let staff = Authority::new("staff", FROM, TO).unwrap();
    folder.write("staff.pem", &staff.certificate_pem());
    let client = staff.issue_client("a", &["dns:a.test".parse().unwrap()], FROM, TO).unwrap();
    folder.write("client.pem", &client.chain_pem);
    folder.write("client.key", &client.key_pem);
    let web = Authority::new("web", FROM, TO).unwrap();
    let must = web.issue(&["must.test"], FROM, TO).unwrap();
    folder.write("must.pem", &must.chain_pem);
    folder.write("must.key", &must.key_pem);
    folder.write("roots.pem", &(folder.read("ca.pem") + &web.certificate_pem()));
    let more = r#"
[[listener.tls.certificate]]
chain = "must.pem"
key = "must.key"
hosts = ["must.test"]
client_certificate = "require"
client_authorities = ["staff"]

[[client_authority]]
name = "staff"
ca_file = "staff.pem"

[authorization_server]
"#;
    let text = folder.read("cardea.toml").replace("\n[authorization_server]\n", more);
    folder.write("cardea.toml", &text.replacen(FIRST, &format!("[listener.tls]\n{tls}\n\n{FIRST}"), 1));
    let server = Server::start(&folder);
    (folder, server)
}

/// Runs a client, and shows what it said.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    // What it compiles is kept where it always is.
    let Ok(ran) = command.output() else {
        eprintln!("SKIPPED: no {program} on this machine");
        return None;
    };
    Some(String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr))
}

#[test]
fn openssl_reconnects_by_session_id_and_by_ticket() {
    let (folder, server) = start();
    let to = server.address.to_string();
    let connect = |arguments: &[&str]| {
        let common = ["s_client", "-connect", &to, "-CAfile", "roots.pem", "-verify_return_error"];
        run(folder.path(), "openssl", &[&common[..], arguments].concat())
    };
    // Five more connections, each with what the first one got.
    let Some(said) = connect(&["-servername", HOST, "-tls1_2", "-reconnect"]) else { return };
    assert_eq!(said.matches("Reused, TLSv1.2").count(), 5, "{said}");
    let said = connect(&["-servername", HOST, "-tls1_2", "-reconnect", "-no_ticket"]).unwrap();
    assert_eq!(said.matches("Reused, TLSv1.2").count(), 5, "{said}");
    // Where a certificate is demanded, a session is good for one use.
    let shown = ["-cert", "client.pem", "-key", "client.key"];
    let said =
        connect(&[&["-servername", "must.test", "-tls1_2", "-reconnect"], &shown[..]].concat()).unwrap();
    assert!(
        said.contains("Reused, TLSv1.2") && said.contains("Acceptable client certificate CA names"),
        "{said}"
    );
    let said = connect(&["-servername", "must.test", "-tls1_2"]).unwrap();
    assert!(said.contains("alert"), "{said}");
    server.stop();
}

#[test]
fn openssl_resumes_by_stateless_tickets_until_the_process_ends() {
    let (folder, first) = start_with("tickets = \"stateless\"\ntls12_tickets = true");
    let connect = |server: &Server, name: &str, arguments: &[&str]| {
        let to = server.address.to_string();
        let common = ["s_client", "-connect", &to, "-CAfile", "roots.pem", "-verify_return_error"];
        run(folder.path(), "openssl", &[&common[..], &["-servername", name], arguments].concat())
    };
    // The answer comes after the ticket, so that one is waited for with the other.
    folder.write("request", &format!("GET /version HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"));
    let ask = |server: &Server, arguments: &str| {
        let to = server.address;
        let line = format!(
            "openssl s_client -connect {to} -CAfile roots.pem -servername {HOST} -ign_eof {arguments} < request"
        );
        run(folder.path(), "sh", &["-c", &line]).unwrap()
    };
    for (flag, protocol) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said = ask(&first, &format!("{flag} -sess_out {protocol}"));
        if said.contains("not found") {
            return;
        }
        assert!(said.contains("New, ") && said.contains("HTTP/1.1 200"), "{said}");
        for _ in 0..2 {
            let said = ask(&first, &format!("{flag} -sess_in {protocol}"));
            assert!(said.contains(&format!("Reused, {protocol}")) && said.contains("HTTP/1.1 200"), "{said}");
        }
        // The host that demands a certificate resumes nothing of the other one's.
        let said = connect(&first, "must.test", &[flag, "-sess_in", protocol]).unwrap();
        assert!(!said.contains("Reused, "), "{said}");
    }
    first.stop();
    let again = Server::start(&folder);
    for (flag, protocol) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said = ask(&again, &format!("{flag} -sess_in {protocol}"));
        assert!(said.contains("New, ") && said.contains("HTTP/1.1 200"), "{said}");
    }
    again.stop();
}

#[test]
fn openssl_sends_a_request_before_the_handshake_is_done() {
    let (folder, server) = start_with("early_data = true");
    let route = "path = \"/version\"\n";
    folder.write(
        "cardea.toml",
        &folder.read("cardea.toml").replace(route, &format!("{route}early_data = true\n")),
    );
    let (is_good, said) = server.reload();
    assert!(is_good, "{said}");
    folder.write("request", &format!("GET /version HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"));
    let ask = |arguments: &str| {
        let to = server.address;
        let line = format!(
            "openssl s_client -connect {to} -CAfile roots.pem -servername {HOST} -tls1_3 -ign_eof {arguments} < request"
        );
        run(folder.path(), "sh", &["-c", &line]).unwrap()
    };
    let said = ask("-sess_out session");
    if said.contains("not found") {
        return;
    }
    assert!(said.contains("HTTP/1.1 200"), "{said}");
    let early = "-sess_in session -early_data request";
    let said = ask(early);
    assert!(said.contains("Early data was accepted") && said.contains("HTTP/1.1 200"), "{said}");
    // The ticket was used: what comes with it again is dropped, and what follows the handshake is answered.
    let said = ask(early);
    assert!(said.contains("Early data was rejected") && said.contains("HTTP/1.1 200"), "{said}");
    server.stop();
    let log = folder.read("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("/version")).count(), 3, "{log}");
}

#[test]
fn openssl_measures_full_handshakes_and_resumed_ones() {
    let (folder, server) = start();
    let to = server.address.to_string();
    for (kind, version) in [("-new", "-tls1_3"), ("-reuse", "-tls1_2")] {
        let arguments = ["s_time", "-connect", &to, "-CAfile", "roots.pem", kind, version, "-time", "1"];
        let Some(said) = run(folder.path(), "openssl", &arguments) else { return };
        assert!(said.contains("connections in"), "{said}");
    }
    server.stop();
}

const PYTHON: &str = r#"
import socket, ssl, sys
port, host = int(sys.argv[1]), sys.argv[2]
def talk(context, name, session=None):
    with socket.create_connection(("127.0.0.1", port)) as plain:
        with context.wrap_socket(plain, server_hostname=name, session=session) as tls:
            tls.sendall(f"GET /version HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while chunk := tls.recv(65536):
                answer += chunk
            return tls.version(), tls.session_reused, answer.split()[1].decode(), tls.selected_alpn_protocol(), tls.session
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    context = ssl.create_default_context(cafile="roots.pem")
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["http/1.1"])
    first = talk(context, host)
    print("first", *first[:4])
    print("second", *talk(context, host, first[4])[:4])
    try:
        print("must without", *talk(context, "must.test")[:4])
    except OSError as error:
        print("must without refused")
    context.load_cert_chain("client.pem", "client.key")
    first = talk(context, "must.test")
    print("must", *first[:4])
    print("must again", *talk(context, "must.test", first[4])[:4])
"#;

#[test]
fn python_resumes_and_shows_its_certificate() {
    let (folder, server) = start();
    folder.write("client.py", PYTHON);
    let port = server.address.port().to_string();
    let Some(said) = run(folder.path(), "python3", &["client.py", &port, HOST]) else { return };
    for version in ["TLSv1.2", "TLSv1.3"] {
        for line in [
            format!("first {version} False 200 http/1.1"),
            format!("second {version} True 200 http/1.1"),
            format!("must {version} False 200 http/1.1"),
            format!("must again {version} True 200 http/1.1"),
        ] {
            assert!(said.contains(&line), "{line}\n{said}");
        }
    }
    assert_eq!(said.matches("must without refused").count(), 2, "{said}");
    server.stop();
}

const GO: &str = r#"package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	pem, _ := os.ReadFile("roots.pem")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	shown, err := tls.LoadX509KeyPair("client.pem", "client.key")
	if err != nil {
		panic(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, name := range []string{os.Args[2], "must.test"} {
			config := &tls.Config{RootCAs: roots, MinVersion: version, MaxVersion: version,
				ClientSessionCache: tls.NewLRUClientSessionCache(8), Certificates: []tls.Certificate{shown}}
			for range 2 {
				transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true,
					DialTLS: nil, DisableKeepAlives: false}
				transport.Dial = func(network, _ string) (net.Conn, error) {
					return net.Dial(network, "127.0.0.1:"+os.Args[1])
				}
				response, err := (&http.Client{Transport: transport}).Get("https://" + name + "/version")
				if err != nil {
					fmt.Println(name, err)
					continue
				}
				fmt.Println(name, tls.VersionName(version), response.Proto, response.StatusCode, response.TLS.DidResume)
				transport.CloseIdleConnections()
			}
		}
	}
}
"#;

#[test]
fn go_resumes_and_shows_its_certificate() {
    // In TLS 1.2 it knows no session ids, only tickets, and these are stateless.
    for (tls, has_tickets) in [
        ("", false),
        ("tickets = \"stateless\"", false),
        ("tickets = \"stateless\"\ntls12_tickets = true", true),
    ] {
        resume_with_go(tls, has_tickets);
    }
}

/// `has_tickets`: in TLS 1.2.
fn resume_with_go(tls: &str, has_tickets: bool) {
    let (folder, server) = start_with(tls);
    folder.write("main.go", GO);
    let port = server.address.port().to_string();
    let Some(said) = run(folder.path(), "go", &["run", "main.go", &port, HOST]) else { return };
    for name in [HOST, "must.test"] {
        for version in ["TLS 1.2", "TLS 1.3"] {
            let resumes = version == "TLS 1.3" || (has_tickets && name == HOST);
            for resumed in ["false", if resumes { "true" } else { "false" }] {
                let line = format!("{name} {version} HTTP/2.0 200 {resumed}");
                assert!(said.contains(&line), "{tls}: {line}\n{said}");
            }
        }
    }
    server.stop();
}

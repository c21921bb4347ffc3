//! Answers to challenges are given to who asks for exactly one that there is, and look like nothing to anybody else.

use std::{collections::HashMap, sync::Arc};

use cardea_gateway::challenge::ChallengeAnswers;
use cardea_tls::acme::challenge_config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::support::{Client, Harness, Origin, Spec, certificates::Certificates, run};

const PATH: &str = "/.well-known/acme-challenge/";

fn http(token: &str, host: &str) -> ChallengeAnswers {
    let answer = (host.to_owned(), format!("{token}.thumb"));
    ChallengeAnswers { http: HashMap::from([(token.to_owned(), answer)]), tls: HashMap::new() }
}

fn tls(host: &str) -> ChallengeAnswers {
    let config = challenge_config(host, "token.thumb").unwrap();
    ChallengeAnswers { http: HashMap::new(), tls: HashMap::from([(host.to_owned(), config)]) }
}

fn request(method: &str, path: &str, host: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn a_known_token_is_answered_on_its_host_and_nothing_else_is() {
    run(async {
        let origin = Origin::ok().await;
        for redirect in [false, true] {
            let listener = format!("[[listener]]\nname = 'test'\nredirect_to_https = {redirect}");
            let gateway = Spec::to(&origin).with(listener).start().await;
            let ordinary = if redirect { 308 } else { 200 };
            let known = format!("{PATH}known-token");
            let mut client = gateway.client().await;
            assert_eq!(
                client.exchange(request("GET", &known, "a.example")).await.status,
                ordinary,
                "none yet"
            );

            gateway.gateway.challenges.set(http("known-token", "a.example"));
            for host in ["a.example", "A.Example:80"] {
                let answer = client.exchange(request("GET", &known, host)).await;
                assert_eq!((answer.status, answer.text().as_str()), (200, "known-token.thumb"));
                assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
                assert_eq!(answer.header("cache-control"), Some("no-store"));
            }
            for (method, path, host) in [
                ("GET", known.as_str(), "b.example"),
                ("GET", &format!("{known}?x"), "a.example"),
                ("GET", &format!("{known}/"), "a.example"),
                ("GET", &format!("{PATH}known-toke"), "a.example"),
                ("GET", &format!("{PATH}KNOWN-TOKEN"), "a.example"),
                ("GET", PATH, "a.example"),
                ("GET", &format!("{PATH}../acme-challenge"), "a.example"),
                ("GET", &format!("/x{known}"), "a.example"),
                ("DELETE", &known, "a.example"),
            ] {
                let answer = client.exchange(request(method, path, host)).await;
                assert_eq!(answer.status, ordinary, "{method} {path} {host}");
                assert!(!answer.text().contains("thumb"));
            }
            for path in
                ["..%2F..%2Fetc%2Fpasswd", "known-token%00", "%2E%2E%2fknown-token", "..\\known-token"]
            {
                let mut client = gateway.client().await;
                let answer = client.exchange(request("GET", &format!("{PATH}{path}"), "a.example")).await;
                assert!(!answer.text().contains("thumb"), "{path}");
            }
            let head = client.exchange(request("GET", &known, "a.example")).await;
            assert_eq!(head.status, 200, "and still");

            gateway.gateway.challenges.set(ChallengeAnswers::default());
            assert_eq!(
                client.exchange(request("GET", &known, "a.example")).await.status,
                ordinary,
                "no more"
            );
        }
    });
}

#[test]
fn over_tls_there_is_no_answer_to_http_01() {
    run(async {
        let (origin, certificates) = (Origin::ok().await, Certificates::new());
        let gateway = Spec::to(&origin).with(certificates.listener()).start().await;
        gateway.gateway.challenges.set(http("known-token", "a.example"));
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let mut client = Client::over(certificates.connect(tcp, "a.example", &["http/1.1"]).await);
        let answer = client.exchange(request("GET", &format!("{PATH}known-token"), "a.example")).await;
        assert_eq!(answer.text(), "ok");
    });
}

/// Connects with these protocols, believing nobody's certificate but the ordinary ones: why it failed.
async fn refused(gateway: &Harness, certificates: &Certificates, sni: &str, alpn: &[&str]) -> String {
    let connector = TlsConnector::from(certificates.client(alpn));
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let connected = connector.connect(cardea_tls::server_name(sni).unwrap(), tcp).await;
    connected.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn over_tls_the_answer_is_given_to_who_asks_for_it_alone_and_the_connection_ends() {
    run(async {
        let (origin, certificates) = (Origin::ok().await, Certificates::new());
        let gateway = Spec::to(&origin).with(certificates.listener()).start().await;
        // With none and with one of another host: no protocol in common.
        for pending in [false, true] {
            if pending {
                gateway.gateway.challenges.set(tls("b.example"));
            }
            for sni in ["a.example", "c.example", "unknown.example"] {
                let why = refused(&gateway, &certificates, sni, &["acme-tls/1"]).await;
                assert!(why.contains("NoApplicationProtocol"), "{pending} {sni}: {why}");
            }
        }
        // The one there is comes with a certificate that an ordinary client does not believe.
        let why = refused(&gateway, &certificates, "b.example", &["acme-tls/1"]).await;
        assert!(why.contains("invalid peer certificate"), "{why}");

        // Who offers more than that speaks HTTP, with the ordinary certificate.
        for alpn in [&["acme-tls/1", "http/1.1"][..], &["http/1.1", "acme-tls/1"], &["http/1.1"], &[]] {
            let tcp = TcpStream::connect(gateway.address).await.unwrap();
            let mut client = Client::over(certificates.connect(tcp, "b.example", alpn).await);
            assert_eq!(client.exchange(request("GET", "/", "b.example")).await.text(), "ok", "{alpn:?}");
        }

        // An authority looks at the certificate and at nothing else; then there is nothing more.
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(credulous()));
        let name = cardea_tls::server_name("b.example").unwrap();
        let mut stream = connector.connect(name, tcp).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"acme-tls/1"[..]));
        let _ = stream.write_all(request("GET", "/", "b.example").as_bytes()).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    });
}

#[test]
fn a_malformed_client_hello_is_refused_while_a_challenge_is_pending() {
    run(async {
        let (origin, certificates) = (Origin::ok().await, Certificates::new());
        let gateway = Spec::to(&origin).with(certificates.listener()).start().await;
        gateway.gateway.challenges.set(tls("b.example"));
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n"[..],
            b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
            b"\x80",
        ] {
            let mut tcp = TcpStream::connect(gateway.address).await.unwrap();
            tcp.write_all(bytes).await.unwrap();
            tcp.shutdown().await.unwrap();
            let mut answer = Vec::new();
            let _ = tcp.read_to_end(&mut answer).await;
            assert!(answer.is_empty() || answer[0] == 0x15, "an alert or nothing: {answer:?}");
        }
        let mut client = {
            let tcp = TcpStream::connect(gateway.address).await.unwrap();
            Client::over(certificates.connect(tcp, "a.example", &["http/1.1"]).await)
        };
        assert_eq!(client.exchange(request("GET", "/", "a.example")).await.text(), "ok");
    });
}

/// A client that believes any certificate, as authorities do that look for an answer.
fn credulous() -> rustls::ClientConfig {
    let mut config = rustls::ClientConfig::builder_with_provider(cardea_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    config
}

#[derive(Debug)]
struct Anybody;

impl rustls::client::danger::ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        cardea_tls::provider().signature_verification_algorithms.supported_schemes()
    }
}

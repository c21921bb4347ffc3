//! What the table of a certificate requires binds the authority of a request: by whatever listener, protocol, server name
//! or spelling it comes.

use std::{net::SocketAddr, sync::Arc};

use cardea_tls::{authority::Issued, server_name};
use http::Request;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    client_certificates::Bench,
    support::{Client, Harness, Origin, Spec, run},
};

/// Who attacks doesn't mind whose certificate is shown.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        cardea_tls::provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A connection with this server name, or with none.
async fn tls(
    bench: &Bench,
    address: SocketAddr,
    sni: Option<&str>,
    issued: Option<&Issued>,
    alpn: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config: ClientConfig = ClientConfig::clone(&bench.config(issued, alpn));
    config.enable_sni = sni.is_some();
    config.dangerous().set_certificate_verifier(Arc::new(Anybody));
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = server_name(sni.unwrap_or("a.example")).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// A listener beside the first one, without TLS.
fn plain(name: &str) -> String {
    format!("[[listener]]\nname = '{name}'\naddress = '127.0.0.1:0'\n")
}

/// `test` serves `a.example`, `must.example` and `*.partners.example`, which both require certificates; `other` serves
/// `b.example`; `plain` and `unix` have no TLS.
async fn start(bench: &Bench, origin: &Origin) -> Harness {
    let partners = bench.certificate("*.partners.example", "require") + "trust_domain = 'partners'\n";
    let certificates =
        [bench.certificate("a.example", "off"), bench.certificate("must.example", "require"), partners];
    let spec = Spec::to(origin)
        .with(bench.listener_of("test", &certificates))
        .with(bench.listener_of("other", &[bench.certificate("b.example", "off")]))
        .with(plain("plain"))
        .with(plain("unix"))
        .route("partners", "path_prefix = '/'\nhosts = ['*.partners.example', 'must.example']");
    spec.start().await
}

const REQUIRING: [&str; 5] =
    ["must.example", "MUST.Example.", "must.example:8443", "x.partners.example", "X.PARTNERS.example.:81"];

#[test]
fn a_hosts_certificate_requirement_applies_to_every_path_to_it() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let mut gateway = start(&bench, &origin).await;
        let (other, plain) = (gateway.listen("other"), gateway.listen("plain"));
        let unix = gateway.listen_unix("unix");
        let test = gateway.address;
        for host in REQUIRING {
            let bare = host.split(':').next().unwrap().trim_end_matches('.').to_ascii_lowercase();
            let absolute = |scheme: &str| format!("{scheme}://{host}/");
            // No TLS.
            for target in ["/".to_owned(), absolute("http")] {
                let mut client = Client::connect(plain).await;
                let response = client.exchange(get(host, &target)).await;
                assert_eq!((response.status, response.code().as_str()), (421, "client_certificate_unasked"));
                let mut client = Client::over(UnixStream::connect(&unix).await.unwrap());
                assert_eq!(client.exchange(get(host, &target)).await.status, 421, "unix {host} {target}");
            }
            // Listeners of TLS that don't ask, or don't for this name; over both protocols.
            for (address, sni) in [
                (test, Some("a.example")),
                (test, Some("unknown.example")),
                (test, None),
                (other, Some("b.example")),
                (other, Some(bare.as_str())),
                (other, None),
            ] {
                for target in ["/".to_owned(), absolute("https")] {
                    let stream = tls(&bench, address, sni, None, "http/1.1").await.unwrap();
                    let response = Client::over(stream).exchange(get(host, &target)).await;
                    assert_eq!(response.status, 421, "{sni:?} {host} {target}");
                }
                let stream = tls(&bench, address, sni, None, "h2").await.unwrap();
                let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                let request = Request::get(format!("https://{host}/")).body(()).unwrap();
                let response = send.send_request(request, true).unwrap().0.await.unwrap();
                assert_eq!(response.status(), 421, "{sni:?} {host}");
            }
        }
        assert_eq!(origin.connections(), 0);

        // Controls: hosts that require nothing, everywhere; the others with a certificate.
        let issued = bench.issue();
        for (host, address, sni, issued) in [
            ("a.example", test, "a.example", None),
            ("b.example", other, "b.example", None),
            ("unknown.example", test, "unknown.example", None),
            ("must.example:443", test, "must.example", Some(&issued)),
            ("x.partners.example", test, "x.partners.example", Some(&issued)),
        ] {
            let stream = tls(&bench, address, Some(sni), issued, "http/1.1").await.unwrap();
            assert_eq!(Client::over(stream).exchange(get(host, "/")).await.status, 200, "{host}");
        }
        for host in ["a.example", "b.example", "unknown.example", "127.0.0.1"] {
            assert_eq!(Client::connect(plain).await.exchange(get(host, "/")).await.status, 200, "{host}");
        }
    });
}

/// A wildcard of a certificate is one label; a route's is no more, so that nothing is served under a name that falls back to
/// the default certificate.
#[test]
fn a_wildcard_matches_exactly_one_label() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let mut gateway = start(&bench, &origin).await;
        let plain = gateway.listen("plain");
        for sni in [Some("x.y.partners.example"), Some("a.example"), None] {
            let stream = tls(&bench, gateway.address, sni, None, "http/1.1").await.unwrap();
            Client::over(stream).exchange(get("x.y.partners.example", "/")).await;
        }
        Client::connect(plain).await.exchange(get("x.y.partners.example", "/")).await;
        let log = gateway.log(4).await;
        assert!(log.iter().all(|line| line["http.route"] == "public"), "{log:#?}");
    });
}

/// Which certificate is shown is for the host to say: one of another host's authorities is none.
#[test]
fn a_certificate_is_only_for_its_own_hosts() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let (partners, authority) = bench.authority("partners");
        let asks = |host: &str, mode: &str| bench.certificate_of(host, mode, "partners");
        let other = [asks("must.example", "require"), asks("may.example", "request")];
        let spec = Spec::to(&origin)
            .with(authority)
            .with(bench.listener_of("test", &[bench.certificate("a.example", "request")]))
            .with(bench.listener_of("other", &other));
        let mut gateway = spec.start().await;
        let address = gateway.listen("other");
        let staff = bench.issue();
        let names = ["dns:build.example".parse().unwrap()];
        let (from, to) =
            (cardea_clock::Wall::from_unix_seconds(0), cardea_clock::Wall::from_unix_seconds(4_000_000_000));
        let partner = partners.issue_client("build", &names, from, to).unwrap();
        for (listener, host, shown, status) in [
            (gateway.address, "a.example", Some(&staff), 200),
            (gateway.address, "must.example", Some(&staff), 421),
            (gateway.address, "may.example", Some(&staff), 421),
            (gateway.address, "may.example", None, 200),
            (address, "must.example", Some(&partner), 200),
            (address, "may.example", Some(&partner), 200),
            (address, "a.example", Some(&partner), 421),
        ] {
            let stream = tls(&bench, listener, Some(host), shown, "http/1.1").await.unwrap();
            let response = Client::over(stream).exchange(get(host, "/")).await;
            assert_eq!(response.status, status, "{host}");
        }
    });
}

#[test]
fn a_certificate_that_has_ceased_to_hold_ends_what_its_host_requires() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let (partners, authority) = bench.authority("partners");
        let certificate = bench.certificate_of("must.example", "require", "partners");
        let spec = Spec::to(&origin).with(authority).with(bench.listener_of("test", &[certificate]));
        let gateway = spec.start().await;
        let names = ["dns:build.example".parse().unwrap()];
        let (from, to) =
            (cardea_clock::Wall::from_unix_seconds(0), cardea_clock::Wall::from_unix_seconds(4_000_000_000));
        let issued = partners.issue_client("build", &names, from, to).unwrap();
        let stream =
            tls(&bench, gateway.address, Some("must.example"), Some(&issued), "http/1.1").await.unwrap();
        let mut client = Client::over(stream);
        assert_eq!(client.exchange(get("must.example", "/")).await.status, 200);
        std::fs::copy(bench.path("staff.pem"), bench.path("partners.pem")).unwrap();
        assert!(gateway.client_authority("partners").reload_if_changed().unwrap());
        let response = client.exchange(get("must.example", "/")).await;
        assert_eq!((response.status, response.code().as_str()), (403, "client_certificate_invalid"));
    });
}

#[test]
fn connections_from_before_a_reload_are_held_to_what_is_required_since() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let asking = |mode: &str| {
            Spec::to(&origin).with(bench.listener_of("test", &[bench.certificate("a.example", mode)]))
        };
        let gateway = asking("off").start().await;
        let stream = tls(&bench, gateway.address, Some("a.example"), None, "http/1.1").await.unwrap();
        let mut client = Client::over(stream);
        for (mode, status) in [("off", 200), ("request", 200), ("require", 421)] {
            gateway.reload(asking(mode));
            for host in ["a.example", "unknown.example"] {
                let response = client.exchange(get(host, "/")).await;
                assert_eq!(response.status, status, "{host} {mode}");
            }
        }
    });
}

/// Certificates that are replaced while the gateway runs name other hosts.
#[test]
fn new_certificate_files_change_no_requirement() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let certificates =
            [bench.certificate("a.example", "off"), bench.certificate("must.example", "require")];
        let spec = Spec::to(&origin).with(bench.listener_of("test", &certificates)).with(plain("plain"));
        let mut gateway = spec.start().await;
        let mut client = Client::connect(gateway.listen("plain")).await;
        assert_eq!(client.exchange(get("must.example", "/")).await.status, 421);
        bench.certificate("new.example", "require");
        for kind in ["pem", "key"] {
            let files = ["new.example", "must.example"].map(|host| bench.path(&format!("{host}.{kind}")));
            std::fs::copy(&files[0], &files[1]).unwrap();
        }
        let now = cardea_clock::Wall::from_unix_seconds(2_000_000_000);
        let refused = gateway.tls().reload_if_changed(now).unwrap_err().to_string();
        assert!(refused.contains("must.example"), "{refused}");
        assert_eq!(client.exchange(get("must.example", "/")).await.status, 421);
        assert_eq!(client.exchange(get("new.example", "/")).await.status, 200);
    });
}

/// Where every handshake would require a certificate, a name that no certificate has is no way around it.
#[test]
fn unnamed_hosts_belong_to_the_default_certificates() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let requiring = bench.listener_of("test", &[bench.certificate("must.example", "require")]);
        let spec = Spec::to(&origin)
            .with(&requiring)
            .with(plain("plain"))
            .route("probe", "path_prefix = '/probe'\nlisteners = ['plain']");
        let mut gateway = spec.start().await;
        let mut client = Client::connect(gateway.listen("plain")).await;
        for (host, path, status) in [
            ("unknown.example", "/", 421),
            ("127.0.0.1", "/", 421),
            ("[::1]:8080", "/", 421),
            // Bound to the listener, so the configuration says that it is served there.
            ("127.0.0.1", "/probe", 200),
            ("must.example", "/probe", 421),
        ] {
            assert_eq!(client.exchange(get(host, path)).await.status, status, "{host} {path}");
        }
        drop(gateway);

        // One listener that doesn't require any serves such hosts anyhow.
        let spec = Spec::to(&origin)
            .with(&requiring)
            .with(plain("plain"))
            .with(bench.listener_of("other", &[bench.certificate("b.example", "off")]));
        let mut gateway = spec.start().await;
        let mut client = Client::connect(gateway.listen("plain")).await;
        assert_eq!(client.exchange(get("127.0.0.1", "/")).await.status, 200);
        assert_eq!(client.exchange(get("must.example", "/")).await.status, 421);
    });
}

#[test]
fn redirects_and_challenges_need_no_certificate() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin)
            .with(bench.listener_of("test", &[bench.certificate("must.example", "require")]))
            .with(plain("plain") + "redirect_to_https = true");
        let mut gateway = spec.start().await;
        let mut client = Client::connect(gateway.listen("plain")).await;
        let response = client.exchange(get("must.example", "/x?y")).await;
        assert_eq!((response.status, response.header("location")), (308, Some("https://must.example/x?y")));
        let answer = ("must.example".to_owned(), "token.thumb".to_owned());
        gateway.gateway.challenges.set(cardea_gateway::challenge::ChallengeAnswers {
            http: std::collections::HashMap::from([("token".to_owned(), answer)]),
            tls: std::collections::HashMap::new(),
        });
        let response = client.exchange(get("must.example", "/.well-known/acme-challenge/token")).await;
        assert_eq!((response.status, response.text().as_str()), (200, "token.thumb"));
    });
}

#[test]
fn a_route_is_served_on_its_listeners_alone() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin)
            .with(bench.listener_of("test", &[bench.certificate("a.example", "off")]))
            .with(plain("plain"))
            .with(plain("unix"))
            .route("inside", "path_prefix = '/inside'\nlisteners = ['unix', 'plain']")
            .route("outside", "path_prefix = '/outside'\nlisteners = ['test']");
        let mut gateway = spec.start().await;
        let unix = gateway.listen_unix("unix");
        let mut plain = Client::connect(gateway.listen("plain")).await;
        let mut unix = Client::over(UnixStream::connect(unix).await.unwrap());
        let mut secure =
            Client::over(tls(&bench, gateway.address, Some("a.example"), None, "http/1.1").await.unwrap());
        for path in ["/inside", "/outside"] {
            for client in [&mut plain, &mut unix, &mut secure] {
                client.exchange(get("a.example", path)).await;
            }
        }
        let log = gateway.log(6).await;
        let routes: Vec<_> = log.iter().map(|line| line["http.route"].as_str().unwrap()).collect();
        assert_eq!(routes, ["inside", "inside", "public", "public", "public", "outside"]);
    });
}

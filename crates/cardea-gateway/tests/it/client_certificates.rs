//! Clients that show certificates, clients that are sent to where they are asked, and clients that pretend.

use std::{fs, path::PathBuf, sync::Arc};

use cardea_clock::Wall;
use cardea_tls::{
    ClientName,
    authority::{Authority, Issued},
    provider, server_name,
};
use http::Request;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{Client, Harness, Origin, Spec, run};

const FROM: Wall = Wall::from_unix_seconds(0);
const TO: Wall = Wall::from_unix_seconds(4_000_000_000);

/// `a.example` asks nobody, `step.example` asks, `must.example` insists.
pub(crate) struct Bench {
    folder: TempDir,
    web: Authority,
    staff: Authority,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (web, staff) =
            (Authority::new("web", FROM, TO).unwrap(), Authority::new("staff", FROM, TO).unwrap());
        fs::write(folder.path().join("staff.pem"), staff.certificate_pem()).unwrap();
        Self { folder, web, staff }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The table of a certificate for `host`, whose clients are asked for theirs in this mode.
    pub(crate) fn certificate(&self, host: &str, mode: &str) -> String {
        self.certificate_of(host, mode, "staff")
    }

    /// The same for clients of another authority.
    pub(crate) fn certificate_of(&self, host: &str, mode: &str, authority: &str) -> String {
        let Issued { chain_pem, key_pem, .. } = self.web.issue(&[host], FROM, TO).unwrap();
        let (chain, key) = (self.path(&format!("{host}.pem")), self.path(&format!("{host}.key")));
        fs::write(&chain, chain_pem).unwrap();
        fs::write(&key, key_pem.as_bytes()).unwrap();
        let authorities = if mode == "off" { String::new() } else { format!("\"{authority}\"") };
        format!(
            "[[listener.tls.certificate]]\nchain = {chain:?}\nkey = {key:?}\nclient_certificate = \"{mode}\"\n\
             client_authorities = [{authorities}]\nhosts = [{host:?}]\n"
        )
    }

    /// A listener with these certificates.
    pub(crate) fn listener_of(&self, name: &str, certificates: &[String]) -> String {
        let roots = self.path("staff.pem");
        let header = format!(
            "[[client_authority]]\nname = \"staff\"\nca_file = {roots:?}\n\
             [[listener]]\nname = \"{name}\"\naddress = \"127.0.0.1:0\"\n"
        );
        [header, certificates.concat()].concat()
    }

    /// The first listener with all three hosts.
    pub(crate) fn listener(&self) -> String {
        self.with_all("test")
    }

    fn with_all(&self, name: &str) -> String {
        let certificates = [("a.example", "off"), ("step.example", "request"), ("must.example", "require")];
        self.listener_of(name, &certificates.map(|(host, mode)| self.certificate(host, mode)))
    }

    fn spec(&self, origin: &Origin) -> Spec {
        self.spec_on("test", origin)
    }

    /// Clients are asked on this listener.
    fn spec_on(&self, listener: &str, origin: &Origin) -> Spec {
        let step_up = "step_up = 'step.example', forward = 'leaf'";
        let staff = "authorities = ['staff']";
        let mut spec = Spec::to(origin).with(self.with_all(listener));
        for (name, path, rule) in [
            ("secure", "/secure", format!("mode = 'required', {staff}, {step_up}")),
            ("bare", "/bare", format!("mode = 'required', {staff}, forward = 'leaf'")),
            ("optional", "/optional", format!("mode = 'optional', {staff}, forward = 'leaf'")),
            ("build", "/build", format!("mode = 'required', names = ['dns:build.example'], {step_up}")),
            ("else", "/else", format!("mode = 'required', names = ['dns:else.example'], {step_up}")),
            (
                "chain",
                "/chain",
                format!("mode = 'required', {staff}, step_up = 'step.example', forward = 'chain'"),
            ),
            (
                "silent",
                "/silent",
                format!("mode = 'required', {staff}, step_up = 'step.example', forward = 'none'"),
            ),
        ] {
            spec = spec.route(name, format!("path_prefix = '{path}'\nclient_certificate = {{ {rule} }}"));
        }
        spec.route("forged", "path_prefix = '/forged'\nheaders = { client-cert = true }")
    }

    pub(crate) fn issue(&self) -> Issued {
        self.issue_named(&["dns:build.example"])
    }

    pub(crate) fn issue_named(&self, names: &[&str]) -> Issued {
        let names: Vec<ClientName> = names.iter().map(|name| name.parse().unwrap()).collect();
        self.staff.issue_client("build", &names, FROM, TO).unwrap()
    }

    /// Another authority that vouches for clients, and its table.
    pub(crate) fn authority(&self, name: &str) -> (Authority, String) {
        let authority = Authority::new(name, FROM, TO).unwrap();
        let roots = self.path(&format!("{name}.pem"));
        fs::write(&roots, authority.certificate_pem()).unwrap();
        (authority, format!("[[client_authority]]\nname = \"{name}\"\nca_file = {roots:?}\n"))
    }

    pub(crate) fn config(&self, issued: Option<&Issued>, alpn: &str) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.web.certificate_pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match issued {
            Some(issued) => builder
                .with_client_auth_cert(
                    CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes()).map(Result::unwrap).collect(),
                    PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap(),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        Arc::new(config)
    }

    pub(crate) async fn tls(
        &self,
        gateway: &Harness,
        sni: &str,
        issued: Option<&Issued>,
        alpn: &str,
    ) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        TlsConnector::from(self.config(issued, alpn)).connect(server_name(sni).unwrap(), tcp).await.unwrap()
    }

    pub(crate) async fn client(&self, gateway: &Harness, sni: &str, issued: Option<&Issued>) -> Client {
        Client::over(self.tls(gateway, sni, issued, "http/1.1").await)
    }
}

fn ask(method: &str, host: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n")
}

/// What `Client-Cert` must say, made without our own code.
fn expected(issued: &Issued) -> String {
    let text: String = issued.chain_pem.lines().filter(|line| !line.starts_with("-----")).collect();
    format!("Client-Cert: :{text}:\r\n")
}

#[test]
fn clients_without_a_certificate_are_redirected_to_the_step_up_host() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let mut client = bench.client(&gateway, "a.example", None).await;
        for (method, path, location) in [
            ("GET", "/secure/x?a=b&c=//d", "https://step.example/secure/x?a=b&c=//d"),
            ("GET", "/secure", "https://step.example/secure"),
            ("GET", "/x/../secure//%41?", "https://step.example/secure/A"),
            ("GET", "//evil.example/../secure/@evil.example", "https://step.example/secure/@evil.example"),
            (
                "GET",
                "https://a.example/secure?u=https://evil.example",
                "https://step.example/secure?u=https://evil.example",
            ),
        ] {
            let response = client.exchange(ask(method, "a.example", path, "")).await;
            assert_eq!((response.status, response.header("location")), (307, Some(location)), "{path}");
            assert_eq!(response.header("cache-control"), Some("no-store"));
        }
        client.send(ask("HEAD", "a.example", "/secure", "")).await;
        let response = client.try_response(true).await.unwrap();
        assert_eq!(
            (response.status, response.header("location")),
            (307, Some("https://step.example/secure"))
        );
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let response =
                client.exchange(ask(method, "a.example", "/secure", "Content-Length: 0\r\n")).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (403, "client_certificate_required"),
                "{method}"
            );
            let document: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            assert_eq!(document["step_up_host"], "step.example");
        }
        let response = client.exchange(ask("GET", "a.example", "/bare", "")).await;
        assert_eq!((response.status, response.header("location")), (403, None));
        assert_eq!(origin.connections(), 0);
    });
}

#[test]
fn without_tls_the_way_is_the_same() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec_on("asking", &origin).start().await;
        let mut client = gateway.client().await;
        for host in ["a.example", "step.example"] {
            let response = client.exchange(ask("GET", host, "/secure", "")).await;
            assert_eq!(
                (response.status, response.header("location")),
                (307, Some("https://step.example/secure"))
            );
        }
        assert_eq!(
            client.exchange(ask("POST", "a.example", "/secure", "Content-Length: 0\r\n")).await.status,
            403
        );
        assert_eq!(client.exchange(ask("GET", "a.example", "/optional", "")).await.status, 200);
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn hosts_that_request_certificates_do_not_redirect() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let mut client = bench.client(&gateway, "step.example", None).await;
        for host in ["step.example", "STEP.example.:443"] {
            let response = client.exchange(ask("GET", host, "/secure", "")).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (403, "client_certificate_required"),
                "{host}"
            );
        }
        assert_eq!(client.exchange(ask("GET", "step.example", "/optional", "")).await.status, 200);
        assert!(!origin.text().to_lowercase().contains("client-cert"));
    });
}

#[test]
fn clients_with_a_certificate_are_served_and_the_service_receives_it() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let issued = bench.issue();
        let forged = "Client-Cert: :Zm9yZ2Vk:\r\nclient_cert: x\r\nCLIENT-CERT-CHAIN: :Zm9yZ2Vk:\r\n";
        let mut requests = 0;
        for host in ["step.example", "must.example"] {
            let mut client = bench.client(&gateway, host, Some(&issued)).await;
            for path in ["/secure", "/optional", "/build", "/bare"] {
                assert_eq!(
                    client
                        .exchange(ask("POST", host, path, &format!("Content-Length: 0\r\n{forged}")))
                        .await
                        .status,
                    200
                );
                requests += 1;
            }
            assert_eq!(client.exchange(ask("GET", host, "/silent", forged)).await.status, 200);
            let response = client.exchange(ask("GET", host, "/else", forged)).await;
            assert_eq!((response.status, response.code().as_str()), (403, "client_certificate_not_listed"));
        }
        let text = origin.text();
        assert_eq!(text.matches(&expected(&issued)).count(), requests, "{text}");
        assert_eq!(text.to_lowercase().matches("client-cert").count(), requests, "{text}");
        assert!(!text.contains("Zm9yZ2Vk") && !text.contains("client_cert"), "{text}");
        let log = gateway.log(12).await;
        assert_eq!(log[0]["tls.client.subject"], "CN=build");
    });
}

#[test]
fn a_chain_is_forwarded_if_configured() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let mut issued = bench.issue();
        let more = bench.issue();
        let own = expected(&issued);
        issued.chain_pem.push_str(&more.chain_pem);
        let mut client = bench.client(&gateway, "step.example", Some(&issued)).await;
        assert_eq!(client.exchange(ask("GET", "step.example", "/chain", "")).await.status, 200);
        let text = origin.text();
        assert!(text.contains(&own), "{text}");
        assert!(text.contains(&expected(&more).replace("Client-Cert:", "Client-Cert-Chain:")), "{text}");
    });
}

/// Every route, over both protocols: nobody but we says who the client is.
#[test]
fn fields_of_certificates_can_not_be_forged() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let names = [
            "Client-Cert",
            "client-cert",
            "CLIENT_CERT",
            "Client_Cert",
            "client-cert-chain",
            "Client_Cert-Chain",
            "CLIENT-CERT_CHAIN",
        ];
        for host in ["a.example", "step.example"] {
            let mut client = bench.client(&gateway, host, None).await;
            for name in names {
                for path in ["/", "/optional", "/silent/../x"] {
                    // Twice, since removing one is no removing.
                    let forged = format!("{name}: :Zm9yZ2Vk:\r\nX-Between: 1\r\n{name}: :Zm9yZ2Vk:\r\n");
                    assert_eq!(client.exchange(ask("GET", host, path, &forged)).await.status, 200);
                }
            }
            // Named as an option of the connection, which would have ours removed.
            let response = client.exchange(ask("GET", host, "/", "Connection: Client-Cert\r\n")).await;
            assert_eq!(response.status, 400);

            let tls = bench.tls(&gateway, host, None, "h2").await;
            let (mut send, connection) = h2::client::handshake(tls).await.unwrap();
            tokio::spawn(connection);
            for name in names.map(str::to_ascii_lowercase) {
                let request = Request::builder()
                    .uri(format!("https://{host}/optional"))
                    .header(&name, ":Zm9yZ2Vk:")
                    .header("x-between", "1")
                    .header(&name, ":Zm9yZ2Vk:");
                let (response, _) = send.send_request(request.body(()).unwrap(), true).unwrap();
                assert_eq!(response.await.unwrap().status(), 200);
            }
        }
        let text = origin.text().to_lowercase();
        assert!(text.contains("x-between: 1"), "{text}");
        assert!(
            !text.contains("zm9yz2vk") && !text.contains("client-cert") && !text.contains("client_cert"),
            "{text}"
        );
        // No route is found by them either: what takes the request is the public route.
        let mut client = bench.client(&gateway, "a.example", None).await;
        client.exchange(ask("GET", "a.example", "/forged", "Client-Cert: :Zm9yZ2Vk:\r\n")).await;
        let log = gateway.log(2 * (21 + 1 + 7) + 1).await;
        assert!(log.iter().all(|line| line["http.route"] != "forged"), "{log:#?}");
    });
}

#[test]
fn over_http2_it_is_the_same() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let issued = bench.issue();
        for (sni, shown, host, method, status) in [
            ("a.example", None, "a.example", "GET", 307),
            ("a.example", None, "a.example", "HEAD", 307),
            ("a.example", None, "a.example", "POST", 403),
            ("step.example", None, "step.example", "GET", 403),
            ("step.example", Some(&issued), "step.example", "GET", 200),
            ("must.example", Some(&issued), "must.example", "POST", 200),
            // Another way of asking is another trust domain, whatever the certificate's.
            ("a.example", None, "step.example", "GET", 421),
            ("a.example", None, "must.example", "GET", 421),
            ("step.example", Some(&issued), "must.example", "GET", 421),
            ("step.example", Some(&issued), "a.example", "GET", 421),
        ] {
            let tls = bench.tls(&gateway, sni, shown, "h2").await;
            let (mut send, connection) = h2::client::handshake(tls).await.unwrap();
            tokio::spawn(connection);
            let request =
                Request::builder().method(method).uri(format!("https://{host}/secure")).body(()).unwrap();
            let response = send.send_request(request, true).unwrap().0.await.unwrap();
            assert_eq!(response.status(), status, "{sni} {host} {method}");

            let mut client = bench.client(&gateway, sni, shown).await;
            client
                .send(ask(
                    method,
                    host,
                    "/secure",
                    if method == "POST" { "Content-Length: 0\r\n" } else { "" },
                ))
                .await;
            assert_eq!(
                client.try_response(method == "HEAD").await.unwrap().status,
                status,
                "{sni} {host} {method}"
            );
        }
        assert_eq!(origin.text().matches("Client-Cert: ").count(), 4);
    });
}

#[test]
fn a_required_client_certificate_is_enforced_in_the_handshake() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let stranger = Authority::new("staff", FROM, TO).unwrap().issue_client("x", &[], FROM, TO).unwrap();
        for issued in [None, Some(&stranger)] {
            let tcp = TcpStream::connect(gateway.address).await.unwrap();
            let connector = TlsConnector::from(bench.config(issued, "http/1.1"));
            // In TLS 1.3 the client is told after its own handshake is done.
            let refused = match connector.connect(server_name("must.example").unwrap(), tcp).await {
                Ok(mut tls) => {
                    let _ = tls.write_all(ask("GET", "must.example", "/", "").as_bytes()).await;
                    tls.read(&mut [0; 1]).await.is_err()
                }
                Err(_) => true,
            };
            assert!(refused);
        }
        assert_eq!(origin.connections(), 0);
    });
}

/// The configuration is chosen by a ClientHello that may come in pieces, behind a PROXY header.
#[test]
fn a_hello_in_pieces_behind_a_proxy_header_is_put_together() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let proxied =
            "[[listener]]\nname = 'test'\nproxy_protocol = 'v1'\nproxy_protocol_from = ['127.0.0.1']";
        let spec = bench.spec(&origin).with(proxied);
        let gateway = spec.start().await;
        let target = gateway.address;
        // Between them somebody who sends one byte at a time at first.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let between = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(target).await.unwrap();
            server.set_nodelay(true).unwrap();
            server.write_all(b"PROXY TCP4 203.0.113.7 198.51.100.1 1234 443\r\n").await.unwrap();
            let mut space = [0; 1];
            for _ in 0..200 {
                client.read_exact(&mut space).await.unwrap();
                server.write_all(&space).await.unwrap();
                tokio::task::yield_now().await;
            }
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
        let issued = bench.issue();
        let tcp = TcpStream::connect(between).await.unwrap();
        let connector = TlsConnector::from(bench.config(Some(&issued), "http/1.1"));
        let tls = connector.connect(server_name("must.example").unwrap(), tcp).await.unwrap();
        assert_eq!(Client::over(tls).exchange(ask("GET", "must.example", "/secure", "")).await.status, 200);
        assert_eq!(gateway.log(1).await[0]["client.address"], "203.0.113.7");
    });
}

#[test]
fn a_malformed_client_hello_gets_an_alert() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3]] {
            let mut client = gateway.client().await;
            client.try_send(bytes).await;
            client.finish().await;
            assert!(!client.rest().await.unwrap_or_default().starts_with(b"HTTP"));
        }
        assert_eq!(gateway.gateway.metrics.handshake_failures.value(), 2);
    });
}

/// While a connection lasts its certificate may cease to hold; then nothing of it is believed.
#[test]
fn authorities_that_change_end_what_a_connection_was_trusted_with() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::ok().await;
        let gateway = bench.spec(&origin).start().await;
        let issued = bench.issue();
        let mut client = bench.client(&gateway, "step.example", Some(&issued)).await;
        assert_eq!(client.exchange(ask("GET", "step.example", "/secure", "")).await.status, 200);
        fs::write(bench.folder.path().join("staff.pem"), bench.web.certificate_pem()).unwrap();
        assert!(gateway.client_authority("staff").reload_if_changed().unwrap());
        for path in ["/secure", "/optional"] {
            let response = client.exchange(ask("GET", "step.example", path, "")).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (403, "client_certificate_invalid"),
                "{path}"
            );
        }
        assert_eq!(client.exchange(ask("GET", "step.example", "/", "")).await.status, 200);
        assert_eq!(origin.text().matches("Client-Cert: ").count(), 1);
        assert_eq!(gateway.log(4).await[3].get("tls.client.subject"), None);
    });
}

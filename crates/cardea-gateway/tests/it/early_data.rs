//! Requests before the handshake is done: which are carried at once, which wait, and what comes of those that come twice.

use std::{
    io::{Read as _, Write as _},
    sync::Arc,
};

use cardea_tls::server_name;
use rustls::{
    ClientConfig, ClientConnection, NamedGroup,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
        Tls13ClientSessionValue,
    },
    pki_types::ServerName,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{Harness, Origin, Spec, certificates::Certificates, get, origin::OK, run, until};

/// What a listener here takes.
const BYTES_MAX: u32 = 2_048;

/// A gateway whose public route allows early data.
fn spec(origin: &Origin, certificates: &Certificates) -> Spec {
    Spec::to(origin)
        .with(certificates.listener())
        .with("[[listener]]\nname = 'test'\ntls.early_data = true")
        .public("early_data = true\nrequest_headers.set = { x-early = '{connection.tls.early_data}' }")
        .resolved(|config| {
            let settings = &mut config.listeners[0].tls.as_mut().unwrap().settings;
            settings.early_data_bytes_max = BYTES_MAX;
            // Enough that a test need not count them.
            settings.tickets = 4;
        })
}

fn client(certificates: &Certificates, alpn: &str) -> ClientConfig {
    let mut config = certificates.client(&[alpn]).as_ref().clone();
    config.enable_early_data = true;
    config.resumption = Resumption::in_memory_sessions(64);
    config
}

/// A client's side of a handshake, whose flights are in the hands of the test.
struct Flights {
    tls: ClientConnection,
    tcp: TcpStream,
    plain: String,
}

/// The first flight, with early data where there is some.
fn hello(config: &Arc<ClientConfig>, early: &[u8]) -> (ClientConnection, Vec<u8>) {
    let mut tls = ClientConnection::new(Arc::clone(config), server_name("a.example").unwrap()).unwrap();
    if !early.is_empty() {
        let mut data = tls.early_data().expect("a ticket for early data");
        assert_eq!(data.write(early).unwrap(), early.len());
    }
    let flight = written(&mut tls);
    (tls, flight)
}

fn written(tls: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes).unwrap();
    }
    bytes
}

impl Flights {
    /// Sends the first flight.
    async fn begin(gateway: &Harness, config: &Arc<ClientConfig>, early: &[u8]) -> Self {
        let (tls, flight) = hello(config, early);
        let mut tcp = TcpStream::connect(gateway.address).await.unwrap();
        tcp.write_all(&flight).await.unwrap();
        Self { tls, tcp, plain: String::new() }
    }

    /// Reads, and sends nothing; false at the end.
    async fn read(&mut self) -> bool {
        let mut space = [0; 16 * 1024];
        let count = self.tcp.read(&mut space).await.unwrap_or(0);
        let mut bytes = &space[..count];
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).unwrap();
            if self.tls.process_new_packets().is_err() {
                return false;
            }
        }
        let mut plain = Vec::new();
        // The end of what has come so far is an error of this reader.
        let _ = self.tls.reader().read_to_end(&mut plain);
        self.plain.push_str(&String::from_utf8_lossy(&plain));
        count > 0
    }

    async fn read_until(&mut self, text: &str) {
        while !self.plain.contains(text) {
            assert!(self.read().await, "ended before {text:?}: {}", self.plain);
        }
        self.plain.clear();
    }

    /// Reads the server's flight.
    async fn read_flight(&mut self) {
        while self.tls.is_handshaking() {
            assert!(self.read().await, "ended within the handshake");
        }
    }

    /// Sends the flight that ends the handshake, and what follows it.
    async fn send(&mut self, request: impl AsRef<[u8]>) {
        self.tls.writer().write_all(request.as_ref()).unwrap();
        self.tcp.write_all(&written(&mut self.tls)).await.unwrap();
    }

    async fn ended(&mut self) {
        while self.read().await {}
    }
}

/// Gets the client a ticket, at least. Each connection uses up one.
async fn warm(gateway: &Harness, config: &Arc<ClientConfig>) {
    let mut flights = Flights::begin(gateway, config, b"").await;
    flights.read_flight().await;
    flights.send(get("/warm")).await;
    flights.read_until("\r\n\r\nok").await;
}

/// Another request, so that what was sent before it was looked at.
async fn meanwhile(gateway: &Harness, certificates: &Certificates) {
    let config = Arc::new(client(certificates, "http/1.1"));
    for _ in 0..3 {
        warm(gateway, &config).await;
    }
}

/// How often the origin got a request for this.
fn carried(origin: &Origin, path: &str) -> usize {
    origin.text().matches(&format!(" {path} HTTP/1.1\r\n")).count()
}

/// The head of the last request for this, as the origin got it.
fn head_of(origin: &Origin, path: &str) -> String {
    let text = origin.text();
    let (_, after) = text.rsplit_once(&format!(" {path} HTTP/1.1\r\n")).expect("carried");
    after.split("\r\n\r\n").next().unwrap().to_owned()
}

#[test]
fn a_safe_request_is_answered_before_the_handshake_is_done() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let gateway = spec(&origin, &certificates).start().await;
        let config = Arc::new(client(&certificates, "http/1.1"));
        for method in ["GET", "OPTIONS", "HEAD"] {
            warm(&gateway, &config).await;
            let path = format!("/{method}");
            let request = format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
            let mut flights = Flights::begin(&gateway, &config, request.as_bytes()).await;
            flights.read_until("200 OK").await;
            let head = head_of(&origin, &path);
            assert!(head.contains("Early-Data: 1") && head.contains("x-early: true"), "{head}");
            // What comes with the end of the handshake and after it is as ever.
            for path in ["/with", "/after"] {
                flights.send(get(path)).await;
                flights.read_until("\r\n\r\nok").await;
                let head = head_of(&origin, path);
                assert!(!head.contains("Early-Data") && head.contains("x-early: false"), "{head}");
            }
        }
    });
}

#[test]
fn an_early_request_needs_its_token_as_any_other() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let spec = spec(&origin, &certificates).route("api", "early_data = true");
        let gateway = spec.start().await;
        let config = Arc::new(client(&certificates, "http/1.1"));
        let request =
            |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{more}\r\n");
        warm(&gateway, &config).await;
        let mut flights = Flights::begin(&gateway, &config, request("/api/without", "").as_bytes()).await;
        flights.read_until("401 Unauthorized").await;
        assert_eq!(carried(&origin, "/api/without"), 0);
        warm(&gateway, &config).await;
        let token = format!("Authorization: Bearer {}\r\n", gateway.token());
        let mut flights = Flights::begin(&gateway, &config, request("/api/with", &token).as_bytes()).await;
        flights.read_until("200 OK").await;
        let head = head_of(&origin, "/api/with");
        assert!(head.contains("Early-Data: 1") && head.contains("x-auth-subject: "), "{head}");
    });
}

/// The attack: what was recorded is sent again, before the first one is answered, after it, and to another node.
#[test]
fn a_flight_that_is_sent_again_is_carried_once() {
    run(async {
        let certificates = Certificates::new();
        let (origin, elsewhere) = (Origin::ok().await, Origin::ok().await);
        let gateway = spec(&origin, &certificates).start_with_workers(2).await;
        let node = spec(&elsewhere, &certificates).start().await;
        let config = Arc::new(client(&certificates, "http/1.1"));
        for number in 0..10 {
            warm(&gateway, &config).await;
            let path = format!("/{number}");
            let (_, flight) = hello(&config, get(&path).as_bytes());
            let mut connections = Vec::new();
            for to in [&node, &gateway, &gateway, &gateway] {
                connections.push(TcpStream::connect(to.address).await.unwrap());
            }
            for tcp in &mut connections {
                tcp.write_all(&flight).await.unwrap();
            }
            origin.until(|text| text.contains(&format!(" {path} "))).await;
            let mut again = TcpStream::connect(gateway.address).await.unwrap();
            again.write_all(&flight).await.unwrap();
            connections.push(again);
            for mut tcp in connections {
                tcp.shutdown().await.unwrap();
                let mut flight = Vec::new();
                // Closed by the gateway: it is done with this one.
                let _ = tcp.read_to_end(&mut flight).await;
                assert!(!flight.is_empty(), "each gets a flight of the server's");
            }
            assert_eq!(carried(&origin, &path), 1, "{number}");
        }
        assert_eq!(elsewhere.connections(), 0);
    });
}

#[test]
fn all_other_requests_wait_for_the_handshake() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let spec = spec(&origin, &certificates).route("late", "path_prefix = '/late'");
        let gateway = spec.start().await;
        let config = Arc::new(client(&certificates, "http/1.1"));
        let host = "Host: a.example\r\n";
        let cases = [
            ("not allowed", "/late/1", format!("GET /late/1 HTTP/1.1\r\n{host}\r\n"), ""),
            ("POST", "/1", format!("POST /1 HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\n"), ""),
            ("TRACE", "/2", format!("TRACE /2 HTTP/1.1\r\n{host}\r\n"), ""),
            ("DELETE", "/3", format!("DELETE /3 HTTP/1.1\r\n{host}\r\n"), ""),
            ("a body", "/4", format!("GET /4 HTTP/1.1\r\n{host}Content-Length: 2\r\n\r\nxx"), ""),
            ("half a body", "/5", format!("POST /5 HTTP/1.1\r\n{host}Content-Length: 2\r\n\r\nx"), "x"),
            ("a part", "/6", "GET /6 HTTP/1.1\r\nHost: a.exa".to_owned(), "mple\r\n\r\n"),
        ];
        for (case, path, early, rest) in cases {
            warm(&gateway, &config).await;
            let mut flights = Flights::begin(&gateway, &config, early.as_bytes()).await;
            flights.read_flight().await;
            meanwhile(&gateway, &certificates).await;
            assert_eq!(carried(&origin, path), 0, "{case}");
            flights.send(rest).await;
            flights.read_until("200 OK").await;
            assert_eq!(carried(&origin, path), 1, "{case}");
            assert!(!head_of(&origin, path).contains("Early-Data"), "{case}");
        }
    });
}

#[test]
fn requests_of_http2_wait_for_the_handshake() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let gateway = spec(&origin, &certificates).start().await;
        let config = Arc::new(client(&certificates, "h2"));
        // The preface, empty settings, and a GET of /; then what acknowledges the server's settings.
        let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        frames.extend_from_slice(b"\0\0\x0e\x01\x05\0\0\0\x01\x82\x87\x84\x41\x09a.example");
        let acknowledged = b"\0\0\0\x04\x01\0\0\0\0";
        for early in [b"".as_slice(), &frames] {
            let before = carried(&origin, "/");
            let mut flights = Flights::begin(&gateway, &config, early).await;
            flights.read_flight().await;
            if early.is_empty() {
                flights.send(&frames).await;
            } else {
                meanwhile(&gateway, &certificates).await;
                assert_eq!(carried(&origin, "/"), before);
            }
            flights.send(acknowledged).await;
            flights.read_until("ok").await;
            assert_eq!(carried(&origin, "/"), before + 1);
            assert!(!head_of(&origin, "/").contains("Early-Data"));
        }
    });
}

#[test]
fn early_data_without_a_finished_handshake_is_not_forwarded() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let spec = spec(&origin, &certificates)
            .public("early_data = false")
            .with("timeouts.tls_handshake = '300ms'");
        let gateway = spec.start().await;
        let config = Arc::new(client(&certificates, "http/1.1"));
        warm(&gateway, &config).await;
        let mut flights = Flights::begin(&gateway, &config, get("/never").as_bytes()).await;
        flights.ended().await;
        assert_eq!((carried(&origin, "/never"), flights.plain.as_str()), (0, ""));
    });
}

/// A client's store with tickets that promise more than the server does.
#[derive(Debug)]
struct Greedy(ClientSessionMemoryCache);

impl ClientSessionStore for Greedy {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(name, value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(name)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.0.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, mut value: Tls13ClientSessionValue) {
        value._private_set_max_early_data_size(10 * BYTES_MAX);
        self.0.insert_tls13_ticket(name, value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(name)
    }
}

#[test]
fn early_data_beyond_the_bound_is_refused() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let gateway = spec(&origin, &certificates).start().await;
        let mut config = client(&certificates, "http/1.1");
        config.resumption = Resumption::store(Arc::new(Greedy(ClientSessionMemoryCache::new(64))));
        let config = Arc::new(config);
        let request = |path: &str, bytes: u32| {
            let padding = "x".repeat(usize::try_from(bytes).unwrap());
            format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nx-padding: {padding}\r\n\r\n")
        };
        warm(&gateway, &config).await;
        let mut flights =
            Flights::begin(&gateway, &config, request("/within", BYTES_MAX - 100).as_bytes()).await;
        flights.read_until("200 OK").await;
        warm(&gateway, &config).await;
        let mut flights =
            Flights::begin(&gateway, &config, request("/beyond", 2 * BYTES_MAX).as_bytes()).await;
        flights.ended().await;
        assert_eq!((carried(&origin, "/within"), carried(&origin, "/beyond")), (1, 0));
        assert_eq!(flights.plain, "");
    });
}

/// An origin that carries out nothing that may be a replay.
async fn careful() -> Origin {
    Origin::start(|mut visit| async move {
        loop {
            let request = visit.request().await?;
            let answer = match request.headers("early-data").as_slice() {
                [] => OK,
                _ => "HTTP/1.1 425 Too Early\r\nContent-Length: 5\r\n\r\nearly",
            };
            visit.send(answer).await?;
        }
    })
    .await
}

#[test]
fn a_425_is_retried_after_the_handshake() {
    run(async {
        let certificates = Certificates::new();
        let origin = careful().await;
        let gateway = spec(&origin, &certificates).start().await;
        let config = Arc::new(client(&certificates, "http/1.1"));
        warm(&gateway, &config).await;
        let mut flights = Flights::begin(&gateway, &config, get("/again").as_bytes()).await;
        flights.read_flight().await;
        until("it was asked once", || carried(&origin, "/again") == 1).await;
        flights.send("").await;
        flights.read_until("\r\n\r\nok").await;
        assert_eq!(carried(&origin, "/again"), 2);
        assert!(!head_of(&origin, "/again").contains("Early-Data"));

        // Who marks a request is told of the refusal (RFC 8470 §5.2), and what is marked stays marked, once.
        let marked = "GET /marked HTTP/1.1\r\nHost: a.example\r\nEarly-Data: 1\r\nEarly-Data: x\r\n\r\n";
        warm(&gateway, &config).await;
        let mut flights = Flights::begin(&gateway, &config, marked.as_bytes()).await;
        flights.read_until("425 Too Early").await;
        assert_eq!(carried(&origin, "/marked"), 1);
        let head = head_of(&origin, "/marked");
        assert!(head.ends_with("Early-Data: 1") && !head.contains("Early-Data: x"), "{head}");
    });
}

#[test]
fn a_mark_that_a_client_sends_is_never_taken_away() {
    run(async {
        let origin = careful().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let request =
            |more: &str| format!("GET / HTTP/1.1\r\nHost: a.example\r\nEarly-Data: 1\r\n{more}\r\n");
        assert_eq!(client.exchange(request("")).await.status, 425);
        assert!(head_of(&origin, "/").contains("Early-Data: 1"));
        let refused = client.exchange(request("Connection: Early-Data\r\n")).await;
        assert_eq!(refused.status, 400);
        assert_eq!(carried(&origin, "/"), 1);
    });
}

#[test]
fn hosts_that_ask_for_certificates_take_no_early_data() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let spec = spec(&origin, &certificates).with(certificates.asking_listener());
        let gateway = spec.start().await;
        let config = Arc::new(client(&certificates, "http/1.1"));
        warm(&gateway, &config).await;
        // The control, by a greeting that is read before the configuration is chosen.
        let mut flights = Flights::begin(&gateway, &config, get("/early").as_bytes()).await;
        flights.read_until("200 OK").await;
        assert!(head_of(&origin, "/early").contains("Early-Data: 1"));
        let connect =
            || ClientConnection::new(Arc::clone(&config), server_name("d.example").unwrap()).unwrap();
        let mut tls = connect();
        let mut tcp = TcpStream::connect(gateway.address).await.unwrap();
        tcp.write_all(&written(&mut tls)).await.unwrap();
        let mut flights = Flights { tls, tcp, plain: String::new() };
        flights.read_flight().await;
        flights.send("GET / HTTP/1.1\r\nHost: d.example\r\n\r\n").await;
        flights.read_until("\r\n\r\nok").await;
        assert!(connect().early_data().is_none());
    });
}

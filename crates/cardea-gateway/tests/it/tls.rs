//! TLS on both sides, trust domains, PROXY headers, Unix sockets.

use std::sync::Arc;

use cardea_upstream::{Address, Connections, DnsName, EndpointConfig, ServiceConfig, ServiceState};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};

use crate::support::{
    Client, Harness, Origin, Spec, certificates::Certificates, get, origin::OK, run, until,
};

async fn secured(origin: &Origin, certificates: &Certificates) -> Harness {
    Spec::to(origin).with(certificates.listener()).start().await
}

async fn client(gateway: &Harness, certificates: &Certificates, sni: &str) -> Client {
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    Client::over(certificates.connect(tcp, sni, &["http/1.1"]).await)
}

fn to_host(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn requests_come_over_tls_and_the_scheme_is_told() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let gateway = secured(&origin, &certificates).await;
        let mut client = client(&gateway, &certificates, "a.example").await;
        for _ in 0..3 {
            assert_eq!(client.exchange(to_host("a.example:443")).await.text(), "ok");
        }
        assert_eq!(
            client.exchange("GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n").await.status,
            200
        );
        assert!(origin.text().contains("X-Forwarded-Proto: https\r\n"), "{}", origin.text());
        assert!(origin.text().contains("Host: a.example\r\n"), "{}", origin.text());
        let refused = client.exchange("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "scheme_disagrees"));
        client.ended().await;
        assert_eq!(gateway.log(5).await[0]["tls.protocol.version"], "TLSv1.3");
    });
}

#[test]
fn a_connection_serves_its_own_trust_domain_alone() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let gateway = secured(&origin, &certificates).await;
        for (sni, host, status) in [
            ("a.example", "a.example", 200),
            ("a.example", "b.example", 200),
            ("a.example", "c.example", 421),
            ("a.example", "C.Example.:443", 421),
            ("c.example", "c.example", 200),
            ("c.example", "a.example", 421),
        ] {
            let mut client = client(&gateway, &certificates, sni).await;
            let before = origin.text().len();
            let response = client.exchange(to_host(host)).await;
            assert_eq!(response.status, status, "{sni} {host}");
            if status == 421 {
                assert_eq!(response.code(), "misdirected_request");
                assert_eq!(origin.text().len(), before);
            }
        }
    });
}

#[test]
fn a_response_cut_short_over_tls_has_no_close_notify() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::closing("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").await;
        let gateway = secured(&origin, &certificates).await;
        for version in ["1.1", "1.0"] {
            let mut client = client(&gateway, &certificates, "a.example").await;
            client.send(format!("GET / HTTP/{version}\r\nHost: a.example\r\n\r\n")).await;
            assert!(client.rest().await.is_err(), "no clean end");
        }
    });
}

#[test]
fn a_service_that_ends_without_close_notify_has_not_ended_its_body() {
    run(async {
        let certificates = Certificates::new();
        for orderly in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = Address::Tcp(listener.local_addr().unwrap());
            let acceptor = certificates.acceptor();
            tokio::spawn(async move {
                let (tcp, _) = listener.accept().await.unwrap();
                let mut tls = acceptor.accept(tcp).await.unwrap();
                let mut space = [0; 4096];
                assert!(tls.read(&mut space).await.unwrap() > 0);
                tls.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").await.unwrap();
                tls.flush().await.unwrap();
                if orderly {
                    tls.shutdown().await.unwrap();
                } else {
                    tls.get_mut().0.shutdown().await.unwrap();
                }
                while tls.get_mut().0.read(&mut space).await.is_ok_and(|count| count > 0) {}
            });
            let gateway = Spec::to_addresses([address]).with(certificates.service("a.example")).start().await;
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            let response = client.try_response(false).await;
            assert_eq!(response.is_ok_and(|response| response.text() == "hello"), orderly);
        }
    });
}

/// An origin that speaks TLS and answers by `answer`, which may read first.
async fn secured_origin(
    certificates: &Certificates,
    answer: &'static str,
    body: usize,
) -> (Address, Arc<std::sync::Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = certificates.acceptor();
    let connections = Arc::new(std::sync::Mutex::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            *counted.lock().unwrap() += 1;
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut tls = acceptor.accept(tcp).await?;
                let mut unread: Vec<u8> = Vec::new();
                loop {
                    let mut space = vec![0; 16 * 1024];
                    let head = loop {
                        if let Some(at) = memchr::memmem::find(&unread, b"\r\n\r\n") {
                            break at + 4;
                        }
                        let count = tls.read(&mut space).await?;
                        if count == 0 {
                            return Ok::<_, std::io::Error>(());
                        }
                        unread.extend_from_slice(&space[..count]);
                    };
                    unread.drain(..head);
                    let mut left = body.saturating_sub(unread.len());
                    unread.clear();
                    while left > 0 {
                        left -= tls.read(&mut space).await?;
                    }
                    tls.write_all(answer.as_bytes()).await?;
                    tls.flush().await?;
                }
            });
        }
    });
    (Address::Tcp(address), connections)
}

#[test]
fn a_service_is_reached_over_tls_and_verified() {
    run(async {
        let certificates = Certificates::new();
        let (address, connections) = secured_origin(&certificates, OK, 0).await;
        let spec = Spec::to_addresses([address.clone()]);
        let gateway = spec.with(certificates.service("a.example")).start().await;
        let mut client = gateway.client().await;
        for _ in 0..3 {
            assert_eq!(client.exchange(get("/")).await.text(), "ok");
        }
        assert_eq!(*connections.lock().unwrap(), 1, "kept");
        for (trusting, name) in [(&certificates, "d.example"), (&Certificates::new(), "a.example")] {
            let gateway = Spec::to_addresses([address.clone()]).with(trusting.service(name)).start().await;
            let response = gateway.client().await.exchange(get("/")).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (502, "upstream_connect_failed"),
                "{name}"
            );
        }
    });
}

#[test]
fn an_endpoint_is_verified_by_its_name_and_one_of_a_service_record_by_the_domain() {
    run(async {
        let certificates = Certificates::new();
        let (address, _) = secured_origin(&certificates, OK, 0).await;
        let gateway = Spec::to_addresses([address.clone()]).with(certificates.named_service()).start().await;
        let host = |name| DnsName::host(name, 443).unwrap();
        let service = |name| DnsName::service(name).unwrap();
        for (name, status) in [
            (host("a.example"), 200),
            (host("d.example"), 502),
            (service("_https._tcp.a.example"), 200),
            (service("_https._tcp.d.example"), 502),
        ] {
            let model = gateway.gateway.model();
            let live = &model.services[0].live;
            let endpoint =
                EndpointConfig { name: Some(Arc::new(name.clone())), ..EndpointConfig::new(address.clone()) };
            let config = ServiceConfig { endpoints: vec![endpoint], ..live.state().config() };
            let state = ServiceState::reconcile(&config, Some(&live.state()), Connections::Kept).unwrap();
            live.replace(&state, gateway.gateway.clock.mono());
            let response = gateway.client().await.exchange(get("/")).await;
            assert_eq!(response.status, status, "{name}");
        }
    });
}

#[test]
fn large_bodies_go_to_a_service_over_tls() {
    run(async {
        const SIZE: usize = 20_000_000;
        let certificates = Certificates::new();
        let (address, _) = secured_origin(&certificates, OK, SIZE).await;
        let gateway = Spec::to_addresses([address]).with(certificates.service("a.example")).start().await;
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {SIZE}\r\n\r\n")).await;
            client.send(vec![b'x'; SIZE]).await;
            assert_eq!(client.response().await.text(), "ok");
        }
    });
}

#[test]
fn bytes_behind_a_response_are_no_response_over_tls_either() {
    run(async {
        let certificates = Certificates::new();
        // In one record with the response, larger together than what is taken at once.
        let poisoned: &'static str = Box::leak(
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 16000\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned{}",
                "x".repeat(16_000),
                " ".repeat(300)
            )
            .into_boxed_str(),
        );
        let (address, connections) = secured_origin(&certificates, poisoned, 0).await;
        let gateway = Spec::to_addresses([address]).with(certificates.service("a.example")).start().await;
        let mut client = gateway.client().await;
        for count in 1..4 {
            assert!(!client.exchange(get("/")).await.text().contains("poisoned"));
            assert_eq!(*connections.lock().unwrap(), count);
        }
    });
}

#[test]
fn a_service_that_never_answers_the_handshake_is_a_504() {
    run(async {
        let certificates = Certificates::new();
        let silent = Origin::start(|mut visit| async move {
            visit.closed().await;
            Ok(())
        })
        .await;
        let gateway = Spec::to(&silent)
            .with(certificates.service("a.example"))
            .with("timeouts.connect = '150ms'")
            .start()
            .await;
        let response = gateway.client().await.exchange(get("/")).await;
        assert_eq!((response.status, response.code().as_str()), (504, "upstream_connect_timeout"));
    });
}

#[test]
fn a_client_that_never_shakes_hands_is_closed() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).with(certificates.listener()).with("timeouts.tls_handshake = '150ms'");
        let gateway = spec.start().await;
        let mut silent = gateway.client().await;
        silent.ended().await;
        let mut plain = gateway.client().await;
        plain.send(get("/")).await;
        let alert = plain.rest().await.unwrap_or_default();
        assert!(!alert.starts_with(b"HTTP"));
        assert_eq!(origin.connections(), 0);
    });
}

/// The first listener expects the PROXY protocol.
fn proxied(trusted: &str, versions: &str) -> String {
    format!(
        "[[listener]]\nname = 'test'\nproxy_protocol = '{versions}'\nproxy_protocol_from = ['{trusted}']\n"
    )
}

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 198.51.100.1 1234 443\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x07\xc6\x33\x64\x01\x04\xd2\x01\xbb";

#[test]
fn a_trusted_peers_proxy_header_is_used_with_and_without_tls() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        for header in [V1, V2] {
            let plain = Spec::to(&origin).with(proxied("127.0.0.1", "any")).start().await;
            let mut client = plain.client().await;
            assert_eq!(client.exchange([header, get("/").as_bytes()].concat()).await.status, 200);
            assert_eq!(plain.log(1).await[0]["client.address"], "203.0.113.7");

            let spec = Spec::to(&origin).with(proxied("127.0.0.1", "any")).with(certificates.listener());
            let secured = spec.start().await;
            let mut tcp = TcpStream::connect(secured.address).await.unwrap();
            tcp.write_all(header).await.unwrap();
            let mut client = Client::over(certificates.connect(tcp, "a.example", &["http/1.1"]).await);
            assert_eq!(client.exchange(get("/")).await.status, 200);
            assert_eq!(secured.log(1).await[0]["client.address"], "203.0.113.7");
        }
        assert_eq!(origin.text().matches("X-Forwarded-For: 203.0.113.7\r\n").count(), 4, "{}", origin.text());
    });
}

#[test]
fn other_proxy_headers_are_not_believed() {
    run(async {
        let origin = Origin::ok().await;
        // A peer that is not trusted is closed, whatever it sends.
        let gateway = Spec::to(&origin).with(proxied("192.0.2.1", "any")).start().await;
        for beginning in [get("/").as_bytes(), V1, V2, b""] {
            let mut client = gateway.client().await;
            client.try_send([beginning, get("/").as_bytes()].concat()).await;
            assert!(client.rest().await.unwrap_or_default().is_empty());
        }
        until("all are counted", || gateway.gateway.metrics.proxy_peers_refused.value() == 4).await;
        assert!(gateway.has_metric("cardea_proxy_peers_refused_total 4"));
        // So it is before TLS.
        let certificates = Certificates::new();
        let secured = Spec::to(&origin).with(proxied("192.0.2.1", "any")).with(certificates.listener());
        let secured = secured.start().await;
        let mut client = Client::connect(secured.address).await;
        assert!(client.rest().await.unwrap_or_default().is_empty());
        // Who may write to a Unix socket is trusted, and must send a header.
        let unix = Spec::to(&origin).with(proxied("192.0.2.1", "any")).start_unix().await;
        let path = unix.path.clone().unwrap();
        let mut client = Client::over(UnixStream::connect(&path).await.unwrap());
        assert_eq!(client.exchange([V1, get("/").as_bytes()].concat()).await.status, 200);
        let mut client = Client::over(UnixStream::connect(&path).await.unwrap());
        client.try_send(get("/")).await;
        client.finish().await;
        assert!(client.rest().await.unwrap_or_default().is_empty());
        assert_eq!(unix.gateway.metrics.proxy_peers_refused.value(), 0);
        // A trusted peer must send one, of a version that is switched on.
        let gateway = Spec::to(&origin).with(proxied("127.0.0.1", "v1")).start().await;
        for beginning in [get("/").as_bytes(), V2, b"PROXY TCP4 x y 1 2\r\n", b"PROXY UNKNOWN"] {
            let mut client = gateway.client().await;
            client.send(beginning).await;
            client.finish().await;
            assert!(client.rest().await.unwrap_or_default().is_empty());
        }
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn unix_sockets_are_listened_on_and_connected_to() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("origin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut space = [0; 4096];
            loop {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let count = stream.read(&mut space).await.unwrap();
                    if count == 0 {
                        return;
                    }
                    head.extend_from_slice(&space[..count]);
                }
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        });
        let gateway = Spec::to_addresses([Address::Unix(path)]).start_unix().await;
        let stream = UnixStream::connect(gateway.path.as_ref().unwrap()).await.unwrap();
        let mut client = Client::over(stream);
        for _ in 0..3 {
            assert_eq!(client.exchange(get("/")).await.text(), "ok");
        }
        let refused = client.exchange("GET / HTTP/1.1\r\n\r\n").await;
        assert_eq!(refused.code(), "host_missing");
        client.ended().await;
    });
}

#[test]
fn a_redirect_to_https_keeps_path_and_query() {
    run(async {
        let origin = Origin::ok().await;
        let gateway =
            Spec::to(&origin).with("[[listener]]\nname = 'test'\nredirect_to_https = 8443").start().await;
        let mut client = gateway.client().await;
        let response = client.exchange("GET //x/../a?b=c HTTP/1.1\r\nHost: A.example:80\r\n\r\n").await;
        assert_eq!(
            (response.status, response.header("location")),
            (308, Some("https://a.example:8443/a?b=c"))
        );
        let response = client.exchange("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        assert_eq!((response.status, response.header("location")), (204, None));
        assert_eq!(origin.connections(), 0);
    });
}

/// Connections that say nothing, as many as are asked for.
async fn silent(gateway: &Harness, count: usize) -> Vec<TcpStream> {
    let mut silent = Vec::with_capacity(count);
    for _ in 0..count {
        silent.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    silent
}

#[test]
fn silent_connections_block_no_client() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let limits = "limits = { handshakes_max = 50, handshakes_per_prefix_max = 1_000 }";
        let spec = Spec::to(&origin).with(certificates.listener()).with(limits);
        let gateway = spec.start().await;
        let held = silent(&gateway, 400).await;
        until("the oldest have given way", || gateway.gateway.handshakes_under_way() == 50).await;
        for _ in 0..10 {
            let mut client = client(&gateway, &certificates, "a.example").await;
            assert_eq!(client.exchange(to_host("a.example")).await.status, 200);
        }
        drop(held);
        until("all are over", || gateway.gateway.handshakes_under_way() == 0).await;
    });
}

#[test]
fn silent_handshakes_give_way_where_no_connection_is_left() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        // They are not to end for another reason.
        let limits = "limits.connections_max = 5\ntimeouts.tls_handshake = '1m'";
        let spec = Spec::to(&origin).with(certificates.listener()).with(limits);
        let gateway = spec.start().await;
        let held = silent(&gateway, 5).await;
        until("all shake hands", || gateway.gateway.handshakes_under_way() == 5).await;
        let mut client = client(&gateway, &certificates, "a.example").await;
        assert_eq!(client.exchange(to_host("a.example")).await.status, 200);
        drop(held);
    });
}

#[test]
fn one_prefix_has_no_more_handshakes_than_it_may() {
    run(async {
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let spec =
            Spec::to(&origin).with(certificates.listener()).with("limits.handshakes_per_prefix_max = 20");
        let gateway = spec.start().await;
        let held = silent(&gateway, 100).await;
        until("the others are closed", || gateway.gateway.metrics.excess_of_handshakes() == 80).await;
        assert_eq!(gateway.gateway.handshakes_under_way(), 20);
        drop(held);
        until("all are over", || gateway.gateway.handshakes_under_way() == 0).await;
        let mut client = client(&gateway, &certificates, "a.example").await;
        assert_eq!(client.exchange(to_host("a.example")).await.status, 200);
    });
}

/// A flood from behind one address, and a client behind another, both told by the PROXY protocol.
#[test]
fn one_prefix_connects_no_faster_than_it_may() {
    run(async {
        let origin = Origin::ok().await;
        let limits = "limits.new_connections_per_second_max = 5";
        let spec = Spec::to(&origin).with(proxied("127.0.0.1", "any")).with(limits);
        let gateway = spec.start().await;
        let connect = async |header: &[u8]| {
            let mut client = gateway.client().await;
            client.try_send([header, get("/").as_bytes()].concat()).await;
            client.try_response(false).await.is_ok_and(|response| response.status == 200)
        };
        let mut served = 0;
        for _ in 0..200 {
            served += usize::from(connect(V1).await);
        }
        assert!((5..100).contains(&served), "{served}");
        assert!(connect(b"PROXY TCP4 203.0.113.8 198.51.100.1 1234 443\r\n").await);
    });
}

/// How many connections whose both ends are here there can be, 10,000 at most, and some files for whatever else runs.
#[expect(clippy::print_stdout, reason = "fewer than were wanted is not to go unnoticed")]
fn connections_possible() -> usize {
    const WANTED: usize = 10_000;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    // Both ends are here, and so many descriptors are no pressure yet, with those of other tests beside them.
    let possible = WANTED.min(usize::try_from(hard * 3 / 8).unwrap());
    if possible < WANTED {
        println!("{possible} connections in place of {WANTED}: the hard limit is {hard} open files");
    }
    assert!(possible >= 1_000, "{hard} open files say nothing about floods");
    possible
}

#[test]
fn ten_thousand_half_open_handshakes_block_no_client() {
    run(async {
        let count = connections_possible();
        let certificates = Certificates::new();
        let origin = Origin::ok().await;
        let limits = "[limits]\nhandshakes_max = 20_000\nhandshakes_per_prefix_max = 20_000";
        let spec = Spec::to(&origin)
            .with(certificates.listener())
            .with(limits)
            .with("timeouts.tls_handshake = '2m'");
        let gateway = spec.start().await;
        let held = silent(&gateway, count).await;
        until("they are half open", || gateway.gateway.handshakes_under_way() == count).await;
        for _ in 0..50 {
            let mut client = client(&gateway, &certificates, "a.example").await;
            assert_eq!(client.exchange(to_host("a.example")).await.status, 200);
        }
        drop(held);
        until("all are over", || gateway.gateway.handshakes_under_way() == 0).await;
    });
}

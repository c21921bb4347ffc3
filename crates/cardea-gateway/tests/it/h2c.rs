//! HTTP/2 without TLS, by prior knowledge (RFC 9113 §3.3).

use std::net::SocketAddr;

use cardea_http::h2::frame::PREFACE;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};

use crate::{
    client_certificates::Bench,
    http2::{Client, request},
    support::{self, Origin, Spec, get, origin::OK, run},
};

const H2C: &str = "[[listener]]\nname = 'test'\nh2c = true\n";

/// A client that has sent `before` ahead of its preface.
async fn connect_after(
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    before: &str,
) -> Client {
    stream.write_all(before.as_bytes()).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    Client { send, connection: tokio::spawn(connection) }
}

async fn connect(address: SocketAddr) -> Client {
    connect_after(TcpStream::connect(address).await.unwrap(), "").await
}

#[test]
fn http2_is_spoken_with_prior_knowledge_and_http1_beside_it() {
    run(async {
        let origin = Origin::answering(OK).await;
        let gateway = Spec::to(&origin).with(H2C).start().await;
        let mut client = connect(gateway.address).await;
        for _ in 0..2 {
            let answer = client.exchange(request("GET", "http://a.example/two")).await;
            assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        }
        let mut http1 = gateway.client().await;
        assert_eq!(http1.exchange(get("/one")).await.status, 200);
        assert_eq!(http1.exchange(get("/one")).await.status, 200);
        let text = origin.text().to_lowercase();
        assert_eq!(text.matches("x-forwarded-proto: http\r\n").count(), 4, "{text}");
        assert!(text.contains("via: 2 cardea"), "{text}");
        for (line, protocol) in gateway.log(4).await.iter().zip(["HTTP/2", "HTTP/2", "HTTP/1.1", "HTTP/1.1"])
        {
            assert_eq!((&line["network.protocol"], &line["url.scheme"]), (&protocol.into(), &"http".into()));
        }
    });
}

#[test]
fn the_protocol_is_recognised_however_its_first_octets_arrive() {
    run(async {
        let origin = Origin::answering(OK).await;
        let gateway = Spec::to(&origin).with(H2C).start().await;
        for http1 in
            ["PROPFIND /a HTTP/1.1\r\nHost: a.example\r\n\r\n", "PRI /a HTTP/1.1\r\nHost: a.example\r\n\r\n"]
        {
            let mut client = gateway.client().await;
            for octet in http1.as_bytes() {
                client.send([*octet]).await;
            }
            assert_eq!(client.response().await.status, 200, "{http1}");
        }
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for octet in PREFACE {
            stream.write_all(&[*octet]).await.unwrap();
            stream.flush().await.unwrap();
        }
        // An empty SETTINGS, which the server's own precede its acknowledgement of.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!((header[3], header[4]), (4, 0), "{header:?}");
        // A client that leaves within the preface.
        let mut client = gateway.client().await;
        client.send(&PREFACE[..20]).await;
        client.finish().await;
        client.ended().await;
    });
}

#[test]
fn without_the_key_the_preface_is_a_request_that_is_refused() {
    run(async {
        let origin = Origin::answering(OK).await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let refused = client.exchange(PREFACE).await;
        assert!((400..600).contains(&refused.status), "{refused:?}");
        assert!(refused.closes());
        assert_eq!(origin.text(), "");
    });
}

#[test]
fn an_upgrade_to_http2_is_ignored() {
    run(async {
        let origin = Origin::answering(OK).await;
        let gateway = Spec::to(&origin).with(H2C).start().await;
        let mut client = gateway.client().await;
        let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\n\
                       HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n";
        let response = client.exchange(upgrade).await;
        assert_eq!((response.status, response.text()), (200, "ok".to_owned()));
        let text = origin.text().to_lowercase();
        assert!(!text.contains("h2c") && !text.contains("http2-settings"), "{text}");
    });
}

#[test]
fn a_scheme_of_another_connection_is_refused() {
    run(async {
        let origin = Origin::answering(OK).await;
        let gateway = Spec::to(&origin).with(H2C).start().await;
        let mut client = connect(gateway.address).await;
        let answer = client.exchange(request("GET", "https://a.example/")).await;
        assert_eq!((answer.status, &answer.code()[..]), (400, "scheme_disagrees"));
        assert_eq!(client.exchange(request("GET", "http://a.example/")).await.status, 200);
    });
}

#[test]
fn a_hosts_certificate_requirement_applies_without_tls_too() {
    run(async {
        let bench = Bench::new();
        let origin = Origin::answering(OK).await;
        let certificates =
            [bench.certificate("a.example", "off"), bench.certificate("must.example", "require")];
        let mut gateway = Spec::to(&origin)
            .with(bench.listener_of("test", &certificates))
            .with("[[listener]]\nname = 'plain'\naddress = '127.0.0.1:0'\nh2c = true\n")
            .with("[[listener]]\nname = 'unix'\naddress = '127.0.0.1:0'\nh2c = true\n")
            .route("secure", "path_prefix = '/tls'\nwhen = \"has(connection.tls.version)\"")
            .route("here", "path_prefix = '/here'\nlisteners = ['test']")
            .without("route", "public")
            .route("open", "path_prefix = '/open'")
            .start()
            .await;
        let address = gateway.listen("plain");
        let socket = UnixStream::connect(gateway.listen_unix("unix")).await.unwrap();
        for mut client in [connect(address).await, connect_after(socket, "").await] {
            for (target, expected) in [
                ("http://must.example/open", (421, "client_certificate_unasked")),
                ("http://MUST.example.:81/open", (421, "client_certificate_unasked")),
                ("http://a.example/tls", (404, "route_not_found")),
                ("http://a.example/here", (404, "route_not_found")),
            ] {
                let answer = client.exchange(request("GET", target)).await;
                assert_eq!((answer.status, &answer.code()[..]), expected, "{target}");
            }
            assert_eq!(client.exchange(request("GET", "http://a.example/open")).await.status, 200);
        }
    });
}

#[test]
fn a_proxy_header_comes_before_the_preface() {
    run(async {
        let origin = Origin::answering(OK).await;
        let proxy =
            "trusted_proxies.prefixes = ['127.0.0.1']\n[[listener]]\nname = 'test'\nproxy_protocol = 'v1'\n";
        let gateway = Spec::to(&origin).with(H2C).with(proxy).start().await;
        let header = "PROXY TCP4 203.0.113.7 198.51.100.1 1234 80\r\n";
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let mut client = connect_after(tcp, header).await;
        assert_eq!(client.exchange(request("GET", "http://a.example/")).await.status, 200);
        assert_eq!(gateway.log(1).await[0]["client.address"], "203.0.113.7");
        let mut http1 = support::Client::connect(gateway.address).await;
        assert_eq!(http1.exchange(format!("{header}{}", get("/"))).await.status, 200);
    });
}

#[test]
fn a_redirect_to_https_applies_to_http2() {
    run(async {
        let origin = Origin::answering(OK).await;
        let gateway = Spec::to(&origin)
            .with(H2C)
            .with("[[listener]]\nname = 'test'\nredirect_to_https = true")
            .start()
            .await;
        let mut client = connect(gateway.address).await;
        let answer = client.exchange(request("GET", "http://a.example/a?b")).await;
        assert_eq!(
            (answer.status, &answer.headers["location"]),
            (308, &"https://a.example/a?b".parse().unwrap())
        );
        assert_eq!(origin.text(), "");
    });
}

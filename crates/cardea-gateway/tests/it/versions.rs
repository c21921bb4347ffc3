//! The same request over each version and transport: a service gets the same bytes.

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::{
    http2,
    support::{Client, Origin, Spec, certificates::Certificates, origin::OK, run},
};

/// A request, as far as no version differs in it.
struct Logical {
    method: &'static str,
    target: &'static str,
    /// With the usual spelling of known names: HTTP/2 has no other, and they are written so.
    fields: &'static [(&'static str, &'static str)],
    /// Its body, and whether the head states the length.
    body: Option<(&'static str, bool)>,
}

const REQUESTS: &[Logical] = &[
    Logical { method: "GET", target: "/", fields: &[], body: None },
    Logical {
        method: "GET",
        target: "/a/../b/./%7euser//c?x=1&y=%2F",
        fields: &[("Accept", "text/html"), ("x-empty", ""), ("x-twice", "1"), ("x-twice", "2")],
        body: None,
    },
    Logical {
        method: "HEAD",
        target: "/head",
        fields: &[("Cookie", "a=1; b=2"), ("User-Agent", "test"), ("Authorization", "Basic eA==")],
        body: None,
    },
    Logical { method: "OPTIONS", target: "/options", fields: &[("Origin", "https://b.example")], body: None },
    Logical { method: "DELETE", target: "/none", fields: &[], body: Some(("", true)) },
    Logical {
        method: "POST",
        target: "/stated",
        fields: &[
            ("Content-Type", "text/plain"),
            ("X-Forwarded-For", "192.0.2.7"),
            ("x-auth-subject", "root"),
        ],
        body: Some(("hello", true)),
    },
    Logical {
        method: "PUT",
        target: "/unstated",
        fields: &[("TE", "trailers")],
        body: Some(("hello", false)),
    },
    Logical { method: "PROPFIND", target: "/extended", fields: &[("depth", "1")], body: None },
];

impl Logical {
    fn http1(&self) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: a.example\r\n", self.method, self.target);
        for (name, value) in self.fields {
            // `TE` concerns the connection (RFC 9110 §10.1.4).
            let option = if *name == "TE" { "connection: te\r\n" } else { "" };
            text.push_str(&format!("{option}{name}: {value}\r\n"));
        }
        match self.body {
            None => text.push_str("\r\n"),
            Some((body, true)) => text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len())),
            Some((body, false)) => text.push_str(&format!(
                "transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            )),
        }
        text
    }

    async fn send_http2(&self, client: &mut http2::Client, scheme: &str) {
        let mut request = http2::request(self.method, &format!("{scheme}://a.example{}", self.target));
        for (name, value) in self.fields {
            request = request.header(*name, *value);
        }
        if let Some((body, true)) = self.body {
            request = request.header("content-length", body.len());
        }
        std::future::poll_fn(|cx| client.send.poll_ready(cx)).await.unwrap();
        let has_body = self.body.is_some();
        let (response, mut upload) = client.send.send_request(request.body(()).unwrap(), !has_body).unwrap();
        if let Some((body, _)) = self.body {
            upload.send_data(Bytes::from_static(body.as_bytes()), true).unwrap();
        }
        assert_eq!(http2::collect(response).await.unwrap().status, 200, "{} {}", self.method, self.target);
    }
}

/// What the service got, without what names the version, the transport and the request.
fn received(origin: &Origin, already: &mut Vec<usize>) -> String {
    let connections = origin.received();
    already.resize(connections.len(), 0);
    let mut new = String::new();
    for (bytes, seen) in connections.iter().zip(already) {
        new.push_str(&String::from_utf8_lossy(&bytes[*seen..]));
        *seen = bytes.len();
    }
    let differs = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["x-request-id: ", "x-forwarded-proto: ", "x-forwarded-port: "]
            .iter()
            .any(|name| line.starts_with(name))
    };
    new.split("\r\n")
        .filter(|line| !differs(line))
        .map(|line| line.replace("via: 2 ", "via: 1.1 ").replace("Via: 2 ", "Via: 1.1 "))
        .collect::<Vec<_>>()
        .join("\r\n")
}

#[test]
fn a_service_gets_the_same_request_by_every_version_and_transport() {
    run(async {
        let origin = Origin::answering(OK).await;
        let certificates = Certificates::new();
        let plain = "[[listener]]\nname = 'plain'\naddress = '127.0.0.1:0'\nh2c = true";
        let mut gateway = Spec::to(&origin).with(certificates.listener()).with(plain).start().await;
        let plain = gateway.listen("plain");
        let tcp = || TcpStream::connect(gateway.address);
        let secure = certificates.connect(tcp().await.unwrap(), "a.example", &["http/1.1"]).await;
        let mut http1 = [Client::over(secure), Client::connect(plain).await];
        let (send, connection) =
            h2::client::handshake(TcpStream::connect(plain).await.unwrap()).await.unwrap();
        let h2c = http2::Client { send, connection: tokio::spawn(connection) };
        let mut http2 =
            [(http2::connect(&gateway, &certificates, "a.example").await, "https"), (h2c, "http")];
        let mut already = Vec::new();
        for request in REQUESTS {
            let mut seen = Vec::new();
            for client in &mut http1 {
                client.send(request.http1()).await;
                let response = client.try_response(request.method == "HEAD").await.unwrap();
                assert_eq!(response.status, 200, "{}", request.http1());
                seen.push(received(&origin, &mut already));
            }
            for (client, scheme) in &mut http2 {
                request.send_http2(client, scheme).await;
                seen.push(received(&origin, &mut already));
            }
            assert!(seen[0].starts_with(request.method) && seen[0].contains("a.example"), "{}", seen[0]);
            for other in &seen[1..] {
                assert_eq!(*other, seen[0]);
            }
        }
    });
}

//! The cost of a request with its response on a warm HTTP/2 connection, both ends of it, compared with the `h2` crate:
//! `cargo bench -p cardea-http --bench h2`.
//!
//! Our own ends exchange bytes by calls; the crate's need a pipe and tasks, which are part of what a program pays for it.
#![expect(clippy::expect_used, reason = "both ends keep to the protocol")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bench_measure::{Case, Suite};
use bytes::Bytes;
use cardea_http::h2::{Client, Config, Connection, Event, Server};
use cardea_http::{Known, RequestHead, ResponseHead};

const NOW: Duration = Duration::from_secs(1);

/// The fields of a program's request, beside the pseudo-header fields.
const REQUEST: [(&str, &str); 6] = [
    ("user-agent", "orders-sync/2.14.1"),
    ("accept", "application/json"),
    ("accept-encoding", "gzip, deflate, br"),
    ("content-type", "application/json"),
    (
        "authorization",
        "Bearer eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL2lkIn0.QUJDREVGR0hJSktM",
    ),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
];

const RESPONSE: [(&str, &str); 5] = [
    ("date", "Sat, 21 Nov 2026 08:00:00 GMT"),
    ("content-type", "application/json; charset=utf-8"),
    ("content-length", "200"),
    ("cache-control", "private, max-age=0"),
    ("vary", "Accept-Encoding"),
];

const CONTENT: [u8; 200] = [b'x'; 200];

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    suite.case("h2-exchange", |case| {
        ours(case);
        the_crate(case);
    });
}

fn ours(case: &mut Case<'_>) {
    let config = Arc::new(Config::default());
    let mut client = Connection::<Client>::new(Arc::clone(&config), NOW);
    let mut server = Connection::<Server>::new(config, NOW);
    let (mut request, mut received) = (RequestHead::default(), RequestHead::default());
    let (mut response, mut answer) = (ResponseHead::new(200), ResponseHead::default());
    request.set_target(b"/api/v1/tenants/4711/orders?expand=lines");
    request.fields.append_known(Known::Host, b"api.example.com").expect("the field is valid");
    for (name, value) in REQUEST {
        request.fields.append(name.as_bytes(), value.as_bytes()).expect("the field is valid");
    }
    for (name, value) in RESPONSE {
        response.fields.append(name.as_bytes(), value.as_bytes()).expect("the field is valid");
    }
    case.counted("cardea", move || {
        let opened = client.open(black_box(&request), None, true).expect("a stream is free");
        let mut found = 0;
        while found < CONTENT.len() {
            // The server takes everything, and answers.
            let mut at = 0;
            loop {
                let input = client.output().get(at..).unwrap_or_default();
                let step = server.receive(NOW, input, &mut received).expect("the client is valid");
                at += step.taken;
                match step.event {
                    Some(Event::Head { stream, .. }) => {
                        server.send_response(stream, &response, false).expect("the stream is open");
                        server.send_data(stream, &CONTENT, true).expect("the stream is open");
                    }
                    None if step.taken == 0 => break,
                    _ => {}
                }
            }
            client.sent(at);
            let mut at = 0;
            loop {
                let input = server.output().get(at..).unwrap_or_default();
                let step = client.receive(NOW, input, &mut answer).expect("the server is valid");
                at += step.taken;
                match step.event {
                    Some(Event::Data { stream, bytes, .. }) => {
                        found += bytes.len();
                        let count = bytes.len();
                        client.release(stream, count);
                    }
                    None if step.taken == 0 => break,
                    _ => {}
                }
            }
            server.sent(at);
        }
        opened as usize + found
    });
}

fn the_crate(case: &mut Case<'_>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let client = runtime.block_on(async {
        let (one, two) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let mut server = h2::server::handshake(two).await.expect("the client is valid");
            while let Some(Ok((request, mut respond))) = server.accept().await {
                black_box(&request);
                let mut response = http::Response::new(());
                for (name, value) in RESPONSE {
                    let value = http::HeaderValue::from_static(value);
                    response.headers_mut().append(http::HeaderName::from_static(name), value);
                }
                let mut stream = respond.send_response(response, false).expect("the stream is open");
                stream.send_data(Bytes::from_static(&CONTENT), true).expect("the stream is open");
            }
        });
        let (client, connection) = h2::client::handshake(one).await.expect("the server is valid");
        tokio::spawn(connection);
        client
    });
    case.counted("h2-crate", || {
        runtime.block_on(async {
            let mut client = client.clone().ready().await.expect("a stream is free");
            let target = "https://api.example.com/api/v1/tenants/4711/orders?expand=lines";
            let mut request = http::Request::get(target).body(()).expect("the target is valid");
            for (name, value) in REQUEST {
                let mut value = http::HeaderValue::from_static(value);
                value.set_sensitive(name == "authorization");
                request.headers_mut().append(http::HeaderName::from_static(name), value);
            }
            let (response, _) = client.send_request(request, true).expect("the request is valid");
            let mut body = response.await.expect("the server is valid").into_body();
            let mut found = 0;
            while let Some(Ok(data)) = body.data().await {
                found += data.len();
                body.flow_control().release_capacity(data.len()).expect("no more than was received");
            }
            found
        })
    });
}

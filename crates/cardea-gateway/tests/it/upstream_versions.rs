//! The same exchange over both versions of HTTP, to services of both: everybody sees the same.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio::net::TcpStream;

use crate::{
    http2,
    support::{
        Client, Harness, Origin, Spec,
        certificates::Certificates,
        client::headers,
        http2_origin::{HTTP2, origin, read},
        run,
    },
};

/// A request and its response, whatever carries them.
#[derive(Debug, Clone, Default)]
struct Case {
    method: &'static str,
    target: &'static str,
    fields: &'static [(&'static str, &'static str)],
    body: &'static [u8],
    /// Whether the length of the body is in the head.
    has_length: bool,
    trailers: &'static [(&'static str, &'static str)],
    answer: Answer,
}

#[derive(Debug, Clone, Default)]
struct Answer {
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: &'static [u8],
    trailers: &'static [(&'static str, &'static str)],
}

/// A message as its receiver sees it, but for what belongs to a version or to a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    line: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
}

/// What frames a message, and what differs from one exchange to the next.
const IGNORED: [&str; 10] = [
    "content-length",
    "transfer-encoding",
    "trailer",
    "connection",
    "te",
    "host",
    "via",
    "date",
    "x-request-id",
    "traceparent",
];

fn seen(
    line: String,
    fields: impl IntoIterator<Item = (String, String)>,
    body: Vec<u8>,
    trailers: impl IntoIterator<Item = (String, String)>,
) -> Seen {
    let mut fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !IGNORED.contains(&name.as_str()))
        .collect();
    fields.sort();
    let mut trailers: Vec<_> =
        trailers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    trailers.sort();
    Seen { line, fields, body, trailers }
}

fn of_text(text: &str) -> Vec<(String, String)> {
    let lines = text.split("\r\n").filter_map(|line| line.split_once(": "));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn of_map(map: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

fn to_map(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    map
}

fn lines(fields: &[(&str, &str)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// Content and trailers in chunks.
fn chunked(body: &[u8], trailers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in body.chunks(3) {
        bytes.extend(format!("{:x}\r\n", part.len()).bytes().chain(part.iter().copied()).chain(*b"\r\n"));
    }
    bytes.extend(format!("0\r\n{}\r\n", lines(trailers)).bytes());
    bytes
}

type Record = Arc<Mutex<Vec<Seen>>>;

async fn http1_service(answer: Answer, record: Record) -> Origin {
    Origin::start(move |mut visit| {
        let (answer, record) = (answer.clone(), Arc::clone(&record));
        async move {
            loop {
                let request = visit.request().await?;
                let (line, fields) = request.head.split_once("\r\n").unwrap();
                let (method, rest) = line.split_once(' ').unwrap();
                let target = rest.split_once(' ').unwrap().0;
                let host = headers(&request.head, "host")[0].to_owned();
                let line = format!("{method} {host} {target}");
                record.lock().unwrap().push(seen(
                    line,
                    of_text(fields),
                    request.body,
                    of_text(&request.trailers),
                ));
                let mut bytes =
                    format!("HTTP/1.1 {} Some\r\n{}", answer.status, lines(answer.fields)).into_bytes();
                let has_body = !matches!(answer.status, 204 | 304);
                if has_body {
                    bytes.extend(b"transfer-encoding: chunked\r\n");
                }
                bytes.extend(b"\r\n");
                if has_body && method != "HEAD" {
                    bytes.extend(chunked(answer.body, answer.trailers));
                }
                visit.send(bytes).await?;
            }
        }
    })
    .await
}

async fn http2_service(answer: Answer, record: Record) -> Origin {
    origin(move |request, mut response| {
        let (answer, record) = (answer.clone(), Arc::clone(&record));
        async move {
            let (head, mut body) = request.into_parts();
            let (bytes, trailers) = read(&mut body).await?;
            let target = head.uri.path_and_query().unwrap().to_string();
            let line = format!("{} {} {target}", head.method, head.uri.authority().unwrap());
            record.lock().unwrap().push(seen(
                line,
                of_map(&head.headers),
                bytes,
                of_map(&trailers.unwrap_or_default()),
            ));
            let mut reply = Response::builder().status(answer.status).body(()).unwrap();
            *reply.headers_mut() = to_map(answer.fields);
            let is_empty = answer.body.is_empty() && answer.trailers.is_empty() || head.method == "HEAD";
            let mut stream = response.send_response(reply, is_empty)?;
            if is_empty {
                return Ok(());
            }
            for part in answer.body.chunks(3) {
                stream.send_data(Bytes::from_static(part), false)?;
            }
            stream.send_trailers(to_map(answer.trailers))
        }
    })
    .await
}

async fn over_http1(gateway: &Harness, certificates: &Certificates, case: &Case) -> Seen {
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let mut client = Client::over(certificates.connect(tcp, "a.example", &["http/1.1"]).await);
    let mut head = format!("{} {} HTTP/1.1\r\nHost: a.example\r\n", case.method, case.target);
    head += "TE: trailers\r\nConnection: TE\r\n";
    head += &lines(case.fields);
    let mut bytes;
    if case.has_length {
        bytes = format!("{head}Content-Length: {}\r\n\r\n", case.body.len()).into_bytes();
        bytes.extend(case.body);
    } else if case.body.is_empty() && case.trailers.is_empty() {
        bytes = format!("{head}\r\n").into_bytes();
    } else {
        bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        bytes.extend(chunked(case.body, case.trailers));
    }
    client.send(bytes).await;
    let is_head = case.method == "HEAD";
    let response = if is_head { client.head().await.unwrap() } else { client.response().await };
    let fields = response.head.split_once("\r\n").unwrap().1;
    seen(response.status.to_string(), of_text(fields), response.body.clone(), of_text(&response.trailers))
}

async fn over_http2(gateway: &Harness, certificates: &Certificates, case: &Case) -> Seen {
    let mut client = http2::connect(gateway, certificates, "a.example").await;
    let mut head = http2::request(case.method, &format!("https://a.example{}", case.target));
    head = head.header("te", "trailers");
    for (name, value) in case.fields {
        head = head.header(*name, *value);
    }
    if case.has_length {
        head = head.header("content-length", case.body.len());
    }
    let has_ended = case.body.is_empty() && case.trailers.is_empty();
    let (response, mut stream) = client.send.send_request(head.body(()).unwrap(), has_ended).unwrap();
    if !has_ended {
        for part in case.body.chunks(3) {
            stream.send_data(Bytes::from_static(part), false).unwrap();
        }
        stream.send_trailers(to_map(case.trailers)).unwrap();
    }
    let answer = http2::collect(response).await.unwrap();
    let trailers = answer.trailers.unwrap_or_default();
    seen(answer.status.to_string(), of_map(&answer.headers), answer.body, of_map(&trailers))
}

fn cases() -> Vec<Case> {
    let ok = Answer { status: 200, fields: &[("x-a", "1"), ("x-a", "2")], body: b"hello", trailers: &[] };
    let get = Case { method: "GET", target: "/a?b=%20c", answer: ok.clone(), ..Case::default() };
    let post = Case { method: "POST", body: b"some content", has_length: true, ..get.clone() };
    let with = |answer: Answer| Case { answer, ..get.clone() };
    vec![
        get.clone(),
        Case { method: "HEAD", ..get.clone() },
        Case { method: "QUERY-ALL", ..post.clone() },
        Case { target: "/a/../b/./c?x", ..get.clone() },
        Case { fields: &[("cookie", "a=1; b=2"), ("x-b", "c"), ("accept", "*/*")], ..get.clone() },
        Case { fields: &[("x-auth-subject", "mallory"), ("x-forwarded-for", "1.2.3.4")], ..get.clone() },
        post.clone(),
        Case { has_length: false, ..post.clone() },
        Case { body: b"", ..post.clone() },
        Case { has_length: false, trailers: &[("x-end", "1"), ("x-auth-subject", "m")], ..post.clone() },
        with(Answer { trailers: &[("x-sum", "5"), ("grpc-status", "0")], ..ok.clone() }),
        with(Answer { body: b"", trailers: &[("x-sum", "5")], ..ok.clone() }),
        with(Answer { body: b"", ..ok.clone() }),
        with(Answer { status: 204, body: b"", ..ok.clone() }),
        with(Answer { status: 304, body: b"", fields: &[("etag", "\"a\"")], ..ok.clone() }),
        with(Answer { status: 404, ..ok.clone() }),
        with(Answer { status: 599, ..ok.clone() }),
        with(Answer { fields: &[("set-cookie", "a=1"), ("set-cookie", "b=2")], ..ok }),
    ]
}

#[test]
fn an_exchange_is_the_same_over_both_versions_on_both_sides() {
    run(async {
        let certificates = Certificates::new();
        for case in cases() {
            let mut views = Vec::new();
            for is_http2 in [false, true] {
                let record = Record::default();
                let answer = case.answer.clone();
                let (service, toml) = if is_http2 {
                    (http2_service(answer, Arc::clone(&record)).await, HTTP2)
                } else {
                    (http1_service(answer, Arc::clone(&record)).await, "")
                };
                let gateway = Spec::to(&service).with(certificates.listener()).with(toml).start().await;
                views.push((over_http1(&gateway, &certificates, &case).await, "1.1", is_http2));
                views.push((over_http2(&gateway, &certificates, &case).await, "2", is_http2));
                let requests = record.lock().unwrap().clone();
                assert_eq!(requests.len(), 2, "{case:?}");
                views.extend(requests.into_iter().map(|request| (request, "request", is_http2)));
            }
            let (responses, requests): (Vec<_>, Vec<_>) =
                views.into_iter().partition(|(_, what, _)| *what != "request");
            for group in [responses, requests] {
                for (view, client, is_http2) in &group {
                    assert_eq!(*view, group[0].0, "client {client}, service of HTTP/2: {is_http2}: {case:?}");
                }
            }
        }
    });
}

//! Trailer sections of requests: the same limits over HTTP/1.1 and HTTP/2.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    http2::{self, collect, connect},
    support::{Harness, Origin, certificates::Certificates, run},
};

type Section = Vec<(String, String)>;

fn fields(count: usize, value_bytes: usize) -> Section {
    (0..count).map(|number| (format!("x-{number}"), "v".repeat(value_bytes))).collect()
}

/// The status and the reason of the answer to a request with such a trailer section.
async fn over_http_1(gateway: &Harness, certificates: &Certificates, section: &Section) -> (u16, String) {
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let mut client =
        crate::support::Client::over(certificates.connect(tcp, "a.example", &["http/1.1"]).await);
    let mut request =
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n"
            .to_owned();
    for (name, value) in section {
        write!(request, "{name}: {value}\r\n").unwrap();
    }
    client.send(request + "\r\n").await;
    let response = client.response().await;
    let code = if response.status == 200 { String::new() } else { response.code() };
    (response.status, code)
}

async fn over_http_2(gateway: &Harness, certificates: &Certificates, section: &Section) -> (u16, String) {
    let mut client = connect(gateway, certificates, "a.example").await;
    std::future::poll_fn(|cx| client.send.poll_ready(cx)).await.unwrap();
    let request = http2::request("POST", "https://a.example/").body(()).unwrap();
    let (response, mut stream) = client.send.send_request(request, false).unwrap();
    stream.send_data(Bytes::from_static(b"body"), false).unwrap();
    let mut trailers = HeaderMap::new();
    for (name, value) in section {
        trailers
            .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    stream.send_trailers(trailers).unwrap();
    let answer = collect(response).await.unwrap();
    let code = if answer.status == 200 { String::new() } else { answer.code() };
    (answer.status, code)
}

#[test]
fn a_trailer_section_that_is_too_large_is_refused_over_either_version() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = http2::gateway_with(&origin, "").await;
        for (section, refused) in [
            (fields(1, 10), false),
            (fields(32, 100), false),
            (fields(33, 1), true),
            (fields(100, 30), true),
            (fields(2, 4_000), false),
            (fields(1, 8 * 1024), true),
            (fields(12, 4 * 1024), true),
            (fields(1, 48 * 1024), true),
        ] {
            let what = format!("{} fields of {} bytes", section.len(), section[0].1.len());
            let expected = if refused { (400, "trailers_too_large") } else { (200, "") };
            let one = over_http_1(&gateway, &certificates, &section).await;
            assert_eq!((one.0, one.1.as_str()), expected, "{what} over HTTP/1.1");
            let two = over_http_2(&gateway, &certificates, &section).await;
            assert_eq!((two.0, two.1.as_str()), expected, "{what} over HTTP/2");
        }
    });
}

/// A frame of HTTP/2 on stream 1 (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = u8::from(kind != SETTINGS);
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The answer to a request.
#[derive(Debug, PartialEq)]
enum Answer {
    /// The first octet of the response's head, in HPACK.
    Head(u8),
    /// The error code of RST_STREAM.
    Reset(u8),
}

/// `:status` of 200 in HPACK's static table (RFC 7541, appendix A).
const OK: Answer = Answer::Head(0x88);

/// `PROTOCOL_ERROR` (RFC 9113 §7).
const MALFORMED: Answer = Answer::Reset(1);

/// What answers a request with such a trailer section.
async fn answer_to(gateway: &Harness, certificates: &Certificates, trailers: &[u8]) -> Answer {
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let mut tls = certificates.connect(tcp, "a.example", &["h2"]).await;
    // POST, /, https, and the authority.
    let head = [&[0x83, 0x84, 0x87, 0x01, 9][..], b"a.example"].concat();
    let sent = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, &[]),
        frame(HEADERS, END_HEADERS, &head),
        frame(DATA, 0, b"body"),
        frame(HEADERS, END_HEADERS | END_STREAM, trailers),
    ];
    tls.write_all(&sent.concat()).await.unwrap();
    loop {
        let mut header = [0; 9];
        tls.read_exact(&mut header).await.unwrap();
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        tls.read_exact(&mut payload).await.unwrap();
        match header[3] {
            // Before it may be a change of the table's size.
            HEADERS => return Answer::Head(*payload.iter().find(|octet| **octet >> 5 != 1).unwrap()),
            RST_STREAM => return Answer::Reset(payload[3]),
            _ => {}
        }
    }
}

#[test]
fn a_trailer_section_of_nothing_but_pseudo_header_fields_is_malformed() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = http2::gateway_with(&origin, "").await;
        // A literal with a name of its own, `a: b`: the control.
        assert_eq!(answer_to(&gateway, &certificates, b"\x00\x01a\x01b").await, OK);
        // So is an empty one.
        assert_eq!(answer_to(&gateway, &certificates, b"").await, OK);
        // `:method: GET`, `:status: 200`.
        for pseudo in [0x82, 0x88] {
            assert_eq!(answer_to(&gateway, &certificates, &[pseudo]).await, MALFORMED, "{pseudo:#x}");
        }
    });
}

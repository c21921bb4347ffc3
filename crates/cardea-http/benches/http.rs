//! The cost of parsing and writing a head, compared with the tokenizer alone: `cargo bench -p cardea-http`.
#![expect(clippy::expect_used, reason = "the heads are constant and well-formed")]

use std::hint::black_box;
use std::mem::MaybeUninit;

use bench_measure::{Case, Suite};
use cardea_http::h1::{
    HeadLimits, RequestDecoder, ResponseDecoder, request_framing, write_request_head, write_response_head,
};
use cardea_http::{
    Authority, RequestHead, ResponseHead, Scheme, normalize_path, parse_target, strip_hop_by_hop,
};

/// The request of a load generator.
const SMALL: &[u8] = b"GET /api/v1/orders HTTP/1.1\r\nhost: api.example.com\r\n\r\n";

/// The request of a program with a token.
const API: &[u8] = b"POST /api/v1/tenants/4711/orders?expand=lines HTTP/1.1\r\n\
    Host: api.example.com\r\n\
    User-Agent: orders-sync/2.14.1\r\n\
    Accept: application/json\r\n\
    Accept-Encoding: gzip, deflate, br\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 412\r\n\
    Authorization: Bearer eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL2lkLmV4\
YW1wbGUiLCJhdWQiOiJhcGkiLCJzdWIiOiJhbGljZSIsImV4cCI6MTgwMDAwMDYwMH0.QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZna\
GlqaA\r\n\
    Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
    \r\n";

/// The request of a browser.
const BROWSER: &[u8] = b"GET /orders?page=2&sort=date HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-User: ?1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Referer: https://www.example.com/orders\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08; theme=dark; consent=1\r\n\
    If-None-Match: \"33a64df551425fcc55e4d42a148795d9f25f89d4\"\r\n\
    \r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Sat, 21 Nov 2026 08:00:00 GMT\r\n\
    Content-Type: application/json; charset=utf-8\r\n\
    Content-Length: 1874\r\n\
    Cache-Control: private, max-age=0\r\n\
    ETag: \"33a64df551425fcc55e4d42a148795d9f25f89d4\"\r\n\
    Vary: Accept-Encoding\r\n\
    \r\n";

/// The number of fields that `cardea-http` allows the tokenizer.
const FIELDS_MAX: usize = 256;

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    for (name, bytes) in [("small", SMALL), ("api", API), ("browser", BROWSER)] {
        suite.case(&format!("request-head-{name}"), |case| request_head(case, bytes));
    }
    suite.case("response-head", response_head);
    suite.case("request-normalise", normalise);
    for (name, path) in [
        ("normal", &b"/api/v1/tenants/4711/orders"[..]),
        ("escaped", b"/api/v1/%74enants//4711/./orders/../%6Frders"),
    ] {
        suite.case(&format!("path-{name}"), |case| {
            let mut out = Vec::with_capacity(256);
            case.counted("cardea", move || {
                normalize_path(black_box(path), &mut out).expect("the path is valid");
                out.len()
            });
        });
    }
    suite.case("write-request-head", |case| {
        let (head, mut out) = (decoded(API), Vec::with_capacity(2048));
        case.counted("cardea", move || {
            out.clear();
            write_request_head(&mut out, head.method, head.target(), &head.fields);
            out.len()
        });
    });
    suite.case("write-response-head", |case| {
        let (mut head, mut out) = (ResponseHead::default(), Vec::with_capacity(2048));
        let read = ResponseDecoder::new(HeadLimits::default()).decode(RESPONSE, &mut head);
        read.expect("the head is valid").expect("the head is complete");
        case.counted("cardea", move || {
            out.clear();
            write_response_head(&mut out, head.status, &head.fields);
            out.len()
        });
    });
}

/// Cardea validates the head and copies it into its own; the tokenizer does neither.
fn request_head(case: &mut Case<'_>, bytes: &'static [u8]) {
    let (mut decoder, mut head) = (RequestDecoder::new(HeadLimits::default()), RequestHead::default());
    case.counted("cardea", || decoder.decode(black_box(bytes), &mut head).expect("the head is valid"));
    case.counted("httparse-alone", || {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_request_with_uninit_headers(
            &mut request,
            black_box(bytes),
            &mut fields,
        );
        parsed.map(|_| request.headers.len()).expect("the head is valid")
    });
}

fn response_head(case: &mut Case<'_>) {
    let (mut decoder, mut head) = (ResponseDecoder::new(HeadLimits::default()), ResponseHead::default());
    case.counted("cardea", || decoder.decode(black_box(RESPONSE), &mut head).expect("the head is valid"));
    case.counted("httparse-alone", || {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            black_box(RESPONSE),
            &mut fields,
        );
        parsed.map(|_| response.headers.len()).expect("the head is valid")
    });
}

/// The steps between a parsed head and one that can be routed: framing, target, authority, path, hop-by-hop fields.
fn normalise(case: &mut Case<'_>) {
    let mut head = decoded(API);
    let (mut path, mut authority) = (Vec::with_capacity(256), Authority::default());
    case.counted("cardea", || {
        request_framing(&head).expect("the framing is valid");
        let target = parse_target(head.method, black_box(&head).target()).expect("the target is valid");
        normalize_path(target.path, &mut path).expect("the path is valid");
        let host = head.fields.get(cardea_http::Known::Host).unwrap_or_default();
        authority.parse_into(host, Scheme::Https).expect("the authority is valid");
        strip_hop_by_hop(&mut head.fields).expect("the fields are valid");
        path.len() + authority.as_str().len()
    });
}

fn decoded(bytes: &[u8]) -> RequestHead {
    let mut head = RequestHead::default();
    let read = RequestDecoder::new(HeadLimits::default()).decode(bytes, &mut head);
    read.expect("the head is valid").expect("the head is complete");
    head
}

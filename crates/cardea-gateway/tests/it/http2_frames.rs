//! HTTP/2 frame by frame: what no client library sends, and what it does not show.

use std::sync::Arc;

use cardea_http::{
    Fields,
    h2::{
        ErrorCode,
        frame::{
            Flags, FrameHeader, FrameType, HEADER_LEN, PREFACE, goaway_payload, write_ping, write_rst_stream,
            write_settings, write_settings_ack,
        },
        hpack::{Decoder, FieldLine},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
};
use tokio_rustls::client::TlsStream;

use crate::{
    http2::gateway_with,
    support::{Harness, Origin, certificates::Certificates, get, origin::OK, run, until},
};

const DONE: Flags = Flags::END_HEADERS;
const END: Flags = Flags::END_STREAM;

const MAX_HEADER_LIST_SIZE: u16 = 6;

/// A client's end of a connection.
struct Wire {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
}

#[derive(Debug)]
struct Frame {
    kind: FrameType,
    flags: Flags,
    stream: u32,
    payload: Vec<u8>,
}

/// A block of lines as they stand, sound or not.
fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in lines {
        // A literal without indexing, of strings below 127 bytes.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn frame(kind: FrameType, flags: Flags, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader { len: payload.len(), kind, flags, stream }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

/// HEADERS of a request for `path` without content, with further lines.
fn request(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut lines =
        vec![(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", path)];
    lines.extend_from_slice(more);
    frame(FrameType::Headers, DONE.and(END), stream, &block(&lines))
}

impl Wire {
    async fn connect(gateway: &Harness, certificates: &Certificates, settings: &[(u16, u32)]) -> Self {
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let stream = certificates.connect(tcp, "a.example", &["h2"]).await;
        let mut wire = Self { stream, decoder: Decoder::default() };
        let mut hello = PREFACE.to_vec();
        write_settings(settings, &mut hello);
        // Not yet received, but awaited for as long as a head: else the wait for it would end first.
        write_settings_ack(&mut hello);
        wire.send(&hello).await;
        wire
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next frame that is not about windows and settings. None at the end of the connection.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut header = [0; HEADER_LEN];
            self.stream.read_exact(&mut header).await.ok()?;
            let header = FrameHeader::parse(&header).unwrap().unwrap();
            let mut payload = vec![0; header.len];
            self.stream.read_exact(&mut payload).await.ok()?;
            if !matches!(header.kind, FrameType::Settings | FrameType::WindowUpdate | FrameType::Ping) {
                return Some(Frame {
                    kind: header.kind,
                    flags: header.flags,
                    stream: header.stream,
                    payload,
                });
            }
        }
    }

    /// The status and the fields of a response's head.
    fn head(&mut self, frame: &Frame) -> (u16, Fields) {
        assert_eq!(frame.kind, FrameType::Headers, "{frame:?}");
        let (mut status, mut fields) = (0, Fields::default());
        let mut take = |line: &FieldLine<'_>| match line.name {
            b":status" => status = std::str::from_utf8(line.value).unwrap().parse().unwrap(),
            _ => fields.append(line.name, line.value).unwrap(),
        };
        self.decoder.decode(&frame.payload, &mut take).unwrap();
        (status, fields)
    }

    /// The status of the response on `stream`, which is the next to come, read to its end.
    async fn status(&mut self, stream: u32) -> u16 {
        let mut frame = self.next().await.unwrap();
        assert_eq!(frame.stream, stream, "{frame:?}");
        let (status, _) = self.head(&frame);
        while !frame.flags.has(END) {
            frame = self.next().await.unwrap();
        }
        status
    }

    /// Reads until the connection is closed; the code of GOAWAY before it.
    async fn goaway(&mut self) -> ErrorCode {
        let mut code = None;
        while let Some(frame) = self.next().await {
            if frame.kind == FrameType::GoAway {
                code = Some(goaway_payload(&frame.payload).1);
            }
        }
        code.expect("GOAWAY")
    }
}

/// An origin that answers `/held` when it is told to.
async fn holding() -> (Origin, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |mut visit| {
        let held = Arc::clone(&held);
        async move {
            loop {
                if visit.request().await?.line().contains("/held") {
                    held.acquire().await.unwrap().forget();
                }
                visit.send(OK).await?;
            }
        }
    })
    .await;
    (origin, gate)
}

#[test]
fn a_malformed_request_resets_its_stream_alone_and_is_recorded() {
    run(async {
        let (origin, gate) = holding().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut wire = Wire::connect(&gateway, &certificates, &[]).await;
        wire.send(&request(1, "/held", &[])).await;
        origin.until(|text| text.contains("/held")).await;
        let malformed = [
            (("x", "a\rb"), "field_value_invalid"),
            (("X-Upper", "a"), "field_name_invalid"),
            (("x y", "a"), "field_name_invalid"),
            ((":path", "/"), "pseudo_header_repeated"),
            ((":status", "200"), "pseudo_header_undefined"),
            (("connection", "close"), "connection_field_in_http2"),
            (("content-length", "5"), "body_length_disagrees"),
        ];
        for (at, (line, code)) in malformed.iter().enumerate() {
            let stream = 3 + 2 * u32::try_from(at).unwrap();
            wire.send(&request(stream, "/", &[*line])).await;
            let frame = wire.next().await.unwrap();
            assert_eq!((frame.kind, frame.stream), (FrameType::RstStream, stream), "{code}: {frame:?}");
            assert_eq!(frame.payload, [0, 0, 0, 1], "{code}");
            let lines = gateway.log(at + 1).await;
            assert_eq!(
                (&lines[at]["reason"], &lines[at]["http.response.status_code"]),
                (&(*code).into(), &400.into())
            );
            let metric = format!(
                "cardea_refused_requests_total{{reason=\"{code}\",http_response_status_code=\"400\"}}"
            );
            assert!(gateway.metric(&metric) > 0, "{metric}");
        }
        gate.add_permits(1);
        assert_eq!(wire.status(1).await, 200, "the innocent stream goes on");
        wire.send(&request(21, "/", &[("x", "a b")])).await;
        assert_eq!(wire.status(21).await, 200, "the control");
    });
}

#[test]
fn a_path_with_a_fragment_is_refused_as_over_http_1() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut wire = Wire::connect(&gateway, &certificates, &[]).await;
        for (stream, path, status) in [(1, "/a#b", 400), (3, "/a?b#c", 400), (5, "/a?b=%23c", 200)] {
            wire.send(&request(stream, path, &[])).await;
            assert_eq!(wire.status(stream).await, status, "{path}");
        }
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let mut one = certificates.connect(tcp, "a.example", &["http/1.1"]).await;
        one.write_all(get("/a#b").as_bytes()).await.unwrap();
        let mut response = [0; 12];
        one.read_exact(&mut response).await.unwrap();
        assert_eq!(&response, b"HTTP/1.1 400");
        let lines = gateway.log(4).await;
        assert!([0, 1, 3].iter().all(|at| lines[*at]["reason"] == "target_fragment"), "{lines:#?}");
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn many_crumbs_of_a_cookie_are_one_header() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut wire = Wire::connect(&gateway, &certificates, &[]).await;
        let crumbs: Vec<_> = (0..120).map(|number| format!("c{number}=1")).collect();
        let lines: Vec<_> = crumbs.iter().map(|crumb| ("cookie", crumb.as_str())).collect();
        wire.send(&request(1, "/", &lines)).await;
        assert_eq!(wire.status(1).await, 200);
        let text = origin.text().to_lowercase();
        assert_eq!(text.matches("\r\ncookie: ").count(), 1);
        assert!(text.contains(&format!("\r\ncookie: {}\r\n", crumbs.join("; "))), "{text}");
        // As many other fields are too many.
        let names: Vec<_> = (0..120).map(|number| format!("x-{number}")).collect();
        let lines: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
        wire.send(&request(3, "/", &lines)).await;
        assert_eq!(wire.status(3).await, 431, "the control");
    });
}

#[test]
fn the_end_of_a_response_comes_with_its_last_content() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            loop {
                let chunked = visit.request().await?.line().contains("/chunked");
                let response = if chunked {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
                } else {
                    OK
                };
                visit.send(response).await?;
            }
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut wire = Wire::connect(&gateway, &certificates, &[]).await;
        // From the service, in both framings, and from the gateway itself.
        for (stream, path) in [(1, "/"), (3, "/chunked"), (5, "/api")] {
            wire.send(&request(stream, path, &[])).await;
            let head = wire.next().await.unwrap();
            wire.head(&head);
            let data = wire.next().await.unwrap();
            assert_eq!((data.kind, data.flags.has(END)), (FrameType::Data, true), "{path}: {data:?}");
            assert!(!data.payload.is_empty(), "{path}");
        }
    });
}

#[test]
fn a_head_that_is_not_finished_in_time_ends_the_connection() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "timeouts.request_head = '2s'").await;
        let get = [0x82, 0x87, 0x84];
        let begun = frame(FrameType::Headers, END, 1, &get);
        let within_a_frame = frame(FrameType::Headers, DONE, 1, &[0; 100])[..50].to_vec();
        for (at, begun) in [begun, within_a_frame].into_iter().enumerate() {
            let mut wire = Wire::connect(&gateway, &certificates, &[]).await;
            wire.send(&begun).await;
            assert_eq!(wire.goaway().await, ErrorCode::EnhanceYourCalm);
            let lines = gateway.log(at + 1).await;
            assert_eq!(lines[at]["reason"], "request_head_timeout");
        }
        // One that says nothing is closed too, and has made no request.
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let stream = certificates.connect(tcp, "a.example", &["h2"]).await;
        let mut silent = Wire { stream, decoder: Decoder::default() };
        assert_eq!(silent.goaway().await, ErrorCode::EnhanceYourCalm);
        gateway.log(2).await;
    });
}

#[test]
fn floods_end_the_connection_and_are_recorded() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let (mut settings, mut ping) = (Vec::new(), Vec::new());
        write_settings(&[], &mut settings);
        write_ping(false, [0; 8], &mut ping);
        let floods = [
            (settings, 19, "http2_settings_flood"),
            (ping, 100, "http2_ping_flood"),
            (frame(FrameType::Priority, Flags::default(), 7, &[0, 0, 0, 1, 0]), 100, "http2_useless_frames"),
        ];
        for (at, (each, few, code)) in floods.into_iter().enumerate() {
            let mut wire = Wire::connect(&gateway, &certificates, &[]).await;
            wire.send(&each.repeat(few)).await;
            wire.send(&request(1, "/", &[])).await;
            assert_eq!(wire.status(1).await, 200, "the control: {few} are allowed");
            let flood = each.repeat(3000);
            let (mut reader, mut writer) = tokio::io::split(wire.stream);
            let sending = tokio::spawn(async move { writer.write_all(&flood).await });
            let mut received = Vec::new();
            let _ = reader.read_to_end(&mut received).await;
            let _ = sending.await;
            let lines = gateway.log(2 * at + 2).await;
            assert_eq!(lines[2 * at + 1]["reason"], code);
        }
    });
}

#[test]
fn a_client_that_resets_its_streams_uses_up_no_connections_to_the_service_and_is_stopped() {
    run(async {
        let (origin, gate) = holding().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut wire = Wire::connect(&gateway, &certificates, &[]).await;
        let model = gateway.gateway.model();
        let state = model.services[0].live.state();
        let kept = || state.endpoints().map(|(_, endpoint)| endpoint.pool().len()).sum::<usize>();
        let mut reset = Vec::new();
        for round in 0..20_u32 {
            let stream = 2 * round + 1;
            wire.send(&request(stream, "/held", &[])).await;
            let count = round as usize + 1;
            origin.until(|text| text.matches("/held").count() == count).await;
            reset.clear();
            write_rst_stream(stream, ErrorCode::Cancel, &mut reset);
            wire.send(&reset).await;
            assert_eq!(gateway.log(count).await[count - 1]["reason"], "client_aborted");
            gate.add_permits(1);
            until("the connection is used again", || kept() == 1).await;
        }
        assert_eq!(origin.connections(), 1);
        // A stream that was reset before anything was done for it reaches nobody. In the end, the client is stopped.
        let mut flood = Vec::new();
        for stream in (41..2_041).step_by(2) {
            flood.extend_from_slice(&request(stream, "/", &[]));
            write_rst_stream(stream, ErrorCode::Cancel, &mut flood);
        }
        let (mut reader, mut writer) = tokio::io::split(wire.stream);
        let sending = tokio::spawn(async move { writer.write_all(&flood).await });
        let mut received = Vec::new();
        let _ = reader.read_to_end(&mut received).await;
        let _ = sending.await;
        until("it is recorded", || gateway.log_text().contains("\"http2_resets\"")).await;
        assert!(origin.connections() <= 3, "{} connections", origin.connections());
    });
}

#[test]
fn a_response_head_that_the_client_does_not_accept_resets_its_stream() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            loop {
                let large = visit.request().await?.line().contains("/large");
                let value = "v".repeat(if large { 1_000 } else { 10 });
                visit.send(format!("HTTP/1.1 200 OK\r\nX: {value}\r\nContent-Length: 2\r\n\r\nok")).await?;
            }
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut wire = Wire::connect(&gateway, &certificates, &[(MAX_HEADER_LIST_SIZE, 1_000)]).await;
        wire.send(&request(1, "/large", &[])).await;
        let frame = wire.next().await.unwrap();
        assert_eq!((frame.kind, &frame.payload[..]), (FrameType::RstStream, &[0, 0, 0, 2][..]));
        wire.send(&request(3, "/small", &[])).await;
        assert_eq!(wire.status(3).await, 200, "the control");
        assert_eq!(gateway.log(2).await[0]["reason"], "http2_response_too_large");
    });
}

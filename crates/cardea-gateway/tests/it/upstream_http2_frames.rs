//! What services of HTTP/2 may do to the gateway, frame by frame.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use cardea_upstream::Address;

use crate::{
    http2,
    support::{
        Origin, Spec,
        certificates::Certificates,
        get,
        http2_origin::{
            DATA, END_STREAM, Frames, GOAWAY, HEADERS, HTTP2, PING, RST_STREAM, SETTINGS, frame, head,
        },
        run, until,
    },
};

/// The fields of a head.
type HeadFields = &'static [(&'static str, &'static str)];

const OK: HeadFields = &[(":status", "200")];

/// The code of RST_STREAM and GOAWAY that says that nothing was processed.
const REFUSED: [u8; 4] = [0, 0, 0, 7];

const POST: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn what_an_endpoint_has_not_processed_is_sent_again_whatever_the_method() {
    run(async {
        // The first connection goes away in different ways; the second serves.
        for way in ["goaway", "refused", "graceful"] {
            let origin = Origin::start(move |visit| async move {
                let index = visit.index;
                let mut frames = Frames::begin(visit.into_stream(), b"").await?;
                loop {
                    let request = frames.next_of(HEADERS).await?;
                    let body = frames.next_of(DATA).await?;
                    assert_eq!((&body.payload[..], body.flags & END_STREAM), (&b"hello"[..], END_STREAM));
                    if index > 0 {
                        frames.send(head(request.stream, true, OK)).await?;
                        continue;
                    }
                    match way {
                        "goaway" => frames.send(frame(GOAWAY, 0, 0, &[0; 8])).await?,
                        "refused" => frames.send(frame(RST_STREAM, 0, request.stream, &REFUSED)).await?,
                        _ => {
                            // First the announcement, then the last stream (RFC 9113 §6.8).
                            let max = [0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
                            frames.send(frame(GOAWAY, 0, 0, &max)).await?;
                            frames.send(frame(GOAWAY, 0, 0, &[0; 8])).await?;
                        }
                    }
                }
            })
            .await;
            let gateway = Spec::to(&origin).with(HTTP2).start().await;
            let mut client = gateway.client().await;
            assert_eq!(client.exchange(POST).await.status, 200, "{way}");
            assert_eq!(client.exchange(POST).await.status, 200, "{way}");
            assert_eq!(origin.connections(), 2, "{way}");
        }
    });
}

#[test]
fn an_endpoint_that_refuses_everything_is_reported() {
    run(async {
        let origin = Origin::start(|visit| async move {
            let mut frames = Frames::begin(visit.into_stream(), b"").await?;
            loop {
                let request = frames.next_of(HEADERS).await?;
                frames.send(frame(RST_STREAM, 0, request.stream, &REFUSED)).await?;
            }
        })
        .await;
        let gateway = Spec::to(&origin).with(HTTP2).start().await;
        let response = gateway.client().await.exchange(POST).await;
        assert_eq!((response.status, response.code().as_str()), (503, "upstream_refused"));
    });
}

#[test]
fn what_may_have_been_processed_is_sent_again_only_if_it_may_be() {
    run(async {
        let count = Arc::new(AtomicUsize::new(0));
        let resetting = || {
            let count = Arc::clone(&count);
            Origin::start(move |visit| {
                let count = Arc::clone(&count);
                async move {
                    let mut frames = Frames::begin(visit.into_stream(), b"").await?;
                    loop {
                        let request = frames.next_of(HEADERS).await?;
                        count.fetch_add(1, SeqCst);
                        frames.send(frame(RST_STREAM, 0, request.stream, &[0, 0, 0, 2])).await?;
                    }
                }
            })
        };
        let serving = Origin::start(|visit| async move {
            let mut frames = Frames::begin(visit.into_stream(), b"").await?;
            loop {
                let request = frames.next_of(HEADERS).await?;
                frames.send(head(request.stream, true, OK)).await?;
            }
        })
        .await;
        let failing = resetting().await;
        let both = [&failing, &serving].map(|origin| Address::Tcp(origin.address));
        let gateway = Spec::to_addresses(both).with(HTTP2).start().await;
        let mut client = gateway.client().await;
        while failing.connections() == 0 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        let before = count.load(SeqCst);
        let failing = resetting().await;
        let gateway = Spec::to(&failing).with(HTTP2).start().await;
        let response = gateway.client().await.exchange(POST).await;
        assert_eq!((response.status, response.code().as_str()), (502, "upstream_aborted"));
        assert_eq!(count.load(SeqCst), before + 1, "sent once");
    });
}

/// Whatever it says after it has begun to respond.
#[test]
fn an_endpoint_that_has_begun_a_response_has_processed_the_request() {
    run(async {
        for status in ["200", "103"] {
            let count = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&count);
            let origin = Origin::start(move |visit| {
                let count = Arc::clone(&counted);
                async move {
                    let mut frames = Frames::begin(visit.into_stream(), b"").await?;
                    loop {
                        let request = frames.next_of(HEADERS).await?;
                        count.fetch_add(1, SeqCst);
                        frames.send(head(request.stream, false, &[(":status", status)])).await?;
                        frames.send(frame(RST_STREAM, 0, request.stream, &[0, 0, 0, 7])).await?;
                    }
                }
            })
            .await;
            let gateway = Spec::to(&origin).with(HTTP2).start().await;
            let mut client = gateway.client().await;
            client.send(POST).await;
            gateway.log(1).await;
            assert_eq!(count.load(SeqCst), 1, "sent once: {status}");
        }
    });
}

#[test]
fn a_connection_that_dies_ends_its_streams_at_once() {
    run(async {
        let origin = Origin::start(|visit| async move {
            let index = visit.index;
            let mut frames = Frames::begin(visit.into_stream(), b"").await?;
            let request = frames.next_of(HEADERS).await?;
            if index == 0 {
                frames.send(head(request.stream, true, OK)).await?;
                frames.next_of(HEADERS).await?;
                return Ok(());
            }
            frames.send(head(request.stream, true, OK)).await?;
            frames.closed().await
        })
        .await;
        let gateway = Spec::to(&origin).with(HTTP2).start().await;
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/")).await.status, 200);
        assert_eq!(client.exchange(get("/")).await.status, 200, "over a new one");
        assert_eq!(origin.connections(), 2);
    });
}

#[test]
fn a_malformed_response_is_a_502_and_ends_no_other_stream() {
    run(async {
        const CASES: &[(&str, HeadFields, &[u8])] = &[
            ("an uppercase name", &[(":status", "200"), ("X-A", "b")], b""),
            ("no status", &[("x-a", "b")], b""),
            ("two statuses", &[(":status", "200"), (":status", "200")], b""),
            ("an unknown pseudo-header field", &[(":status", "200"), (":path", "/")], b""),
            ("a status that is none", &[(":status", "2000")], b""),
            ("a field of a connection", &[(":status", "200"), ("connection", "close")], b""),
            ("a transfer coding", &[(":status", "200"), ("transfer-encoding", "chunked")], b""),
            ("two lengths", &[(":status", "200"), ("content-length", "1"), ("content-length", "2")], b""),
            ("a line break", &[(":status", "200"), ("x-a", "b\r\nx: y")], b""),
            ("switching protocols", &[(":status", "101")], b""),
            ("more than its length", &[(":status", "200"), ("content-length", "1")], b"hello"),
            ("less than its length", &[(":status", "200"), ("content-length", "9")], b"hello"),
        ];
        let origin = Origin::start(|visit| async move {
            let mut frames = Frames::begin(visit.into_stream(), b"").await?;
            let held = frames.next_of(HEADERS).await?.stream;
            for (_, fields, body) in CASES {
                let stream = frames.next_of(HEADERS).await?.stream;
                frames.send(head(stream, body.is_empty(), fields)).await?;
                if !body.is_empty() {
                    frames.send(frame(DATA, END_STREAM, stream, body)).await?;
                }
                assert_eq!(frames.next_of(RST_STREAM).await?.stream, stream);
            }
            frames.send(head(held, false, OK)).await?;
            frames.send(frame(DATA, END_STREAM, held, b"held")).await?;
            frames.closed().await
        })
        .await;
        let gateway = Spec::to(&origin).with(HTTP2).start().await;
        let mut held = gateway.client().await;
        held.send(get("/held")).await;
        until("the first is under way", || origin.connections() == 1).await;
        for (what, _, body) in CASES {
            let mut client = gateway.client().await;
            client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n").await;
            if body.is_empty() {
                let response = client.response().await;
                assert_eq!(
                    (response.status, response.code().as_str()),
                    (502, "upstream_malformed"),
                    "{what}"
                );
            } else if let Ok(response) = client.try_response(false).await {
                assert_eq!(response.status, 502, "{what}: {response:?}");
            }
        }
        assert_eq!(held.response().await.text(), "held");
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn a_connection_that_is_broken_ends_with_all_of_its_streams() {
    run(async {
        for (what, bytes) in [
            ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()),
            ("no settings", head(1, true, OK)),
            ("a push", [frame(SETTINGS, 0, 0, b""), frame(5, 4, 1, &[0, 0, 0, 2, 0x88])].concat()),
            ("a stream that was not opened", [frame(SETTINGS, 0, 0, b""), head(9, true, OK)].concat()),
            ("a block that is none", [frame(SETTINGS, 0, 0, b""), frame(HEADERS, 5, 1, &[0xFF; 9])].concat()),
        ] {
            let bytes = Arc::new(bytes);
            let origin = Origin::start(move |mut visit| {
                let bytes = Arc::clone(&bytes);
                async move {
                    visit.bytes(24).await?;
                    visit.send(&*bytes).await?;
                    visit.closed().await;
                    Ok(())
                }
            })
            .await;
            let gateway = Spec::to(&origin).with(HTTP2).start().await;
            let response = gateway.client().await.exchange(POST).await;
            assert_eq!((response.status, response.code().as_str()), (502, "upstream_malformed"), "{what}");
            origin.ended(1).await;
        }
    });
}

#[test]
fn floods_are_bounded() {
    run(async {
        let early = head(1, false, &[(":status", "103"), ("x-a", "b")]).repeat(100);
        let many = (0..2_000).fold(vec![(":status", "200")], |mut fields, _| {
            fields.push(("x-abcdefgh", "abcdefghijklmnopqrstuvwxyz"));
            fields
        });
        // In frames of the largest size.
        let block = head(1, false, &many)[9..].to_vec();
        let mut continued = frame(HEADERS, 0, 1, &block[..16_000]);
        for part in block[16_000..].chunks(16_000) {
            continued.extend(frame(9, 0, 1, part));
        }
        continued.extend(frame(9, 4, 1, b""));
        for (what, bytes) in [
            ("early hints", early),
            ("a large head", continued),
            ("pings", frame(PING, 0, 0, &[0; 8]).repeat(2_000)),
            ("settings", frame(SETTINGS, 0, 0, b"").repeat(200)),
            ("empty frames", [head(1, false, OK), frame(DATA, 0, 1, b"").repeat(3_000)].concat()),
        ] {
            let bytes = Arc::new(bytes);
            let origin = Origin::start(move |visit| {
                let bytes = Arc::clone(&bytes);
                async move {
                    let mut frames = Frames::begin(visit.into_stream(), b"").await?;
                    frames.next_of(HEADERS).await?;
                    frames.send(&*bytes).await?;
                    frames.closed().await
                }
            })
            .await;
            let gateway = Spec::to(&origin).with(HTTP2).start().await;
            let response = gateway.client().await.exchange(POST).await;
            assert_eq!((response.status, response.code().as_str()), (502, "upstream_malformed"), "{what}");
        }
    });
}

#[test]
fn a_head_that_the_endpoint_does_not_accept_is_not_sent() {
    run(async {
        let settings = [0, 6, 0, 0, 1, 0];
        let origin = Origin::start(move |visit| async move {
            let mut frames = Frames::begin(visit.into_stream(), &settings).await?;
            loop {
                let request = frames.next_of(HEADERS).await?;
                frames.send(head(request.stream, true, OK)).await?;
            }
        })
        .await;
        let gateway = Spec::to(&origin).with(HTTP2).start().await;
        let mut client = gateway.client().await;
        // The first is sent before the settings are known.
        assert_eq!(client.exchange(get("/")).await.status, 200);
        let long = format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-A: {}\r\n\r\n", "b".repeat(300));
        let response = client.exchange(long).await;
        assert_eq!((response.status, response.code().as_str()), (431, "upstream_request_head_too_large"));
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn a_connection_that_goes_away_serves_what_it_has() {
    run(async {
        let origin = Origin::start(|visit| async move {
            let index = visit.index;
            let mut frames = Frames::begin(visit.into_stream(), b"").await?;
            let request = frames.next_of(HEADERS).await?;
            if index == 0 {
                frames.send(frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).await?;
            }
            frames.send(head(request.stream, false, OK)).await?;
            for _ in 0..10 {
                frames.send(frame(DATA, 0, request.stream, b"x")).await?;
                tokio::task::yield_now().await;
            }
            frames.send(frame(DATA, END_STREAM, request.stream, b"")).await?;
            frames.closed().await
        })
        .await;
        let gateway = Spec::to(&origin).with(HTTP2).start().await;
        let mut client = gateway.client().await;
        for expected in 1..=2 {
            assert_eq!(client.exchange(POST).await.text(), "x".repeat(10));
            assert_eq!(origin.connections(), expected);
        }
        origin.ended(1).await;
    });
}

#[test]
fn a_service_may_respond_before_it_has_the_request() {
    run(async {
        let origin = Origin::start(|visit| async move {
            let mut frames = Frames::begin(visit.into_stream(), b"").await?;
            loop {
                let stream = frames.next_of(HEADERS).await?.stream;
                frames.next_of(DATA).await?;
                // All of the response, and that nothing more is wanted (RFC 9113 §8.1).
                let response = [
                    head(stream, false, &[(":status", "413")]),
                    frame(DATA, END_STREAM, stream, b"too large"),
                    frame(RST_STREAM, 0, stream, &[0; 4]),
                ];
                frames.send(response.concat()).await?;
            }
        })
        .await;
        let certificates = Certificates::new();
        let gateway = Spec::to(&origin).with(HTTP2).with(certificates.listener()).start().await;
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        for _ in 0..3 {
            let head = http2::request("POST", "https://a.example/").body(()).unwrap();
            let (response, mut send) = client.send.send_request(head, false).unwrap();
            send.send_data(vec![0; 10].into(), false).unwrap();
            let answer = http2::collect(response).await.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (413, &b"too large"[..]));
        }
        assert_eq!(origin.connections(), 1);
    });
}

//! What is cut short: by origins, by clients, by time.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Origin, Spec, get, run, until};

const SHORT: Duration = Duration::from_millis(150);

#[test]
fn a_response_cut_short_never_looks_whole() {
    run(async {
        let beginnings = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", false),
            // Delimited by the end of the connection: a reset is no end.
            ("HTTP/1.1 200 OK\r\n\r\nhello", true),
        ];
        for (beginning, reset) in beginnings {
            for version in ["1.1", "1.0"] {
                let (sender, go) = tokio::sync::watch::channel(false);
                let origin = Origin::start(move |mut visit| {
                    let mut go = go.clone();
                    async move {
                        visit.request().await?;
                        visit.send(beginning).await?;
                        if reset {
                            // The gateway must have the beginning first, or there is nothing to be cut.
                            go.wait_for(|go| *go).await.unwrap();
                            visit.reset();
                        }
                        Ok(())
                    }
                })
                .await;
                let gateway = Spec::to(&origin).start().await;
                let mut client = gateway.client().await;
                client.send(format!("GET / HTTP/{version}\r\nHost: a.example\r\n\r\n")).await;
                if reset {
                    client.head().await.unwrap();
                    sender.send(true).unwrap();
                }
                let error = client.rest().await.expect_err("a reset");
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{beginning:?} {version}");
                let line = gateway.log(1).await.remove(0);
                assert_eq!(line["reason"], "upstream_aborted", "{beginning:?} {version}");
                assert_eq!(line["complete"], false);
            }
        }
    });
}

#[test]
fn a_service_that_dies_before_its_response_is_a_502() {
    run(async {
        for beginning in ["", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"] {
            for reset in [false, true] {
                let origin = Origin::start(move |mut visit| async move {
                    visit.request().await?;
                    visit.send(beginning).await?;
                    if reset {
                        visit.reset();
                    }
                    Ok(())
                })
                .await;
                let gateway = Spec::to(&origin).start().await;
                let mut client = gateway.client().await;
                for _ in 0..2 {
                    let response = client.exchange(get("/")).await;
                    assert_eq!((response.status, response.code().as_str()), (502, "upstream_aborted"));
                    assert!(!response.closes());
                }
                assert_eq!(origin.connections(), 2, "a fresh connection's failure is not tried again");
            }
        }
    });
}

#[test]
fn a_client_that_leaves_ends_the_services_connection() {
    run(async {
        let requests = [
            // While the head of the response is awaited.
            ("/head", "GET /head HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned()),
            // While the body is sent.
            ("/body", "PUT /body HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello".to_owned()),
            // While the response stands still.
            ("/response", get("/response")),
            // While the response stands still and the body is awaited.
            ("/both", "PUT /both HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello".to_owned()),
        ];
        let origin = Origin::start(|mut visit| async move {
            let head = visit.head().await?;
            if head.contains("/response") || head.contains("/both") {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await?;
            }
            visit.closed().await;
            Ok(())
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        for (index, (path, request)) in requests.into_iter().enumerate() {
            let mut client = gateway.client().await;
            client.send(&request).await;
            if matches!(path, "/response" | "/both") {
                client.head().await.unwrap();
            }
            origin
                .until(|text| text.contains(path) && (!request.contains("PUT") || text.ends_with("hello")))
                .await;
            drop(client);
            origin.ended(index + 1).await;
            let lines = gateway.log(index + 1).await;
            assert_eq!(lines[index]["reason"], "client_aborted", "{path}");
        }
    });
}

#[test]
fn slow_heads_time_out() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).with("timeouts.request_head = '150ms'");
        let gateway = spec.start().await;
        let mut silent = gateway.client().await;
        let mut slow = gateway.client().await;
        slow.send("GET / HTTP/1.1\r\nHost: a.ex").await;
        let response = slow.response().await;
        assert_eq!((response.status, response.code().as_str()), (408, "request_head_timeout"));
        assert!(response.closes());
        slow.ended().await;
        silent.ended().await;
        // One byte after the other does not buy more time.
        let drip = gateway.client().await;
        let (mut reading, mut writing) = tokio::io::split(drip.stream);
        let writer = tokio::spawn(async move {
            let mut every = tokio::time::interval(SHORT / 10);
            while writing.write_all(b"G").await.is_ok() {
                every.tick().await;
            }
        });
        let mut answer = [0; 12];
        reading.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
        writer.abort();
        assert_eq!(origin.connections(), 0);
    });
}

#[test]
fn an_idle_connection_is_closed_in_time() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).with("timeouts.keep_alive_idle = '1s'");
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/")).await.status, 200);
        client.ended().await;
    });
}

#[test]
fn a_stalled_body_times_out() {
    run(async {
        let origin = Origin::silent().await;
        let gateway = Spec::to(&origin).with("timeouts.request_body_idle = '150ms'").start().await;
        for framing in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            let mut client = gateway.client().await;
            let response =
                client.exchange(format!("PUT / HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n\r\n5\r\n")).await;
            assert_eq!((response.status, response.code().as_str()), (408, "request_body_timeout"));
            assert!(response.closes());
            client.ended().await;
        }
        origin.ended(2).await;
    });
}

#[test]
fn a_service_that_does_not_read_the_body_counts_as_failed() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.head().await?;
            std::future::pending().await
        })
        .await;
        let gateway = Spec::to(&origin).with("timeouts.request_body_idle = '150ms'").start().await;
        let mut client = gateway.client().await;
        client.send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000000\r\n\r\n").await;
        let crate::support::Client { stream, .. } = client;
        let (mut reading, mut writing) = tokio::io::split(stream);
        let writer = tokio::spawn(async move { while writing.write_all(&[b'x'; 65_536]).await.is_ok() {} });
        let mut answer = vec![0; 12];
        reading.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 504");
        writer.abort();
    });
}

#[test]
fn a_service_that_does_not_respond_times_out() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let (by_head, by_whole) = ("response_head = '150ms'", "connect = '100ms'\nrequest = '150ms'");
        let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi";
        let held = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        let cases: [(&str, &str, &str); 5] = [
            (by_head, &get("/"), "upstream_response_head_timeout"),
            (by_head, post, "upstream_response_head_timeout"),
            (by_whole, &get("/"), "request_timeout"),
            (by_whole, post, "request_timeout"),
            (by_whole, held, "request_timeout"),
        ];
        for (index, (change, request, code)) in cases.into_iter().enumerate() {
            let gateway = Spec::to(&origin).with(format!("[timeouts]\n{change}")).start().await;
            let mut client = gateway.client().await;
            let response = client.exchange(request).await;
            assert_eq!((response.status, response.code().as_str()), (504, code), "{request}");
            origin.ended(index + 1).await;
        }
    });
}

#[test]
fn a_stalled_response_is_reset() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let (by_idle, by_whole) = ("response_body_idle = '150ms'", "connect = '100ms'\nrequest = '150ms'");
        for (index, change) in [by_idle, by_whole].into_iter().enumerate() {
            let gateway = Spec::to(&origin).with(format!("[timeouts]\n{change}")).start().await;
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            assert_eq!(client.head().await.unwrap().status, 200);
            assert!(client.rest().await.is_err());
            origin.ended(index + 1).await;
            assert_eq!(gateway.log(1).await[0]["reason"], "response_timeout");
        }
    });
}

#[test]
fn a_client_that_does_not_read_is_reset() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await?;
            while visit.send([b'x'; 65_536]).await.is_ok() {}
            Ok(())
        })
        .await;
        let gateway = Spec::to(&origin).with("timeouts.response_body_idle = '150ms'").start().await;
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        origin.ended(1).await;
        assert_eq!(gateway.log(1).await[0]["reason"], "response_timeout");
        until("the connection is gone", || gateway.gateway.connections() == 0).await;
        assert!(client.rest().await.is_err());
    });
}

#[test]
fn a_response_in_time_is_not_cut_by_the_limits_of_others() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            loop {
                visit.request().await?;
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n").await?;
                let mut every = tokio::time::interval(Duration::from_millis(300));
                for _ in 0..10 {
                    every.tick().await;
                    visit.send("x").await?;
                }
            }
        })
        .await;
        let gateway = Spec::to(&origin)
            .with("[timeouts]\nresponse_body_idle = '2s'\nrequest_body_idle = '2s'\nresponse_head = '2s'")
            .start()
            .await;
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/")).await.text(), "xxxxxxxxxx");
    });
}

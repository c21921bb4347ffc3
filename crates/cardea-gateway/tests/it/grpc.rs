//! gRPC calls: how they are refused, and which status is recorded of them.

use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use http::HeaderMap;
use serde_json::{Value, json};

use crate::{
    http2::{Answer, Client, connect, gateway_with, request},
    support::{Harness, Origin, Spec, certificates::Certificates, origin::OK, run, until},
};

const TYPE: &str = "application/grpc+proto";

fn post(path: &str) -> http::request::Builder {
    request("POST", &format!("https://a.example{path}")).header("te", "trailers")
}

fn call(path: &str) -> http::request::Builder {
    post(path).header("content-type", TYPE)
}

fn text<'a>(fields: &'a HeaderMap, name: &str) -> &'a str {
    fields.get(name).map_or("", |value| value.to_str().unwrap())
}

/// The status and the message of a response that consists of trailers only.
#[track_caller]
fn trailers_only(answer: &Answer) -> (&str, &str) {
    assert_eq!((answer.status, &answer.body[..], &answer.trailers), (200, &b""[..], &None), "{answer:?}");
    assert_eq!(text(&answer.headers, "content-type"), "application/grpc");
    assert!(!answer.headers.contains_key("content-length"), "{answer:?}");
    (text(&answer.headers, "grpc-status"), text(&answer.headers, "grpc-message"))
}

/// Makes a call with a body of so many bytes.
async fn exchange(client: &mut Client, call: http::request::Builder, bytes: usize) -> Answer {
    client.try_exchange(call.body(()).unwrap(), &vec![0; bytes]).await.unwrap()
}

#[test]
fn calls_are_refused_with_a_status_and_other_requests_with_a_problem_document() {
    run(async {
        let origin = Origin::answering(OK).await;
        let toml = r#"
            [[service]]
            name = "gone"
            [[service.endpoint]]
            address = "127.0.0.1:1"
            [[route]]
            name = "gone"
            path_prefix = "/gone"
            auth = "public"
            service = "gone"
            [[route]]
            name = "reads"
            path_prefix = "/reads"
            methods = ["GET"]
            auth = "public"
            service = "main"
            [[route]]
            name = "small"
            path_prefix = "/small"
            auth = "public"
            service = "main"
            body_bytes_max = "1B"
            [[route]]
            name = "denied"
            path_prefix = "/denied"
            auth = "public"
            service = "main"
            policy = [{ deny = "true", reason = "100 % closed", show = true }]
        "#;
        let certificates = Certificates::new();
        let spec = Spec::to(&origin).with(certificates.listener()).with(toml).without("route", "public");
        let gateway = spec.start().await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let cases = [
            (call("/api"), 401, "16", "credentials_missing: A bearer token is required."),
            (call("/none"), 404, "12", "route_not_found: The resource does not exist."),
            (call("/reads"), 405, "2", "method_not_allowed: This resource does not support this method."),
            (
                call("/small/a%2fb"),
                400,
                "13",
                "path_encoding_not_allowed: The path contains an encoding that this resource does not allow.",
            ),
            (call("/gone"), 502, "14", "upstream_connect_failed: The service can't be reached."),
            (
                call("/small").header("content-length", "5"),
                413,
                "8",
                "request_body_too_large: The request's body is larger than this resource allows.",
            ),
            (
                call("/denied"),
                403,
                "7",
                "policy_denied: A policy does not allow this request. 100 %25 closed",
            ),
        ];
        let mut expected = Vec::new();
        for (call, http_status, status, message) in cases {
            let answer = exchange(&mut client, call, 5).await;
            assert_eq!(trailers_only(&answer), (status, message));
            assert!(answer.headers.contains_key("x-request-id"), "{answer:?}");
            let challenge = if http_status == 401 { "Bearer" } else { "" };
            assert_eq!(text(&answer.headers, "www-authenticate"), challenge);
            expected.push((json!(http_status), json!(status.parse::<u8>().unwrap())));
        }
        for other in ["application/grpc-web", "application/json"] {
            let answer = exchange(&mut client, post("/api").header("content-type", other), 5).await;
            assert_eq!((answer.status, &answer.code()[..]), (401, "credentials_missing"));
            assert!(!answer.headers.contains_key("grpc-status"), "{answer:?}");
            expected.push((json!(401), Value::Null));
        }
        let lines = gateway.log(expected.len()).await;
        let logged = lines.iter().map(|line| {
            let member = |name: &str| line.get(name).cloned().unwrap_or_default();
            (member("http.response.status_code"), member("rpc.grpc.status_code"))
        });
        assert_eq!(logged.collect::<Vec<_>>(), expected);
        assert_eq!(calls(&gateway, "api", 16), 1);
        assert_eq!(calls(&gateway, "denied", 7), 1);
    });
}

/// How many calls of a route had a status.
fn calls(gateway: &Harness, route: &str, status: u8) -> u64 {
    let labels = format!("{{http_route=\"{route}\",rpc_grpc_status_code=\"{status}\"}}");
    gateway.metric(&format!("cardea_grpc_calls_total{labels}"))
}

#[test]
fn http1_requests_that_look_like_calls_get_a_problem_document() {
    run(async {
        let origin = Origin::answering(OK).await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let response = client
            .exchange(format!(
                "POST /api HTTP/1.1\r\nHost: a\r\nContent-Type: {TYPE}\r\nContent-Length: 0\r\n\r\n"
            ))
            .await;
        assert_eq!((response.status, &response.code()[..]), (401, "credentials_missing"));
        assert_eq!(response.header("grpc-status"), None);
    });
}

#[test]
fn a_call_is_told_when_to_retry() {
    run(async {
        let origin = Origin::answering(OK).await;
        let toml = r#"
            [[throttle]]
            name = "few"
            key = ["source.address"]
            rate = "1/h"
            [[route]]
            name = "public"
            throttles = ["few"]
        "#;
        let (gateway, certificates) = gateway_with(&origin, toml).await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        assert_eq!(exchange(&mut client, call("/a"), 0).await.status, 200);
        let answer = exchange(&mut client, call("/a"), 5).await;
        assert_eq!(trailers_only(&answer), ("8", "rate_limited: Too many requests."));
        let seconds: u64 = text(&answer.headers, "retry-after").parse().unwrap();
        assert!(seconds > 3_500, "{seconds}");
        assert_eq!(text(&answer.headers, "grpc-retry-pushback-ms"), (seconds * 1000).to_string());
    });
}

#[test]
fn the_configuration_changes_the_head_of_a_refusal_but_not_its_status() {
    run(async {
        let origin = Origin::answering(OK).await;
        let toml = r#"
            [response_headers]
            set = { "content-type" = "text/plain", "grpc-status" = "0", "x-status" = "{response.status}" }
        "#;
        let (gateway, certificates) = gateway_with(&origin, toml).await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let answer = exchange(&mut client, call("/api"), 5).await;
        assert_eq!(trailers_only(&answer).0, "16");
        assert_eq!(text(&answer.headers, "x-status"), "401");
        assert_eq!(answer.headers.get_all("grpc-status").iter().count(), 1);
    });
}

#[test]
fn the_refusal_of_a_call_that_was_held_has_a_status_too() {
    run(async {
        let origin = Origin::answering(OK).await;
        let clock = ManualClock::new(Wall::from_unix_seconds(1_900_000_000));
        // What is sent slowly elsewhere has no body here.
        let toml = r#"
            [tarpit]
            action = "drip"
            offences = 1
            memory = "1h"
            delay_min = "5s"
            delay_max = "5s"
            [[throttle]]
            name = "few"
            key = ["source.address"]
            rate = "1/d"
            [[route]]
            name = "public"
            throttles = ["few"]
        "#;
        let certificates = Certificates::new();
        let spec = Spec { clock: Some(clock.clock()), ..Spec::to(&origin) };
        let gateway = spec.with(certificates.listener()).with(toml).start().await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        assert!(!exchange(&mut client, call("/"), 0).await.headers.contains_key("grpc-status"));
        assert_eq!(trailers_only(&exchange(&mut client, call("/"), 0).await).0, "8");
        let held = tokio::spawn(async move { exchange(&mut client, call("/"), 5).await });
        until("it is held", || gateway.gateway.tarpit.held() == 1).await;
        clock.advance(Duration::from_secs(6));
        assert_eq!(trailers_only(&held.await.unwrap()), ("8", "rate_limited: Too many requests."));
        let lines = gateway.log(3).await;
        assert_eq!(
            (&lines[2]["tarpit.outcome"], &lines[2]["rpc.grpc.status_code"]),
            (&json!("held"), &json!(8))
        );
    });
}

#[test]
fn the_status_of_a_service_is_recorded() {
    run(async {
        const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n";
        let origin = Origin::start(|mut visit| async move {
            let head = visit.head().await?;
            let response = match head.split(' ').nth(1).unwrap() {
                "/trailers" => "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\ngrpc-status: 5\r\n\r\n",
                "/only" => "Content-Length: 0\r\ngrpc-status: 12\r\n\r\n",
                "/odd" => "Content-Length: 0\r\ngrpc-status: 99\r\n\r\n",
                _ => "Content-Length: 0\r\n\r\n",
            };
            visit.send(format!("{HEAD}{response}")).await
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let answer = exchange(&mut client, call("/trailers"), 0).await;
        assert_eq!((&answer.body[..], text(&answer.trailers.unwrap(), "grpc-status")), (&b"hello"[..], "5"));
        for path in ["/only", "/odd", "/none"] {
            assert_eq!(exchange(&mut client, call(path), 0).await.status, 200);
        }
        let not_grpc = post("/trailers").header("content-type", "text/plain");
        exchange(&mut client, not_grpc, 0).await;
        let lines = gateway.log(5).await;
        let logged: Vec<_> =
            lines.iter().map(|line| line.get("rpc.grpc.status_code").cloned().unwrap_or_default()).collect();
        assert_eq!(logged, [json!(5), json!(12), json!(2), Value::Null, Value::Null]);
        for status in [5, 12, 2] {
            assert_eq!(calls(&gateway, "public", status), 1);
        }
    });
}

fn in_time(path: &str, timeout: &str) -> http::request::Builder {
    call(path).header("grpc-timeout", timeout)
}

const LATE: (&str, &str) = ("4", "deadline_exceeded: The call's deadline has passed.");

#[test]
fn a_call_ends_at_the_deadline_of_its_client_or_at_that_of_the_route() {
    run(async {
        let origin = Origin::silent().await;
        let toml = "[[route]]\nname = 'short'\npath_prefix = '/short'\nauth = 'public'\nservice = 'main'\n\
                    timeouts.request = '100ms'\n[[service]]\nname = 'main'\nconnect_timeout = '50ms'";
        let (gateway, certificates) = gateway_with(&origin, toml).await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        assert_eq!(trailers_only(&exchange(&mut client, in_time("/", "50m"), 5).await), LATE);
        let by_route = exchange(&mut client, in_time("/short", "1H"), 5).await;
        assert_eq!(trailers_only(&by_route), ("14", "request_timeout: The exchange took too long."));
        let lines = gateway.log(2).await;
        for (line, reason, status) in
            [(&lines[0], "deadline_exceeded", 4), (&lines[1], "request_timeout", 14)]
        {
            assert_eq!((&line["reason"], &line["rpc.grpc.status_code"]), (&json!(reason), &json!(status)));
            assert_eq!(line["http.response.status_code"], 504);
        }
    });
}

#[test]
fn a_call_whose_time_is_over_never_reaches_its_service() {
    run(async {
        let origin = Origin::answering(OK).await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        assert_eq!(trailers_only(&exchange(&mut client, in_time("/late", "0S"), 5).await), LATE);
        assert_eq!(exchange(&mut client, in_time("/early", "1H"), 5).await.status, 200);
        assert!(origin.text().contains("/early") && !origin.text().contains("/late"), "{}", origin.text());
    });
}

#[test]
fn a_call_that_waits_to_be_admitted_ends_at_its_deadline() {
    run(async {
        let origin = Origin::silent().await;
        let toml = "[[route]]\nname = 'public'\nadmission.max_in_flight = 1\nadmission.max_queue = 10\n\
                    admission.max_age = '1m'";
        let (gateway, certificates) = gateway_with(&origin, toml).await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let first = client.send.send_request(call("/first").body(()).unwrap(), true).unwrap();
        origin.until(|text| text.contains("/first")).await;
        assert_eq!(trailers_only(&exchange(&mut client, in_time("/second", "50m"), 5).await), LATE);
        assert!(!origin.text().contains("/second"));
        drop(first);
    });
}

#[test]
fn a_call_that_is_under_way_ends_at_its_deadline_with_trailers() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.head().await?;
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n";
            visit.send(format!("{head}5\r\nhello\r\n")).await?;
            std::future::pending().await
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let answer = exchange(&mut client, in_time("/", "300m"), 5).await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
        let trailers = answer.trailers.unwrap();
        assert_eq!(
            (text(&trailers, "grpc-status"), text(&trailers, "grpc-message")),
            ("4", "deadline exceeded")
        );
        let line = &gateway.log(1).await[0];
        assert_eq!(
            (&line["reason"], &line["rpc.grpc.status_code"]),
            (&json!("deadline_exceeded"), &json!(4))
        );
        assert_eq!(line["complete"], false);
    });
}

#[test]
fn a_service_is_told_how_much_time_is_left() {
    run(async {
        let origin = Origin::answering(OK).await;
        let toml = "[[route]]\nname = 'short'\npath_prefix = '/short'\nauth = 'public'\nservice = 'main'\n\
                    timeouts.request = '30s'";
        let (gateway, certificates) = gateway_with(&origin, toml).await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let not_grpc = post("/plain").header("content-type", "text/plain").header("grpc-timeout", "x");
        let longest = in_time("/short", "99999999H");
        for call in [in_time("/long", "50S"), in_time("/short", "1H"), longest, not_grpc, call("/none")] {
            assert_eq!(exchange(&mut client, call, 0).await.status, 200);
        }
        let text = origin.text();
        let timeouts: Vec<_> = text
            .split("POST ")
            .skip(1)
            .map(|head| {
                head.lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("grpc-timeout: ").map(str::to_owned))
            })
            .collect();
        let microseconds =
            |at: usize| -> u64 { timeouts[at].as_ref().unwrap().strip_suffix('u').unwrap().parse().unwrap() };
        assert!((1..50_000_000).contains(&microseconds(0)), "{timeouts:?}");
        assert!([1, 2].iter().all(|&at| (1..30_000_000).contains(&microseconds(at))), "{timeouts:?}");
        assert_eq!(timeouts[3..], [Some("x".to_owned()), None]);
    });
}

#[test]
fn a_malformed_timeout_is_refused() {
    run(async {
        let origin = Origin::answering(OK).await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        for timeout in ["5", "S", "123456789S", "5s", "-1S"] {
            let answer = exchange(&mut client, in_time("/", timeout), 5).await;
            assert_eq!(trailers_only(&answer), ("13", "grpc_timeout_invalid: The request is malformed."));
        }
        let twice = in_time("/", "1H").header("grpc-timeout", "1S");
        assert_eq!(trailers_only(&exchange(&mut client, twice, 5).await).0, "13");
        assert_eq!(exchange(&mut client, in_time("/", "1H"), 5).await.status, 200);
    });
}

//! Throttles with real requests: what they admit, what clients are told, and attempts to get past them.

use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use serde_json::{Value, json};

use crate::http2;
use crate::support::{Client, Origin, Spec, certificates::Certificates, get, run};

fn manual() -> ManualClock {
    ManualClock::new(Wall::from_unix_seconds(1_900_000_000))
}

/// Two requests at once, then one a second, unless `more` says otherwise.
fn throttle(name: &str, key: &str, more: &str) -> String {
    format!("[[throttle]]\nname = \"{name}\"\nkey = {key}\nrate = \"1/s\"\nburst = 2\n{more}\n")
}

/// A gateway whose public route has these throttles.
fn spec(origin: &Origin, clock: &ManualClock, throttles: &[String]) -> Spec {
    let spec = Spec { clock: Some(clock.clock()), ..Spec::to(origin) };
    let names =
        throttles.iter().filter_map(|text| text.lines().find_map(|line| line.strip_prefix("name = ")));
    let names: Vec<&str> = names.collect();
    spec.public(format!("throttles = [{}]", names.join(", "))).with(throttles.concat())
}

fn with(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")
}

fn authorized(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n\r\n")
}

/// The statuses of these requests on one connection.
async fn statuses(client: &mut Client, requests: &[String]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(client.exchange(request).await.status);
    }
    statuses
}

/// Whether this request, after two that use up a limit, is counted by it too.
async fn shares_a_limit(key: &str, one: &str, other: &str) -> bool {
    let (origin, clock) = (Origin::ok().await, manual());
    let trusted = "trusted_proxies.prefixes = ['127.0.0.1']";
    let gateway = spec(&origin, &clock, &[throttle("t", key, "")]).with(trusted).start().await;
    let mut client = gateway.client().await;
    assert_eq!(statuses(&mut client, &[with(one), with(one), with(one)]).await, [200, 200, 429]);
    client.exchange(with(other)).await.status == 429
}

#[test]
fn a_response_has_the_limit_and_the_remaining_units() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let throttles = [throttle("per-client", "['source.address']", "")];
        let gateway = spec(&origin, &clock, &throttles).start().await;
        let mut client = gateway.client().await;
        for _ in 0..2 {
            let response = client.exchange(get("/")).await;
            assert_eq!((response.status, response.header("ratelimit")), (200, None));
        }
        let response = client.exchange(get("/")).await;
        assert_eq!((response.status, response.code()), (429, "rate_limited".to_owned()));
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(response.header("ratelimit-policy"), Some("\"per-client\";q=2;w=2"));
        assert_eq!(response.header("ratelimit"), Some("\"per-client\";r=0;t=2"));
        assert!(!response.closes());
        // It is admitted after that time, and not before.
        clock.advance(Duration::from_millis(999));
        assert_eq!(client.exchange(get("/")).await.status, 429);
        clock.advance(Duration::from_millis(1));
        assert_eq!(statuses(&mut client, &[get("/"), get("/")]).await, [200, 429]);
        assert_eq!(statuses(&mut client, &[get("/api"), get("/api")]).await, [401, 401], "another route");
        assert_eq!(origin.text().matches("GET / ").count(), 3);

        let log = gateway.log(8).await;
        let told = |line: &Value| {
            (line["reason"].clone(), line["throttle.name"].clone(), line["throttle.limited"].clone())
        };
        assert_eq!(told(&log[1]), (Value::Null, Value::Null, Value::Null));
        assert_eq!(told(&log[2]), (json!("rate_limited"), json!("per-client"), json!(true)));
        let metric = |outcome: &str| {
            gateway.metric(&format!(
                "cardea_throttle_requests_total{{throttle=\"per-client\",outcome=\"{outcome}\"}}"
            ))
        };
        assert_eq!((metric("admitted"), metric("limited"), metric("dry_run_limited")), (3, 3, 0));
    });
}

#[test]
fn rate_limit_fields_are_on_every_response_if_configured() {
    run(async {
        let (origin, clock) = (
            Origin::answering(
                "HTTP/1.1 200 OK\r\nRateLimit: \"service\";r=7;t=1\r\nContent-Length: 0\r\n\r\n",
            )
            .await,
            manual(),
        );
        let throttles = [
            throttle("late", "['token.sub']", "report = 'always'"),
            throttle("always", "['source.address']", "report = 'always'"),
            throttle("never", "['source.address']", "report = 'never'"),
            throttle("dry", "[]", "report = 'always'\ndry_run = true"),
        ];
        let gateway = spec(&origin, &clock, &throttles).start().await;
        let mut client = gateway.client().await;
        let response = client.exchange(get("/")).await;
        assert_eq!(response.header("ratelimit-policy"), Some("\"always\";q=2;w=2, \"late\";q=2;w=2"));
        // What the service says of its own limits stays.
        assert_eq!(
            response.headers("ratelimit"),
            ["\"service\";r=7;t=1", "\"always\";r=1;t=1, \"late\";r=1;t=1"]
        );
        assert_eq!(client.exchange(get("/")).await.status, 200);
        let response = client.exchange(get("/")).await;
        assert_eq!((response.status, response.header("ratelimit")), (429, Some("\"always\";r=0;t=2")));
    });
}

#[test]
fn no_spelling_gets_past() {
    run(async {
        let from = |address: &str| format!("X-Forwarded-For: {address}\r\n");
        for (one, other, shares) in [
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "::FFFF:C000:201", true),
            ("2001:db8::1", "2001:DB8:0::1", true),
            ("2001:db8::1", "2001:db8::ffff:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            // Clients that the proxy does not name share a limit, which is neither the proxy's nor a named client's.
            ("unknown", "192.0.2.1, 203.0.113.005", true),
            ("unknown", "127.0.0.1", false),
            ("192.0.2.1, unknown", "192.0.2.1", false),
        ] {
            assert_eq!(
                shares_a_limit("['source.address']", &from(one), &from(other)).await,
                shares,
                "{one} {other}"
            );
        }
        for (one, other, shares) in [
            ("X-Team: red\r\n", "X-Team: blue\r\n", false),
            ("X-Team: red\r\n", "x-TEAM:   red  \r\n", true),
            ("", "X-Team: red\r\nX-Team: red\r\n", true),
            // What has no value, for whatever reason, has one limit.
            ("", "X-Team: red\r\nX-Team: blue\r\n", true),
            ("X-Team: a\r\nX-Team: b\r\n", "X-Team: c\r\nX-Team: d\r\n", true),
            ("", "X-Team: red\r\nX_Team: blue\r\n", true),
            ("", "X-Team: \r\n", false),
        ] {
            assert_eq!(
                shares_a_limit("['request.headers.x-team']", one, other).await,
                shares,
                "{one} {other}"
            );
        }
        // The host of the request itself is `a.example`.
        let (origin, clock) = (Origin::ok().await, manual());
        let throttles = [throttle("host", "['request.host']", "")];
        let gateway = spec(&origin, &clock, &throttles).start().await;
        let mut client = gateway.client().await;
        let to = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let hosts =
            ["a.example", "A.Example", "a.example.", "a.example:80", "a.example:8080", "b.example"].map(to);
        assert_eq!(statuses(&mut client, &hosts).await, [200, 200, 429, 429, 429, 200]);
    });
}

#[test]
fn protocols_listeners_and_connections_share_a_limit() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let certificates = Certificates::new();
        let throttles = [throttle("per-client", "['source.address']", "")];
        let plain = "[[listener]]\nname = 'plain'\naddress = '127.0.0.1:0'";
        let spec = spec(&origin, &clock, &throttles).with(certificates.listener()).with(plain);
        let mut gateway = spec.start().await;
        let plain = gateway.listen("plain");
        let mut h2 = http2::connect(&gateway, &certificates, "a.example").await;
        let uri = "https://a.example/";
        assert_eq!(h2.exchange(http2::request("GET", uri)).await.status, 200);
        assert_eq!(Client::connect(plain).await.exchange(get("/")).await.status, 200);
        let refused = h2.exchange(http2::request("GET", uri)).await;
        assert_eq!((refused.status, refused.code()), (429, "rate_limited".to_owned()));
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(Client::connect(plain).await.exchange(get("/")).await.status, 429);
    });
}

#[test]
fn workers_share_a_limit_exactly() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let throttles = [throttle("all", "[]", "").replace("burst = 2", "burst = 40")];
        let spec = spec(&origin, &clock, &throttles);
        let gateway = spec.start_with_workers(4).await;
        let ask = async || {
            let mut client = gateway.client().await;
            statuses(&mut client, &vec![get("/"); 20]).await
        };
        let all = futures_util::future::join_all((0..8).map(|_| ask())).await;
        assert_eq!(all.iter().flatten().filter(|status| **status == 200).count(), 40);
    });
}

#[test]
fn a_flood_of_bad_tokens_is_not_verified() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let throttles = [throttle("per-client", "['source.address']", "")];
        let spec = spec(&origin, &clock, &throttles).route("api", "throttles = ['per-client']");
        let gateway = spec.start().await;
        let token = gateway.token();
        let mut client = gateway.client().await;
        let bad = format!("{}x", &token[..token.len() - 4]);
        assert_eq!(statuses(&mut client, &vec![authorized("/api", &bad); 4]).await, [401, 401, 429, 429]);
        assert_eq!(client.exchange(authorized("/api", &token)).await.status, 429);
        clock.advance(Duration::from_secs(1));
        assert_eq!(client.exchange(authorized("/api", &token)).await.status, 200);
    });
}

#[test]
fn callers_have_separate_limits_that_unauthorized_requests_do_not_use() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let throttles = [throttle("per-tenant", "['token.iss', 'token.claims.tenant']", "")];
        let api = r#"
            throttles = ["per-tenant"]
            policy = [{ deny = "request.query_params['ask'] == 'denied'" }]
        "#;
        let gateway = spec(&origin, &clock, &throttles).route("api", api).start().await;
        let token =
            |tenant: &str| gateway.token_with(&json!({ "tenant": tenant, "sub": format!("{tenant}-user") }));
        let mut client = gateway.client().await;
        let (red, blue) = (token("red"), token("blue"));
        // Neither who is unknown nor who is denied uses what the tenant may.
        let mut requests = vec![authorized("/api", "a.b.c"); 3];
        requests.extend(vec![authorized("/api?ask=denied", &red); 3]);
        assert_eq!(statuses(&mut client, &requests).await, [401, 401, 401, 403, 403, 403]);
        let allowed = |token: &str| authorized("/api?ask=allowed", token);
        assert_eq!(statuses(&mut client, &vec![allowed(&red); 3]).await, [200, 200, 429]);
        // Another token of the tenant.
        let other = gateway.token_with(&json!({ "tenant": "red", "sub": "other" }));
        assert_eq!(statuses(&mut client, &[allowed(&other), allowed(&blue)]).await, [429, 200]);
        // Callers without the claim share a limit, and tenants that are lists or numbers are told apart or not at all.
        let without = gateway.token_with(&json!({ "sub": "nobody" }));
        let list = gateway.token_with(&json!({ "tenant": ["red"] }));
        let requests = [allowed(&without), allowed(&list), allowed(&without), allowed(&list)];
        assert_eq!(statuses(&mut client, &requests).await, [200, 200, 429, 429]);
    });
}

fn costing(cost: &str, more: &str) -> String {
    throttle("cost", "[]", &format!("cost = \"{cost}\"\nreport = 'always'\n{more}"))
        .replace("burst = 2", "burst = 10")
}

#[test]
fn a_cost_is_what_its_expression_gives_and_nothing_else_is_admitted() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let throttles = [costing("double(request.headers['x-cost'])", "")];
        let gateway = spec(&origin, &clock, &throttles).start().await;
        let mut client = gateway.client().await;
        for (cost, status, remaining) in [
            ("X-Cost: 0", 200, Some("r=10")),
            ("X-Cost: 3", 200, Some("r=7")),
            ("X-Cost: 0.2", 200, Some("r=6")),
            ("X-Cost: -1", 403, None),
            ("X-Cost: NaN", 403, None),
            ("X-Cost: inf", 403, None),
            ("X-Cost: 1e300", 429, Some("r=6")),
            ("X-Cost: 11", 429, Some("r=6")),
            ("X-Cost: 7", 429, Some("r=6")),
            ("X-Cost: many", 403, None),
            ("X-Cost: 1\r\nX-Cost: 2", 403, None),
            ("X-Other: 1", 403, None),
            ("X-Cost: 6", 200, Some("r=0")),
            ("X-Cost: 0", 200, Some("r=0")),
        ] {
            let response = client.exchange(with(&format!("{cost}\r\n"))).await;
            assert_eq!(response.status, status, "{cost}");
            let told = response.header("ratelimit").and_then(|told| told.split(';').nth(1));
            assert_eq!(told, remaining, "{cost}");
            let retry_after = response.header("retry-after");
            match cost {
                // What never fits has no time at which it would.
                "X-Cost: 1e300" | "X-Cost: 11" => assert_eq!(retry_after, None, "{cost}"),
                "X-Cost: 7" => assert_eq!(retry_after, Some("1"), "{cost}"),
                _ => assert_eq!(retry_after, None, "{cost}"),
            }
            if status == 403 {
                assert_eq!(response.code(), "throttle_failed", "{cost}");
            }
        }
    });
}

#[test]
fn only_requests_that_are_meant_are_counted_and_no_failure_gets_past() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let throttles = [throttle("when", "[]", "when = \"request.headers['x-kind'] != 'free'\"")];
        let gateway = spec(&origin, &clock, &throttles).start().await;
        let mut client = gateway.client().await;
        let kinds = ["free", "free", "free", "paid", "paid", "paid", "free"];
        let requests = kinds.map(|kind| with(&format!("X-Kind: {kind}\r\n")));
        assert_eq!(statuses(&mut client, &requests).await, [200, 200, 200, 200, 200, 429, 200]);
        let failing = [with(""), with("X-Kind: free\r\nX-Kind: paid\r\n")];
        assert_eq!(statuses(&mut client, &failing).await, [429, 429]);
    });
}

#[test]
fn a_dry_run_refuses_nothing_and_reports_what_it_would_refuse() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let failing = costing("int(request.headers['x-cost'])", "dry_run = true");
        let throttles = [throttle("dry", "[]", "dry_run = true"), failing];
        let gateway = spec(&origin, &clock, &throttles).start().await;
        let mut client = gateway.client().await;
        assert_eq!(statuses(&mut client, &vec![get("/"); 4]).await, [200; 4]);
        let log = gateway.log(4).await;
        assert_eq!((&log[1]["throttle.name"], &log[1]["throttle.limited"]), (&Value::Null, &Value::Null));
        assert_eq!((&log[2]["throttle.name"], &log[2]["throttle.limited"]), (&json!("dry"), &json!(false)));
        let metric = |outcome: &str| {
            gateway
                .metric(&format!("cardea_throttle_requests_total{{throttle=\"dry\",outcome=\"{outcome}\"}}"))
        };
        assert_eq!((metric("admitted"), metric("limited"), metric("dry_run_limited")), (2, 0, 2));
    });
}

#[test]
fn nothing_is_charged_where_another_layer_refuses() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let all = throttle("all", "[]", "").replace("burst = 2", "burst = 3");
        let throttles = [throttle("team", "['request.headers.x-team']", ""), all];
        let gateway = spec(&origin, &clock, &throttles).start().await;
        let mut client = gateway.client().await;
        let red = || with("X-Team: red\r\n");
        let blue = || with("X-Team: blue\r\n");
        // Five of red use two of all, so one is left for blue.
        let requests = [red(), red(), red(), red(), red(), blue(), blue()];
        assert_eq!(statuses(&mut client, &requests).await, [200, 200, 429, 429, 429, 200, 429]);
        // Blue used one of its own two, and all has one again.
        clock.advance(Duration::from_secs(1));
        let response = client.exchange(blue()).await;
        assert_eq!((response.status, client.exchange(blue()).await.status), (200, 429));
    });
}

#[test]
fn no_step_of_the_wall_clock_gives_anything_back() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, &[throttle("all", "[]", "")]).start().await;
        let mut client = gateway.client().await;
        assert_eq!(statuses(&mut client, &vec![get("/"); 3]).await, [200, 200, 429]);
        clock.step_wall_forward(Duration::from_secs(86_400));
        assert_eq!(client.exchange(get("/")).await.status, 429);
        clock.step_wall_back(Duration::from_secs(2 * 86_400));
        assert_eq!(client.exchange(get("/")).await.status, 429);
        clock.advance(Duration::from_secs(2));
        assert_eq!(statuses(&mut client, &vec![get("/"); 3]).await, [200, 200, 429]);
    });
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// The upgrade counts as one request, and what it carries as none.
#[test]
fn a_websocket_counts_once() {
    run(async {
        let (origin, clock) = (Origin::answering(SWITCHING).await, manual());
        let spec = || spec(&origin, &clock, &[throttle("all", "[]", "")]);
        let gateway = spec().start().await;
        let mut open = Vec::new();
        for expected in [101, 101, 429] {
            let mut client = gateway.client().await;
            client.send(UPGRADE).await;
            assert_eq!(client.head().await.unwrap().status, expected);
            open.push(client);
        }
        for _ in 0..5 {
            open[0].send([0x81, 0x01, b'a']).await;
        }
        // A reload judges what is under way again, which charges nothing.
        gateway.reload(spec());
        clock.advance(Duration::from_secs(1));
        let mut client = gateway.client().await;
        client.send(UPGRADE).await;
        assert_eq!(client.head().await.unwrap().status, 101);
    });
}

/// A route whose service may drop path parameters is not searched under another path than the throttle has read.
#[test]
fn a_path_that_a_throttle_reads_has_no_parameters() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let searches = throttle("searches", "[]", "when = \"request.path == '/search'\"");
        let gateway = spec(&origin, &clock, &[searches]).start().await;
        let mut client = gateway.client().await;
        let paths = [
            "/search",
            "/search",
            "/search",
            "/%73earch",
            "/x/../search",
            "/else",
            "/search;a",
            "/search%3Ba",
        ];
        let expected = [200, 200, 429, 429, 429, 200, 400, 400];
        assert_eq!(statuses(&mut client, &paths.map(get)).await, expected);
        // The control: nothing reads the path.
        let gateway = spec(&origin, &clock, &[throttle("all", "[]", "")]).start().await;
        assert_eq!(gateway.client().await.exchange(get("/search;a")).await.status, 200);
    });
}

#[test]
fn a_new_rate_applies_at_once_to_what_a_key_has_used() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let spec = |rate: &str| spec(&origin, &clock, &[throttle("all", "[]", "").replace("1/s", rate)]);
        let gateway = spec("2/d").start().await;
        let mut client = gateway.client().await;
        assert_eq!(statuses(&mut client, &vec![get("/"); 3]).await, [200, 200, 429]);
        clock.advance(Duration::from_secs(60));
        assert_eq!(client.exchange(get("/")).await.status, 429);
        // Both units are still used, but for the minute, and each is earned back in half a second.
        gateway.reload(spec("2/s"));
        assert_eq!(client.exchange(get("/")).await.status, 429);
        clock.advance(Duration::from_millis(500));
        assert_eq!(statuses(&mut client, &[get("/"), get("/")]).await, [200, 429]);
    });
}

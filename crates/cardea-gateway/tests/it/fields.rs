//! Which fields of a request arrive: what only the gateway or a trusted proxy may say does not, under any spelling, and
//! what does not arrive decides nothing.

use cardea_gateway::hints;

use crate::{
    http2,
    support::{Origin, Spec, client::headers, get, run},
};

fn with(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")
}

/// Every spelling of a name that a service may fold to it, the name's own not among them.
fn lookalikes(name: &str) -> Vec<String> {
    let all = "!#$%&'*+.^_`|~".chars().map(|punctuation| name.replace('-', &punctuation.to_string()));
    all.chain([name.replacen('-', "_", 1)]).filter(|other| other != name).collect()
}

const PROTECTED: [&str; 9] = [
    "x-auth-subject",
    "x-auth-issuer",
    "client-cert",
    "client-cert-chain",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
    "x-correlation-id",
];

#[test]
fn no_spelling_of_a_protected_field_arrives() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let (secure, certificates) = http2::gateway_with(&origin, "").await;
        let mut client = gateway.client().await;
        let mut over_2 = http2::connect(&secure, &certificates, "a.example").await;
        for name in PROTECTED {
            for lookalike in lookalikes(name) {
                let response = client.exchange(with(&format!("{lookalike}: mallory\r\nX-Fine: 1\r\n"))).await;
                assert_eq!(response.status, 200, "{lookalike}");
                let request = http2::request("GET", "https://a.example/").header(&lookalike, "mallory");
                assert_eq!(over_2.exchange(request).await.status, 200, "{lookalike}");
                assert!(!origin.text().contains("mallory"), "{lookalike}: {}", origin.text());
            }
        }
        assert!(origin.text().contains("X-Fine: 1"));
        // The controls: punctuation of its own is no fault, and neither is a name that is nobody's.
        client.exchange(with("X_Custom.Field: kept\r\nXAuthSubject: kept\r\n")).await;
        assert!(
            origin.text().contains("X_Custom.Field: kept\r\nXAuthSubject: kept\r\n"),
            "{}",
            origin.text()
        );
    });
}

/// Changes of the public route.
const HEADER_EDITS: &str = r#"
    request_headers = [
        { set = { x-user = "gateway" }, remove = ["x-debug"], rename = { x-old-name = "x-new-name" } },
        { when = "false", set = { x-tier-name = "gold" } },
    ]
    response_headers = { remove = ["x-internal"], set = { x-out = "gateway" } }
"#;

#[test]
fn no_spelling_and_no_trailer_gets_past_a_rule() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).public(HEADER_EDITS).start().await;
        let mut client = gateway.client().await;
        for name in ["x-user", "x-debug", "x-old-name", "x-new-name", "x-tier-name"] {
            for lookalike in lookalikes(name) {
                assert_eq!(client.exchange(with(&format!("{lookalike}: mallory\r\n"))).await.status, 200);
                assert!(!origin.text().contains("mallory"), "{lookalike}: {}", origin.text());
            }
        }
        // A rule whose condition does not hold leaves the field alone, by its own name.
        client.exchange(with("X-User: mallory\r\nX-Debug: mallory\r\nX-Tier-Name: kept\r\n")).await;
        let arrived = origin.text();
        assert!(!arrived.contains("mallory") && arrived.contains("X-Tier-Name: kept\r\n"), "{arrived}");
        assert!(arrived.contains("x-user: gateway\r\n"));

        let names = [
            "x-user",
            "X_User",
            "x-debug",
            "X.Debug",
            "x-old-name",
            "x-tier-name",
            "true-client-ip",
            "proxy",
        ];
        let trailers: String = names.iter().map(|name| format!("{name}: mallory\r\n")).collect();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{trailers}X-Fine: yes\r\n\r\n"
        );
        assert_eq!(client.exchange(request).await.status, 200);
        assert!(origin.text().ends_with("0\r\nX-Fine: yes\r\n\r\n"), "{}", origin.text());
    });
}

#[test]
fn no_trailer_gets_past_a_rule_over_http_2_either() {
    run(async {
        let origin = Origin::answering(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Internal: secret\r\n\r\n2\r\nok\r\n0\r\nx-internal: secret\r\nX_Out: service\r\nx-fine: yes\r\n\r\n",
        )
        .await;
        let (gateway, certificates) =
            http2::gateway_with(&origin, &format!("[[route]]\nname = 'public'\n{HEADER_EDITS}")).await;
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        std::future::poll_fn(|cx| client.send.poll_ready(cx)).await.unwrap();
        let request = http2::request("POST", "https://a.example/").body(()).unwrap();
        let (response, mut stream) = client.send.send_request(request, false).unwrap();
        stream.send_data("hi".into(), false).unwrap();
        let mut trailers = http::HeaderMap::new();
        for name in ["x-user", "x_user", "x-debug", "x.debug", "x-auth-subject", "x~auth~subject"] {
            trailers
                .insert(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), "mallory".parse().unwrap());
        }
        trailers.insert("x-fine", "yes".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        let answer = http2::collect(response).await.unwrap();
        assert!(origin.text().ends_with("0\r\nx-fine: yes\r\n\r\n"), "{}", origin.text());
        let trailers = answer.trailers.unwrap();
        assert_eq!((trailers.len(), trailers["x-fine"].to_str().unwrap()), (1, "yes"));
        assert!(!answer.headers.contains_key("x-internal") && answer.headers["x-out"] == "gateway");
        // The same for a client of HTTP/1.1.
        let gateway = Spec::to(&origin).public(HEADER_EDITS).start().await;
        let response = gateway.client().await.exchange(with("TE: trailers\r\n")).await;
        assert_eq!(response.trailers, "x-fine: yes\r\n");
    });
}

#[test]
fn fields_named_by_connection_are_not_read_by_rules() {
    run(async {
        let origin = Origin::ok().await;
        let policy = r#"policy = [{ allow = "request.headers['x-mode'] == 'readonly'" }]"#;
        let gateway = Spec::to(&origin).public(policy).start().await;
        let control = gateway.client().await.exchange(with("X-Mode: readonly\r\n")).await;
        assert_eq!(control.status, 200);
        let arrived = origin.text().len();
        for attack in [
            "X-Mode: readonly\r\nConnection: x-mode\r\n",
            "Connection: close, X-MODE\r\nX-Mode: readonly\r\n",
            "X-Mode: readonly\r\nConnection: keep-alive\r\nConnection: x-mode\r\n",
        ] {
            let response = gateway.client().await.exchange(with(attack)).await;
            assert_eq!((response.status, response.code().as_str()), (403, "policy_failed"), "{attack}");
        }
        assert_eq!(origin.text().len(), arrived);

        // Nor do the fields of the connection themselves, but for the upgrade that is passed on.
        let gateway = Spec::to(&origin)
            .public(
                r#"
                [request_headers.set]
                x-te = "{request.headers.te|none}"
                x-upgrade = "{request.headers.upgrade|none}"
                x-keep = "{request.headers.keep-alive|none}"
                "#,
            )
            .start()
            .await;
        let plain =
            "TE: trailers\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nConnection: te, upgrade, keep-alive\r\n";
        assert_eq!(gateway.client().await.exchange(with(plain)).await.status, 200);
        let arrived = origin.text();
        for (name, value) in [("x-te", "none"), ("x-upgrade", "none"), ("x-keep", "none")] {
            assert_eq!(headers(&arrived, name), [value], "{arrived}");
        }
        for gone in ["te", "upgrade", "keep-alive"] {
            assert!(headers(&arrived, gone).is_empty(), "{arrived}");
        }
        let before = origin.text().len();
        let upgrade = "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
        assert_eq!(gateway.client().await.exchange(with(upgrade)).await.status, 200);
        let arrived = origin.text()[before..].to_owned();
        assert_eq!(headers(&arrived, "x-upgrade"), ["websocket"]);
        assert_eq!(headers(&arrived, "connection"), ["upgrade"]);
        assert_eq!(headers(&arrived, "upgrade"), ["websocket"]);
    });
}

#[test]
fn a_header_with_another_spelling_beside_it_has_no_value() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin)
            .public(
                r#"
                [[policy]]
                deny = "'x-mode' in request.headers && request.headers['x-mode'] == 'admin'"
                "#,
            )
            .start()
            .await;
        for (fields, status) in [
            ("X-Mode: user\r\n", 200),
            ("X-Mode: admin\r\n", 403),
            ("X_Mode: admin\r\n", 403),
            ("X-Mode: user\r\nX.Mode: admin\r\n", 403),
            ("X_Other: admin\r\n", 200),
        ] {
            assert_eq!(gateway.client().await.exchange(with(fields)).await.status, status, "{fields}");
        }

        // A route that is chosen by a header is not passed by with another spelling of it.
        let spec = Spec::to(&origin).public("headers = { x-team = true }").route("rest", "path_prefix = '/'");
        let gateway = spec.start().await;
        for (fields, status) in
            [("X-Team: red\r\n", 200), ("X-Other: red\r\n", 200), ("X_Team: red\r\n", 403)]
        {
            assert_eq!(gateway.client().await.exchange(with(fields)).await.status, status, "{fields}");
        }
    });
}

#[test]
fn a_condition_that_can_not_be_evaluated_protects() {
    run(async {
        let origin =
            Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Internal: secret\r\n\r\nok").await;
        let gateway = Spec::to(&origin)
            .public(
                r#"
                [request_headers]
                when = "request.headers['x-mode'] != 'internal'"
                remove = ["x-debug"]
                set = { x-tier = "standard" }
                rename = { x-from = "x-to" }
                add = { x-more = "added" }
                [response_headers]
                when = "request.headers['x-mode'] != 'internal'"
                remove = ["x-internal"]
                "#,
            )
            .start()
            .await;
        let fields = "X-Debug: 1\r\nX-Tier: gold\r\nX-From: 1\r\nX-To: 1\r\nX-More: 1\r\n";
        let ask = async |mode: &str| {
            let before = origin.text().len();
            let response = gateway.client().await.exchange(with(&format!("{mode}{fields}"))).await;
            assert_eq!(response.status, 200, "{mode}");
            (origin.text()[before..].to_lowercase(), response)
        };
        // The controls: where the condition does not hold, and where it does.
        let (arrived, response) = ask("X-Mode: internal\r\n").await;
        assert!(
            arrived.contains("x-debug: 1\r\nx-tier: gold\r\nx-from: 1\r\nx-to: 1\r\nx-more: 1\r\n"),
            "{arrived}"
        );
        assert_eq!(response.header("x-internal"), Some("secret"));
        let (arrived, response) = ask("X-Mode: external\r\n").await;
        assert!(!arrived.contains("x-debug") && arrived.contains("x-tier: standard"), "{arrived}");
        assert_eq!((headers(&arrived, "x-to"), headers(&arrived, "x-more")), (vec!["1"], vec!["1", "added"]));
        assert_eq!(response.header("x-internal"), None);
        let faults = gateway.gateway.metrics.expression_faults.value();
        for attack in [
            "X-Mode: internal\r\nX-Mode: external\r\n",
            "X-Mode: a\r\nX-Mode: internal\r\n",
            "X_Mode: internal\r\n",
            "",
        ] {
            let (arrived, response) = ask(attack).await;
            for gone in ["x-debug", "x-tier", "x-from", "x-to"] {
                assert!(headers(&arrived, gone).is_empty(), "{attack}: {arrived}");
            }
            assert_eq!(headers(&arrived, "x-more"), ["1"], "{attack}");
            assert_eq!(response.header("x-internal"), None, "{attack}");
        }
        gateway.log(6).await;
        assert_eq!(gateway.gateway.metrics.expression_faults.value(), faults + 8, "each is counted");
    });
}

#[test]
fn hints_of_strangers_do_not_arrive() {
    run(async {
        let origin = Origin::ok().await;
        let mut sent: Vec<String> = hints::NAMES.iter().map(|name| (*name).to_owned()).collect();
        sent.extend(hints::PREFIXES.iter().map(|prefix| format!("{prefix}Anything")));
        let always = ["Proxy", "X_Request_Id", "X_Forwarded_Ssl", "X.Original.URL"];
        let fields =
            |names: &[String]| names.iter().map(|name| format!("{name}: mallory\r\n")).collect::<String>();
        let all = format!("{}{}", fields(&sent), fields(&always.map(str::to_owned)));

        let gateway = Spec::to(&origin).start().await;
        assert_eq!(gateway.client().await.exchange(with(&all)).await.status, 200);
        assert!(!origin.text().contains("mallory"), "{}", origin.text());

        // A trusted proxy says what it knows, under its own spelling.
        let spec = Spec::to(&origin).with("trusted_proxies.prefixes = ['127.0.0.1']");
        assert_eq!(spec.start().await.client().await.exchange(with(&all)).await.status, 200);
        let arrived = origin.text();
        for name in &sent {
            assert_eq!(headers(&arrived, name), ["mallory"], "{name}");
        }
        for name in ["Proxy", "X_Request_Id"] {
            assert!(headers(&arrived, name).is_empty(), "{name}");
        }

        let origin = Origin::ok().await;
        let kept = "forwarding.keep_client_headers = ['x-http-method-override', 'X-Forwarded-Ssl']";
        let spec = Spec::to(&origin).with(kept);
        assert_eq!(
            spec.start()
                .await
                .client()
                .await
                .exchange(with(&format!("{all}X-Forwarded-Ssl: on\r\n")))
                .await
                .status,
            200
        );
        let arrived = origin.text();
        assert_eq!(arrived.matches("mallory").count(), 1, "{arrived}");
        assert_eq!(headers(&arrived, "X-HTTP-Method-Override"), ["mallory"]);
        assert_eq!(headers(&arrived, "X-Forwarded-Ssl"), ["on"]);
    });
}

#[test]
fn rules_read_no_forwarding_fields_of_untrusted_peers() {
    run(async {
        let origin = Origin::ok().await;
        for (policy, name) in [
            ("set", "x-forwarded-for"),
            ("append", "x-forwarded-for"),
            ("trust", "x-forwarded-proto"),
            ("off", "x-real-ip"),
            ("set", "x-original-url"),
            ("set", "remote-user"),
        ] {
            let spec = Spec::to(&origin)
                .with(format!("forwarding.forwarded = '{policy}'\ntrusted_proxies.prefixes = ['192.0.2.1']"))
                .public(
                    r#"
                    when = "!('x-forwarded-for' in request.headers || 'x-forwarded-proto' in request.headers || 'x-real-ip' in request.headers || 'x-original-url' in request.headers || 'remote-user' in request.headers || 'x-custom' in request.headers)"
                    "#,
                );
            let gateway = spec.start().await;
            let response = gateway.client().await.exchange(with(&format!("{name}: 1\r\n"))).await;
            assert_eq!(response.status, 200, "{name}");
            let control = gateway.client().await.exchange(with("X-Custom: 1\r\n")).await;
            assert_eq!(control.status, 404, "{name}");
        }
    });
}

#[test]
fn every_response_has_the_request_id_of_a_trusted_proxy_or_a_generated_one() {
    run(async {
        let origin = Origin::answering(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: of-the-service\r\n\r\nok",
        )
        .await;
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let given = format!("X-Request-Id: edge/7f:1\r\ntraceparent: {trace}\r\n");
        let too_long = format!("X-Request-Id: {}\r\n", "a".repeat(129));
        for (trusted, fields, expected) in [
            (true, given.as_str(), Some("edge/7f:1")),
            (false, given.as_str(), None),
            (true, "X-Request-Id: a\r\nX-Request-Id: b\r\n", None),
            (true, "X-Request-Id: a b\r\n", None),
            (true, "X-Request-Id: \"a\"\r\n", None),
            (true, "X-Request-Id: \r\n", None),
            (true, too_long.as_str(), None),
            (true, "", None),
        ] {
            let gateway = Spec::to(&origin).with(trusting(trusted)).start().await;
            let before = origin.text().len();
            let mut client = gateway.client().await;
            let served = client.exchange(with(fields)).await;
            let refused = client.exchange(with(fields).replacen(" / ", " /api ", 1)).await;
            assert_eq!((served.status, refused.status), (200, 401), "{fields}");
            let arrived = origin.text()[before..].to_owned();
            let log = gateway.log(2).await;
            for (response, line) in [(&served, &log[0]), (&refused, &log[1])] {
                let [id] = response.headers("x-request-id")[..] else { panic!("{}", response.head) };
                match expected {
                    Some(expected) => assert_eq!(id, expected),
                    None => {
                        assert!(id.len() == 26 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}")
                    }
                }
                assert_eq!(line["request_id"], id, "{fields}");
                let trace = fields.contains("traceparent").then_some(trace);
                assert_eq!(response.header("traceparent"), trace);
            }
            assert_eq!(headers(&arrived, "x-request-id"), [served.header("x-request-id").unwrap()]);
        }
        // What is no trace passes to the service, and is not given back.
        let gateway = Spec::to(&origin).start().await;
        let response = gateway.client().await.exchange(with("traceparent: 00-xyz\r\n")).await;
        assert_eq!(response.header("traceparent"), None);
        assert!(origin.text().contains("traceparent: 00-xyz"));
    });
}

#[test]
fn authorization_is_withheld_if_the_route_says_so() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).route("api", "forward_authorization = false");
        let gateway = spec.start().await;
        let token = gateway.token();
        let request = |path: &str| {
            format!(
                "GET {path} HTTP/1.1\r\nHost: a.example\r\nauthorization: Bearer {token}\r\nProxy-Authorization: Basic x\r\nProxy_Authorization: Basic x\r\n\r\n"
            )
        };
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(request("/api")).await.status, 200);
        let arrived = origin.text();
        assert!(arrived.contains("x-auth-subject: alice\r\n") && !arrived.contains(&token), "{arrived}");
        assert!(!arrived.to_lowercase().contains("authorization"), "{arrived}");
        // Elsewhere it is forwarded as it came.
        assert_eq!(client.exchange(request("/")).await.status, 200);
        assert!(origin.text().contains(&format!("authorization: Bearer {token}\r\n")));
        assert!(!origin.text().contains("Basic x"));
    });
}

#[test]
fn changes_for_all_routes_come_before_those_of_a_route_and_hold_for_refusals() {
    run(async {
        let origin =
            Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: secret\r\n\r\nok").await;
        let spec = Spec::to(&origin)
            .public(
                r#"
                request_headers.set = { x-from = "route", x-read = "{request.headers.x-all}" }
                response_headers.set = { x-out = "route {response.headers.x-all}" }
                "#,
            )
            .with(
                r#"
                request_headers.set = { x-all = "all", x-from = "all" }
                [response_headers]
                set = { strict-transport-security = "max-age=1", x-all = "{response.status}", x-out = "all" }
                remove = ["server"]
                "#,
            );
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        let response = client.exchange(with("X-All: mallory\r\nX_All: mallory\r\n")).await;
        let arrived = origin.text();
        for (name, value) in [("x-all", "all"), ("x-from", "route"), ("x-read", "all")] {
            assert_eq!(headers(&arrived, name), [value], "{arrived}");
        }
        assert!(!arrived.contains("mallory"));
        assert_eq!(response.header("x-out"), Some("route 200"));
        assert_eq!(response.header("strict-transport-security"), Some("max-age=1"));
        assert_eq!(response.header("server"), None);
        for (request, status) in [
            (get("/api"), 401),
            (get("/%00"), 400),
            ("GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: x\r\n\r\n".to_owned(), 400),
            ("G@T / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), 400),
        ] {
            let response = gateway.client().await.exchange(&request).await;
            assert_eq!(response.status, status, "{request}");
            assert_eq!(response.header("strict-transport-security"), Some("max-age=1"), "{request}");
            assert_eq!(response.header("x-all"), Some(status.to_string().as_str()), "{request}");
        }
    });
}

/// Whether this machine is a trusted proxy.
fn trusting(trusted: bool) -> &'static str {
    if trusted { "trusted_proxies.prefixes = ['127.0.0.0/8']" } else { "" }
}

/// What a log shows of who has sent a request, and of what it may not say.
const SHOWN: [(&str, &str); 5] = [
    ("source", "source.address"),
    ("subject", "request.first_header.x-auth-subject"),
    ("forwarded", "request.first_header.x-forwarded-proto"),
    ("lookalike", "request.first_header.user.agent"),
    ("id", "request.id"),
];

#[test]
fn refusals_are_logged_with_their_source_and_without_what_counts_for_nothing() {
    run(async {
        let fields = "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nX-Auth-Subject: forged\r\n\
            User.Agent: forged\r\nX-Request-Id: given\r\n";
        let refused = [
            format!("GET /a%zz HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"),
            format!("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"),
            format!("GET / HTTP/1.1\r\nHost: a b\r\n{fields}\r\n"),
            format!("GET / HTTP/1.1\r\n{fields}\r\n"),
            format!("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n{fields}\r\n"),
            format!("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: host\r\n{fields}\r\n"),
            format!(
                "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n{fields}\r\n"
            ),
            format!("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip\r\n{fields}\r\n"),
        ];
        for trusted in [false, true] {
            let origin = Origin::ok().await;
            let shown = SHOWN.map(|(name, attribute)| format!("{name} = '{attribute}'\n")).concat();
            let gateway = Spec::to(&origin)
                .with(trusting(trusted))
                .with(format!("[access_log.fields]\n{shown}"))
                .start()
                .await;
            let mut statuses = Vec::new();
            for request in &refused {
                statuses.push(gateway.client().await.exchange(request).await.status);
            }
            assert!(statuses.iter().all(|status| *status >= 400), "{statuses:?}");
            for (request, line) in refused.iter().zip(gateway.log(refused.len()).await) {
                // What was not read says nothing; the connection does.
                let source = line["source"].as_str().unwrap_or_default();
                let expected = if trusted { "198.51.100.7" } else { "127.0.0.1" };
                assert_eq!(source, expected, "{request}: {line}");
                assert!(line["subject"].is_null() && line["lookalike"].is_null(), "{request}: {line}");
                assert!(line["forwarded"].is_null(), "{request}: {line}");
                assert_eq!(line["id"] == "given", trusted, "{request}: {line}");
            }
        }
    });
}

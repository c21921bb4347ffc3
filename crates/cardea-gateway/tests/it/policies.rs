//! Rules of policies and conditions of routes with real requests: what they let in, and attacks on them.

use serde_json::json;

use crate::support::{Origin, Spec, get, run};

fn with_headers(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n")
}

/// Sends each request on a connection of its own; what the statuses and codes were.
async fn outcomes(spec: Spec, requests: &[(String, u16, &str)]) {
    let gateway = spec.start().await;
    for (request, status, code) in requests {
        let response = gateway.client().await.exchange(request).await;
        assert_eq!(response.status, *status, "{request}{}", response.text());
        if *status >= 400 {
            assert_eq!(response.code(), *code, "{request}");
        }
    }
}

#[test]
fn a_rule_that_denies_is_not_passed_by() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).public(
            r#"
            policy = [
                { deny = "has(request.headers['x-role']) && request.headers['x-role'] == 'guest'" },
                { deny = "request.path.startsWith('/hidden')" },
                { deny = "'role' in request.query_params && request.query_params['role'] == 'admin'" },
                { deny = "'mode' in request.cookies && request.cookies.mode == 'debug'" },
            ]
            "#,
        );
        let denied = |request: String| (request, 403, "policy_denied");
        let failed = |request: String| (request, 403, "policy_failed");
        let control = |request: String| (request, 200, "");
        outcomes(
            spec,
            &[
                control(get("/open")),
                control(with_headers("/", "X-Role: member\r\n")),
                // A service that joins them gets `member, member`, which nobody has judged.
                failed(with_headers("/", "X-Role: member\r\nX-Role: member\r\n")),
                denied(with_headers("/", "X-ROLE: guest\r\n")),
                denied(with_headers("/", "x-role:   guest  \r\n")),
                // The first is harmless, and what the service takes may be the second; or the other way round.
                failed(with_headers("/", "X-Role: member\r\nX-Role: guest\r\n")),
                failed(with_headers("/", "X-Role: guest\r\nX-Role: member\r\n")),
                denied(get("/hidden/x")),
                denied(get("/%68idden/x")),
                denied(get("/a/..//hidden/x")),
                denied(get("/?role=admin")),
                denied(get("/?r%6Fle=%61dmin")),
                failed(get("/?role=user&role=admin")),
                failed(get("/?role=user&r%6Fle=admin")),
                failed(get("/?role=user&role=user")),
                control(get("/?role=user&Role=admin")),
                control(with_headers("/", "Cookie: mode=plain; mode=plain\r\n")),
                control(with_headers("/", "Cookie: mode=plain\r\n")),
                denied(with_headers("/", "Cookie: a=1;mode=debug\r\n")),
                failed(with_headers("/", "Cookie: mode=plain; mode=debug\r\n")),
                failed(with_headers("/", "Cookie: mode=plain\r\nCookie: mode=debug\r\n")),
            ],
        )
        .await;
        assert!(!origin.text().contains("admin HTTP") || origin.text().contains("Role=admin"));
        assert!(!origin.text().contains("hidden"), "{}", origin.text());
    });
}

#[test]
fn evaluation_errors_deny_in_allow_and_deny_rules() {
    run(async {
        let origin = Origin::ok().await;
        let spec = |rules: &str| Spec::to(&origin).public(format!("policy = [{rules}]"));
        let cases = [
            (r#"{ deny = "token.sub == 'mallory'" }"#, 403, "policy_failed"),
            (r#"{ allow = "token.sub == 'alice'" }"#, 403, "policy_failed"),
            (r#"{ deny = "int(request.path) > 3" }, { allow = "true" }"#, 403, "policy_failed"),
            (r#"{ allow = "has(token.sub) && token.sub == 'alice'" }"#, 403, "policy_denied"),
            (r#"{ deny = "has(token.sub) && token.sub == 'mallory'" }"#, 200, ""),
            (r#"{ deny = "false" }, { allow = "false" }, { allow = "true" }"#, 200, ""),
        ];
        for (rules, status, code) in cases {
            outcomes(spec(rules), &[(get("/"), status, code)]).await;
        }
        let gateway = spec(r#"{ deny = "token.sub == 'mallory'" }"#).start().await;
        assert_eq!(gateway.client().await.exchange(get("/")).await.status, 403);
        gateway.log(1).await;
        assert_eq!(gateway.gateway.metrics.expression_faults.value(), 1, "it is counted");
    });
}

#[test]
fn reasons_reach_the_log_and_the_caller_only_where_the_rule_says_so() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin)
            .public(
                r#"
                policy = [
                    { deny = "request.path == '/told'", reason = "not today", show = true },
                    { deny = "request.path == '/kept'", reason = "on the list of Ada" },
                    { allow = "request.path != '/none'", reason = "all else", show = true },
                ]
                "#,
            )
            .with(r#"policy = [{ deny = "request.method == 'TRACE'", reason = "no traces" }]"#)
            .logging(["policy.effect", "policy.reason", "response.reason"]);
        let gateway = spec.start().await;
        let trace = "TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned();
        for (index, (request, detail, line)) in [
            (get("/told"), Some("not today"), json!({"policy.effect": "deny", "policy.reason": "not today", "response.reason": "policy_denied"})),
            (get("/kept"), None, json!({"policy.effect": "deny", "policy.reason": "on the list of Ada", "response.reason": "policy_denied"})),
            (get("/none"), None, json!({"policy.effect": "deny", "response.reason": "policy_denied"})),
            (trace, None, json!({"policy.effect": "deny", "policy.reason": "no traces", "response.reason": "policy_denied"})),
            (get("/open"), None, json!({"policy.effect": "allow"})),
        ]
        .into_iter()
        .enumerate()
        {
            let response = gateway.client().await.exchange(&request).await;
            if response.status == 403 {
                let document: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
                assert_eq!(document.get("detail").and_then(|detail| detail.as_str()), detail);
                assert!(!response.text().contains("Ada"));
            }
            assert_eq!(gateway.log(index + 1).await[index], line, "{request}");
        }
        assert!(!origin.text().contains("GET /told"), "{}", origin.text());
    });
}

#[test]
fn a_policy_runs_after_identification_and_reads_claims() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).route(
            "api",
            r#"
            [[policy]]
            allow = "'write' in token.scopes && token.claims.org.unit == 'ops' && token.claims.level >= 3"
            "#,
        );
        let gateway = spec.start().await;
        for (claims, status, code) in [
            (json!({"org": {"unit": "ops"}, "level": 3}), 200, ""),
            (json!({"org": {"unit": "ops"}, "level": 2}), 403, "policy_denied"),
            (json!({"org": {"unit": "dev"}, "level": 3}), 403, "policy_denied"),
            (json!({"org": {"unit": "ops"}, "level": "3"}), 403, "policy_failed"),
            (json!({"org.unit": "ops", "level": 3}), 403, "policy_failed"),
            (json!({"org": "ops", "level": 3}), 403, "policy_failed"),
            (json!({"level": 3}), 403, "policy_failed"),
        ] {
            let request =
                with_headers("/api", &format!("Authorization: Bearer {}\r\n", gateway.token_with(&claims)));
            let response = gateway.client().await.exchange(request).await;
            assert_eq!(response.status, status, "{claims}: {}", response.text());
            if status == 403 {
                assert_eq!(response.code(), code, "{claims}");
            }
        }
        let response = gateway.client().await.exchange(get("/api")).await;
        assert_eq!((response.status, response.code().as_str()), (401, "credentials_missing"));
    });
}

#[test]
fn a_condition_that_is_false_skips_the_route_and_one_that_fails_refuses() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).route(
            "preview",
            r#"
            path_prefix = "/"
            when = "'preview' in request.query_params && request.query_params.preview == '1'"
            response_headers.set = { x-route = "preview" }
            "#,
        );
        let gateway = spec.start().await;
        for (path, route) in [("/", None), ("/?preview=1", Some("preview")), ("/?preview=0", None)] {
            let response = gateway.client().await.exchange(get(path)).await;
            assert_eq!((response.status, response.header("x-route")), (200, route), "{path}");
        }
        let response = gateway.client().await.exchange(get("/?preview=0&preview=1")).await;
        assert_eq!((response.status, response.code().as_str()), (403, "condition_failed"));
    });
}

#[test]
fn changes_of_attributes_are_seen_by_policy_header_and_log_and_by_no_other_request() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin)
            .with("[[attribute]]\nname = 'tier'\ntemplate = '{request.headers.x-tier|none}'")
            .public(
                r#"
                attributes = [
                    { when = "request.path == '/set'", set = { "custom.tier" = "gold {request.method}" } },
                    { when = "request.path == '/removed'", remove = ["request.headers.x-tier"] },
                ]
                policy = [
                    { deny = "has(request.headers['x-tier']) && request.headers['x-tier'] == 'iron'" },
                ]
                request_headers.set = { x-seen = "{custom.tier}" }
                "#,
            )
            .logging(["custom.tier", "request.headers.x-tier"]);
        let gateway = spec.start().await;
        // One connection, so that memory of a request serves the next.
        let mut client = gateway.client().await;
        for (index, (path, header, status, tier, logged)) in [
            ("/", "", 200, "none", json!({"custom.tier": "none"})),
            ("/set", "", 200, "gold GET", json!({"custom.tier": "gold GET"})),
            (
                "/",
                "X-Tier: tin\r\n",
                200,
                "tin",
                json!({"custom.tier": "tin", "request.headers.x-tier": "tin"}),
            ),
            (
                "/",
                "X-Tier: iron\r\n",
                403,
                "",
                json!({"custom.tier": "iron", "request.headers.x-tier": "iron"}),
            ),
            // Removed, it reads as absent everywhere: the policy does not see it either.
            ("/removed", "X-Tier: iron\r\n", 200, "none", json!({"custom.tier": "none"})),
            (
                "/",
                "X-Tier: iron\r\n",
                403,
                "",
                json!({"custom.tier": "iron", "request.headers.x-tier": "iron"}),
            ),
            ("/", "", 200, "none", json!({"custom.tier": "none"})),
        ]
        .into_iter()
        .enumerate()
        {
            let before = origin.text().len();
            assert_eq!(client.exchange(with_headers(path, header)).await.status, status, "{index}");
            if status == 200 {
                let sent = origin.text()[before..].to_owned();
                assert!(sent.contains(&format!("x-seen: {tier}\r\n")), "{index}: {sent}");
            }
            assert_eq!(gateway.log(index + 1).await[index], logged, "{index}");
        }
    });
}

#[test]
fn no_address_rule_holds_for_a_client_that_a_proxy_does_not_name() {
    run(async {
        let origin = Origin::ok().await;
        let denies = "policy = [{ deny = \"source.address in cidr('203.0.113.0/24')\" }]";
        let allows = "policy = [{ allow = \"source.address.isLoopback() || source.address.isPrivate()\" }]";
        let line = |field: &str| with_headers("/", &format!("{field}\r\n"));
        for (header, listed, unreadable) in [
            (
                "x-forwarded",
                "X-Forwarded-For: 203.0.113.5",
                [
                    "X-Forwarded-For: 203.0.113.5, unknown",
                    "X-Forwarded-For: unknown",
                    "X-Forwarded-For: 203.0.113.005",
                    "X-Forwarded-For: 203.0.113.5, unknown, 10.0.0.2",
                    "X-Forwarded-For: 203.0.113.5;x",
                ],
            ),
            (
                "forwarded",
                "Forwarded: for=203.0.113.5",
                [
                    "Forwarded: for=203.0.113.5, for=_hidden",
                    "Forwarded: for=unknown",
                    "Forwarded: for=203.0.113.5:80",
                    "Forwarded: for=203.0.113.5;for=10.0.0.2",
                    "Forwarded: for=203.0.113.5, proto=https",
                ],
            ),
        ] {
            let spec = |rules: &str| {
                Spec::to(&origin).public(rules).with(format!(
                    "trusted_proxies.prefixes = ['127.0.0.0/8', '10.0.0.0/8']\nforwarding.header = '{header}'"
                ))
            };
            let failed = || unreadable.iter().map(|field| (line(field), 403, "policy_failed"));
            let mut denied = vec![(get("/"), 200, ""), (line(listed), 403, "policy_denied")];
            denied.extend(failed());
            outcomes(spec(denies), &denied).await;
            let mut allowed = vec![(get("/"), 200, ""), (line(listed), 403, "policy_denied")];
            allowed.extend(failed());
            outcomes(spec(allows), &allowed).await;
        }
    });
}

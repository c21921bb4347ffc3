//! Rules of policies and conditions of routes with real requests: what they let in, and attacks on them.

use cardea_env::{Condition, Effect, JsonRecord, Names, Policy, Reference, Rule, Source, Template};
use cardea_gateway::{
    attributes::{TABLE, redaction},
    exchange::Exchange,
    model::{AttributeChange, AttributeRule, EnvironmentModel, HeaderRule, LogFormat, RouteRules},
};
use serde_json::json;

use crate::support::{Origin, RouteSpec, Spec, get, run};

fn condition(text: &str) -> Condition<Exchange> {
    Condition::compile(text, &TABLE).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn rule(effect: Effect, text: &str, reason: Option<&str>, show: bool) -> Rule<Exchange> {
    Rule { effect, condition: condition(text), reason: reason.map(Into::into), show }
}

fn policy(rules: &[(Effect, &str)]) -> Option<Policy<Exchange>> {
    Some(Policy::new(rules.iter().map(|(effect, text)| rule(*effect, text, None, false)).collect()))
}

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
        let spec = Spec::to(&origin).public(|route| {
            route.rules = || RouteRules {
                policy: policy(&[
                    (Effect::Deny, "has(request.headers['x-role']) && request.headers['x-role'] == 'guest'"),
                    (Effect::Deny, "request.path.startsWith('/hidden')"),
                    (
                        Effect::Deny,
                        "'role' in request.query_params && request.query_params['role'] == 'admin'",
                    ),
                    (Effect::Deny, "'mode' in request.cookies && request.cookies.mode == 'debug'"),
                ]),
                ..RouteRules::default()
            };
        });
        let denied = |request: String| (request, 403, "policy_denied");
        let failed = |request: String| (request, 403, "policy_failed");
        let control = |request: String| (request, 200, "");
        outcomes(
            spec,
            &[
                control(get("/open")),
                control(with_headers("/", "X-Role: member\r\n")),
                control(with_headers("/", "X-Role: member\r\nX-Role: member\r\n")),
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
                control(get("/?role=user&Role=admin")),
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
fn what_can_not_be_evaluated_denies_in_rules_that_allow_and_in_rules_that_deny() {
    run(async {
        let origin = Origin::ok().await;
        let spec = |rules: fn() -> RouteRules| Spec::to(&origin).public(|route| route.rules = rules);
        type Case = (fn() -> RouteRules, u16, &'static str);
        let cases: [Case; 6] = [
            (|| of(&[(Effect::Deny, "token.sub == 'mallory'")]), 403, "policy_failed"),
            (|| of(&[(Effect::Allow, "token.sub == 'alice'")]), 403, "policy_failed"),
            (
                || of(&[(Effect::Deny, "int(request.path) > 3"), (Effect::Allow, "true")]),
                403,
                "policy_failed",
            ),
            (|| of(&[(Effect::Allow, "has(token.sub) && token.sub == 'alice'")]), 403, "policy_denied"),
            (|| of(&[(Effect::Deny, "has(token.sub) && token.sub == 'mallory'")]), 200, ""),
            (|| of(&[(Effect::Deny, "false"), (Effect::Allow, "false"), (Effect::Allow, "true")]), 200, ""),
        ];
        for (rules, status, code) in cases {
            outcomes(spec(rules), &[(get("/"), status, code)]).await;
        }
        let gateway = spec(|| of(&[(Effect::Deny, "token.sub == 'mallory'")])).start().await;
        assert_eq!(gateway.client().await.exchange(get("/")).await.status, 403);
        gateway.log(1).await;
        assert_eq!(gateway.gateway.metrics.expression_faults.value(), 1, "it is counted");
    });
}

pub(crate) fn of(rules: &[(Effect, &str)]) -> RouteRules {
    RouteRules { policy: policy(rules), ..RouteRules::default() }
}

#[test]
fn reasons_reach_the_log_and_the_caller_only_where_the_rule_says_so() {
    run(async {
        let origin = Origin::ok().await;
        let mut spec = Spec::to(&origin).public(|route| {
            route.rules = || RouteRules {
                policy: Some(Policy::new(vec![
                    rule(Effect::Deny, "request.path == '/told'", Some("not today"), true),
                    rule(Effect::Deny, "request.path == '/kept'", Some("on the list of Ada"), false),
                    rule(Effect::Allow, "request.path != '/none'", Some("all else"), true),
                ])),
                ..RouteRules::default()
            };
        });
        spec.environment = || EnvironmentModel {
            policy: Some(Policy::new(vec![rule(
                Effect::Deny,
                "request.method == 'TRACE'",
                Some("no traces"),
                false,
            )])),
            ..EnvironmentModel::default()
        };
        spec.log = || {
            let fields = ["policy.effect", "policy.reason", "response.reason"].map(|name| (name, name));
            LogFormat::Json(JsonRecord::compile(fields, &TABLE).unwrap()).into()
        };
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
fn a_policy_stands_behind_the_token_and_sees_its_claims() {
    run(async {
        let origin = Origin::ok().await;
        let mut spec = Spec::to(&origin);
        spec.routes[1].rules = || {
            of(&[(
                Effect::Allow,
                "'write' in token.scopes && token.claims.org.unit == 'ops' && token.claims.level >= 3",
            )])
        };
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
fn a_route_with_a_condition_yields_where_it_does_not_hold_and_refuses_where_it_can_not_tell() {
    run(async {
        let origin = Origin::ok().await;
        let mut spec = Spec::to(&origin);
        let mut preview = RouteSpec::new("preview", "/");
        preview.matches.condition = true;
        preview.rules = || RouteRules {
            when: Some(condition("'preview' in request.query_params && request.query_params.preview == '1'")),
            ..RouteRules::default()
        };
        preview.response_headers = vec![("x-route", "preview")];
        spec.routes.push(preview);
        let gateway = spec.start().await;
        for (path, route) in [("/", None), ("/?preview=1", Some("preview")), ("/?preview=0", None)] {
            let response = gateway.client().await.exchange(get(path)).await;
            assert_eq!((response.status, response.header("x-route")), (200, route), "{path}");
        }
        let response = gateway.client().await.exchange(get("/?preview=0&preview=1")).await;
        assert_eq!((response.status, response.code().as_str()), (403, "condition_failed"));
    });
}

fn declared() -> Names<Exchange> {
    let mut names = Names::new(&TABLE).with_redaction(redaction());
    let tier = Template::compile("{request.headers.x-tier|none}", &names).unwrap();
    names.declare("custom.tier", Source::Template(tier)).unwrap();
    names
}

thread_local! {
    // One for the model and what is compiled against it: custom attributes are those of one configuration.
    static NAMES: Names<Exchange> = declared();
}

fn named(name: &str) -> Reference<Exchange> {
    use cardea_env::Lookup as _;
    NAMES.with(|names| names.resolve(name)).unwrap()
}

#[test]
fn changes_of_attributes_are_seen_by_policy_header_and_log_and_by_no_other_request() {
    run(async {
        let origin = Origin::ok().await;
        let mut spec = Spec::to(&origin).public(|route| {
            route.rules = || RouteRules {
                attributes: vec![
                    AttributeRule {
                        when: Some(condition("request.path == '/set'")),
                        name: named("custom.tier"),
                        change: AttributeChange::Set(
                            Template::compile("gold {request.method}", &TABLE).unwrap(),
                        ),
                    },
                    AttributeRule {
                        when: Some(condition("request.path == '/removed'")),
                        name: named("request.headers.x-tier"),
                        change: AttributeChange::Remove,
                    },
                ],
                policy: Some(Policy::new(vec![Rule {
                    effect: Effect::Deny,
                    condition: NAMES
                        .with(|names| {
                            Condition::compile(
                                "has(request.headers['x-tier']) && request.headers['x-tier'] == 'iron'",
                                names,
                            )
                        })
                        .unwrap(),
                    reason: None,
                    show: false,
                }])),
                ..RouteRules::default()
            };
            route.rules_of_headers = || {
                let tier = NAMES.with(|names| Template::compile("{custom.tier}", names)).unwrap();
                (vec![HeaderRule::Set("x-seen".into(), tier)], Vec::new())
            };
        });
        spec.log = || {
            let fields = ["custom.tier", "request.headers.x-tier"].map(|name| (name, name));
            LogFormat::Json(NAMES.with(|names| JsonRecord::compile(fields, names)).unwrap()).into()
        };
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

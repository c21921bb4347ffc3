//! Who may, and what the origin is told of who it was.

use cardea_clock::Wall;
use serde_json::json;

use crate::support::{Origin, Spec, get, run, tokens::ISSUER};

fn with_token(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n\r\n")
}

#[test]
fn token_failures_have_the_challenges_of_rfc_6750() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let token = gateway.token();
        let mut forged = token.clone();
        let flipped = if forged.ends_with('A') { 'B' } else { 'A' };
        forged.replace_range(forged.len() - 10..forged.len() - 9, &flipped.to_string());
        if forged == token {
            forged.replace_range(forged.len() - 10..forged.len() - 9, "C");
        }
        let expired = gateway.token_with(&json!({"exp": 1_000_000, "iat": 999_000}));
        let other = gateway.token_with(&json!({"aud": "api2"}));
        let admin = gateway.token_with(&json!({"scope": "admin"}));
        let bound = gateway.token_with(&json!({"cnf": {"jkt": "x"}}));
        let twice = format!(
            "GET /api HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        let basic = "GET /api HTTP/1.1\r\nHost: a.example\r\nAuthorization: Basic YTpi\r\n\r\n".to_owned();
        let cases = [
            (get("/api"), 401, "Bearer", None),
            (with_token("/api", &forged), 401, "invalid_token", Some("signature")),
            (with_token("/api", &expired), 401, "invalid_token", Some("expired")),
            (with_token("/api", "a.b.c"), 401, "invalid_token", None),
            (with_token("/api", &other), 401, "invalid_token", Some("audience_mismatch")),
            (with_token("/api", &bound), 401, "invalid_token", None),
            (with_token("/admin", &token), 403, "insufficient_scope", Some("insufficient_scope")),
            (with_token("/other", &token), 401, "invalid_token", Some("audience_mismatch")),
            (twice, 400, "invalid_request", Some("credentials_malformed")),
            (basic, 401, "Bearer", Some("credentials_missing")),
            (get(&format!("/api?access_token={token}")), 401, "Bearer", Some("credentials_missing")),
        ];
        let mut client = gateway.client().await;
        for (request, status, challenge, code) in cases {
            let response = client.exchange(&request).await;
            assert_eq!(response.status, status, "{}", response.text());
            let value = response.header("www-authenticate").unwrap_or_else(|| panic!("{}", response.head));
            assert!(value.starts_with("Bearer") && value.contains(challenge), "{value}");
            if challenge == "Bearer" {
                assert!(!value.contains("error"), "{value}");
            }
            if challenge == "insufficient_scope" {
                assert!(value.contains("scope=\"admin\""), "{value}");
            }
            if let Some(code) = code {
                assert!(response.code().contains(code), "{} is not {code}", response.code());
            }
            assert!(!response.text().contains("eyJ"), "no token in an answer");
            assert!(response.header("x-request-id").is_some());
        }
        assert_eq!(origin.text(), "", "nothing arrived");
        for (path, token) in [("/api", &token), ("/other", &other), ("/admin", &admin)] {
            assert_eq!(client.exchange(with_token(path, token)).await.status, 200, "{path}");
        }
    });
}

#[test]
fn each_request_of_a_connection_is_identified_by_its_own_token() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let [alice, bob] = ["alice", "bob"].map(|name| gateway.token_with(&json!({"sub": name})));
        let forged = format!("{}AAAA", &alice[..alice.len() - 4]);
        let mut client = gateway.client().await;
        let mut arrivals = Vec::new();
        for (request, status, subject) in [
            (with_token("/api", &alice), 200, Some("alice")),
            (with_token("/api", &alice), 200, Some("alice")),
            (with_token("/api", &bob), 200, Some("bob")),
            (get("/api"), 401, None),
            (with_token("/api", &alice), 200, Some("alice")),
            (with_token("/api", &forged), 401, None),
            (with_token("/other", &alice), 401, None),
            (with_token("/api", &alice), 200, Some("alice")),
        ] {
            assert_eq!(client.exchange(request).await.status, status, "after {arrivals:?}");
            arrivals.extend(subject);
            let text = origin.text().to_lowercase();
            let told = text.lines().filter_map(|line| line.strip_prefix("x-auth-subject: "));
            assert_eq!(told.map(str::trim_end).collect::<Vec<_>>(), arrivals, "{text}");
            assert_eq!(text.matches("\nhost: a.example").count(), arrivals.len(), "nothing else arrives");
        }
        let authenticator = std::sync::Arc::clone(&gateway.gateway.model().authenticator);
        assert_eq!(authenticator.verifications(), 3, "alice, bob and the forged one");
    });
}

#[test]
fn a_token_is_compared_with_the_requirement_of_each_route() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let (token, admin) = (gateway.token(), gateway.token_with(&json!({"scope": "admin"})));
        let mut client = gateway.client().await;
        // Found by the connection each time but the first of either.
        for (path, token, expected) in [
            ("/api", &token, (200, None)),
            ("/admin", &token, (403, Some("insufficient_scope"))),
            ("/other", &token, (401, Some("audience_mismatch"))),
            ("/api", &token, (200, None)),
            ("/admin", &admin, (200, None)),
            ("/other", &admin, (401, Some("audience_mismatch"))),
            ("/admin", &token, (403, Some("insufficient_scope"))),
        ] {
            let response = client.exchange(with_token(path, token)).await;
            let code = (response.status != 200).then(|| response.code());
            assert_eq!((response.status, code.as_deref()), expected, "{path}");
        }
        for (source, count) in [("verification", 2), ("connection", 4), ("cache", 1)] {
            let metric = format!("cardea_token_verdicts_total{{source=\"{source}\"}} {count}");
            assert!(gateway.has_metric(&metric), "{metric}");
        }
    });
}

#[test]
fn a_revoked_subject_is_refused_at_once() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let token = gateway.token();
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(with_token("/api", &token)).await.status, 200);
        gateway.gateway.model().authenticator.revocations().revoke("main", "alice", Wall::MAX, Wall::MAX);
        assert_eq!(client.exchange(with_token("/api", &token)).await.status, 401);
    });
}

#[test]
fn a_public_route_requires_no_token_and_sets_no_identity() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(with_token("/", &gateway.token())).await.status, 200);
        assert_eq!(client.exchange(with_token("/", "rubbish")).await.status, 200);
        assert!(!origin.text().contains("x-auth-subject"));
    });
}

#[test]
fn identity_headers_of_clients_never_arrive() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let token = gateway.token();
        let forgeries = [
            "X-Auth-Subject: mallory\r\n",
            "x-auth-subject: mallory\r\n",
            "X_Auth_Subject: mallory\r\n",
            "x-auth_subject: mallory\r\n",
            "X-Auth-Subject: mallory\r\nX-Auth-Subject: mallory\r\n",
            "X-Auth-Subject: mallory\r\nConnection: x-auth-subject\r\n",
            "X-Auth-Subject:\r\nx-auth-issuer: mallory\r\nConnection: close, x-auth-issuer\r\n",
        ];
        for forgery in forgeries {
            for path in ["/", "/api"] {
                let before = origin.text().len();
                let mut client = gateway.client().await;
                let request = format!(
                    "GET {path} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n{forgery}\r\n"
                );
                assert_eq!(client.exchange(request).await.status, 200);
                let text = origin.text()[before..].to_lowercase();
                assert!(!text.contains("mallory") && !text.contains("auth_subject"), "{forgery:?}: {text}");
                let ours = usize::from(path == "/api");
                assert_eq!(text.matches("\r\nx-auth-subject: alice\r\n").count(), ours, "{text}");
                assert_eq!(text.matches(&format!("\r\nx-auth-issuer: {ISSUER}\r\n")).count(), ours, "{text}");
                // And the client and its scopes.
                assert_eq!(text.matches("x-auth-").count(), 4 * ours, "{text}");
            }
        }
        let trailers = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
            2\r\nhi\r\n0\r\nX-Auth-Subject: mallory\r\nx_auth_issuer: mallory\r\nX-Fine: yes\r\n\
            Content-Length: 7\r\nHost: mallory\r\nAuthorization: mallory\r\n\r\n";
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(trailers).await.status, 200);
        assert!(origin.text().ends_with("0\r\nX-Fine: yes\r\n\r\n"), "{}", origin.text());
        assert!(!origin.text().contains("mallory"));
    });
}

#[test]
fn a_caller_gets_no_header_past_what_a_claim_may_hold() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let token = gateway.token_with(&json!({"sub": "alice\r\nX-Admin: yes"}));
        let mut client = gateway.client().await;
        client.send(with_token("/api", &token)).await;
        let response = client.response().await;
        assert!(!origin.text().contains("X-Admin"), "{} {}", response.head, origin.text());
    });
}

#[test]
fn the_access_log_has_a_line_for_each_request_and_no_secret() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let token = gateway.token();
        let mut client = gateway.client().await;
        let secret = "GET /a HTTP/1.1\r\nHost: a.example\r\nCookie: session=tasty\r\nUser-Agent: u\r\n\r\n";
        client.exchange(secret).await;
        client.exchange(with_token("/api", &token)).await;
        client.exchange(get("/api")).await;
        client.exchange(get("/a%00")).await;
        client.exchange("GET / HTTP/9.9\r\nHost: a\r\n\r\n").await;
        let lines = gateway.log(5).await;
        let field = |line: usize, name: &str| lines[line][name].clone();
        assert_eq!(field(0, "http.response.status_code"), 200);
        assert_eq!(field(0, "http.route"), "public");
        assert_eq!(field(0, "complete"), true);
        assert_eq!(field(1, "enduser.id"), "alice");
        assert_eq!(
            (field(2, "reason"), field(2, "http.route")),
            (json!("credentials_missing"), json!("api"))
        );
        assert_eq!(field(3, "reason"), "path_encoding_not_allowed");
        assert_eq!(
            (field(4, "reason"), field(4, "http.response.status_code")),
            (json!("version_unsupported"), json!(505))
        );
        let text = gateway.log_text();
        for secret in [token.as_str(), "tasty", "eyJ", "Bearer"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    });
}

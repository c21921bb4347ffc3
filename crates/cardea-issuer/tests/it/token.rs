//! The token endpoint in detail: RFC 6749, RFC 8707, RFC 9068.

use std::{sync::Arc, time::Duration};

use cardea_issuer::{
    AuthorizationServer, AuthorizationServerConfig, NewClient, TOKEN_LIFETIME_MAX, TokenRequest,
};
use cardea_store::{BasicEncoding, SigningAlgorithm};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    counting::CountingStore,
    support::{FORM, Fixture, GRANT, START, basic, basic_of, config, header, json, wrapping_key},
};

#[tokio::test]
async fn a_token_is_what_rfc_9068_says() {
    for algorithm in [SigningAlgorithm::Es256, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa] {
        let mut config = config();
        config.algorithm = algorithm;
        let fixture = Fixture::with(config).await;
        let client = fixture.client().await;
        let id = &client.client.client_id;
        let token = fixture.token(&client).await;

        assert_eq!(token.header["typ"], "at+jwt");
        assert_eq!(token.header["alg"], algorithm.as_str());
        let now = START.unix_seconds();
        let jti = token.claims["jti"].as_str().unwrap();
        assert_eq!(jti.len(), 22);
        let expected = json!({
            "iss": "https://id.example.com", "sub": id, "client_id": id, "aud": "https://api.example.com",
            "iat": now, "exp": now + 3_600, "jti": jti, "scope": "orders:read users:read",
        });
        assert_eq!(token.claims, expected);
        assert_eq!(token.response["token_type"], "Bearer");
        assert_eq!(token.response["expires_in"], 3_600);
        assert_eq!(token.response["scope"], "orders:read users:read");
        assert_ne!(fixture.token(&client).await.claims["jti"], jti, "every token has an id of its own");
    }
}

#[tokio::test]
async fn every_response_is_json_with_no_store() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    for reply in [
        fixture.post(&[&basic_of(&client)], GRANT).await,
        fixture.post(&[], GRANT).await,
        fixture.post(&[&basic_of(&client)], "").await,
        fixture.server.authorize_refusal(),
    ] {
        assert_eq!(header(&reply, "content-type"), Some("application/json"));
        assert_eq!(header(&reply, "cache-control"), Some("no-store"));
        assert!(json(&reply).is_object());
        assert_eq!(reply.reason.is_some(), reply.status != 200);
    }
}

/// The table of RFC 6749 §5.2 with related cases. `ID` and `SECRET` are replaced by a client's own.
#[tokio::test]
async fn requests_are_refused_as_the_rfcs_say_beside_controls_that_succeed() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let (id, secret) = (client.client.client_id.as_str(), client.secret.expose());
    let good = basic_of(&client);
    let wrong = basic(id, "cdsec_wrong");
    let unknown = basic("cdcli_unknown", secret);
    let grant_and = |rest: &str| format!("{GRANT}&{rest}");
    let posted = format!("{GRANT}&client_id={id}&client_secret={secret}");

    let cases: Vec<(Vec<&str>, String, u16, &str)> = vec![
        // Controls.
        (vec![&good], GRANT.into(), 200, ""),
        (vec![], posted.clone(), 200, ""),
        (vec![&good], grant_and(&format!("client_id={id}")), 200, ""),
        (vec![&good], grant_and("scope=orders:read"), 200, ""),
        (vec![&good], grant_and("scope=orders%3Aread+users%3Aread"), 200, ""),
        (vec![&good], grant_and("resource=https%3A%2F%2Fapi.example.com%2Forders"), 200, ""),
        // Unknown parameters are ignored; empty ones are absent (§3.2).
        (vec![&good], grant_and("audience=x&nonsense=%00"), 200, ""),
        (vec![&good], grant_and("scope=&resource=&client_secret=&scope="), 200, ""),
        // Repetition (§3.2).
        (vec![&good], grant_and(GRANT), 400, "invalid_request"),
        (vec![&good], grant_and("scope=orders:read&scope=users:read"), 400, "invalid_request"),
        (vec![&good], grant_and("nonsense=1&nonsense=2"), 400, "invalid_request"),
        (vec![], format!("{posted}&client_id={id}"), 400, "invalid_request"),
        // Two authentication methods (§2.3).
        (vec![&good], posted.clone(), 400, "invalid_request"),
        (vec![&good, &good], GRANT.into(), 400, "invalid_request"),
        (vec![&good, "Bearer x"], GRANT.into(), 400, "invalid_request"),
        (vec![&good], grant_and("client_id=somebody-else"), 400, "invalid_request"),
        // Failed authentication (§5.2).
        (vec![], GRANT.into(), 401, "invalid_client"),
        (vec![], grant_and(&format!("client_id={id}")), 401, "invalid_client"),
        (vec![], grant_and(&format!("client_id={id}&client_secret=")), 401, "invalid_client"),
        (vec![], grant_and(&format!("client_id={id}&client_secret=wrong")), 401, "invalid_client"),
        (vec![], grant_and(&format!("client_secret={secret}")), 400, "invalid_request"),
        (vec![&wrong], GRANT.into(), 401, "invalid_client"),
        (vec![&unknown], GRANT.into(), 401, "invalid_client"),
        (vec!["Bearer x"], GRANT.into(), 401, "invalid_client"),
        (vec!["Basic ????"], GRANT.into(), 401, "invalid_client"),
        (vec![""], GRANT.into(), 401, "invalid_client"),
        // The grant is not judged before the client is authenticated.
        (vec![&wrong], "grant_type=password".into(), 401, "invalid_client"),
        // Grants.
        (vec![&good], String::new(), 400, "invalid_request"),
        (vec![&good], "grant_type=".into(), 400, "invalid_request"),
        (vec![&good], "grant_type=password".into(), 400, "unsupported_grant_type"),
        (vec![&good], "grant_type=CLIENT_CREDENTIALS".into(), 400, "unsupported_grant_type"),
        // Scopes (§3.3).
        (vec![&good], grant_and("scope=orders:write"), 400, "invalid_scope"),
        (vec![&good], grant_and("scope=orders:read++users:read"), 400, "invalid_scope"),
        (vec![&good], grant_and("scope=+orders:read"), 400, "invalid_scope"),
        (vec![&good], grant_and(&format!("scope=orders:read{}", "+orders:read".repeat(1_023))), 200, ""),
        (
            vec![&good],
            grant_and(&format!("scope=orders:read{}", "+orders:read".repeat(1_024))),
            400,
            "invalid_scope",
        ),
        (vec![&good], grant_and("scope=ORDERS:READ"), 400, "invalid_scope"),
        (vec![&good], grant_and("scope=orders:read%09users:read"), 400, "invalid_scope"),
        // Resources (RFC 8707 §2).
        (vec![&good], grant_and("resource=https://api.example.com/orders/"), 400, "invalid_target"),
        (vec![&good], grant_and("resource=https://evil.example.com"), 400, "invalid_target"),
        (vec![&good], grant_and("resource=orders"), 400, "invalid_target"),
        // The form itself.
        (vec![&good], grant_and("x=%zz"), 400, "invalid_request"),
        (vec![&good], grant_and("x=a b"), 400, "invalid_request"),
        (vec![&good], grant_and(&"x&".repeat(64)), 400, "invalid_request"),
        (vec![&good], grant_and(&format!("x={}", "y".repeat(16_384))), 413, "invalid_request"),
    ];
    for (authorization, body, status, error) in cases {
        let reply = fixture.post(&authorization, &body).await;
        let shown: String = body.chars().take(120).collect();
        assert_eq!(reply.status, status, "{authorization:?} {shown}: {}", reply.body);
        assert_eq!(json(&reply)["error"].as_str().unwrap_or(""), error, "{shown}");
        let challenge = header(&reply, "www-authenticate");
        let expected = (status == 401).then_some("Basic realm=\"https://id.example.com\", charset=\"UTF-8\"");
        assert_eq!(challenge, expected, "{shown}");
        assert!(!reply.body.contains("wrong") && !reply.body.contains("evil"), "nothing is echoed");
    }
}

#[tokio::test]
async fn the_way_of_the_request_is_checked() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let good = basic_of(&client);
    let authorization: &[&[u8]] = &[good.as_bytes()];
    let control = TokenRequest {
        authorization,
        content_type: Some(FORM),
        query_present: false,
        body: GRANT.as_bytes(),
    };
    assert_eq!(fixture.server.token(control, fixture.now()).await.status, 200);
    for (request, reason) in [
        (TokenRequest { query_present: true, ..control }, "query_present"),
        (TokenRequest { content_type: None, ..control }, "content_type_wrong"),
        (TokenRequest { content_type: Some(b"application/json"), ..control }, "content_type_wrong"),
        (TokenRequest { body: b"grant_type=client_credentials&x=\xff", ..control }, "form_malformed"),
        (TokenRequest { authorization: &[b"Basic \xff\xfe"], ..control }, "basic_malformed"),
    ] {
        let reply = fixture.server.token(request, fixture.now()).await;
        assert_eq!(reply.reason, Some(reason));
        assert!((400..402).contains(&reply.status));
    }
}

#[tokio::test]
async fn unknown_disabled_and_wrong_read_the_same() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let disabled = fixture.client().await;
    fixture.server.disable_client(&disabled.client.client_id, fixture.now()).await.unwrap();
    let expired = fixture
        .client_of(NewClient { secret_expires_in: Some(Duration::from_secs(1)), ..NewClient::default() })
        .await;
    fixture.advance(1);
    let wrong = fixture.post(&[&basic(&client.client.client_id, "x")], GRANT).await;
    assert_eq!(wrong.status, 401);
    for authorization in [basic("nobody", "x"), basic_of(&disabled), basic_of(&expired)] {
        assert_eq!(fixture.post(&[&authorization], GRANT).await, wrong);
    }
}

#[tokio::test]
async fn scopes_and_audiences_are_those_that_were_asked_for() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let orders = "https://api.example.com/orders";
    let users = "https://api.example.com/users";
    for (body, scope, audience) in [
        ("scope=users:read", json!("users:read"), json!("https://api.example.com")),
        (
            "scope=users:read+orders:read+users:read",
            json!("users:read orders:read"),
            json!("https://api.example.com"),
        ),
        (
            "resource=https://api.example.com",
            json!("orders:read users:read"),
            json!("https://api.example.com"),
        ),
        ("resource=https://api.example.com/orders", json!("orders:read users:read"), json!(orders)),
        (
            "resource=https://api.example.com/users&resource=https://api.example.com/orders&resource=https://api.example.com/users",
            json!("orders:read users:read"),
            json!([users, orders]),
        ),
    ] {
        let reply = fixture.post(&[&basic_of(&client)], &format!("{GRANT}&{body}")).await;
        let token = fixture.verified(&reply);
        assert_eq!(token.claims["scope"], scope, "{body}");
        assert_eq!(token.response["scope"], scope, "{body}");
        assert_eq!(token.claims["aud"], audience, "{body}");
    }
}

#[tokio::test]
async fn a_client_without_scopes_has_tokens_without() {
    let fixture = Fixture::new().await;
    let client = fixture.client_of(NewClient::default()).await;
    let token = fixture.token(&client).await;
    assert_eq!(token.claims.get("scope"), None);
    assert_eq!(token.response.get("scope"), None);
}

#[tokio::test]
async fn a_client_is_held_to_its_audiences_and_its_grants() {
    let fixture = Fixture::new().await;
    let orders = "https://api.example.com/orders".to_owned();
    let client =
        fixture.client_of(NewClient { audiences: vec![orders.clone()], ..NewClient::default() }).await;
    assert_eq!(fixture.token(&client).await.claims["aud"], orders, "its first audience is its default");
    for other in ["https://api.example.com", "https://api.example.com/users"] {
        let reply = fixture.post(&[&basic_of(&client)], &format!("{GRANT}&resource={other}")).await;
        assert_eq!(json(&reply)["error"], "invalid_target");
    }
    let no_grants = fixture.client_of(NewClient { grant_types: vec![], ..NewClient::default() }).await;
    let reply = fixture.post(&[&basic_of(&no_grants)], GRANT).await;
    assert_eq!((reply.status, json(&reply)["error"].as_str()), (400, Some("unauthorized_client")));
}

#[tokio::test]
async fn a_client_without_audiences_is_confined_to_the_default_one() {
    let fixture = Fixture::new().await;
    let (default, orders) = ("https://api.example.com", "https://api.example.com/orders");
    let created = fixture.client_of(NewClient::default()).await;
    let confined = basic_of(&created);
    let both = fixture
        .client_of(NewClient { audiences: vec![default.into(), orders.into()], ..NewClient::default() });
    let both = basic_of(&both.await);

    for (client, resource, status) in
        [(&confined, default, 200), (&both, default, 200), (&both, orders, 200), (&confined, orders, 400)]
    {
        let reply = fixture.post(&[client], &format!("{GRANT}&resource={resource}")).await;
        assert_eq!(reply.status, status, "{resource}: {}", reply.body);
        if status == 200 {
            assert_eq!(fixture.verified(&reply).claims["aud"], resource);
        } else {
            assert_eq!(json(&reply)["error"], "invalid_target");
        }
    }
    let reply = fixture.post(&[&confined], &format!("{GRANT}&resource={default}&resource={orders}")).await;
    assert_eq!(json(&reply)["error"], "invalid_target", "a permitted resource doesn't permit the other");
    assert_eq!(fixture.token(&created).await.claims["aud"], default);

    // The default audience is the one that is configured when the token is requested.
    let mut moved = config();
    moved.default_audience = orders.into();
    moved.resources = vec![default.into()];
    let reopened = AuthorizationServer::open(moved, fixture.store.clone(), wrapping_key(), fixture.now());
    let reopened = reopened.await.unwrap();
    for (resource, status) in [(orders, 200), (default, 400)] {
        let reply = fixture.post_as(&reopened, &[&confined], &format!("{GRANT}&resource={resource}")).await;
        assert_eq!(reply.status, status, "{resource}: {}", reply.body);
    }
}

#[tokio::test]
async fn a_clients_lifetime_holds_and_never_outlives_the_overlap_of_keys() {
    let mut longer = config();
    longer.key_overlap = Duration::from_secs(3_600 * 48);
    let fixture = Fixture::with(longer).await;
    let new = NewClient { access_token_lifetime: Some(TOKEN_LIFETIME_MAX), ..NewClient::default() };
    let client = fixture.client_of(new.clone()).await;
    assert_eq!(fixture.token(&client).await.response["expires_in"], 86_400);

    let mut shorter = config();
    shorter.key_overlap = Duration::from_secs(3_600 * 2);
    let reopened = AuthorizationServer::open(shorter, fixture.store.clone(), wrapping_key(), fixture.now())
        .await
        .unwrap();
    let reply = fixture.post_as(&reopened, &[&basic_of(&client)], GRANT).await;
    assert_eq!(json(&reply)["expires_in"], 7_200 - 300);
    assert!(reopened.create_client(new, fixture.now()).await.is_err(), "nor is such a client created");
}

#[tokio::test]
async fn chosen_ids_are_read_as_their_record_says() {
    let fixture = Fixture::new().await;
    let client = |id: &str, encoding| {
        let new = NewClient { id: Some(id.into()), basic_encoding: encoding, ..NewClient::default() };
        fixture.client_of(new)
    };
    let raw = client("a+b%20c", BasicEncoding::Raw).await;
    let form = client("a+b:c", BasicEncoding::FormEncoded).await;
    let auto = client("plain", BasicEncoding::Auto).await;
    for (user, created, status) in [
        ("a+b%20c", &raw, 200),
        ("a%2Bb%2520c", &raw, 401),
        ("a%2Bb%3Ac", &form, 200),
        ("a%2bb%3ac", &form, 200),
        ("a+b%3Ac", &form, 401),
        ("plain", &auto, 200),
        ("pl%61in", &auto, 200),
    ] {
        let reply = fixture.post(&[&basic(user, created.secret.expose())], GRANT).await;
        assert_eq!(reply.status, status, "{user}");
    }
    let posted = format!("{GRANT}&client_id=a%2Bb%2520c&client_secret={}", raw.secret.expose());
    assert_eq!(fixture.post(&[], &posted).await.status, 200, "in the body there is one reading");
}

#[tokio::test]
async fn a_generated_secret_works_form_encoded_as_well_as_raw() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let (id, secret) = (encode(&client.client.client_id), encode(client.secret.expose()));
    assert_eq!(fixture.post(&[&basic(&id, &secret)], GRANT).await.status, 200);
    let escaped: String = client.secret.expose().bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(fixture.post(&[&basic(&id, &escaped)], GRANT).await.status, 200);
}

#[tokio::test]
async fn a_store_failure_gets_503_without_details() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    fixture.server.close().await;
    let reply = fixture.post(&[&basic_of(&client)], GRANT).await;
    assert_eq!(reply.status, 503);
    assert_eq!(json(&reply)["error"], "temporarily_unavailable");
    assert_eq!(header(&reply, "retry-after"), Some("1"));
}

#[tokio::test]
async fn a_scope_or_audience_that_is_no_longer_configured_is_no_longer_given() {
    let fixture = Fixture::new().await;
    let new = NewClient {
        scopes: vec!["orders:read".into(), "users:read".into()],
        audiences: vec!["https://api.example.com/orders".into()],
        ..NewClient::default()
    };
    let client = fixture.client_of(new).await;
    let reopen = |change: fn(&mut AuthorizationServerConfig)| {
        let mut config = config();
        change(&mut config);
        AuthorizationServer::open(config, fixture.store.clone(), wrapping_key(), fixture.now())
    };
    let fewer = reopen(|config| config.scopes.retain(|scope| scope != "users:read")).await.unwrap();
    let reply = fixture.post_as(&fewer, &[&basic_of(&client)], GRANT).await;
    assert_eq!(json(&reply)["scope"], "orders:read");
    let reply = fixture.post_as(&fewer, &[&basic_of(&client)], &format!("{GRANT}&scope=users:read")).await;
    assert_eq!(json(&reply)["error"], "invalid_scope");

    let none = reopen(|config| config.resources.clear()).await.unwrap();
    let reply = fixture.post_as(&none, &[&basic_of(&client)], GRANT).await;
    assert_eq!(
        (json(&reply)["error"].as_str(), reply.reason),
        (Some("invalid_target"), Some("audience_none"))
    );
}

#[tokio::test]
async fn known_and_unknown_clients_cost_the_same_reads() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let disabled = fixture.client().await;
    fixture.server.disable_client(&disabled.client.client_id, fixture.now()).await.unwrap();
    let counting = Arc::new(CountingStore::new(fixture.store.clone()));
    let server =
        AuthorizationServer::open(config(), counting.clone(), wrapping_key(), fixture.now()).await.unwrap();
    let (id, secret) = (&client.client.client_id, client.secret.expose());
    for (authorization, status, reads) in [
        (basic_of(&client), 200, 1),
        (basic(id, "wrong"), 401, 1),
        (basic("cdcli_unknown", secret), 401, 1),
        (basic_of(&disabled), 401, 1),
        // Two readings cost two reads, whether or not the client exists.
        (basic("a%2Bb", secret), 401, 2),
        (basic(&format!("%63{}", &id[1..]), secret), 200, 2),
    ] {
        let reply = fixture.post_as(&server, &[&authorization], GRANT).await;
        assert_eq!((reply.status, counting.take_reads()), (status, reads));
    }
}

/// One changed octet anywhere gives a documented answer, and a token only for the client itself.
#[test]
fn a_changed_request_is_answered() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (fixture, client) = runtime.block_on(async {
        let fixture = Fixture::new().await;
        let client = fixture.client().await;
        (fixture, client)
    });
    proptest!(ProptestConfig::with_cases(500), |(
        in_header in any::<bool>(), at in any::<prop::sample::Index>(), octet in any::<u8>()
    )| {
        let mut authorization = basic_of(&client).into_bytes();
        let mut body = format!("{GRANT}&scope=orders:read&resource=https://api.example.com").into_bytes();
        let changed = if in_header { &mut authorization } else { &mut body };
        let index = at.index(changed.len());
        changed[index] = octet;
        let request =
            TokenRequest { authorization: &[&authorization], content_type: Some(FORM), query_present: false, body: &body };
        let reply = runtime.block_on(fixture.server.token(request, fixture.now()));
        prop_assert!(json(&reply).is_object());
        if reply.status == 200 {
            let token = fixture.verified(&reply);
            prop_assert_eq!(&token.claims["sub"], &client.client.client_id);
            prop_assert_eq!(&token.claims["aud"], "https://api.example.com");
        } else {
            prop_assert!(matches!(reply.status, 400 | 401) && reply.reason.is_some(), "{:?}", reply);
        }
    });
}

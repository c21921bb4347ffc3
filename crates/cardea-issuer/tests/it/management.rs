//! Management of clients: create, list, rotate, disable, enable, delete; and the notifications of the sink.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use cardea_issuer::{AuthorizationServer, IssuerError, NewClient, Secret};
use cardea_store::BasicEncoding;

use crate::support::{Fixture, GRANT, START, Said, Told, basic, basic_of, config, wrapping_key};

#[tokio::test]
async fn a_created_client_is_generated_shown_and_listed_without_its_secret() {
    let fixture = Fixture::new().await;
    let created = fixture.client_of(NewClient { name: "orders job".into(), ..NewClient::default() }).await;
    assert!(created.client.client_id.starts_with("cdcli_"));
    assert!(Secret::is_well_formed(created.secret.expose()));
    let shown = fixture.server.show_client(&created.client.client_id).await.unwrap();
    assert_eq!(shown, created.client);
    assert_eq!(
        (shown.secrets[0].format.as_str(), shown.secrets[0].provenance.as_str()),
        ("sha256", "generated")
    );
    let listed = fixture.server.list_clients(None, 10).await.unwrap();
    assert_eq!((listed.clients.as_slice(), listed.next), (&[shown][..], None));
    let everything = format!("{created:?} {}", serde_json::to_string(&listed.clients).unwrap());
    assert!(!everything.contains(created.secret.expose()));
}

#[tokio::test]
async fn pages_follow_each_other_to_the_end() {
    let fixture = Fixture::new().await;
    for index in 0..7 {
        fixture.client_of(NewClient { id: Some(format!("client-{index}")), ..NewClient::default() }).await;
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = fixture.server.list_clients(after.as_deref(), 3).await.unwrap();
        assert!(page.clients.len() <= 3);
        seen.extend(page.clients.into_iter().map(|client| client.client_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..7).map(|index| format!("client-{index}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn clients_cannot_get_unconfigured_scopes_or_audiences() {
    type Change = fn(&mut NewClient);
    let fixture = Fixture::new().await;
    let cases: [(&str, Change, bool); 18] = [
        ("as it is", |_| {}, true),
        ("plain id", |c| c.id = Some("orders-job@example".into()), true),
        ("empty id", |c| c.id = Some(String::new()), false),
        ("id with space", |c| c.id = Some("a b".into()), false),
        ("id with newline", |c| c.id = Some("a\n".into()), false),
        ("id outside ASCII", |c| c.id = Some("é".into()), false),
        ("long id", |c| c.id = Some("x".repeat(129)), false),
        ("id with plus", |c| c.id = Some("a+b".into()), false),
        ("id with percent", |c| c.id = Some("a%20b".into()), false),
        ("id with colon", |c| c.id = Some("a:b".into()), false),
        (
            "id with colon, raw",
            |c| (c.id, c.basic_encoding) = (Some("a:b".into()), BasicEncoding::Raw),
            false,
        ),
        (
            "id with colon, form-encoded",
            |c| (c.id, c.basic_encoding) = (Some("a:b".into()), BasicEncoding::FormEncoded),
            true,
        ),
        ("unknown scope", |c| c.scopes = vec!["root".into()], false),
        ("unknown audience", |c| c.audiences = vec!["https://evil.example.com".into()], false),
        ("default audience", |c| c.audiences = vec!["https://api.example.com".into()], true),
        ("name with control", |c| c.name = "a\u{7}".into(), false),
        ("lifetime too short", |c| c.access_token_lifetime = Some(Duration::from_secs(59)), false),
        ("secret that is never good", |c| c.secret_expires_in = Some(Duration::ZERO), false),
    ];
    for (what, change, valid) in cases {
        let mut new = NewClient::default();
        change(&mut new);
        let created = fixture.server.create_client(new, fixture.now()).await;
        assert_eq!(created.is_ok(), valid, "{what}: {created:?}");
        assert!(created.map_or_else(|error| error.is_callers_fault(), |_| true), "{what}");
    }
}

#[tokio::test]
async fn an_id_is_given_once_and_an_unknown_one_is_an_error() {
    let fixture = Fixture::new().await;
    let new = NewClient { id: Some("one".into()), ..NewClient::default() };
    let first = fixture.client_of(new.clone()).await;
    let again = fixture.server.create_client(new, fixture.now()).await;
    assert!(matches!(again, Err(IssuerError::ClientExists { id }) if id == "one"));
    assert_eq!(fixture.tries(&first).await, 200);

    let unknown =
        |result: Result<(), IssuerError>| assert!(matches!(result, Err(IssuerError::UnknownClient { .. })));
    let (server, now) = (&fixture.server, fixture.now());
    unknown(server.show_client("x").await.map(|_| ()));
    unknown(server.disable_client("x", now).await.map(|_| ()));
    unknown(server.enable_client("x", now).await.map(|_| ()));
    unknown(server.delete_client("x", now).await);
    unknown(server.rotate_secret("x", Duration::ZERO, None, now).await.map(|_| ()));
}

#[tokio::test]
async fn a_rotated_secret_leaves_the_old_one_its_overlap() {
    let fixture = Fixture::new().await;
    let old = fixture.client().await;
    let id = &old.client.client_id;
    let new = fixture.server.rotate_secret(id, Duration::from_secs(60), None, fixture.now()).await.unwrap();
    assert_eq!((fixture.tries(&old).await, fixture.tries(&new).await), (200, 200));
    fixture.advance(59);
    assert_eq!((fixture.tries(&old).await, fixture.tries(&new).await), (200, 200));
    fixture.advance(1);
    assert_eq!((fixture.tries(&old).await, fixture.tries(&new).await), (401, 200));

    let newest = fixture.server.rotate_secret(id, Duration::ZERO, None, fixture.now()).await.unwrap();
    assert_eq!((fixture.tries(&new).await, fixture.tries(&newest).await), (401, 200));
    assert_eq!(newest.client.secrets.len(), 1, "what is no longer good is gone");
}

#[tokio::test]
async fn a_rotation_never_extends_a_secret_and_the_number_is_bounded() {
    let fixture = Fixture::new().await;
    let short = NewClient { secret_expires_in: Some(Duration::from_secs(10)), ..NewClient::default() };
    let old = fixture.client_of(short).await;
    let id = &old.client.client_id;
    let overlap = Duration::from_secs(3_600);
    fixture.server.rotate_secret(id, overlap, None, fixture.now()).await.unwrap();
    fixture.advance(10);
    assert_eq!(fixture.tries(&old).await, 401);

    let mut last = None;
    for _ in 0..7 {
        last = Some(fixture.server.rotate_secret(id, overlap, None, fixture.now()).await.unwrap());
    }
    let refused = fixture.server.rotate_secret(id, overlap, None, fixture.now()).await;
    assert!(matches!(refused, Err(IssuerError::TooManySecrets { .. })));
    assert_eq!(fixture.tries(&last.unwrap()).await, 200, "the eighth secret is compared too");
    fixture.server.rotate_secret(id, Duration::ZERO, None, fixture.now()).await.unwrap();
}

#[tokio::test]
async fn disabling_stops_new_tokens_and_notifies_the_sink_before_it_returns() {
    let fixture = Fixture::new().await;
    let told = Arc::new(Told::default());
    fixture.server.set_revocation_sink(told.clone(), fixture.now()).await.unwrap();
    let client = fixture.client().await;
    let id = client.client.client_id.clone();
    assert_eq!(told.take(), []);

    fixture.server.disable_client(&id, fixture.now()).await.unwrap();
    assert_eq!(told.take(), [Said::Disabled(id.clone())]);
    assert_eq!(fixture.tries(&client).await, 401);

    fixture.advance(10);
    fixture.server.enable_client(&id, fixture.now()).await.unwrap();
    assert_eq!(told.take(), [Said::Enabled(id.clone(), START.unix_seconds() + 10)]);
    assert_eq!(fixture.tries(&client).await, 200);

    fixture.server.delete_client(&id, fixture.now()).await.unwrap();
    assert_eq!(told.take(), [Said::Deleted(id)]);
    assert_eq!(fixture.tries(&client).await, 401);
}

#[tokio::test]
async fn tokens_from_before_a_revocation_stay_refused() {
    let fixture = Fixture::new().await;
    let told = Arc::new(Told::default());
    fixture.server.set_revocation_sink(told.clone(), fixture.now()).await.unwrap();
    let client = fixture.client().await;
    let id = &client.client.client_id;
    let dead = fixture.token(&client).await.claims["iat"].as_i64().unwrap();
    // All within the same second.
    fixture.server.disable_client(id, fixture.now()).await.unwrap();
    fixture.server.enable_client(id, fixture.now()).await.unwrap();
    let told_through = match told.take().pop() {
        Some(Said::Enabled(_, through)) => through,
        other => panic!("{other:?}"),
    };
    let token = fixture.token(&client).await.claims;
    let alive = token["iat"].as_i64().unwrap();
    assert!(dead <= told_through && told_through < alive, "{dead} {told_through} {alive}");
    assert_eq!(token["exp"], START.unix_seconds() + 3_600, "and it lives no longer for that");
    fixture.advance(5);
    assert_eq!(fixture.token(&client).await.claims["iat"], START.unix_seconds() + 5);
}

#[tokio::test]
async fn a_clock_set_back_revives_nothing() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let id = &client.client.client_id;
    fixture.server.disable_client(id, fixture.now()).await.unwrap();
    fixture.clock.step_wall_back(Duration::from_secs(3_600));
    fixture.server.enable_client(id, fixture.now()).await.unwrap();
    let reply = fixture.post(&[&basic_of(&client)], GRANT).await;
    assert_eq!((reply.status, reply.reason), (503, Some("clock_behind_revocation")));
    fixture.advance(3_601);
    assert_eq!(fixture.tries(&client).await, 200);
}

#[tokio::test]
async fn enabling_what_is_enabled_and_disabling_what_is_disabled_change_nothing() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let id = &client.client.client_id;
    fixture.advance(1);
    assert_eq!(fixture.server.enable_client(id, fixture.now()).await.unwrap(), client.client);
    let disabled = fixture.server.disable_client(id, fixture.now()).await.unwrap();
    fixture.advance(1);
    assert_eq!(fixture.server.disable_client(id, fixture.now()).await.unwrap(), disabled);
}

#[tokio::test]
async fn a_client_of_a_deleted_ones_id_is_another() {
    let fixture = Fixture::new().await;
    let told = Arc::new(Told::default());
    fixture.server.set_revocation_sink(told.clone(), fixture.now()).await.unwrap();
    let new = NewClient { id: Some("orders".into()), ..NewClient::default() };
    let first = fixture.client_of(new.clone()).await;
    let dead = fixture.token(&first).await.claims["iat"].as_i64().unwrap();
    fixture.server.delete_client("orders", fixture.now()).await.unwrap();
    let second = fixture.client_of(new).await;
    assert_eq!(
        told.take(),
        [Said::Deleted("orders".into()), Said::Enabled("orders".into(), START.unix_seconds())]
    );
    assert_eq!(fixture.tries(&first).await, 401, "the old secret is gone");
    assert!(fixture.token(&second).await.claims["iat"].as_i64().unwrap() > dead);
}

#[tokio::test]
async fn a_new_sink_receives_all_current_revocations() {
    let fixture = Fixture::new().await;
    let clients =
        [fixture.client().await, fixture.client().await, fixture.client().await, fixture.client().await];
    let id = |index: usize| clients[index].client.client_id.clone();
    fixture.server.disable_client(&id(0), fixture.now()).await.unwrap();
    fixture.server.disable_client(&id(1), fixture.now()).await.unwrap();
    fixture.server.enable_client(&id(1), fixture.now()).await.unwrap();
    fixture.server.delete_client(&id(2), fixture.now()).await.unwrap();

    let reopened = AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now())
        .await
        .unwrap();
    let told = Arc::new(Told::default());
    reopened.set_revocation_sink(told.clone(), fixture.now()).await.unwrap();
    let mut said = told.take();
    said.sort_by_key(|said| format!("{said:?}"));
    let mut expected =
        vec![Said::Deleted(id(2)), Said::Disabled(id(0)), Said::Enabled(id(1), START.unix_seconds())];
    expected.sort_by_key(|said| format!("{said:?}"));
    assert_eq!(said, expected);

    fixture.advance(25 * 3_600);
    let later = Arc::new(Told::default());
    let again = AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now())
        .await
        .unwrap();
    again.set_revocation_sink(later.clone(), fixture.now()).await.unwrap();
    assert_eq!(later.take(), [], "every token of theirs has expired");
}

/// A reload that makes an issuer local reads the revocations for it, then passes them on. Whoever is disabled in between must
/// not be missed.
#[tokio::test]
async fn a_revocation_waits_until_earlier_ones_are_passed_on() {
    let fixture = Fixture::new().await;
    let (before, during) = (fixture.client().await.client.client_id, fixture.client().await.client.client_id);
    let told = Arc::new(Told::default());
    fixture.server.set_revocation_sink(told.clone(), fixture.now()).await.unwrap();
    fixture.server.disable_client(&before, fixture.now()).await.unwrap();
    assert_eq!(told.take(), [Said::Disabled(before.clone())]);
    let pending = fixture.server.revocations(fixture.now()).await.unwrap();
    let mut disabling = std::pin::pin!(fixture.server.disable_client(&during, fixture.now()));
    let maintained = fixture.server.maintain(fixture.now());
    let mut maintained = std::pin::pin!(maintained);
    // As long as it takes the store to answer many times, if they went on.
    for _ in 0..20 {
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(disabling.as_mut().poll(cx).is_pending());
        assert!(maintained.as_mut().poll(cx).is_pending());
        fixture.store.revocations(START).await.unwrap();
    }
    assert_eq!(told.take(), []);
    pending.tell(&*told);
    assert_eq!(told.take(), [Said::Disabled(before)], "read before the other was disabled");
    disabling.await.unwrap();
    assert!(told.take().contains(&Said::Disabled(during.clone())));
    maintained.await.unwrap();
}

#[tokio::test]
async fn revocations_of_other_processes_are_applied_at_the_next_maintenance() {
    let fixture = Fixture::new().await;
    let told = Arc::new(Told::default());
    fixture.server.set_revocation_sink(told.clone(), fixture.now()).await.unwrap();
    let client = fixture.client().await;
    let id = client.client.client_id.clone();
    let other = AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now())
        .await
        .unwrap();
    fixture.advance(30);
    other.disable_client(&id, fixture.now()).await.unwrap();
    assert_eq!(fixture.tries(&client).await, 401, "new tokens end at once: every request reads the store");
    fixture.advance(5);
    fixture.server.maintain(fixture.now()).await.unwrap();
    assert_eq!(told.take(), [Said::Disabled(id)]);
}

#[tokio::test]
async fn changes_at_once_are_all_kept() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let id = client.client.client_id.clone();
    let other = AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now())
        .await
        .unwrap();
    let overlap = Duration::from_secs(60);
    let now = fixture.now();
    let (one, two, three) = tokio::join!(
        fixture.server.rotate_secret(&id, overlap, None, now),
        other.rotate_secret(&id, overlap, None, now),
        fixture.server.rotate_secret(&id, overlap, None, now),
    );
    for created in [client, one.unwrap(), two.unwrap(), three.unwrap()] {
        let reply = fixture.post(&[&basic(&id, created.secret.expose())], GRANT).await;
        assert_eq!(reply.status, 200);
    }
}

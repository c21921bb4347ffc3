//! What a reload does to tokens: what is no longer allowed is refused on the next request, on every connection.

use crate::support::{Folder, Origin, Server, folder::Settings};

/// The key set of another issuer (the public key of RFC 7517, A.1).
const FOREIGN_KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"1","alg":"ES256",
"x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

/// Puts the usual configuration in force with one text replaced by another.
fn change(folder: &Folder, from: &str, to: &str) {
    folder.configure(&Settings::default());
    let text = folder.read("cardea.toml");
    assert!(text.contains(from), "{from}");
    folder.write("cardea.toml", &text.replace(from, to));
}

#[test]
fn a_token_is_held_against_the_configuration_in_force() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let client = folder.create_client("billing");
    let mut connection = server.connect();
    let token = connection.token(&client.0, &client.1).unwrap().member("access_token").unwrap();
    for (status, code, from, to) in [
        (
            401,
            "audience_not_accepted",
            "audiences = [\"https://api.test\"]",
            "audiences = [\"https://other.test\"]",
        ),
        (403, "insufficient_scope", "scopes = [\"read\"] }", "scopes = [\"read\", \"write\"] }"),
        (401, "algorithm_not_allowed", "local = true", "local = true\nalgorithms = [\"RS256\"]"),
        (401, "lifetime_too_long", "local = true", "local = true\nlifetime_max = \"1m\""),
    ] {
        // A connection that knows the token already.
        assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 200, "{code}: the control");
        change(&folder, from, to);
        let (taken, line) = server.reload();
        assert!(taken, "{line}");
        let answer = connection.get_with_token("/private", &token).unwrap();
        assert_eq!((answer.status, answer.member("code").as_deref()), (status, Some(code)), "{answer:?}");
        folder.configure(&Settings::default());
        assert!(server.reload().0);
    }
    server.stop();
}

#[test]
fn revocations_survive_reloads() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let client = folder.create_client("billing");
    let mut connection = server.connect();
    let token = connection.token(&client.0, &client.1).unwrap().member("access_token").unwrap();
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 200);
    assert_eq!(folder.run(&["client", "disable", &client.0]).code, Some(0));
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 401);

    folder.configure(&Settings { version: "2".to_owned(), ..Settings::default() });
    assert!(server.reload().0);
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 401);

    // Nor does another name for the same issuer bring it back.
    change(&folder, "\"own\"", "\"ours\"");
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    let answer = connection.get_with_token("/private", &token).unwrap();
    assert_eq!((answer.status, answer.member("code").as_deref()), (401, Some("token_revoked")));
    // What is revoked under that name later counts too.
    let client = folder.create_client("shipping");
    let other = connection.token(&client.0, &client.1).unwrap().member("access_token").unwrap();
    assert_eq!(connection.get_with_token("/private", &other).unwrap().status, 200);
    assert_eq!(folder.run(&["client", "disable", &client.0]).code, Some(0));
    assert_eq!(connection.get_with_token("/private", &other).unwrap().status, 401);
    server.stop();
    let server = Server::start(&folder);
    let answer = server.connect().get_with_token("/private", &token).unwrap();
    assert_eq!((answer.status, answer.member("code").as_deref()), (401, Some("token_revoked")));
    server.stop();
}

#[test]
fn an_issuer_that_becomes_local_knows_what_was_revoked_before() {
    let folder = Folder::new(&Settings::default());
    let foreign = "issuer = \"https://other.test\"\njwks_file = \"keys.json\"";
    folder.write("keys.json", FOREIGN_KEYS);
    change(&folder, "local = true", foreign);
    let server = Server::start(&folder);
    let clients = [folder.create_client("billing"), folder.create_client("shipping")];
    let mut connection = server.connect();
    let tokens = clients
        .each_ref()
        .map(|(id, secret)| connection.token(id, secret).unwrap().member("access_token").unwrap());
    assert_eq!(folder.run(&["client", "disable", &clients[0].0]).code, Some(0));
    for token in &tokens {
        assert_eq!(connection.get_with_token("/private", token).unwrap().status, 401, "nobody's yet");
    }
    folder.configure(&Settings::default());
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    let statuses =
        tokens.each_ref().map(|token| connection.get_with_token("/private", token).unwrap().status);
    assert_eq!(statuses, [401, 200]);
    server.stop();
}

#[test]
fn requests_go_where_the_configuration_in_force_says() {
    let (one, other) = (Origin::start(), Origin::start());
    let settings = |origin: &Origin| Settings { origin: Some(origin.address), ..Settings::default() };
    let folder = Folder::new(&settings(&one));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(connection.get("/origin/first").unwrap().status, 200);
    one.wait_for("/first", 1);
    folder.configure(&settings(&other));
    assert!(server.reload().0);
    assert_eq!(connection.get("/origin/second").unwrap().status, 200);
    other.wait_for("/second", 1);
    server.stop();
}

#[test]
fn a_response_in_progress_keeps_its_configuration() {
    let origin = Origin::start();
    let folder = Folder::new(&Settings { origin: Some(origin.address), ..Settings::default() });
    let server = Server::start(&folder);
    let mut slow = server.connect();
    slow.send(b"GET /origin/slow HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
    origin.wait_for("/slow", 1);
    // Without the route, and without the service.
    folder.configure(&Settings::default());
    assert!(server.reload().0);
    assert_eq!(server.connect().get("/origin/slow").unwrap().status, 404);
    origin.release();
    assert_eq!(slow.answer().unwrap().unwrap().status, 200);
    assert_eq!(slow.get("/version").unwrap().status, 200, "the connection goes on");
    server.stop();
}

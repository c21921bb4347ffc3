//! Keys of the authorization server and tokens, by the command line beside a gateway that runs.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::support::{Connection, Folder, Server, folder::Settings, until};

fn token(connection: &mut Connection, client: &(String, String)) -> String {
    connection.token(&client.0, &client.1).unwrap().member("access_token").unwrap()
}

/// The ids of the keys that are published.
fn published(connection: &mut Connection) -> Vec<String> {
    let metadata = connection.get("/.well-known/oauth-authorization-server").unwrap();
    let path = metadata.member("jwks_uri").unwrap();
    let path = path.strip_prefix("https://gateway.test").unwrap();
    let keys: serde_json::Value = serde_json::from_slice(&connection.get(path).unwrap().body).unwrap();
    keys["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_new_key_signs_at_once_and_the_old_one_still_verifies() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let client = folder.create_client("billing");
    let mut connection = server.connect();
    let old = token(&mut connection, &client);
    assert_eq!(published(&mut connection).len(), 1);

    let ran = folder.run(&["key", "rotate", "--now", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let fresh = token(&mut connection, &client);
    let header = |token: &str| token.split('.').next().map(str::to_owned);
    assert_ne!(header(&old), header(&fresh), "the key's id is in the header");
    for (which, token) in [("old", &old), ("new", &fresh)] {
        assert_eq!(connection.get_with_token("/private", token).unwrap().status, 200, "{which}");
        let ran = folder.run(&["token", "verify", "--route", "private", token]);
        assert_eq!(ran.code, Some(0), "{which}: {ran:?}");
        let ran = folder.run(&["token", "verify", "--route", "write", token]);
        assert_eq!(ran.code, Some(3), "{which}: {ran:?}");
    }
    let mut ids = published(&mut connection);
    ids.sort();
    let ran = folder.run(&["key", "list", "--json"]);
    let listed = ran.json();
    let mut listed: Vec<_> =
        listed.as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect();
    listed.sort();
    assert_eq!((ids.len(), &ids), (2, &listed));

    // What the command says of a token is what the gateway does.
    let ran = folder.run(&["client", "disable", &client.0]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(connection.get_with_token("/private", &fresh).unwrap().status, 401);
    let ran = folder.run(&["token", "verify", &fresh]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    server.stop();
}

#[test]
fn keys_under_another_wrapping_key_open_with_that_one_alone() {
    let folder = Folder::new(&Settings::default());
    let old_wrapping = folder.read("wrapping.key");
    let server = Server::start(&folder);
    let client = folder.create_client("billing");
    let old = token(&mut server.connect(), &client);
    folder.write("new-wrapping.key", &STANDARD.encode([9; 32]));
    let ran = folder.run(&["key", "rewrap", "--new-key-file", "new-wrapping.key"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let fresh = token(&mut server.connect(), &client);
    server.stop();

    let ran = folder.run(&["run"]);
    assert_eq!(ran.code, Some(1), "the old wrapping key opens nothing: {ran:?}");
    for secret in [old_wrapping.trim(), &STANDARD.encode([9; 32])] {
        assert!(!ran.stderr.contains(secret), "{ran:?}");
    }

    folder.write("wrapping.key", &folder.read("new-wrapping.key"));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    for token in [old, fresh] {
        assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 200);
    }
    token(&mut connection, &client);
    server.stop();
}

#[test]
fn keys_of_an_issuer_that_is_down_outlast_a_restart() {
    let more =
        "\n[[route]]\nname = \"keys\"\npath = \"/keys\"\nauth = \"public\"\nbuiltin = \"jwks\"\n".to_owned();
    let issuer_folder = Folder::new(&Settings { more, ..Settings::default() });
    let issuer = Server::start(&issuer_folder);
    let client = issuer_folder.create_client("billing");
    let token = token(&mut issuer.connect(), &client);

    let more = format!(
        r#"
[[issuer]]
name = "partner"
issuer = "https://gateway.test"
audiences = ["https://api.test"]
jwks_url = "https://{}/keys"
ca_file = "{}"
allow_private_addresses = true

[[route]]
name = "partner"
path = "/partner"
auth = {{ issuer = "partner", scopes = ["read"] }}
respond = {{ body = "come in" }}
"#,
        issuer.address,
        issuer_folder.file("ca.pem").display()
    );
    let folder = Folder::new(&Settings { more, ..Settings::default() });
    // Its own authorization server is another one.
    let text = folder.read("cardea.toml");
    let own = "[authorization_server]\nissuer = \"https://gateway.test\"";
    assert!(text.contains(own));
    folder.write("cardea.toml", &text.replace(own, &own.replace("gateway.test", "other.test")));
    let server = Server::start(&folder);
    assert_eq!(server.connect().get_with_token("/partner", &token).unwrap().status, 200);
    until("the keys are kept", || folder.file("issuer-keys/partner.json").exists().then_some(()));
    server.stop();
    issuer.stop();

    let server = Server::start(&folder);
    assert_eq!(server.connect().get_with_token("/partner", &token).unwrap().status, 200);
    let status = folder.run(&["status", "--json"]).json();
    let kept = status["key_sets"].as_array().unwrap().iter().find(|set| set["issuer"] == "partner").unwrap();
    assert_eq!(kept["usable"], true, "{status}");
    assert!(kept["problem"].is_string(), "it is down: {status}");
    server.stop();
}

//! The tarpit as the operator sees it: wrong secrets at the token endpoint, who is held, and their release.

use serde_json::json;

use crate::support::{Connection, Folder, Server, folder::Settings, metrics::Metrics, until};

const TARPIT: &str =
    "\n[tarpit]\naction = \"hold\"\noffences = 2\ndelay_min = \"30s\"\ndelay_max = \"30s\"\n";

/// Sends a wrong secret, and waits for no answer.
fn guess(connection: &mut Connection) {
    let body = "grant_type=client_credentials&client_id=billing&client_secret=wrong";
    let head = format!(
        "POST /oauth2/token HTTP/1.1\r\nHost: gateway.test\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.send(head.as_bytes()).unwrap();
}

fn listed(folder: &Folder, count: usize) -> serde_json::Value {
    until("requests to be held", || {
        let ran = folder.run(&["tarpit", "list", "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let held = ran.json();
        let requests = held.as_array().unwrap().iter().map(|one| one["requests"].as_u64().unwrap());
        (requests.sum::<u64>() == count as u64).then_some(held)
    })
}

#[test]
fn those_who_guess_secrets_are_held_listed_and_released() {
    let mut settings = Settings::with_cheap_hashes();
    settings.more.push_str(TARPIT);
    let folder = Folder::new(&settings);
    let server = Server::start(&folder);
    let (id, secret) = folder.create_client("billing");
    let mut connection = server.connect();
    for _ in 0..2 {
        assert_eq!(connection.token(&id, "wrong").unwrap().status, 401);
    }
    let mut held = [server.connect(), server.connect()];
    held.iter_mut().for_each(guess);
    let list = listed(&folder, 2);
    assert_eq!((&list[0]["address"], &list[0]["subject"]), (&json!("127.0.0.1"), &json!(null)));
    assert_eq!(Metrics::of(&server).get("cardea_tarpit_held"), Some(2.0));
    assert_eq!(Metrics::of(&server).get("cardea_tarpit_offenders"), Some(1.0));
    let ran = folder.run(&["tarpit", "list"]);
    assert!(ran.stdout.contains("127.0.0.1"), "{ran:?}");
    // The right secret is accepted at once, from the same address.
    assert_eq!(connection.token(&id, &secret).unwrap().status, 200);

    for (arguments, code, said) in [
        (&["--address", "192.0.2.1"][..], Some(0), "no request was held"),
        (&["--issuer", "https://id.example", "--subject", "alice"], Some(0), "no request was held"),
        (&["--address", "nobody"], Some(2), "\"nobody\" is no address"),
        (&["--address", "127.0.0.1"], Some(0), "2 requests are released"),
        (&["--all", "--json"], Some(0), "\"requests\": 0"),
        (&["--issuer", "https://id.example"], Some(2), "--subject"),
        (&[], Some(2), "--all"),
    ] {
        let ran = folder.run(&[&["tarpit", "release"], arguments].concat());
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(said), "{ran:?}");
    }
    for connection in &mut held {
        let answer = connection.answer().unwrap().unwrap();
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert_eq!(answer.member("error").as_deref(), Some("invalid_client"));
    }
    listed(&folder, 0);
    // Their offences are forgotten, so the next guess is answered at once.
    assert_eq!(connection.token(&id, "wrong").unwrap().status, 401);
    server.stop();
}

#[test]
fn a_drain_answers_those_who_are_held() {
    let mut settings = Settings::with_cheap_hashes();
    settings.more.push_str(TARPIT);
    let folder = Folder::new(&settings);
    let server = Server::start(&folder);
    folder.create_client("billing");
    let mut connection = server.connect();
    for _ in 0..2 {
        assert_eq!(connection.token("billing", "wrong").unwrap().status, 401);
    }
    guess(&mut connection);
    listed(&folder, 1);
    server.stop();
    assert_eq!(connection.answer().unwrap().unwrap().status, 401);
}

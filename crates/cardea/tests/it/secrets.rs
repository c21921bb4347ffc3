//! What the gateway writes: never a secret, and for each refusal the id that its answer has.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::support::{Connection, Folder, Origin, Server, client::Answer, folder::Settings};

#[test]
fn no_secret_reaches_a_log() {
    let origin = Origin::start();
    // Everything that there is to say is said.
    let settings = Settings { origin: Some(origin.address), log_level: "trace", ..Settings::default() };
    let folder = Folder::new(&settings);
    let server = Server::start(&folder);
    let mut connection = server.connect();
    let client = folder.create_client("billing");
    let rotated = folder.run(&["client", "rotate", &client.0, "--json"]);
    let rotated = rotated.json()["client_secret"].as_str().unwrap().to_owned();
    let (id, secret) = (client.0.as_str(), client.1.as_str());
    let token = connection.token(id, secret).unwrap().member("access_token").unwrap();
    let tokens: Vec<&str> = token.split('.').collect();
    let forged =
        format!("{}.{}.{}", tokens[0], tokens[1], "Zm9yZ2VkLXNpZ25hdHVyZS1ub3RoaW5nLWVsc2U".repeat(2));
    let cookie = "session=cookie-that-nobody-may-see";
    let query = "/version?access_token=token-in-a-query&code=code-in-a-query";

    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let post = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
    assert_eq!(connection.request("POST", "/oauth2/token", form, &post).unwrap().status, 200);
    let post = format!("grant_type=client_credentials&client_id={id}&client_secret=wrong-secret-in-a-body");
    assert_eq!(connection.request("POST", "/oauth2/token", form, &post).unwrap().status, 401);
    assert_eq!(connection.token(id, "wrong-secret-in-a-header").unwrap().status, 401);
    assert_eq!(connection.token("nobody", secret).unwrap().status, 401);
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 200);
    assert_eq!(connection.get_with_token("/private", &forged).unwrap().status, 401);
    assert_eq!(connection.get_with_token("/private", "token-that-is-none").unwrap().status, 401);
    let basic = format!("Authorization: Basic {}\r\n", STANDARD.encode("user:password-of-another-scheme"));
    assert_eq!(connection.request("GET", "/private", &basic, "").unwrap().status, 401);
    let lines =
        format!("Cookie: {cookie}\r\nAuthorization: Bearer {token}\r\nX-Api-Key: key-of-an-origin\r\n");
    assert_eq!(connection.request("GET", "/origin/x", &lines, "").unwrap().status, 200);
    assert_eq!(connection.get(query).unwrap().status, 200);
    // Heads that break off and heads that break rules, with secrets in them.
    let broken = format!("GET / HTTP/1.1\r\nHost: gateway.test\r\nAuthorization : Bearer {token}\r\n\r\n");
    server.connect().send(broken.as_bytes()).unwrap();
    let mut refused = server.connect();
    refused.send(broken.as_bytes()).unwrap();
    assert_eq!(refused.answer().unwrap().unwrap().status, 400);

    let mut admin = Connection::plain(server.admin).unwrap();
    admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let metrics = admin.answer().unwrap().unwrap().text();
    assert!(metrics.contains("cardea_"), "{metrics}");

    let wrapping = folder.read("wrapping.key");
    let mut program = server.program;
    program.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(program.wait(), Some(0));
    let written = [
        ("standard error", program.stderr.text()),
        ("standard output", program.stdout.text()),
        ("access log", folder.read("access.log")),
        ("metrics", metrics),
    ];
    assert!(written[2].1.contains("/private"), "the control: {}", written[2].1);
    assert!(written[0].1.contains("client_create"), "the control: {}", written[0].1);
    let private = std::fs::read_to_string(folder.file("gateway.key")).unwrap();
    let basic_good = STANDARD.encode(format!("{id}:{secret}"));
    let basic_wrong = STANDARD.encode(format!("{id}:wrong-secret-in-a-header"));
    for secret in [
        secret,
        &rotated,
        tokens[2],
        tokens[1],
        "Zm9yZ2VkLXNpZ25hdHVyZS1ub3RoaW5nLWVsc2U",
        "token-that-is-none",
        "wrong-secret",
        "cookie-that-nobody-may-see",
        "key-of-an-origin",
        "-in-a-query",
        "password-of-another-scheme",
        &STANDARD.encode("user:password-of-another-scheme"),
        &basic_good,
        &basic_wrong,
        wrapping.trim(),
        private.lines().nth(1).unwrap(),
    ] {
        for (place, text) in &written {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} is in the {place}");
        }
    }
}

/// The refusal's code and request id, as the client sees them.
fn told(answer: &Answer) -> (String, String) {
    let code = answer.member("code").or_else(|| answer.member("error"));
    let id = answer.head.field("x-request-id").map(str::to_owned);
    if let (Some(id), Some(member)) = (&id, answer.member("request_id")) {
        assert_eq!(*id, member, "{answer:?}");
    }
    let id = id.or_else(|| answer.member("request_id"));
    (code.unwrap_or_else(|| panic!("no code: {answer:?}")), id.unwrap_or_else(|| panic!("no id: {answer:?}")))
}

#[test]
fn every_refusal_has_one_id_in_the_answer_and_in_the_log() {
    let origin = Origin::start();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let more = format!(
        r#"
[[service]]
name = "down"
[[service.endpoint]]
address = "{nobody}"
[[route]]
name = "down"
path = "/down"
auth = "public"
service = "down"
[[route]]
name = "small"
path = "/small"
auth = "public"
service = "origin"
methods = ["POST"]
body_bytes_max = "10B"
"#
    );
    let folder = Folder::new(&Settings { origin: Some(origin.address), more, ..Settings::default() });
    let server = Server::start(&folder);
    let client = folder.create_client("billing");
    let token = server.connect().token(&client.0, &client.1).unwrap().member("access_token").unwrap();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let long = "x".repeat(9_000);
    let fields = format!("X-Long: {}\r\n", "x".repeat(40_000));
    let cases: [(u16, String); 12] = [
        (400, request("GET", "/", "Bad Name: x\r\n")),
        (400, request("GET", "/private", &format!("{bearer}{bearer}"))),
        (401, request("GET", "/private", "")),
        (401, request("GET", "/private", "Authorization: Bearer nonsense\r\n")),
        (403, request("GET", "/write", &bearer)),
        (404, request("GET", "/nowhere", "")),
        (405, request("GET", "/small", "")),
        (413, request("POST", "/small", "Content-Length: 11\r\n")),
        (414, request("GET", &format!("/{long}"), "")),
        (431, request("GET", "/", &fields)),
        (502, request("GET", "/down", "")),
        (505, "GET / HTTP/3.7\r\nHost: gateway.test\r\n\r\n".to_owned()),
    ];
    let mut refusals = Vec::new();
    for (status, request) in cases {
        let mut connection: Connection = server.connect();
        connection.send(request.as_bytes()).unwrap();
        let answer = connection.answer().unwrap().unwrap();
        let shown: String = request.chars().take(60).collect();
        let expected = if status == 502 { vec![502, 503] } else { vec![status] };
        assert!(expected.contains(&answer.status), "{shown:?}: {answer:?}");
        refusals.push((answer.status, told(&answer)));
    }
    server.stop();
    let log = folder.read("access.log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (status, (code, id)) in refusals {
        let found: Vec<_> = lines.iter().filter(|line| line["request_id"] == id.as_str()).collect();
        assert_eq!(found.len(), 1, "{status} {code} {id}:\n{log}");
        assert_eq!(found[0]["reason"], code.as_str(), "{}", found[0]);
        assert_eq!(found[0]["http.response.status_code"].to_string().trim_matches('"'), status.to_string());
    }
}

fn request(method: &str, path: &str, lines: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: gateway.test\r\n{lines}\r\n")
}

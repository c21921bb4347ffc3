//! Tests of `cardea explain` and `cardea test`, with the examples.

use std::{fs, io::Write, path::Path, sync::Arc, sync::Mutex};

use clap::Parser as _;
use tempfile::TempDir;

use crate::{
    cli::{Cli, Command, Exit, Output},
    commands::explain,
};

/// The output of a command.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// The shipped examples: without certificates, keys and databases.
fn examples() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for entry in fs::read_dir(source).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// Runs a command line and returns its exit code and output.
fn run(folder: &TempDir, arguments: &[&str]) -> (Exit, String, String) {
    let config = folder.path().join("cardea.toml").display().to_string();
    let all = ["cardea"].into_iter().chain(arguments.iter().copied()).chain(["--config", &config]);
    let command = Cli::try_parse_from(all).unwrap().command;
    let (out, err) = (Written::default(), Written::default());
    let mut output = Output::new(Box::new(out.clone()), Box::new(err.clone()));
    let exit = match &command {
        Command::Explain(arguments) => explain::run(arguments, &mut output),
        Command::Test(arguments) => explain::test::run(arguments, &mut output),
        other => panic!("{other:?}"),
    };
    (exit, out.text(), err.text())
}

#[test]
fn the_example_passes_its_tests() {
    let folder = examples();
    let tests = folder.path().join("tests.toml").display().to_string();
    let (exit, out, err) = run(&folder, &["test", &tests]);
    assert_eq!(exit, Exit::Success, "{out}{err}");
    assert!(out.contains(" passed, 0 failed\n"), "{out}");
    let (_, out, _) = run(&folder, &["test", &tests, "--json"]);
    let outcomes: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    assert!(outcomes.len() >= 12 && outcomes.iter().all(|outcome| outcome["passed"] == true));
}

#[test]
fn failed_expectations_are_reported() {
    let folder = examples();
    let tests = folder.path().join("wrong.toml");
    let text = "[[test]]\nname = \"a\"\nrequest = { url = \"https://api.example.com/robots.txt\" }\n\
        expect = { route = \"site\", status = 200, allowed = true }\n\
        [[test]]\nname = \"b\"\nrequest = { url = \"nonsense\" }\nexpect = {}\n";
    fs::write(&tests, text).unwrap();
    let tests = tests.display().to_string();
    let (exit, out, _) = run(&folder, &["test", &tests]);
    assert_eq!(exit, Exit::Refused);
    assert!(
        out.contains(&format!(
            "FAIL  a ({tests}:2:8)\n      route\n        expected  site\n        found     robots\nFAIL  b ({tests}:6:8)\n"
        )),
        "{out}"
    );
    let (_, json, _) = run(&folder, &["test", &tests, "--json"]);
    let outcomes: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&outcomes[1]["line"], &outcomes[1]["column"]), (&6.into(), &8.into()), "{outcomes}");
    assert!(out.ends_with("0 passed, 2 failed\n"), "{out}");
    for (text, wanted) in [
        ("", "has no [[test]]"),
        ("[[test]]\nname = \"a\"\nrequest = { urls = \"x\" }\nexpect = {}\n", ":3:13: unknown field `urls`"),
        ("[[test]]\nname = \"a\"\nrequest = { url = \"x\" }\n", ":1:1: missing field `expect`"),
        ("[[test]]\nname = \"\u{e9}\" x\n", ":2:12: "),
        ("[test]\nname = \"a\"\n", ":1:2: write [[test]] with two brackets"),
        ("tests = []\n", ":1:1: unknown key \"tests\""),
    ] {
        fs::write(&tests, text).unwrap();
        let (exit, _, err) = run(&folder, &["test", &tests]);
        assert_eq!(exit, Exit::Usage);
        assert!(err.contains(wanted), "{err}");
    }
}

#[test]
fn all_errors_of_a_file_of_tests_are_reported() {
    let folder = examples();
    let tests = folder.path().join("wrong.toml");
    let text = "[[test]]\nname = 1\nrequest = { url = \"x\" }\nexpect = {}\n\
        [[test]]\nname = \"b\"\nrequest = { url = \"x\", source = \"here\" }\nexpect = {}\n\
        [[test]]\nname = \"c\"\nrequest = { url = \"x\" }\nexpect = { allowed = \"yes\" }\n";
    fs::write(&tests, text).unwrap();
    let tests = tests.display().to_string();
    let (exit, _, err) = run(&folder, &["test", &tests]);
    assert_eq!(exit, Exit::Usage);
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 3, "{err}");
    for (line, at) in lines.iter().zip([":2:8: ", ":7:33: ", ":12:22: "]) {
        assert!(line.starts_with(&format!("{tests}{at}")), "{at} {err}");
    }
}

#[test]
fn endpoints_of_the_gateway_are_routes_like_any_other() {
    let folder = examples();
    // Beside a route that takes all other requests.
    let config = folder.path().join("cardea.toml");
    let text = fs::read_to_string(&config).unwrap();
    let rest = "\n[[route]]\nname = \"all-the-rest\"\nauth = \"public\"\nhosts = [\"api.example.com\"]\n\
        respond = { status = 404 }\n";
    fs::write(&config, format!("{text}{rest}")).unwrap();
    let explained = |method: &str, path: &str| -> serde_json::Value {
        let url = format!("https://api.example.com{path}");
        let (_, out, err) = run(&folder, &["explain", method, &url, "--json"]);
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"))
    };
    for (method, path, builtin, status) in [
        ("POST", "/oauth2/token", "token", None),
        ("GET", "/oauth2/jwks", "jwks", Some(200)),
        ("GET", "/oauth2/authorize", "authorize", None),
        ("GET", "/.well-known/oauth-authorization-server", "oauth_metadata", Some(200)),
        ("HEAD", "/.well-known/openid-configuration", "openid_configuration", Some(200)),
    ] {
        let found = explained(method, path);
        assert_ne!(found["route"], "all-the-rest", "{path}: {found}");
        assert_eq!(found["destination"]["builtin"], builtin, "{path}: {found}");
        assert_eq!(found["destination"]["status"], serde_json::json!(status), "{path}: {found}");
        assert_eq!(found["refusal"], serde_json::Value::Null, "{path}: {found}");
    }
    // A configured route for hosts that the other one does not match.
    let asked = ["explain", "GET", "https://elsewhere.example.com/health", "--json"];
    let health: serde_json::Value = serde_json::from_str(&run(&folder, &asked).1).unwrap();
    assert_eq!((&health["route"], &health["destination"]["builtin"]), (&"health".into(), &"health".into()));
    // Their refusals, and requests that they do not match.
    let refused = explained("GET", "/oauth2/token");
    assert_eq!(
        (&refused["refusal"]["status"], &refused["refusal"]["code"]),
        (&405.into(), &"method_not_allowed".into())
    );
    assert_eq!(explained("POST", "/oauth2/tokens")["route"], "all-the-rest");
}

#[test]
fn an_explanation_shows_each_rule_with_its_value_and_no_secret() {
    let folder = examples();
    let claims = "{\"sub\":\"app\",\"client_id\":\"app\",\"scope\":\"orders.read\"}";
    let asked = ["explain", "POST", "https://api.example.com/orders", "--issuer", "own", "--claims", claims];
    let (exit, out, err) = run(&folder, &[&asked[..], &["--source", "192.0.2.9"]].concat());
    assert_eq!(exit, Exit::Refused, "{err}");
    for wanted in
        ["route    orders\n", "subject app", "reads only", "refused with 403 policy_denied: reads only"]
    {
        assert!(out.contains(wanted), "{wanted} is not in {out}");
    }
    let asked = [
        "explain",
        "GET",
        "https://api.example.com/orders/1?access_token=x",
        "--issuer",
        "own",
        "--claims",
        claims,
    ];
    let rest = ["--source", "192.0.2.9", "--json", "--attribute", "request.query", "-H", "cookie: a=secret"];
    let (exit, out, err) = run(&folder, &[&asked[..], &rest].concat());
    assert_eq!(exit, Exit::Success, "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["destination"]["service"], "orders");
    assert_eq!(document["attributes"]["request.query"], "access_token=[redacted]");
    assert_eq!(document["policies"].as_array().unwrap().len(), 4);
    assert_eq!(document["caller"]["client_id"], "app");
    assert!(!out.contains("secret") && !out.contains("eyJ"), "{out}");
}

#[test]
fn options_requests_for_the_gateway_itself_are_answered() {
    let folder = examples();
    let asked = ["explain", "OPTIONS", "https://api.example.com/orders", "--request-target", "*", "--json"];
    let (exit, out, err) = run(&folder, &asked);
    assert_eq!(exit, Exit::Success, "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&document["destination"]["status"], &document["route"]),
        (&204.into(), &serde_json::Value::Null),
        "{out}"
    );
    // With another method it is no valid target.
    let (exit, out, _) =
        run(&folder, &["explain", "GET", "https://api.example.com/", "--request-target", "*"]);
    assert_eq!(exit, Exit::Refused, "{out}");
    let tests = folder.path().join("options.toml");
    let text = "[[test]]\nname = \"a\"\nexpect = { status = 204, allowed = true }\n\
        request = { method = \"OPTIONS\", url = \"https://api.example.com/\", request_target = \"*\" }\n";
    fs::write(&tests, text).unwrap();
    let (exit, out, err) = run(&folder, &["test", &tests.display().to_string()]);
    assert_eq!(exit, Exit::Success, "{out}{err}");
}

#[test]
fn hosts_are_asked_as_they_are_written() {
    let folder = examples();
    let url = "https://api.example.com/orders/1";
    let (missing, empty) = (Some("host_missing"), Some("host_empty"));
    for (rest, code, host) in [
        (&["https://API.example.com./orders/1"][..], Some("credentials_missing"), Some("api.example.com")),
        (&["https://api.ex%61mple.com/orders/1"], Some("host_invalid"), None),
        (&["https://0x7f.1/orders/1"], Some("host_address_invalid"), None),
        (&[url, "-H", "host: SHOP.example.com:443"], None, Some("shop.example.com")),
        (&[url, "-H", "Host: 0x7f.1"], Some("host_address_invalid"), None),
        (&[url, "-H", "host: a", "-H", "host: a"], Some("host_repeated"), None),
        (&[url, "-H", "host:"], missing, None),
        (&[url, "-H", "Host: "], missing, None),
        (&[url, "-H", "host;"], empty, None),
        (&[url, "-H", "host:", "--http1.0"], missing, None),
        (&[url, "-H", "host:", "--request-target", url], missing, None),
        (
            &[url, "-H", "host:", "--request-target", url, "--http1.0"],
            Some("credentials_missing"),
            Some("api.example.com"),
        ),
        (&[url, "-H", "x-a : 1"], Some("space_before_colon"), None),
        (&[url, "-H", "transfer-encoding: chunked", "--http1.0"], Some("transfer_encoding_in_http10"), None),
    ] {
        let (_, out, err) = run(&folder, &[&["explain", "GET", "--json"], rest].concat());
        let found: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        assert_eq!(found["refusal"]["code"].as_str(), code, "{rest:?}: {found}");
        assert_eq!(found["host"].as_str(), host, "{rest:?}: {found}");
    }
}

#[test]
fn invalid_requests_are_reported() {
    let folder = examples();
    let url = "https://api.example.com/";
    for (arguments, wanted) in [
        (&["explain", "GET", "ftp://a"][..], "\"ftp://a\": character 1: the scheme is not http or https"),
        (&["explain", "GET", "https:///x"], "character 9: the URL has no host"),
        (&["explain", "G\nT", url], "the end of a line"),
        (&["explain", "GET", url, "--claims", "{}"], "name the issuer of the claims"),
        (&["explain", "GET", url, "--claims", "[]", "--issuer", "own"], "not a JSON object"),
        (
            &["explain", "GET", url, "--listener", "x"],
            "there is no listener \"x\"; the listeners are: public",
        ),
        (&["explain", "GET", url, "-H", "x"], "is not a header"),
        (&["explain", "GET", url, "--attribute", "request.pth"], "request.pth"),
        (&["explain", "GET", url, "--time", "noon"], "is not a time"),
    ] {
        let (exit, _, err) = run(&folder, arguments);
        assert_eq!(exit, Exit::Usage, "{arguments:?}");
        assert!(err.contains(wanted), "{wanted} is not in {err}");
    }
}

#[test]
fn a_split_is_explained_by_its_key_and_always_in_the_same_way() {
    let folder = examples();
    let url = "https://api.example.com/carts/1";
    let services = |caller: &str| -> Vec<String> {
        let claims = format!("{{\"sub\":\"{caller}\",\"scope\":\"orders.write\"}}");
        let asked = ["explain", "GET", url, "--issuer", "login", "--claims", &claims, "--json"];
        let asked = || -> serde_json::Value {
            let (exit, out, err) = run(&folder, &asked);
            assert_eq!(exit, Exit::Success, "{out}{err}");
            serde_json::from_str(&out).unwrap()
        };
        let found = asked();
        let split = serde_json::json!({ "has_key": true, "services": [
            { "service": "orders", "share": 0.9 }, { "service": "orders-next", "share": 0.1 },
        ] });
        assert_eq!(found["split"], split);
        [found, asked()]
            .iter()
            .map(|one| one["destination"]["service"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut seen = std::collections::BTreeSet::new();
    for caller in 0..30 {
        let found = services(&format!("user-{caller}"));
        assert_eq!(found[0], found[1]);
        seen.insert(found[0].clone());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["orders", "orders-next"]);
    // Without the key, the service with the greatest weight is explained.
    let config = folder.path().join("cardea.toml");
    let text = fs::read_to_string(&config).unwrap().replace("split_key", "# split_key");
    fs::write(&config, text).unwrap();
    let claims = "{\"sub\":\"x\",\"scope\":\"orders.write\"}";
    for _ in 0..20 {
        let (_, out, err) = run(&folder, &["explain", "GET", url, "--issuer", "login", "--claims", claims]);
        assert!(out.contains("goes to service orders (") && out.contains("at random"), "{out}{err}");
    }
}

//! Tests of `cardea explain` and `cardea test`, with the examples.

use std::{fs, io::Write, path::Path, sync::Arc, sync::Mutex};

use clap::Parser as _;
use tempfile::TempDir;

use crate::{
    cli::{Cli, Command, Exit, Output},
    commands::explain,
};

/// What a command wrote.
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

/// The examples in a folder with the files that they name.
fn examples() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["cardea.toml", "tests.toml"] {
        fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    for (name, content) in [
        ("certificates/api.pem", "PEM"),
        ("certificates/api.key", "PEM"),
        ("certificates/partners.pem", "PEM"),
        ("certificates/partners.key", "PEM"),
        ("certificates/internal-ca.pem", "PEM"),
        ("certificates/partner-clients-ca.pem", "PEM"),
        ("certificates/partner-clients.crl", "PEM"),
        ("partner-keys.json", "{\"keys\":[]}"),
        ("wrapping.key", "c2VjcmV0"),
        ("acme-hmac.key", "c2VjcmV0"),
        ("tickets.secret", "1800000000 ab"),
        ("tiers.map", "# clients\ngold-app gold\n"),
        ("maintenance.html", "<p>Back soon.</p>"),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// Runs a command line; how it ended, and what it wrote.
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
fn what_does_not_hold_is_told_and_fails() {
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
        out.contains("FAIL  a\n      route\n        expected  site\n        found     robots\nFAIL  b\n"),
        "{out}"
    );
    assert!(out.ends_with("0 passed, 2 failed\n"), "{out}");
    for (text, wanted) in [
        ("", "has no [[test]]"),
        ("[[test]]\nname = \"a\"\nrequest = { urls = \"x\" }\nexpect = {}\n", "unknown field `urls`"),
        ("[[test]]\nname = \"a\"\nrequest = { url = \"x\" }\n", "missing field `expect`"),
    ] {
        fs::write(&tests, text).unwrap();
        let (exit, _, err) = run(&folder, &["test", &tests]);
        assert_eq!(exit, Exit::Usage);
        assert!(err.contains(wanted), "{err}");
    }
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
fn what_can_not_be_asked_is_told() {
    let folder = examples();
    let url = "https://api.example.com/";
    for (arguments, wanted) in [
        (&["explain", "GET", "ftp://a"][..], "is not http or https"),
        (&["explain", "G T", url], "not a token"),
        (&["explain", "GET", url, "--claims", "{}"], "say which issuer"),
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

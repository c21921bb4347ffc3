//! What people meet before anything runs: `init`, `check`, and a `run` that refuses.

use std::{collections::BTreeSet, fs, net::TcpListener};

use serde_json::Value;

use crate::support::{Folder, folder::Settings, run};

#[test]
fn the_starter_is_valid_and_never_overwrites_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["init"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = run(folder.path(), &["check"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let ran = run(folder.path(), &["check", "--json"]);
    assert_eq!((ran.code, ran.json()), (Some(0), Value::Array(Vec::new())), "{ran:?}");

    fs::write(folder.path().join("cardea.toml"), "# mine\n").unwrap();
    let ran = run(folder.path(), &["init"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("cardea.toml exists"), "{ran:?}");
    assert_eq!(fs::read_to_string(folder.path().join("cardea.toml")).unwrap(), "# mine\n");
}

/// Five mistakes of five kinds; each marked line is one.
const MISTAKES: &str = r#"
[timeouts]
request = "5 parsecs"               # wrong

[[listener]]
name = "local"
address = "127.0.0.1:0"
htpp2 = true                        # wrong

[[route]]
name = "one"
path = "/one"
auth = "public"
service = "nowhere"                 # wrong

[[route]]
name = "two"
path = "/two"
auth = { issuer = "nobody" }        # wrong
respond = { body = "two" }

[[route]]
name = "three"
path = "three"                      # wrong
auth = "public"
respond = { body = "three" }
"#;

#[test]
fn every_error_is_reported_with_its_location() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cardea.toml"), MISTAKES).unwrap();
    let wrong: BTreeSet<u64> =
        (1..).zip(MISTAKES.lines()).filter(|(_, line)| line.contains("# wrong")).map(|(at, _)| at).collect();
    assert_eq!(wrong.len(), 5);

    let ran = run(folder.path(), &["check"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    let mut found = BTreeSet::new();
    for line in ran.stderr.lines().filter(|line| line.starts_with("cardea.toml:")) {
        let mut parts = line.splitn(4, ':').skip(1);
        let Some(Ok(at)) = parts.next().map(str::parse::<u64>) else { continue };
        assert!(parts.next().unwrap().parse::<u64>().is_ok(), "no column: {line}");
        found.insert(at);
    }
    assert_eq!(found, wrong, "{ran:?}");
    assert!(ran.stderr.contains("did you mean \"http2\""), "{ran:?}");

    let ran = run(folder.path(), &["check", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), ""), "{ran:?}");
    let problems = ran.json();
    let lines: BTreeSet<u64> =
        problems.as_array().unwrap().iter().map(|problem| problem["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, wrong, "{problems}");

    // `run` says the same, and starts nothing.
    let ran = run(folder.path(), &["run"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("5 parsecs"), "{ran:?}");
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let folder = Folder::new(&Settings::default());
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, Some(0), "the control: {ran:?}");
    let other = folder.issue();
    let good = folder.issue();
    for (what, chain, key) in [
        ("no certificate", Some("no PEM"), Some(good.key_pem.as_str())),
        ("no key", Some(good.chain_pem.as_str()), Some("no PEM")),
        ("another's key", Some(good.chain_pem.as_str()), Some(other.key_pem.as_str())),
        ("a certificate that is not there", None, Some(good.key_pem.as_str())),
        ("a key that is not there", Some(good.chain_pem.as_str()), None),
    ] {
        let mut blamed = "gateway.pem";
        for (name, text) in [("gateway.pem", chain), ("gateway.key", key)] {
            match text {
                Some(text) => folder.write(name, text),
                None => fs::remove_file(folder.file(name)).unwrap(),
            }
        }
        if key.is_none() || key == Some("no PEM") {
            blamed = "gateway.key";
        }
        let ran = folder.run(&["check"]);
        assert_eq!(ran.code, Some(2), "{what}: {ran:?}");
        assert!(ran.stderr.contains("cardea.toml:") && ran.stderr.contains(blamed), "{what}: {ran:?}");
        assert!(!ran.stderr.contains("PRIVATE KEY"), "{what}: {ran:?}");
        let ran = folder.run(&["run"]);
        assert!(matches!(ran.code, Some(1 | 2)), "{what}: {ran:?}");
        assert!(ran.stderr.contains(blamed), "{what}: {ran:?}");
    }
}

#[test]
fn a_user_that_is_not_there_is_named() {
    let more = "\n[process]\nuser = \"cardea-it-nobody-has-this-name\"\n".to_owned();
    let folder = Folder::new(&Settings { more, ..Settings::default() });
    let ran = folder.run(&["run"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("process.user") && ran.stderr.contains("cardea-it-nobody-has-this-name"),
        "{ran:?}"
    );
}

#[test]
fn a_taken_port_is_named_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let folder = Folder::new(&Settings { listen, ..Settings::default() });
    let ran = folder.run(&["run"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in ["\"https\"", &listen.to_string(), "ss -ltnp"] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
}

#[test]
fn an_invalid_wrapping_key_prevents_the_start() {
    let folder = Folder::new(&Settings::default());
    folder.write("wrapping.key", "too short\n");
    let ran = folder.run(&["run"]);
    assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
    assert!(ran.stderr.contains("wrapping_key") && !ran.stderr.contains("too short"), "{ran:?}");
    assert!(!folder.file("admin.sock").exists());
}

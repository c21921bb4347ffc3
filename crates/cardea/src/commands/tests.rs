//! Commands as they are typed: on the database, through a running server, and with one that doesn't answer.

use std::{
    cell::RefCell,
    fs,
    io::Write,
    os::unix::net::UnixListener,
    rc::Rc,
    sync::{Arc, mpsc},
    thread,
};

use cardea_clock::{Clock, CoarseClock, PERIOD_DEFAULT, Timestamp, Wall};
use cardea_issuer::{AuthorizationServer, NewClient, TokenRequest};
use clap::Parser as _;
use serde_json::Value;

use super::*;
use crate::{
    admin::{
        self,
        testing::{Fake, Fixture},
    },
    cli::{Cli, Command},
};

/// The output of a command.
#[derive(Clone, Default)]
struct Captured(Rc<RefCell<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Runs a command on the configuration of a fixture.
fn cardea(fixture: &Fixture, arguments: &[&str]) -> Ran {
    if arguments[..2] == ["token", "decode"] {
        return run_with(arguments);
    }
    let config = fixture.path("cardea.toml");
    run_with(&[arguments, &["--config", config.to_str().unwrap()]].concat())
}

/// Runs a command.
fn run_with(arguments: &[&str]) -> Ran {
    let line = ["cardea"].into_iter().chain(arguments.iter().copied());
    let cli = Cli::try_parse_from(line).unwrap();
    let (out, err) = (Captured::default(), Captured::default());
    let mut output = Output::new(Box::new(out.clone()), Box::new(err.clone()));
    let exit = match &cli.command {
        Command::Client(arguments) => client::run(arguments, &mut output),
        Command::Key(arguments) => key::run(arguments, &mut output),
        Command::Token(arguments) => token::run(arguments, &mut output),
        Command::Reload(arguments) => running::reload(arguments, &mut output),
        Command::Status(arguments) => running::status(arguments, &mut output),
        Command::Certificates(arguments) => certificates::run(arguments, &mut output),
        command => panic!("{command:?}"),
    };
    let text = |captured: Captured| String::from_utf8(captured.0.take()).unwrap();
    Ran { exit, out: text(out), err: text(err) }
}

#[test]
fn clients_are_managed_on_the_database_where_no_server_runs() {
    let fixture = Fixture::new();
    let run = |arguments: &[&str]| cardea(&fixture, arguments);
    let ran = run(&["client", "list"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Success, ""));
    assert!(ran.err.contains("no gateway responds at") && ran.err.contains("client create"), "{}", ran.err);

    let ran = run(&["client", "create", "Billing", "--id", "billing", "--scope", "read,write"]);
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    assert!(ran.out.starts_with("client_id      billing\nclient_secret  cdsec_"), "{}", ran.out);
    assert!(ran.err.contains("shown only once"), "{}", ran.err);
    let secret = ran.out.split_whitespace().nth(3).unwrap().to_owned();

    let ran = run(&["client", "create", "Other", "--json"]);
    let created = ran.json();
    assert!(created["client_secret"].as_str().unwrap().starts_with("cdsec_"));
    assert_eq!(created["client_id"], created["client"]["client_id"]);

    let listed = run(&["client", "list", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let table = run(&["client", "list"]).out;
    assert!(
        table.starts_with("CLIENT_ID") && table.contains("read write") && table.contains("(default)"),
        "{table}"
    );
    let shown = run(&["client", "show", "billing"]).out;
    assert!(shown.contains("state            enabled") && !shown.contains(&secret), "{shown}");
    assert!(shown.contains("remember secret  yes") && shown.contains("generated  sha256"), "{shown}");

    let ran = run(&["client", "rotate", "billing", "--overlap", "1h"]);
    assert!(ran.exit == Exit::Success && ran.err.contains("work for 1h more"), "{}", ran.err);
    assert_eq!(run(&["client", "disable", "billing", "--json"]).json()["enabled"], false);
    assert_eq!(run(&["client", "enable", "billing", "--json"]).json()["enabled"], true);
    assert_eq!(run(&["client", "delete", "billing"]).out, "deleted billing\n");
}

#[test]
fn a_client_may_be_created_without_caching() {
    let fixture = Fixture::new();
    let created = cardea(&fixture, &["client", "create", "a", "--no-remember", "--json"]).json();
    assert_eq!(created["client"]["remember_secret"], false);
    let created = cardea(&fixture, &["client", "create", "a", "--json"]).json();
    assert_eq!(created["client"]["remember_secret"], true);
}

#[test]
fn errors_of_a_file_are_reported_before_the_database_is_opened() {
    let fixture = Fixture::new();
    fixture.file("clients.jsonl", "nonsense\n");
    let path = fixture.path("clients.jsonl");
    for (path, exit, message) in [
        (path.to_str().unwrap(), Exit::Refused, "clients.jsonl:1: "),
        ("/nonexistent.csv", Exit::Usage, "cannot read /nonexistent.csv"),
        ("/nonexistent", Exit::Usage, "--format"),
    ] {
        let ran = cardea(&fixture, &["client", "import", path]);
        assert_eq!((ran.exit, ran.out.as_str()), (exit, ""), "{}", ran.err);
        assert!(ran.err.contains(message), "{path}: {}", ran.err);
    }
    assert!(!fixture.path("cardea.db").exists());
}

#[test]
fn the_kind_of_error_determines_the_exit_code() {
    let fixture = Fixture::new();
    let run = |arguments: &[&str]| cardea(&fixture, arguments);
    assert_eq!(run(&["client", "create", "a", "--id", "a"]).exit, Exit::Success);
    for (arguments, exit, message) in [
        (&["client", "show", "nobody"][..], Exit::Refused, "there is no client \"nobody\""),
        (&["client", "disable", "nobody"], Exit::Refused, "there is no client"),
        (&["client", "create", "a", "--id", "a"], Exit::Refused, "already exists"),
        (&["client", "create", "b", "--scope", "fly"], Exit::Usage, "the scopes are: read, write"),
        (&["client", "create", "b", "--token-lifetime", "1s"], Exit::Usage, "60 s"),
        (&["key", "rewrap", "--new-key-file", "/nonexistent"], Exit::Usage, "cannot read /nonexistent"),
        (
            &["key", "rewrap", "--new-key-env", "CARDEA_TEST_UNSET"],
            Exit::Usage,
            "CARDEA_TEST_UNSET is not set",
        ),
    ] {
        let ran = run(arguments);
        assert_eq!(ran.exit, exit, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(message) && ran.out.is_empty(), "{arguments:?}: {}", ran.err);
    }
    fixture.file("wrapping.key", &"cd".repeat(32));
    let ran = run(&["key", "list"]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("configure the key it was wrapped with"), "{}", ran.err);

    fixture.edit("[[listener]]", "[[listner]]");
    let ran = run(&["client", "list"]);
    assert!(ran.exit == Exit::Usage && ran.err.contains("listner"), "{}", ran.err);
    let plain = Fixture::new();
    plain.file("cardea.toml", "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n");
    let ran = cardea(&plain, &["client", "list"]);
    assert!(ran.exit == Exit::Usage && ran.err.contains("[authorization_server]"), "{}", ran.err);
}

#[test]
fn keys_are_listed_rotated_and_rewrapped() {
    let fixture = Fixture::new();
    let run = |arguments: &[&str]| cardea(&fixture, arguments);
    let first = run(&["key", "list", "--json"]).json();
    assert_eq!(first.as_array().unwrap().len(), 1);
    let rotated = run(&["key", "rotate"]);
    let table = rotated.out;
    assert!(table.contains("signs") && table.contains("published ahead"), "{table}");
    let waiting = table.lines().find(|line| line.contains("published ahead")).unwrap();
    let signs_from = rotated.err.rsplit(' ').next().unwrap().trim();
    assert!(signs_from.ends_with('Z') && waiting.contains(signs_from), "{table} {}", rotated.err);
    let table = run(&["key", "rotate", "--now"]).out;
    assert!(table.contains("verifies only"), "{table}");

    fixture.file("new.key", &"cd".repeat(32));
    let path = fixture.path("new.key");
    let ran = run(&["key", "rewrap", "--new-key-file", path.to_str().unwrap()]);
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    assert!(ran.err.contains("next: set authorization_server.wrapping_key = { file = "), "{}", ran.err);
    assert!(!ran.out.contains("cdcdcd") && !ran.err.contains("cdcdcd"));
    assert_eq!(run(&["key", "list"]).exit, Exit::Failure, "the old wrapping key opens nothing");
    fixture.edit("wrapping.key", "new.key");
    assert_eq!(run(&["key", "list"]).exit, Exit::Success);
}

/// A server with an admin socket, on its own thread.
struct Running {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn start(
        fixture: &Fixture,
        issuer: impl Future<Output = Arc<AuthorizationServer>> + Send + 'static,
        clock: Clock,
    ) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let path = fixture.config().admin.socket;
        let configuration = fixture.path("cardea.toml");
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let control = Fake::of(configuration, clock, Some(issuer.await));
                let socket = admin::bind_socket(path.as_deref()).unwrap();
                let running = socket.map(|socket| admin::serve_socket(socket, &control));
                ready.send(()).unwrap();
                let _ = stopped.await;
                drop(running);
            });
        });
        is_ready.recv().unwrap();
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn system_clock() -> (CoarseClock, Clock, Timestamp) {
    let coarse = CoarseClock::start(PERIOD_DEFAULT).unwrap();
    let clock = coarse.clock();
    let now = clock.precise();
    (coarse, clock, now)
}

#[test]
fn commands_use_the_running_server_and_never_bypass_it() {
    let fixture = Arc::new(Fixture::new());
    let (_coarse, clock, now) = system_clock();
    let opened = Arc::clone(&fixture);
    let running = Running::start(&fixture, async move { opened.issuer(now).await }, clock);
    let run = |arguments: &[&str]| cardea(&fixture, arguments);
    let ran = run(&["client", "create", "Billing", "--id", "billing"]);
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    assert!(!ran.err.contains("no gateway responds"), "{}", ran.err);
    let ran = run(&["client", "disable", "billing"]);
    assert!(ran.err.contains("in effect now"), "{}", ran.err);
    assert_eq!(run(&["client", "show", "nobody"]).exit, Exit::Refused);
    assert_eq!(run(&["key", "rotate", "--json"]).json().as_array().unwrap().len(), 2);

    // Another configuration with the same admin socket: requests for its gateway are not applied to this one.
    fs::copy(fixture.path("cardea.toml"), fixture.path("other.toml")).unwrap();
    let (this, other) = (fixture.path("cardea.toml"), fixture.path("other.toml"));
    let elsewhere = |arguments: &[&str], path: &Path| {
        let path = path.to_str().unwrap();
        run_with(&[arguments, &["--config", path]].concat())
    };
    for arguments in [
        &["client", "create", "Second", "--id", "second"][..],
        &["client", "disable", "billing"],
        &["key", "rotate"],
        &["reload"],
        &["status"],
        &["certificates"],
    ] {
        let ran = elsewhere(arguments, &other);
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Usage, ""), "{arguments:?}: {}", ran.err);
        for path in [&this, &other] {
            assert!(ran.err.contains(path.to_str().unwrap()), "{arguments:?}: {}", ran.err);
        }
    }
    // Other paths of the same file.
    std::os::unix::fs::symlink(&this, fixture.path("link.toml")).unwrap();
    let dotted = fixture.path(".").join("cardea.toml");
    for path in [&fixture.path("link.toml"), &dotted] {
        assert_eq!(elsewhere(&["client", "show", "billing"], path).exit, Exit::Success, "{path:?}");
    }
    assert_eq!(run(&["client", "show", "second"]).exit, Exit::Refused);
    drop(running);

    // A server that closes the connection still exists.
    let socket = fixture.config().admin.socket.unwrap();
    assert!(!socket.exists(), "a server that ends takes its socket along");
    let listener = UnixListener::bind(&socket).unwrap();
    let hangs_up = thread::spawn(move || drop(listener.accept().unwrap()));
    let ran = run(&["client", "enable", "billing"]);
    hangs_up.join().unwrap();
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("admin.sock"), "{}", ran.err);
    // No server is behind it any more.
    let ran = run(&["client", "show", "billing", "--json"]);
    assert_eq!(ran.json()["enabled"], false, "nothing was done behind the server's back");
}

/// A token of the fixture's server for a client with the scope `read`, issued at `now`.
fn token(fixture: &Fixture, id: &str, body: &str, now: Timestamp) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = fixture.issuer(now).await;
        let new = NewClient { id: Some(id.into()), scopes: vec!["read".into()], ..NewClient::default() };
        let new = NewClient {
            audiences: vec!["https://api.example.com".into(), "https://other.example.com".into()],
            ..new
        };
        let created = server.create_client(new, now).await.unwrap();
        let secret = created.secret.expose();
        let body =
            format!("grant_type=client_credentials&client_id={id}&client_secret={secret}&scope=read{body}");
        let request = TokenRequest {
            authorization: &[],
            content_type: Some(b"application/x-www-form-urlencoded"),
            query_present: false,
            body: body.as_bytes(),
        };
        let reply = server.token(request, now).await;
        assert_eq!(reply.status, 200, "{:?}", reply.reason);
        server.close().await;
        let reply: Value = serde_json::from_str(&reply.body).unwrap();
        reply["access_token"].as_str().unwrap().to_owned()
    })
}

#[test]
fn decoding_prints_the_claims_and_a_not_verified_note() {
    let fixture = Fixture::new();
    let (_coarse, _, now) = system_clock();
    let token = token(&fixture, "a", "", now);
    let ran = cardea(&fixture, &["token", "decode", &token]);
    assert_eq!(ran.exit, Exit::Success);
    assert!(ran.err.contains("NOT VERIFIED"), "{}", ran.err);
    for shown in ["header\n", "\"at+jwt\"", "claims\n", "https://auth.example.com", " minutes)"] {
        assert!(ran.out.contains(shown), "{shown}: {}", ran.out);
    }
    let json = cardea(&fixture, &["token", "decode", &token, "--json"]).json();
    assert_eq!((&json["verified"], &json["claims"]["sub"]), (&Value::Bool(false), &Value::from("a")));
    let ran = cardea(&fixture, &["token", "decode", "not.a.token"]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Refused, ""));
}

#[test]
fn verifying_names_the_check_that_fails() {
    let fixture = Fixture::new();
    let (_coarse, _, now) = system_clock();
    let past = Timestamp { wall: Wall::from_unix_seconds(now.wall.unix_seconds() - 7_200), ..now };
    let good = token(&fixture, "a", "", now);
    let expired = token(&fixture, "b", "", past);
    let elsewhere = token(&fixture, "c", "&resource=https%3A%2F%2Fother.example.com", now);
    let (rest, signature) = good.rsplit_once('.').unwrap();
    let other = if signature.starts_with('A') { "B" } else { "A" };
    let forged = format!("{rest}.{other}{}", &signature[1..]);
    for (token, route, exit, failing) in [
        (&good, None, Exit::Success, ""),
        (&good, Some("open"), Exit::Success, ""),
        (&good, Some("api"), Exit::Success, ""),
        (&good, Some("writing"), Exit::Refused, "route"),
        (&good, Some("nowhere"), Exit::Usage, ""),
        (&expired, Some("api"), Exit::Refused, "expires"),
        (&elsewhere, None, Exit::Refused, "audience"),
        (&forged, None, Exit::Refused, "signature"),
        (&"x".to_owned(), None, Exit::Refused, "form"),
    ] {
        let mut arguments = vec!["token", "verify", token.as_str()];
        arguments.extend(route.into_iter().flat_map(|route| ["--route", route]));
        let ran = cardea(&fixture, &arguments);
        assert_eq!(ran.exit, exit, "{route:?} {failing}: {}{}", ran.out, ran.err);
        let says = ran.out.contains(&format!("refused: the check {failing:?} failed"));
        assert_eq!(says, !failing.is_empty(), "{}", ran.out);
    }
    let ran = cardea(&fixture, &["token", "verify", &good, "--route", "writing", "--json"]);
    let document = ran.json();
    assert_eq!((ran.exit, &document["valid"]), (Exit::Refused, &Value::Bool(false)));
    let last = document["checks"].as_array().unwrap().last().unwrap();
    assert_eq!(last["name"], "route");
    assert!(last["expected"].as_str().unwrap().contains("write"), "{last}");

    assert_eq!(cardea(&fixture, &["client", "disable", "a"]).exit, Exit::Success);
    let ran = cardea(&fixture, &["token", "verify", &good]);
    assert!(ran.exit == Exit::Refused && ran.out.contains("revocation"), "{}", ran.out);
    assert_eq!(cardea(&fixture, &["client", "enable", "a"]).exit, Exit::Success);
    let ran = cardea(&fixture, &["token", "verify", &good]);
    assert!(ran.exit == Exit::Refused && ran.out.contains("revocation"), "still: {}", ran.out);
}

#[test]
fn looking_at_a_token_makes_no_database() {
    let (with, without) = (Fixture::new(), Fixture::new());
    let (_coarse, _, now) = system_clock();
    let token = token(&with, "a", "", now);
    let ran = cardea(&without, &["token", "verify", &token]);
    // There are no keys to verify it with, which is not an error of the token.
    assert_eq!(ran.exit, Exit::Failure, "{}{}", ran.out, ran.err);
    assert!(!without.path("cardea.db").exists());
    assert!(with.path("cardea.db").exists(), "the control");
}

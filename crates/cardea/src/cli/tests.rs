//! Tests of the command line: arguments, output and exit codes.

use std::{cell::RefCell, fs, io, io::Write, path::Path, rc::Rc};

use clap::CommandFactory;

use super::*;

mod check;

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

/// Runs a command line and returns its exit code, standard output and standard error.
fn cardea(arguments: &[&str]) -> (Exit, String, String) {
    let cli = Cli::try_parse_from(std::iter::once(&"cardea").chain(arguments)).unwrap();
    let (out, err) = (Captured::default(), Captured::default());
    let mut output = Output::new(Box::new(out.clone()), Box::new(err.clone()));
    let exit = run_offline(&cli.command, &mut output);
    let text = |captured: Captured| String::from_utf8(captured.0.take()).unwrap();
    (exit, text(out), text(err))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_line_of_the_issue_is_understood() {
    for line in [
        "init",
        "init x.toml",
        "run -c x.toml",
        "run --config x.toml",
        "check -c x.toml --json",
        "demo",
        "demo --port 0 --admin-port 0 --check",
        "demo --json",
        "client create billing",
        "client create billing --id b --scope a,b --scope c --audience https://a --token-lifetime 5m -c x.toml",
        "client create billing --secret-expires-in 90d --basic-encoding raw --json",
        "client create billing --secret-stdin --no-remember",
        "client import clients.jsonl",
        "client import - --format json-lines --json",
        "client import x --format csv -c x.toml",
        "hash",
        "hash --iterations 10000",
        "bench kdf",
        "bench kdf --json --target 100ms --iterations 20000 -c x.toml",
        "client list --json",
        "client show b",
        "client rotate b --overlap 0s",
        "client disable b",
        "client enable b",
        "client delete b",
        "key list",
        "key rotate --now",
        "key rewrap --new-key-file k",
        "key rewrap --new-key-env K",
        "token decode",
        "token decode a.b.c --json",
        "token verify -c x.toml",
        "token verify -c x.toml --route orders -",
        "schema",
        "schema --markdown",
        "completions bash",
    ] {
        let parsed = Cli::try_parse_from(std::iter::once("cardea").chain(line.split(' ')));
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
    for line in [
        "",
        "clients",
        "client",
        "client show",
        "key rewrap",
        "demo --port 70000",
        "completions tcsh2",
        "key rewrap --new-key-file k --new-key-env K",
        "client rotate b --overlap 5",
        "client import",
        "client import x --format xml",
        "hash --iterations 9999",
        "hash --iterations 10000001",
        "hash secret",
        "bench",
        "bench kdf --target 50",
    ] {
        assert!(Cli::try_parse_from(std::iter::once("cardea").chain(line.split(' '))).is_err(), "{line}");
    }
}

#[test]
fn init_writes_a_configuration_that_passes_check() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.toml");
    let path = path.to_str().unwrap();

    let (exit, out, err) = cardea(&["init", path]);
    assert_eq!((exit, err.as_str()), (Exit::Success, ""));
    assert!(out.contains(&format!("wrote {path}")), "{out}");

    let (exit, out, err) = cardea(&["check", "-c", path]);
    assert_eq!((exit, err.as_str()), (Exit::Success, ""));
    assert!(out.contains("valid; listeners: 1, issuers: 0, services: 1, routes: 2"), "{out}");
}

#[test]
fn init_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.toml");
    fs::write(&path, "precious").unwrap();
    let (exit, _, err) = cardea(&["init", path.to_str().unwrap()]);
    assert_eq!(exit, Exit::Failure);
    assert!(err.contains("is not overwritten"), "{err}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

    let (exit, _, err) = cardea(&["init", folder.path().join("none/x.toml").to_str().unwrap()]);
    assert_eq!(exit, Exit::Failure);
    assert!(err.contains("cannot write"), "{err}");
}

#[test]
fn check_reports_errors_with_their_places_and_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.toml");
    fs::write(&path, "[log]\nlevl = \"info\"\n").unwrap();
    let name = path.to_str().unwrap();

    let (exit, out, err) = cardea(&["check", "-c", name]);
    assert_eq!((exit, out.as_str()), (Exit::Usage, ""));
    assert!(err.contains(&format!("{name}:2:1: unknown key \"levl\"; did you mean \"level\"?\n")), "{err}");
    assert!(err.ends_with(&format!("{name}: 2 errors\n")), "{err}");

    let (exit, out, err) = cardea(&["check", "-c", name, "--json"]);
    assert_eq!((exit, err.as_str()), (Exit::Usage, ""));
    let problems: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        problems[1],
        serde_json::json!({
            "severity": "error", "file": name, "line": 2, "column": 1,
            "message": "unknown key \"levl\"", "remedy": "did you mean \"level\"?",
        })
    );
    let keys: Vec<_> = problems[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["column", "file", "line", "message", "remedy", "severity"]);
}

#[test]
fn check_points_into_expressions_and_templates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.toml");
    let text = r#"
[access_log]
fields = { a = "request.pth" }
when = "response.status"
[[listener]]
name = "main"
address = "127.0.0.1:0"
[[attribute]]
name = "a"
expression = "1 +"
[[attribute]]
name = "b"
header = "authorization"
[[policy]]
deny = "request.method = 'GET'"
[[route]]
name = "a"
auth = "public"
when = "has(token.sub)"
policy = [{ allow = "true && sorce.address == 'x'" }]
request_headers = { set = { x-a = "a {request.hots}" } }
attributes = { remove = ["request.pth"] }
respond = { body = "x" }
"#;
    fs::write(&path, text).unwrap();
    let name = path.to_str().unwrap();
    let (exit, _, err) = cardea(&["check", "-c", name]);
    assert_eq!(exit, Exit::Usage);
    for expected in [
        ":3:17: unknown attribute \"request.pth\"; did you mean \"request.path\"?",
        ":4:9: ",
        ":10:18: the expression is incomplete",
        ":13:10: \"request.headers.authorization\": carries credentials and can't be read",
        ":15:24: the expression ends before this; docs/policies.md says",
        ":19:8: \"token.sub\" is not known yet where a route is chosen",
        ":20:30: unknown attribute \"sorce.address\"; did you mean \"source.address\"?",
        ":21:39: unknown attribute \"request.hots\"; did you mean \"request.host\"?",
        ":22:27: unknown attribute \"request.pth\"; did you mean \"request.path\"?",
    ] {
        assert!(err.contains(&format!("{name}{expected}")), "{expected} is not in\n{err}");
    }
}

/// The problems of a configuration with these additions.
fn problems(more: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.toml");
    let listener = "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n";
    fs::write(&path, format!("{listener}{more}")).unwrap();
    fs::write(folder.path().join("tiers.map"), "a gold\n").unwrap();
    cardea(&["check", "-c", path.to_str().unwrap()]).2
}

#[test]
fn a_route_is_chosen_by_attributes_that_are_made_of_the_request_and_by_no_others() {
    const ATTRIBUTES: &str = r#"
[[attribute]]
name = "tenant"
header = "x-tenant"
[[attribute]]
name = "tier"
map = { file = "tiers.map", key = "{custom.tenant}", default = "none" }
[[attribute]]
name = "good"
expression = "custom.tier == 'gold' && source.address in cidr('127.0.0.0/8')"
[[attribute]]
name = "unit"
claim = "org.unit"
[[attribute]]
name = "label"
template = "{custom.tier} {custom.unit}"
[[attribute]]
name = "set"
[[attribute]]
name = "broken"
header = "cookie"
"#;
    for (when, expected) in [
        ("custom.tenant == 'a'", None),
        ("custom.tier != 'none' && custom.good", None),
        ("custom.unit == 'x'", Some("\"custom.unit\" reads \"token.claims.org\", which is not known yet")),
        ("custom.good && custom.label == 'x'", Some("\"custom.label\" reads \"token.claims.org\", which is")),
        ("has(custom.set)", Some("\"custom.set\" is not known yet where a route is chosen")),
        ("custom.broken == 'x'", None),
        ("has(route.name)", Some("\"route.name\" is not known yet")),
        ("request.size > 7", Some("\"request.size\" is not known yet")),
        ("response.status == 200", Some("\"response.status\" is not known yet")),
    ] {
        let route =
            format!("[[route]]\nname = \"a\"\nauth = \"public\"\nrespond = {{}}\nwhen = \"{when}\"\n");
        let found = problems(&format!("{ATTRIBUTES}{route}"));
        // The broken attribute is in all of them.
        assert!(found.contains("carries credentials and can't be read"), "{when}: {found}");
        assert_eq!(found.contains("2 errors"), expected.is_some(), "{when}: {found}");
        assert!(
            expected.is_none_or(|expected| found.contains(&format!(":29:8: {expected}"))),
            "{when}: {found}"
        );
    }
}

#[test]
fn a_hash_policy_reads_something() {
    let service = |policy: &str| {
        let endpoint = "[[service.endpoint]]\naddress = \"127.0.0.1:1\"\n";
        let route = "[[route]]\nname = \"r\"\nauth = \"public\"\nservice = \"s\"\n";
        problems(&format!("[[service]]\nname = \"s\"\nhash_policy = \"{policy}\"\n{endpoint}{route}"))
    };
    assert_eq!(service("{request.cookies.session}"), "");
    assert!(service("x").contains(":6:15: it reads no attribute"), "{}", service("x"));
    let found = service("{request.cokies.session}");
    assert!(found.contains(":6:17: unknown attribute"), "{found}");
}

#[test]
fn attributes_of_missing_features_are_unknown() {
    for name in ["queue.length", "queue.speed", "throttle.remaining", "throttle.key"] {
        let found = problems(&format!("[[policy]]\ndeny = \"{name} > 1\"\n"));
        assert!(found.contains(&format!(":5:9: unknown attribute \"{name}\"; ")), "{found}");
    }
}

#[test]
fn check_prints_an_empty_array_where_all_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.toml");
    fs::write(&path, init::STARTER).unwrap();
    assert_eq!(
        cardea(&["check", "--json", "-c", path.to_str().unwrap()]),
        (Exit::Success, "[]\n".into(), "".into())
    );
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (exit, out, _) = cardea(&["completions", shell]);
        assert_eq!(exit, Exit::Success);
        assert!(out.contains("completions"), "{shell}");
    }
}

#[test]
fn gateway_commands_fail_offline() {
    let cli = Cli::try_parse_from(["cardea", "run"]).unwrap();
    let mut output = Output::new(Box::new(io::sink()), Box::new(io::sink()));
    assert_eq!(run_offline(&cli.command, &mut output), Exit::Failure);
}

#[test]
fn the_page_of_the_command_line_names_every_command() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = fs::read_to_string(page).unwrap();
    for command in Cli::command().get_subcommands() {
        let name = format!("cardea {}", command.get_name());
        assert!(page.contains(&name), "docs/cli.md does not name {name:?}");
        for nested in command.get_subcommands() {
            assert!(
                page.contains(&format!("{name} {}", nested.get_name())),
                "docs/cli.md: {name} {}",
                nested.get_name()
            );
        }
    }
}

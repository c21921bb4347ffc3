//! Names of fields that origins fold into protected ones: a CGI-like origin reads `X.Auth.Subject` as `X-Auth-Subject`.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use super::lab::{
    Lab, PUNCTUATION, Request, Way,
    origin::{Seen, variable},
};
use crate::support::{client::HOST, until};

/// The fields that a client may not set under any name: those of the identity, of the client's certificate, of the way
/// here, and those that the route's rules own.
const PROTECTED: [&str; 22] = [
    "x-auth-subject",
    "x-auth-issuer",
    "x-auth-client-id",
    "x-auth-roles",
    "x-auth-scopes",
    "x-auth-tenant",
    "client-cert",
    "client-cert-chain",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-server",
    "x-real-ip",
    "forwarded",
    "x-request-id",
    "x-user",
    "x-debug",
    "x-old",
    "x-new",
    "x-level",
];

const ROUTES: &str = r#"
[identity_headers]
extra = { "x-auth-tenant" = "tid" }

[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"
request_headers = [
    { set = { "x-user" = "{request.method}" }, remove = ["x-debug"], rename = { "x-old" = "x-new" } },
    { set = { "x-level" = "1" }, when = "request.path == '/never'" },
]

[[route]]
name = "private"
path_prefix = "/private"
auth = { issuer = "own", scopes = ["read"] }
service = "origin"
request_headers = [
    { set = { "x-user" = "{request.method}" }, remove = ["x-debug"], rename = { "x-old" = "x-new" } },
    { set = { "x-level" = "1" }, when = "request.path == '/never'" },
]
"#;

const FORGED: &str = "forged";

/// All protected names, with one character in place of each `-`, in one case or the other.
fn disguised(punctuation: char) -> Vec<(String, String)> {
    let spell = |(index, name): (usize, &&str)| {
        let name = name.replace('-', &punctuation.to_string());
        let name = if index % 2 == 0 { name.to_ascii_uppercase() } else { name };
        (name, FORGED.to_owned())
    };
    // What is really called `x-old` is renamed, and `x-level` is its own where its rule does not hold.
    let is_allowed = |name: &&&str| punctuation == '-' && matches!(**name, "x-old" | "x-level");
    PROTECTED.iter().filter(|name| !is_allowed(name)).enumerate().map(spell).collect()
}

/// Nothing that the client wrote has become a variable that it must not set.
fn assert_clean(seen: &Seen, what: &str) {
    for (name, values) in seen.environment() {
        let protected = PROTECTED.iter().any(|protected| variable(protected) == name);
        assert!(
            !protected || !values.iter().any(|value| value.contains(FORGED)),
            "{what}: {name} is {values:?}\n{seen:?}"
        );
        assert!(!protected || values.len() == 1, "{what}: {name} is there twice: {values:?}");
    }
}

#[test]
fn no_spelling_of_a_protected_name_reaches_the_origin() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        // The control: other fields, and other names with the same characters, are the client's.
        let control = Request::get(HOST, "/").with("X-Plain", "mine").with("X.Other", "mine");
        let record = lab.reach(way, &control).unwrap();
        assert_eq!(
            (record.only().folded("x-plain"), record.only().folded("x-user")),
            (vec!["mine"], vec!["GET"])
        );
        for punctuation in PUNCTUATION {
            let what = format!("{way:?} {punctuation:?}");
            let fields = disguised(punctuation);
            if let Some(record) = lab.reach(way, &Request::get(HOST, "/").all(&fields)) {
                assert_clean(record.only(), &what);
            }
        }
    }
    lab.finish("/");
}

#[test]
fn no_spelling_of_a_protected_name_reaches_the_origin_in_trailers() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        let plain = [("x-checksum".to_owned(), "mine".to_owned())];
        let record = lab.reach(way, &Request::get(HOST, "/").streamed(b"body", &plain)).unwrap();
        assert_eq!(record.only().values("x-checksum"), ["mine"], "{way:?}: the control");
        for punctuation in PUNCTUATION {
            let mut fields = disguised(punctuation);
            if punctuation == '-' {
                fields.extend(["x-old", "X-Level"].map(|name| (name.to_owned(), FORGED.to_owned())));
            }
            let what = format!("{way:?} {punctuation:?} in trailers");
            if let Some(record) = lab.reach(way, &Request::get(HOST, "/").streamed(b"body", &fields)) {
                assert_clean(record.only(), &what);
            }
        }
    }
    lab.finish("/");
}

#[test]
fn an_identity_is_the_only_value_of_its_variable() {
    let lab = Lab::new(ROUTES);
    let (token, id) = lab.token();
    for way in Way::ALL {
        for punctuation in PUNCTUATION {
            let request = Request::get(HOST, "/private")
                .with("Authorization", format!("Bearer {token}"))
                .all(&disguised(punctuation));
            let trailers = disguised(punctuation);
            for request in [request.clone(), request.streamed(b"body", &trailers)] {
                let answer = lab.send(way, &request);
                if let Some(record) = lab.arrived(&answer) {
                    let seen = record.only();
                    assert_eq!(seen.folded("x-auth-subject"), [&id], "{way:?} {punctuation:?}");
                    assert_eq!(seen.folded("x-auth-client-id"), [&id], "{way:?} {punctuation:?}");
                    assert_clean(seen, &format!("{way:?} {punctuation:?}"));
                }
            }
        }
        let request = Request::get(HOST, "/private").with("Authorization", format!("Bearer {token}"));
        assert_eq!(lab.reach(way, &request).unwrap().only().folded("x-auth-subject"), [&id]);
    }
    lab.finish("/");
}

#[test]
fn mixed_characters_and_repeated_fields_change_nothing() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        for name in [
            "x-auth.subject",
            "X_AUTH.SUBJECT",
            "x~Auth-subject",
            "X!aUtH#sUbJeCt",
            "x-forwarded_for",
            "X.Forwarded-For",
            "CLIENT|cert-CHAIN",
            "x^request`id",
            "X'User",
        ] {
            let request =
                Request::get(HOST, "/").with(name, FORGED).with(name, FORGED).with("X-Plain", "mine");
            if let Some(record) = lab.reach(way, &request) {
                assert_clean(record.only(), &format!("{way:?} {name}"));
            }
            // Named in `Connection`, ours would go.
            let request = request.with("Connection", name).with("Connection", "x-auth-subject, x-user");
            if let Some(record) = lab.reach(way, &request) {
                assert_eq!(record.only().folded("x-user"), ["GET"], "{way:?} {name}");
                assert_clean(record.only(), &format!("{way:?} {name} named in Connection"));
            }
        }
    }
    // No tokens at all.
    for name in [
        "X-Auth Subject",
        "X-Auth-Subject\t",
        "X-Auth-Subject ",
        "X(Auth)Subject",
        "X/Auth/Subject",
        "X-Auth-Subject\u{a0}",
    ] {
        let status = lab.send(Way::Plain, &Request::get(HOST, "/").with(name, FORGED)).status;
        assert!(matches!(status, 0 | 400), "{name:?}: {status}");
    }
    lab.finish("/");
}

#[test]
fn no_lookalike_of_a_framing_field_reaches_the_origin() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        for punctuation in PUNCTUATION.into_iter().filter(|punctuation| *punctuation != '-') {
            for (name, value) in [("Content", "Length"), ("Transfer", "Encoding")] {
                let name = format!("{name}{punctuation}{value}");
                let post =
                    Request::get(HOST, "/").with(&name, if value == "Length" { "02" } else { "chunked" });
                for request in [post.clone().sized(b"body"), post.clone().streamed(b"body", &[]), post] {
                    if let Some(record) = lab.reach(way, &request) {
                        record.assert_canonical();
                    }
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn a_reload_protects_the_names_that_it_brings() {
    let lab = Lab::new(ROUTES);
    let forged = |name: &str| Request::get(HOST, "/").with(name, FORGED);
    assert_eq!(
        lab.reach(Way::Plain, &forged("X.Badge")).unwrap().only().folded("x-badge"),
        [FORGED],
        "the control"
    );
    let changed = ROUTES
        .replace("extra = { ", "extra = { \"x-badge\" = \"badge\", ")
        .replace("remove = [\"x-debug\"]", "remove = [\"x-debug\", \"x-trace\"]");
    lab.reload("", &changed);
    for way in Way::ALL {
        for name in ["X.Badge", "x_badge", "X-Badge", "X!Trace", "X-Trace", "x_trace"] {
            if let Some(record) = lab.reach(way, &forged(name)) {
                let seen = record.only();
                assert!(
                    seen.folded("x-badge").is_empty() && seen.folded("x-trace").is_empty(),
                    "{way:?} {name}"
                );
            }
        }
    }
    lab.finish("/");
}

/// A real origin that folds names: lighttpd, which runs a shell script as CGI.
struct Lighttpd(Child);

impl Drop for Lighttpd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn lighttpd_hands_no_forged_variable_to_a_program() {
    let lab = Lab::new(ROUTES);
    let folder = lab.folder.path().display().to_string();
    fs::create_dir(lab.folder.file("www")).unwrap();
    lab.folder.write("www/env.cgi", "printf 'Content-Type: text/plain\\n\\n'\nenv\n");
    lab.folder.write(
        "lighttpd.conf",
        &format!(
            "server.modules = (\"mod_cgi\")\nserver.document-root = \"{folder}/www\"\nserver.bind = \
             \"{folder}/origin.sock\"\nindex-file.names = (\"env.cgi\")\ncgi.assign = (\".cgi\" => \"/bin/sh\")\n"
        ),
    );
    let mut command = Command::new("lighttpd");
    command.args(["-D", "-f", "lighttpd.conf"]).current_dir(lab.folder.path());
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let Ok(child) = command.env("PATH", path).stdin(Stdio::null()).stderr(Stdio::null()).spawn() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "no lighttpd on this machine: cargo xtask test installs it"
        );
        eprintln!("SKIPPED: no lighttpd on this machine");
        return;
    };
    let _lighttpd = Lighttpd(child);
    until("lighttpd", || lab.folder.file("origin.sock").exists().then_some(()));
    let text = lab.folder.read("cardea.toml");
    let real = text.replace(
        &format!("address = \"{}\"", lab.origin.address),
        &format!("address = \"unix:{folder}/origin.sock\""),
    );
    assert_ne!(text, real);
    lab.folder.write("cardea.toml", &real);
    assert!(lab.server.reload().0);
    let (token, id) = lab.token();
    for way in Way::BOTH {
        let control = Request::get(HOST, "/").with("X.Own", "mine");
        let answer = lab.send(way, &control);
        assert!(answer.text().contains("HTTP_X_OWN=mine\n"), "it does not fold names: {answer:?}");
        for punctuation in PUNCTUATION {
            let request = Request::get(HOST, "/private/env.cgi")
                .with("Authorization", format!("Bearer {token}"))
                .all(&disguised(punctuation));
            let request = Request { target: "/".to_owned(), ..request };
            let answer = lab.send(way, &request);
            let text = answer.text();
            assert!(!text.contains(FORGED), "{way:?} {punctuation:?}: {text}");
        }
    }
    drop((token, id));
    lab.server.stop();
}

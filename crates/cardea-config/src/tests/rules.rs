//! Tests of attributes, policies, changes to headers and the access log.

use std::path::Path;

use cardea_gateway::{
    model::{HeaderRule, LogFormat},
    record::{Sink, SyslogConfig, SyslogServer},
};

use super::{Fixture, LEAST};
use crate::resolve::map_of;

const ROUTE: &str = "[[route]]\nname = \"a\"\nauth = \"public\"\nrespond = { body = \"x\" }\n";

#[test]
fn the_access_log_goes_to_files_and_syslog_servers() {
    let syslog =
        |server| Some(Sink::Syslog(SyslogConfig { server, facility: 23, hostname: crate::hostname() }));
    for (path, expected) in [
        ("stdout", Some(Sink::Stdout)),
        ("syslog", syslog(SyslogServer::Unix("/dev/log".into()))),
        ("syslog:/run/log", syslog(SyslogServer::Unix("/run/log".into()))),
        ("syslog:udp:192.0.2.1:514", syslog(SyslogServer::Udp("192.0.2.1:514".parse().unwrap()))),
        ("syslog:udp:[2001:db8::1]:514", syslog(SyslogServer::Udp("[2001:db8::1]:514".parse().unwrap()))),
        ("syslog:udp:logs.example:514", None),
        ("syslog:relative", None),
        ("syslog:", None),
        ("", None),
    ] {
        let loaded = Fixture::new(&format!("[access_log]\npath = {path:?}\n{LEAST}")).load();
        assert_eq!(loaded.ok().map(|config| config.access_log.unwrap().config.sink), expected, "{path}");
    }
    let config =
        Fixture::new(&format!("[access_log]\npath = \"access.log\"\nformat = \"combined\"\n{LEAST}"))
            .config();
    let log = config.access_log.unwrap();
    let Sink::File(path) = &log.config.sink else { panic!("{log:?}") };
    assert_eq!(path.file_name(), Path::new("access.log").file_name());
    let LogFormat::Common(format) = &log.lines.format else { panic!("{log:?}") };
    assert_eq!(format!("{format:?}"), "CommonLog(Combined)");
}

#[test]
fn map_files_are_lines_or_json() {
    for (name, content, expected) in [
        ("a.map", "# c\n\nk  v w \nl x", Ok(vec![("k", "v w"), ("l", "x")])),
        ("a.json", "{\"k\": \"v\", \"l\": \"\"}", Ok(vec![("k", "v"), ("l", "")])),
        ("a.map", "k", Err("a.map: line 1: a key without a value")),
        ("a.map", "k a\nk b", Err("a.map: line 2: the key is there twice")),
        ("a.json", "{\"k\": 1}", Err("invalid type")),
        ("a.json", "{\"a b\": \"c\\nd\"}", Ok(vec![("a b", "c\nd")])),
    ] {
        let text = format!(
            "[[attribute]]\nname = \"x\"\nmap = {{ file = {name:?}, key = \"{{request.host}}\" }}\n{LEAST}"
        );
        let fixture = Fixture::new(&text).file(name, content);
        match expected {
            Ok(expected) => {
                assert!(
                    fixture.config().environment.names.unwrap().custom().any(|(name, _)| name == "custom.x")
                );
                let entries = map_of(name, content.as_bytes()).unwrap();
                assert_eq!(entries.len(), expected.len(), "{name}");
                for (key, value) in expected {
                    assert_eq!(entries.get(key.as_bytes()), Some(value.as_bytes()), "{name} {key}");
                }
            }
            Err(expected) => assert!(fixture.problems()[0].contains(expected), "{:?}", fixture.problems()),
        }
    }
}

#[test]
fn what_is_wrong_with_rules_is_pointed_at() {
    for (text, expected) in [
        ("[[attribute]]\nname = \"A\"\n", "cardea.toml:2:8: \"A\" is not the name of an attribute"),
        (
            "[[attribute]]\nname = \"a\"\nheader = \"x\"\nclaim = \"y\"\n",
            "cardea.toml:4:9: an attribute comes from one place; header is there too",
        ),
        (
            "[[attribute]]\nname = \"a\"\n[[attribute]]\nname = \"a\"\n",
            "cardea.toml:4:8: a second attribute is called \"a\"",
        ),
        ("[[policy]]\nreason = \"x\"\n", "cardea.toml:1:1: a rule of a policy has no expression"),
        (
            "[[policy]]\nallow = \"true\"\ndeny = \"true\"\n",
            "cardea.toml:3:8: a rule allows or denies, not both",
        ),
        ("[[policy]]\ndeny = \" \"\n", "cardea.toml:2:8: the expression is empty"),
        (
            "[[policy]]\ndeny = \"true\"\nshow = true\n",
            "cardea.toml:3:8: there is no reason that could be shown",
        ),
        (
            "[access_log]\nformat = \"{request.path}\"\nfields = { a = \"request.path\" }\n",
            "cardea.toml:3:10: fields are those of a line of JSON",
        ),
        ("[access_log]\nformat = \"jsn\"\n", "cardea.toml:2:10: \"jsn\" is not a format of the access log"),
        ("[access_log]\nsample_one_in = 0\n", "cardea.toml:2:17: 0 is out of the limits"),
    ] {
        let problems = Fixture::new(&format!("{text}{LEAST}")).problems();
        assert!(problems[0].starts_with(expected), "{problems:?}");
    }
    for (edits, expected) in [
        (
            "request_headers = { rename = { x-a = \"x-auth-subject\" } }",
            "x-auth-subject carries the caller's identity",
        ),
        (
            "request_headers = { rename = { x_auth_subject = \"x-a\" } }",
            "x_auth_subject carries the caller's identity",
        ),
        (
            "request_headers = { add = { x-auth-roles = \"admin\" } }",
            "x-auth-roles carries the caller's identity",
        ),
        (
            "request_headers = [{ set = { x-auth-roles = \"admin\" }, when = \"true\" }]",
            "x-auth-roles carries",
        ),
        (
            "request_headers = { set = { \"x.auth~roles\" = \"x\" } }",
            "x.auth~roles carries the caller's identity",
        ),
        ("request_headers = { remove = [\"Authorization\"] }", "\"authorization\" carries credentials"),
        (
            "request_headers = { set = { \"content.length\" = \"1\" } }",
            "\"content.length\" belongs to the protocol",
        ),
        ("request_headers = { rename = { x-a = \"X-A\" } }", "x-a has that name already"),
        ("request_headers = { rename = { x-a = \"host\" } }", "\"host\" belongs to the protocol"),
        ("request_headers = { add = { x-a = \" x\" } }", "the value of x-a has characters"),
        (
            "attributes = { set = { \"custom.a\" = \"x\" } }",
            "\"custom.a\" is not an attribute that this configuration adds",
        ),
        (
            "attributes = { set = { \"token.sub\" = \"x\" } }",
            "\"token.sub\" is not an attribute that this configuration adds",
        ),
    ] {
        let problems = Fixture::new(&format!("{LEAST}{ROUTE}{edits}\n")).problems();
        assert!(problems[0].contains(expected), "{edits}: {problems:?}");
    }
}

#[test]
fn places_within_texts_are_found_where_they_are_written_as_they_read() {
    let text = format!(
        "{LEAST}{ROUTE}when = \"1 == \\\"b\"\n[[policy]]\ndeny = '1 == y'\n[[policy]]\nallow = \"\"\"1 == z\"\"\"\n[response_headers.set]\nx-a = 'a {{b}}'\n"
    );
    let problems = Fixture::new(&text).problems();
    let columns: Vec<&str> = problems.iter().map(|problem| problem.split(':').nth(2).unwrap()).collect();
    // The first is written with an escape: only its beginning is known.
    assert_eq!(columns, ["8", "14", "17", "11"], "{problems:?}");
}

#[test]
fn changes_to_headers_can_be_for_all_routes() {
    let fixture = Fixture::new(&format!(
        "[request_headers]\nset = {{ x-a = \"1\" }}\n[[response_headers]]\nremove = [\"server\"]\n[[response_headers]]\nset = {{ x-b = \"2\" }}\nwhen = \"true\"\n{LEAST}"
    ));
    let config = fixture.config();
    let [HeaderRule::Set(name, _)] = config.environment.request_headers.rules() else { panic!() };
    assert_eq!(name, "x-a");
    let [HeaderRule::Remove(name), HeaderRule::When(..)] = config.environment.response_headers.rules() else {
        panic!("{:?}", config.environment.response_headers)
    };
    assert_eq!(name, "server");
    let problems =
        Fixture::new(&format!("[request_headers]\nset = {{ x_auth_subject = \"x\" }}\n{LEAST}")).problems();
    assert!(
        problems[0].starts_with("cardea.toml:2:9: x_auth_subject carries the caller's identity"),
        "{problems:?}"
    );
}

#[test]
fn authorization_is_forwarded_unless_the_section_or_the_route_says_otherwise() {
    let public = ROUTE.to_owned();
    for (section, line, expected) in [
        ("", "", true),
        ("", "forward_authorization = false\n", false),
        // A public route reads no credentials, so they belong to the service.
        ("[forwarding]\nauthorization = false\n", "", true),
        ("[forwarding]\nauthorization = false\n", "forward_authorization = false\n", false),
    ] {
        let config = Fixture::new(&format!("{section}{LEAST}{public}{line}")).config();
        assert_eq!(config.routes[0].forward_authorization, expected, "{section}{line}");
    }
    let issuer =
        "[[issuer]]\nname = \"i\"\nissuer = \"https://i.example\"\naudiences = [\"a\"]\ndiscovery = true\n";
    let guarded = format!("{issuer}{}", public.replace("\"public\"", "{ issuer = \"i\" }"));
    for (section, line, expected) in [
        ("", "", true),
        ("[forwarding]\nauthorization = false\n", "", false),
        ("[forwarding]\nauthorization = false\n", "forward_authorization = true\n", true),
    ] {
        let config = Fixture::new(&format!("{section}{LEAST}{guarded}{line}")).config();
        assert_eq!(config.routes[0].forward_authorization, expected, "{section}{line}");
    }
}

#[test]
fn only_hints_can_be_kept() {
    let keep =
        |name: &str| Fixture::new(&format!("[forwarding]\nkeep_client_headers = [\"{name}\"]\n{LEAST}"));
    for name in ["X-HTTP-Method-Override", "x-forwarded-ssl", "X-Original-Anything"] {
        let removes = |config: crate::Config| config.forwarding.strangers.contains(name.as_bytes());
        assert!(removes(keep("X-Rewrite-Url").config()) && !removes(keep(name).config()), "{name}");
    }
    for name in ["X-Forwarded-For", "Proxy", "X-Auth-Subject", "Accept", "X_HTTP_Method_Override", "x y"] {
        let problems = keep(name).problems();
        assert!(problems[0].contains("is not one of the fields that are removed"), "{problems:?}");
    }
}

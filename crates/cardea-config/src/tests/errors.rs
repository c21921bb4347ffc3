//! Tests of reported problems, with their locations and remedies.

use super::{Fixture, LEAST};

/// Asserts the problems of a file, in order.
fn assert_problems(text: &str, expected: &[&str]) {
    assert_eq!(Fixture::new(text).problems(), expected, "{text}");
}

/// Asserts that a file, after a listener, has exactly this problem.
pub(super) fn assert_problem(text: &str, expected: &str) {
    let problems = Fixture::new(&format!("{text}\n{LEAST}")).problems();
    assert_eq!(problems.len(), 1, "{problems:#?}\n{text}");
    assert!(problems[0].starts_with("cardea.toml:"), "{}", problems[0]);
    assert!(problems[0].contains(expected), "{}\nis not\n{expected}", problems[0]);
}

const SERVICE: &str = "[[service]]\nname = \"s\"\n[[service.endpoint]]\naddress = \"127.0.0.1:1\"\n";
const ISSUER: &str =
    "[[issuer]]\nname = \"main\"\nissuer = \"https://i.example\"\naudiences = [\"a\"]\ndiscovery = true\n";

#[test]
fn every_error_is_reported_at_once_in_the_order_of_the_file() {
    assert_problems(
        r#"[log]
level = "inf"
[timeouts]
connect = 10
request_head = "10 s"
keep_alive_idle = "0s"
[limits]
connections_max = -1
[[listener]]
name = "main"
adress = "127.0.0.1:0"
[[service]]
name = "orders"
[[service.endpoint]]
address = "http://orders"
[[route]]
name = "orders"
path = "/orders"
upstrem = "orders"
[[route]]
name = "billing"
auth = "public"
service = "biling"
[[route]]
name = "admin"
auth = { issuer = "nobody" }
redirect = { to = "/", status = 300 }
"#,
        &[
            r#"cardea.toml:2:9: "inf" is not a value of level; did you mean "info"?"#,
            r#"cardea.toml:4:11: connect is a whole number, not a string (duration); write connect = "10s" (a text with its unit)"#,
            r#"cardea.toml:5:16: "10 s" is not a duration; write a whole number and a unit, as in "500ms", "10s", "5m", "1h" or "7d""#,
            r#"cardea.toml:6:19: "0s" is out of the limits of keep_alive_idle; write "1s" to "1d""#,
            r#"cardea.toml:8:19: -1 is out of the limits of connections_max; write a number from 1 to 10000000"#,
            r#"cardea.toml:11:1: unknown key "adress"; did you mean "address"?"#,
            r#"cardea.toml:15:11: "http://orders" is not an endpoint's address; write host and port alone, as in "10.0.0.1:8080"; TLS is switched on by the service's tls table"#,
            r#"cardea.toml:16:1: route has no auth; say what a token must have: auth = { issuer = "…", scopes = ["…"] }, or a list of such tables; docs/configuration.md describes auth"#,
            r#"cardea.toml:19:1: unknown key "upstrem"; did you mean "service"?"#,
            r#"cardea.toml:23:11: there is no service called "biling"; there are: orders"#,
            r#"cardea.toml:26:19: there is no issuer called "nobody"; add a table [[issuer]] with this name"#,
            r#"cardea.toml:27:33: 300 is out of the limits of status; write a number from 301 to 308"#,
        ],
    );
}

#[test]
fn consequential_errors_are_not_reported() {
    // The service exists, though its endpoint is invalid; so does the listener, though its address is.
    assert_problems(
        "[[listener]]\nname = \"l\"\naddress = 5\n[[service]]\nname = \"s\"\n[[service.endpoint]]\naddress = \"x\"\n[[route]]\nname = \"r\"\nauth = \"public\"\nservice = \"s\"\n",
        &[
            "cardea.toml:3:11: address is a whole number, not a string (address to listen on); write address = \"0.0.0.0:8443\" (a text with its unit)",
            "cardea.toml:7:11: \"x\" is not an endpoint's address; write \"10.0.0.1:8080\", \"[fd00::1]:8080\", \"orders.internal:8080\" or \"unix:/run/orders.sock\"",
        ],
    );
}

#[test]
fn syntax_errors_point_and_do_not_hide_those_of_other_files() {
    let problems = Fixture::new(&format!("include = [\"a.toml\"]\n[lg]\n{LEAST}"))
        .file("a.toml", "[log]\nlevel = info\nx =\n")
        .problems();
    assert!(
        problems.iter().any(|problem| problem.starts_with("a.toml:2:9: not valid TOML: ")),
        "{problems:#?}"
    );
    assert!(problems.iter().any(|problem| problem.starts_with("a.toml:3:")), "{problems:#?}");
    assert!(
        problems.contains(&"cardea.toml:2:2: unknown key \"lg\"; did you mean \"log\"?".to_owned()),
        "{problems:#?}"
    );
}

#[test]
fn columns_count_characters() {
    assert_problems(
        &format!(
            "region = \"${{NONE:-é}}\"\n{LEAST}[[route]]\nname = \"r\"\nauth = {{ issuer = \"üü\", nonsense = 1 }}\nbuiltin = \"health\"\n"
        ),
        &[
            "cardea.toml:1:10: \"${NONE:-é}\" is not a name; correct the value in the environment",
            "cardea.toml:7:19: \"üü\" is not a name; use up to 64 letters, digits, - _ and . and begin with a letter or a digit",
            "cardea.toml:7:25: unknown key \"nonsense\"; remove it; auth takes: audiences, issuer, roles, scopes",
        ],
    );
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let missing = super::load(std::path::Path::new("none/none.toml"), &|_| None).unwrap_err();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(missing.len(), 1);
    assert!(missing[0].starts_with("none/none.toml:1:1: cannot read the file: "), "{}", missing[0]);
    assert!(missing[0].contains("cardea init"), "{}", missing[0]);

    assert_problem("[readiness]\nissuers = [\"nobody\"]", "there is no issuer called \"nobody\"");
    assert_problem("include = [\"none.toml\"]", "cannot read the included file");
    assert_problem("include = [\"*/x.toml\"]", "has a wildcard in a folder's name");
    assert_problem(
        &format!("{SERVICE}[service.tls]\nca_file = \"none.pem\"").replace(
            "[[service.endpoint]]\naddress = \"127.0.0.1:1\"\n",
            "endpoint = [{ address = \"127.0.0.1:1\" }]\n",
        ),
        "none.pem: No such file",
    );
}

#[test]
fn a_missing_include_does_not_make_its_services_unknown() {
    assert_problem(
        "include = [\"none.toml\"]\n[[route]]\nname = \"r\"\nauth = \"public\"\nservice = \"elsewhere\"",
        "cannot read the included file",
    );
}

/// An editor may truncate a file before it writes it, and opening a pipe would wait for its writer.
#[test]
fn an_included_file_is_regular_and_not_empty() {
    // Another mistake, so that there are always problems.
    let text = format!("include = [\"conf.d/*.toml\"]\nnonsense = 1\n{LEAST}");
    let policy = "[[policy]]\nname = \"none\"\ndeny = \"true\"\n";
    for (content, expected) in [(policy, None), ("# nothing yet\n", None), ("", Some("it is empty"))] {
        let problems = Fixture::new(&text).file("conf.d/a.toml", content).problems();
        let told = problems.iter().find(|problem| problem.contains("cannot read the included file"));
        assert_eq!(told.is_some(), expected.is_some(), "{content:?}: {problems:#?}");
        assert!(told.zip(expected).is_none_or(|(told, expected)| told.contains(expected)), "{problems:#?}");
    }
    let fixture = Fixture::new(&format!("include = [\"pipe.toml\"]\n{LEAST}"));
    let made = std::process::Command::new("mkfifo").arg(fixture.folder.path().join("pipe.toml")).status();
    assert!(made.unwrap().success());
    let problems = fixture.problems();
    assert!(
        problems.iter().any(|problem| problem.contains("pipe.toml: not a regular file")),
        "{problems:#?}"
    );
}

#[test]
fn a_configuration_is_a_regular_file() {
    let fixture = Fixture::new(LEAST);
    let path = fixture.folder.path().join("cardea.toml");
    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let problems = fixture.problems();
    assert!(
        problems.iter().any(|problem| {
            problem.contains("cardea.toml")
                && problem.contains("not a regular file")
                && problem.contains("write the configuration to a file")
        }),
        "{problems:#?}"
    );
}

#[test]
fn a_value_that_is_set_in_two_files_names_both() {
    let problems = Fixture::new(&format!("include = [\"b.toml\"]\n[log]\nlevel = \"info\"\n{LEAST}"))
        .file("b.toml", "include = []\n[log]\nlevel = \"warn\"\n")
        .problems();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(
        problems.contains(
            &"b.toml:1:1: an included file cannot include others; list the file in the main file's include"
                .to_owned()
        )
    );
    assert!(problems.contains(
        &"b.toml:3:1: log.level is set twice; first at cardea.toml:3:1; keep one of them".to_owned()
    ));
}

#[test]
fn unset_variables_are_reported_once_and_nothing_that_follows() {
    assert_problem(
        "region = \"${NONE}\"",
        "the environment variable NONE is not set; set it, or give a default: ${NONE:-value}",
    );
    assert_problem("region = \"${\"", "malformed reference");
    assert_problem(
        "[[issuer]]\nname = \"i\"\nissuer = \"${NONE}\"\naudiences = [\"a\"]\njwks_url = \"https://i.example/keys\"",
        "NONE is not set",
    );
}

#[test]
fn timeouts_and_limits_agree_with_each_other() {
    for (text, expected) in [
        (
            "[timeouts]\nconnect = \"10s\"\nrequest = \"10s\"",
            ":2:11: connect (10s) is not below request (10s)",
        ),
        ("[drain]\ndelay = \"1m\"", "deadline (1m) is not above delay (1m)"),
        ("[limits]\ntarget_bytes_max = \"1MiB\"", "target_bytes_max (1MiB) is above head_bytes_max (32KiB)"),
        ("[forwarding]\nforwarded = \"trust\"", ":2:13: the word of proxies is trusted, but no proxy is"),
        ("[limits]\nreplay_total_bytes_max = \"1KiB\"", "replay_bytes_max of one request is above"),
    ] {
        assert_problem(text, expected);
    }
    let route = |extra: &str| {
        format!("{SERVICE}[[route]]\nname = \"r\"\nauth = \"public\"\nservice = \"s\"\n{extra}")
    };
    assert_problem(
        &route("timeouts = { request = \"2s\" }"),
        "request (2s) is not above the connect timeout (3s)",
    );
    assert_problem(
        &SERVICE
            .replace("name = \"s\"\n", "name = \"s\"\nconnect_timeout = \"1m\"\n")
            .replace("[[service]]", "[timeouts]\nrequest = \"30s\"\n[[service]]"),
        "connect_timeout (1m) is not below timeouts.request (30s)",
    );
}

#[test]
fn failover_that_contradicts_itself_is_reported_once() {
    for (failover, expected) in [
        ("ejection_time = \"1m\"", "ejection_time (1m) is above ejection_time_max (5s)"),
        ("ejection_time_max = \"10ms\"", "ejection_time (1s) is above ejection_time_max (10ms)"),
        ("try_timeout = \"5m\"", "try_timeout (5m) is not below timeouts.request (5m)"),
        ("attempts_max = 9", "9"),
        ("attempts_max = 0", "0"),
        ("failure_percent = 101", "101"),
        ("failure_statuses = [200]", "200"),
        ("retry_statuses = [600]", "600"),
    ] {
        assert_problem(&format!("{SERVICE}[failover]\n{failover}\n"), expected);
        assert_problem(&format!("{SERVICE}[service.failover]\n{failover}\n"), expected);
    }
    assert_problem("balance = \"least-request\"\n", "least-requests");
}

#[test]
fn names_and_addresses_are_unique() {
    for (text, expected) in [
        (format!("{SERVICE}{SERVICE}"), ":6:8: a second service is called \"s\"; the first is at"),
        (format!("{ISSUER}{}", ISSUER.replace("i.example", "j.example")), "a second issuer is called \"main\""),
        (format!("{ISSUER}{}", ISSUER.replace("main", "other")), "the issuer \"https://i.example\" is there twice"),
        (
            SERVICE.to_owned() + "[[service.endpoint]]\naddress = \"127.0.0.1:1\"",
            "127.0.0.1:1 is there twice; remove one",
        ),
        (
            "[[listener]]\nname = \"a\"\naddress = \"0.0.0.0:80\"\n[[listener]]\nname = \"b\"\naddress = \"0.0.0.0:80\"".to_owned(),
            ":6:11: 0.0.0.0:80 is taken by the listener \"a\" at",
        ),
    ] {
        assert_problem(&text, expected);
    }
}

#[test]
fn http2_without_tls_is_for_listeners_without_tls() {
    let tls = "tls = { certificate = [{ acme = true, hosts = [\"a.example\"] }] }";
    let listener = format!("[[listener]]\nname = \"x\"\naddress = \"127.0.0.1:1\"\nh2c = true\n{tls}\n");
    let problems = Fixture::new(&listener).problems();
    assert_eq!(
        problems[0],
        "cardea.toml:4:7: h2c is HTTP/2 without TLS, and this listener has TLS; remove it: with TLS, http2 offers HTTP/2"
    );
}

#[test]
fn listener_keys_without_effect_are_errors() {
    let listener = |extra: &str| format!("[[listener]]\nname = \"x\"\naddress = \"127.0.0.1:1\"\n{extra}");
    for (extra, expected) in [
        ("mode = \"0660\"", "mode is for Unix sockets only"),
        ("mode = 660", "mode is a whole number, not a string (file mode)"),
        ("mode = \"0999\"", "\"0999\" is not a file mode"),
        ("proxy_protocol_from = [\"10.0.0.0/8\"]", "has no effect while proxy_protocol is off"),
        ("proxy_protocol = \"v2\"", "nobody is trusted to speak the PROXY protocol"),
        ("proxy_protocol = \"v3\"", "\"v3\" is not a value of proxy_protocol; did you mean"),
        (
            "proxy_protocol = \"any\"\nproxy_protocol_from = [\"10.0.0.1/8\"]",
            "has bits set beyond its prefix; write \"10.0.0.0/8\"",
        ),
        ("[listener.tls]", ":4:1: tls has no certificate; add a table [[listener.tls.certificate]]"),
        ("tls = { certificate = [] }", "certificate is empty; give at least 1"),
        (
            "redirect_to_https = \"yes\"",
            "redirect_to_https is a string, not true or false, or a whole number",
        ),
        ("redirect_to_https = 0", "0 is out of the limits"),
    ] {
        assert_problem(&listener(extra), expected);
    }
    assert_problems(
        "",
        &[
            "cardea.toml:1:1: there is no listener, so nothing could reach the gateway; add a table [[listener]] with name and address",
        ],
    );
    assert_problems(
        "[listener]\nname = \"x\"\n",
        &[
            "cardea.toml:1:2: listener is a table, not a list; write its header with two brackets, [[…]]: there may be several",
        ],
    );
}

#[test]
fn issuers_are_safe_or_refused() {
    let issuer = |extra: &str| format!("[[issuer]]\nname = \"i\"\n{extra}");
    for (extra, expected) in [
        (
            "issuer = \"https://i\"\ndiscovery = true",
            "issuer has no audiences; say whom its tokens must be for",
        ),
        ("issuer = \"https://i\"\ndiscovery = true\naudiences = []", "audiences is empty"),
        ("issuer = \"https://i\"\ndiscovery = true\naudiences = [\" \"]", "an audience is empty"),
        ("issuer = \"https://i\"\naudiences = [\"a\"]", "does not say where its keys come from"),
        ("discovery = true\naudiences = [\"a\"]", "does not say what its tokens' iss is"),
        ("issuer = \"http://i\"\ndiscovery = true\naudiences = [\"a\"]", "\"http://i\" is not an https URL"),
        (
            "issuer = \"x\"\njwks_url = \"http://i/keys\"\naudiences = [\"a\"]",
            "\"http://i/keys\" is not an https URL",
        ),
        (
            "issuer = \"x\"\njwks_url = \"https://i/k\"\njwks_file = \"cardea.toml\"\naudiences = [\"a\"]",
            "from several places: jwks_url, jwks_file",
        ),
        ("local = true\naudiences = [\"a\"]", "local issuers need this gateway's own authorization server"),
        ("preset = \"entra\"\naudiences = [\"a\"]", "no tenant is named"),
        (
            "preset = \"entra\"\ntenants = [\"contoso\"]\naudiences = [\"a\"]",
            "\"contoso\" is not a tenant's id",
        ),
        (
            "issuer = \"https://i\"\ndiscovery = true\ntenants = [\"x\"]\naudiences = [\"a\"]",
            "tenants has no effect without a preset",
        ),
        (
            "issuer = \"https://i\"\ndiscovery = true\naudiences = [\"a\"]\nalgorithms = [\"none\"]",
            "\"none\" is not a value of algorithms",
        ),
        (
            "issuer = \"https://i\"\ndiscovery = true\naudiences = [\"a\"]\nalgorithms = [\"HS256\"]",
            "\"HS256\" is not a value of algorithms; did you mean",
        ),
        (
            "issuer = \"https://i\"\ndiscovery = true\naudiences = [\"a\"]\nclock_skew = \"1h\"",
            "\"1h\" is out of the limits of clock_skew; write at most \"5m\"",
        ),
        (
            "issuer = \"https://i\"\ndiscovery = true\naudiences = \"a\"",
            "audiences is a string, not a list; write audiences = [\"a\"]",
        ),
        (
            "issuer = \"https://i\"\ndiscovery = true\naudiences = [\"a\"]\nkey_hosts = [\"*.example.com\"]",
            "named in full",
        ),
    ] {
        assert_problem(&issuer(extra), expected);
    }
}

#[test]
fn the_authorization_server_is_sound_or_refused() {
    let server = |issuer: &str, extra: &str| {
        format!("[authorization_server]\nissuer = \"{issuer}\"\ndefault_audience = \"a\"\n{extra}")
    };
    let key = "wrapping_key = { env = \"WRAPPING_KEY\" }\n";
    for (issuer, extra, expected) in [
        ("https://a", String::new(), "authorization_server has no wrapping_key; add wrapping_key"),
        ("https://a", "wrapping_key = {}".to_owned(), "does not say where it is"),
        (
            "https://a",
            "wrapping_key = { env = \"NONE\" }".to_owned(),
            "the environment variable NONE is not set",
        ),
        (
            "https://a",
            "wrapping_key = { env = \"NONE\", file = \"x\" }".to_owned(),
            "a secret comes from one place",
        ),
        ("https://a", "wrapping_key = { file = \"none\" }".to_owned(), "none: No such file"),
        ("https://a", "wrapping_key = \"c2VjcmV0\"".to_owned(), "wrapping_key is a string, not a table"),
        ("http://a", key.to_owned(), "\"http://a\" cannot be the identifier"),
        ("https://a/?x", key.to_owned(), "cannot be the identifier"),
        ("https://u@a/", key.to_owned(), "cannot be the identifier"),
        (
            "https://a",
            format!("{key}key_overlap = \"1m\""),
            "key_overlap (1m) is below access_token_lifetime and 5m (65m)",
        ),
        (
            "https://a",
            format!("{key}key_lifetime = \"1h\""),
            "key_publish_ahead (1d) is more than half of key_lifetime (1h)",
        ),
        (
            "https://a",
            format!("{key}key_publish_ahead = \"2m\"\nkey_set_max_age = \"61s\""),
            "key_set_max_age (61s) is more than half of key_publish_ahead (2m)",
        ),
        ("https://a", format!("{key}database = \"postgres://x\""), "is not a database"),
        ("https://a", format!("{key}resources = [\"orders\"]"), "\"orders\" is not an absolute URI"),
        ("https://a", format!("{key}scopes = [\"a b\"]"), "\"a b\" is not a scope"),
        ("https://a", format!("{key}access_token_lifetime = \"30s\""), "write \"1m\" to \"1d\""),
    ] {
        assert_problem(&server(issuer, &extra), expected);
    }
    Fixture::new(&format!("{}\n{LEAST}", server("http://127.0.0.1:8080/path", key))).config();
}

#[test]
fn routes_are_complete_and_refer_to_what_exists() {
    let route = |extra: &str| format!("{ISSUER}{SERVICE}[[route]]\nname = \"r\"\n{extra}");
    for (extra, expected) in [
        ("service = \"s\"", "route has no auth; say what a token must have"),
        ("auth = \"pubic\"\nservice = \"s\"", "\"pubic\" is not a value of auth; say what a token must have"),
        ("auth = []\nservice = \"s\"", "auth is empty"),
        ("auth = true\nservice = \"s\"", "auth is true or false, not \"public\", or a table, or a list"),
        ("auth = { scopes = [\"a\"] }\nservice = \"s\"", "auth has no issuer"),
        (
            "auth = { issuer = \"mian\" }\nservice = \"s\"",
            "there is no issuer called \"mian\"; did you mean \"main\"?",
        ),
        (
            "auth = { issuer = \"main\", audiences = [\"b\"] }\nservice = \"s\"",
            "\"b\" is not among the audiences of the issuer \"main\"",
        ),
        ("auth = { issuer = \"main\", scopes = [\"a b\"] }\nservice = \"s\"", "\"a b\" is not a scope"),
        ("auth = \"public\"", "does not say where requests go"),
        (
            "auth = \"public\"\nservice = \"s\"\nbuiltin = \"health\"",
            "a route has one destination; service is there too",
        ),
        (
            "auth = \"public\"\nbuiltin = \"token\"",
            "is a part of the authorization server, which is not configured",
        ),
        (
            "auth = \"public\"\nservice = \"s\"\npath = \"/a\"\npath_prefix = \"/b\"",
            "a route has one of path, path_prefix and path_pattern",
        ),
        (
            "auth = \"public\"\nservice = \"s\"\npath = \"/a/../b\"",
            "\"/a/../b\" is not a path that a request could have; leave out dot segments",
        ),
        ("auth = \"public\"\nservice = \"s\"\npath_pattern = \"/a\"", "write path or path_prefix"),
        ("auth = \"public\"\nservice = \"s\"\nhosts = [\"a:80\"]", "leave the port away: \"a\""),
        ("auth = \"public\"\nservice = \"s\"\nhosts = [\"a\", \"A\"]", "\"A\" is there twice"),
        (
            "auth = \"public\"\nservice = \"s\"\nmethods = [\"get\"]",
            "write \"GET\": methods are case-sensitive",
        ),
        ("auth = \"public\"\nservice = \"s\"\nmethods = [\"CONNECT\"]", "CONNECT asks for a forward proxy"),
        (
            "auth = \"public\"\nservice = \"s\"\nheaders = { x = false }",
            "cannot ask for a field to be absent",
        ),
        ("auth = \"public\"\nservice = \"s\"\nheaders = { \"a b\" = true }", "\"a b\" is not a field name"),
        (
            "auth = \"public\"\nservice = \"s\"\npath = \"/a\"\nstrip_prefix = true",
            "strip_prefix needs a path_prefix",
        ),
        (
            "auth = \"public\"\nservice = \"s\"\npath_pattern = \"/{id}\"\nrewrite_path = \"/x/{ids}\"",
            "names a parameter that the route does not have; did you mean \"id\"?",
        ),
        ("auth = \"public\"\nservice = \"s\"\nrewrite_path = \"x\"", "begin with a slash"),
        (
            "auth = \"public\"\nservice = \"s\"\nrewrite_path = \"/x/{token.tid}\"",
            "names a parameter that the route does not have",
        ),
        ("auth = \"public\"\nredirect = { to = \"//evil.example\" }", "is not a place to redirect to"),
        ("auth = \"public\"\nredirect = { to = '/\\evil.example' }", "is not a place to redirect to"),
        ("auth = \"public\"\nredirect = { to = \"/\", status = 305 }", "305 is not the status of a redirect"),
        ("auth = \"public\"\nrespond = { status = 204, body = \"x\" }", "a response with 204 has no body"),
        ("auth = \"public\"\nrespond = { body = \"x\", file = \"y\" }", "a response has one body"),
        ("auth = \"public\"\nrespond = { content_type = \"text\" }", "is not a media type"),
        (
            "auth = \"public\"\nservice = \"s\"\nallow_encoded = [\"%00\"]",
            "\"%00\" is not a value of allow_encoded",
        ),
        (
            "auth = \"public\"\nservice = \"s\"\nrequest_headers = { set = { Host = \"x\" } }",
            "\"host\" belongs to the protocol",
        ),
        (
            "auth = \"public\"\nservice = \"s\"\nrequest_headers = { set = { X_Auth_Subject = \"x\" } }",
            "carries the caller's identity",
        ),
        (
            "auth = \"public\"\nservice = \"s\"\nrequest_headers = { set = { x = \"a\\r\\nb\" } }",
            "characters that a field cannot carry",
        ),
        (
            "auth = \"public\"\nservice = \"s\"\nrequest_headers = { remove = [\"a:\"] }",
            "\"a:\" is not a field name",
        ),
    ] {
        assert_problem(&route(extra), expected);
    }
}

#[test]
fn identity_headers_are_distinct_names_that_may_be_set() {
    for (text, expected) in [
        ("subject = \"x-auth-issuer\"", "\"x-auth-issuer\" already carries the issuer"),
        ("extra = { \"x_auth_subject\" = \"tid\" }", "\"x_auth_subject\" already carries the subject"),
        ("subject = \"authorization\"", "\"authorization\" belongs to the protocol"),
        ("subject = \"a b\"", "\"a b\" is not a field name"),
        ("extra = { \"x-tenant\" = \"\" }", "\"x-tenant\" names no claim"),
    ] {
        assert_problem(&format!("[identity_headers]\n{text}"), expected);
    }
}

#[test]
fn two_routes_for_the_same_requests_are_an_error() {
    let route = |name: &str, extra: &str| {
        format!("[[route]]\nname = \"{name}\"\nauth = \"public\"\nbuiltin = \"health\"\n{extra}\n")
    };
    for (first, second) in [
        ("", ""),
        ("path = \"/a\"", "path = \"/a\""),
        ("path_prefix = \"/a/\"", "path_prefix = \"/a\""),
        ("hosts = [\"a\", \"b\"]", "hosts = [\"B\"]"),
        ("methods = [\"GET\", \"PUT\"]", "methods = [\"PUT\"]"),
        ("headers = { x-a = \"1\" }", "headers = { X-A = \"1\" }"),
    ] {
        assert_problem(
            &(route("one", first) + &route("two", second)),
            "the route \"two\" is for the same requests as \"one\" at",
        );
    }
    for (first, second) in [
        ("path = \"/a\"", "path_prefix = \"/a\""),
        ("hosts = [\"a\"]", ""),
        ("methods = [\"GET\"]", ""),
        ("headers = { x-a = \"1\" }", "headers = { x-a = \"2\" }"),
    ] {
        Fixture::new(&(route("one", first) + &route("two", second) + LEAST)).config();
    }
}

#[test]
fn services_are_complete() {
    for (text, expected) in [
        (
            "[[service]]\nname = \"s\"",
            "service has no endpoint; add a table [[service.endpoint]] with its address",
        ),
        ("[[service]]\nname = \"a b\"\nendpoint = [{ address = \"a:1\" }]", "\"a b\" is not a name"),
        (
            "[[service]]\nname = \"s\"\nendpoint = [{ address = \"a:1\", weight = 0 }]",
            "0 is out of the limits of weight",
        ),
        (
            "[[service]]\nname = \"s\"\ntls = {}\nendpoint = [{ address = \"unix:/s\" }]",
            "TLS to a Unix socket has no name to verify",
        ),
        (
            "[[service]]\nname = \"s\"\ntls = { server_name = \"a b\" }\nendpoint = [{ address = \"a:1\" }]",
            "is not a name that a certificate can have",
        ),
        (
            "[[service]]\nname = \"s\"\ntls = { danger_accept_any = true }\nendpoint = [{ address = \"a:1\" }]",
            "unknown key \"danger_accept_any\"",
        ),
        (
            "[[service]]\nname = \"s\"\nendpoint = [{ address = \"a:1\" }]\npool = { idle_max = 1.5 }",
            "idle_max is a number with a fraction, not a whole number",
        ),
    ] {
        assert_problem(text, expected);
    }
}

#[test]
fn a_check_sends_only_what_is_a_request() {
    for (keys, expected) in [
        ("path = \"health\"", "\"health\" is no path of a request"),
        ("path = \"/a b\"", "\"/a b\" is no path of a request"),
        ("path = \"/ HTTP/1.1\\r\\nX: y\"", "is no path of a request"),
        ("path = \"/#top\"", "\"/#top\" is no path of a request"),
        ("host = \"a b\"", "\"a b\" is no host"),
        ("host = \"a\\r\\nX: y\"", "is no host"),
        ("method = \"HEAD\"\nbody_contains = \"ok\"", "a response to HEAD has no body"),
        ("method = \"POST\"", "POST"),
        ("statuses = [199]", "199"),
        ("interval = \"10ms\"", "100ms"),
    ] {
        assert_problem(&format!("[health_check]\n{keys}"), expected);
        let service = SERVICE.replace(
            "[[service.endpoint]]",
            &format!("[service.health_check]\n{keys}\n[[service.endpoint]]"),
        );
        assert_problem(&service, expected);
    }
}

#[test]
fn a_service_of_http_2_is_not_checked_by_http_1() {
    let service = |protocol: &str, check: &str| {
        format!(
            "[[service]]\nname = \"s\"\nprotocol = \"{protocol}\"\n[service.health_check]\nprotocol = \"{check}\"\n\
             [[service.endpoint]]\naddress = \"127.0.0.1:1\"\n"
        )
    };
    assert_problem(&service("http2", "http"), "checked by requests of HTTP/1.1");
    assert_problem(&service("http3", "tcp"), "http3");
    for (protocol, check) in [("http2", "tcp"), ("http2", "off"), ("auto", "http"), ("http1", "http")] {
        let text = format!("{}\n{LEAST}", service(protocol, check));
        let service = &Fixture::new(&text).config().services[0];
        assert_eq!(format!("{:?}", service.protocol).to_lowercase(), protocol, "{check}");
    }
}

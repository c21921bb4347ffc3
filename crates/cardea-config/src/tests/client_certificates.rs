//! Tests of client certificate settings.

use cardea_gateway::client_certificate::ClientCertificateForward;

use super::{ClientAuthMode, Fixture};
use crate::StepUp;

const LISTENER: &str = r#"
[[client_authority]]
name = "staff"
ca_file = "a.pem"

[[client_authority]]
name = "partners"
ca_file = "a.pem"
crl_files = ["a.pem"]

[[listener]]
name = "public"
address = "127.0.0.1:0"
[listener.tls]
client_certificate = "request"
client_authorities = ["staff"]
[[listener.tls.certificate]]
chain = "a.pem"
key = "a.pem"
[[listener.tls.certificate]]
chain = "a.pem"
key = "a.pem"
client_certificate = "off"
[[listener.tls.certificate]]
chain = "a.pem"
key = "a.pem"
client_certificate = "require"
client_authorities = ["partners"]
"#;

fn route(rule: &str) -> String {
    format!(
        "{LISTENER}\n[[route]]\nname = \"r\"\nhosts = [\"a.example\", \"*.example.com\"]\nauth = \"public\"\nrespond = {{}}\n{rule}\n"
    )
}

#[test]
fn hosts_request_certificates_by_their_own_or_the_listeners_setting() {
    let config = Fixture::new(&route("")).file("a.pem", "PEM").config();
    let tls = config.listeners[0].tls.as_ref().unwrap();
    let asked: Vec<_> = tls
        .certificates
        .iter()
        .map(|one| (one.client_certificate, one.client_authorities.join(",")))
        .collect();
    assert_eq!(
        asked,
        [
            (Some(ClientAuthMode::Request), "staff".to_owned()),
            (None, String::new()),
            (Some(ClientAuthMode::Require), "partners".to_owned()),
        ]
    );
    assert_eq!(config.routes[0].client_certificate, None);
    assert_eq!(config.client_authorities[1].crls.len(), 1);
}

#[test]
fn a_word_is_enough_and_a_table_says_more() {
    for (rule, required) in
        [("client_certificate = \"required\"", true), ("client_certificate = { mode = \"optional\" }", false)]
    {
        let config = Fixture::new(&route(rule)).file("a.pem", "PEM").config();
        let rule = config.routes[0].client_certificate.as_ref().unwrap();
        assert_eq!(
            (rule.required, rule.forward, &rule.step_up),
            (required, ClientCertificateForward::Leaf, &None)
        );
    }
    let digits = "AB:".repeat(31) + "01";
    let text = format!(
        "[route.client_certificate]\nmode = \"required\"\nauthorities = [\"partners\"]\nnames = [\"dns:A.example\"]\nfingerprints = [\"{digits}\"]\nstep_up = \"Step.example.com:8443\"\nforward = \"none\""
    );
    let config = Fixture::new(&route(&text)).file("a.pem", "PEM").config();
    let rule = config.routes[0].client_certificate.as_ref().unwrap();
    assert_eq!(rule.step_up, Some(StepUp { host: "step.example.com".to_owned(), port: Some(8443) }));
    assert_eq!((rule.fingerprints[0][0], rule.fingerprints[0][31]), (0xab, 1));
    assert_eq!(rule.names[0].to_string(), "dns:a.example");
}

#[test]
fn contradictory_settings_are_errors() {
    let table = |rest: &str| format!("client_certificate = {{ mode = \"required\", {rest} }}");
    for (rule, expected) in [
        ("client_certificate = \"maybe\"".to_owned(), "maybe"),
        (
            table("authorities = [\"staf\"]"),
            "there is no client_authority called \"staf\"; did you mean \"staff\"?",
        ),
        (table("names = [\"a.example\"]"), "\"a.example\" is not a name of a client; write the type first"),
        (table("names = [\"dns:*.example\"]"), "is not a name of a client"),
        (table("fingerprints = [\"abc\"]"), "\"abc\" is not a fingerprint; write 64 hexadecimal digits"),
        (table("step_up = \"https://a.example\""), "is not a host to send clients to"),
        (table("step_up = \"*.example.com\""), "is not a host to send clients to"),
        (table("step_up = \"a.example:0\""), "is not a host to send clients to"),
        (table("step_up = \"b.example\""), "the route is not for \"b.example\""),
        (table("step_up = \"example.com\""), "the route is not for \"example.com\""),
        (
            "client_certificate = { mode = \"optional\", step_up = \"a.example\" }".to_owned(),
            "nobody is sent there for a certificate that is optional",
        ),
        (
            "request_headers = { set = { \"Client-Cert\" = \"x\" } }".to_owned(),
            "\"client-cert\" belongs to the protocol",
        ),
    ] {
        let problems = Fixture::new(&route(&rule)).file("a.pem", "PEM").problems();
        assert_eq!(problems.len(), 1, "{rule}: {problems:#?}");
        assert!(problems[0].contains(expected), "{}\nis not\n{expected}", problems[0]);
    }
}

#[test]
fn hosts_that_request_certificates_need_authorities() {
    let nobody = LISTENER.replace("client_authorities = [\"staff\"]\n", "");
    let problems = Fixture::new(&nobody).file("a.pem", "PEM").problems();
    assert!(problems.iter().any(|problem| problem.contains("nobody may vouch for clients")), "{problems:#?}");
    let unknown =
        LISTENER.replace("client_authorities = [\"partners\"]", "client_authorities = [\"partner\"]");
    let problems = Fixture::new(&unknown).file("a.pem", "PEM").problems();
    assert!(problems[0].contains("did you mean \"partners\"?"), "{problems:#?}");
    let twice = LISTENER.replace("name = \"partners\"", "name = \"staff\"");
    let problems = Fixture::new(&twice).file("a.pem", "PEM").problems();
    assert!(problems[0].contains("a second client_authority is called \"staff\""), "{problems:#?}");
}

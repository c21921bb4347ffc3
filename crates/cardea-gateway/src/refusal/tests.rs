//! Holds `docs/errors.md` against the code: every reason with its status, every code, and no other.

use std::{collections::BTreeSet, fs, path::Path};

use super::*;

/// One of each, with what makes no difference filled in. That none is missing, a test says.
fn reasons() -> Vec<Reason> {
    let mut all = vec![
        Reason::Malformed { code: "connect_not_supported", status: 501 },
        Reason::RequestHeadTimeout,
        Reason::RequestBodyTimeout,
        Reason::RequestBodyTooSlow,
        Reason::BodyTooLarge,
        Reason::ExpectationFailed,
        Reason::WebSocketVersion,
        Reason::WebSocketRefused,
        Reason::MisdirectedRequest,
        Reason::ClientCertificateUnasked,
        Reason::RouteNotFound,
        Reason::MethodNotAllowed(String::new()),
        Reason::PathEncodingNotAllowed,
        Reason::ClientCertificateMissing(None),
        Reason::ClientCertificateInvalid,
        Reason::ClientCertificateNotListed,
        Reason::CredentialsMalformed,
        Reason::CredentialsMissing,
        Reason::TokenInvalid("signature_invalid"),
        Reason::InsufficientScope(String::new()),
        Reason::RoleMissing,
        Reason::PolicyDenied(None),
        Reason::PolicyFailed,
        Reason::ConditionFailed,
        Reason::RateLimited { retry_seconds: None },
        Reason::TooManyInFlight,
        Reason::TarpitFull { retry_seconds: 1 },
        Reason::NotAdmitted(AdmissionRefusal::QueueFull),
        Reason::NotAdmitted(AdmissionRefusal::Displaced),
        Reason::NotAdmitted(AdmissionRefusal::Expired),
        Reason::NotAdmitted(AdmissionRefusal::Shed),
        Reason::NotAdmitted(AdmissionRefusal::OverShare),
        Reason::ThrottleFailed,
        Reason::KeysUnavailable,
        Reason::NoEndpoint,
        Reason::EndpointsFull,
        Reason::ConnectionsExhausted,
        Reason::ConnectFailed,
        Reason::ConnectTimeout,
        Reason::ServiceAborted,
        Reason::ServiceRefused,
        Reason::HeadTooLargeForService,
        Reason::UpgradeUnsupported,
        Reason::ServiceMalformed("bare_lf"),
        Reason::ResponseHeadTimeout,
        Reason::RequestTimeout,
        Reason::DeadlineExceeded,
        Reason::ClientAborted,
        Reason::BuiltInFailed,
        Reason::FellShort(Shortage::Descriptors),
        Reason::Overloaded,
        Reason::Draining,
    ];
    all.extend(TerminationReason::ALL.map(Reason::StreamEnded));
    all
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text without its tests.
fn source(path: &str) -> String {
    read(path).split("\nmod tests {").next().unwrap_or_default().to_owned()
}

/// What is between two texts, wherever the first one is.
fn between<'t>(text: &'t str, before: &str, after: char) -> impl Iterator<Item = &'t str> {
    text.split(before)
        .skip(1)
        .filter_map(move |rest| rest.split(after).next())
        .collect::<Vec<_>>()
        .into_iter()
}

fn is_code(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_word)
}

#[test]
fn every_reason_is_on_the_page_with_its_status() {
    let page = read("docs/errors.md");
    let source = source("crates/cardea-gateway/src/refusal.rs");
    let body = between(&source, "pub enum Reason {", '}').next().unwrap();
    // Fields of variants are further in.
    let variants: BTreeSet<&str> = source
        .split("pub enum Reason {")
        .nth(1)
        .unwrap()
        .lines()
        .take_while(|line| *line != "}")
        .filter_map(|line| line.strip_prefix("    ")?.split([',', '(', ' ', '{']).next())
        .filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
        .collect();
    assert!(body.contains("Malformed") && variants.len() > 30, "{variants:?}");
    let listed: Vec<String> = reasons().iter().map(|reason| format!("{reason:?}")).collect();
    for variant in variants {
        let is_it = |text: &String| text.split(['(', ' ', '{']).next() == Some(variant);
        assert!(
            listed.iter().any(is_it),
            "add Reason::{variant} to reasons() here, and its code to docs/errors.md"
        );
    }
    for reason in reasons() {
        let (code, status) = (reason.code(), reason.status());
        let row = format!("| `{code}` | {status} |");
        let elsewhere = match reason {
            // Their sections say the status of all.
            Reason::Malformed { .. } => page.contains(&format!("`{code}` ({status})")),
            Reason::TokenInvalid(_) => page.contains(&format!("| `{code}` |")),
            _ => false,
        };
        assert!(elsewhere || page.contains(&row), "docs/errors.md lacks {row}");
    }
}

#[test]
fn every_code_is_on_the_page_and_the_page_has_no_other() {
    let mut codes: BTreeSet<String> = BTreeSet::new();
    for path in [
        "crates/cardea-gateway/src/refusal.rs",
        "crates/cardea-gateway/src/body.rs",
        "crates/cardea-gateway/src/termination.rs",
        "crates/cardea-http/src/error.rs",
        "crates/cardea-http/src/authority.rs",
        "crates/cardea-http/src/fields.rs",
        "crates/cardea-http/src/grpc/timeout.rs",
        "crates/cardea-http/src/method.rs",
        "crates/cardea-http/src/target.rs",
        "crates/cardea-http/src/path.rs",
        "crates/cardea-http/src/trailers.rs",
        "crates/cardea-http/src/h1/chunked.rs",
        "crates/cardea-http/src/h2/budget.rs",
        "crates/cardea-http/src/h2/error.rs",
        "crates/cardea-http/src/h2/frame/error.rs",
        "crates/cardea-http/src/h2/hpack/error.rs",
        "crates/cardea-http/src/h2/hpack/line.rs",
        "crates/cardea-identity/src/error.rs",
        "crates/cardea-identity/src/requirement.rs",
        "crates/cardea-issuer/src/verification/stats.rs",
    ] {
        let source = source(path);
        let function = if path.ends_with("stats.rs") { "fn as_str(" } else { "fn code(" };
        for body in source.split(function).skip(1).filter_map(|rest| rest.split("\n    }\n").next()) {
            let arms = between(body, "=> \"", '"').filter(|code| is_code(code));
            codes.extend(arms.map(str::to_owned));
        }
    }
    for path in [
        "crates/cardea-gateway/src/pipeline.rs",
        "crates/cardea-gateway/src/decision/normalise.rs",
        "crates/cardea-gateway/src/forward/request.rs",
        "crates/cardea-gateway/src/h2/websocket.rs",
        "crates/cardea-gateway/src/websocket/handshake.rs",
    ] {
        codes.extend(between(&source(path), "code: \"", '"').map(str::to_owned));
    }
    let constants = source("crates/cardea-gateway/src/h2/stream.rs");
    codes.extend(between(&constants, ": &str = \"", '"').map(str::to_owned));
    assert!(codes.len() > 110, "{codes:?}");
    let page = read("docs/errors.md");
    for code in &codes {
        assert!(page.contains(&format!("`{code}`")), "docs/errors.md lacks {code}");
    }
    // The first cells of tables, in which codes stand.
    let issuer =
        source("crates/cardea-issuer/src/grant.rs") + &source("crates/cardea-issuer/src/client_auth.rs");
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).unwrap();
        for code in cell.split('`').skip(1).step_by(2) {
            let is_known = codes.contains(code) || issuer.contains(&format!("\"{code}\""));
            assert!(is_known, "docs/errors.md has {code}, which nothing gives");
        }
    }
}

#[test]
fn the_statuses_of_malformed_requests_are_those_on_the_page() {
    use cardea_http::{HeadError, MethodError, RequestError};
    let page = read("docs/errors.md");
    for error in [
        RequestError::Head(HeadError::TooLarge),
        RequestError::Method(MethodError::TooLong),
        RequestError::TargetTooLong,
        RequestError::VersionUnsupported,
        RequestError::HostMissing,
    ] {
        let row = page.lines().find(|line| line.contains(&format!("`{}`", error.code()))).unwrap();
        let cell = row.split('|').nth(1).unwrap();
        let status = error.status();
        assert_eq!(cell.contains('('), status != 400, "{cell}");
        assert!(status == 400 || cell.contains(&format!("({status})")), "{cell}: {status}");
    }
}

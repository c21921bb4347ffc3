//! One of several certificates can't be used.

use super::*;
use crate::{
    Arrival, CertificateState, ClientAuthConfig, ClientAuthMode, ClientAuthority, ClientAuthorityConfig,
    HostRequirements, RequirementUnmet,
};

/// Replaces the files of a certificate by those of an expired one.
fn expire(bench: &Bench, file: &str, names: &[&str]) {
    let issued = bench.authority.issue(names, EARLIER, NOW.saturating_sub(Duration::from_secs(60))).unwrap();
    fs::write(bench.path().join(format!("{file}.pem")), &issued.chain_pem).unwrap();
    fs::write(bench.path().join(format!("{file}.key")), issued.key_pem.as_bytes()).unwrap();
}

fn start(bench: &Bench) -> ServerTls {
    assert!(ServerTls::load(&bench.config, &clock()).is_err(), "a check is strict");
    ServerTls::load_tolerating(&bench.config, &clock(), &|_| true).unwrap()
}

fn is_served(bench: &Bench, server: &ServerTls, name: &str) -> bool {
    shake(server, &Arc::new(bench.client()), name).is_ok()
}

/// Whether a client that trusts any certificate gets one.
fn is_answered(server: &ServerTls, name: &str) -> bool {
    let domain = server.trust_domain_of(name);
    let names = server.active.load();
    domain.is_some() && names.names.key_mark(Some(name)).is_some()
}

#[test]
fn unusable_certificates_fail_alone_and_are_reported() {
    for (what, spoil) in [
        ("expired", (|bench| expire(bench, "b", &["b.example", "*.b.example"])) as fn(&Bench)),
        ("another key", |bench| {
            let other = bench.authority.issue(&["b.example", "*.b.example"], EARLIER, LATER).unwrap();
            fs::write(bench.path().join("b.key"), other.key_pem.as_bytes()).unwrap();
        }),
        ("no key", |bench| fs::remove_file(bench.path().join("b.key")).unwrap()),
    ] {
        let bench =
            Bench::new().with("a", &["a.example"]).with_domain("b", &["b.example", "*.b.example"], "other");
        spoil(&bench);
        let server = start(&bench);
        assert!(is_served(&bench, &server, "a.example"), "{what}");
        for host in ["b.example", "x.b.example"] {
            assert!(!is_served(&bench, &server, host) && !is_answered(&server, host), "{what} {host}");
            assert!(server.is_misdirected(Some("a.example"), host), "{what} {host}");
            assert_ne!(server.trust_domain_of(host), server.trust_domain_of("a.example"), "{what} {host}");
        }
        assert!(is_answered(&server, "unknown.example"), "{what}: the default certificate is as it was");
        let states = server.certificate_states();
        let told: Vec<_> =
            states.iter().map(|state| (state.served.is_some(), state.problems.len())).collect();
        assert_eq!(told, [(true, 0), (false, 1)], "{what}");
        assert_eq!(states[1].hosts.len(), 2, "{what}");
        assert!(!server.reload_if_changed(NOW).unwrap(), "{what}: it is said once");

        bench.write("b", KeyType::Ecdsa, &["b.example", "*.b.example"]);
        assert!(server.reload_if_changed(NOW).unwrap(), "{what}");
        assert!(is_served(&bench, &server, "b.example"), "{what}");
        assert!(server.certificate_states()[1].problems.is_empty(), "{what}");
    }
}

#[test]
fn a_certificate_is_served_once_it_becomes_valid() {
    let bench = Bench::new().with("a", &["a.example"]).with("b", &["b.example"]);
    let soon = NOW.saturating_add(Duration::from_secs(60));
    let issued = bench.authority.issue(&["b.example"], soon, LATER).unwrap();
    fs::write(bench.path().join("b.pem"), &issued.chain_pem).unwrap();
    fs::write(bench.path().join("b.key"), issued.key_pem.as_bytes()).unwrap();
    let server = start(&bench);
    assert!(!server.reload_if_changed(NOW).unwrap());
    assert!(server.reload_if_changed(soon).unwrap());
    assert!(server.certificate_states()[1].served.is_some());
}

#[test]
fn nothing_of_another_trust_domain_takes_the_place_of_the_default_certificate() {
    for (domain, expected) in [("default", true), ("other", false)] {
        let bench = Bench::new().with("a", &["a.example"]).with_domain("b", &["b.example"], domain);
        expire(&bench, "a", &["a.example"]);
        let server = start(&bench);
        assert!(is_served(&bench, &server, "b.example"), "{domain}");
        assert!(!is_answered(&server, "a.example"), "{domain}");
        assert_eq!(is_answered(&server, "unknown.example"), expected, "{domain}");
        assert_eq!(server.trust_domain_of_connection(None).is_some(), expected, "{domain}");
    }
}

#[test]
fn a_certificate_with_unknown_hosts_fails_handshakes_with_unknown_names() {
    for (hosts, expected) in [(vec![], false), (vec!["b.example".to_owned()], true)] {
        let mut bench = Bench::new().with("a", &["a.example"]).with_domain("b", &["b.example"], "other");
        bench.config.certificates[1].hosts = hosts;
        fs::write(bench.path().join("b.pem"), "garbage").unwrap();
        let server = start(&bench);
        assert!(is_served(&bench, &server, "a.example"));
        assert!(!is_answered(&server, "b.example"));
        assert_eq!(is_answered(&server, "unknown.example"), expected);
        assert!(server.is_misdirected(Some("a.example"), "b.example"));
    }
}

#[test]
fn hosts_that_ask_clients_for_certificates_must_be_known() {
    for (hosts, expected) in [(vec![], false), (vec!["b.example".to_owned()], true)] {
        let mut bench = Bench::new().with("a", &["a.example"]).with("b", &["b.example"]);
        let settings = ClientAuthorityConfig {
            name: "staff".to_owned(),
            roots: bench.path().join("ca.pem"),
            crls: Vec::new(),
        };
        let authorities = vec![ClientAuthority::load(&settings).unwrap()];
        bench.config.certificates[1].client_auth =
            Some(ClientAuthConfig { mode: ClientAuthMode::Require, authorities });
        bench.config.certificates[1].hosts = hosts;
        fs::write(bench.path().join("b.pem"), "garbage").unwrap();
        let loaded = ServerTls::load_tolerating(&bench.config, &clock(), &|_| true);
        assert_eq!(loaded.is_ok(), expected);
        if let Err(error) = loaded {
            assert!(error.to_string().contains("list the `hosts`"), "{error}");
        }
    }
}

#[test]
fn a_hosts_certificate_requirement_stays_in_effect() {
    let mut bench = Bench::new().with("a", &["a.example"]).with("b", &["b.example"]);
    let settings = ClientAuthorityConfig {
        name: "staff".to_owned(),
        roots: bench.path().join("ca.pem"),
        crls: Vec::new(),
    };
    let authorities = vec![ClientAuthority::load(&settings).unwrap()];
    let asks = ClientAuthConfig { mode: ClientAuthMode::Require, authorities };
    bench.config.certificates[1].client_auth = Some(asks.clone());
    let before = bench.load();
    expire(&bench, "b", &["b.example"]);
    let server = start(&bench);
    for host in ["b.example", "B.Example."] {
        assert_eq!(server.client_auth_of(host), before.client_auth_of(host), "{host}");
        assert_eq!(server.client_auth_of(host), Some(asks.clone()), "{host}");
        assert!(server.is_misdirected(Some("a.example"), host), "{host}");
    }
    assert_eq!(server.client_auth_of("a.example"), None, "the control");
    assert!(is_served(&bench, &server, "a.example"));
}

#[test]
fn a_replacement_that_is_rejected_does_not_look_healthy() {
    let bench = Bench::new().with("a", &["a.example"]);
    let server = bench.load();
    expire(&bench, "a", &["a.example"]);
    server.reload_if_changed(NOW).unwrap_err();
    let rejected: CertificateState = server.certificate_states()[0].clone();
    assert!(rejected.served.is_some(), "what was there before");
    assert!(rejected.problems[0].contains("expired"), "{rejected:?}");
    assert!(!server.reload_if_changed(NOW).unwrap());
    assert_eq!(server.certificate_states()[0], rejected, "for as long as it is so");
    bench.write("a", KeyType::Ecdsa, &["a.example"]);
    assert!(server.reload_if_changed(NOW).unwrap());
    assert!(server.certificate_states()[0].problems.is_empty());
}

/// What a host without a certificate requires does not depend on whether the default certificates can be used.
#[test]
fn an_unusable_default_certificate_keeps_its_requirement_for_hosts_without_a_certificate() {
    use ClientAuthMode::{Request, Require};
    let by_default = Err(RequirementUnmet::CertificateUnaskedByDefault);
    for (modes, expected) in [
        (vec![Request], Ok(())),
        (vec![Require], by_default),
        (vec![Require, Request], Ok(())),
        (vec![Require, Require], by_default),
    ] {
        for expired in [None, Some(modes.len() - 1)] {
            let benches: Vec<Bench> = modes.iter().map(|&mode| asking(mode)).collect();
            if let Some(expired) = expired {
                expire(&benches[expired], "a", &["a.example"]);
            }
            let load = |(bench, name): (&Bench, &'static str)| {
                let tolerating = ServerTls::load_tolerating(&bench.config, &clock(), &|_| true);
                (name, Arc::new(tolerating.unwrap()))
            };
            let served = benches.iter().zip(["one", "two"]).map(load);
            let requirements = HostRequirements::new(served).unwrap();
            let check = |host, listener, secure| {
                requirements.check(host, &Arrival { listener, secure, certificate: None }, NOW)
            };
            assert_eq!(check("unknown.example", "plain", false), expected, "{modes:?}, expired: {expired:?}");
            let named =
                if modes.contains(&Require) { Err(RequirementUnmet::CertificateUnasked) } else { Ok(()) };
            assert_eq!(check("a.example", "plain", false), named, "{modes:?}, expired: {expired:?}");
            for (mode, listener) in modes.iter().zip(["one", "two"]) {
                let own = if *mode == Require { Err(RequirementUnmet::CertificateUnasked) } else { Ok(()) };
                let found = check("unknown.example", listener, true);
                assert_eq!(found, own, "{modes:?}, {listener}, expired: {expired:?}");
            }
        }
    }
}

/// A certificate for `a.example` that asks clients for theirs, and one for `b.example` in another trust domain.
fn asking(mode: ClientAuthMode) -> Bench {
    let mut bench = Bench::new().with("a", &["a.example"]).with_domain("b", &["b.example"], "other");
    let settings = ClientAuthorityConfig {
        name: "staff".to_owned(),
        roots: bench.path().join("ca.pem"),
        crls: Vec::new(),
    };
    let authorities = vec![ClientAuthority::load(&settings).unwrap()];
    bench.config.certificates[0].client_auth = Some(ClientAuthConfig { mode, authorities });
    bench
}

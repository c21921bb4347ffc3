//! Real handshakes in memory, with accepted and refused client certificates.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use proptest::prelude::*;
use rustls::client::WebPkiServerVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion, version,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use super::*;
use crate::authority::{Authority, Issued};
use crate::testing::carry;
use crate::{
    CertificateConfig, HandshakeFacts, HandshakeRefused, ServerTls, ServerTlsConfig, StatelessTickets,
    TicketKeys, TlsError, provider, server_name,
};

const NOW: Wall = Wall::from_unix_seconds(1_800_000_000);
const EARLIER: Wall = Wall::from_unix_seconds(1_000_000_000);
const LATER: Wall = Wall::from_unix_seconds(9_000_000_000);
const HOUR: Duration = Duration::from_secs(3_600);

/// A listener with a host for each policy, with one trust domain name for all.
struct Bench {
    dir: TempDir,
    clock: ManualClock,
    web: Authority,
    staff: Authority,
    partners: Authority,
    /// For hosts that request no certificate.
    stateless_tickets: Option<StatelessTickets>,
}

impl Bench {
    /// With each kind of tickets, which must not affect the repeated verification.
    fn each() -> [Self; 2] {
        let tickets = StatelessTickets { keys: TicketKeys::Process, tls12: true };
        [Self::new(), Self { stateless_tickets: Some(tickets), ..Self::new() }]
    }

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let authority = Authority::new(name, EARLIER, LATER).unwrap();
            fs::write(dir.path().join(format!("{name}.pem")), authority.certificate_pem()).unwrap();
            authority
        };
        let (web, staff, partners) = (make("web"), make("staff"), make("partners"));
        Self { clock: ManualClock::new(NOW), web, staff, partners, dir, stateless_tickets: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn authority(&self, name: &str, crls: &[&str]) -> Arc<ClientAuthority> {
        ClientAuthority::load(&ClientAuthorityConfig {
            name: name.to_owned(),
            roots: self.path(&format!("{name}.pem")),
            crls: crls.iter().map(|crl| self.path(crl)).collect(),
        })
        .unwrap()
    }

    fn certificate(&self, host: &str, client_auth: Option<ClientAuthConfig>) -> CertificateConfig {
        let issued = self.web.issue(&[host], EARLIER, LATER).unwrap();
        let (chain, key) = (self.path(&format!("{host}.pem")), self.path(&format!("{host}.key")));
        fs::write(&chain, issued.chain_pem).unwrap();
        fs::write(&key, issued.key_pem.as_bytes()).unwrap();
        CertificateConfig {
            chain,
            key,
            hosts: Vec::new(),
            managed: None,
            trust_domain: "default".to_owned(),
            client_auth,
            ocsp: None,
        }
    }

    fn server(&self, staff: &Arc<ClientAuthority>, partners: &Arc<ClientAuthority>) -> ServerTls {
        let ask = |mode, authorities: &[&Arc<ClientAuthority>]| {
            Some(ClientAuthConfig {
                mode,
                authorities: authorities.iter().map(|&one| Arc::clone(one)).collect(),
            })
        };
        let certificates = vec![
            self.certificate("open.example", None),
            self.certificate("asks.example", ask(ClientAuthMode::Request, &[staff, partners])),
            self.certificate("staff.example", ask(ClientAuthMode::Require, &[staff])),
            self.certificate("staff2.example", ask(ClientAuthMode::Require, &[staff])),
        ];
        let stateless_tickets = self.stateless_tickets.clone();
        let config = ServerTlsConfig { certificates, stateless_tickets, ..ServerTlsConfig::default() };
        ServerTls::load(&config, &self.clock.clock()).unwrap()
    }

    fn client(
        &self,
        issued: Option<&Issued>,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.web.certificate_pem().as_bytes()).unwrap()).unwrap();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_webpki_verifier(verifier);
        Arc::new(match issued {
            Some(issued) => builder
                .with_client_auth_cert(
                    CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes()).map(Result::unwrap).collect(),
                    PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap(),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        })
    }
}

fn issue(authority: &Authority, names: &[&str]) -> Issued {
    let names: Vec<ClientName> = names.iter().map(|name| name.parse().unwrap()).collect();
    authority.issue_client("somebody", &names, EARLIER, LATER).unwrap()
}

#[derive(Debug)]
enum Failure {
    Tls(#[expect(dead_code, reason = "shown where a test fails")] rustls::Error),
    Refused(HandshakeRefused),
}

fn shake(server: &ServerTls, client: &Arc<ClientConfig>, name: &str) -> Result<HandshakeFacts, Failure> {
    let mut client =
        ClientConnection::new(Arc::clone(client), server_name(name).unwrap()).map_err(Failure::Tls)?;
    let mut connection = ServerConnection::new(server.config_for(Some(name))).map_err(Failure::Tls)?;
    loop {
        let sent = carry(&mut client, &mut connection).map_err(Failure::Tls)?;
        if !connection.is_handshaking() {
            // Before the client gets another ticket.
            server.handshake_facts(&mut connection).map_err(Failure::Refused)?;
        }
        if sent + carry(&mut connection, &mut client).map_err(Failure::Tls)? == 0 {
            break;
        }
    }
    server.handshake_facts(&mut connection).map_err(Failure::Refused)
}

const BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

#[test]
fn a_host_asks_as_it_is_configured_to() {
    let bench = Bench::new();
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let ours = issue(&bench.staff, &["dns:build.example"]);
    let theirs = issue(&bench.partners, &["uri:spiffe://partner/a"]);
    let strangers = issue(&Authority::new("staff", EARLIER, LATER).unwrap(), &["dns:build.example"]);
    for version in BOTH {
        let none = bench.client(None, version);
        assert!(shake(&server, &none, "open.example").unwrap().client_certificate.is_none());
        assert!(shake(&server, &none, "asks.example").unwrap().client_certificate.is_none());
        assert!(matches!(shake(&server, &none, "staff.example"), Err(Failure::Tls(_))));

        let client = bench.client(Some(&ours), version);
        assert!(shake(&server, &client, "open.example").unwrap().client_certificate.is_none());
        for host in ["asks.example", "staff.example"] {
            let certificate = shake(&server, &client, host).unwrap().client_certificate.unwrap();
            assert_eq!(certificate.names_text(), "dns:build.example");
            assert!(certificate.is_vouched_for_by(&staff, NOW) && certificate.holds(NOW));
            assert!(!certificate.is_vouched_for_by(&partners, NOW));
        }
        let client = bench.client(Some(&theirs), version);
        let certificate = shake(&server, &client, "asks.example").unwrap().client_certificate.unwrap();
        assert!(certificate.is_vouched_for_by(&partners, NOW) && !certificate.is_vouched_for_by(&staff, NOW));
        assert!(matches!(shake(&server, &client, "staff.example"), Err(Failure::Tls(_))));

        // An authority of the same name with another key.
        let client = bench.client(Some(&strangers), version);
        for host in ["asks.example", "staff.example"] {
            assert!(matches!(shake(&server, &client, host), Err(Failure::Tls(_))), "{host}");
        }
    }
}

#[test]
fn a_server_certificate_is_no_client_certificate() {
    let bench = Bench::new();
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let issued = bench.staff.issue(&["build.example"], EARLIER, LATER).unwrap();
    assert!(shake(&server, &bench.client(Some(&issued), &version::TLS13), "staff.example").is_err());
}

#[test]
fn hosts_that_ask_in_other_ways_are_other_trust_domains() {
    let bench = Bench::new();
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    assert!(server.asks_by_name());
    for (sni, host, misdirected) in [
        (Some("open.example"), "asks.example", true),
        (Some("open.example"), "staff.example", true),
        (Some("asks.example"), "staff.example", true),
        (Some("staff.example"), "open.example", true),
        (None, "staff.example", true),
        (None, "open.example", false),
        (Some("staff.example"), "staff2.example", false),
    ] {
        assert_eq!(server.is_misdirected(sni, host), misdirected, "{sni:?} {host}");
    }
}

#[test]
fn a_host_that_asks_in_two_ways_is_an_error() {
    let bench = Bench::new();
    let staff = bench.authority("staff", &[]);
    let ask = Some(ClientAuthConfig { mode: ClientAuthMode::Require, authorities: vec![staff] });
    let mut certificates = vec![bench.certificate("a.example", None)];
    certificates.push(CertificateConfig { client_auth: ask, ..certificates[0].clone() });
    let config = ServerTlsConfig { certificates, ..ServerTlsConfig::default() };
    let error = ServerTls::load(&config, &bench.clock.clock()).unwrap_err();
    assert!(error.to_string().contains("in another way"), "{error}");
}

#[test]
fn a_resumed_session_brings_its_certificate_once() {
    Bench::each().iter().for_each(resume_once);
}

fn resume_once(bench: &Bench) {
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let ours = issue(&bench.staff, &["dns:build.example"]);
    for version in BOTH {
        let client = bench.client(Some(&ours), version);
        let first = shake(&server, &client, "staff.example").unwrap();
        let second = shake(&server, &client, "staff.example").unwrap();
        assert!(!first.resumed && second.resumed, "{version:?}");
        assert_eq!(first.client_certificate, second.client_certificate);
        if version.version == rustls::ProtocolVersion::TLSv1_2 {
            // Its session id is the same and was used.
            assert!(!shake(&server, &client, "staff.example").unwrap().resumed);
        }
    }
}

#[test]
fn sessions_without_a_certificate_request_are_not_resumed_where_one_is_made() {
    Bench::each().iter().for_each(cross_from_where_nobody_asked);
}

fn cross_from_where_nobody_asked(bench: &Bench) {
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    for version in BOTH {
        let client = bench.client(None, version);
        shake(&server, &client, "open.example").unwrap();
        // An attack: the session of one host under the configuration of another, after a reload or a misread server
        // name.
        let mut theirs =
            ClientConnection::new(Arc::clone(&client), server_name("open.example").unwrap()).unwrap();
        let mut connection = ServerConnection::new(server.config_for(Some("staff.example"))).unwrap();
        let mut failed = false;
        for _ in 0..4 {
            let mut wire = Vec::new();
            while theirs.wants_write() {
                theirs.write_tls(&mut wire).unwrap();
            }
            let mut rest = wire.as_slice();
            while !rest.is_empty() && !failed {
                connection.read_tls(&mut rest).unwrap();
                failed = connection.process_new_packets().is_err();
            }
            let mut wire = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut wire).unwrap();
            }
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                theirs.read_tls(&mut rest).unwrap();
                let _ = theirs.process_new_packets();
            }
        }
        assert!(failed, "{version:?}");
    }
}

#[test]
fn a_certificate_that_expires_ends_its_session_and_its_connection() {
    Bench::each().iter().for_each(outlive_a_certificate);
}

fn outlive_a_certificate(bench: &Bench) {
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let short = bench.staff.issue_client("a", &[], EARLIER, NOW.saturating_add(HOUR)).unwrap();
    for version in BOTH {
        let client = bench.client(Some(&short), version);
        let facts = shake(&server, &client, "staff.example").unwrap();
        let certificate = facts.client_certificate.unwrap();
        let last = NOW.saturating_add(HOUR);
        assert!(certificate.holds(last) && !certificate.holds(last.saturating_add(Duration::from_secs(1))));
    }
    let clients = BOTH.map(|version| {
        let client = bench.client(Some(&short), version);
        shake(&server, &client, "staff.example").unwrap();
        client
    });
    bench.clock.advance(HOUR + Duration::from_secs(1));
    for client in clients {
        let refused = shake(&server, &client, "staff.example");
        assert!(
            matches!(refused, Err(Failure::Refused(HandshakeRefused::CertificateInvalid(_)))),
            "{refused:?}"
        );
        // The session is gone, so the next handshake fails as a full one.
        assert!(matches!(shake(&server, &client, "staff.example"), Err(Failure::Tls(_))));
    }
}

#[test]
fn a_revocation_reaches_handshakes_sessions_and_connections() {
    let bench = Bench::new();
    let crl = |serials: &[&[u8]]| {
        let text = bench.staff.revocation_list(serials, EARLIER, NOW.saturating_add(HOUR)).unwrap();
        fs::write(bench.path("new"), text).unwrap();
        fs::rename(bench.path("new"), bench.path("staff.crl")).unwrap();
    };
    crl(&[]);
    let (staff, partners) = (bench.authority("staff", &["staff.crl"]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let (good, bad) = (issue(&bench.staff, &["dns:a.example"]), issue(&bench.staff, &["dns:b.example"]));
    let clients = BOTH.map(|version| (bench.client(Some(&good), version), bench.client(Some(&bad), version)));
    let mut certificates = Vec::new();
    for (good, bad) in &clients {
        shake(&server, good, "staff.example").unwrap();
        certificates.push(shake(&server, bad, "staff.example").unwrap().client_certificate.unwrap());
    }
    assert!(!staff.reload_if_changed().unwrap());
    crl(&[&bad.serial]);
    assert!(staff.reload_if_changed().unwrap());
    for certificate in certificates {
        assert!(!certificate.holds(NOW));
    }
    // Before the listener has reloaded, and after.
    for (_, bad) in &clients {
        assert!(shake(&server, bad, "staff.example").is_err());
    }
    assert!(server.reload_if_changed(NOW).unwrap() && !server.reload_if_changed(NOW).unwrap());
    for (good, bad) in &clients {
        assert!(!shake(&server, good, "staff.example").unwrap().resumed);
        assert!(shake(&server, bad, "staff.example").is_err());
    }
    // An expired list proves nothing.
    bench.clock.advance(2 * HOUR);
    for (good, _) in &clients {
        assert!(shake(&server, good, "staff.example").is_err());
    }
}

#[test]
fn the_newest_list_of_an_authority_counts_whatever_the_order_of_the_files() {
    let bench = Bench::new();
    let bad = issue(&bench.staff, &["dns:b.example"]);
    let until = NOW.saturating_add(HOUR);
    let list = |serials: &[&[u8]], from: Wall| bench.staff.revocation_list(serials, from, until).unwrap();
    let (old, new) = (list(&[], EARLIER), list(&[&bad.serial], NOW));
    fs::write(bench.path("old.crl"), &old).unwrap();
    fs::write(bench.path("new.crl"), &new).unwrap();
    fs::write(bench.path("both.crl"), old + &new).unwrap();
    for (lists, is_let_in) in [
        (&["old.crl"][..], true),
        (&["new.crl"], false),
        (&["old.crl", "new.crl"], false),
        (&["new.crl", "old.crl"], false),
        (&["both.crl"], false),
    ] {
        let staff = bench.authority("staff", lists);
        let server = bench.server(&staff, &bench.authority("partners", &[]));
        for version in BOTH {
            let shaken = shake(&server, &bench.client(Some(&bad), version), "staff.example");
            assert_eq!(shaken.is_ok(), is_let_in, "{lists:?}");
        }
    }
}

#[test]
fn other_roots_end_what_the_old_ones_vouched_for() {
    let bench = Bench::new();
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let ours = issue(&bench.staff, &[]);
    let client = bench.client(Some(&ours), &version::TLS13);
    let certificate = shake(&server, &client, "staff.example").unwrap().client_certificate.unwrap();
    assert!(certificate.holds(NOW));
    fs::write(bench.path("staff.pem"), bench.partners.certificate_pem()).unwrap();
    assert!(staff.reload_if_changed().unwrap());
    assert!(!certificate.holds(NOW));
    assert!(server.reload_if_changed(NOW).unwrap());
    assert!(shake(&server, &client, "staff.example").is_err());
    // Invalid files change nothing, and are reported once.
    fs::write(bench.path("staff.pem"), "nothing").unwrap();
    assert!(matches!(staff.reload_if_changed(), Err(TlsError::Certificates(_))));
    assert!(!staff.reload_if_changed().unwrap());
    let theirs = issue(&bench.partners, &[]);
    assert!(shake(&server, &bench.client(Some(&theirs), &version::TLS13), "staff.example").is_ok());
}

#[test]
fn a_chain_beyond_all_measure_is_refused() {
    let bench = Bench::new();
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let ours = issue(&bench.staff, &[]);
    for (extra, let_in) in [(5, true), (20, false)] {
        let mut long = ours.clone();
        for _ in 0..extra {
            long.chain_pem.push_str(&issue(&bench.partners, &[]).chain_pem);
        }
        let done = shake(&server, &bench.client(Some(&long), &version::TLS13), "staff.example");
        assert_eq!(done.is_ok(), let_in, "{extra}");
    }
}

#[test]
fn a_requirement_compares_authorities_names_and_fingerprints() {
    let bench = Bench::new();
    let (staff, partners) = (bench.authority("staff", &[]), bench.authority("partners", &[]));
    let server = bench.server(&staff, &partners);
    let ours =
        issue(&bench.staff, &["dns:Build.example", "uri:spiffe://example/build", "email:a@Example.com"]);
    let client = bench.client(Some(&ours), &version::TLS13);
    let certificate = shake(&server, &client, "asks.example").unwrap().client_certificate.unwrap();
    let names = |names: &[&str]| CertificateRequirement {
        names: names.iter().map(|name| name.parse().unwrap()).collect(),
        ..CertificateRequirement::default()
    };
    let of = |authority: &Arc<ClientAuthority>| CertificateRequirement {
        authorities: vec![Arc::clone(authority)],
        ..CertificateRequirement::default()
    };
    let print = |fingerprint| CertificateRequirement {
        fingerprints: vec![fingerprint],
        ..CertificateRequirement::default()
    };
    for (requirement, expected) in [
        (CertificateRequirement::default(), Ok(())),
        (of(&staff), Ok(())),
        (of(&partners), Err(ClientMismatch::NotVouchedFor)),
        (names(&["dns:build.EXAMPLE"]), Ok(())),
        (names(&["dns:other.example", "uri:spiffe://example/build"]), Ok(())),
        (names(&["email:a@example.com"]), Ok(())),
        (names(&["email:A@example.com"]), Err(ClientMismatch::NotListed)),
        (names(&["uri:spiffe://example/BUILD"]), Err(ClientMismatch::NotListed)),
        // The common name doesn't count.
        (names(&["dns:somebody"]), Err(ClientMismatch::NotListed)),
        // A name of another type is another name.
        (names(&["uri:x:build.example"]), Err(ClientMismatch::NotListed)),
        (print(*certificate.fingerprint()), Ok(())),
        (print([0; 32]), Err(ClientMismatch::NotListed)),
    ] {
        assert_eq!(requirement.check(&certificate, NOW), expected, "{requirement:?}");
    }
    let expired = CertificateRequirement::default().check(&certificate, LATER.saturating_add(HOUR));
    assert_eq!(expired, Err(ClientMismatch::NotVouchedFor));
}

#[test]
fn a_certificate_is_described_so_that_no_part_passes_for_another() {
    let bench = Bench::new();
    let names = ["dns:a.example".parse().unwrap(), ClientName::Uri("spiffe://e/a,b".to_owned())];
    let issued = bench.staff.issue_client("x, O=Admin\nü#", &names, EARLIER, LATER).unwrap();
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes()).map(Result::unwrap).collect();
    let certificate = ClientCertificate::new(&chain, &[], None).unwrap();
    assert_eq!(certificate.subject(), "CN=x\\, O\\=Admin\\0a\\c3\\bc#");
    assert_eq!(certificate.issuer(), "CN=staff");
    assert_eq!(certificate.names_text(), "dns:a.example uri:spiffe://e/a,b");
    assert_eq!(
        (certificate.dns_names(), certificate.uris(), certificate.emails()),
        ("a.example", "spiffe://e/a,b", "")
    );
    assert_eq!((certificate.not_before(), certificate.not_after()), (EARLIER, LATER));
    assert_eq!(certificate.serial().len(), 32);
    assert!(certificate.header().starts_with(":MII") && certificate.header().ends_with(':'));
    assert_eq!(certificate.chain_header(), "");
    // No authority accepts it.
    assert!(!certificate.holds(NOW));
}

#[test]
fn names_that_are_none_are_refused() {
    for text in [
        "",
        "a.example",
        "dns:",
        "dns:*.example",
        "dns:a b",
        "uri:x",
        "email:a",
        "email:@b",
        "ip:a",
        "cn:x",
        "dns:ü",
    ] {
        assert_eq!(text.parse::<ClientName>(), Err(ClientNameError), "{text}");
    }
    for text in ["dns:a.example", "uri:spiffe://a/b", "email:a@b", "ip:192.0.2.1", "ip:::1"] {
        assert_eq!(text.parse::<ClientName>().unwrap().to_string(), text);
    }
}

#[test]
fn files_that_hold_no_roots_or_lists_are_named() {
    let bench = Bench::new();
    fs::write(bench.path("x.pem"), bench.staff.certificate_pem()).unwrap();
    let load = |roots: &str, crls: &[&str]| {
        ClientAuthority::load(&ClientAuthorityConfig {
            name: "x".to_owned(),
            roots: bench.path(roots),
            crls: crls.iter().map(|crl| bench.path(crl)).collect(),
        })
        .err()
        .map(|error| error.to_string())
    };
    assert_eq!(load("x.pem", &[]), None);
    assert!(load("none.pem", &[]).unwrap().contains("none.pem"));
    assert!(load("x.pem", &["x.pem"]).unwrap().contains("no revocation list"));
    fs::write(bench.path("bad.crl"), "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n").unwrap();
    assert!(load("x.pem", &["bad.crl"]).unwrap().contains("bad.crl"));
}

proptest! {
    #[test]
    fn bytes_that_are_no_certificate_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(ClientCertificate::new(&[CertificateDer::from(bytes)], &[], None).is_none());
    }
}

#[test]
fn files_that_cause_refusals_are_reported_with_a_remedy() {
    let bench = Bench::new();
    let write = |name: &str, text: String| fs::write(bench.path(name), text).unwrap();
    let list = |authority: &Authority, until: Wall| authority.revocation_list(&[], EARLIER, until).unwrap();
    let namesake = Authority::new("staff", EARLIER, LATER).unwrap();
    let ours = issue(&bench.staff, &["dns:build.example"]);
    write("leaf.pem", ours.chain_pem.clone());
    write("both.pem", bench.staff.certificate_pem() + &bench.partners.certificate_pem());
    write("good.crl", list(&bench.staff, LATER));
    write("old.crl", list(&bench.staff, NOW));
    write("other.crl", list(&bench.partners, LATER));
    write("forged.crl", list(&namesake, LATER));
    for (roots, lists, expected) in [
        // The controls: in each, clients of the staff get in.
        ("staff.pem", &[][..], &[][..]),
        ("staff.pem", &["good.crl"], &[]),
        ("both.pem", &["other.crl", "good.crl"], &[]),
        ("leaf.pem", &[], &[("leaf.pem", "not a CA certificate")]),
        ("staff.pem", &["old.crl"], &[("old.crl", "expired")]),
        ("staff.pem", &["other.crl"], &[("staff.pem", "no revocation list is of")]),
        ("staff.pem", &["forged.crl"], &[("forged.crl", "not signed")]),
        ("both.pem", &["other.crl"], &[("both.pem", "certificate 1")]),
    ] {
        let authority = ClientAuthority::load(&ClientAuthorityConfig {
            name: "staff".to_owned(),
            roots: bench.path(roots),
            crls: lists.iter().map(|list| bench.path(list)).collect(),
        })
        .unwrap();
        let certificates = vec![bench.certificate(
            "staff.example",
            Some(ClientAuthConfig {
                mode: ClientAuthMode::Require,
                authorities: vec![Arc::clone(&authority)],
            }),
        )];
        let config = ServerTlsConfig { certificates, ..ServerTlsConfig::default() };
        let server = ServerTls::load(&config, &bench.clock.clock()).unwrap();
        let client = bench.client(Some(&ours), &version::TLS13);
        let is_let_in = shake(&server, &client, "staff.example").is_ok();
        assert_eq!(is_let_in, expected.is_empty(), "{roots} {lists:?}");
        let faults = authority.faults(NOW);
        assert_eq!(faults.len(), expected.len(), "{roots} {lists:?}: {faults:?}");
        for (fault, (path, text)) in faults.iter().zip(expected) {
            assert_eq!(fault.path, bench.path(path));
            assert!(fault.to_string().contains(text), "{fault}");
            let remedy = fault.problem.remedy();
            assert!(!remedy.contains("crl_files =") && !remedy.contains("remove the list"), "{remedy}");
        }
    }
}

/// Of each set of lists: which clients get in, and what is told.
#[test]
fn only_revocation_lists_in_use_are_reported() {
    let bench = Bench::new();
    let write = |name: &str, text: String| fs::write(bench.path(name), text).unwrap();
    let namesake = Authority::new("staff", EARLIER, LATER).unwrap();
    write("both.pem", bench.staff.certificate_pem() + &bench.partners.certificate_pem());
    write("namesakes.pem", bench.staff.certificate_pem() + &namesake.certificate_pem());
    let list =
        |authority: &Authority, from: Wall, until: Wall| authority.revocation_list(&[], from, until).unwrap();
    let (before, after) = (NOW.saturating_add(HOUR), NOW.saturating_add(2 * HOUR));
    let expired = list(&bench.staff, EARLIER, NOW);
    let current = list(&bench.staff, NOW, LATER);
    let outdated = list(&bench.staff, EARLIER, LATER);
    // It was made later than the one that still holds.
    let short = list(&bench.staff, Wall::from_unix_seconds(1_700_000_000), NOW);
    let future = list(&bench.staff, after, LATER);
    let soon = list(&bench.staff, NOW.saturating_add(Duration::from_secs(5)), LATER);
    let forged = list(&namesake, EARLIER, LATER);
    let partners = list(&bench.partners, NOW, LATER);
    let partners_expired = list(&bench.partners, EARLIER, NOW);
    let all_refused = "every client that it covers is refused";
    for (what, roots, text, staff_get_in, partners_get_in, told) in [
        ("current", "both.pem", vec![&current, &partners], true, true, &[][..]),
        ("expired", "both.pem", vec![&expired, &partners], false, true, &[all_refused]),
        ("expired first", "both.pem", vec![&expired, &current, &partners], true, true, &[]),
        ("expired last", "both.pem", vec![&current, &expired, &partners], true, true, &[]),
        ("expired and another's", "staff.pem", vec![&expired, &partners], false, false, &[all_refused]),
        ("each has one", "both.pem", vec![&current, &partners_expired], true, false, &[all_refused]),
        ("both expired", "both.pem", vec![&expired, &partners_expired], false, false, &[all_refused; 2]),
        ("the newest expired", "both.pem", vec![&outdated, &short, &partners], false, true, &[all_refused]),
        ("forged and old", "both.pem", vec![&forged, &current, &partners], true, true, &[]),
        ("forged", "both.pem", vec![&forged, &expired, &partners], false, true, &["not signed by"]),
        ("namesakes", "namesakes.pem", vec![&forged], false, false, &["not signed by certificate 1"]),
        ("namesakes", "namesakes.pem", vec![&current], true, false, &["not signed by certificate 2"]),
        ("future", "both.pem", vec![&future, &partners], true, true, &["is in the future"]),
        ("future first", "both.pem", vec![&future, &current, &partners], true, true, &["is in the future"]),
        ("clocks differ", "both.pem", vec![&soon, &partners], true, true, &[]),
    ] {
        let pem: String = text.into_iter().map(String::as_str).collect();
        write("lists.crl", pem);
        let authority = ClientAuthority::load(&ClientAuthorityConfig {
            name: "staff".to_owned(),
            roots: bench.path(roots),
            crls: vec![bench.path("lists.crl")],
        })
        .unwrap();
        let server = bench.server(&authority, &authority);
        for (one, gets_in) in [(&bench.staff, staff_get_in), (&bench.partners, partners_get_in)] {
            let client = bench.client(Some(&issue(one, &["dns:build.example"])), &version::TLS13);
            assert_eq!(shake(&server, &client, "staff.example").is_ok(), gets_in, "{what}");
        }
        let faults = authority.faults(NOW);
        let messages: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), told.len(), "{what}: {messages:?}");
        for (message, told) in messages.iter().zip(told) {
            assert!(message.contains(told), "{what}: {message}");
        }
        for fault in &faults {
            assert_eq!(fault.problem.refuses_clients(), !fault.to_string().contains("future"), "{what}");
        }
        if what.starts_with("future") {
            assert_eq!(authority.faults(before).len(), 1, "{what}");
            assert_eq!(authority.faults(after), [], "{what}");
        }
    }
}

/// Lists that are split by the kinds of certificates they cover supersede those of their own kind.
#[test]
fn a_list_of_one_scope_supersedes_none_of_another() {
    use rcgen::{
        BasicConstraints, CertificateRevocationListParams, CrlDistributionPoint, CrlIssuingDistributionPoint,
        CrlScope, IsCa, Issuer, KeyIdMethod, KeyPair, SerialNumber, date_time_ymd,
    };
    let dir = tempfile::tempdir().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "scoped");
    let key = KeyPair::generate().unwrap();
    fs::write(dir.path().join("roots.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let list = |scope: Option<Option<CrlScope>>, from: i32, until: i32| {
        let uris = vec!["http://crl.example/".to_owned()];
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: scope.map(|scope| CrlIssuingDistributionPoint {
                distribution_point: CrlDistributionPoint { uris },
                scope,
            }),
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&issuer).unwrap().pem().unwrap()
    };
    let (all, users, authorities) =
        (None, Some(Some(CrlScope::UserCertsOnly)), Some(Some(CrlScope::CaCertsOnly)));
    for (newer, older, is_told) in [
        (all, all, false),
        (all, users, true),
        (users, users, false),
        (users, authorities, true),
        (users, all, true),
    ] {
        fs::write(dir.path().join("lists.crl"), list(older, 2020, 2021) + &list(newer, 2022, 2090)).unwrap();
        let authority = ClientAuthority::load(&ClientAuthorityConfig {
            name: "scoped".to_owned(),
            roots: dir.path().join("roots.pem"),
            crls: vec![dir.path().join("lists.crl")],
        })
        .unwrap();
        assert_eq!(authority.faults(NOW).len(), usize::from(is_told), "{newer:?} {older:?}");
        assert_eq!(authority.revocation_lists().len(), 1 + usize::from(is_told));
    }
}

/// Of each set of lists, which clients get in. Those with a letter have that distribution point; `revoked` ones are in the
/// complete list, and in the partition of their point if they have one.
#[test]
fn a_partition_covers_only_the_certificates_of_its_distribution_point() {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
        CrlIssuingDistributionPoint, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
        date_time_ymd,
    };
    let dir = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "partitioned");
    let key = KeyPair::generate().unwrap();
    fs::write(dir.path().join("roots.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let point = |name: &str| CrlDistributionPoint { uris: vec![format!("http://crl.example/{name}")] };
    let leaf = |serial: u64, name: Option<&str>| {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.crl_distribution_points = name.map(point).into_iter().collect();
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &issuer).unwrap().der().clone()
    };
    let clients = [
        ("plain", leaf(1, None)),
        ("plain, revoked", leaf(2, None)),
        ("a", leaf(3, Some("a"))),
        ("a, revoked", leaf(4, Some("a"))),
        ("b", leaf(5, Some("b"))),
    ];
    let list = |name: Option<&str>, year: i32, serials: &[u64]| {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(year, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: name
                .map(|name| CrlIssuingDistributionPoint { distribution_point: point(name), scope: None }),
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&issuer).unwrap().pem().unwrap()
    };
    let complete = list(None, 2021, &[2, 4]);
    let before_the_revocation = list(None, 2021, &[2]);
    let (a, b) = (list(Some("a"), 2022, &[4]), list(Some("b"), 2022, &[]));
    for (what, lists, admitted) in [
        ("complete", vec![&complete], &["plain", "a", "b"][..]),
        ("a newer partition", vec![&complete, &b], &["plain", "a", "b"]),
        ("a newer partition first", vec![&b, &complete], &["plain", "a", "b"]),
        ("only the partition revokes", vec![&before_the_revocation, &a], &["plain", "a", "b"]),
        ("partitions", vec![&a, &b], &["a", "b"]),
        ("one partition", vec![&a], &["a"]),
    ] {
        let text: String = lists.into_iter().map(String::as_str).collect();
        fs::write(dir.path().join("lists.crl"), text).unwrap();
        let authority = ClientAuthority::load(&ClientAuthorityConfig {
            name: "partitioned".to_owned(),
            roots: dir.path().join("roots.pem"),
            crls: vec![dir.path().join("lists.crl")],
        })
        .unwrap();
        let now = super::unix_time(NOW);
        let is_admitted = |(_, leaf): &&(&str, CertificateDer<'static>)| {
            authority.verify(std::slice::from_ref(leaf), now).is_ok()
        };
        let seen: Vec<_> = clients.iter().filter(is_admitted).map(|(name, _)| *name).collect();
        assert_eq!(seen, admitted, "{what}");
    }
}

#[test]
fn a_list_counts_until_its_time_has_run_out() {
    let bench = Bench::new();
    let end = NOW.saturating_add(HOUR);
    fs::write(bench.path("staff.crl"), bench.staff.revocation_list(&[], NOW, end).unwrap()).unwrap();
    let staff = bench.authority("staff", &["staff.crl"]);
    let lists = staff.revocation_lists();
    assert_eq!((lists.len(), lists[0].this_update, lists[0].next_update), (1, NOW, end));
    let server = bench.server(&staff, &bench.authority("partners", &[]));
    let client = bench.client(Some(&issue(&bench.staff, &["dns:build.example"])), &version::TLS13);
    let second = Duration::from_secs(1);
    for (later, holds) in [(Duration::ZERO, true), (HOUR - second, true), (second, false)] {
        bench.clock.advance(later);
        let now = bench.clock.clock().wall();
        assert_eq!(staff.faults(now).is_empty(), holds, "{now:?}");
        assert_eq!(shake(&server, &client, "staff.example").is_ok(), holds, "{now:?}");
    }
}

#[test]
fn a_clients_own_certificate_among_the_roots_is_no_fault() {
    let bench = Bench::new();
    let mut params = rcgen::CertificateParams::new(vec!["own.example".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let own = params.self_signed(&key).unwrap();
    fs::write(bench.path("own.pem"), own.pem()).unwrap();
    let authority = bench.authority("own", &[]);
    assert_eq!(authority.faults(NOW), []);
    let now = unix_time(Wall::from_unix_seconds(1_700_000_000));
    authority.verify(&[own.der().clone()], now).unwrap();
}

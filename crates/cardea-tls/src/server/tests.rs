//! Real handshakes in memory between a rustls client and a listener's configuration.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cardea_clock::{Clock, ManualClock, Wall};
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue, WebPkiServerVerifier,
};
use rustls::crypto::CryptoProvider;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion, version,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;

use super::ServerTls;
use crate::authority::Authority;
use crate::testing::carry;
use crate::{
    CertificateConfig, ClientTlsConfig, HandshakeFacts, KeyType, MinVersion, Roots, ServerTlsConfig,
    StatelessTickets, TicketKeys, TicketSecretConfig, TlsError, UnknownName, client_config, provider,
    server_name,
};

mod replaced_names;
mod unusable;

/// The certificates of these tests are valid for so long that clients may use the real time.
const NOW: Wall = Wall::from_unix_seconds(1_800_000_000);
const EARLIER: Wall = Wall::from_unix_seconds(1_000_000_000);
const LATER: Wall = Wall::from_unix_seconds(9_000_000_000);

/// A clock that stays at [`NOW`].
fn clock() -> Clock {
    ManualClock::new(NOW).clock()
}

/// A folder with an authority and its certificates.
struct Bench {
    dir: TempDir,
    authority: Authority,
    config: ServerTlsConfig,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("test", EARLIER, LATER).unwrap();
        fs::write(dir.path().join("ca.pem"), authority.certificate_pem()).unwrap();
        Self { dir, authority, config: ServerTlsConfig::default() }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Issues a certificate and writes its files as an administrator's tool does: with a rename.
    fn write(&self, file: &str, key_type: KeyType, names: &[&str]) {
        let issued = self.authority.issue_with(key_type, names, EARLIER, LATER).unwrap();
        for (suffix, text) in [("pem", issued.chain_pem.as_bytes()), ("key", issued.key_pem.as_bytes())] {
            let new = self.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, self.path().join(format!("{file}.{suffix}"))).unwrap();
        }
    }

    fn with(self, file: &str, names: &[&str]) -> Self {
        self.with_key(file, KeyType::Ecdsa, names, "default")
    }

    fn with_domain(self, file: &str, names: &[&str], trust_domain: &str) -> Self {
        self.with_key(file, KeyType::Ecdsa, names, trust_domain)
    }

    fn with_key(mut self, file: &str, key_type: KeyType, names: &[&str], trust_domain: &str) -> Self {
        self.write(file, key_type, names);
        self.config.certificates.push(CertificateConfig {
            chain: self.path().join(format!("{file}.pem")),
            key: self.path().join(format!("{file}.key")),
            hosts: Vec::new(),
            managed: None,
            trust_domain: trust_domain.to_owned(),
            client_auth: None,
            ocsp: None,
        });
        self
    }

    fn load(&self) -> ServerTls {
        ServerTls::load(&self.config, &clock()).unwrap()
    }

    /// A client that trusts the authority, through the crate's own configuration.
    fn client(&self) -> ClientConfig {
        let config = ClientTlsConfig { roots: Roots::File(self.path().join("ca.pem")), ..Default::default() };
        client_config(&config).unwrap().as_ref().clone()
    }

    /// A client with chosen versions and cryptography.
    fn client_with(
        &self,
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path().join("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_webpki_verifier(verifier)
            .with_no_client_auth()
    }
}

struct Handshake {
    facts: HandshakeFacts,
    leaf: CertificateDer<'static>,
}

/// Runs a handshake and passes the tickets on, so that the client can resume.
fn shake(server: &ServerTls, client: &Arc<ClientConfig>, name: &str) -> Result<Handshake, rustls::Error> {
    let mut client = ClientConnection::new(Arc::clone(client), server_name(name).unwrap())?;
    let mut server = ServerConnection::new(server.config())?;
    while carry(&mut client, &mut server)? + carry(&mut server, &mut client)? > 0 {}
    Ok(Handshake {
        facts: HandshakeFacts::of(&mut server).expect("the handshake is complete"),
        leaf: client.peer_certificates().unwrap()[0].clone().into_owned(),
    })
}

fn served(bench: &Bench, file: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(bench.path().join(format!("{file}.pem"))).unwrap()
}

#[test]
fn a_server_name_selects_exact_before_wildcard_before_default() {
    let bench = Bench::new()
        .with("default", &["default.example", "127.0.0.1"])
        .with("wild", &["*.example.com"])
        .with("exact", &["exact.example.com", "example.com"]);
    let server = bench.load();
    let client = Arc::new(bench.client());
    let cases = [
        ("default.example", "default"),
        ("exact.example.com", "exact"),
        ("EXACT.example.com", "exact"),
        ("example.com", "exact"),
        ("other.example.com", "wild"),
        // An address is never sent as a server name (RFC 6066 §3).
        ("127.0.0.1", "default"),
    ];
    for (name, file) in cases {
        assert_eq!(shake(&server, &client, name).unwrap().leaf, served(&bench, file), "{name}");
    }
    for name in ["a.b.example.com", "unknown.example"] {
        let error =
            shake(&server, &client, name).err().expect("a client refuses a certificate for another name");
        assert!(matches!(error, rustls::Error::InvalidCertificate(_)), "{name}: {error}");
    }
}

#[test]
fn unknown_names_can_be_refused_in_the_handshake() {
    let mut bench = Bench::new().with("a", &["a.example", "127.0.0.1"]);
    bench.config.unknown_name = UnknownName::Refuse;
    let server = bench.load();
    let client = Arc::new(bench.client());
    assert!(shake(&server, &client, "a.example").is_ok());
    for name in ["b.example", "127.0.0.1"] {
        let error = shake(&server, &client, name).err().expect("refused");
        assert!(error.to_string().contains("no server certificate chain resolved"), "{name}: {error}");
    }
    assert_eq!(server.trust_domain_of("b.example"), None);
    assert_eq!(server.trust_domain_of_connection(None), None);
    assert!(server.is_misdirected(Some("a.example"), "b.example"));
}

#[test]
fn the_best_key_type_that_the_client_can_verify_is_served() {
    let bench = Bench::new().with_key("rsa", KeyType::Rsa, &["a.example"], "default").with_key(
        "ecdsa",
        KeyType::Ecdsa,
        &["a.example"],
        "default",
    );
    let server = bench.load();
    for version in [&version::TLS13, &version::TLS12] {
        let all = Arc::new(bench.client_with(provider().as_ref().clone(), &[version]));
        assert_eq!(shake(&server, &all, "a.example").unwrap().leaf, served(&bench, "ecdsa"));
    }
    // In TLS 1.2 a client with RSA suites only can't use an ECDSA certificate.
    let mut rsa_only = provider().as_ref().clone();
    rsa_only.cipher_suites.retain(|suite| format!("{:?}", suite.suite()).contains("ECDHE_RSA"));
    let rsa_only = Arc::new(bench.client_with(rsa_only, &[&version::TLS12]));
    // The authority signs with ECDSA, so this client must be able to verify that.
    match shake(&server, &rsa_only, "a.example") {
        Ok(handshake) => assert_eq!(handshake.leaf, served(&bench, "rsa")),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn version_suite_group_and_protocol_are_reported() {
    let bench = Bench::new().with("a", &["a.example"]);
    let server = bench.load();
    let mut client = bench.client();
    client.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let facts = shake(&server, &Arc::new(client), "A.example.").unwrap().facts;
    assert_eq!(
        facts,
        HandshakeFacts {
            protocol: "TLSv1.3",
            cipher_suite: "TLS_AES_128_GCM_SHA256",
            cipher_hash: "SHA256",
            key_exchange_group: "X25519MLKEM768",
            sni: Some("a.example".into()),
            // Our order of preference.
            alpn: Some("h2"),
            resumed: false,
            client_certificate: None,
        }
    );
    let client = bench.client_with(rustls::crypto::aws_lc_rs::default_provider(), &[&version::TLS12]);
    let facts = shake(&server, &Arc::new(client), "a.example").unwrap().facts;
    assert_eq!((facts.protocol, facts.alpn), ("TLSv1.2", None));
    assert_eq!(facts.cipher_suite, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
    // The hybrid exists only in TLS 1.3.
    assert_eq!(facts.key_exchange_group, "x25519");
}

#[test]
fn our_order_of_suites_wins_over_the_clients() {
    let bench = Bench::new().with("a", &["a.example"]);
    let mut reversed = provider().as_ref().clone();
    reversed.cipher_suites.reverse();
    let client = bench.client_with(reversed, &[&version::TLS13]);
    let facts = shake(&bench.load(), &Arc::new(client), "a.example").unwrap().facts;
    assert_eq!(facts.cipher_suite, "TLS_AES_128_GCM_SHA256");
}

#[test]
fn a_client_with_other_protocols_only_is_refused() {
    let bench = Bench::new().with("a", &["a.example"]);
    let mut client = bench.client();
    client.alpn_protocols = vec![b"spdy/3".to_vec()];
    let error = shake(&bench.load(), &Arc::new(client), "a.example").err();
    assert_eq!(error, Some(rustls::Error::NoApplicationProtocol));
}

#[test]
fn the_minimum_version_holds() {
    let mut bench = Bench::new().with("a", &["a.example"]);
    bench.config.min_version = MinVersion::Tls13;
    let server = bench.load();
    let old = bench.client_with(provider().as_ref().clone(), &[&version::TLS12]);
    assert!(matches!(shake(&server, &Arc::new(old), "a.example"), Err(rustls::Error::PeerIncompatible(_))));
    assert!(shake(&server, &Arc::new(bench.client()), "a.example").is_ok());
}

#[test]
fn sessions_resume_and_never_cross_listeners() {
    let bench = Bench::new().with("a", &["a.example"]);
    let (server, other) = (bench.load(), bench.load());
    for version in [&version::TLS13, &version::TLS12] {
        let client = Arc::new(bench.client_with(provider().as_ref().clone(), &[version]));
        assert!(!shake(&server, &client, "a.example").unwrap().facts.resumed);
        assert!(shake(&server, &client, "a.example").unwrap().facts.resumed, "{version:?}");
        assert!(!shake(&other, &client, "a.example").unwrap().facts.resumed, "{version:?}");
    }
}

/// A client's store that offers every session to every server, as an attacker's would.
#[derive(Debug)]
struct OneDrawer(ClientSessionMemoryCache, ServerName<'static>);

impl ClientSessionStore for OneDrawer {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(self.1.clone(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&self.1)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(self.1.clone(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&self.1)
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&self.1);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(self.1.clone(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&self.1)
    }
}

/// Uses a client that offers any session for any name.
fn resumes_under_its_own_name_alone(bench: &Bench) {
    let server = bench.load();
    for version in [&version::TLS13, &version::TLS12] {
        let mut client = bench.client_with(provider().as_ref().clone(), &[version]);
        let drawer = OneDrawer(ClientSessionMemoryCache::new(8), server_name("drawer.example").unwrap());
        client.resumption = Resumption::store(Arc::new(drawer));
        let client = Arc::new(client);
        let resumed = |name| shake(&server, &client, name).unwrap().facts.resumed;
        assert!(!resumed("a.example"));
        assert!(resumed("a.example"), "{version:?}: the control");
        assert!(!resumed("step-up.example"), "{version:?}");
    }
}

#[test]
fn a_session_never_resumes_under_another_name() {
    let bench =
        Bench::new().with_domain("a", &["a.example"], "one").with_domain("b", &["step-up.example"], "two");
    resumes_under_its_own_name_alone(&bench);
}

#[test]
fn resumption_can_be_switched_off() {
    for (sessions_max, session_lifetime) in [(0, Duration::from_secs(60)), (10, Duration::ZERO)] {
        let mut bench = Bench::new().with("a", &["a.example"]);
        (bench.config.sessions_max, bench.config.session_lifetime) = (sessions_max, session_lifetime);
        let server = bench.load();
        for version in [&version::TLS13, &version::TLS12] {
            let client = Arc::new(bench.client_with(provider().as_ref().clone(), &[version]));
            for _ in 0..2 {
                assert!(!shake(&server, &client, "a.example").unwrap().facts.resumed);
            }
        }
    }
}

#[test]
fn a_session_resumes_until_its_lifetime_ends() {
    let bench = Bench::new().with("a", &["a.example"]);
    let time = ManualClock::new(NOW);
    let server = ServerTls::load(&bench.config, &time.clock()).unwrap();
    for version in [&version::TLS13, &version::TLS12] {
        let client = Arc::new(bench.client_with(provider().as_ref().clone(), &[version]));
        let resumed = || shake(&server, &client, "a.example").unwrap().facts.resumed;
        assert!(!resumed());
        time.advance(bench.config.session_lifetime - Duration::from_secs(1));
        assert!(resumed(), "{version:?}");
        time.advance(bench.config.session_lifetime);
        assert!(!resumed(), "{version:?}");
    }
    time.advance(bench.config.session_lifetime);
    assert!(!server.reload_if_changed(NOW).unwrap());
    let stats = server.session_stats();
    assert_eq!((stats.sessions, stats.bytes), (0, 0), "expired keys are wiped without being asked for");
    assert_eq!((stats.hits, stats.evicted), (2, 0));
}

#[test]
fn nodes_of_a_fleet_resume_each_others_sessions_and_trust_domains_stay_apart() {
    let bench = |domain: &str, context: &str| {
        let mut bench = Bench::new().with_domain("a", &["a.example"], domain);
        let file = bench.path().join("tickets.secret");
        fs::write(&file, format!("{} {}", NOW.unix_seconds(), "ab".repeat(32))).unwrap();
        let keys = TicketKeys::Fleet(TicketSecretConfig { file, context: context.to_owned() });
        bench.config.stateless_tickets = Some(StatelessTickets { keys, tls12: true });
        bench
    };
    let one = bench("one", "public");
    let (begun, resumed) = (one.load(), one.load());
    for version in [&version::TLS13, &version::TLS12] {
        let client = Arc::new(one.client_with(provider().as_ref().clone(), &[version]));
        assert!(!shake(&begun, &client, "a.example").unwrap().facts.resumed);
        assert!(shake(&resumed, &client, "a.example").unwrap().facts.resumed, "{version:?}");
        for (domain, context) in [("two", "public"), ("one", "admin")] {
            // The same names, authority and secret, so that only the tested property differs.
            let mut other = bench(domain, context);
            other.config.certificates = one.config.certificates.clone();
            other.config.certificates[0].trust_domain = domain.to_owned();
            let client = Arc::new(one.client_with(provider().as_ref().clone(), &[version]));
            shake(&begun, &client, "a.example").unwrap();
            let facts = shake(&other.load(), &client, "a.example").unwrap().facts;
            assert!(!facts.resumed, "{version:?} {domain} {context}");
        }
    }
}

#[test]
fn tickets_with_keys_of_the_process_need_no_memory_of_sessions() {
    for tls12 in [false, true] {
        let mut bench = Bench::new().with("a", &["a.example"]);
        bench.config.sessions_max = 0;
        bench.config.stateless_tickets = Some(StatelessTickets { keys: TicketKeys::Process, tls12 });
        let (server, restarted) = (bench.load(), bench.load());
        for version in [&version::TLS13, &version::TLS12] {
            let client = Arc::new(bench.client_with(provider().as_ref().clone(), &[version]));
            let resumed = |server| shake(server, &client, "a.example").unwrap().facts.resumed;
            let expected = tls12 || version == &version::TLS13;
            assert!(!resumed(&server));
            assert_eq!(resumed(&server), expected, "{version:?} {tls12}");
            assert!(!resumed(&restarted), "{version:?} {tls12}");
        }
        assert_eq!(server.session_stats().sessions, 0);
    }
}

#[test]
fn sessions_of_tls_1_2_are_remembered_where_tickets_are_for_tls_1_3_alone() {
    let mut bench = Bench::new().with("a", &["a.example"]);
    bench.config.stateless_tickets = Some(StatelessTickets { keys: TicketKeys::Process, tls12: false });
    let server = bench.load();
    let client = Arc::new(bench.client_with(provider().as_ref().clone(), &[&version::TLS12]));
    for expected in [false, true, true] {
        assert_eq!(shake(&server, &client, "a.example").unwrap().facts.resumed, expected);
    }
    let stats = server.session_stats();
    assert_eq!((stats.sessions, stats.hits), (1, 2));
}

#[test]
fn a_ticket_that_carries_its_session_never_resumes_under_another_name() {
    let mut bench =
        Bench::new().with_domain("a", &["a.example"], "one").with_domain("b", &["step-up.example"], "two");
    bench.config.stateless_tickets = Some(StatelessTickets { keys: TicketKeys::Process, tls12: true });
    resumes_under_its_own_name_alone(&bench);
}

#[test]
fn a_reload_serves_the_new_certificate_and_keeps_sessions_of_other_hosts() {
    for (stateless, version) in
        [(false, &version::TLS13), (false, &version::TLS12), (true, &version::TLS13), (true, &version::TLS12)]
    {
        let mut bench = Bench::new().with("a", &["a.example", "*.a.example"]).with("b", &["b.example"]);
        if stateless {
            let tickets = StatelessTickets { keys: TicketKeys::Process, tls12: true };
            bench.config.stateless_tickets = Some(tickets);
        }
        let server = bench.load();
        let client = Arc::new(bench.client_with(provider().as_ref().clone(), &[version]));
        let resumed = |name: &str| shake(&server, &client, name).unwrap().facts.resumed;
        let before = shake(&server, &client, "a.example").unwrap().leaf;
        assert!(!resumed("x.a.example") && !resumed("b.example"));
        assert!(!server.reload_if_changed(NOW).unwrap());

        // Written again with the same key.
        for file in ["a.pem", "a.key"] {
            let content = fs::read(bench.path().join(file)).unwrap();
            fs::write(bench.path().join("new"), content).unwrap();
            fs::rename(bench.path().join("new"), bench.path().join(file)).unwrap();
        }
        assert!(server.reload_if_changed(NOW).unwrap());
        for host in ["a.example", "x.a.example", "b.example"] {
            assert!(resumed(host), "{host} {stateless} {version:?}");
        }

        bench.write("a", KeyType::Ecdsa, &["a.example", "*.a.example"]);
        assert!(server.reload_if_changed(NOW).unwrap());
        assert!(!server.reload_if_changed(NOW).unwrap());
        let after = shake(&server, &client, "a.example").unwrap();
        assert!(!after.facts.resumed, "its key has changed {stateless} {version:?}");
        assert_ne!(after.leaf, before);
        assert_eq!(after.leaf, served(&bench, "a"));
        assert!(!resumed("x.a.example"));
        assert!(resumed("b.example"), "that of another host has not");
        assert!(resumed("a.example"), "from then on as ever");
    }
}

#[test]
fn a_session_ends_with_the_key_whoever_replaces_it() {
    let mut bench = Bench::new().with("a", &["a.example"]);
    let file = bench.path().join("tickets.secret");
    fs::write(&file, format!("{} {}", NOW.unix_seconds(), "ab".repeat(32))).unwrap();
    let keys = TicketKeys::Fleet(TicketSecretConfig { file, context: "public".to_owned() });
    bench.config.stateless_tickets = Some(StatelessTickets { keys, tls12: true });
    let node = bench.load();
    let client = Arc::new(bench.client());
    shake(&node, &client, "a.example").unwrap();
    assert!(shake(&bench.load(), &client, "a.example").unwrap().facts.resumed, "the control: another node");
    bench.write("a", KeyType::Ecdsa, &["a.example"]);
    assert!(!shake(&bench.load(), &client, "a.example").unwrap().facts.resumed, "a node with the new key");
    assert!(!shake(&node, &client, "a.example").unwrap().facts.resumed, "a node that has the old one still");
}

#[test]
fn a_reload_that_moves_hosts_forgets_sessions() {
    let bench = Bench::new().with_domain("a", &["a.example", "b.example"], "one").with_domain(
        "b",
        &["c.example"],
        "two",
    );
    let server = bench.load();
    let client = Arc::new(bench.client());
    shake(&server, &client, "a.example").unwrap();
    shake(&server, &client, "b.example").unwrap();
    bench.write("a", KeyType::Ecdsa, &["a.example"]);
    assert!(server.reload_if_changed(NOW).unwrap());
    bench.write("b", KeyType::Ecdsa, &["b.example", "c.example"]);
    assert!(server.reload_if_changed(NOW).unwrap());
    assert!(!shake(&server, &client, "b.example").unwrap().facts.resumed);
    assert!(server.is_misdirected(Some("a.example"), "b.example"));
}

#[test]
fn bad_files_keep_the_old_certificate_and_hold_up_no_other() {
    let bench = Bench::new().with("a", &["a.example"]).with("b", &["b.example"]);
    let server = bench.load();
    let client = Arc::new(bench.client());
    let before = shake(&server, &client, "a.example").unwrap().leaf;
    let complaint = |result: Result<bool, TlsError>| result.expect_err("a bad file").to_string();

    for (content, expected) in
        [(Some("garbage"), "a.pem: holds no certificate"), (None, "a.pem: can't be read")]
    {
        match content {
            Some(text) => fs::write(bench.path().join("a.pem"), text).unwrap(),
            None => fs::remove_file(bench.path().join("a.pem")).unwrap(),
        }
        bench.write("b", KeyType::Ecdsa, &["b.example"]);
        let error = complaint(server.reload_if_changed(NOW));
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1);
        // Reported once; the file is still checked.
        assert!(!server.reload_if_changed(NOW).unwrap());
        let client = Arc::new(bench.client());
        assert_eq!(shake(&server, &client, "a.example").unwrap().leaf, before);
        assert_eq!(shake(&server, &client, "b.example").unwrap().leaf, served(&bench, "b"));
    }

    bench.write("a", KeyType::Ecdsa, &["a.example"]);
    assert!(server.reload_if_changed(NOW).unwrap());
    let client = Arc::new(bench.client());
    assert_eq!(shake(&server, &client, "a.example").unwrap().leaf, served(&bench, "a"));
}

#[test]
fn a_certificate_is_loaded_once_it_becomes_valid() {
    let bench = Bench::new().with("a", &["a.example"]);
    let server = bench.load();
    let soon = NOW.saturating_add(Duration::from_secs(60));
    let issued = bench.authority.issue(&["a.example"], soon, LATER).unwrap();
    fs::write(bench.path().join("a.pem"), &issued.chain_pem).unwrap();
    fs::write(bench.path().join("a.key"), issued.key_pem.as_bytes()).unwrap();
    assert!(server.reload_if_changed(NOW).unwrap_err().to_string().contains("is not valid before"));
    assert!(server.reload_if_changed(soon).unwrap());
    assert_eq!(server.certificates()[0].not_before, soon);
}

#[test]
fn a_reload_never_puts_a_host_into_two_trust_domains() {
    let bench = Bench::new()
        .with_domain("a", &["a.example"], "one")
        .with_domain("b", &["b.example"], "two")
        .with_domain("c", &["c.example"], "two");
    let server = bench.load();
    bench.write("b", KeyType::Ecdsa, &["a.example", "b.example"]);
    bench.write("c", KeyType::Ecdsa, &["c.example", "d.example"]);
    let error = server.reload_if_changed(NOW).unwrap_err().to_string();
    assert!(error.contains("serves \"a.example\" in trust domain \"two\""), "{error}");
    assert!(!server.reload_if_changed(NOW).unwrap());
    assert_eq!(server.certificates()[1].hosts, ["b.example"]);
    assert_eq!(server.certificates()[2].hosts, ["c.example", "d.example"]);
    assert!(matches!(ServerTls::load(&bench.config, &clock()), Err(TlsError::Certificates(_))));
}

#[test]
fn trust_domains_follow_the_certificate_that_a_host_gets() {
    let bench = Bench::new()
        .with_domain("a", &["a.example", "*.example.com", "127.0.0.1"], "one")
        .with_domain("b", &["step-up.example.com"], "two");
    let server = bench.load();
    let one = server.trust_domain_of("a.example").unwrap();
    let two = server.trust_domain_of("step-up.example.com").unwrap();
    assert_ne!(one, two);
    assert_eq!(server.trust_domain_name(two).as_deref(), Some("two"));
    assert_eq!(server.trust_domain_of_connection(None), Some(one));

    // The connection's server name, the request's host, and whether 421 is expected.
    let cases = [
        (Some("a.example"), "a.example", false),
        (Some("a.example"), "x.example.com", false),
        (Some("a.example"), "X.Example.Com.", false),
        (Some("x.example.com"), "step-up.example.com", true),
        (Some("x.example.com"), "STEP-UP.example.com.", true),
        (Some("step-up.example.com"), "x.example.com", true),
        (Some("step-up.example.com"), "step-up.example.com", false),
        (Some("step-up.example.com"), "unknown.example", true),
        (None, "127.0.0.1", false),
        (None, "unknown.example", false),
        (None, "step-up.example.com", true),
        (Some("a.example"), &"x".repeat(300), false),
        (Some("a.example"), &"X".repeat(300), false),
        (Some("a.example"), "", false),
    ];
    for (sni, host, misdirected) in cases {
        assert_eq!(server.is_misdirected(sni, host), misdirected, "{sni:?} {host}");
    }
}

#[test]
fn all_certificates_are_complained_of_at_once() {
    let bench = Bench::new().with("a", &["a.example"]).with("b", &["b.example"]);
    fs::write(bench.path().join("a.pem"), "").unwrap();
    fs::write(bench.path().join("b.key"), "").unwrap();
    let error = ServerTls::load(&bench.config, &clock()).unwrap_err().to_string();
    let files: BTreeSet<_> =
        error.lines().filter_map(|line| line.split(": ").next()?.rsplit('/').next()).collect();
    assert_eq!(files, BTreeSet::from(["a.pem", "b.key"]));
    assert!(matches!(ServerTls::load(&ServerTlsConfig::default(), &clock()), Err(TlsError::NoCertificate)));
}

#[test]
fn certificates_are_described_for_metrics() {
    let bench =
        Bench::new().with("a", &["a.example"]).with_key("b", KeyType::Ed25519, &["b.example"], "other");
    let server = bench.load();
    let found: Vec<_> = server
        .certificates()
        .into_iter()
        .map(|info| (info.hosts, info.not_after, info.key_type.as_str(), info.path, info.trust_domain))
        .collect();
    let expected = [("a", "ecdsa", "default"), ("b", "ed25519", "other")].map(|(file, key_type, domain)| {
        let path = bench.path().join(format!("{file}.pem"));
        (vec![format!("{file}.example")], LATER, key_type, path, domain.to_owned())
    });
    assert_eq!(found, expected);
}

#[test]
fn an_unfinished_handshake_has_no_facts() {
    let bench = Bench::new().with("a", &["a.example"]);
    assert_eq!(HandshakeFacts::of(&mut ServerConnection::new(bench.load().config()).unwrap()), None);
}

#[test]
fn a_client_refuses_a_server_that_its_roots_do_not_vouch_for() {
    let (bench, stranger) = (Bench::new().with("a", &["a.example"]), Bench::new());
    assert!(shake(&bench.load(), &Arc::new(stranger.client()), "a.example").is_err());
    let mut client = bench.client();
    client.resumption = Resumption::disabled();
    assert!(shake(&bench.load(), &Arc::new(client), "a.example").is_ok());
    assert!(matches!(server_name("[::1]"), Ok(ServerName::IpAddress(_))));
}

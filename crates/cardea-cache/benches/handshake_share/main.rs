//! The cache's share of a resumed handshake: `cargo bench -p cardea-cache --bench handshake_share`.
//!
//! A rustls server and a rustls client do handshakes in memory, without sockets and without a gateway, which would make
//! the share smaller. The time of the server's side and the time of its session store calls are measured in the same
//! run. The store is kept full.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![expect(clippy::expect_used, reason = "the certificate is made here, and each handshake succeeds")]
#![expect(clippy::print_stdout, reason = "a measurement is for reading")]

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cardea_cache::{Lifetime, Limits, Sharded};
use cardea_clock::Mono;
use rustls::client::Resumption;
use rustls::server::StoresServerSessions;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion, version,
};

const ENTRIES: u64 = 204_800;
const WARM_UP: usize = 200;
const HANDSHAKES: usize = 2_000;
const NOW: Mono = Mono::from_nanos(1);

/// A session store that measures its own time.
#[derive(Debug)]
struct Store {
    sessions: Sharded<[u8; 32], Vec<u8>, foldhash::quality::RandomState>,
    nanos: AtomicU64,
    calls: AtomicU64,
}

impl Store {
    fn new() -> Self {
        let lifetime = Lifetime::Same(Duration::from_secs(1_000));
        let limits = Limits { entries: ENTRIES as usize, bytes: usize::MAX, lifetime };
        let hasher = foldhash::quality::RandomState::default();
        let sessions = Sharded::weighed(limits, 32, |_, value: &Vec<u8>| value.len(), hasher)
            .expect("so many can be had");
        for number in 0..ENTRIES {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            sessions.insert(key, vec![7; 200], NOW);
        }
        Self { sessions, nanos: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }

    fn timed<R>(&self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.nanos.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
        self.calls.fetch_add(1, Relaxed);
        result
    }
}

impl StoresServerSessions for Store {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.timed(|| key.try_into().is_ok_and(|key| self.sessions.insert(key, value, NOW)))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.timed(|| self.sessions.get_with(<&[u8; 32]>::try_from(key).ok()?, NOW, |value| value.to_vec()))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.timed(|| self.sessions.take(<&[u8; 32]>::try_from(key).ok()?, NOW))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("session-cache-handshake-share: table");
        return;
    }
    println!(
        "of a resumed handshake, in memory, with {ENTRIES} sessions in the store: µs of the server, ns of the store"
    );
    println!("{:>8} {:>8} {:>8} {:>8} {:>8}", "version", "server", "store", "calls", "share");
    for version in [&version::TLS12, &version::TLS13] {
        let store = Arc::new(Store::new());
        let (client, server) = configs(version, Arc::clone(&store));
        for _ in 0..WARM_UP {
            handshake(&client, &server);
        }
        store.nanos.store(0, Relaxed);
        store.calls.store(0, Relaxed);
        let time: Duration = (0..HANDSHAKES)
            .map(|_| {
                let (time, kind) = handshake(&client, &server);
                assert_eq!(kind, Some(HandshakeKind::Resumed));
                time
            })
            .sum();
        let each = |nanos: f64| nanos / HANDSHAKES as f64;
        let (all, ours) = (each(time.as_nanos() as f64), each(store.nanos.load(Relaxed) as f64));
        println!(
            "{:>8} {:>8.1} {:>8.0} {:>8.1} {:>6.2} %",
            format!("{:?}", version.version),
            all / 1e3,
            ours,
            each(store.calls.load(Relaxed) as f64),
            ours / all * 100.0
        );
    }
}

fn configs(
    version: &'static SupportedProtocolVersion,
    store: Arc<Store>,
) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key can be made");
    let key = signing_key.serialize_der().try_into().expect("what was written is a key");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("it is a certificate");
    let mut server = ServerConfig::builder_with_protocol_versions(&[version])
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("key and certificate belong together");
    server.session_storage = store;
    // As Cardea sends by default.
    server.send_tls13_tickets = 1;
    let mut client = ClientConfig::builder_with_protocol_versions(&[version])
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.resumption = Resumption::in_memory_sessions(8);
    (Arc::new(client), Arc::new(server))
}

/// The time of the server's side, and whether the session was resumed.
fn handshake(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (Duration, Option<HandshakeKind>) {
    let name = "localhost".try_into().expect("it is a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("the configuration is complete");
    let start = Instant::now();
    let mut server = ServerConnection::new(Arc::clone(server)).expect("the configuration is complete");
    let mut time = start.elapsed();
    let mut wire = Vec::new();
    loop {
        while client.wants_write() {
            client.write_tls(&mut wire).expect("memory takes all");
        }
        let start = Instant::now();
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("there is more");
            server.process_new_packets().expect("the client is in order");
        }
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("memory takes all");
        }
        time += start.elapsed();
        if wire.is_empty() && !client.is_handshaking() && !server.is_handshaking() {
            return (time, server.handshake_kind());
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("there is more");
            client.process_new_packets().expect("the server is in order");
        }
        wire.clear();
        // It is an error if there is nothing to read.
        let _ = client.reader().read(&mut [0; 16]);
    }
}

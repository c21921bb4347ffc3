//! A certificate authority that speaks ACME (Pebble, of Let's Encrypt), with the names that it looks up.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cardea_tls::authority::Authority;
use rustls::ClientConfig;
use serde_json::json;
use tempfile::TempDir;

use super::{Connection, Program, WAIT_MAX, now};

/// Where the built program is.
const PROGRAM: &str = "CARDEA_PEBBLE";

/// What an authority is like.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// How long its certificates are good for, in seconds.
    pub(crate) lifetime_seconds: u64,
    /// How many of a hundred good nonces it refuses.
    pub(crate) bad_nonces_percent: u8,
    /// Whether accounts need a key that it gave out.
    pub(crate) external: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self { lifetime_seconds: 90 * 86_400, bad_nonces_percent: 0, external: false }
    }
}

/// The key that an authority gives out, as Pebble wants it configured.
pub(crate) const EXTERNAL_KEY: (&str, &str) =
    ("kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W");

/// Where an authority is, was or will be: its address, and the ports that it asks at.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) directory: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) tls: SocketAddr,
    /// Where it is told what else to do.
    management: SocketAddr,
    names: Names,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("cardea-pebble-").tempdir().unwrap();
        let wall = now().wall;
        let day = Duration::from_secs(86_400);
        let authority = Authority::new("Pebble's own", wall.saturating_sub(day), wall.saturating_add(day));
        let authority = authority.unwrap();
        let issued = authority.issue(&["127.0.0.1"], wall.saturating_sub(day), wall.saturating_add(day));
        let issued = issued.unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", &authority.certificate_pem());
        write("server.pem", &issued.chain_pem);
        write("server.key", &issued.key_pem);
        let [directory, http, tls, management] = free_addresses();
        Self { folder, directory, http, tls, management, names: Names::start() }
    }

    /// The file of the authority that vouches for the directory.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Whether names lead anywhere from now on.
    pub(crate) fn set_names_known(&self, known: bool) {
        self.names.known.store(known, SeqCst);
    }

    /// Makes the authority suggest that this certificate be renewed between these instants (RFC 3339).
    pub(crate) fn suggest(&self, certificate: &[u8], from: &str, until: &str, client: &Arc<ClientConfig>) {
        let window = json!({ "suggestedWindow": { "start": from, "end": until } });
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(certificate)
        );
        let body = json!({ "Certificate": pem, "ARIResponse": window.to_string() }).to_string();
        let mut management = Connection::tls_for("localhost", self.management, client).unwrap();
        let answer = management.request("POST", "/set-renewal-info/", "User-Agent: test\r\n", &body).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Starts the authority. It remembers nothing of what was before.
    pub(crate) fn open(&self, manner: Manner) -> Program {
        let config = json!({ "pebble": {
            "listenAddress": self.directory.to_string(),
            "managementListenAddress": self.management.to_string(),
            "certificate": "server.pem",
            "privateKey": "server.key",
            "httpPort": self.http.port(),
            "tlsPort": self.tls.port(),
            "externalAccountBindingRequired": manner.external,
            "externalAccountMACKeys": { EXTERNAL_KEY.0: EXTERNAL_KEY.1 },
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "default", "validityPeriod": manner.lifetime_seconds } },
        }});
        std::fs::write(self.folder.path().join("pebble.json"), config.to_string()).unwrap();
        let path = std::env::var_os(PROGRAM).unwrap_or_else(|| {
            panic!("{PROGRAM} names no program: run this by `cargo xtask test authority`")
        });
        let mut command = Command::new(path);
        command
            .args(["-config", "pebble.json", "-dnsserver", &self.names.address.to_string()])
            .current_dir(self.folder.path())
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_WFE_NONCEREJECT", manner.bad_nonces_percent.to_string());
        let program = Program::start(&mut command);
        program.stdout.wait_for("Listening on", 0);
        program
    }
}

/// Addresses that nobody listens on. Somebody might, a moment later; then the test fails.
fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    let sockets = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

/// A name server to which all names are 127.0.0.1, or none are.
struct Names {
    address: SocketAddr,
    known: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Names {
    fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (known, ended) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (knows, ends) = (Arc::clone(&known), Arc::clone(&ended));
        std::thread::spawn(move || {
            for stream in socket.incoming() {
                if ends.load(SeqCst) {
                    return;
                }
                // One question on each connection, which ends with the answer.
                let _ = stream.and_then(|stream| serve(stream, knows.load(SeqCst)));
            }
        });
        Self { address, known, ended }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// RFC 1035 §4.2.2: messages over TCP have their length before them.
fn serve(mut stream: TcpStream, known: bool) -> io::Result<()> {
    stream.set_read_timeout(Some(WAIT_MAX))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut query)?;
    let answer = answer(&query, known).ok_or(io::ErrorKind::InvalidData)?;
    let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &answer].concat())
}

/// RFC 1035 §4.1, as far as one question about one name goes.
fn answer(query: &[u8], known: bool) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|&byte| byte == 0)? + 13;
    let question = query.get(12..name + 4)?;
    let is_address = known && query.get(name..name + 2)? == [0, 1];
    let code = if known { 0x80 } else { 0x83 };
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x81, code, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

//! A folder with everything that a gateway needs: an authority, certificates, keys and a configuration.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cardea_tls::authority::{Authority, Issued};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tempfile::TempDir;

use super::{Program, client::HOST, now, run, run_with};

/// What the routes of [`Settings`] are, as an audience.
pub(crate) const AUDIENCE: &str = "https://api.test";

/// What differs between configurations.
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) origin: Option<SocketAddr>,
    pub(crate) log_level: &'static str,
    pub(crate) drain_delay: &'static str,
    pub(crate) drain_deadline: &'static str,
    /// The body at `/version`.
    pub(crate) version: String,
    /// Further sections, in which `{folder}` stands for the folder's path.
    pub(crate) more: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            origin: None,
            log_level: "info",
            drain_delay: "0s",
            drain_deadline: "30s",
            version: "1".to_owned(),
            more: String::new(),
        }
    }
}

impl Settings {
    /// With hashes of secrets that cost as little as they may: builds for tests are not optimised.
    pub(crate) fn with_cheap_hashes() -> Self {
        let more = "\n[authorization_server.secrets]\niterations = 10000\n".to_owned();
        Self { more, ..Self::default() }
    }
}

/// The folder. It goes with everything in it when this is dropped.
pub(crate) struct Folder {
    folder: TempDir,
    authority: Authority,
}

impl Folder {
    /// A folder with certificates and keys, and with the configuration of `settings`.
    pub(crate) fn new(settings: &Settings) -> Self {
        let folder = tempfile::Builder::new().prefix("cardea-it-").tempdir().unwrap();
        let (from, until) = validity();
        let authority = Authority::new("Cardea test authority", from, until).unwrap();
        let this = Self { folder, authority };
        this.write_certificate(&this.issue());
        this.write("ca.pem", &this.authority.certificate_pem());
        this.write("wrapping.key", &STANDARD.encode([7; 32]));
        this.configure(settings);
        this
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a file, in one step as careful operators do.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let fresh = self.file(&format!("{name}.fresh"));
        fs::write(&fresh, text).unwrap();
        // Of private keys the gateway expects it; nothing else is the worse for it.
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&fresh, self.file(name)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    /// A fresh certificate for the gateway.
    pub(crate) fn issue(&self) -> Issued {
        let (from, until) = validity();
        self.authority.issue(&[HOST, "localhost", "127.0.0.1"], from, until).unwrap()
    }

    /// A certificate for these names that expired a minute ago.
    pub(crate) fn issue_expired(&self, names: &[&str]) -> Issued {
        let (from, _) = validity();
        self.authority.issue(names, from, now().wall.saturating_sub(Duration::from_secs(60))).unwrap()
    }

    /// A certificate for these names.
    pub(crate) fn issue_for(&self, names: &[&str]) -> Issued {
        let (from, until) = validity();
        self.authority.issue(names, from, until).unwrap()
    }

    /// Puts a certificate where the configuration says.
    pub(crate) fn write_certificate(&self, issued: &Issued) {
        self.write("gateway.key", &issued.key_pem);
        self.write("gateway.pem", &issued.chain_pem);
    }

    pub(crate) fn configure(&self, settings: &Settings) {
        let text = configuration(settings).replace("{folder}", self.path().to_str().unwrap());
        self.write("cardea.toml", &text);
    }

    /// What clients trust; without resumption, so that each handshake shows the certificate.
    pub(crate) fn client_config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = self.authority.certificate_pem();
        roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(cardea_tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Runs `cardea` with this configuration to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> super::program::Ran {
        let arguments = [arguments, &["--config", "cardea.toml"]].concat();
        run(self.path(), &arguments)
    }

    /// The same with something on its standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> super::program::Ran {
        let arguments = [arguments, &["--config", "cardea.toml"]].concat();
        run_with(self.path(), &arguments, input)
    }

    /// Starts `cardea run`.
    pub(crate) fn start(&self) -> Program {
        Program::start(&mut super::cardea(self.path(), &["run", "--config", "cardea.toml"]))
    }

    /// Creates a client that may read, by the command line; its id and its secret.
    pub(crate) fn create_client(&self, name: &str) -> (String, String) {
        let ran = self.run(&["client", "create", name, "--scope", "read", "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let created = ran.json();
        let member = |name: &str| created[name].as_str().unwrap().to_owned();
        (member("client_id"), member("client_secret"))
    }
}

fn validity() -> (cardea_clock::Wall, cardea_clock::Wall) {
    let wall = now().wall;
    let day = Duration::from_secs(24 * 3_600);
    (wall.saturating_sub(day), wall.saturating_add(60 * day))
}

fn configuration(settings: &Settings) -> String {
    let Settings { listen, origin, log_level, drain_delay, drain_deadline, version, more } = settings;
    let mut text = format!(
        r#"
[log]
format = "json"
level = "{log_level}"

[access_log]
path = "access.log"

[admin]
address = "127.0.0.1:0"
socket = "admin.sock"

[drain]
delay = "{drain_delay}"
deadline = "{drain_deadline}"

[[listener]]
name = "https"
address = "{listen}"

[[listener.tls.certificate]]
chain = "gateway.pem"
key = "gateway.key"

[authorization_server]
issuer = "https://{HOST}"
wrapping_key = {{ file = "wrapping.key" }}
default_audience = "{AUDIENCE}"
scopes = ["read", "write"]

[[issuer]]
name = "own"
local = true
audiences = ["{AUDIENCE}"]

[[route]]
name = "version"
path = "/version"
auth = "public"
respond = {{ body = "version {version}" }}

[[route]]
name = "private"
path = "/private"
auth = {{ issuer = "own", scopes = ["read"] }}
respond = {{ body = "come in" }}

[[route]]
name = "write"
path = "/write"
auth = {{ issuer = "own", scopes = ["write"] }}
respond = {{ body = "written" }}
"#
    );
    if let Some(origin) = origin {
        text.push_str(&format!(
            r#"
[[service]]
name = "origin"

[[service.endpoint]]
address = "{origin}"

[[route]]
name = "origin"
path_prefix = "/origin"
auth = "public"
service = "origin"
strip_prefix = true
body_bytes_max = "2GiB"
"#
        ));
    }
    text.push_str(more);
    text
}

//! The files of a demo: certificates, keys, configuration, database. They are removed with it.

use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cardea_clock::{CoarseClock, PERIOD_DEFAULT, Wall};
use cardea_tls::authority::Authority;
use tempfile::TempDir;

use super::origins::Origins;

/// The scope of the demo's client.
pub(super) const SCOPE: &str = "read";
/// The audience of `/api`.
pub(super) const RESOURCE: &str = "https://api.demo.example";
/// The audience of `/other`.
pub(super) const OTHER_RESOURCE: &str = "https://other.demo.example";

/// The validity of the demo's certificates.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The page at `/`.
const PAGE: &str = include_str!("page.html");

/// The folder of the demo.
pub(super) struct Setting {
    folder: TempDir,
    base: String,
    ca_file: String,
}

impl Setting {
    /// Writes the files for a gateway that listens on `address`.
    pub(super) fn write(address: SocketAddr, admin: SocketAddr, origins: &Origins) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("cardea-demo-").tempdir().context("a folder for the demo")?;
        let base = format!("https://{address}");
        let path = |name: &str| folder.path().join(name);

        let now = now()?;
        let until = now.saturating_add(CERTIFICATE_LIFETIME);
        // Clocks of clients may be slightly behind.
        let from = now.saturating_sub(Duration::from_secs(3_600));
        let authority = Authority::new("Cardea demo authority", from, until)?;
        let issued = authority.issue(&["127.0.0.1", "localhost"], from, until)?;
        fs::write(path("ca.pem"), authority.certificate_pem())?;
        fs::write(path("gateway.pem"), &issued.chain_pem)?;
        secret_file(&path("gateway.key"), issued.key_pem.as_bytes())?;
        let mut wrapping = [0; 32];
        aws_lc_rs::rand::fill(&mut wrapping).context("the system has no randomness")?;
        secret_file(&path("wrapping.key"), STANDARD.encode(wrapping).as_bytes())?;
        fs::write(path("page.html"), PAGE.replace("{BASE}", &base))?;
        fs::write(path("cardea.toml"), configuration(&base, address, admin, origins))?;

        let ca_file = path("ca.pem").display().to_string();
        Ok(Self { folder, base, ca_file })
    }

    /// `https://127.0.0.1:8443`.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) fn ca_file(&self) -> &str {
        &self.ca_file
    }

    pub(super) fn ca_pem(&self) -> Result<Vec<u8>> {
        Ok(fs::read(&self.ca_file)?)
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.folder.path().join("cardea.toml")
    }

    pub(super) fn admin_socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }
}

/// The current time, before the demo's clock runs.
fn now() -> Result<Wall> {
    let clock = CoarseClock::start(PERIOD_DEFAULT).context("starting the clock")?;
    Ok(clock.clock().precise().wall)
}

fn secret_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    Ok(())
}

fn configuration(base: &str, address: SocketAddr, admin: SocketAddr, origins: &Origins) -> String {
    let mut text = format!(
        r#"# Written by `cardea demo`, which removes it when it ends. It can be used as an example.
region = "eu"

[log]
level = "error"

[access_log]
path = "access.log"

[admin]
address = "{admin}"
socket = "admin.sock"

[drain]
delay = "0s"
deadline = "5s"

[[listener]]
name = "https"
address = "{address}"

[[listener.tls.certificate]]
chain = "gateway.pem"
key = "gateway.key"

[authorization_server]
issuer = "{base}"
database = "sqlite:cardea.db"
wrapping_key = {{ file = "wrapping.key" }}
default_audience = "{RESOURCE}"
resources = ["{RESOURCE}", "{OTHER_RESOURCE}"]
scopes = ["read", "write"]

[[issuer]]
name = "demo"
issuer = "{base}"
audiences = ["{RESOURCE}", "{OTHER_RESOURCE}"]
local = true

[[route]]
name = "start"
path = "/"
auth = "public"
respond = {{ status = 200, content_type = "text/html; charset=utf-8", file = "page.html" }}

[[route]]
name = "echo"
path_prefix = "/echo"
auth = "public"
service = "origins"

[[route]]
name = "api"
path_prefix = "/api"
auth = {{ issuer = "demo", audiences = ["{RESOURCE}"], scopes = ["read"] }}
service = "origins"

[[route]]
name = "change"
path_prefix = "/change"
auth = {{ issuer = "demo", audiences = ["{RESOURCE}"], scopes = ["write"] }}
service = "origins"

[[route]]
name = "other"
path_prefix = "/other"
auth = {{ issuer = "demo", audiences = ["{OTHER_RESOURCE}"] }}
service = "origins"

[[route]]
name = "down"
path_prefix = "/down"
auth = "public"
service = "nobody"

[[service]]
name = "nobody"

[[service.endpoint]]
address = "{nobody}"

[[service]]
name = "origins"
"#,
        nobody = origins.nobody(),
    );
    for origin in origins.list() {
        text.push_str(&format!(
            "\n[[service.endpoint]]\naddress = \"{}\"\nregion = \"{}\"\n",
            origin.address, origin.region
        ));
    }
    text
}

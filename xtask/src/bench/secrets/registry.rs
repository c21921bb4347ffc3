//! Clients whose secrets somebody chose, in a database of their own.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::super::jvm::{Client, lines};
use super::super::server::{free_address, fresh_folder};
use super::super::subject::fill;
use super::super::tools::Tools;
use crate::process::catch;

/// For what is no load.
const LIMIT: Duration = Duration::from_secs(120);

/// Clients and where they are.
pub(super) struct Registry {
    pub(super) folder: PathBuf,
    /// Their lines, for the load.
    pub(super) file: PathBuf,
    pub(super) clients: Vec<Client>,
}

/// What a configuration is filled in with.
pub(super) struct Settings<'a> {
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) origin: SocketAddr,
    pub(super) registry: &'a Registry,
    pub(super) iterations: u32,
    /// How long verified secrets are cached.
    pub(super) remember: &'a str,
}

impl Settings<'_> {
    /// Writes the configuration into `folder`.
    pub(super) fn write(&self, tools: &Tools, folder: &Path) -> Result<PathBuf> {
        let values = [
            ("LISTEN", self.listen.to_string()),
            ("ADMIN", self.admin.to_string()),
            ("ORIGIN", self.origin.to_string()),
            ("STATE", self.registry.folder.to_string_lossy().into_owned()),
            ("ITERATIONS", self.iterations.to_string()),
            ("REMEMBER", self.remember.to_owned()),
        ];
        Ok(fill(tools, folder, "secrets-cardea", &values)?.join("secrets-cardea.toml"))
    }
}

impl Registry {
    /// Imports clients `c-0`, `c-1` and so on, one for each element of `remembered`, which says whether its secret may
    /// be cached. Their secrets are hashed with `hashed` iterations.
    pub(super) fn make(tools: &Tools, name: &str, hashed: u32, remembered: &[bool]) -> Result<Self> {
        let folder = fresh_folder(tools.work.join("secrets").join(name))?;
        let key = Command::new("openssl").args(["rand", "-hex", "32"]).output().context("openssl rand")?;
        fs::write(folder.join("wrapping.key"), key.stdout)?;
        let mut registry = Self { file: folder.join("clients"), clients: Vec::new(), folder };
        let mut rows = "client_id,secret_hash,remember_secret\n".to_owned();
        for (number, remember) in remembered.iter().enumerate() {
            let client = Client { id: format!("c-{number}"), secret: format!("chosen-by-somebody-{number}") };
            let hash = hash(tools, hashed, &client.secret)?;
            rows += &format!("{},\"{hash}\",{remember}\n", client.id);
            registry.clients.push(client);
        }
        fs::write(&registry.file, lines(&registry.clients))?;
        let file = registry.folder.join("import.csv");
        fs::write(&file, rows)?;
        let any = free_address()?;
        let iterations = 10_000;
        let settings = Settings {
            listen: any,
            admin: free_address()?,
            origin: any,
            registry: &registry,
            iterations,
            remember: "0s",
        };
        let config = settings.write(tools, &registry.folder)?;
        let mut import = Command::new(&tools.cardea);
        import.args(["client", "import"]).arg(file).arg("--config").arg(config);
        let caught = catch(&mut import, LIMIT)?;
        ensure!(caught.success, "cardea client import: {}", caught.output.trim());
        Ok(registry)
    }

    /// The lines of these clients alone, in a file.
    pub(super) fn some(&self, name: &str, clients: &[Client]) -> Result<PathBuf> {
        let file = self.folder.join(name);
        fs::write(&file, lines(clients))?;
        Ok(file)
    }
}

/// The stored form of a secret: PBKDF2-HMAC-SHA-512.
fn hash(tools: &Tools, iterations: u32, secret: &str) -> Result<String> {
    let mut command = Command::new(&tools.cardea);
    command.args(["hash", "--iterations", &iterations.to_string()]);
    piped(&mut command, secret.as_bytes())
}

/// What a program says of its input.
pub(in super::super) fn piped(command: &mut Command, input: &[u8]) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().with_context(|| name.clone())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input)?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{name}: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The hashes per second of all hash threads with filled lanes, as the program measures them.
pub(super) fn hashes_per_second(tools: &Tools, iterations: u32) -> Result<f64> {
    let mut command = Command::new(&tools.cardea);
    command.args(["bench", "kdf", "--json", "--iterations", &iterations.to_string()]);
    let output = command.output().context("cardea bench kdf")?;
    ensure!(output.status.success(), "cardea bench kdf: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).context("cardea bench kdf")?;
    report["cost"]["hashes_per_second"].as_f64().context("cardea bench kdf: hashes_per_second")
}

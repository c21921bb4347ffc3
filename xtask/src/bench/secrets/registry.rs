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

/// What clients' secrets are stored as.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored {
    /// PBKDF2-HMAC-SHA-512 with so many iterations.
    Pbkdf2(u32),
    /// The least that there is of scrypt, which costs microseconds and is not replaced by anything.
    Trifle,
}

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
    /// How long right secrets are remembered.
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
    /// Imports clients `c-0`, `c-1` and so on, as many as `remembered` has places; those where it is false are never
    /// remembered.
    pub(super) fn make(tools: &Tools, name: &str, stored: Stored, remembered: &[bool]) -> Result<Self> {
        let folder = fresh_folder(tools.work.join("secrets").join(name))?;
        let key = Command::new("openssl").args(["rand", "-hex", "32"]).output().context("openssl rand")?;
        fs::write(folder.join("wrapping.key"), key.stdout)?;
        let mut registry = Self { file: folder.join("clients"), clients: Vec::new(), folder };
        let mut rows = "client_id,secret_hash,remember_secret\n".to_owned();
        for (number, remember) in remembered.iter().enumerate() {
            let client = Client { id: format!("c-{number}"), secret: format!("chosen-by-somebody-{number}") };
            let hash = stored.hash(tools, &client.secret)?;
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

impl Stored {
    fn hash(self, tools: &Tools, secret: &str) -> Result<String> {
        match self {
            Self::Pbkdf2(iterations) => {
                let mut command = Command::new(&tools.cardea);
                command.args(["hash", "--iterations", &iterations.to_string()]);
                piped(&mut command, secret.as_bytes())
            }
            Self::Trifle => {
                let mut derive = Command::new("openssl");
                derive.args(["kdf", "-keylen", "32", "-kdfopt", "salt:0123456789abcdef", "-kdfopt"]);
                derive.arg(format!("pass:{secret}"));
                derive.args(["-kdfopt", "n:2", "-kdfopt", "r:1", "-kdfopt", "p:1", "-binary", "SCRYPT"]);
                let output = derive.output().context("openssl kdf")?;
                ensure!(output.status.success(), "openssl kdf: {}", String::from_utf8_lossy(&output.stderr));
                let base64 = |bytes: &[u8]| -> Result<String> {
                    let mut encode = Command::new("openssl");
                    Ok(piped(encode.args(["base64", "-A"]), bytes)?.trim_end_matches('=').to_owned())
                };
                let (salt, hash) = (base64(b"0123456789abcdef")?, base64(&output.stdout)?);
                Ok(format!("$scrypt$ln=1,r=1,p=1${salt}${hash}"))
            }
        }
    }
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

/// What hashes cost on this machine, as the program itself says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Of a lone hash, in µs.
    pub(super) lone_us: f64,
    /// Of all hash threads with filled lanes.
    pub(super) hashes_per_second: f64,
}

impl Costs {
    pub(super) fn measure(tools: &Tools, iterations: u32) -> Result<Self> {
        let mut command = Command::new(&tools.cardea);
        command.args(["bench", "kdf", "--json", "--iterations", &iterations.to_string()]);
        let output = command.output().context("cardea bench kdf")?;
        ensure!(output.status.success(), "cardea bench kdf: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).context("cardea bench kdf")?;
        let figure =
            |name: &str| report["cost"][name].as_f64().with_context(|| format!("cardea bench kdf: {name}"));
        Ok(Self { lone_us: figure("hash_ms")? * 1e3, hashes_per_second: figure("hashes_per_second")? })
    }
}

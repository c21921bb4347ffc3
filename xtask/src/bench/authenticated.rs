//! The bench `authenticated`: the cost of forwarding a request whose token is checked and which is logged.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::launch::Launch;
use super::load::Load;
use super::machine::Placement;
use super::origin::Origin;
use super::report::{Better, Metric, Report};
use super::server::Server;
use super::subject::{Role, Subject};
use super::tokens::{AUDIENCE, Algorithm, ISSUER, Tokens};
use super::tools::Tools;
use super::window::{COST, OTHERS, P50, P99, P999, Window, exact};
use super::{Extent, Plan};
use crate::needs;
use crate::process::catch;

/// From the start of the load to the start of the window: connections and handshakes are done by then.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long wrk runs after the end of the window.
const TAIL: Duration = Duration::from_millis(300);
/// The limit for one request of the harness.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

const HELD_EQUAL: &str = "\
The small GET of the bench `proxy`, over kept-alive connections with TLS 1.3, with a bearer token that is checked on \
each request and with an access log in a file: `token+log`. No throttle applies. Equal for all subjects: signature, \
issuer, audience and times are checked, the keys come from a file, and the origin receives the subject of the token. \
The log has one line per request, in the subject's default format (JSON for Cardea, a line of text for the others). \
All connections send the same token, as those of one client do. In `256callers`, each request of a connection sends \
the next of 256 tokens, as behind another proxy. Before each measurement, a valid token must get 200. No token, a \
token with another token's signature, an expired token, and a token for another audience or from another issuer must \
get 401 (from Envoy 403 for the audience). The signature is checked again afterwards. A measurement whose log has \
fewer lines than requests is discarded. Cases with `unchecked-peers` compare the same figure of Cardea with peers \
that check no token and only write the log. The relay does neither. HAProxy writes its log to standard output, which \
is a file here. The figure is utime + stime of all processes and threads of the subject during the window, per \
request that reached the origin during it.";

static RATE: Metric = Metric { name: "requests_per_second", unit: "1/s", better: Better::Higher };
const DETAILS: [&Metric; 5] = [&RATE, &P50, &P99, &P999, &OTHERS];

/// A kind of token, and the number of connections.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    algorithm: Algorithm,
    connections: usize,
    /// Whether each request of a connection has another caller's token.
    many: bool,
    /// Whether it is measured in both placements, or only pinned.
    both: bool,
}

impl Case {
    const ONE: Self = Self {
        name: "small-tls-token+log-es256-c32",
        algorithm: Algorithm::Es256,
        connections: 32,
        many: false,
        both: true,
    };

    const ALL: [Self; 4] = [
        Self::ONE,
        Self { name: "small-tls-token+log-es256-c256", connections: 256, both: false, ..Self::ONE },
        Self { name: "small-tls-token+log-es256-256callers-c32", many: true, both: false, ..Self::ONE },
        Self { name: "small-tls-token+log-rs256-c32", algorithm: Algorithm::Rs256, both: false, ..Self::ONE },
    ];

    fn is_in(&self, extent: Extent, placement: &Placement) -> bool {
        let pinned = placement.gateway != placement.load;
        match extent {
            Extent::Full => self.both || pinned,
            Extent::Smoke => pinned && self.name == Self::ONE.name,
        }
    }
}

/// Whether a subject checks tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Check {
    Token,
    Nothing,
}

/// The common data of all measurements of a case.
struct Run<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    placement: &'a Placement,
    origin: &'a Origin,
    tokens: &'a Tokens,
    case: &'a Case,
}

/// Runs all cases and returns the results.
pub(super) fn run(tools: &Tools, plan: &Plan) -> Result<Report> {
    let mut report = Report::new("authenticated");
    needs::provide(&[needs::CURL])?;
    let place = |algorithm: Algorithm| tools.work.join("tokens").join(algorithm.name());
    let made = |algorithm| Tokens::make(place(algorithm), algorithm);
    let tokens = [(Algorithm::Es256, made(Algorithm::Es256)?), (Algorithm::Rs256, made(Algorithm::Rs256)?)];
    for placement in Placement::all()? {
        let origin = Origin::start(tools, &placement.load)?;
        for case in Case::ALL.iter().filter(|case| case.is_in(plan.extent, &placement)) {
            let name = format!("{}-{}", case.name, placement.name);
            if !plan.takes(&name) {
                continue;
            }
            let tokens = tokens.iter().find(|(algorithm, _)| *algorithm == case.algorithm);
            let (_, tokens) = tokens.context("tokens of each algorithm")?;
            let run = Run { tools, plan, placement: &placement, origin: &origin, tokens, case };
            for round in 1..=plan.rounds {
                for (subject, check) in plan.subjects.iter().flat_map(|&subject| parts(subject)) {
                    let said = run.add(&mut report, &name, subject, check);
                    plan.progress(&format!(
                        "{name} {round}/{} {} {check:?}: {said}",
                        plan.rounds,
                        subject.name()
                    ));
                }
            }
        }
    }
    Ok(report)
}

/// The checks with which a subject is measured: Debian's nginx checks no tokens, Envoy does.
fn parts(subject: Subject) -> Vec<(Subject, Check)> {
    let checks: &[Check] = match subject {
        Subject::Cardea | Subject::Again | Subject::Baseline | Subject::Envoy => &[Check::Token],
        Subject::Haproxy => &[Check::Token, Check::Nothing],
        Subject::Nginx | Subject::Relay => &[Check::Nothing],
        _ => &[],
    };
    checks.iter().map(|&check| (subject, check)).collect()
}

/// The cases to which a figure belongs. Those of Cardea, which always checks, and of the limit belong to both.
fn cases(name: &str, subject: Subject, check: Check) -> Vec<String> {
    let (checked, unchecked) = (name.to_owned(), format!("{name}-unchecked-peers"));
    match (subject.role(), check) {
        (Role::Peer, Check::Token) => vec![checked],
        (Role::Peer, Check::Nothing) => vec![unchecked],
        _ => vec![checked, unchecked],
    }
}

/// The tables, after the conditions of the measurement.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let mut text = format!("{HELD_EQUAL}\n\n");
    for placement in Placement::all()? {
        let load = format!("wrk and the origin, with {} each", placement.load_threads());
        text += &format!("- {}\n", placement.describe(&load));
    }
    let subjects: Vec<Subject> =
        plan.subjects.iter().copied().filter(|&subject| !parts(subject).is_empty()).collect();
    text += &format!("\nCPU time per request in µs, median (lowest–highest) of {} rounds:\n\n", plan.rounds);
    text += &report.table(&COST, &subjects);
    text += "\nMedians of throughput, of latency in a closed loop (from the first connection to the last response), \
         and of the processor time of other processes:\n\n";
    text += &report.details(&DETAILS, &subjects);
    if let Some(noise) = report.largest_noise(&COST) {
        text += &format!("\nThe largest A/A difference: {:.1} %.\n", noise * 100.0);
    }
    Ok(text + &report.missing())
}

impl Run<'_> {
    /// Adds a measurement, and returns its summary.
    fn add(&self, report: &mut Report, name: &str, subject: Subject, check: Check) -> String {
        let measured = self.measure(subject, check);
        for case in cases(name, subject, check) {
            match &measured {
                Ok(figures) => {
                    for (metric, value) in figures {
                        report.add(&case, subject, metric, *value);
                    }
                }
                Err(error) => report.add_missing(&case, subject, &COST, format!("{error:#}")),
            }
        }
        match measured {
            Ok(figures) => format!("{:.2} µs, others {:.0} %", figures[0].1, figures[5].1),
            Err(error) => format!("not measured: {error:#}"),
        }
    }

    /// The figures of one subject in one round.
    fn measure(&self, subject: Subject, check: Check) -> Result<[(&'static Metric, f64); 6]> {
        let values = [
            ("ORIGIN", self.origin.address().to_string()),
            ("ORIGINADDRESS", self.origin.address().ip().to_string()),
            ("ORIGINPORT", self.origin.address().port().to_string()),
            ("KEYS", self.tokens.folder.to_string_lossy().into_owned()),
            ("ALGORITHM", self.case.algorithm.name().to_owned()),
            ("ISSUER", ISSUER.to_owned()),
            ("AUDIENCE", AUDIENCE.to_owned()),
            ("CHECK", if check == Check::Token { "on" } else { "off" }.to_owned()),
        ];
        let processors = &self.placement.gateway;
        let server =
            Launch { bench: "authenticated", processors, values: &values }.start(self.tools, subject)?;
        let is_limit = subject.role() == Role::Limit;
        let mut asked = 0;
        if !is_limit {
            asked += self.checks_hold(&server, check, &self.tokens.bad)?;
        }

        let caller = if self.case.many {
            ["bearers".to_owned(), self.tokens.many.to_string_lossy().into_owned()]
        } else {
            ["bearer".to_owned(), self.tokens.good.clone()]
        };
        let load = Load {
            address: server.address,
            tls: true,
            path: "/small",
            body_bytes: 0,
            connections: self.case.connections,
            processors: &self.placement.load,
            time: WARM_UP + self.plan.window + TAIL,
            caller: &caller,
        };
        let running = load.start(&self.tools.sources);
        running.go_on_for(WARM_UP)?;
        // The origin is queried first at both ends, so that the time of the query cancels out.
        let first = self.origin.requests()?;
        let window = Window::begin(self.placement, &server)?;
        running.go_on_for(self.plan.window)?;
        let last = self.origin.requests()?;
        let used = window.end()?;
        let outcome = running.finish()?;

        if !is_limit {
            asked += self.checks_hold(&server, check, &self.tokens.bad[1..2])?;
        }
        drop(server);
        if !is_limit {
            self.log_is_whole(subject, outcome.requests + asked)?;
        }
        // The last query is counted by the origin.
        let units = exact(last.saturating_sub(first).saturating_sub(1));
        ensure!(units > 0.0, "no request reached the origin during the window");
        ensure!(
            self.plan.extent == Extent::Smoke || used.is_enough(),
            "it used too little processor time for a figure"
        );
        Ok([
            (&COST, used.cpu_us / units),
            (&RATE, units * 1e6 / used.elapsed_us),
            (&P50, outcome.p50_us),
            (&P99, outcome.p99_us),
            (&P999, outcome.p999_us),
            (&OTHERS, used.others_percent),
        ])
    }

    /// Checks that a valid token is accepted, and invalid ones are refused if tokens are checked. Returns the number
    /// of requests.
    fn checks_hold(&self, server: &Server, check: Check, bad: &[(&'static str, String)]) -> Result<u64> {
        let mut asked = 1;
        let status = self.status(server, &self.tokens.good)?;
        ensure!(status == "200", "a valid token is answered with {status}");
        for (what, token) in bad.iter().filter(|_| check == Check::Token) {
            asked += 1;
            let status = self.status(server, token)?;
            // Envoy answers 403 for a valid token with another audience.
            ensure!(status == "401" || status == "403", "{what}: answered with {status}");
        }
        Ok(asked)
    }

    fn status(&self, server: &Server, token: &str) -> Result<String> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--http1.1", "--output", "/dev/null", "--write-out", "%{http_code}"]);
        command.arg("--cacert").arg(self.tools.certificate());
        if !token.is_empty() {
            command.arg("--header").arg(format!("Authorization: Bearer {token}"));
        }
        let port = server.address.port();
        command.arg("--resolve").arg(format!("localhost:{port}:{}", server.address.ip()));
        let caught = catch(command.arg(format!("https://localhost:{port}/small")), REQUEST_LIMIT)?;
        Ok(caught.last_line().to_owned())
    }

    /// Checks that the log has a line for each request. Requests in progress at the end of the load may have one too.
    fn log_is_whole(&self, subject: Subject, requests: u64) -> Result<()> {
        let (name, mark) = match subject {
            // Besides its messages at startup. The frontend is called `bench`, and `~` means TLS.
            Subject::Haproxy => ("output.log", " bench~ "),
            _ => ("access.log", ""),
        };
        let file = self.tools.work.join(subject.name()).join(name);
        let log = fs::read(&file).with_context(|| format!("{}", file.display()))?;
        let lines = String::from_utf8_lossy(&log).lines().filter(|line| line.contains(mark)).count() as u64;
        let most = requests + self.case.connections as u64;
        ensure!(
            (requests..=most).contains(&lines),
            "the access log has {lines} lines of {requests} requests"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardea_is_compared_with_peers_that_check_and_with_those_that_do_not() {
        assert_eq!(cases("a", Subject::Cardea, Check::Token), ["a", "a-unchecked-peers"]);
        assert_eq!(cases("a", Subject::Haproxy, Check::Token), ["a"]);
        assert_eq!(cases("a", Subject::Haproxy, Check::Nothing), ["a-unchecked-peers"]);
        assert!(parts(Subject::Caddy).is_empty());
    }

    #[test]
    fn the_smoke_test_takes_one_case() {
        let shared = Placement { name: "2cpu", gateway: vec![0, 1], load: vec![0, 1] };
        let apart = Placement { name: "pinned", gateway: vec![0], load: vec![1] };
        let count = |extent, placement| Case::ALL.iter().filter(|case| case.is_in(extent, placement)).count();
        assert_eq!((count(Extent::Smoke, &shared), count(Extent::Smoke, &apart)), (0, 1));
        assert_eq!((count(Extent::Full, &shared), count(Extent::Full, &apart)), (1, 4));
    }
}

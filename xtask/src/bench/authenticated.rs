//! The bench `authenticated`: what it costs to carry a request whose token is checked and which is logged.

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

/// From the start of the load to that of the window: connections and handshakes are behind it.
const WARM_UP: Duration = Duration::from_millis(500);
/// How much of wrk's time stays for the end of the window.
const TAIL: Duration = Duration::from_millis(300);
/// For one request of the harness.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

const HELD_EQUAL: &str = "\
The small GET of the bench `proxy`, over kept connections with TLS 1.3, with a bearer token that is checked on each \
request, and an access log into a file: `token+log`. Nothing throttles. Held equal: signature, issuer, audience and \
times are checked, the keys come from a file, and the origin is told the subject; one line of log for each request, \
in the form that the subject has by default (JSON for Cardea, one line of text for the others); all connections show \
the same token, as those of one service do, but for `256callers`, where each request of a connection has the next one \
of 256 tokens, as behind another proxy. Before each measurement a good token is answered 200, and 401 is the \
answer (of Envoy, 403 for the audience) to none, to one with the signature of another one, to an expired one, to one \
for another audience and to one of another issuer; the signature is tried again afterwards. A measurement in which the log has fewer lines than there \
were requests does not count. Cases with `unchecked-peers` set the same Cardea beside peers that check nothing and \
write the log alone; the relay does neither. HAProxy writes its log to standard output, which is a file here. The \
figure is utime+stime of the process under test with all its threads and workers during the window, per request that \
reached the origin during it.";

static RATE: Metric = Metric { name: "requests_per_second", unit: "1/s", better: Better::Higher };
const DETAILS: [&Metric; 5] = [&RATE, &P50, &P99, &P999, &OTHERS];

/// Tokens of a kind, over so many connections.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    algorithm: Algorithm,
    connections: usize,
    /// Whether each request of a connection has the token of another caller.
    many: bool,
    /// Whether it is measured in both placements, or pinned alone.
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

/// What all measurements of a case share.
struct Run<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    placement: &'a Placement,
    origin: &'a Origin,
    tokens: &'a Tokens,
    case: &'a Case,
}

/// Runs all cases and returns what was measured.
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

/// What a subject is measured with: nginx of Debian checks no tokens, Envoy is a peer that does.
fn parts(subject: Subject) -> Vec<(Subject, Check)> {
    let checks: &[Check] = match subject {
        Subject::Cardea | Subject::Again | Subject::Baseline | Subject::Envoy => &[Check::Token],
        Subject::Haproxy => &[Check::Token, Check::Nothing],
        Subject::Nginx | Subject::Relay => &[Check::Nothing],
        _ => &[],
    };
    checks.iter().map(|&check| (subject, check)).collect()
}

/// The cases that a figure belongs to: Cardea, which always checks, and the limit belong to both.
fn cases(name: &str, subject: Subject, check: Check) -> Vec<String> {
    let (checked, unchecked) = (name.to_owned(), format!("{name}-unchecked-peers"));
    match (subject.role(), check) {
        (Role::Peer, Check::Token) => vec![checked],
        (Role::Peer, Check::Nothing) => vec![unchecked],
        _ => vec![checked, unchecked],
    }
}

/// The tables, with what was held equal.
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
    text += "\nMedians of throughput, of latency in a closed loop (from the first connection to the last response), and \
             of what others used of the processors meanwhile:\n\n";
    text += &report.details(&DETAILS, &subjects);
    if let Some(noise) = report.largest_noise(&COST) {
        text += &format!("\nThe largest A/A difference: {:.1} %.\n", noise * 100.0);
    }
    Ok(text + &report.missing())
}

impl Run<'_> {
    /// Measures once more, and says what came of it.
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
        // The origin is asked first at both ends, so that what the question takes cancels out.
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
        // The last question to the origin counts itself.
        let units = exact(last.saturating_sub(first).saturating_sub(1));
        ensure!(units > 0.0, "no request reached the origin during the window");
        ensure!(self.plan.extent == Extent::Smoke || used.is_enough(), "it used too little to tell how much");
        Ok([
            (&COST, used.cpu_us / units),
            (&RATE, units * 1e6 / used.elapsed_us),
            (&P50, outcome.p50_us),
            (&P99, outcome.p99_us),
            (&P999, outcome.p999_us),
            (&OTHERS, used.others_percent),
        ])
    }

    /// That a good token is taken and bad ones are not, where tokens are checked. Returns how many requests that took.
    fn checks_hold(&self, server: &Server, check: Check, bad: &[(&'static str, String)]) -> Result<u64> {
        let mut asked = 1;
        let status = self.status(server, &self.tokens.good)?;
        ensure!(status == "200", "a good token is answered with {status}");
        for (what, token) in bad.iter().filter(|_| check == Check::Token) {
            asked += 1;
            let status = self.status(server, token)?;
            // Envoy says 403 where a token is good, but for somebody else.
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

    /// That the log has a line for each request; what was on its way when the load ended may have one too.
    fn log_is_whole(&self, subject: Subject, requests: u64) -> Result<()> {
        let (name, mark) = match subject {
            // Beside what it says at its start; the frontend is called `bench`, the sign is for TLS.
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
    fn cardea_stands_beside_peers_that_check_and_beside_those_that_do_not() {
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

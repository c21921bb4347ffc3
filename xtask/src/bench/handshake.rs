//! The bench `handshake`: the cost of a TLS handshake with one small request.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::launch::Launch;
use super::machine::{Placement, on};
use super::origin::Origin;
use super::report::{Better, Metric, Report};
use super::server::Server;
use super::subject::{Role, Subject};
use super::tools::Tools;
use super::window::{COST, OTHERS, P50, P99, P999, Window, exact};
use super::{Extent, Plan};
use crate::process::{Caught, catch};

/// Connections that are established at a time.
const CHAINS: usize = 32;
/// From the start of the load to the start of the window: the first handshakes, which can't be resumptions, are done
/// by then.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long the generator runs after the end of the window.
const TAIL: Duration = Duration::from_millis(250);
/// The same in the smoke test, which may share the machine.
const TAIL_SMOKE: Duration = Duration::from_millis(700);
/// The limit for the generator, beyond its configured time.
const GRACE: Duration = Duration::from_secs(30);

const HELD_EQUAL: &str = "\
A unit is a connection: a TCP and a TLS handshake, one small GET that is forwarded to the origin, and the close, \
which the client starts. Equal for all subjects, and checked by the generator (bench/handshake) on each connection: \
version, group, cipher suite (AES-128-GCM with SHA-256), and the kind of resumption; the client offers nothing else. \
The certificate is ECDSA on P-256, and so is the key exchange of TLS 1.2. Resumption is enabled in all cases; in \
`full` cases the client has no session to resume. A *ticket* contains the encrypted session. A *cache* keeps the \
session in the server, and the client has only its id. Resumption in TLS 1.3 includes a new key exchange (X25519). \
Connections to the origin are kept alive, except by the bare relay, which opens one for each client connection and is \
only the limit. The figure is utime + stime of all processes and threads of the subject during the window, per \
request that reached the origin during it.";

static RATE: Metric = Metric { name: "handshakes_per_second", unit: "1/s", better: Better::Higher };
const DETAILS: [&Metric; 5] = [&RATE, &P50, &P99, &P999, &OTHERS];

/// The negotiated parameters.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    version: &'static str,
    group: &'static str,
    /// The kind of resumption, in the generator's terms.
    kind: &'static str,
}

impl Case {
    const fn new(name: &'static str, version: &'static str, group: &'static str, kind: &'static str) -> Self {
        Self { name, version, group, kind }
    }

    const ALL: [Self; 8] = [
        Self::new("full-tls13-p256", "1.3", "p256", "full"),
        Self::new("full-tls13-x25519", "1.3", "x25519", "full"),
        Self::new("full-tls13-x25519mlkem768", "1.3", "x25519mlkem768", "full"),
        Self::new("resumed-tls13-ticket", "1.3", "x25519", "ticket"),
        Self::new("resumed-tls13-cache", "1.3", "x25519", "cache"),
        // OpenSSL also applies the groups of a TLS 1.2 client to the certificate (RFC 8422 §5.1).
        Self::new("full-tls12", "1.2", "p256", "full"),
        Self::new("resumed-tls12-ticket", "1.2", "p256", "ticket"),
        Self::new("resumed-tls12-session-id", "1.2", "p256", "cache"),
    ];

    fn is_in(&self, extent: Extent) -> bool {
        extent == Extent::Full || matches!(self.name, "full-tls13-x25519" | "resumed-tls13-cache")
    }

    /// Whether a subject must offer the case: Cardea offers everything except tickets that contain the session.
    fn is_offered_by(&self, subject: Subject) -> bool {
        subject.role() == Role::Cardea && self.kind != "ticket"
    }

    /// The generator for this case. A time of zero only checks whether the server offers it.
    fn generator(&self, run: &Run<'_>, server: &Server, time: Duration) -> Command {
        let mut command = on(&run.placement.load, run.program);
        command
            .arg(server.address.to_string())
            .arg(run.tools.certificate())
            .args([self.version, self.group, self.kind])
            .arg(CHAINS.to_string())
            .arg(time.as_secs_f64().to_string());
        command
    }
}

/// The common data of all measurements.
struct Run<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    placement: &'a Placement,
    origin: &'a Origin,
    /// The generator.
    program: &'a Path,
}

/// The result of one measurement.
enum Measured {
    Figures([(&'static Metric, f64); 6]),
    NotOffered(String),
}

/// Runs all cases and returns the results.
pub(super) fn run(tools: &Tools, plan: &Plan) -> Result<Report> {
    let mut report = Report::new("handshake");
    let program = tools.own_program("bench-handshake")?;
    let [_, placement] = Placement::all()?;
    let origin = Origin::start(tools, &placement.load)?;
    let run = Run { tools, plan, placement: &placement, origin: &origin, program: &program };
    for case in Case::ALL.iter().filter(|case| case.is_in(plan.extent) && plan.takes(case.name)) {
        let mut without = BTreeSet::new();
        for round in 1..=plan.rounds {
            for &subject in plan.subjects.iter().filter(|subject| is_asked(plan, **subject)) {
                if without.contains(&subject) {
                    continue;
                }
                let progress = match run.measure(case, subject) {
                    Ok(Measured::Figures(figures)) => {
                        for (metric, value) in figures {
                            report.add(case.name, subject, metric, value);
                        }
                        format!("{:.0} µs, others {:.0} %", figures[0].1, figures[5].1)
                    }
                    Ok(Measured::NotOffered(reason)) if case.is_offered_by(subject) => {
                        report.add_missing(case.name, subject, &COST, &reason);
                        format!("not measured: {reason}")
                    }
                    Ok(Measured::NotOffered(reason)) => {
                        without.insert(subject);
                        report.add_not_offered(case.name, subject, &COST, &reason);
                        format!("not offered: {reason}")
                    }
                    Err(error) => {
                        report.add_missing(case.name, subject, &COST, format!("{error:#}"));
                        format!("not measured: {error:#}")
                    }
                };
                plan.progress(&format!(
                    "{} {round}/{} {}: {progress}",
                    case.name,
                    plan.rounds,
                    subject.name()
                ));
            }
        }
    }
    Ok(report)
}

/// The smoke test has no time for the limit.
fn is_asked(plan: &Plan, subject: Subject) -> bool {
    plan.extent == Extent::Full || subject.role() != Role::Limit
}

/// The tables, after the conditions of the measurement.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [_, placement] = Placement::all()?;
    let load =
        format!("the generator, with {CHAINS} connections at a time, and the origin, with one thread each");
    let mut text = format!(
        "{HELD_EQUAL}\n\n- {}\n\nCPU time per connection in µs, median (lowest–highest) of {} rounds:\n\n{}",
        placement.describe(&load),
        plan.rounds,
        report.table(&COST, &plan.subjects)
    );
    text += "\nMedians of throughput, of the time from the first byte to the last in a closed loop, and of the \
         processor time of other processes:\n\n";
    text += &report.details(&DETAILS, &plan.subjects);
    if let Some(noise) = report.largest_noise(&COST) {
        text += &format!("\nThe largest A/A difference: {:.1} %.\n", noise * 100.0);
    }
    Ok(text + &report.missing())
}

impl Run<'_> {
    /// The figures of one subject in one round.
    fn measure(&self, case: &Case, subject: Subject) -> Result<Measured> {
        let values = [
            ("ORIGIN", self.origin.address().to_string()),
            ("ORIGINADDRESS", self.origin.address().ip().to_string()),
            ("ORIGINPORT", self.origin.address().port().to_string()),
            ("TICKETS", if case.kind == "cache" { "off" } else { "on" }.to_owned()),
        ];
        let processors = &self.placement.gateway;
        let server = Launch { bench: "handshake", processors, values: &values }.start(self.tools, subject)?;
        let caught = catch(&mut case.generator(self, &server, Duration::ZERO), GRACE)?;
        ensure!(caught.success, "the generator: {}", caught.last_line());
        if let Some(reason) = caught.last_line().strip_prefix("not-offered ") {
            return Ok(Measured::NotOffered(reason.to_owned()));
        }
        let tail = if self.plan.extent == Extent::Smoke { TAIL_SMOKE } else { TAIL };
        let time = WARM_UP + self.plan.window + tail;
        let mut command = case.generator(self, &server, time);
        let limit = time + GRACE;
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::spawn(move || {
            // The receiver is gone if the measurement has failed.
            let _ = sender.send(catch(&mut command, limit));
        });
        let go_on_for = |time| match receiver.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => bail!("the generator can't be waited for"),
            Ok(caught) => bail!("the generator ended too early: {}", caught?.last_line()),
        };
        go_on_for(WARM_UP)?;
        // The origin is queried first at both ends, so that the time of the query cancels out.
        let first = self.origin.requests()?;
        let window = Window::begin(self.placement, &server)?;
        go_on_for(self.plan.window)?;
        let last = self.origin.requests()?;
        let used = window.end()?;
        let totals = totals(&receiver.recv()??)?;
        let (full, resumed) = (totals[0], totals[1]);
        // Each chain starts with a full handshake.
        let expected = if case.kind == "full" { resumed == 0 && full > 0 } else { resumed > full };
        ensure!(expected, "{full} full handshakes and {resumed} resumed ones");
        // The last query is counted by the origin.
        let units = exact(last.saturating_sub(first).saturating_sub(1));
        ensure!(units > 0.0, "no request reached the origin during the window");
        ensure!(
            self.plan.extent == Extent::Smoke || used.is_enough(),
            "it used too little processor time for a figure"
        );
        Ok(Measured::Figures([
            (&COST, used.cpu_us / units),
            (&RATE, units * 1e6 / used.elapsed_us),
            (&P50, exact(totals[2])),
            (&P99, exact(totals[3])),
            (&P999, exact(totals[4])),
            (&OTHERS, used.others_percent),
        ]))
    }
}

/// The generator's counts: full and resumed handshakes, and three percentiles of the time of a connection in µs.
fn totals(caught: &Caught) -> Result<[u64; 5]> {
    ensure!(caught.success, "the generator: {}", caught.last_line());
    let line = caught.output.lines().find_map(|line| line.strip_prefix("bench-handshake "));
    let line = line.context("the generator printed no results")?;
    let field = |name: &str| -> Result<u64> {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|value| value.parse().ok()).with_context(|| format!("no {name} in: {line}"))
    };
    Ok([field("full")?, field("resumed")?, field("p50_us")?, field("p99_us")?, field("p999_us")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_a_failed_generator_is_an_error() {
        let caught = |success, output: &str| Caught { success, output: output.to_owned() };
        let line = "bench-handshake full=32 resumed=900 p50_us=1 p99_us=2 p999_us=3\n";
        assert_eq!(totals(&caught(true, line)).unwrap(), [32, 900, 1, 2, 3]);
        assert!(totals(&caught(false, line)).is_err());
        assert!(totals(&caught(true, "bench-handshake full=1\n")).is_err());
    }

    #[test]
    fn case_names_are_unique_and_the_smoke_test_runs_two() {
        let names: BTreeSet<&str> = Case::ALL.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), Case::ALL.len());
        assert_eq!(Case::ALL.iter().filter(|case| case.is_in(Extent::Smoke)).count(), 2);
    }
}

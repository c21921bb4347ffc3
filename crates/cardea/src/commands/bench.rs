//! `cardea bench`: measures the performance of this machine.

use std::{hint::black_box, mem, num::NonZeroU32, path::Path, sync::Arc, thread, time::Duration};

use anyhow::Context as _;
use cardea_clock::{Clock, CoarseClock, PERIOD_DEFAULT};
use cardea_kdf::{
    Engine, Job, Kernel, Prf, Schedule, calibrate, derive,
    stored::{Algorithm, Target},
};
use serde::Serialize;

use super::{
    Failure, end,
    hash::{default_target, target},
    load,
    text::{Table, facts},
};
use crate::{
    cli::{BenchArgs, BenchCommand, BenchKdfArgs, Exit, Output},
    config::display_duration,
};

/// The shortest time of a round, so that the cost of reading the clock is negligible.
const ROUND: Duration = Duration::from_millis(5);
/// The number of rounds, of which the fastest counts: other load only makes them slower.
const ROUNDS: usize = 7;
/// The iterations of the first round, which are doubled until a round takes long enough.
const ITERATIONS_FIRST: u32 = 256;
const ITERATIONS_LAST: u32 = 1 << 26;

/// The numbers of waiting hashes for which the chosen kernel is shown.
const WAITING: [usize; 5] = [1, 2, 4, 8, 16];
/// Kernels within this ratio count as equally fast.
const AS_FAST: f64 = 1.03;

const PASSWORD: &[u8] = b"correct horse battery staple";
const SALT: &[u8; 16] = b"0123456789abcdef";

/// The measured functions, with their names in stored secrets.
const ALGORITHMS: [(Prf, Algorithm); 3] = [
    (Prf::HmacSha1, Algorithm::Pbkdf2Sha1),
    (Prf::HmacSha256, Algorithm::Pbkdf2Sha256),
    (Prf::HmacSha512, Algorithm::Pbkdf2Sha512),
];

/// The results.
#[derive(Serialize)]
struct Report {
    kernels: Vec<KernelFigures>,
    crossovers: Vec<Crossover>,
    cost: Cost,
    target: Wanted,
}

/// A kernel that this processor supports.
#[derive(Serialize)]
struct KernelFigures {
    algorithm: &'static str,
    kernel: String,
    lanes: usize,
    /// Nanoseconds of one iteration, divided by the lanes.
    lane_iteration_ns: f64,
    /// Whether it is chosen for a single hash.
    lone: bool,
    /// Whether it is chosen for any number of hashes.
    full: bool,
}

/// The kernel that is chosen for a number of waiting hashes.
#[derive(Debug, PartialEq, Serialize)]
struct Crossover {
    algorithm: &'static str,
    waiting: usize,
    kernel: String,
    /// The kernel that would have been faster here, if any.
    fastest: Option<String>,
    /// The ratio of the chosen kernel's time to that of the fastest.
    ratio: f64,
}

/// The cost of the configured hash.
#[derive(Serialize)]
struct Cost {
    algorithm: &'static str,
    iterations: u32,
    /// Milliseconds of a single hash.
    hash_ms: f64,
    /// Hash threads.
    threads: usize,
    /// Hashes per second of all hash threads with filled lanes.
    hashes_per_second: f64,
}

impl Cost {
    /// Milliseconds of a single hash with other iterations.
    fn ms_of(&self, iterations: u32) -> f64 {
        self.hash_ms * f64::from(iterations) / f64::from(self.iterations)
    }
}

/// How many iterations fit into the time of a single hash.
#[derive(Serialize)]
struct Wanted {
    ms: f64,
    iterations: u32,
}

/// Runs `cardea bench`.
pub(crate) fn run(arguments: &BenchArgs, output: &mut Output) -> Exit {
    let BenchCommand::Kdf(arguments) = &arguments.command;
    let result = kdf(arguments, output);
    end(result, output)
}

fn kdf(arguments: &BenchKdfArgs, output: &mut Output) -> Result<Exit, Failure> {
    let (configured, threads) = match &arguments.config {
        Some(path) => configured(path)?,
        None => (default_target()?, 0),
    };
    let iterations = arguments.iterations.unwrap_or(configured).iterations();
    let clock = CoarseClock::start(PERIOD_DEFAULT).context("starting the clock")?;
    let report = measure(&clock.clock(), iterations, count(threads), arguments.target.0);
    if arguments.json {
        output.json(&report)?;
    } else {
        output.text(&shown(&report, arguments.target.0))?;
    }
    output.error("note: these are the fastest of several rounds; measure on an idle machine");
    let wanted = report.target.iterations;
    if wanted == Target::ITERATIONS_MIN && report.cost.ms_of(wanted) > report.target.ms {
        output.error(&format!("note: {wanted} iterations, the minimum, take longer"));
    }
    if wanted < Target::ITERATIONS_DEFAULT {
        output.error(&format!(
            "note: {wanted} iterations are fewer than the {} that OWASP recommends; raise --target",
            Target::ITERATIONS_DEFAULT
        ));
    }
    Ok(Exit::Success)
}

/// The iterations and the hash threads of a configuration.
fn configured(path: &Path) -> Result<(Target, usize), Failure> {
    match load(path)?.authorization_server {
        Some(server) => {
            let secrets = server.settings.secrets;
            Ok((target(secrets.iterations)?, secrets.hash_threads))
        }
        None => {
            let message = "the configuration has no [authorization_server], so no secrets are hashed";
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

/// As the authorization server counts: half of the processors by default, rounded up.
fn count(threads: usize) -> usize {
    match threads {
        0 => thread::available_parallelism().map_or(1, usize::from).div_ceil(2),
        count => count,
    }
}

fn measure(clock: &Clock, iterations: u32, threads: usize, wanted: Duration) -> Report {
    let mut kernels = Vec::new();
    let mut crossovers = Vec::new();
    for (prf, algorithm) in ALGORITHMS {
        // As the hash threads do.
        let mut last = clock.precise_mono();
        calibrate(prf, &mut || {
            let before = mem::replace(&mut last, clock.precise_mono());
            last.saturating_since(before)
        });
        let figures = self::kernels(clock, prf, algorithm);
        crossovers.extend(WAITING.iter().filter_map(|waiting| crossover(prf, *waiting, &figures)));
        kernels.extend(figures);
    }
    let lone_ns = fastest(clock, lone);
    let lanes = Engine::<()>::new(Prf::HmacSha512).lanes();
    let full_ns = fastest(clock, |iterations| full(threads, lanes, iterations)) / (threads * lanes) as f64;
    Report {
        kernels,
        crossovers,
        cost: Cost {
            algorithm: Algorithm::Pbkdf2Sha512.as_str(),
            iterations,
            hash_ms: lone_ns * f64::from(iterations) / 1e6,
            threads,
            hashes_per_second: 1e9 / (full_ns * f64::from(iterations)),
        },
        target: Wanted {
            ms: wanted.as_secs_f64() * 1e3,
            iterations: affordable(wanted.as_nanos() as f64 / lone_ns),
        },
    }
}

/// Whole thousands, within the configurable range.
fn affordable(iterations: f64) -> u32 {
    const ITERATIONS_MAX: u32 = 10_000_000;
    // The cast of a value out of range saturates.
    let thousands = (iterations / 1e3) as u32;
    thousands.saturating_mul(1_000).clamp(Target::ITERATIONS_MIN, ITERATIONS_MAX)
}

fn kernels(clock: &Clock, prf: Prf, algorithm: Algorithm) -> Vec<KernelFigures> {
    let here = Kernel::all(prf).iter().filter(|kernel| kernel.backend.is_available());
    let (lone, full) = (Kernel::choose(prf, 1, None), Kernel::choose(prf, usize::from(u16::MAX), None));
    here.map(|kernel| KernelFigures {
        algorithm: algorithm.as_str(),
        kernel: kernel.to_string(),
        lanes: kernel.lanes,
        lane_iteration_ns: fastest(clock, |iterations| kernel.exercise(prf, iterations))
            / kernel.lanes as f64,
        lone: lone == Some(kernel),
        full: full == Some(kernel),
    })
    .collect()
}

/// The choice of [`Kernel::choose`], with the measured ratio.
fn crossover(prf: Prf, waiting: usize, figures: &[KernelFigures]) -> Option<Crossover> {
    let chosen = Kernel::choose(prf, waiting, None)?.to_string();
    // Jobs beyond the number of lanes run one after the other.
    let cost = |figure: &KernelFigures| {
        figure.lane_iteration_ns * figure.lanes as f64 * waiting.div_ceil(figure.lanes) as f64
    };
    let of_chosen = figures.iter().find(|figure| figure.kernel == chosen).map(cost)?;
    let fastest = figures.iter().min_by(|one, other| cost(one).total_cmp(&cost(other)))?;
    let ratio = of_chosen / cost(fastest);
    Some(Crossover {
        algorithm: fastest.algorithm,
        waiting,
        fastest: (ratio > AS_FAST).then(|| fastest.kernel.clone()),
        kernel: chosen,
        ratio,
    })
}

/// Nanoseconds of one iteration of `run`, which gets the number of iterations.
fn fastest(clock: &Clock, run: impl Fn(u32)) -> f64 {
    let time = |iterations| {
        let begun = clock.precise_mono();
        run(iterations);
        clock.precise_mono().saturating_since(begun)
    };
    let mut iterations = ITERATIONS_FIRST;
    while iterations < ITERATIONS_LAST && time(iterations) < ROUND {
        iterations *= 2;
    }
    let fastest = (0..ROUNDS).map(|_| time(iterations)).min().unwrap_or_default();
    fastest.as_nanos().max(1) as f64 / f64::from(iterations)
}

fn nonzero(iterations: u32) -> NonZeroU32 {
    NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN)
}

/// A hash that has a core to itself.
fn lone(iterations: u32) {
    let mut out = [0; 32];
    let derived = derive(Prf::HmacSha512, black_box(PASSWORD), SALT, nonzero(iterations), &mut out);
    let _ = black_box((derived, out));
}

/// As many hashes as lanes, on each of the threads.
fn full(threads: usize, lanes: usize, iterations: u32) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let schedule = Arc::new(Schedule::new(Prf::HmacSha512, black_box(PASSWORD)));
                let mut engine = Engine::new(Prf::HmacSha512);
                let mut left = lanes;
                while engine.step(
                    &mut || {
                        left = left.checked_sub(1)?;
                        Some(Job {
                            schedule: Arc::clone(&schedule),
                            salt: Box::from(&SALT[..]),
                            iterations: nonzero(iterations),
                            output_len: 32,
                            tag: (),
                        })
                    },
                    &mut |(), output| {
                        let _ = black_box(output);
                    },
                ) {}
            });
        }
    });
}

fn shown(report: &Report, wanted: Duration) -> String {
    let mut table = Table::new(&["ALGORITHM", "KERNEL", "LANES", "NS_PER_LANE_AND_ITERATION", "RUNS"]);
    for kernel in &report.kernels {
        let runs = match (kernel.lone, kernel.full) {
            (true, true) => "all",
            (true, false) => "single hashes",
            (false, true) => "full lanes",
            (false, false) => "",
        };
        table.row([
            kernel.algorithm.to_owned(),
            kernel.kernel.clone(),
            kernel.lanes.to_string(),
            format!("{:.1}", kernel.lane_iteration_ns),
            runs.to_owned(),
        ]);
    }
    let mut crossovers = Table::new(&["ALGORITHM", "WAITING", "KERNEL", "FASTEST_HERE"]);
    for crossover in &report.crossovers {
        let fastest = match &crossover.fastest {
            Some(fastest) => format!("{fastest}, by {:.0} %", (crossover.ratio - 1.0) * 100.0),
            None => "the same".to_owned(),
        };
        crossovers.row([
            crossover.algorithm.to_owned(),
            crossover.waiting.to_string(),
            crossover.kernel.clone(),
            fastest,
        ]);
    }
    let (cost, within) = (&report.cost, format!("within {}", display_duration(wanted)));
    let facts = facts(&[
        ("hash", format!("{}, {} iterations", cost.algorithm, cost.iterations)),
        ("single hash", format!("{:.1} ms", cost.hash_ms)),
        ("hash threads", cost.threads.to_string()),
        ("all threads", format!("{:.0} per second", cost.hashes_per_second)),
        (within.as_str(), format!("{} iterations", report.target.iterations)),
    ]);
    format!("{}\n{}\n{facts}", table.render(), crossovers.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossover_names_a_kernel_that_is_faster_by_more_than_noise() {
        let chosen = Kernel::choose(Prf::HmacSha512, 4, None).unwrap();
        let figure = |kernel: String, lanes, lane_iteration_ns| KernelFigures {
            algorithm: "pbkdf2-sha512",
            kernel,
            lanes,
            lane_iteration_ns,
            lone: false,
            full: false,
        };
        let rounds = 4_usize.div_ceil(chosen.lanes) as f64;
        let own_ns = 400.0 / rounds / chosen.lanes as f64;
        for (other_ns, faster) in [(101.0, false), (99.0, false), (50.0, true)] {
            let figures =
                [figure(chosen.to_string(), chosen.lanes, own_ns), figure("other-1".into(), 1, other_ns)];
            let found = crossover(Prf::HmacSha512, 4, &figures).unwrap();
            assert_eq!(found.fastest.is_some(), faster, "{other_ns}: {found:?}");
            assert_eq!((found.waiting, found.kernel), (4, chosen.to_string()));
        }
    }

    #[test]
    fn affordable_iterations_are_whole_thousands_within_the_limits() {
        for (iterations, expected) in [
            (0.0, 10_000),
            (9_999.9, 10_000),
            (10_999.0, 10_000),
            (211_999.0, 211_000),
            (1e7, 10_000_000),
            (1e12, 10_000_000),
            (f64::INFINITY, 10_000_000),
            (f64::NAN, 10_000),
        ] {
            assert_eq!(affordable(iterations), expected, "{iterations}");
            assert!(Target::new(expected).is_ok());
        }
    }
}

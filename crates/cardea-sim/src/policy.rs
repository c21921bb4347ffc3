//! How a gateway chooses a server: Cardea's own code, and what it is compared with.

mod cardea;
mod ejection;
mod load_aware;
mod peak_ewma;
mod prequal;

use std::time::Duration;

use cardea_clock::Mono;
use cardea_upstream::{Balance, FailureKind, RetryCause};

use crate::random::Random;

/// What a gateway knows of the world.
#[derive(Clone, Debug)]
pub struct View {
    /// All servers.
    pub servers: Vec<ServerView>,
    /// All regions.
    pub regions: Vec<RegionView>,
    /// The gateway's own.
    pub home: usize,
    /// Threads that carry requests.
    pub workers: usize,
    /// How many gateways share the servers of a region, this one included.
    pub gateways_per_region: usize,
    /// The seed of what it draws itself.
    pub seed: u64,
}

/// A server as the configuration describes it.
#[derive(Clone, Copy, Debug)]
pub struct ServerView {
    /// Its region.
    pub region: usize,
    /// What it serves at nominal speed, relative to others.
    pub weight: u32,
    /// How many requests it works on at a time.
    pub slots: usize,
}

/// A region as seen from one gateway.
#[derive(Clone, Copy, Debug)]
pub struct RegionView {
    /// Latitude and longitude, in degrees.
    pub position: (f64, f64),
    /// The round trip to it in undisturbed times.
    pub round_trip: Duration,
}

/// A request that needs a server.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Now.
    pub now: Mono,
    /// The worker that carries it.
    pub worker: usize,
    /// The servers that it was at.
    pub tried: &'a [usize],
    /// Servers that are to be probed: their load is reported by [`Policy::probed`].
    pub probes: &'a mut Vec<usize>,
}

/// The server of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// The server.
    pub server: usize,
    /// The policy's own name of the attempt.
    pub token: usize,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// A response came.
    Response {
        /// Its status.
        status: u16,
        /// The share of its slots that the server says were busy lately.
        utilisation: f64,
    },
    /// None did.
    Failure(FailureKind),
}

impl Ending {
    /// Why the request may be tried again, if it failed.
    #[must_use]
    pub fn retry_cause(self) -> Option<RetryCause> {
        match self {
            Self::Response { status, .. } => (status >= 500).then_some(RetryCause::Status),
            Self::Failure(kind) if kind.is_unreachable() => Some(RetryCause::Connect),
            Self::Failure(FailureKind::ResponseTimeout) => Some(RetryCause::Timeout),
            Self::Failure(_) => Some(RetryCause::Closed),
        }
    }
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    /// The server.
    pub server: usize,
    /// Requests that are there.
    pub in_flight: usize,
    /// How long its requests took lately, without the network.
    pub latency: Duration,
}

/// How one gateway chooses.
pub trait Policy {
    /// A request begins.
    fn begin(&mut self);

    /// The server for its next attempt; `None` refuses it.
    fn choose(&mut self, ask: Ask<'_>) -> Option<Chosen>;

    /// An attempt ended, so long after it was sent.
    fn ended(&mut self, now: Mono, token: usize, ending: Ending, latency: Duration);

    /// Whether the budget allows one more attempt; takes from it if so.
    fn may_retry(&mut self, now: Mono, cause: RetryCause) -> bool;

    /// A connection to a server was made within one round trip.
    fn connected(&mut self, _now: Mono, _server: usize, _round_trip: Duration) {}

    /// A probe was answered.
    fn probed(&mut self, _now: Mono, _probed: Probed) {}
}

/// The policies that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Cardea's default.
    Cardea,
    /// In turn, in the nearest region that has a healthy server.
    RoundRobin,
    /// In turn by weights that know the servers' nominal speeds.
    Weighted,
    /// Of two the one with fewer requests in flight.
    LeastRequests,
    /// Of two the one with the smaller product of requests in flight and peak-EWMA, as Finagle's.
    PeakEwma,
    /// Wydrowski et al., "Load is not what you should balance: Introducing Prequal" (NSDI 2024).
    Prequal,
    /// Localities by headroom, as Envoy's `load_aware_locality`, and least requests in each.
    LoadAware,
}

impl Kind {
    /// All of them, Cardea's first.
    pub const ALL: [Self; 7] = [
        Self::Cardea,
        Self::RoundRobin,
        Self::Weighted,
        Self::LeastRequests,
        Self::PeakEwma,
        Self::Prequal,
        Self::LoadAware,
    ];

    /// The name in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cardea => "cardea",
            Self::RoundRobin => "round robin",
            Self::Weighted => "weighted",
            Self::LeastRequests => "least requests",
            Self::PeakEwma => "peak-ewma",
            Self::Prequal => "prequal",
            Self::LoadAware => "load-aware",
        }
    }

    /// A gateway that chooses so.
    #[must_use]
    pub fn build(self, view: &View) -> Box<dyn Policy> {
        match self {
            Self::Cardea => Box::new(cardea::Cardea::new(view, Balance::PeakEwma, false)),
            Self::RoundRobin => Box::new(cardea::Cardea::new(view, Balance::RoundRobin, false)),
            Self::Weighted => Box::new(cardea::Cardea::new(view, Balance::RoundRobin, true)),
            Self::LeastRequests => Box::new(cardea::Cardea::new(view, Balance::LeastRequests, false)),
            Self::PeakEwma => Box::new(peak_ewma::PeakEwma::new(view)),
            Self::Prequal => Box::new(prequal::Prequal::new(view)),
            Self::LoadAware => Box::new(load_aware::LoadAware::new(view)),
        }
    }
}

/// Things with a number each, numbers being used again.
#[derive(Debug)]
struct Numbered<T> {
    things: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Numbered<T> {
    fn new() -> Self {
        Self { things: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, thing: T) -> usize {
        let number = self.free.pop().unwrap_or(self.things.len());
        if number == self.things.len() {
            self.things.push(None);
        }
        self.things[number] = Some(thing);
        number
    }

    fn take(&mut self, number: usize) -> Option<T> {
        let thing = self.things.get_mut(number)?.take()?;
        self.free.push(number);
        Some(thing)
    }
}

/// An index of `candidates`, drawn without regard to weight; two different ones if there are as many.
fn draw_two(random: &mut Random, candidates: &[usize]) -> Option<(usize, usize)> {
    let first = random.below(candidates.len());
    let one = *candidates.get(first)?;
    let rest = candidates.len() - 1;
    let second = if rest == 0 { first } else { (first + 1 + random.below(rest)) % candidates.len() };
    Some((one, candidates[second]))
}

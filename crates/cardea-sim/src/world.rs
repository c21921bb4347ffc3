//! What is simulated: regions, servers, gateways, demand, and what goes wrong when.

use std::time::Duration;

use crate::places::Place;
use crate::random::Random;
use crate::server::Condition;

/// A world and its faults.
#[derive(Clone, Debug)]
pub struct World {
    /// In which places there are servers and gateways.
    pub places: Vec<Place>,
    /// All servers.
    pub servers: Vec<ServerPlan>,
    /// All gateways.
    pub gateways: Vec<GatewayPlan>,
    /// How long requests take.
    pub work: Work,
    /// How long requests arrive.
    pub lasts: Duration,
    /// Requests that arrive before are not judged.
    pub warm_up: Duration,
    /// What changes when, in order.
    pub changes: Vec<(Duration, Change)>,
    /// From when until when something is wrong.
    pub fault: Option<(Duration, Duration)>,
    /// Other programs take up to so much of a server's speed, for a second or so at a time.
    pub antagonists: f64,
    /// After this time without a response an attempt has failed.
    pub try_timeout: Duration,
    /// The share of its slots up to which a region may be loaded while others have room.
    pub band: f64,
    /// The source of all chance.
    pub seed: u64,
}

/// A server.
#[derive(Clone, Copy, Debug)]
pub struct ServerPlan {
    /// Its region.
    pub region: usize,
    /// How many requests it works on at a time.
    pub slots: usize,
    /// 1 is nominal.
    pub speed: f64,
    /// What weighted policies are told of its speed.
    pub weight: u32,
}

/// A gateway.
#[derive(Clone, Copy, Debug)]
pub struct GatewayPlan {
    /// Its region.
    pub region: usize,
    /// Threads that carry requests.
    pub workers: usize,
    /// Requests a second.
    pub rate: f64,
}

/// The time that a request takes at speed 1.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Memoryless.
    Exponential(Duration),
    /// With a heavy tail: the deviation of the logarithm is 1.
    Lognormal(Duration),
    /// Of shape 2.2: a heavier tail.
    Pareto(Duration),
}

impl Work {
    /// The time of one request, in nanoseconds.
    pub fn draw(self, random: &mut Random) -> u64 {
        let nanos = |mean: Duration| mean.as_nanos() as f64;
        let drawn = match self {
            Self::Exponential(mean) => random.exponential(nanos(mean)),
            Self::Lognormal(mean) => random.lognormal(nanos(mean), 1.0),
            Self::Pareto(mean) => random.pareto(nanos(mean), 2.2),
        };
        drawn.max(1_000.0) as u64
    }

    /// The mean time.
    #[must_use]
    pub fn mean(self) -> Duration {
        match self {
            Self::Exponential(mean) | Self::Lognormal(mean) | Self::Pareto(mean) => mean,
        }
    }
}

/// What changes.
#[derive(Clone, Debug)]
pub enum Change {
    /// These servers behave so from now on.
    Condition(Vec<usize>, Condition),
    /// These servers work at this share of their speed.
    Speed(Vec<usize>, f64),
    /// The round trip between two places is so many times as long.
    RoundTrip(usize, usize, f64),
    /// So many times as many requests arrive at the gateways of a region.
    RateOf(usize, f64),
}

impl World {
    /// The servers of a region.
    #[must_use]
    pub fn servers_of(&self, region: usize) -> Vec<usize> {
        (0..self.servers.len()).filter(|server| self.servers[*server].region == region).collect()
    }

    /// All servers' slots at their speed.
    #[must_use]
    pub fn slots_at_speed(&self) -> f64 {
        self.servers.iter().map(|server| server.slots as f64 * server.speed).sum()
    }
}

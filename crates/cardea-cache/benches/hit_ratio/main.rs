//! The hit ratios of eviction policies: `cargo bench -p cardea-cache --bench hit_ratio`.
//!
//! A trace consists of clients whose visits follow Zipf's law, and of a flood of handshakes whose clients never return.
//! A visit looks up its session, and inserts a new one if it is gone. `-- --steps` shows instead the cost of bounding
//! the steps of the hand.
#![expect(clippy::print_stdout, reason = "a measurement is for reading")]
#![expect(clippy::expect_used, reason = "the limits are constant and can be had")]

mod policies;

use cardea_cache::{Cache, Lifetime, Limits};
use cardea_clock::Mono;

use policies::{Fifo, Lru, Policy, S3Fifo, Sieve};

const CLIENTS: usize = 200_000;
const VISITS: usize = 800_000;
/// Exponents of Zipf's law: for web clients, values between 0.6 and 1 were measured.
const EXPONENTS: [f64; 2] = [0.7, 0.9];
/// Entries, as a share of the clients.
const CAPACITIES: [usize; 3] = [2_000, 20_000, 60_000];
/// One-time handshakes per visit.
const FLOODS: [usize; 3] = [0, 1, 4];

impl Policy for Cache<u64, ()> {
    fn access(&mut self, key: u64) -> bool {
        if self.get(&key, Mono::MIN).is_some() {
            return true;
        }
        drop(self.insert(key, (), Mono::MIN));
        false
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("hit-ratio: table");
        return;
    }
    let policies = if std::env::args().any(|argument| argument == "--steps") { steps } else { policies };
    println!("hit ratio in percent of the visits by clients that may come back");
    print!("{:>8} {:>8} {:>6}", "exponent", "entries", "flood");
    for (name, _) in policies(1) {
        print!(" {name:>9}");
    }
    println!();
    for exponent in EXPONENTS {
        let clients = Zipf::new(CLIENTS, exponent);
        for capacity in CAPACITIES {
            for flood in FLOODS {
                print!("{exponent:>8} {capacity:>8} {flood:>6}");
                for (_, mut policy) in policies(capacity) {
                    print!(" {:>9.2}", replay(policy.as_mut(), &clients, flood) * 100.0);
                }
                println!();
            }
        }
    }
}

fn policies(capacity: usize) -> Vec<(&'static str, Box<dyn Policy>)> {
    let limits = Limits { entries: capacity, bytes: usize::MAX, lifetime: Lifetime::Unlimited };
    let cardea = Cache::<u64, ()>::new(limits).expect("so many can be had");
    vec![
        ("cardea", Box::new(cardea)),
        ("fifo", Box::new(Fifo::new(capacity))),
        ("lru", Box::new(Lru::new(capacity))),
        ("s3-fifo", Box::new(S3Fifo::new(capacity))),
    ]
}

fn steps(capacity: usize) -> Vec<(&'static str, Box<dyn Policy>)> {
    vec![
        ("sieve", Box::new(Sieve::new(capacity, usize::MAX))),
        ("sieve/2", Box::new(Sieve::new(capacity, 2))),
        ("sieve/3", Box::new(Sieve::new(capacity, 3))),
        ("sieve/4", Box::new(Sieve::new(capacity, 4))),
        ("sieve/8", Box::new(Sieve::new(capacity, 8))),
    ]
}

/// The hit ratio in the second half of the trace; the first one fills the cache.
fn replay(policy: &mut dyn Policy, clients: &Zipf, flood: usize) -> f64 {
    let (mut random, mut hits, mut stranger) = (Random(7), 0_u32, 1 << 40);
    for visit in 0..VISITS {
        let hit = policy.access(clients.sample(random.unit()));
        hits += u32::from(hit && visit >= VISITS / 2);
        for _ in 0..flood {
            stranger += 1;
            policy.access(stranger);
        }
    }
    f64::from(hits) / (VISITS - VISITS / 2) as f64
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Samples ranks by Zipf's law, with cumulative sums.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize, exponent: f64) -> Self {
        let weights = (1..=ranks).map(|rank| (rank as f64).powf(-exponent));
        Self(weights.scan(0.0, |sum, weight| Some(std::mem::replace(sum, *sum + weight) + weight)).collect())
    }

    fn sample(&self, unit: f64) -> u64 {
        let goal = unit * self.0.last().copied().unwrap_or_default();
        self.0.partition_point(|sum| *sum <= goal) as u64
    }
}

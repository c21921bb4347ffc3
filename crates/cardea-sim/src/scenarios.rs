//! The scenarios that policies are compared in.

use std::time::Duration;

use crate::places::PLACES;
use crate::random::Random;
use crate::server::Condition;
use crate::world::{Change, GatewayPlan, ServerPlan, Work, World};

/// A world with a name.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name in tables.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// The world.
    pub world: World,
}

/// The region that faults strike: the one with the greatest demand.
const STRUCK: usize = 0;
/// Servers of a region.
const SERVERS: usize = 4;
/// Requests a second of all regions at their peak: 185 billion a day, one of 400, with a peak of twice the mean.
const RATE: f64 = 10_700.0;
/// The share of a region's slots that its peak demand needs.
const PEAK_LOAD: f64 = 0.6;
const GLOBAL_WORK: Work = Work::Lognormal(Duration::from_millis(25));

const FAULT: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(22));
const LASTS: Duration = Duration::from_secs(36);

/// One region of servers of which one in four has half the speed, at this share of their capacity.
#[must_use]
pub fn unequal(workers: usize, utilisation: f64, seed: u64) -> Scenario {
    let servers = (0..32)
        .map(|server| {
            let slow = server % 4 == 3;
            ServerPlan {
                region: 0,
                slots: 1,
                speed: if slow { 0.5 } else { 1.0 },
                weight: if slow { 1 } else { 2 },
            }
        })
        .collect();
    let mut world = World {
        places: vec![PLACES[STRUCK]],
        servers,
        gateways: Vec::new(),
        work: Work::Exponential(Duration::from_millis(10)),
        lasts: Duration::from_secs(60),
        warm_up: Duration::from_secs(10),
        changes: Vec::new(),
        fault: None,
        antagonists: 0.0,
        try_timeout: Duration::from_secs(20),
        band: 1.0,
        seed,
    };
    let rate = world.slots_at_speed() * utilisation / world.work.mean().as_secs_f64();
    world.gateways = vec![GatewayPlan { region: 0, workers, rate: rate / 2.0 }; 2];
    Scenario {
        name: if workers == 64 { "unequal, 64 workers" } else { "unequal" },
        about: "one region, 90 % utilisation, one server in four has half the speed",
        world,
    }
}

/// The same servers with antagonists and heavy-tailed requests.
#[must_use]
pub fn antagonists(seed: u64) -> Scenario {
    let mut scenario = unequal(4, 0.7, seed);
    scenario.name = "antagonists";
    scenario.about =
        "one region, 70 % utilisation, heavy-tailed requests, antagonists take up to half of a server";
    scenario.world.work = Work::Pareto(Duration::from_millis(10));
    scenario.world.antagonists = 0.5;
    scenario
}

/// 54 regions in the evening of America's east.
#[must_use]
pub fn globe(seed: u64) -> World {
    let demand: f64 = PLACES.iter().map(|place| place.demand).sum();
    let mut servers = Vec::new();
    let mut gateways = Vec::new();
    let mut random = Random::part(seed, 9);
    for (region, place) in PLACES.iter().enumerate() {
        let peak = RATE * place.demand / demand;
        let needed = peak * GLOBAL_WORK.mean().as_secs_f64() / PEAK_LOAD;
        let slots = ((needed / SERVERS as f64).ceil() as usize).max(2);
        servers.extend((0..SERVERS).map(|_| ServerPlan {
            region,
            slots,
            speed: 0.9 + 0.2 * random.uniform(),
            weight: 1,
        }));
        let rate = peak * place.diurnal(1.0) / 2.0;
        gateways.extend([GatewayPlan { region, workers: 2, rate }; 2]);
    }
    World {
        places: PLACES.to_vec(),
        servers,
        gateways,
        work: GLOBAL_WORK,
        lasts: LASTS,
        warm_up: Duration::from_secs(4),
        changes: Vec::new(),
        fault: Some(FAULT),
        antagonists: 0.0,
        try_timeout: Duration::from_secs(2),
        band: 0.8,
        seed,
    }
}

fn global(name: &'static str, about: &'static str, seed: u64, faults: impl FnOnce(&mut World)) -> Scenario {
    let mut world = globe(seed);
    faults(&mut world);
    Scenario { name, about, world }
}

fn for_the_fault(world: &mut World, begins: Change, ends: Change) {
    world.changes = vec![(FAULT.0, begins), (FAULT.1, ends)];
}

fn condition(world: &mut World, servers: Vec<usize>, condition: Condition) {
    let ends = Change::Condition(servers.clone(), Condition::Serves);
    for_the_fault(world, Change::Condition(servers, condition), ends);
}

/// A region whose servers die.
#[must_use]
pub fn region_dies(seed: u64) -> Scenario {
    global("region dies", "the servers of the greatest region refuse connections for 12 s", seed, |world| {
        condition(world, world.servers_of(STRUCK), Condition::Refuses);
    })
}

/// All scenarios with 54 regions.
#[must_use]
pub fn globals(seed: u64) -> Vec<Scenario> {
    let struck = |world: &World| world.servers_of(STRUCK);
    vec![
        region_dies(seed),
        global(
            "region slows down",
            "the servers of the greatest region work at a third of their speed",
            seed,
            |world| {
                let servers = struck(world);
                for_the_fault(world, Change::Speed(servers.clone(), 1.0 / 3.0), Change::Speed(servers, 1.0));
            },
        ),
        global("region flaps", "the greatest region is dead every other second", seed, |world| {
            let servers = struck(world);
            world.changes = (FAULT.0.as_secs()..FAULT.1.as_secs())
                .map(|second| {
                    let dead = (second - FAULT.0.as_secs()).is_multiple_of(2);
                    let condition = if dead { Condition::Refuses } else { Condition::Serves };
                    (Duration::from_secs(second), Change::Condition(servers.clone(), condition))
                })
                .collect();
            world.changes.push((FAULT.1, Change::Condition(servers, Condition::Serves)));
        }),
        global(
            "half of the endpoints fail",
            "every second server everywhere refuses connections",
            seed,
            |world| {
                condition(world, (0..world.servers.len()).step_by(2).collect(), Condition::Refuses);
            },
        ),
        global(
            "cable cut",
            "the greatest region is dead, and the round trip to its nearest neighbours is six times as long",
            seed,
            |world| {
                condition(world, struck(world), Condition::Refuses);
                // The nearest neighbours of the struck region, which would take its load.
                let mut near: Vec<usize> = (0..world.places.len()).filter(|other| *other != STRUCK).collect();
                near.sort_by_key(|other| world.places[STRUCK].round_trip_to(&world.places[*other]));
                for other in near.into_iter().take(2) {
                    world.changes.push((FAULT.0, Change::RoundTrip(STRUCK, other, 6.0)));
                    world.changes.push((FAULT.1, Change::RoundTrip(STRUCK, other, 1.0)));
                }
                world.changes.sort_by_key(|(at, _)| *at);
            },
        ),
        global("retry storm", "every server of four neighbouring regions answers 503", seed, |world| {
            let servers = (0..4).flat_map(|region| world.servers_of(region)).collect();
            condition(world, servers, Condition::Fails);
        }),
        global(
            "black hole",
            "a server of the greatest region takes requests and never responds",
            seed,
            |world| {
                let servers = struck(world).into_iter().take(1).collect();
                condition(world, servers, Condition::Silent);
            },
        ),
        global("fast failures", "one server in four answers 503 at once", seed, |world| {
            condition(world, (0..world.servers.len()).step_by(4).collect(), Condition::Fails);
        }),
        global(
            "recovery stampede",
            "the greatest region is dead, and comes back at a third of its speed for 4 s",
            seed,
            |world| {
                let servers = struck(world);
                condition(world, servers.clone(), Condition::Refuses);
                world.changes.push((FAULT.1, Change::Speed(servers.clone(), 1.0 / 3.0)));
                world.changes.push((FAULT.1 + Duration::from_secs(4), Change::Speed(servers, 1.0)));
            },
        ),
        global("rollout", "servers restart one after the other, each for a second", seed, |world| {
            let servers = struck(world);
            for (server, begins) in servers.into_iter().zip((FAULT.0.as_secs()..).step_by(3)) {
                let at = Duration::from_secs(begins);
                world.changes.push((at, Change::Condition(vec![server], Condition::Refuses)));
                let back = at + Duration::from_secs(1);
                world.changes.push((back, Change::Condition(vec![server], Condition::Serves)));
            }
        }),
        global("surge", "the greatest region gets four times as many requests", seed, |world| {
            for_the_fault(world, Change::RateOf(STRUCK, 4.0), Change::RateOf(STRUCK, 1.0));
        }),
    ]
}

/// All of them.
#[must_use]
pub fn all(seed: u64) -> Vec<Scenario> {
    let mut scenarios = vec![unequal(4, 0.9, seed), unequal(64, 0.9, seed), antagonists(seed)];
    scenarios.extend(globals(seed));
    scenarios
}

//! The best that any division of requests among regions could reach: what physics and capacity allow.

use crate::server::Condition;
use crate::world::{Change, World};

/// The round trip of the farthest hundredth of the requests, in milliseconds, while the fault lasts: each region serves its own
/// requests up to its band, and the rest is served by the nearest regions that have room within theirs.
#[must_use]
pub fn round_trip_p99_ms(world: &World) -> f64 {
    let regions = world.places.len();
    let mut round_trips: Vec<Vec<f64>> = (world.places.iter())
        .map(|from| world.places.iter().map(|to| from.round_trip_to(to).as_secs_f64() * 1e3).collect())
        .collect();
    let mut capacity: Vec<f64> =
        world.servers.iter().map(|server| server.slots as f64 * server.speed * world.band).collect();
    let mut rates = vec![0.0; regions];
    world.gateways.iter().for_each(|gateway| rates[gateway.region] += gateway.rate);
    let begins = world.fault.map(|(begins, _)| begins);
    for (_, change) in world.changes.iter().filter(|(at, _)| Some(*at) == begins) {
        match change {
            Change::Condition(servers, condition) if *condition != Condition::Serves => {
                servers.iter().for_each(|server| capacity[*server] = 0.0);
            }
            Change::Condition(..) => {}
            Change::Speed(servers, share) => servers.iter().for_each(|server| capacity[*server] *= share),
            Change::RoundTrip(one, other, factor) => {
                round_trips[*one][*other] *= factor;
                round_trips[*other][*one] *= factor;
            }
            Change::RateOf(region, factor) => rates[*region] *= factor,
        }
    }
    let mean = world.work.mean().as_secs_f64();
    let mut room = vec![0.0; regions];
    capacity.iter().zip(&world.servers).for_each(|(capacity, server)| room[server.region] += capacity / mean);
    let mut ways: Vec<(usize, usize)> =
        (0..regions).flat_map(|home| (0..regions).map(move |region| (home, region))).collect();
    ways.sort_by(|one, other| round_trips[one.0][one.1].total_cmp(&round_trips[other.0][other.1]));
    let all: f64 = rates.iter().sum();
    let (mut served, mut farthest) = (0.0, 0.0);
    for (home, region) in ways {
        if served >= 0.99 * all {
            break;
        }
        let taken = rates[home].min(room[region]);
        if taken > 0.0 {
            rates[home] -= taken;
            room[region] -= taken;
            served += taken;
            farthest = round_trips[home][region];
        }
    }
    farthest
}

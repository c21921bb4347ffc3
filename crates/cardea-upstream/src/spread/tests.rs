//! Tests of the division of requests among regions.

use super::*;

const CONFIG: SpillConfig = SpillConfig { sensitivity: Duration::from_millis(30), band_percent: 80 };

fn region(round_trip: u64, capacity: f32) -> Observed {
    Observed {
        round_trip: Some(Duration::from_millis(round_trip)),
        weight: 1.0,
        readiness: 1.0,
        capacity: Some(capacity),
        ..Observed::default()
    }
}

fn home(capacity: f32) -> Observed {
    Observed { is_home: true, ..region(0, capacity) }
}

/// Each region has a name of its own.
fn apart<const COUNT: usize>(mut regions: [Observed; COUNT]) -> [Observed; COUNT] {
    (0..).zip(&mut regions).for_each(|(group, region)| region.group = group);
    regions
}

/// The shares after so many updates in which so many requests are served at a time, as the shares divide them.
fn settled(spread: &Spread, observed: &mut [Observed], from: u64, updates: u64, load: f32) -> Vec<f32> {
    for update in from..from + updates {
        let shares = spread.shares();
        for (seen, share) in observed.iter_mut().zip(shares) {
            seen.in_flight = load * share * (1.0 + 10.0 * seconds(seen.round_trip));
            // Each takes a tenth of a second, and the network besides.
            seen.requests += (load * share) as u64;
        }
        spread.update(Mono::from_nanos((update + 1) * 100_000_000), &CONFIG, |region| observed[region]);
    }
    let shares = spread.shares();
    assert!((shares.iter().sum::<f32>() - 1.0).abs() < 1e-3, "{shares:?}");
    shares
}

fn near(one: f32, other: f32) -> bool {
    (one - other).abs() < 0.03
}

#[test]
fn a_region_within_its_band_keeps_all() {
    let mut observed = apart([home(100.0), region(10, 100.0), region(20, 100.0)]);
    let spread = Spread::new(observed.to_vec());
    assert_eq!(settled(&spread, &mut observed, 0, 50, 75.0), [1.0, 0.0, 0.0]);
    assert_eq!(spread.draw(|| unreachable!()), Some((0, 0)));
}

#[test]
fn what_is_beyond_the_band_is_spread_over_near_regions_and_returns() {
    let mut observed = apart([region(10, 200.0), home(100.0), region(100, 400.0), region(35, 200.0)]);
    let spread = Spread::new(observed.to_vec());
    let shares = settled(&spread, &mut observed, 0, 100, 120.0);
    assert!(near(shares[1], 80.0 / 120.0) && near(shares[0], shares[3]) && shares[2] < 0.01, "{shares:?}");
    let shares = settled(&spread, &mut observed, 100, 100, 70.0);
    assert_eq!(shares[1], 1.0, "{shares:?}");
}

#[test]
fn a_gateway_fills_no_region_that_is_not_its_own() {
    let mut observed = apart([home(100.0), region(10, 100.0), region(100, 400.0)]);
    let spread = Spread::new(observed.to_vec());
    let shares = settled(&spread, &mut observed, 0, 100, 160.0);
    // A quarter of the band of the near one, then the far one.
    assert!(
        near(shares[0], 0.5) && near(shares[1], 20.0 / 160.0) && near(shares[2], 60.0 / 160.0),
        "{shares:?}"
    );
    // All beyond: the rest stays.
    let shares = settled(&spread, &mut observed, 100, 100, 400.0);
    assert!(near(shares[1], 20.0 / 400.0) && near(shares[2], 80.0 / 400.0), "{shares:?}");
}

#[test]
fn a_dead_region_loses_all_at_once_and_gets_it_back_by_its_slow_start() {
    let mut observed = apart([home(100.0), region(10, 400.0), region(30, 400.0)]);
    let spread = Spread::new(observed.to_vec());
    settled(&spread, &mut observed, 0, 20, 60.0);
    observed[0].weight = 0.0;
    observed[0].capacity = Some(0.0);
    let shares = settled(&spread, &mut observed, 20, 1, 60.0);
    assert!(shares[0] == 0.0 && near(shares[1], 0.5), "{shares:?}");
    settled(&spread, &mut observed, 21, 20, 60.0);
    (observed[0].weight, observed[0].readiness, observed[0].capacity) = (1.0, 0.1, Some(10.0));
    let shares = settled(&spread, &mut observed, 41, 40, 60.0);
    assert!(near(shares[0], 8.0 / 60.0), "{shares:?}");
    (observed[0].readiness, observed[0].capacity) = (1.0, Some(100.0));
    assert_eq!(settled(&spread, &mut observed, 81, 40, 60.0), [1.0, 0.0, 0.0]);
}

#[test]
fn the_spilled_share_changes_in_small_steps_and_not_for_noise() {
    let mut observed = apart([home(100.0), region(10, 400.0)]);
    let spread = Spread::new(observed.to_vec());
    let mut last = 1.0;
    for update in 0..100 {
        let load = if update < 30 { 60.0 } else { 110.0 + (update % 3) as f32 };
        let own = settled(&spread, &mut observed, update, 1, load)[0];
        assert!((last - own).abs() <= RAMP + 1e-4, "{update}: {last} {own}");
        assert!(update < 60 || (last - own).abs() < 1e-4, "{update}: {last} {own}");
        last = own;
    }
}

#[test]
fn a_region_that_queues_gets_less() {
    let mut observed = apart([home(100.0), region(10, 400.0), region(12, 400.0)]);
    let spread = Spread::new(observed.to_vec());
    settled(&spread, &mut observed, 0, 60, 150.0);
    for update in 60..120 {
        for (seen, share) in observed.iter_mut().zip(spread.shares()) {
            seen.in_flight = 150.0 * share;
            seen.requests += (150.0 * share) as u64;
        }
        observed[1].in_flight *= 4.0;
        spread.update(Mono::from_nanos((update + 1) * 100_000_000), &CONFIG, |region| observed[region]);
    }
    let shares = spread.shares();
    assert!(shares[1] < 0.5 * shares[2], "{shares:?}");
}

#[test]
fn regions_without_capacity_take_what_the_own_one_cannot() {
    let unlimited = |round_trip| Observed { capacity: None, ..region(round_trip, 0.0) };
    let mut observed =
        apart([Observed { is_home: true, ..unlimited(0) }, unlimited(50), unlimited(60), unlimited(90)]);
    let spread = Spread::new(observed.to_vec());
    assert_eq!(settled(&spread, &mut observed, 0, 20, 1_000.0), [1.0, 0.0, 0.0, 0.0]);
    observed[0].weight = 0.0;
    let shares = settled(&spread, &mut observed, 20, 10, 1_000.0);
    assert!(near(shares[1], 0.5) && near(shares[2], 0.5), "{shares:?}");
}

#[test]
fn without_round_trips_regions_come_one_after_the_other_as_configured() {
    let unknown = Observed { round_trip: None, capacity: None, ..region(0, 0.0) };
    let mut observed = apart([unknown, Observed { is_home: true, ..unknown }, unknown, unknown]);
    let spread = Spread::new(observed.to_vec());
    assert_eq!(spread.order().collect::<Vec<_>>(), [1, 0, 2, 3]);
    (observed[0].weight, observed[1].weight) = (0.0, 0.0);
    assert_eq!(settled(&spread, &mut observed, 0, 10, 10.0), [0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn draws_follow_the_shares() {
    let mut observed = apart([home(100.0), region(10, 200.0), region(20, 600.0)]);
    let spread = Spread::new(observed.to_vec());
    let shares = settled(&spread, &mut observed, 0, 100, 120.0);
    let mut counts = [0.0_f32; 3];
    for draw in 0..10_000_u64 {
        let (rank, region) = spread.draw(|| draw * (u64::MAX / 10_000)).unwrap();
        assert_eq!(spread.order().nth(rank), Some(region));
        counts[region] += 1e-4;
    }
    assert!(
        counts.iter().zip(&shares).all(|(count, share)| (count - share).abs() < 0.01),
        "{counts:?} {shares:?}"
    );
}

#[test]
fn the_first_healthy_tier_of_a_region_gets_all_of_it() {
    let tier = |tier: u16, seen: Observed| Observed { tier, capacity: None, ..seen };
    let mut observed =
        apart([region(10, 1.0), tier(20, home(1.0)), tier(10, home(1.0)), tier(30, home(1.0))]);
    observed[2].group = 1;
    observed[3].group = 1;
    let spread = Spread::new(observed.to_vec());
    let order: Vec<_> = spread.order().collect();
    assert_eq!(order, [2, 1, 3, 0], "by priority, and then the next region");
    let mut shares = |from: u64, healthy: [f32; 4]| {
        observed.iter_mut().zip(healthy).for_each(|(seen, weight)| seen.weight = weight);
        settled(&spread, &mut observed, from, 10, 50.0)
    };
    assert_eq!(shares(0, [1.0; 4]), [0.0, 0.0, 1.0, 0.0]);
    assert_eq!(shares(100, [1.0, 1.0, 0.0, 1.0]), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(shares(200, [1.0, 0.0, 0.0, 1.0]), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(shares(300, [1.0, 0.0, 0.0, 0.0]), [1.0, 0.0, 0.0, 0.0], "no tier of the own region is left");
    assert_eq!(shares(400, [1.0, 1.0, 1.0, 0.0]), [0.0, 0.0, 1.0, 0.0]);
}

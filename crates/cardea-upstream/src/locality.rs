//! Where the gateway and the regions are, and how far apart: by measured round trips, and by distance until there are some.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

/// A place on earth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// In millionths of a degree.
    latitude: i32,
    longitude: i32,
}

impl Position {
    /// From degrees: north and east are positive. `None` beyond 90 and 180.
    #[must_use]
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let within = |degrees: f64, most: f64| (-most..=most).contains(&degrees);
        let millionths = |degrees: f64| (degrees * 1e6).round() as i32;
        (within(latitude, 90.0) && within(longitude, 180.0))
            .then(|| Self { latitude: millionths(latitude), longitude: millionths(longitude) })
    }

    /// How long a packet takes there and back over cables of the usual length: light in a fibre covers 200 km in a
    /// millisecond, and cables are taken to be 1.4 times as long as the great circle.
    #[must_use]
    pub fn round_trip_to(self, other: Self) -> Duration {
        let radians = |millionths: i32| (f64::from(millionths) / 1e6).to_radians();
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let (north, east) = (to - from, radians(other.longitude) - radians(self.longitude));
        let haversine = (north / 2.0).sin().powi(2) + from.cos() * to.cos() * (east / 2.0).sin().powi(2);
        let kilometres = 2.0 * 6371.0 * haversine.sqrt().min(1.0).asin();
        Duration::from_secs_f64(2.0 * kilometres * 1.4 / 200.0 / 1e3)
    }
}

/// Latitude and longitude in decimal degrees.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let degrees = |millionths: i32| f64::from(millionths) / 1e6;
        write!(f, "{}, {}", degrees(self.latitude), degrees(self.longitude))
    }
}

/// So many round trips are kept. Their median counts, so that two slow ones of them do not.
const SAMPLES: usize = 5;
/// How much of a median enters the moving average.
const SMOOTHING: f64 = 0.3;
/// A round trip that was measured so long ago is measured again, give or take a fifth.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// The same while there are too few measurements.
const PROBE_AFTER_FIRST: Duration = Duration::from_secs(1);

/// A region that the configuration describes, and the round trip to it. It is common to all services and survives reloads.
#[derive(Debug)]
pub struct KnownRegion {
    name: String,
    position: Position,
    samples: Mutex<VecDeque<Duration>>,
    /// The moving average in nanoseconds; 0: too few samples.
    average: AtomicU64,
    /// When the last sample or probe was, in nanoseconds of [`Mono`].
    sampled: AtomicU64,
}

impl KnownRegion {
    fn new(name: String, position: Position) -> Self {
        Self {
            name,
            position,
            samples: Mutex::default(),
            average: AtomicU64::new(0),
            sampled: AtomicU64::new(0),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The measured round trip; none until there are enough measurements.
    #[must_use]
    pub fn measured(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.average.load(Relaxed))).filter(|average| !average.is_zero())
    }

    /// A connection was made in one round trip that took so long.
    pub fn sample(&self, now: Mono, took: Duration) {
        self.sampled.store(now.nanos(), Relaxed);
        // The samples are sound at every moment: nothing under the lock can panic.
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(took);
        if samples.len() < SAMPLES {
            return;
        }
        let mut sorted = [Duration::ZERO; SAMPLES];
        sorted.iter_mut().zip(samples.iter()).for_each(|(sorted, sample)| *sorted = *sample);
        sorted.sort_unstable();
        let median = sorted[SAMPLES / 2].as_nanos() as f64;
        let last = self.average.load(Relaxed) as f64;
        let average = if last == 0.0 { median } else { last + (median - last) * SMOOTHING };
        self.average.store((average as u64).max(1), Relaxed);
    }

    /// Whether the caller should measure the round trip now, as no connection has for a while. True for one caller.
    #[must_use]
    pub fn claim_probe(&self, now: Mono, random: u64) -> bool {
        let last = self.sampled.load(Relaxed);
        let after = if self.measured().is_some() { PROBE_AFTER } else { PROBE_AFTER_FIRST };
        let share = (random >> 40) as f64 / (1_u64 << 24) as f64;
        let due =
            last == 0 || now.saturating_since(Mono::from_nanos(last)) >= after.mul_f64(0.8 + 0.4 * share);
        due && self.sampled.compare_exchange(last, now.nanos().max(1), Relaxed, Relaxed).is_ok()
    }
}

/// What the gateway knows of regions.
#[derive(Debug, Default)]
pub struct Locality {
    home: Option<String>,
    regions: Vec<Arc<KnownRegion>>,
}

impl Locality {
    /// A gateway in the region `home`, and the regions that are described. What `previous` has measured stays.
    #[must_use]
    pub fn new(
        home: Option<String>,
        regions: impl IntoIterator<Item = (String, Position)>,
        previous: Option<&Self>,
    ) -> Self {
        // Round trips are those from here.
        let previous = previous.filter(|previous| previous.home == home);
        let region = |(name, position): (String, Position)| {
            let known = previous.and_then(|previous| previous.region(&name));
            match known.filter(|known| known.position == position) {
                Some(known) => Arc::clone(known),
                None => Arc::new(KnownRegion::new(name, position)),
            }
        };
        Self { regions: regions.into_iter().map(region).collect(), home }
    }

    /// The gateway's own region.
    #[must_use]
    pub fn home(&self) -> Option<&str> {
        self.home.as_deref()
    }

    /// The regions that are described.
    pub fn regions(&self) -> impl Iterator<Item = &Arc<KnownRegion>> {
        self.regions.iter()
    }

    /// The region of this name, if it is described.
    #[must_use]
    pub fn region(&self, name: &str) -> Option<&Arc<KnownRegion>> {
        self.regions.iter().find(|region| region.name == name)
    }

    /// The round trip to a region: as measured, or by distance. None where neither is known.
    #[must_use]
    pub fn round_trip(&self, region: &KnownRegion) -> Option<Duration> {
        let by_distance = || {
            let home = self.region(self.home()?)?;
            Some(home.position.round_trip_to(region.position))
        };
        region.measured().or_else(by_distance)
    }
}

impl PartialEq for Locality {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<KnownRegion>, &Arc<KnownRegion>)| {
            one.name == other.name && one.position == other.position
        };
        self.home == other.home
            && self.regions.len() == other.regions.len()
            && self.regions.iter().zip(&other.regions).all(same)
    }
}

impl Eq for Locality {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn locality(previous: Option<&Locality>) -> Locality {
        let regions = [("london", 51.51, -0.13), ("ashburn", 39.04, -77.49)];
        let regions =
            regions.map(|(name, north, east)| (name.to_owned(), Position::new(north, east).unwrap()));
        Locality::new(Some("london".to_owned()), regions, previous)
    }

    #[test]
    fn distance_counts_until_enough_is_measured() {
        let known = locality(None);
        let ashburn = known.region("ashburn").unwrap();
        let estimated = known.round_trip(ashburn).unwrap();
        assert!((millis(70)..millis(90)).contains(&estimated), "{estimated:?}");
        (0..4).for_each(|sample| ashburn.sample(at(sample), millis(100)));
        assert_eq!(known.round_trip(ashburn), Some(estimated));
        ashburn.sample(at(5), millis(100));
        assert_eq!(known.round_trip(ashburn), Some(millis(100)));
        assert_eq!(locality(Some(&known)).region("ashburn").unwrap().measured(), Some(millis(100)));
    }

    #[test]
    fn single_slow_connects_count_for_nothing_and_a_longer_way_does() {
        let known = locality(None);
        let region = known.region("ashburn").unwrap();
        (0..20).for_each(|now| region.sample(at(now), millis(if now % 5 < 2 { 3_000 } else { 80 })));
        assert_eq!(region.measured(), Some(millis(80)));
        (20..40).for_each(|now| region.sample(at(now), millis(200)));
        assert!(region.measured().unwrap() > millis(195));
    }

    #[test]
    fn a_round_trip_is_probed_where_no_connection_has_measured_it() {
        let known = locality(None);
        let region = known.region("ashburn").unwrap();
        assert!(region.claim_probe(at(1), 0) && !region.claim_probe(at(2), 0));
        (0..5).for_each(|_| region.sample(at(1_000), millis(80)));
        assert!(!region.claim_probe(at(8_900), 0) && region.claim_probe(at(9_001), 0));
        assert!(!region.claim_probe(at(20_000), u64::MAX) && region.claim_probe(at(21_002), u64::MAX));
    }

    #[test]
    fn positions_are_on_earth() {
        assert!(Position::new(90.0, -180.0).is_some());
        for (latitude, longitude) in [(90.1, 0.0), (0.0, 180.1), (f64::NAN, 0.0)] {
            assert_eq!(Position::new(latitude, longitude), None);
        }
    }
}

//! Where public clouds have regions, and how long light in a fibre takes between them.

use std::time::Duration;

/// A region of servers.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// A short name.
    pub name: &'static str,
    latitude: f64,
    /// East is positive.
    longitude: f64,
    /// Its demand relative to others.
    pub demand: f64,
}

const fn place(name: &'static str, latitude: f64, longitude: f64, demand: f64) -> Place {
    Place { name, latitude, longitude, demand }
}

/// 54 regions: cities near which public clouds have one, to a hundredth of a degree or so.
pub const PLACES: [Place; 54] = [
    place("ashburn", 39.04, -77.49, 4.0),
    place("columbus", 39.96, -83.00, 2.0),
    place("chicago", 41.88, -87.63, 2.0),
    place("des-moines", 41.59, -93.62, 2.0),
    place("dallas", 32.78, -96.80, 2.5),
    place("cheyenne", 41.14, -104.82, 1.0),
    place("salt-lake-city", 40.76, -111.89, 1.0),
    place("phoenix", 33.45, -112.07, 1.5),
    place("las-vegas", 36.17, -115.14, 1.0),
    place("los-angeles", 34.05, -118.24, 2.5),
    place("san-jose", 37.34, -121.89, 2.5),
    place("portland", 45.59, -122.60, 2.0),
    place("quincy", 47.23, -119.85, 1.0),
    place("charleston", 32.78, -79.93, 1.5),
    place("toronto", 43.65, -79.38, 1.5),
    place("montreal", 45.50, -73.57, 1.5),
    place("calgary", 51.05, -114.07, 0.5),
    place("queretaro", 20.59, -100.39, 1.0),
    place("sao-paulo", -23.55, -46.63, 2.5),
    place("santiago", -33.45, -70.67, 1.0),
    place("dublin", 53.35, -6.26, 2.5),
    place("london", 51.51, -0.13, 3.0),
    place("cardiff", 51.48, -3.18, 0.5),
    place("paris", 48.86, 2.35, 2.5),
    place("marseille", 43.30, 5.37, 0.5),
    place("amsterdam", 52.37, 4.90, 2.5),
    place("frankfurt", 50.11, 8.68, 3.5),
    place("berlin", 52.52, 13.40, 1.0),
    place("zurich", 47.38, 8.54, 1.0),
    place("milan", 45.46, 9.19, 1.5),
    place("madrid", 40.42, -3.70, 1.5),
    place("warsaw", 52.23, 21.01, 1.0),
    place("stockholm", 59.33, 18.07, 1.0),
    place("gavle", 60.67, 17.14, 0.5),
    place("hamina", 60.57, 27.20, 0.5),
    place("oslo", 59.91, 10.75, 0.5),
    place("tel-aviv", 32.09, 34.78, 1.0),
    place("doha", 25.29, 51.53, 0.5),
    place("dubai", 25.20, 55.27, 1.0),
    place("manama", 26.23, 50.59, 0.5),
    place("johannesburg", -26.20, 28.05, 1.0),
    place("cape-town", -33.92, 18.42, 0.5),
    place("mumbai", 19.08, 72.88, 3.0),
    place("hyderabad", 17.39, 78.49, 1.5),
    place("delhi", 28.61, 77.21, 2.0),
    place("singapore", 1.35, 103.82, 3.0),
    place("jakarta", -6.21, 106.85, 1.5),
    place("hong-kong", 22.32, 114.17, 2.0),
    place("taipei", 25.03, 121.57, 1.0),
    place("seoul", 37.57, 126.98, 2.0),
    place("tokyo", 35.68, 139.69, 3.0),
    place("osaka", 34.69, 135.50, 1.5),
    place("sydney", -33.87, 151.21, 1.5),
    place("melbourne", -37.81, 144.96, 1.0),
];

/// A cable is longer than the great circle by so much.
const DETOUR: f64 = 1.4;
/// Kilometres that light covers in a fibre in a millisecond.
const FIBRE_KM_PER_MS: f64 = 200.0;
/// What equipment adds even to a neighbour.
const EQUIPMENT_MS: f64 = 0.5;

impl Place {
    /// Latitude and longitude, in degrees.
    #[must_use]
    pub fn position(&self) -> (f64, f64) {
        (self.latitude, self.longitude)
    }

    /// The distance along the great circle.
    #[must_use]
    pub fn kilometres_to(&self, other: &Self) -> f64 {
        let [from, to] = [self, other].map(|place| place.latitude.to_radians());
        let (north, east) = (to - from, (other.longitude - self.longitude).to_radians());
        let haversine = (north / 2.0).sin().powi(2) + from.cos() * to.cos() * (east / 2.0).sin().powi(2);
        2.0 * 6371.0 * haversine.sqrt().min(1.0).asin()
    }

    /// How long a packet takes there and back.
    #[must_use]
    pub fn round_trip_to(&self, other: &Self) -> Duration {
        let ms = EQUIPMENT_MS + 2.0 * self.kilometres_to(other) * DETOUR / FIBRE_KM_PER_MS;
        Duration::from_secs_f64(ms / 1e3)
    }

    /// The share of its peak demand that the place has at this time, in hours of UTC: most in the evening.
    #[must_use]
    pub fn diurnal(&self, utc_hours: f64) -> f64 {
        let local = utc_hours + self.longitude / 15.0;
        0.65 + 0.35 * ((local - 20.0) / 24.0 * std::f64::consts::TAU).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Place {
        PLACES.iter().find(|place| place.name == name).unwrap()
    }

    #[test]
    fn distances_and_round_trips_are_those_of_the_world() {
        let [london, ashburn, sydney] = ["london", "ashburn", "sydney"].map(named);
        assert!((london.kilometres_to(ashburn) - 5_900.0).abs() < 60.0);
        assert!((london.kilometres_to(sydney) - 16_990.0).abs() < 100.0);
        let measured = london.round_trip_to(ashburn).as_millis();
        assert!((70..=90).contains(&measured), "{measured} ms: about 76 ms are seen");
        assert!(london.round_trip_to(london) < Duration::from_millis(1));
    }

    #[test]
    fn requests_follow_the_evening_round_the_world() {
        let [tokyo, london] = ["tokyo", "london"].map(named);
        assert!(tokyo.diurnal(11.0) > 0.95 && london.diurnal(11.0) < 0.7);
        assert!(london.diurnal(20.0) > 0.95);
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = PLACES.iter().map(|place| place.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 54);
    }
}

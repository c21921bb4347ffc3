//! How long a connection is used: by its age, its requests, and what its endpoint says.

use std::num::NonZeroU32;
use std::time::Duration;

use cardea_clock::Mono;
use cardea_http::h1::KeepAlive;

use crate::affinity::mix;
use crate::config::PoolConfig;

/// How much earlier than an endpoint closes an idle connection it is not used any more: a request may be on its way then.
/// At most half of the endpoint's time.
const MARGIN: Duration = Duration::from_secs(1);

/// What a connection has been used for, and how long its endpoint keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    made: Mono,
    exchanges: u32,
    /// What the endpoint said with its last response.
    offer: KeepAlive,
}

impl Usage {
    /// That of a connection that was made then.
    #[must_use]
    pub fn new(made: Mono) -> Self {
        Self { made, exchanges: 0, offer: KeepAlive::default() }
    }

    /// One more exchange has ended, with which the endpoint offered this.
    pub const fn count(&mut self, offer: KeepAlive) {
        self.exchanges = self.exchanges.saturating_add(1);
        self.offer = offer;
    }
}

/// Why a connection is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was idle for as long as it may be.
    Expired,
    /// It is as old as it may be.
    Aged,
    /// It had as many requests as it may have.
    UsedUp,
}

/// How long connections are used, as configured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    idle_timeout: Duration,
    age_max: Option<Duration>,
    requests_max: Option<NonZeroU32>,
}

impl Limits {
    pub(super) const fn of(config: &PoolConfig) -> Self {
        let PoolConfig { idle_timeout, age_max, requests_max, .. } = *config;
        Self { idle_timeout, age_max, requests_max }
    }

    /// Why a connection that has been idle `since` then is not used again now.
    pub(super) fn end(&self, usage: &Usage, since: Mono, now: Mono) -> Option<End> {
        let Usage { made, exchanges, offer } = *usage;
        let offered = offer.timeout.map_or(Duration::MAX, |timeout| timeout - MARGIN.min(timeout / 2));
        if self.requests_max.is_some_and(|max| exchanges >= max.get()) || offer.max == Some(0) {
            Some(End::UsedUp)
        } else if self.age_max.is_some_and(|max| now.saturating_since(made) >= spread(max, made)) {
            Some(End::Aged)
        } else if now.saturating_since(since) >= self.idle_timeout.min(offered) {
            Some(End::Expired)
        } else {
            None
        }
    }
}

/// A time that is up to a fifth shorter, so that connections that were made together do not end together.
fn spread(time: Duration, made: Mono) -> Duration {
    let share = (mix(made.nanos()) >> 40) as f64 / (1_u64 << 24) as f64;
    time.mul_f64(1.0 - 0.2 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn what_an_endpoint_says_shortens_the_idle_time_and_does_not_lengthen_it() {
        let limits = Limits { idle_timeout: Duration::from_secs(50), ..Limits::default() };
        for (timeout, millis) in [
            (None, 50_000),
            (Some(5_000), 4_000),
            (Some(1_000), 500),
            (Some(0), 0),
            (Some(51_000), 50_000),
            (Some(3_600_000), 50_000),
        ] {
            let mut usage = Usage::new(at(0));
            usage.count(KeepAlive { timeout: timeout.map(Duration::from_millis), max: None });
            let last = at(100).saturating_add(Duration::from_millis(millis));
            let before = Mono::from_nanos(last.nanos() - 1);
            assert_eq!(limits.end(&usage, at(100), last), Some(End::Expired), "{timeout:?}");
            if millis > 0 {
                assert_eq!(limits.end(&usage, at(100), before), None, "{timeout:?}");
            }
        }
    }

    #[test]
    fn requests_end_a_connection_by_the_configuration_or_the_endpoint() {
        let limits =
            Limits { idle_timeout: Duration::from_secs(50), requests_max: NonZeroU32::new(3), age_max: None };
        let mut usage = Usage::new(at(0));
        for expected in [None, None, Some(End::UsedUp)] {
            usage.count(KeepAlive::default());
            assert_eq!(limits.end(&usage, at(1), at(1)), expected);
        }
        let mut usage = Usage::new(at(0));
        for (max, expected) in [(Some(2), None), (Some(1), None), (Some(0), Some(End::UsedUp))] {
            usage.count(KeepAlive { timeout: None, max });
            assert_eq!(Limits { requests_max: None, ..limits }.end(&usage, at(1), at(1)), expected);
        }
    }

    #[test]
    fn old_connections_end_and_not_all_together() {
        let limits = Limits {
            idle_timeout: Duration::from_secs(50),
            age_max: Some(Duration::from_secs(100)),
            requests_max: None,
        };
        let ended = |seconds: u64| {
            let is_aged = |made: &u64| {
                let made = Mono::from_nanos(*made);
                let now = made.saturating_add(Duration::from_secs(seconds));
                limits.end(&Usage::new(made), now, now) == Some(End::Aged)
            };
            (0..1_000).filter(is_aged).count()
        };
        assert_eq!((ended(79), ended(100)), (0, 1_000));
        assert!((300..700).contains(&ended(90)), "{}", ended(90));
    }
}

//! Circuit breakers: what one endpoint gets at a time at most.

use std::num::NonZeroU32;

use crate::load::Load;

/// Limits on what each endpoint of a service gets at a time. One that has reached a limit is passed over until it has room.
/// Workers decide by the counts of all, without a lock: each may exceed a limit by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Requests in flight, those included that wait for a connection. Default: no limit.
    pub requests_max: Option<NonZeroU32>,
    /// Connections that are being made, each for a request that waits. Default: no limit.
    pub pending_max: Option<NonZeroU32>,
}

impl BreakerConfig {
    /// Whether there is any limit.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.requests_max.is_some() || self.pending_max.is_some()
    }

    /// Whether an endpoint with this load has room for one more request.
    #[inline]
    pub(crate) fn has_room(&self, load: &Load) -> bool {
        let below = |max: Option<NonZeroU32>, count: &dyn Fn() -> usize| {
            max.is_none_or(|max| u32::try_from(count()).is_ok_and(|count| count < max.get()))
        };
        !self.is_set()
            || (below(self.requests_max, &|| load.in_flight())
                && below(self.pending_max, &|| load.connects_pending()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_pending_connections_are_limited_apart() {
        let load = Load::new(2);
        let limits = |requests, pending| BreakerConfig {
            requests_max: NonZeroU32::new(requests),
            pending_max: NonZeroU32::new(pending),
        };
        let _held = (load.begin(0), load.begin(1), load.connecting(1));
        for (requests, pending, expected) in [
            (0, 0, true),
            (2, 0, false),
            (3, 0, true),
            (0, 1, false),
            (3, 2, true),
            (3, 1, false),
            (2, 2, false),
        ] {
            assert_eq!(limits(requests, pending).has_room(&load), expected, "{requests} {pending}");
        }
    }
}

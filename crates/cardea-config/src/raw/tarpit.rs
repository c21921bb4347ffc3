//! The tarpit, as written.

use std::time::Duration;

use cardea_env::Network;
use cardea_gateway::model::{TarpitAction, TarpitModel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::form::As;

/// What becomes of refusals of those who offend again and again (docs/tarpit.md). Offences are wrong client secrets, tokens
/// with a wrong signature, and requests that a throttle refuses. They are counted by verified identity, or else by address: an
/// IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTarpit {
    /// What is done with such a refusal.
    #[serde(with = "As::<TarpitAction>")]
    pub(crate) action: TarpitAction,
    /// How many offences are tolerated at once; also how many are forgiven in `memory`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) offences: u32,
    /// The time in which `offences` are forgiven, one after the other. An offender is forgiven after twice that at the most.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub(crate) memory: Duration,
    /// The shortest time that a refusal is held.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "30s"))]
    pub(crate) delay_min: Duration,
    /// The longest one. Each is held for a random time between the two.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "30s"))]
    pub(crate) delay_max: Duration,
    /// How many refusals are held at once; at most a quarter of the descriptors that the process may
    /// open. Beyond this and the following numbers, the answer is 429 and the connection is closed.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) held_max: u32,
    /// The same for each address prefix.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) per_prefix_max: u32,
    /// The same for each identity.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) per_identity_max: u32,
    /// The same for each HTTP/2 connection.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) per_connection_max: u32,
    /// Address prefixes of clients whose offences do not count.
    #[serde(with = "As::<Vec<Network>>")]
    pub(crate) allow: Vec<Network>,
    /// Only requests for which this expression holds count: `"route.name != 'partners'"`. One for which it can't be evaluated
    /// does not.
    pub(crate) when: Option<String>,
}

impl Default for RawTarpit {
    fn default() -> Self {
        let TarpitModel { action, limit, delay_min, delay_max, bounds, per_connection_max, allow, when: _ } =
            TarpitModel::default();
        Self {
            action,
            offences: limit.offences,
            memory: limit.memory,
            delay_min,
            delay_max,
            held_max: bounds.held_max,
            per_prefix_max: bounds.per_prefix_max,
            per_identity_max: bounds.per_identity_max,
            per_connection_max,
            allow,
            when: None,
        }
    }
}

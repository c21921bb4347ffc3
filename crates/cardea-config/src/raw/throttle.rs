//! Throttles as written.

use cardea_gateway::model::ThrottleReport;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{effect::Effect, form::As, text::Rate};

/// A limit on the rate of requests with the same key, or on those in flight. It counts the requests of all routes with `all_routes`, otherwise those of the routes and services that name
/// it in `throttles`. Requests beyond the limit are answered 429. [throttles.md](throttles.md) says more.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawThrottle {
    /// Its name, in logs, metrics and the responses that tell of it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// The attributes that requests are counted by: `["source.address"]`, `["token.iss", "token.sub"]`. Requests for which all
    /// have the same values share a limit, and so do requests without a value. `[]`: all requests share one. Requests are counted
    /// before identification if the key, `when` and `cost` need no identity, otherwise after authorization.
    #[schemars(extend("x-remedy" = "name the attributes to count by: key = [\"source.address\"], or key = [] for all requests together"))]
    pub(crate) key: Vec<String>,
    /// How many bits of IPv4 addresses in the key count.
    #[serde(default = "ipv4_prefix")]
    #[schemars(range(min = 0, max = 32))]
    pub(crate) ipv4_prefix: u8,
    /// How many bits of IPv6 addresses in the key count. Whoever has one address usually has all of its /64.
    #[serde(default = "ipv6_prefix")]
    #[schemars(range(min = 0, max = 128))]
    pub(crate) ipv6_prefix: u8,
    /// The sustained rate of each key: a number of requests per second, minute, hour or day (`"100/s"`, `"6000/m"`). A throttle has a
    /// rate, `max_in_flight`, or both.
    #[serde(default, with = "As::<Option<Rate>>")]
    pub(crate) rate: Option<Rate>,
    /// The most requests of each key in flight. A request is in flight until its response is sent, and a WebSocket until it ends.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) max_in_flight: Option<u32>,
    /// How many requests of a key are admitted at once when it has been idle. Left out, the number in `rate`.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) burst: Option<u64>,
    /// Counts only requests for which this expression holds: `"request.method != 'GET'"`. A request for which it can't be evaluated
    /// is counted.
    #[serde(default)]
    pub(crate) when: Option<String>,
    /// An expression for how many units of the limit a request uses: `"request.path.startsWith('/search') ? 10 : 1"`. Fractions
    /// are rounded up. A request for which it can't be evaluated, or gives less than 0, is refused with 403. Left out, 1.
    #[serde(default)]
    pub(crate) cost: Option<String>,
    /// Refuses nothing, and reports what it would refuse in the access log (`throttle.name`) and in metrics.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Which responses carry its `RateLimit` and `RateLimit-Policy` fields.
    #[serde(default, with = "As::<ThrottleReport>")]
    pub(crate) report: ThrottleReport,
    /// Counts the requests of all routes.
    #[serde(default)]
    pub(crate) all_routes: bool,
    /// How many keys in use the table has room for, at 32 to 64 bytes each, and 26 to 52 more with both limits. With more, keys may be refused early; no key
    /// exceeds its limit.
    #[serde(default = "keys_max")]
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(crate) keys_max: usize,
}

fn ipv4_prefix() -> u8 {
    32
}

fn ipv6_prefix() -> u8 {
    64
}

fn keys_max() -> usize {
    65_536
}

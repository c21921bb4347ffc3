//! The resolution of endpoints' names.

use std::{net::SocketAddr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::form::{As, NameServer};

/// The resolution of endpoints' names ([discovery.md](discovery.md)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dns {
    /// The name servers, by IP address (`"10.0.0.53"`), with a port if it is not 53 (`"10.0.0.53:5353"`). Default: those of
    /// `/etc/resolv.conf`, with its search list. `/etc/hosts` is read in either case.
    #[serde(with = "As::<Vec<NameServer>>")]
    pub servers: Vec<SocketAddr>,
    /// How long the addresses of a name stay in use after its records are gone (NXDOMAIN or no records). While no name server
    /// answers, they stay without a limit.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-maximum" = "30d"))]
    pub keep_missing: Duration,
    /// Whether loopback addresses in the answers of name servers are used. They let whoever answers for a name reach what listens on
    /// this machine alone. Not needed for `localhost`, for names in `/etc/hosts`, and for addresses in place of names.
    pub danger_allow_loopback: bool,
}

impl Default for Dns {
    fn default() -> Self {
        Self { servers: Vec::new(), keep_missing: Duration::from_secs(300), danger_allow_loopback: false }
    }
}

//! The tarpit: who is an offender, and what becomes of its requests.

use std::time::Duration;

use cardea_env::{Condition, Network};
use cardea_guard::{OffenceLimit, TarpitBounds};

use crate::exchange::Exchange;

/// What becomes of the requests of repeat offenders that are refused.
#[derive(Debug, Clone)]
pub struct TarpitModel {
    /// What is done.
    pub action: TarpitAction,
    /// Who is a repeat offender.
    pub limit: OffenceLimit,
    /// The shortest time that a request is held.
    pub delay_min: Duration,
    /// The longest one.
    pub delay_max: Duration,
    /// How many are held. Where no more descriptors are to be used than a share of them, the lower number counts.
    pub bounds: TarpitBounds,
    /// How many are held of one connection that carries several requests at a time.
    pub per_connection_max: u32,
    /// Whose offences do not count.
    pub allow: Vec<Network>,
    /// Only requests for which this holds are counted and held; not those for which it can't be evaluated.
    pub when: Option<Condition<Exchange>>,
}

/// What is done with a refusal of a repeat offender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TarpitAction {
    /// It is sent at once: there is no tarpit.
    #[default]
    Off,
    /// It is sent late.
    Hold,
    /// Its head is sent at once, and its body an octet at a time.
    Drip,
    /// It is not sent: the connection is closed, or the stream reset.
    Drop,
}

impl TarpitAction {
    /// Its name in explanations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Hold => "hold",
            Self::Drip => "drip",
            Self::Drop => "drop",
        }
    }
}

impl Default for TarpitModel {
    fn default() -> Self {
        Self {
            action: TarpitAction::Off,
            // A client that retries with a wrong secret a few times is no attacker.
            limit: OffenceLimit { offences: 20, memory: Duration::from_secs(60) },
            // Long enough that a guess costs more to the one who guesses, and shorter than the timeouts of usual clients.
            delay_min: Duration::from_secs(2),
            delay_max: Duration::from_secs(10),
            // 32 MiB at 2 KiB each.
            bounds: TarpitBounds { held_max: 16_384, per_prefix_max: 4, per_identity_max: 2 },
            per_connection_max: 2,
            allow: Vec::new(),
            when: None,
        }
    }
}

//! What enforces limits: how many connections, handshakes and requests there may be, how fast they may come, how often
//! somebody may fail, how much a key may use, and how long offenders are held.
//!
//! Everything here is state in memory. Time is an argument, and limits are arguments too, so that a new configuration
//! applies at once. Addresses count by their [`AddressPrefix`]; other keys are bytes.
#![forbid(unsafe_code)]

mod admission;
mod bounded;
mod connection_permits;
mod connection_rate;
mod failures;
mod handshakes;
mod in_flight;
mod prefix;
mod tarpit;
mod throttle;

pub use admission::{
    AdaptiveBounds, AdaptiveLimit, Admission, AdmissionBounds, AdmissionFigures, AdmissionLimit,
    AdmissionRefusal, AdmissionSettings, Arrival, CLIENT_SHARE_PERCENT, Cohort, Entry, GATE_LIMITS_MAX, Gate,
    Gradient, Holding, MaxInFlight, Priority, Responses, Threshold, Ticket, Usage,
};
pub use bounded::Bounded;
pub use connection_permits::{ConnectionPermit, ConnectionPermits};
pub use connection_rate::{ConnectionRates, TooFast};
pub use failures::{FailureCounts, FailureKey};
pub use handshakes::{Handshake, Handshakes};
pub use in_flight::{InFlightPlace, InFlightTable};
pub use prefix::{AddressPrefix, Counted, PrefixCounts, TooMany};
pub use tarpit::{
    HeldOffender, HeldPlace, Identity, OffenceLimit, Offender, Origin, Released, TARPIT_TICK, Tarpit,
    TarpitBounds, TarpitFull,
};
pub use throttle::{
    Charge, LocalThrottles, ThrottleLimit, ThrottleLimitError, ThrottleStanding, ThrottleStore, ThrottleTable,
};

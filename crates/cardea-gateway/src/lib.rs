//! The data path: listeners, the pipeline of a request, forwarding, drain.
//!
//! `listener` accepts connections, `h1` and `h2` drive them, `pipeline` decides, `forward` carries over
//! `upstream`, `respond` answers, `record` notes.
//! [`model::Model`] is what a configuration becomes; [`gateway::Gateway`] holds the one in force.
#![forbid(unsafe_code)]

pub mod accepting;
mod admission;
pub mod attributes;
mod body;
mod buffer;
pub mod builtin;
pub mod challenge;
pub mod checks;
pub mod client_certificate;
mod conditions;
mod connections;
mod date;
mod decision;
mod downstream;
mod early_data;
pub mod exchange;
pub mod explain;
mod fields;
mod forward;
mod framing;
pub mod gateway;
mod grpc;
mod h1;
mod h2;
pub mod hints;
pub mod listener;
mod location;
mod memory;
pub mod metrics;
pub mod model;
mod mux;
mod pipeline;
mod pool;
mod preface;
pub mod pressure;
mod problem;
mod rate;
pub mod record;
mod refusal;
mod respond;
mod response;
pub mod routing;
mod shortage;
mod streams;
mod tarpit;
mod termination;
mod throttling;
mod timer;
mod transport;
mod tunnel;
mod upstream;
mod warning_limit;
mod websocket;
pub mod workers;

pub use forward::BodyBudget;
pub use refusal::Reason;
pub use shortage::Shortage;
pub use tarpit::GatewayTarpit;
pub use termination::TerminationReason;
pub use upstream::{Pooled, measure_round_trip};
pub use warning_limit::WarningLimit;

//! Gateways, servers and a network in virtual time: how endpoints are chosen, how many requests are admitted, and what clients
//! see of it.
//!
//! Cardea takes part with the very code that requests use. Everything else is deterministic by its seed, so that a
//! run can be repeated, and two policies meet the same requests.

pub mod bound;
pub mod engine;
pub mod events;
pub mod outcome;
pub mod overload;
pub mod overload_scenarios;
pub mod places;
pub mod policy;
pub mod random;
pub mod report;
pub mod scenarios;
pub mod server;
pub mod world;

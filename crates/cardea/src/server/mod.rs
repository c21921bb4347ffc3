//! The running server: from a configuration to listening sockets, reloads and shutdown.

mod background;
mod builtins;
mod certificates;
mod client_authorities;
mod control;
mod databases;
mod health;
mod issuer;
mod key_cache;
mod listen;
mod names;
mod panics;
mod reload;
mod reloads;
mod run;
mod signals;
mod socket_file;
mod telemetry;
mod upstreams;

pub(crate) use builtins::Provided;
pub(crate) use certificates::state_of as certificate_state;
pub(crate) use client_authorities::client_authority_faults;
pub(crate) use databases::check as check_databases;
pub(crate) use issuer::open as open_issuer;
pub(crate) use listen::{Inherited, bind, tcp};
pub(crate) use run::{Server, run};
pub(crate) use telemetry::markdown as metrics_page;

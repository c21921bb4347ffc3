//! The program under test: the built binary as its users run it, with real files, sockets, signals and clients.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test that calls them")]

mod administration;
mod audit;
mod authority;
mod check;
mod client_certificates;
mod clients;
mod demo;
mod descriptors;
mod drain;
mod explained;
mod hashes;
mod host_requirements;
mod imports;
mod keys;
mod large;
mod metrics;
mod names;
mod paths;
mod pressure;
mod privileges;
mod reload;
mod rules;
mod secrets;
mod staples;
mod start;
mod support;
mod tarpit;
mod throttles;
mod tls_clients;
mod tls_files;
mod token_bodies;
mod trust;
mod upgrade;
mod upstreams;

//! Tests of the authenticator's public interface: tokens, attacks, key sets, configurations.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test that calls them")]

mod attacks;
mod claims;
mod entra;
mod explain;
mod keys;
mod properties;
mod reload;
mod support;
mod verdict_cache;

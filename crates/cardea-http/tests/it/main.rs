//! The crate as its callers use it, against collections of cases that others have made.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod desync;
mod h2_peer;
mod vectors;

//! Wall and monotonic time: the coarse clock that requests read, and a manual one for tests.
//!
//! A check that is made on every request must cost a memory load. [`CoarseClock`] therefore publishes
//! the time in one cache line, refreshed by a thread of its own, and a [`Clock`] reads it with relaxed
//! loads. The coarse time serves validity windows and deadlines of a second or more; durations that are
//! reported use [`Clock::precise`].
//!
//! Tests drive the very same read path with [`ManualClock`].

mod coarse;
mod confirmed;
mod manual;
mod stopwatch;
mod time;

pub use coarse::{Clock, CoarseClock, LAG_MAX, PERIOD_DEFAULT, PERIOD_MAX, WATCH_EVERY};
pub use confirmed::ConfirmedWall;
pub use manual::ManualClock;
pub use stopwatch::Stopwatch;
pub use time::{Mono, Timestamp, Wall};

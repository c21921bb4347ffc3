//! What is written down about requests: identifiers, metrics, the access log.
//!
//! All of it is on the path of every request, so a producer never waits for a consumer: counters are spread
//! over the processors, lines go into a bounded buffer and are dropped, and counted, where it is full.

pub mod access_log;
#[cfg(test)]
mod measure;
pub mod metrics;
pub mod request_id;
mod shard;

pub use access_log::{AccessLog, AccessLogConfig, Sink, SyslogConfig, SyslogServer};
pub use metrics::Registry;
pub use request_id::RequestId;

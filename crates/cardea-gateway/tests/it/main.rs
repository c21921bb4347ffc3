//! The gateway under test: real sockets, origins that follow a script, clients that send exact bytes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests may fail the test that calls them"
)]

mod admission;
mod body;
mod breakers;
mod builtin;
mod challenge;
mod checks;
mod client_certificates;
mod clock;
mod concurrency;
mod connection;
mod cut;
mod desync;
mod early_data;
mod encodings;
mod endpoints;
mod environment;
mod failover;
mod fields;
mod grpc;
mod h2c;
mod host_requirements;
mod http2;
mod http2_frames;
mod http2_websocket;
mod identity;
mod lengths;
mod limits;
mod mirror;
mod paths;
mod policies;
mod pool;
mod rates;
mod regions;
mod response_heads;
mod shares;
mod shedding;
mod split;
mod stream_certificates;
mod stream_rights;
mod streams;
mod stress;
mod strictness;
mod support;
mod surplus;
mod tarpit;
mod throttles;
mod tls;
mod trailers;
mod upstream_http2;
mod upstream_http2_frames;
mod upstream_versions;
mod versions;
mod waiting_rights;

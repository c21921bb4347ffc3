//! The gateway under test: real sockets, origins that follow a script, clients that send exact bytes.

mod body;
mod connection;
mod cut;
mod desync;
mod identity;
mod paths;
mod pool;
mod strictness;
mod support;

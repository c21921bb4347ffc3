//! Drives an HTTP/2 connection (RFC 9113): one task owns the socket and feeds the codec, and each stream has a task that hands
//! its request to the same pipeline as a request of HTTP/1.1. They share the codec (`shared`).

mod body;
mod driver;
mod request;
mod respond;
mod shared;
mod stream;
mod websocket;

use std::{future::poll_fn, sync::Arc};

use crate::{buffer::Buffer, exchange::ConnectionFacts, gateway::Gateway, transport::Transport};

use driver::Driver;

/// Serves the connection to its end. `inbound` has what was received of it.
pub(crate) async fn serve(
    gateway: Arc<Gateway>,
    transport: Transport,
    inbound: Buffer,
    facts: Arc<ConnectionFacts>,
) {
    facts.activity.account().set_multiplexed();
    let mut driver = Driver::new(gateway, transport, inbound, facts);
    poll_fn(|cx| driver.poll(cx)).await;
}

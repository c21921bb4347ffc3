//! Bounds and time limits, which hold where a service or a route says nothing else.

use std::{num::NonZeroU32, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    form::{As, Size, ZeroForNone},
    model::General,
    section::{overrides, section},
};

section! {
    /// Bounds on what clients and origins may make the process hold.
    RawLimits for General {
        /// Client connections at a time, over all listeners. The default is what two processors serve without pain;
        /// the process's file descriptors must allow twice as many.
        #[schemars(range(min = 1, max = 10_000_000))]
        connections_max: usize => limits.connections_max;
        /// The same of one IPv4 address or one /64 of IPv6, trusted proxies excepted. Beyond it new connections are closed. Left
        /// out, half of `connections_max`: nobody takes every place, and many clients may stand behind one address. Where
        /// `connections_max` is reached all the same, the connections that have been idle for the longest are closed.
        #[schemars(range(min = 1, max = 10_000_000))]
        connections_per_prefix_max: Option<u32> => limits.connections_per_prefix_max;
        /// TLS handshakes under way, over all listeners. Beyond it the oldest gives way: a client that means it is done within
        /// a few round trips.
        #[schemars(range(min = 10, max = 10_000_000))]
        handshakes_max: usize => limits.handshakes_max;
        /// TLS handshakes under way of one IPv4 address or one /64 of IPv6, trusted proxies excepted. Beyond it new connections
        /// are closed. The default is half of the default for all: many clients may stand behind one address and come back
        /// at once.
        #[schemars(range(min = 1, max = 10_000_000))]
        handshakes_per_prefix_max: u32 => limits.handshakes_per_prefix_max;
        /// New connections a second of one IPv4 address or one /64 of IPv6, trusted proxies excepted; as many may come at once.
        /// Beyond it they are closed. 0: any number, since many clients may stand behind one address.
        #[schemars(range(min = 0, max = 1_000_000))]
        #[serde(with = "As::<ZeroForNone>")]
        new_connections_per_second_max: Option<NonZeroU32> => limits.new_connections_per_second_max;
        /// The head of a request: its first line and fields. Larger ones get 431. The default has room for the
        /// largest cookies and tokens that browsers and identity providers make.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1MiB"))]
        head_bytes_max: usize => limits.head.head_bytes_max;
        /// The target of a request: path and query. Longer ones get 414. The default is what RFC 9110 §4.1 asks for.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "256B", "x-maximum" = "1MiB"))]
        target_bytes_max: usize => limits.head.target_bytes_max;
        /// How many fields the head of a request may have. More get 431. The default is about three times what
        /// browsers behind two proxies send.
        #[schemars(range(min = 10, max = 256))]
        fields_max: usize => limits.head.fields_max;
        /// The head of an origin's response. Larger ones are answered with 502.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1MiB"))]
        response_head_bytes_max: usize => limits.response_head.head_bytes_max;
        /// How many fields the head of an origin's response may have. More are answered with 502. The default is as many as can
        /// be held.
        #[schemars(range(min = 10, max = 256))]
        response_fields_max: usize => limits.response_head.fields_max;
        /// The body of a request, where the route says nothing else. Larger ones get 413. The default suits calls of
        /// programs and small uploads; a route that takes more says so.
        #[serde(with = "As::<Size<u64>>")]
        #[schemars(extend("x-maximum" = "1TiB"))]
        body_bytes_max: u64 => body_bytes_max;
        /// How much of a request's body is kept to send it again to another endpoint. A body beyond it is sent once.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-maximum" = "16MiB"))]
        replay_bytes_max: usize => limits.replay_bytes_max;
        /// What all requests together may keep for sending bodies again; beyond it bodies are sent once.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-maximum" = "64GiB"))]
        replay_total_bytes_max: usize => limits.replay_total_bytes_max;
        /// What is held for all messages under way: what clients and origins have sent and the other side has not taken, heads that
        /// are not complete, and the heads of requests that wait for their response. Beyond it, connections
        /// end that hold the most for the longest (a reset, 503 where nothing was sent), those of an address prefix that holds more
        /// than a sixteenth first. Where that is not enough, requests to services get 503. Kept bodies
        /// (`replay_total_bytes_max`) and TLS sessions come on top.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "4MiB", "x-maximum" = "1TiB"))]
        buffered_bytes_max: usize => limits.buffered_bytes_max;
        /// Concurrent requests on one HTTP/2 connection. The default is the least that RFC 9113 §6.5.2 recommends.
        #[schemars(range(min = 1, max = 10_000))]
        http2_streams_max: u32 => limits.http2_streams_max;
    }
}

section! {
    /// How long the gateway waits, for clients and for origins.
    RawTimeouts for General {
        /// For the PROXY header, where one is expected, and then for the TLS handshake. The time that a connection waits
        /// for its turn (`limits.connections_max`) does not count. The default lets a handshake over a bad mobile link with
        /// two retransmissions through.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "5m"))]
        tls_handshake: Duration => connections.tls_handshake;
        /// From the first octet of a request to the end of its head; 408 after that. Slow heads are how slow clients
        /// hold a server.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "5m"))]
        request_head: Duration => connections.request_head;
        /// Between two pieces of a request's body; 408 after that.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
        request_body_idle: Duration => exchanges.request_body_idle;
        /// A kept-alive client connection without a request. The default is what browsers and libraries expect.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
        keep_alive_idle: Duration => connections.keep_alive_idle;
        /// A client whose system acknowledges nothing, or that takes nothing of what is sent to it: its connection is closed.
        /// One that says nothing is asked by TCP (keepalive) after a quarter of this. It ends tunnels and uploads whose client is
        /// gone without a word, and downloads that a client pauses for longer. The default is above the time for which
        /// responses may stand still.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "12s", "x-maximum" = "1h"))]
        client_unreachable: Duration => connections.client_unreachable;
        /// Connecting to an endpoint, with its TLS handshake. Must be below `request`, so that there is time left for
        /// another endpoint.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
        connect: Duration => exchanges.connect;
        /// From the sent request to the head of the response; 504 after that.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        response_head: Duration => exchanges.response_head;
        /// Between two pieces of a response's body; the response is cut after that.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
        response_body_idle: Duration => exchanges.response_body_idle;
        /// A whole request, from its head to the last octet of the response; tunnels are exempt. Routes that carry
        /// large bodies or long streams say more.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "7d"))]
        request: Option<Duration> => exchanges.request;
        /// How long a WebSocket, a response or a request that is under way may go on after its token has expired, or the
        /// client certificate that its route or its host requires. Then it ends, and can't be taken for whole.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1h"))]
        token_expiry_grace: Duration => exchanges.token_expiry_grace;
        /// A pooled connection to an endpoint without a request. Must be below what the endpoint itself keeps idle
        /// connections for; the default is below the 60 s and more of most servers.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
        upstream_keep_alive_idle: Duration => pool.idle_timeout;
    }
}

overrides! {
    /// Timeouts of a route; left out, the general ones hold.
    RawRouteTimeouts of cardea_gateway::model::Timeouts {
        /// In place of `timeouts.request`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "7d"))]
        request: Duration => request;
        /// In place of `timeouts.request_body_idle`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
        request_body_idle: Duration => request_body_idle;
        /// In place of `timeouts.response_head`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        response_head: Duration => response_head;
        /// In place of `timeouts.response_body_idle`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
        response_body_idle: Duration => response_body_idle;
        /// In place of `timeouts.token_expiry_grace`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-maximum" = "1h"))]
        token_expiry_grace: Duration => token_expiry_grace;
    }
}

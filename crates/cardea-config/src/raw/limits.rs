//! General limits and timeouts, which services and routes may override.

use std::{num::NonZeroU32, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    effect::Effect,
    form::{As, Size, Written, ZeroForNone},
    model::General,
    section::{overrides, section},
};

section! {
    /// Limits on the resources that clients and origins may use.
    RawLimits for General {
        /// Concurrent client connections over all listeners. The default suits two processors; the process needs twice
        /// as many file descriptors.
        #[schemars(range(min = 1, max = 10_000_000))]
        connections_max: usize => limits.connections_max;
        /// Concurrent client connections per IPv4 address or IPv6 /64. Trusted proxies are exempt. Further connections
        /// are closed. Default: half of `connections_max`, so that no client takes all of them while many clients may
        /// share an address. If `connections_max` is reached nevertheless, the connections that have been idle for the
        /// longest are closed.
        #[schemars(range(min = 1, max = 10_000_000))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        connections_per_prefix_max: Option<u32> => limits.connections_per_prefix_max;
        /// Concurrent TLS handshakes over all listeners. Beyond it the oldest one is aborted: real clients finish
        /// within a few round trips.
        #[schemars(range(min = 10, max = 10_000_000))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        handshakes_max: usize => limits.handshakes_max;
        /// Concurrent TLS handshakes per IPv4 address or IPv6 /64. Trusted proxies are exempt. Further connections are
        /// closed. The default is half of the default for all, because many clients may share an address and reconnect
        /// at once.
        #[schemars(range(min = 1, max = 10_000_000))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        handshakes_per_prefix_max: u32 => limits.handshakes_per_prefix_max;
        /// New connections per second and IPv4 address or IPv6 /64, with a burst of the same size. Trusted proxies are
        /// exempt. Further connections are closed. 0 means no limit, because many clients may share an address.
        #[schemars(range(min = 0, max = 1_000_000))]
        #[serde(with = "As::<ZeroForNone>")]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        new_connections_per_second_max: Option<NonZeroU32> => limits.new_connections_per_second_max;
        /// The size of a request's head: its first line and fields. Larger ones get 431. The default suffices for the
        /// largest cookies and tokens of browsers and identity providers.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1MiB"))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        head_bytes_max: usize => limits.head.head_bytes_max;
        /// The length of a request's target: path and query. Longer ones get 414. The default is the recommendation of
        /// RFC 9110 §4.1.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "256B", "x-maximum" = "1MiB"))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        target_bytes_max: usize => limits.head.target_bytes_max;
        /// The number of fields in a request's head. More get 431. The default is about three times what browsers send
        /// through two proxies.
        #[schemars(range(min = 10, max = 256))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        fields_max: usize => limits.head.fields_max;
        /// The size of the head of an origin's response. Larger ones are answered with 502.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1MiB"))]
        response_head_bytes_max: usize => limits.response_head.head_bytes_max;
        /// The number of fields in the head of an origin's response. More are answered with 502. The default is the
        /// largest possible value.
        #[schemars(range(min = 10, max = 256))]
        response_fields_max: usize => limits.response_head.fields_max;
        /// The size of a request's body, unless the route overrides it. Larger ones get 413. The default suits API
        /// calls and small uploads.
        #[serde(with = "As::<Size<u64>>")]
        #[schemars(extend("x-maximum" = "1TiB"))]
        body_bytes_max: u64 => body_bytes_max;
        /// How much of a request's body is kept for a retry at another endpoint. A larger body is sent only once.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-maximum" = "16MiB"))]
        replay_bytes_max: usize => limits.replay_bytes_max;
        /// How much all requests together may keep for retries. Beyond it, bodies are sent only once.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-maximum" = "64GiB"))]
        replay_total_bytes_max: usize => limits.replay_total_bytes_max;
        /// How much the copies of requests for mirrors may hold together, with their heads. Beyond it, requests are not
        /// mirrored. The body of one is limited by `replay_bytes_max`.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-maximum" = "64GiB"))]
        mirror_total_bytes_max: usize => limits.mirror_total_bytes_max;
        /// The memory for all messages in transit: data that one side has sent and the other has not taken, incomplete
        /// heads, and the heads of requests that wait for their response. Beyond it, the connections that hold the most
        /// for the longest are closed (with a reset, or 503 if nothing was sent), beginning with those of address
        /// prefixes that hold more than a sixteenth. If that is not enough, requests to services get 503. At a sixteenth
        /// above the limit, nothing more is received of responses and bodies until less is held; at a quarter above,
        /// all new requests get 503. Bodies kept for retries (`replay_total_bytes_max`) and TLS sessions are not
        /// included.
        #[serde(with = "As::<Size<usize>>")]
        #[schemars(extend("x-minimum" = "4MiB", "x-maximum" = "1TiB"))]
        buffered_bytes_max: usize => limits.buffered_bytes_max;
        /// The part of the process's descriptors, and of its memory, from which on the gateway gives up what is of the least use: idle
        /// connections first, new ones last ([operations.md](operations.md#resource-pressure)). 100 switches it off.
        #[schemars(range(min = 50, max = 100))]
        pressure_percent: u32 => limits.pressure_percent;
        /// Concurrent requests on one HTTP/2 connection. The default is the smallest value that RFC 9113 §6.5.2
        /// recommends.
        #[schemars(range(min = 1, max = 10_000))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        http2_streams_max: u32 => limits.http2_streams_max;
    }
}

section! {
    /// Timeouts for clients and origins.
    RawTimeouts for General {
        /// For the PROXY header, if one is expected, and then for the TLS handshake, without the time that a connection
        /// waits for a permit (`limits.connections_max`). The default allows a handshake over a bad mobile link with two
        /// retransmissions.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "5m"))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        tls_handshake: Duration => connections.tls_handshake;
        /// From the first octet of a request to the end of its head; 408 after that. It limits attacks with slow
        /// requests.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "5m"))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        request_head: Duration => connections.request_head;
        /// Between two reads of a request's body; 408 after that.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
        request_body_idle: Duration => exchanges.request_body_idle;
        /// A kept-alive client connection without a request. The default is what browsers and libraries expect.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
        #[schemars(extend("x-reload" = Effect::NewConnections))]
        keep_alive_idle: Duration => connections.keep_alive_idle;
        /// A client that acknowledges nothing, or that reads nothing of the data sent to it: its connection is closed. A
        /// silent client is probed by TCP keepalive after a quarter of this. It ends tunnels and uploads of clients that
        /// are gone, and downloads that a client pauses for longer. The default exceeds the time for which responses may
        /// stall.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "12s", "x-maximum" = "1h"))]
        #[schemars(extend("x-reload" = Effect::Restart))]
        client_unreachable: Duration => connections.client_unreachable;
        /// Connecting to an endpoint, including its TLS handshake. Must be below `request`, so that time is left for
        /// another endpoint.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
        connect: Duration => exchanges.connect;
        /// From the sent request to the head of the response; 504 after that.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        response_head: Duration => exchanges.response_head;
        /// Between two reads of a response's body; after that the response is aborted.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
        response_body_idle: Duration => exchanges.response_body_idle;
        /// The least rate of a request's body, in bytes per second, while the client is waited for; 408 below it. It is measured over
        /// `body_rate_window`. 0: any. A rate ends streams of clients that send little for long.
        #[schemars(range(min = 0, max = 1_000_000))]
        request_body_rate_min: u32 => exchanges.request_body_rate_min;
        /// The least rate at which a client takes a response's body, in bytes per second, while there is something for it; the
        /// response is aborted below it. Over HTTP/2, what the connection takes counts. 0: any.
        #[schemars(range(min = 0, max = 1_000_000))]
        response_body_rate_min: u32 => exchanges.response_body_rate_min;
        /// The time over which both rates are measured.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1s", "x-maximum" = "5m"))]
        body_rate_window: Duration => exchanges.body_rate_window;
        /// A whole request, from its head to the last octet of the response. Tunnels are exempt. Routes with large
        /// bodies or long streams should override it.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "7d"))]
        request: Option<Duration> => exchanges.request;
        /// How long a WebSocket, a response or a request may continue after its token has expired, or the client
        /// certificate that its route or its host requires. Then it is aborted.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1h"))]
        token_expiry_grace: Duration => exchanges.token_expiry_grace;
        /// A pooled connection to an endpoint without a request. Must be below the endpoint's own timeout for idle
        /// connections; the default is below the 60 s and more of most servers.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
        upstream_keep_alive_idle: Duration => pool.idle_timeout;
    }
}

overrides! {
    /// Timeouts of a route. Default: the general ones.
    RawRouteTimeouts in place of "timeouts";
    for cardea_gateway::model::Timeouts {
        request: Duration [extend("x-minimum" = "100ms", "x-maximum" = "7d")] => request;
        request_body_idle: Duration [extend("x-minimum" = "100ms", "x-maximum" = "1h")] => request_body_idle;
        request_body_rate_min: u32 [range(min = 0, max = 1_000_000)] => request_body_rate_min;
        response_body_rate_min: u32 [range(min = 0, max = 1_000_000)] => response_body_rate_min;
        response_head: Duration [extend("x-minimum" = "10ms", "x-maximum" = "1h")] => response_head;
        response_body_idle: Duration [extend("x-minimum" = "100ms", "x-maximum" = "1d")] => response_body_idle;
        token_expiry_grace: Duration [extend("x-maximum" = "1h")] => token_expiry_grace;
    }
}

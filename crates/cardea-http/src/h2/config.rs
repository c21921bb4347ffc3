//! What a connection is set up with.

use core::time::Duration;

use super::budget::AbuseLimits;
use super::frame::{MAX_31, PAYLOAD_MAX};
use super::hpack::{EncoderConfig, TABLE_BYTES_DEFAULT};
use super::settings;
use super::streams::STREAMS_MAX;
use crate::h1::HeadLimits;
use crate::{Scheme, TrailerLimits};

/// The configuration of connections. Share it in an `Arc`.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The most streams of the peer, or of us, at a time. Default 128, at most 10,000.
    pub streams_max: u32,
    /// How much of one stream is received ahead of the application, in bytes. Default 256 KiB.
    pub stream_window: u32,
    /// The same for all streams of a connection together. Default 1 MiB, at least 65,535.
    pub connection_window: u32,
    /// Whether streams of several parties share the connection. Then content takes nothing of the connection's window once it was
    /// received, so that who does not read its stream takes nothing from the others; the windows of the streams bound what is held.
    /// Default false.
    pub is_shared: bool,
    /// The table of the peer's encoder, in bytes. Default 4096.
    pub header_table_bytes: u32,
    /// Our encoder.
    pub encoder: EncoderConfig,
    /// The limits of heads. The size is that of RFC 9113 §6.5.2, with 32 bytes for each line.
    pub head: HeadLimits,
    /// The limits of trailer sections.
    pub trailers: TrailerLimits,
    /// The scheme of requests: that of the connection. Default `https`.
    pub scheme: Scheme,
    /// Whether clients are offered extended CONNECT (RFC 8441). Default false.
    pub connect_protocol: bool,
    /// How long the preface, a block of fields or a control frame may take from its first byte to its last. Default 10 s.
    pub head_timeout: Duration,
    /// How long the peer may take to acknowledge our settings. Default 10 s.
    pub settings_timeout: Duration,
    /// How long a shutdown waits for the peer to learn of it before streams are refused. Default 1 s.
    pub shutdown_timeout: Duration,
    /// How many bytes may wait to be sent before no more DATA is added. Default 64 KiB.
    pub output_bytes_max: usize,
    /// What the peer may do in excess.
    pub abuse: AbuseLimits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams_max: 128,
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
            is_shared: false,
            header_table_bytes: TABLE_BYTES_DEFAULT as u32,
            encoder: EncoderConfig::default(),
            head: HeadLimits::default(),
            trailers: TrailerLimits::default(),
            scheme: Scheme::Https,
            connect_protocol: false,
            head_timeout: Duration::from_secs(10),
            settings_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(1),
            output_bytes_max: 64 * 1024,
            abuse: AbuseLimits::default(),
        }
    }
}

impl Config {
    /// The most streams, within the supported maximum.
    pub(super) fn streams_max(&self) -> u32 {
        self.streams_max.min(STREAMS_MAX)
    }

    pub(super) fn stream_window(&self) -> u32 {
        self.stream_window.min(MAX_31)
    }

    /// The largest block that any accepted head is encoded in: Huffman coding can make a string longer, but nobody is
    /// forced to use it, and each line has a few octets beside its strings.
    pub(super) fn block_bytes_max(&self) -> usize {
        self.head.head_bytes_max.max(self.trailers.bytes_max).saturating_add(PAYLOAD_MAX)
    }

    /// Our settings, those that differ from the default values of the protocol.
    pub(super) fn settings(&self, is_server: bool) -> Vec<(u16, u32)> {
        let list_max = u32::try_from(self.head.head_bytes_max).unwrap_or(u32::MAX);
        let mut list = vec![
            (settings::INITIAL_WINDOW_SIZE, self.stream_window()),
            (settings::MAX_HEADER_LIST_SIZE, list_max),
            (settings::NO_RFC7540_PRIORITIES, 1),
        ];
        if self.header_table_bytes as usize != TABLE_BYTES_DEFAULT {
            list.push((settings::HEADER_TABLE_SIZE, self.header_table_bytes));
        }
        if is_server {
            list.push((settings::MAX_CONCURRENT_STREAMS, self.streams_max()));
            if self.connect_protocol {
                list.push((settings::ENABLE_CONNECT_PROTOCOL, 1));
            }
        } else {
            list.push((settings::ENABLE_PUSH, 0));
        }
        list
    }
}

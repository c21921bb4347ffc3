//! Why a connection or a stream is ended because of its peer.

use super::budget::Abuse;
use super::frame::{ErrorCode, FrameError};
use super::hpack::{HpackError, LineError};
use crate::{FramingError, RequestError, TrailerError};

/// An error that ends the connection (RFC 9113 §5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The connection doesn't begin with the preface (RFC 9113 §3.4).
    #[error("no preface of HTTP/2")]
    PrefaceInvalid,
    /// The first frame isn't SETTINGS (RFC 9113 §3.4).
    #[error("the first frame is not SETTINGS")]
    SettingsMissing,
    /// A frame that is invalid by itself.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A block that can't be decoded.
    #[error(transparent)]
    Hpack(#[from] HpackError),
    /// Another frame within a block, or a CONTINUATION outside of one (RFC 9113 §6.2, §6.10).
    #[error("a block of fields is not contiguous")]
    BlockInterrupted,
    /// A frame of a stream that wasn't opened (RFC 9113 §5.1).
    #[error("a frame of an idle stream")]
    StreamIdle,
    /// A stream identifier that the peer can't open: even, or below another one (RFC 9113 §5.1.1).
    #[error("a stream identifier that is not allowed")]
    StreamIdInvalid,
    /// A frame of a stream that the peer has ended (RFC 9113 §5.1).
    #[error("a frame of a closed stream")]
    StreamClosed,
    /// A push, which we forbid or which clients can't send (RFC 9113 §8.4).
    #[error("a forbidden push")]
    PushForbidden,
    /// A setting out of its range (RFC 9113 §6.5.2).
    #[error("a setting is out of its range")]
    SettingInvalid,
    /// A SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1, or one that makes a window exceed it (RFC 9113 §6.5.2, §6.9.2).
    #[error("the initial window size is too large")]
    WindowSettingInvalid,
    /// An acknowledgement of nothing.
    #[error("an acknowledgement of settings that were not sent")]
    AckUnexpected,
    /// A WINDOW_UPDATE of 0 for the connection (RFC 9113 §6.9).
    #[error("an empty update of the window")]
    WindowUpdateEmpty,
    /// The window of the connection would exceed 2^31-1 (RFC 9113 §6.9.1).
    #[error("the window of the connection is too large")]
    WindowOverflow,
    /// More DATA than the window of the connection allows (RFC 9113 §6.9).
    #[error("more data than the window of the connection allows")]
    FlowControl,
    /// A GOAWAY with a higher stream than an earlier one (RFC 9113 §6.8).
    #[error("the last stream of GOAWAY has increased")]
    GoAwayIncreased,
    /// Our settings weren't acknowledged in time (RFC 9113 §6.5.3).
    #[error("the settings were not acknowledged in time")]
    SettingsTimeout,
    /// A frame that isn't DATA, or a block, wasn't complete in time.
    #[error("a head was not complete in time")]
    HeadTimeout,
    /// A budget is exceeded (RFC 9113 §10.5).
    #[error("excessive use: {}", .0.code())]
    Abuse(Abuse),
}

impl ConnectionError {
    /// The error code of GOAWAY.
    #[must_use]
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            Self::Frame(error) => error.error_code(),
            Self::Hpack(_) => ErrorCode::CompressionError,
            Self::StreamClosed => ErrorCode::StreamClosed,
            Self::WindowSettingInvalid | Self::WindowOverflow | Self::FlowControl => {
                ErrorCode::FlowControlError
            }
            Self::SettingsTimeout => ErrorCode::SettingsTimeout,
            Self::Abuse(_) | Self::HeadTimeout => ErrorCode::EnhanceYourCalm,
            Self::PrefaceInvalid
            | Self::SettingsMissing
            | Self::BlockInterrupted
            | Self::StreamIdle
            | Self::StreamIdInvalid
            | Self::PushForbidden
            | Self::SettingInvalid
            | Self::AckUnexpected
            | Self::WindowUpdateEmpty
            | Self::GoAwayIncreased => ErrorCode::ProtocolError,
        }
    }

    /// The stable reason code, for logs and metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::PrefaceInvalid => "http2_preface_invalid",
            Self::SettingsMissing => "http2_settings_missing",
            Self::Frame(error) => error.code(),
            Self::Hpack(error) => error.code(),
            Self::BlockInterrupted => "http2_block_interrupted",
            Self::StreamIdle => "http2_stream_idle",
            Self::StreamIdInvalid => "http2_stream_id_invalid",
            Self::StreamClosed => "http2_stream_closed",
            Self::PushForbidden => "http2_push_forbidden",
            Self::SettingInvalid => "http2_setting_invalid",
            Self::WindowSettingInvalid => "http2_window_setting_invalid",
            Self::AckUnexpected => "http2_ack_unexpected",
            Self::WindowUpdateEmpty => "http2_window_update_empty",
            Self::WindowOverflow => "http2_window_overflow",
            Self::FlowControl => "http2_flow_control",
            Self::GoAwayIncreased => "http2_goaway_increased",
            Self::SettingsTimeout => "http2_settings_timeout",
            Self::HeadTimeout => "request_head_timeout",
            Self::Abuse(abuse) => abuse.code(),
        }
    }
}

/// An error for which the codec resets one stream (RFC 9113 §5.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A malformed message (RFC 9113 §8.1.1).
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// More streams at a time than allowed, or during a shutdown (RFC 9113 §5.1.2). Nothing was processed.
    #[error("too many streams")]
    Refused,
    /// A frame of a stream that the peer has ended (RFC 9113 §5.1).
    #[error("a frame of a stream whose sender has ended it")]
    Ended,
    /// A stream that depends on itself, or PRIORITY of a wrong size (RFC 9113 §6.3, RFC 7540 §5.3.1).
    #[error("an invalid priority")]
    PriorityInvalid(ErrorCode),
    /// A WINDOW_UPDATE of 0 (RFC 9113 §6.9).
    #[error("an empty update of the window")]
    WindowUpdateEmpty,
    /// The window would exceed 2^31-1 (RFC 9113 §6.9.1).
    #[error("the window of the stream is too large")]
    WindowOverflow,
    /// More DATA than the window of the stream allows (RFC 9113 §6.9).
    #[error("more data than the window of the stream allows")]
    FlowControl,
}

impl StreamError {
    /// The error code of RST_STREAM.
    #[must_use]
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            Self::Malformed(_) | Self::WindowUpdateEmpty => ErrorCode::ProtocolError,
            Self::Refused => ErrorCode::RefusedStream,
            Self::Ended => ErrorCode::StreamClosed,
            Self::PriorityInvalid(code) => *code,
            Self::WindowOverflow | Self::FlowControl => ErrorCode::FlowControlError,
        }
    }

    /// The stable reason code, for logs and metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(error) => error.code(),
            Self::Refused => "http2_stream_refused",
            Self::Ended => "http2_stream_closed",
            Self::PriorityInvalid(_) => "http2_priority_invalid",
            Self::WindowUpdateEmpty => "http2_window_update_empty",
            Self::WindowOverflow => "http2_window_overflow",
            Self::FlowControl => "http2_flow_control",
        }
    }
}

/// What makes a message malformed (RFC 9113 §8.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A name or value that no field has.
    #[error(transparent)]
    Line(#[from] LineError),
    /// A pseudo-header field that is unknown, or belongs to the other kind of message (RFC 9113 §8.3).
    #[error("an undefined pseudo-header field")]
    PseudoUndefined,
    /// A pseudo-header field behind a field, or in trailers (RFC 9113 §8.1, §8.3).
    #[error("a misplaced pseudo-header field")]
    PseudoMisplaced,
    /// The same pseudo-header field twice (RFC 9113 §8.3).
    #[error("a repeated pseudo-header field")]
    PseudoRepeated,
    /// A pseudo-header field is missing, or must not be there with this method (RFC 9113 §8.3.1, §8.5).
    #[error("the pseudo-header fields are not those of a message")]
    PseudoSet,
    /// The value of a pseudo-header field is outside of its grammar.
    #[error("an invalid pseudo-header field")]
    PseudoInvalid,
    /// A connection-specific field, or an ambiguous length (RFC 9113 §8.1.1, §8.2.2).
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// The content has another length than declared (RFC 9113 §8.1.1).
    #[error("the content has another length than declared")]
    LengthDisagrees,
    /// Content before the head of a response (RFC 9113 §8.1).
    #[error("content before the head")]
    HeadMissing,
    /// A second head, or trailers without the end of the stream (RFC 9113 §8.1).
    #[error("trailers without the end of the stream")]
    EndMissing,
    /// An informational response that ends the stream, or 101 (RFC 9113 §8.1, §8.6).
    #[error("an invalid informational response")]
    InformationalInvalid,
    /// A head above the limits; of responses only.
    #[error("the head is too large")]
    TooLarge,
    /// The trailer section.
    #[error(transparent)]
    Trailers(#[from] TrailerError),
}

impl Malformed {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Line(error) => error.code(),
            Self::PseudoUndefined => "pseudo_header_undefined",
            Self::PseudoMisplaced => "pseudo_header_misplaced",
            Self::PseudoRepeated => "pseudo_header_repeated",
            Self::PseudoSet => "pseudo_header_set",
            Self::PseudoInvalid => "pseudo_header_invalid",
            Self::Framing(error) => error.code(),
            Self::LengthDisagrees => "body_length_disagrees",
            Self::HeadMissing => "head_missing",
            Self::EndMissing => "trailers_without_end",
            Self::InformationalInvalid => "informational_invalid",
            Self::TooLarge => "head_too_large",
            Self::Trailers(error) => error.code(),
        }
    }
}

/// Why a head isn't accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// The stream is reset.
    Malformed(Malformed),
    /// The request can be answered, as over HTTP/1.1.
    Refused(RequestError),
}

impl<E: Into<Malformed>> From<E> for HeadFault {
    fn from(error: E) -> Self {
        Self::Malformed(error.into())
    }
}

//! Error codes, and what is wrong with a frame by itself.

/// An error code (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// NO_ERROR.
    NoError,
    /// PROTOCOL_ERROR.
    ProtocolError,
    /// INTERNAL_ERROR.
    InternalError,
    /// FLOW_CONTROL_ERROR.
    FlowControlError,
    /// SETTINGS_TIMEOUT.
    SettingsTimeout,
    /// STREAM_CLOSED.
    StreamClosed,
    /// FRAME_SIZE_ERROR.
    FrameSizeError,
    /// REFUSED_STREAM: nothing of the request was processed, so it can be repeated (RFC 9113 §8.7).
    RefusedStream,
    /// CANCEL.
    Cancel,
    /// COMPRESSION_ERROR.
    CompressionError,
    /// CONNECT_ERROR.
    ConnectError,
    /// ENHANCE_YOUR_CALM.
    EnhanceYourCalm,
    /// INADEQUATE_SECURITY.
    InadequateSecurity,
    /// HTTP_1_1_REQUIRED.
    Http11Required,
    /// Any other, which has no special meaning.
    Unknown(u32),
}

impl ErrorCode {
    /// The code of a number.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        match number {
            0x0 => Self::NoError,
            0x1 => Self::ProtocolError,
            0x2 => Self::InternalError,
            0x3 => Self::FlowControlError,
            0x4 => Self::SettingsTimeout,
            0x5 => Self::StreamClosed,
            0x6 => Self::FrameSizeError,
            0x7 => Self::RefusedStream,
            0x8 => Self::Cancel,
            0x9 => Self::CompressionError,
            0xa => Self::ConnectError,
            0xb => Self::EnhanceYourCalm,
            0xc => Self::InadequateSecurity,
            0xd => Self::Http11Required,
            other => Self::Unknown(other),
        }
    }

    /// The number of the code.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::NoError => 0x0,
            Self::ProtocolError => 0x1,
            Self::InternalError => 0x2,
            Self::FlowControlError => 0x3,
            Self::SettingsTimeout => 0x4,
            Self::StreamClosed => 0x5,
            Self::FrameSizeError => 0x6,
            Self::RefusedStream => 0x7,
            Self::Cancel => 0x8,
            Self::CompressionError => 0x9,
            Self::ConnectError => 0xa,
            Self::EnhanceYourCalm => 0xb,
            Self::InadequateSecurity => 0xc,
            Self::Http11Required => 0xd,
            Self::Unknown(number) => number,
        }
    }
}

/// A frame that is invalid by itself. Each ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A payload above the limit (RFC 9113 §4.2).
    #[error("a frame is too large")]
    TooLarge,
    /// A payload of a size that its type doesn't have (RFC 9113 §4.2, §6).
    #[error("a frame has a size that its type doesn't have")]
    SizeInvalid,
    /// A frame of a stream on the connection, or the reverse (RFC 9113 §6).
    #[error("a frame of a stream on the connection, or the reverse")]
    StreamInvalid,
    /// More padding than payload (RFC 9113 §6.1).
    #[error("a frame has more padding than payload")]
    PaddingInvalid,
}

impl FrameError {
    /// The error code that ends the connection.
    #[must_use]
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            Self::TooLarge | Self::SizeInvalid => ErrorCode::FrameSizeError,
            Self::StreamInvalid | Self::PaddingInvalid => ErrorCode::ProtocolError,
        }
    }

    /// The stable reason code, for logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "frame_too_large",
            Self::SizeInvalid => "frame_size_invalid",
            Self::StreamInvalid => "frame_stream_invalid",
            Self::PaddingInvalid => "frame_padding_invalid",
        }
    }
}

//! Why a message is refused: each cause has one reason code and one status.

use crate::{AuthorityError, FieldError, MethodError, TargetError};

/// An error in the syntax or the size of a head, of a request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// A line ends in LF without CR (RFC 9112 §2.2 would let us accept it).
    #[error("a line ends without CR")]
    BareLf,
    /// A CR that is not followed by LF (RFC 9112 §2.2).
    #[error("a CR without LF")]
    BareCr,
    /// A field value that is continued on the next line (RFC 9112 §5.2), or white space before the first field.
    #[error("a line begins with white space")]
    ObsFold,
    /// More than four empty lines before a request, or any before a response (RFC 9112 §2.2).
    #[error("empty lines before the head")]
    EmptyLine,
    /// A request line or status line that does not follow the grammar (RFC 9112 §3, §4).
    #[error("the first line is malformed")]
    StartLineInvalid,
    /// White space between a field's name and the colon (RFC 9112 §5.1).
    #[error("white space before the colon of a field")]
    SpaceBeforeColon,
    /// A field line without a colon.
    #[error("a field without a colon")]
    ColonMissing,
    /// A field name that is empty or no token (RFC 9110 §5.1).
    #[error("a field name is not a token")]
    FieldNameInvalid,
    /// A control byte in a field value (RFC 9110 §5.5).
    #[error("a control byte in a field value")]
    FieldValueInvalid,
    /// The head is larger than the limit.
    #[error("the head is too large")]
    TooLarge,
    /// The head has more fields than the limit.
    #[error("too many fields")]
    TooManyFields,
}

impl HeadError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BareLf => "bare_lf",
            Self::BareCr => "bare_cr",
            Self::ObsFold => "obs_fold",
            Self::EmptyLine => "empty_line",
            Self::StartLineInvalid => "start_line_invalid",
            Self::SpaceBeforeColon => "space_before_colon",
            Self::ColonMissing => "colon_missing",
            Self::FieldNameInvalid => "field_name_invalid",
            Self::FieldValueInvalid => "field_value_invalid",
            Self::TooLarge => "head_too_large",
            Self::TooManyFields => "too_many_fields",
        }
    }

    /// The status of the response to a request.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::TooLarge | Self::TooManyFields => 431,
            _ => 400,
        }
    }
}

impl From<FieldError> for HeadError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::NameInvalid => Self::FieldNameInvalid,
            FieldError::ValueInvalid => Self::FieldValueInvalid,
            FieldError::TooLarge => Self::TooLarge,
            FieldError::TooMany => Self::TooManyFields,
        }
    }
}

/// A body whose length is ambiguous (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// Both `Content-Length` and `Transfer-Encoding` (RFC 9112 §6.1).
    #[error("both Content-Length and Transfer-Encoding")]
    ContentLengthWithTransferEncoding,
    /// More than one `Content-Length`, or a list in one, even with equal values (RFC 9110 §8.6).
    #[error("more than one Content-Length")]
    ContentLengthRepeated,
    /// Not a decimal number below 2^63 (RFC 9110 §8.6).
    #[error("Content-Length is not a number")]
    ContentLengthInvalid,
    /// More than one `Transfer-Encoding`, or a list in one.
    #[error("more than one transfer coding")]
    TransferEncodingRepeated,
    /// Another transfer coding than `chunked` (RFC 9112 §6.1).
    #[error("a transfer coding other than chunked")]
    TransferEncodingUnknown,
    /// `Transfer-Encoding` in HTTP/1.0, whose framing is unreliable (RFC 9112 §6.1).
    #[error("Transfer-Encoding in HTTP/1.0")]
    TransferEncodingInHttp10,
    /// A field of HTTP/1 connections in HTTP/2 (RFC 9113 §8.2.2).
    #[error("a connection-specific field in HTTP/2")]
    ConnectionFieldInHttp2,
    /// A field that some origins treat as `Content-Length` or `Transfer-Encoding`: it has other punctuation instead of
    /// `-`.
    #[error("a field name that may be taken for a framing field")]
    FramingFieldLookalike,
    /// A transfer coding, or a length other than 0, although there can be no body (RFC 9110 §8.6, RFC 9112 §6.1).
    #[error("a body length where there is no body")]
    BodyNotAllowed,
}

impl FramingError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ContentLengthWithTransferEncoding => "content_length_with_transfer_encoding",
            Self::ContentLengthRepeated => "content_length_repeated",
            Self::ContentLengthInvalid => "content_length_invalid",
            Self::TransferEncodingRepeated => "transfer_encoding_repeated",
            Self::TransferEncodingUnknown => "transfer_encoding_unknown",
            Self::TransferEncodingInHttp10 => "transfer_encoding_in_http10",
            Self::ConnectionFieldInHttp2 => "connection_field_in_http2",
            Self::FramingFieldLookalike => "framing_field_lookalike",
            Self::BodyNotAllowed => "body_not_allowed",
        }
    }
}

/// Why a request is refused. In every case the connection must be closed, because its framing is unreliable (RFC 9112
/// §2.2, §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The head's syntax or size.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The method.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// A version like HTTP, but neither 1.0 nor 1.1 (RFC 9110 §15.6.6).
    #[error("unsupported HTTP version")]
    VersionUnsupported,
    /// The target is longer than the limit (RFC 9110 §15.5.15).
    #[error("the target is too long")]
    TargetTooLong,
    /// The target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// `Host` is missing although it is required (RFC 9112 §3.2).
    #[error("no Host")]
    HostMissing,
    /// More than one `Host` (RFC 9112 §3.2).
    #[error("more than one Host")]
    HostRepeated,
    /// `Host`, or the authority of the target, is malformed.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// `Host` differs from the authority of the target.
    #[error("Host disagrees with the target")]
    HostDisagrees,
    /// The target's scheme is not that of the connection (RFC 9110 §7.4).
    #[error("the target's scheme is not the connection's")]
    SchemeDisagrees,
    /// The body's length.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// `Connection` names an end-to-end field, which would be removed (RFC 9110 §7.6.1).
    #[error("Connection names an end-to-end field")]
    ConnectionNamesEndToEnd,
    /// `Connection` is no list of tokens, or too long.
    #[error("Connection is malformed")]
    ConnectionInvalid,
}

impl RequestError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Head(error) => error.code(),
            Self::Method(error) => error.code(),
            Self::VersionUnsupported => "version_unsupported",
            Self::TargetTooLong => "target_too_long",
            Self::Target(error) => error.code(),
            Self::HostMissing => "host_missing",
            Self::HostRepeated => "host_repeated",
            Self::Authority(error) => error.code(),
            Self::HostDisagrees => "host_disagrees",
            Self::SchemeDisagrees => "scheme_disagrees",
            Self::Framing(error) => error.code(),
            Self::ConnectionNamesEndToEnd => "connection_names_end_to_end",
            Self::ConnectionInvalid => "connection_invalid",
        }
    }

    /// The status of the response: 400, 414, 431, 501 or 505.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Head(error) => error.status(),
            Self::Method(error) => error.status(),
            Self::VersionUnsupported => 505,
            Self::TargetTooLong => 414,
            _ => 400,
        }
    }
}

impl From<FieldError> for RequestError {
    fn from(error: FieldError) -> Self {
        Self::Head(error.into())
    }
}

/// Why an origin's response is refused. The connection must be closed, and the client gets 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The head's syntax or size.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// Neither HTTP/1.0 nor HTTP/1.1.
    #[error("unsupported HTTP version")]
    VersionUnsupported,
    /// A status code outside 100 to 599 (RFC 9110 §15).
    #[error("a status code out of range")]
    StatusInvalid,
    /// The body's length.
    #[error(transparent)]
    Framing(#[from] FramingError),
}

impl ResponseError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Head(error) => error.code(),
            Self::VersionUnsupported => "version_unsupported",
            Self::StatusInvalid => "status_invalid",
            Self::Framing(error) => error.code(),
        }
    }

    /// The status of the response to the client: 502.
    #[must_use]
    pub const fn status(&self) -> u16 {
        502
    }
}

impl From<FieldError> for ResponseError {
    fn from(error: FieldError) -> Self {
        Self::Head(error.into())
    }
}

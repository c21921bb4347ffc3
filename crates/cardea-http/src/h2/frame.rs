//! Frames (RFC 9113 §4, §6): reading their headers and payloads, and writing them.
//!
//! Each rule on sizes, stream identifiers, flags and padding is checked here; rules on the order of frames are those of
//! the connection.

mod error;
#[cfg(test)]
mod tests;
mod write;

pub use error::{ErrorCode, FrameError};

pub(crate) use write::{begin_block, end_block, write_data_header};
pub use write::{
    write_goaway, write_ping, write_rst_stream, write_settings, write_settings_ack, write_window_update,
};

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The size of a frame's header, in bytes.
pub const HEADER_LEN: usize = 9;

/// The largest payload that every peer accepts (RFC 9113 §4.2), and the largest that we do: with larger ones, a frame
/// of one stream delays all others for longer.
pub const PAYLOAD_MAX: usize = 16_384;

/// The highest stream identifier and the largest window (RFC 9113 §5.1.1, §6.9.1).
pub const MAX_31: u32 = (1 << 31) - 1;

/// A frame's type (RFC 9113 §6, RFC 9218 §7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameType {
    /// DATA.
    Data,
    /// HEADERS.
    Headers,
    /// PRIORITY.
    Priority,
    /// RST_STREAM.
    RstStream,
    /// SETTINGS.
    Settings,
    /// PUSH_PROMISE.
    PushPromise,
    /// PING.
    Ping,
    /// GOAWAY.
    GoAway,
    /// WINDOW_UPDATE.
    WindowUpdate,
    /// CONTINUATION.
    Continuation,
    /// PRIORITY_UPDATE.
    PriorityUpdate,
    /// Any other type, which is ignored (RFC 9113 §5.5).
    Unknown(u8),
}

/// The flags of a frame, as far as they have a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// ACK, of SETTINGS and PING.
    pub const ACK: Self = Self(0x1);
    /// END_STREAM, of DATA and HEADERS.
    pub const END_STREAM: Self = Self(0x1);
    /// END_HEADERS, of HEADERS and CONTINUATION.
    pub const END_HEADERS: Self = Self(0x4);
    /// PADDED, of DATA and HEADERS.
    pub const PADDED: Self = Self(0x8);
    /// PRIORITY, of HEADERS.
    pub const PRIORITY: Self = Self(0x20);

    /// Whether one of the flags in `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These if `condition`, otherwise none.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self(0) }
    }
}

/// A frame's header (RFC 9113 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The size of the payload, in bytes.
    pub len: usize,
    /// The type.
    pub kind: FrameType,
    /// The flags.
    pub flags: Flags,
    /// The stream, without the reserved bit; 0 for the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the header at the beginning of `input`. `None` if it is incomplete.
    ///
    /// # Errors
    /// [`FrameError`] for what the header alone makes invalid: the size, and the stream being that of the connection or
    /// not.
    pub fn parse(input: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some(&[len_high, len_middle, len_low, kind, flags, stream_1, stream_2, stream_3, stream_4]) =
            input.first_chunk::<HEADER_LEN>()
        else {
            return Ok(None);
        };
        let header = Self {
            len: u32::from_be_bytes([0, len_high, len_middle, len_low]) as usize,
            kind: FrameType::of(kind),
            flags: Flags(flags),
            stream: u32::from_be_bytes([stream_1, stream_2, stream_3, stream_4]) & MAX_31,
        };
        header.check()?;
        Ok(Some(header))
    }

    fn check(&self) -> Result<(), FrameError> {
        use FrameType::{
            Continuation, Data, GoAway, Headers, Ping, Priority, PriorityUpdate, PushPromise, RstStream,
            Settings, Unknown, WindowUpdate,
        };
        if self.len > PAYLOAD_MAX {
            return Err(FrameError::TooLarge);
        }
        let sized = match self.kind {
            // Padding and priority need their octets.
            Data => self.len >= usize::from(self.flags.has(Flags::PADDED)),
            Headers => {
                let padding = usize::from(self.flags.has(Flags::PADDED));
                self.len >= padding + if self.flags.has(Flags::PRIORITY) { 5 } else { 0 }
            }
            RstStream | WindowUpdate => self.len == 4,
            Settings if self.flags.has(Flags::ACK) => self.len == 0,
            Settings => self.len.is_multiple_of(6),
            Ping => self.len == 8,
            GoAway => self.len >= 8,
            PriorityUpdate => self.len >= 4,
            // A wrong size of PRIORITY concerns its stream only (RFC 9113 §6.3).
            Priority | PushPromise | Continuation | Unknown(_) => true,
        };
        let addressed = match self.kind {
            Data | Headers | Priority | RstStream | PushPromise | Continuation => self.stream != 0,
            Settings | Ping | GoAway | PriorityUpdate => self.stream == 0,
            WindowUpdate | Unknown(_) => true,
        };
        match (addressed, sized) {
            (false, _) => Err(FrameError::StreamInvalid),
            (true, false) => Err(FrameError::SizeInvalid),
            (true, true) => Ok(()),
        }
    }

    /// Appends the header.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// The header as it is sent.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let [_, len_high, len_middle, len_low] = (self.len as u32).to_be_bytes();
        let [stream_1, stream_2, stream_3, stream_4] = self.stream.to_be_bytes();
        let (kind, flags) = (self.kind.number(), self.flags.0);
        [len_high, len_middle, len_low, kind, flags, stream_1, stream_2, stream_3, stream_4]
    }
}

impl FrameType {
    const fn of(number: u8) -> Self {
        match number {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::RstStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            0x10 => Self::PriorityUpdate,
            other => Self::Unknown(other),
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::Priority => 0x2,
            Self::RstStream => 0x3,
            Self::Settings => 0x4,
            Self::PushPromise => 0x5,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::WindowUpdate => 0x8,
            Self::Continuation => 0x9,
            Self::PriorityUpdate => 0x10,
            Self::Unknown(number) => number,
        }
    }
}

/// The payload of HEADERS.
#[derive(Debug, PartialEq, Eq)]
pub struct HeadersPayload<'a> {
    /// The fragment of the block.
    pub fragment: &'a [u8],
    /// The stream that it depends on. Such priorities are deprecated (RFC 9113 §5.3.2) and ignored, except that a stream
    /// can't depend on itself (RFC 7540 §5.3.1).
    pub dependency: Option<u32>,
}

/// Reads the payload of HEADERS.
///
/// # Errors
/// [`FrameError::PaddingInvalid`].
pub fn headers_payload<'a>(
    header: &FrameHeader,
    payload: &'a [u8],
) -> Result<HeadersPayload<'a>, FrameError> {
    let mut rest = payload;
    let padding = match rest.split_first() {
        Some((&padding, after)) if header.flags.has(Flags::PADDED) => {
            rest = after;
            usize::from(padding)
        }
        _ => 0,
    };
    let mut dependency = None;
    if header.flags.has(Flags::PRIORITY) {
        let (priority, after) = rest.split_first_chunk::<5>().ok_or(FrameError::SizeInvalid)?;
        dependency = Some(dependency_of(priority));
        rest = after;
    }
    let len = rest.len().checked_sub(padding).ok_or(FrameError::PaddingInvalid)?;
    Ok(HeadersPayload { fragment: rest.get(..len).unwrap_or_default(), dependency })
}

/// The stream that the payload of PRIORITY names. `None` if it has the wrong size, which is an error of its stream
/// (RFC 9113 §6.3).
#[must_use]
pub fn priority_dependency(payload: &[u8]) -> Option<u32> {
    payload.try_into().ok().map(dependency_of)
}

const fn dependency_of(&[one, two, three, four, _]: &[u8; 5]) -> u32 {
    u32::from_be_bytes([one, two, three, four]) & MAX_31
}

/// Reads a number of 31 bits: the payload of WINDOW_UPDATE.
#[must_use]
pub fn window_increment(payload: &[u8]) -> u32 {
    number(payload) & MAX_31
}

/// Reads the payload of RST_STREAM.
#[must_use]
pub fn reset_code(payload: &[u8]) -> ErrorCode {
    ErrorCode::of(number(payload))
}

/// Reads the last stream and the error code from the payload of GOAWAY.
#[must_use]
pub fn goaway_payload(payload: &[u8]) -> (u32, ErrorCode) {
    let code = payload.get(4..).unwrap_or_default();
    (number(payload) & MAX_31, ErrorCode::of(number(code)))
}

/// Reads the stream and the field value from the payload of PRIORITY_UPDATE (RFC 9218 §7.1).
#[must_use]
pub fn priority_update_payload(payload: &[u8]) -> (u32, &[u8]) {
    (number(payload) & MAX_31, payload.get(4..).unwrap_or_default())
}

/// The settings in a payload (RFC 9113 §6.5.1), in order.
pub fn settings_payload(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    let (settings, _) = payload.as_chunks::<6>();
    settings.iter().map(|&[id_high, id_low, one, two, three, four]| {
        (u16::from_be_bytes([id_high, id_low]), u32::from_be_bytes([one, two, three, four]))
    })
}

fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().copied().map_or(0, u32::from_be_bytes)
}

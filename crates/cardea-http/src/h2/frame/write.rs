//! Writes frames.

use super::{ErrorCode, Flags, FrameHeader, FrameType, HEADER_LEN};

/// Appends SETTINGS with these values.
pub fn write_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    frame(FrameType::Settings, Flags::default(), 0, settings.len() * 6, out);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of SETTINGS.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    frame(FrameType::Settings, Flags::ACK, 0, 0, out);
}

/// Appends PING or its acknowledgement.
pub fn write_ping(is_ack: bool, data: [u8; 8], out: &mut Vec<u8>) {
    frame(FrameType::Ping, Flags::ACK.when(is_ack), 0, data.len(), out);
    out.extend_from_slice(&data);
}

/// Appends GOAWAY without debug data.
pub fn write_goaway(last_stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    frame(FrameType::GoAway, Flags::default(), 0, 8, out);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.number().to_be_bytes());
}

/// Appends RST_STREAM.
pub fn write_rst_stream(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    frame(FrameType::RstStream, Flags::default(), stream, 4, out);
    out.extend_from_slice(&code.number().to_be_bytes());
}

/// Appends WINDOW_UPDATE of a stream, or of the connection if `stream` is 0.
pub fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    frame(FrameType::WindowUpdate, Flags::default(), stream, 4, out);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends the header of DATA. `len` bytes must follow.
pub(crate) fn write_data_header(stream: u32, len: usize, end_stream: bool, out: &mut Vec<u8>) {
    frame(FrameType::Data, Flags::END_STREAM.when(end_stream), stream, len, out);
}

fn frame(kind: FrameType, flags: Flags, stream: u32, len: usize, out: &mut Vec<u8>) {
    FrameHeader { len, kind, flags, stream }.write(out);
}

/// Where a frame begins whose payload is being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameMark(usize);

/// Begins HEADERS. The block is appended, then [`end_block`] is called.
pub(crate) fn begin_block(out: &mut Vec<u8>) -> FrameMark {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    FrameMark(start)
}

/// Ends HEADERS. A block above `payload_max` is divided into HEADERS and CONTINUATION.
pub(crate) fn end_block(
    FrameMark(start): FrameMark,
    stream: u32,
    end_stream: bool,
    payload_max: usize,
    out: &mut Vec<u8>,
) {
    let len = out.len().saturating_sub(start + HEADER_LEN);
    let end_stream = Flags::END_STREAM.when(end_stream);
    if len <= payload_max {
        let flags = Flags::END_HEADERS.and(end_stream);
        let header = FrameHeader { len, kind: FrameType::Headers, flags, stream };
        if let Some(place) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            *place = header.to_bytes();
        }
        return;
    }
    let block = out.split_off(start + HEADER_LEN);
    out.truncate(start);
    let mut fragments = block.chunks(payload_max.max(1)).peekable();
    let mut kind = FrameType::Headers;
    let mut flags = end_stream;
    while let Some(fragment) = fragments.next() {
        if fragments.peek().is_none() {
            flags = flags.and(Flags::END_HEADERS);
        }
        frame(kind, flags, stream, fragment.len(), out);
        out.extend_from_slice(fragment);
        kind = FrameType::Continuation;
        flags = Flags::default();
    }
}

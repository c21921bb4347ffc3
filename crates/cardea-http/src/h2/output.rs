//! The bytes that wait to be sent.

use super::frame::{Flags, FrameHeader, FrameType, HEADER_LEN, write_data_header};

/// Frames in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// The bytes at the beginning that were sent.
    sent: usize,
    /// The DATA frame at the end, as long as nothing of the output was sent since.
    last_data: Option<DataFrame>,
}

#[derive(Debug, Clone, Copy)]
struct DataFrame {
    stream: u32,
    start: usize,
    len: usize,
}

/// Sent bytes are dropped from the buffer when there are so many.
const SENT_MAX: usize = 16 * 1024;

impl Output {
    pub(super) fn pending(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.bytes.len());
        self.last_data = None;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent > SENT_MAX {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Where frames other than DATA are appended.
    pub(super) const fn frames(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends DATA of at most `payload_max` bytes. It becomes part of the frame before it, if that is of the same stream
    /// and wasn't sent yet: so an end that becomes known late needs no empty frame.
    pub(super) fn data(&mut self, stream: u32, content: &[u8], end_stream: bool, payload_max: usize) {
        let before = self.last_data.filter(|last| {
            last.stream == stream
                && last.start + HEADER_LEN + last.len == self.bytes.len()
                && last.len + content.len() <= payload_max
        });
        let frame = match before {
            Some(last) => {
                let len = last.len + content.len();
                let flags = Flags::END_STREAM.when(end_stream);
                let header = FrameHeader { len, kind: FrameType::Data, flags, stream };
                if let Some(place) = self.bytes.get_mut(last.start..).and_then(<[u8]>::first_chunk_mut) {
                    *place = header.to_bytes();
                }
                DataFrame { len, ..last }
            }
            None => {
                let start = self.bytes.len();
                write_data_header(stream, content.len(), end_stream, &mut self.bytes);
                DataFrame { stream, start, len: content.len() }
            }
        };
        self.bytes.extend_from_slice(content);
        self.last_data = (!end_stream).then_some(frame);
    }

    /// Gives back the memory if nothing is pending.
    pub(super) fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_share_a_frame_and_a_late_end_needs_none() {
        let mut output = Output::default();
        output.data(1, b"ab", false, 5);
        output.data(1, b"cde", false, 5);
        output.data(1, b"f", false, 5);
        output.data(3, b"x", false, 5);
        output.data(1, b"g", false, 5);
        output.data(1, b"", true, 5);
        let expected: &[&[u8]] = &[
            b"\0\0\x05\0\0\0\0\0\x01abcde",
            b"\0\0\x01\0\0\0\0\0\x01f",
            b"\0\0\x01\0\0\0\0\0\x03x",
            b"\0\0\x01\0\x01\0\0\0\x01g",
        ];
        assert_eq!(output.pending(), expected.concat());
        // Not into a frame that was begun to be sent, and not behind another one.
        output.data(3, b"y", false, 5);
        output.consume(1);
        output.data(3, b"z", false, 5);
        output.frames().push(b'!');
        output.data(3, b"z", false, 5);
        assert!(output.pending().ends_with(b"\x03y\0\0\x01\0\0\0\0\0\x03z!\0\0\x01\0\0\0\0\0\x03z"));
        output.consume(usize::MAX);
        output.shrink();
        assert_eq!((output.pending().len(), output.memory_bytes()), (0, 0));
    }
}

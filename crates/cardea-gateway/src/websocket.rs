//! Where the frames of a WebSocket end, and the frame that closes one (RFC 6455 §5).
//!
//! A tunnel carries octets and needs to know nothing of them, but for one thing: a frame of ours may stand only between two
//! of the service's.

pub(crate) mod handshake;

/// The opcode of a close frame (RFC 6455 §5.5.1).
const CLOSE: u8 = 0x8;

/// Follows the frames of one direction. Costs a few instructions per frame and keeps nothing of what is in them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frames {
    /// How many octets of a frame's header were seen; 0 between two headers.
    seen: u8,
    opcode: u8,
    /// How many octets the header has, with the extended length and the masking key.
    header: u8,
    /// Octets of the extended length.
    extended: u8,
    /// Of the payload; while the header is read, as far as it is known.
    left: u64,
    closed: bool,
}

impl Frames {
    /// Whether the last frame is complete.
    pub(crate) const fn is_at_boundary(&self) -> bool {
        self.seen == 0 && self.left == 0
    }

    /// Whether a close frame went by: nothing may follow it (RFC 6455 §5.5.1).
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes note of what is sent.
    pub(crate) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = bytes.get(self.step(bytes)..).unwrap_or_default();
        }
    }

    /// How many of `bytes` belong to the frame that was begun: after them there is a boundary, or they all do.
    pub(crate) fn rest_of_frame(mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while !self.is_at_boundary() && at < bytes.len() {
            at += self.step(bytes.get(at..).unwrap_or_default());
        }
        at
    }

    /// Takes an octet of a header, or as much of a payload as there is; how many octets that was.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.seen == 0 && self.left > 0 {
            let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            self.left -= count as u64;
            return count;
        }
        let Some(byte) = bytes.first() else { return 0 };
        match self.seen {
            0 => self.opcode = byte & 0x0f,
            1 => {
                let (masked, length) = (byte & 0x80 != 0, byte & 0x7f);
                self.extended = match length {
                    126 => 2,
                    127 => 8,
                    _ => 0,
                };
                self.left = if self.extended == 0 { u64::from(length) } else { 0 };
                self.header = 2 + self.extended + if masked { 4 } else { 0 };
            }
            at if at < 2 + self.extended => self.left = (self.left << 8) | u64::from(*byte),
            // The masking key.
            _ => {}
        }
        self.seen += 1;
        if self.seen >= 2 && self.seen == self.header {
            self.seen = 0;
            self.closed |= self.opcode == CLOSE;
        }
        1
    }
}

/// A close frame (RFC 6455 §5.5.1) with a status and at most 123 octets of a reason. A client's is masked (§5.3), a
/// server's isn't.
pub(crate) fn close_frame(code: u16, reason: &str, mask: Option<[u8; 4]>) -> Vec<u8> {
    let reason = reason.as_bytes().get(..reason.len().min(123)).unwrap_or_default();
    let length = u8::try_from(2 + reason.len()).unwrap_or(2);
    let mut frame = Vec::with_capacity(8 + reason.len());
    frame.extend_from_slice(&[0x80 | CLOSE, if mask.is_some() { 0x80 | length } else { length }]);
    frame.extend_from_slice(mask.as_ref().map_or(&[], <[u8; 4]>::as_slice));
    let payload = code.to_be_bytes().into_iter().chain(reason.iter().copied());
    frame.extend(payload.zip(mask.unwrap_or_default().into_iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as its sender writes it.
    fn frame(opcode: u8, masked: bool, length: usize) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            0..126 => frame.push(mask | u8::try_from(length).unwrap()),
            126..0x1_0000 => {
                frame.push(mask | 126);
                frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(if masked { &[1, 2, 3, 4] } else { &[] });
        // What looks like headers of frames is none within a payload.
        frame.extend(std::iter::repeat_n(0x88, length));
        frame
    }

    #[test]
    fn frames_end_where_their_headers_say() {
        for masked in [false, true] {
            for length in [0, 1, 125, 126, 127, 0xffff, 0x1_0000, 70_000] {
                let bytes = frame(2, masked, length);
                let mut frames = Frames::default();
                assert!(frames.is_at_boundary());
                for byte in &bytes[..bytes.len() - 1] {
                    frames.advance(&[*byte]);
                    assert!(!frames.is_at_boundary(), "{length}");
                }
                frames.advance(&bytes[bytes.len() - 1..]);
                assert!(frames.is_at_boundary() && !frames.is_closed(), "{length}");
            }
        }
    }

    #[test]
    fn a_close_frame_is_noticed_and_lengths_beyond_all_bounds_never_end() {
        let mut frames = Frames::default();
        frames.advance(&frame(9, false, 3));
        assert!(!frames.is_closed());
        frames.advance(&close_frame(1000, "bye", None));
        assert!(frames.is_closed() && frames.is_at_boundary());
        let mut frames = Frames::default();
        frames.advance(&[0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255]);
        frames.advance(&[0; 1000]);
        assert!(!frames.is_at_boundary());
        assert_eq!(frames.rest_of_frame(&[0; 77]), 77);
    }

    #[test]
    fn a_close_frame_has_a_bounded_reason() {
        assert_eq!(close_frame(1008, "no", None), [0x88, 4, 0x03, 0xf0, b'n', b'o']);
        let masked = [0x88, 0x84, 1, 2, 3, 4, 0x03 ^ 1, 0xf0 ^ 2, b'n' ^ 3, b'o' ^ 4];
        assert_eq!(close_frame(1008, "no", Some([1, 2, 3, 4])), masked);
        assert_eq!(close_frame(1001, &"x".repeat(500), None).len(), 2 + 125);
    }

    proptest! {
        /// However the octets arrive, boundaries are where frames end and nowhere else.
        #[test]
        fn boundaries_do_not_depend_on_how_octets_arrive(
            lengths in proptest::collection::vec((0..300_usize, any::<bool>()), 1..8),
            cuts in proptest::collection::vec(1..200_usize, 1..64),
        ) {
            let mut ends = vec![0];
            let mut bytes = Vec::new();
            for (length, masked) in lengths {
                bytes.extend(frame(1, masked, length));
                ends.push(bytes.len());
            }
            let (mut at, mut frames) = (0, Frames::default());
            for cut in cuts.into_iter().cycle() {
                prop_assert_eq!(frames.is_at_boundary(), ends.contains(&at));
                let next = *ends.iter().find(|end| **end >= at).unwrap();
                prop_assert_eq!(frames.rest_of_frame(&bytes[at..]), next - at);
                if at == bytes.len() {
                    break;
                }
                let to = (at + cut).min(bytes.len());
                frames.advance(&bytes[at..to]);
                at = to;
            }
        }
    }
}

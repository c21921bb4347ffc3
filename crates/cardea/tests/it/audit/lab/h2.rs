//! A client of HTTP/2 that sends whatever it is told (RFC 9113, RFC 7541): no library would.

use std::io::{self, ErrorKind, Read, Write};

use super::{
    Answer,
    request::{Body, Request},
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK_OR_END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection.
pub(crate) struct Client<S> {
    stream: S,
    next: u32,
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(mut stream: S) -> io::Result<Self> {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        // No dynamic table, so that each header block can be read by itself; no push.
        stream.write_all(&frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]))?;
        Ok(Self { stream, next: 1 })
    }

    /// Sends a request on a stream of its own and reads the answer.
    pub(crate) fn send(&mut self, request: &Request) -> io::Result<Answer> {
        let id = self.next;
        self.next += 2;
        let mut head = Vec::new();
        for (name, value) in
            [(":method", &request.method), (":path", &request.target), (":authority", &request.authority)]
        {
            field(&mut head, name, value);
        }
        field(&mut head, ":scheme", "https");
        for (name, value) in &request.fields {
            field(&mut head, &name.to_ascii_lowercase(), value);
        }
        let (body, trailers): (&[u8], &[_]) = match &request.body {
            Body::None => (&[], &[]),
            Body::Sized(body, length) => {
                field(&mut head, "content-length", length);
                (body, &[])
            }
            Body::Streamed(body, trailers) => (body, trailers),
        };
        let is_last = |last: bool| if last { ACK_OR_END_STREAM } else { 0 };
        let has_body = !matches!(request.body, Body::None);
        let mut frames = frame(HEADERS, END_HEADERS | is_last(!has_body), id, &head);
        if has_body {
            frames.extend(frame(DATA, is_last(trailers.is_empty()), id, body));
            if !trailers.is_empty() {
                let mut block = Vec::new();
                trailers
                    .iter()
                    .for_each(|(name, value)| field(&mut block, &name.to_ascii_lowercase(), value));
                frames.extend(frame(HEADERS, END_HEADERS | ACK_OR_END_STREAM, id, &block));
            }
        }
        self.stream.write_all(&frames)?;
        self.stream.flush()?;
        self.answer(id)
    }

    fn answer(&mut self, id: u32) -> io::Result<Answer> {
        let mut answer = Answer::default();
        loop {
            let (kind, flags, stream, payload) = self.read_frame()?;
            match kind {
                SETTINGS if flags & ACK_OR_END_STREAM == 0 => {
                    self.stream.write_all(&frame(SETTINGS, ACK_OR_END_STREAM, 0, &[]))?;
                }
                HEADERS if stream == id => {
                    if let Some(status) = status(&payload).filter(|status| *status >= 200) {
                        answer.status = status;
                    }
                }
                DATA if stream == id => answer.body.extend_from_slice(&payload),
                RST_STREAM if stream == id => return Ok(Answer::default()),
                GOAWAY => return Err(ErrorKind::ConnectionReset.into()),
                _ => {}
            }
            if matches!(kind, HEADERS | DATA) && stream == id && flags & ACK_OR_END_STREAM != 0 {
                return Ok(answer);
            }
        }
    }

    fn read_frame(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        Ok((head[3], head[4], stream, payload))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// RFC 7541 §6.2.2: a literal, by its name, without Huffman coding.
fn field(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        // §5.1, with a prefix of seven bits.
        if let Some(rest) = text.len().checked_sub(127) {
            block.push(127);
            let mut rest = rest;
            while rest >= 128 {
                block.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            block.push(u8::try_from(rest).unwrap());
        } else {
            block.push(u8::try_from(text.len()).unwrap());
        }
        block.extend_from_slice(text.as_bytes());
    }
}

/// The `:status` that a header block begins with; `None` for trailers.
fn status(block: &[u8]) -> Option<u16> {
    // §6.3: updates of the size of the dynamic table.
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20)?;
    let block = &block[start..];
    // §6.1 and Appendix A.
    if let 0x88..=0x8e = block[0] {
        return Some([200, 204, 206, 304, 400, 404, 500][usize::from(block[0] - 0x88)]);
    }
    if !matches!(block[0], 0x48..=0x4e | 0x08..=0x0e) {
        return None;
    }
    let length = usize::from(block[1] & 0x7f);
    let value = &block[2..2 + length];
    if block[1] & 0x80 == 0 {
        return std::str::from_utf8(value).ok()?.parse().ok();
    }
    // Appendix B: 0 to 2 take five bits, 3 to 9 take six.
    let mut bits = value.iter().flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1)));
    let mut status = 0;
    for _ in 0..3 {
        let mut code = (0..5).fold(0, |code, _| code << 1 | bits.next().unwrap_or(1));
        if code > 2 {
            code = (code << 1 | bits.next().unwrap_or(1)) - 0x19 + 3;
        }
        status = status * 10 + code;
    }
    Some(status)
}

#[test]
fn every_status_is_read() {
    assert_eq!(status(&[0x20, 0x88]), Some(200));
    assert_eq!(status(&[0x48, 3, b'4', b'2', b'1']), Some(421));
    // "307" and "403": 011001 00000 011101 and 011010 00000 011001, padded with ones.
    assert_eq!(status(&[0x48, 0x83, 0b0110_0100, 0b0000_1110, 0b1111_1111]), Some(307));
    assert_eq!(status(&[0x08, 0x83, 0b0110_1000, 0b0000_1100, 0b1111_1111]), Some(403));
    assert_eq!(status(&[0x00, 1, b'a', 1, b'b']), None);
}

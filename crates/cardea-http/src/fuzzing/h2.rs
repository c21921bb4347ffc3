//! Properties of the HTTP/2 codec.

use core::time::Duration;
use std::sync::Arc;

use super::check_fields;
use crate::h2::frame::{
    FrameHeader, HEADER_LEN, MAX_31, PAYLOAD_MAX, PREFACE, goaway_payload, headers_payload,
    priority_dependency, priority_update_payload, reset_code, settings_payload, window_increment,
    write_settings, write_settings_ack,
};
use crate::h2::hpack::{Decoder, Encoder, EncoderConfig, FieldLine};
use crate::h2::{Client, Config, Connection, ConnectionError, Event, Role, SendError, Server};
use crate::{FieldError, Fields, RequestHead, ResponseHead};

/// A frame's header is written as it was read, and each payload is a part of the frame.
fn frame(data: &[u8]) {
    let Ok(Some(header)) = FrameHeader::parse(data) else {
        return;
    };
    assert!(header.len <= PAYLOAD_MAX && header.stream <= MAX_31);
    let mut bytes = header.to_bytes();
    if let (Some(written), Some(read)) = (bytes.get_mut(5), data.get(5)) {
        // The reserved bit.
        *written |= read & 0x80;
    }
    assert_eq!(Some(&bytes[..]), data.get(..HEADER_LEN));
    let payload = data.get(HEADER_LEN..).unwrap_or_default();
    if let Ok(headers) = headers_payload(&header, payload) {
        assert!(headers.fragment.len() <= payload.len());
        assert!(headers.dependency.is_none_or(|stream| stream <= MAX_31));
    }
    assert!(window_increment(payload) <= MAX_31 && goaway_payload(payload).0 <= MAX_31);
    assert!(priority_update_payload(payload).0 <= MAX_31);
    let _ = (priority_dependency(payload), reset_code(payload));
    assert_eq!(settings_payload(payload).count(), payload.len() / 6);
}

/// Blocks are decoded or refused within bounds, and what is sound survives encoding. The first octet chooses the size of
/// the encoder's table; each block follows its length.
pub fn hpack(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    let config = EncoderConfig { table_bytes_max: usize::from(choice) * 20, index_cookies: choice & 1 == 1 };
    let (mut decoder, mut encoder, mut mirror) =
        (Decoder::default(), Encoder::new(config), Decoder::default());
    let mut fields = Fields::default();
    let mut out = Vec::new();
    while let Some((&len, after)) = rest.split_first() {
        let (block, after) = after.split_at_checked(usize::from(len)).unwrap_or((after, b""));
        rest = after;
        fields.clear();
        let mut list_len = 0;
        let decoded = decoder.decode(block, &mut |line: &FieldLine<'_>| {
            list_len += line.list_len();
            match (fields.append_line(line), line.check()) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(reason)) => assert_eq!(error, FieldError::from(reason)),
                // A pseudo-header field.
                (Err(_), Ok(())) => assert!(line.name.first() == Some(&b':')),
                (Ok(()), Err(reason)) => unreachable!("{reason}"),
            }
        });
        // An octet makes one entry at most, of at most the size of the table.
        assert!(list_len <= block.len() * (4096 + 32) && decoder.memory_bytes() < 64 * 1024);
        if decoded.is_err() {
            return;
        }
        check_fields(&fields);
        out.clear();
        encoder.begin(&mut out);
        for field in fields.iter() {
            encoder.field(&field, &mut out);
        }
        let mut again = Fields::default();
        let mirrored = mirror.decode(&out, &mut |line: &FieldLine<'_>| {
            assert_eq!(again.append_line(line), Ok(()));
        });
        assert_eq!(mirrored, Ok(()));
        assert_eq!(fields, again);
        for (one, two) in fields.iter().zip(again.iter()) {
            assert!(two.never_indexed || !one.never_indexed);
        }
        assert!(encoder.memory_bytes() < 64 * 1024);
    }
}

/// A connection takes any frames as one piece and in small pieces, with the same events and the same end, within its bounds.
/// The first octet chooses the end and the size of the pieces.
pub fn connection(data: &[u8]) {
    let Some((&choice, frames)) = data.split_first() else {
        return;
    };
    frame(frames);
    let mut input = Vec::new();
    if choice & 1 == 0 {
        input.extend_from_slice(PREFACE);
    }
    write_settings(&[], &mut input);
    write_settings_ack(&mut input);
    input.extend_from_slice(frames);
    let size = usize::from(choice >> 1).max(1);
    let (whole, pieces) = if choice & 1 == 0 {
        (serve(&input, input.len()), serve(&input, size))
    } else {
        (request(&input, input.len()), request(&input, size))
    };
    assert_eq!(whole, pieces);
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Everything but content.
    events: Vec<String>,
    content: Vec<u8>,
    error: Option<ConnectionError>,
}

const NOW: Duration = Duration::from_secs(1000);
const STREAMS_MAX: u32 = 8;

fn config() -> Arc<Config> {
    let config = Config {
        streams_max: STREAMS_MAX,
        stream_window: 40_000,
        connection_window: 70_000,
        ..Config::default()
    };
    Arc::new(Config { connect_protocol: true, output_bytes_max: 1 << 20, ..config })
}

/// A server that answers each request at once, and releases its content at its end.
fn serve(input: &[u8], size: usize) -> Outcome {
    let (mut server, mut head) = (Connection::<Server>::new(config(), NOW), RequestHead::default());
    let mut outcome = Outcome::default();
    feed(input, size, &mut outcome, |outcome, input| {
        let received = server.receive(NOW, input, &mut head)?;
        let answer = match received.event {
            Some(Event::Head { stream, end_stream, .. }) => {
                check_fields(&head.fields);
                assert!(end_stream || stream % 2 == 1);
                Some(stream)
            }
            Some(Event::Refused { stream, .. }) => Some(stream),
            _ => None,
        };
        let taken = take(&mut server, received.taken, received.event, outcome);
        if let Some(stream) = answer {
            // Every other one has content, which is sent when all input is there: windows may depend on its pieces.
            let is_empty = stream % 4 == 1;
            let sent = server.send_response(stream, &ResponseHead::new(200), is_empty);
            assert!(matches!(sent, Ok(()) | Err(SendError::TooLarge)));
            server.want_turn(stream);
        }
        Ok(taken)
    });
    while let Some(stream) = server.next_turn() {
        assert!(server.send_data(stream, b"hello", true).is_ok());
    }
    outcome
}

/// A client with requests under way.
fn request(input: &[u8], size: usize) -> Outcome {
    let (mut client, mut head) = (Connection::<Client>::new(config(), NOW), ResponseHead::default());
    let request = RequestHead::default();
    for end_stream in [true, false, true] {
        assert!(client.open(&request, None, end_stream).is_ok());
    }
    let mut outcome = Outcome::default();
    feed(input, size, &mut outcome, |outcome, input| {
        let received = client.receive(NOW, input, &mut head)?;
        if matches!(received.event, Some(Event::Head { .. })) {
            assert!((200..600).contains(&head.status));
            check_fields(&head.fields);
        }
        Ok(take(&mut client, received.taken, received.event, outcome))
    });
    outcome
}

/// Feeds the input in pieces to `receive`, which gives the bytes that it took and whether something happened.
fn feed(
    input: &[u8],
    size: usize,
    outcome: &mut Outcome,
    mut receive: impl FnMut(&mut Outcome, &[u8]) -> Result<(usize, bool), ConnectionError>,
) {
    let (mut start, mut end) = (0, 0);
    while end < input.len() {
        end = end.saturating_add(size.max(1)).min(input.len());
        loop {
            let available = input.get(start..end).unwrap_or_default();
            match receive(outcome, available) {
                Ok((taken, is_event)) => {
                    assert!(taken <= available.len());
                    start += taken;
                    if taken == 0 && !is_event {
                        break;
                    }
                }
                Err(error) => {
                    outcome.error = Some(error);
                    return;
                }
            }
        }
    }
}

/// Notes an event, and checks the bounds.
fn take<R: Role>(
    connection: &mut Connection<R>,
    taken: usize,
    event: Option<Event<'_>>,
    outcome: &mut Outcome,
) -> (usize, bool) {
    let is_event = event.is_some();
    match event {
        Some(Event::Data { stream, bytes, end_stream }) => {
            outcome.content.extend_from_slice(bytes);
            if end_stream {
                outcome.events.push(format!("end {stream}"));
                connection.release(stream, usize::MAX);
            }
        }
        Some(other) => outcome.events.push(format!("{other:?}")),
        None => {}
    }
    assert!(connection.active_streams() <= STREAMS_MAX);
    assert!(connection.output().len() <= 512 * 1024);
    assert!(connection.memory_bytes() <= connection.output().len() * 4 + 256 * 1024);
    (taken, is_event)
}

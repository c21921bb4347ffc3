//! Connections against frames as they stand, with time as an argument.

use super::super::error::Malformed;
use super::super::frame::{
    Flags, FrameHeader, FrameType, HEADER_LEN, begin_block, end_block, write_ping, write_settings_ack,
};
use super::super::role::{Client, Server};
use super::super::settings::{INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE};
use super::super::{AbuseLimits, Rate};
use super::*;
use crate::{HeadError, Known, Method, RequestHead, ResponseHead};

const NOW: Duration = Duration::from_secs(1000);

/// A server, and what came out of it.
struct Peer {
    server: Connection<Server>,
    head: RequestHead,
    input: Vec<u8>,
    events: Vec<String>,
    content: Vec<u8>,
}

fn config() -> Config {
    Config { streams_max: 10, stream_window: 70_000, connection_window: 100_000, ..Config::default() }
}

impl Peer {
    /// A server after the preface and empty settings, its own acknowledged.
    fn new(config: Config) -> Self {
        let mut peer = Self::fresh(config);
        let mut hello = PREFACE.to_vec();
        write_settings(&[], &mut hello);
        write_settings_ack(&mut hello);
        peer.feed(&hello).unwrap();
        peer.drain();
        peer
    }

    fn fresh(config: Config) -> Self {
        let server = Connection::new(Arc::new(config), NOW);
        Self { server, head: RequestHead::default(), input: vec![], events: vec![], content: vec![] }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.feed_at(NOW, bytes)
    }

    fn feed_at(&mut self, now: Duration, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.input.extend_from_slice(bytes);
        loop {
            let received = self.server.receive(now, &self.input, &mut self.head)?;
            let is_idle = received.taken == 0 && received.event.is_none();
            match received.event {
                Some(Event::Data { stream, bytes, end_stream }) => {
                    self.content.extend_from_slice(bytes);
                    self.events.push(format!("data {stream} {} {end_stream}", bytes.len()));
                }
                Some(Event::Head { stream, end_stream, .. }) => {
                    let target = self.head.target().escape_ascii();
                    self.events.push(format!("head {stream} {target} {end_stream}"));
                }
                Some(Event::Refused { stream, error }) => {
                    self.events.push(format!("refused {stream} {}", error.code()));
                }
                Some(Event::Failed { stream, error }) => {
                    self.events.push(format!("failed {stream} {}", error.code()));
                }
                Some(Event::Reset { stream, code }) => self.events.push(format!("reset {stream} {code:?}")),
                Some(Event::Trailers { stream }) => {
                    self.events.push(format!("trailers {stream} {}", self.head.fields.len()));
                }
                Some(Event::TrailersRefused { stream, error }) => {
                    self.events.push(format!("trailers refused {stream} {}", error.code()));
                }
                Some(other) => self.events.push(format!("{other:?}")),
                None => {}
            }
            self.input.drain(..received.taken);
            if is_idle {
                return Ok(());
            }
        }
    }

    /// The frames that were sent since the last call.
    fn drain(&mut self) -> Vec<(FrameType, Flags, u32, Vec<u8>)> {
        let output = self.server.output().to_vec();
        self.server.sent(output.len());
        let mut rest = &output[..];
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::parse(rest).unwrap() {
            let payload = rest[HEADER_LEN..HEADER_LEN + header.len].to_vec();
            frames.push((header.kind, header.flags, header.stream, payload));
            rest = &rest[HEADER_LEN + header.len..];
        }
        assert!(rest.is_empty());
        frames
    }

    fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}

fn frame(kind: FrameType, flags: Flags, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader { len: payload.len(), kind, flags, stream }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

/// `:method`, `:scheme`, `:path`, from the static table.
const GET: &[u8] = &[0x82, 0x87, 0x84];
const POST: &[u8] = &[0x83, 0x87, 0x84];
const END: Flags = Flags::END_STREAM;
const DONE: Flags = Flags::END_HEADERS;

fn request(stream: u32, end_stream: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mark = begin_block(&mut out);
    out.extend_from_slice(if end_stream { GET } else { POST });
    end_block(mark, stream, end_stream, 16_384, &mut out);
    out
}

fn data(stream: u32, content: &[u8], end_stream: bool) -> Vec<u8> {
    frame(FrameType::Data, END.when(end_stream), stream, content)
}

fn number(kind: FrameType, stream: u32, value: u32) -> Vec<u8> {
    frame(kind, Flags::default(), stream, &value.to_be_bytes())
}

#[test]
fn a_request_is_answered_and_the_stream_gone() {
    let mut peer = Peer::new(config());
    peer.feed(&request(1, false)).unwrap();
    peer.feed(&data(1, b"hello", false)).unwrap();
    peer.feed(&data(1, b"", true)).unwrap();
    assert_eq!(peer.take_events(), ["head 1 / false", "data 1 5 false", "data 1 0 true"]);
    let mut head = ResponseHead::new(103);
    peer.server.send_response(1, &head, false).unwrap();
    head.status = 200;
    assert_eq!(peer.server.send_data(1, b"x", false), Err(SendError::Order));
    peer.server.send_response(1, &head, false).unwrap();
    assert_eq!(peer.server.send_response(1, &head, false), Err(SendError::Order));
    assert_eq!(peer.server.send_data(1, b"world", false), Ok(5));
    assert_eq!(peer.server.send_data(1, b"", true), Ok(0));
    assert_eq!(peer.server.send_data(1, b"x", true), Err(SendError::Closed));
    let frames = peer.drain();
    assert_eq!(frames.len(), 3);
    assert_eq!(frames[2], (FrameType::Data, END, 1, b"world".to_vec()));
    assert_eq!((peer.server.active_streams(), peer.server.streams.len()), (0, 0));
}

#[test]
fn any_split_of_the_input_gives_the_same_events() {
    let mut block = GET.to_vec();
    block.extend_from_slice(&[0x40, 1, b'a', 3, b'b', b'c', b'd']);
    let mut bytes = frame(FrameType::Headers, Flags::default(), 1, &block[..4]);
    bytes.extend(frame(FrameType::Continuation, DONE, 1, &block[4..]));
    bytes.extend(frame(FrameType::Unknown(0x77), Flags::default(), 9, b"ignored"));
    bytes.extend(frame(FrameType::Data, Flags::PADDED, 1, b"\x03hello\0\0\0"));
    bytes.extend(frame(FrameType::Data, Flags::PADDED.and(END), 1, b"\x01\0"));
    bytes.extend(request(3, true));
    let mut whole = Peer::new(config());
    whole.feed(&bytes).unwrap();
    assert_eq!(whole.events, ["head 1 / false", "data 1 5 false", "data 1 0 true", "head 3 / true"]);
    for size in 1..30 {
        let mut split = Peer::new(config());
        for piece in bytes.chunks(size) {
            split.feed(piece).unwrap();
        }
        split.events.retain(|event| !event.starts_with("data"));
        assert_eq!((split.content, split.events.len()), (b"hello".to_vec(), 2), "{size}");
    }
}

#[test]
fn a_malformed_message_resets_its_stream_alone() {
    let bad = |lines: &[u8]| frame(FrameType::Headers, DONE.and(END), 3, &[GET, lines].concat());
    // A line that is indexed stays so, although its request is refused.
    let table: [(&[u8], &str); 4] = [
        (b"\x40\x01A\x01b", "field_name_invalid"),
        (b"\x40\x01a\x03b\rc", "field_value_invalid"),
        (b"\x40\x01a\x02 b", "field_value_surrounded"),
        (b"\x00\x0acontent_len\x01b", "field_name_invalid"),
    ];
    for (lines, code) in table {
        let mut peer = Peer::new(config());
        peer.feed(&request(1, false)).unwrap();
        if peer.feed(&bad(lines)).is_err() {
            continue;
        }
        peer.feed(&data(1, b"x", true)).unwrap();
        let expected = ["head 1 / false".to_owned(), format!("failed 3 {code}"), "data 1 1 true".to_owned()];
        assert_eq!(peer.events, expected);
        let reset = (FrameType::RstStream, Flags::default(), 3, vec![0, 0, 0, 1]);
        assert_eq!(peer.drain(), [reset]);
        assert_eq!(peer.server.active_streams(), 1);
        // What comes late for it is ignored.
        peer.feed(&data(3, b"late", true)).unwrap();
        assert_eq!(peer.events.len(), 3);
    }
}

#[test]
fn a_refused_request_is_answered_and_its_body_discarded() {
    let mut peer =
        Peer::new(Config { head: crate::h1::HeadLimits { fields_max: 1, ..Default::default() }, ..config() });
    let block = [POST, b"\x00\x01a\x00\x00\x01a\x00"].concat();
    peer.feed(&frame(FrameType::Headers, DONE, 1, &block)).unwrap();
    peer.feed(&data(1, &[0; 60_000][..16_384], false)).unwrap();
    assert_eq!(peer.events, ["refused 1 too_many_fields"]);
    assert_eq!(HeadError::TooManyFields.status(), 431);
    assert_eq!(peer.server.receive_window.held(), 0);
    peer.server.send_response(1, &ResponseHead::new(431), true).unwrap();
    assert_eq!(peer.drain().last().unwrap().0, FrameType::Headers);
    // The rest may still come, up to the window of the stream; then the driver has waited for long enough.
    peer.feed(&data(1, &[0; 16_384], false)).unwrap();
    assert_eq!((peer.events.len(), peer.server.active_streams()), (1, 1));
    peer.server.discard(1, ErrorCode::NoError);
    let frames = peer.drain();
    let last = frames.last().unwrap();
    assert_eq!((last.0, &last.3[..]), (FrameType::RstStream, &[0, 0, 0, 0][..]));
    assert_eq!((peer.server.active_streams(), peer.server.receive_window.held()), (0, 0));
}

#[test]
fn what_is_ignored_of_a_stream_opens_the_window_of_the_connection_and_not_its_own() {
    let mut peer = Peer::new(config());
    peer.feed(&[request(1, false), request(3, false)].concat()).unwrap();
    for _ in 0..2 {
        peer.feed(&data(1, &[0; 16_384], false)).unwrap();
    }
    peer.server.ignore(1);
    assert_eq!(peer.server.receive_window.held(), 0);
    for _ in 0..2 {
        peer.feed(&data(1, &[0; 16_384], false)).unwrap();
    }
    let frames = peer.drain();
    assert!(frames.iter().all(|frame| frame.2 == 0), "{frames:?}");
    assert_eq!(peer.events.iter().filter(|event| event.starts_with("data")).count(), 2);
    // More than the window of 70,000, the control being what was within it.
    peer.feed(&data(1, &[0; 4465], false)).unwrap();
    assert_eq!(peer.events.last().unwrap(), "failed 1 http2_flow_control");
    // One that ends is over, also within a frame of which a part was given to the driver before.
    peer.feed(&data(3, &[0; 100], true)[..50]).unwrap();
    peer.server.send_response(3, &ResponseHead::new(200), true).unwrap();
    peer.server.ignore(3);
    assert!(peer.server.is_open(3));
    peer.feed(&data(3, &[0; 100], true)[50..]).unwrap();
    assert!(!peer.server.is_open(3));
    assert_eq!((peer.server.active_streams(), peer.server.receive_window.held()), (0, 0));
}

#[test]
fn trailers_above_the_limits_can_be_answered() {
    let trailers = crate::TrailerLimits { fields_max: 1, ..Default::default() };
    let mut peer = Peer::new(Config { trailers, ..config() });
    let two = b"\x00\x01a\x00\x00\x01a\x00";
    for (stream, block, expected) in [(1, &two[..4], "trailers 1"), (3, &two[..], "trailers refused 3")] {
        peer.feed(&request(stream, false)).unwrap();
        peer.feed(&frame(FrameType::Headers, DONE.and(END), stream, block)).unwrap();
        assert!(peer.events.last().unwrap().starts_with(expected), "{:?}", peer.events);
        peer.server.send_response(stream, &ResponseHead::new(400), true).unwrap();
    }
    assert_eq!(peer.server.active_streams(), 0);
}

#[test]
fn sections_above_the_size_that_the_peer_accepts_are_not_sent() {
    let mut peer = Peer::new(config());
    let mut settings = Vec::new();
    // Five pseudo-header fields count 160 bytes.
    write_settings(&[(MAX_HEADER_LIST_SIZE, 160 + 32 + 10)], &mut settings);
    peer.feed(&[settings, request(1, true), request(3, true)].concat()).unwrap();
    peer.drain();
    let with = |value: &[u8]| {
        let mut head = ResponseHead::new(200);
        head.fields.append(b"x", value).unwrap();
        head
    };
    assert_eq!(peer.server.send_response(1, &with(b"0123456789"), true), Err(SendError::TooLarge));
    assert!(peer.drain().is_empty());
    assert_eq!(peer.server.send_response(1, &with(b"012345678"), false), Ok(()), "the control");
    assert_eq!(peer.server.send_trailers(1, &with(b"0123456789").fields), Err(SendError::TooLarge));
    assert_eq!(peer.server.send_trailers(1, &with(b"012345678").fields), Ok(()));
}

#[test]
fn content_has_its_declared_length() {
    let head = |length: &[u8], end: bool| {
        let line = [&[0x0F, 0x0D, u8::try_from(length.len()).unwrap()][..], length].concat();
        frame(FrameType::Headers, DONE.and(END.when(end)), 1, &[POST, &line[..]].concat())
    };
    let failed = "failed 1 body_length_disagrees";
    let trailers = frame(FrameType::Headers, DONE.and(END), 1, b"\x00\x01a\x00");
    let table = [
        (vec![head(b"5", false), data(1, b"hello", true)], "data 1 5 true"),
        (vec![head(b"5", false), data(1, b"hello!", true)], failed),
        (vec![head(b"5", false), data(1, b"hell", true)], failed),
        (vec![head(b"5", false), data(1, b"hello", false), data(1, b"!", false)], failed),
        (vec![head(b"5", true)], failed),
        (vec![head(b"0", true)], "head 1 / true"),
        (vec![head(b"5", false), data(1, b"hell", false), trailers.clone()], failed),
        (vec![head(b"4", false), data(1, b"hell", false), trailers], "trailers 1 1"),
        (vec![head(b"-1", false)], "failed 1 content_length_invalid"),
    ];
    for (frames, expected) in table {
        let mut peer = Peer::new(config());
        peer.feed(&frames.concat()).unwrap();
        assert_eq!(peer.events.last().map(String::as_str), Some(expected), "{:?}", peer.events);
    }
}

#[test]
fn frames_out_of_their_order_end_the_connection() {
    use ConnectionError::{
        AckUnexpected, BlockInterrupted, PushForbidden, StreamClosed, StreamIdInvalid, StreamIdle,
        WindowOverflow, WindowUpdateEmpty,
    };
    let none = Flags::default();
    let open = frame(FrameType::Headers, none, 1, GET);
    let closed = [request(1, true), number(FrameType::RstStream, 1, 8)].concat();
    let table = [
        ([request(2, true)].concat(), StreamIdInvalid),
        ([request(5, true), request(3, true)].concat(), StreamIdInvalid),
        ([data(1, b"", true)].concat(), StreamIdle),
        (number(FrameType::RstStream, 1, 0), StreamIdle),
        (number(FrameType::WindowUpdate, 1, 1), StreamIdle),
        (number(FrameType::WindowUpdate, 0, 0), WindowUpdateEmpty),
        (number(FrameType::WindowUpdate, 0, MAX), WindowOverflow),
        (frame(FrameType::Priority, none, 7, &[0, 0, 0, 7, 0]), StreamIdle),
        (frame(FrameType::Continuation, DONE, 1, b""), BlockInterrupted),
        ([&open[..], &data(1, b"", true)].concat(), BlockInterrupted),
        ([&open[..], &frame(FrameType::Continuation, DONE, 3, b"")].concat(), BlockInterrupted),
        ([&open[..], &frame(FrameType::Unknown(9 + 0x70), none, 1, b"")].concat(), BlockInterrupted),
        (frame(FrameType::PushPromise, DONE, 1, &[0, 0, 0, 2]), PushForbidden),
        (frame(FrameType::Settings, Flags::ACK, 0, b""), AckUnexpected),
        ([&closed[..], &data(1, b"x", false)].concat(), StreamClosed),
        ([&closed[..], &request(1, true)].concat(), StreamClosed),
    ];
    const MAX: u32 = (1 << 31) - 1;
    for (bytes, error) in table {
        let mut peer = Peer::new(config());
        assert_eq!(peer.feed(&bytes), Err(error));
        let (kind, _, _, payload) = peer.drain().pop().unwrap();
        assert_eq!((kind, payload[7]), (FrameType::GoAway, error.error_code().number() as u8));
        assert_eq!(peer.feed(b""), Err(error));
        assert!(peer.server.is_finished() && peer.server.next_deadline().is_none());
    }
}

#[test]
fn errors_of_a_stream_end_it_alone() {
    let table = [
        (data(1, b"x", false), "failed 1 http2_stream_closed"),
        (request(1, true), "failed 1 http2_stream_closed"),
        (number(FrameType::WindowUpdate, 1, 0), "failed 1 http2_window_update_empty"),
        (number(FrameType::WindowUpdate, 1, (1 << 31) - 1), "failed 1 http2_window_overflow"),
        (
            frame(FrameType::Priority, Flags::default(), 1, &[0, 0, 0, 1, 0]),
            "failed 1 http2_priority_invalid",
        ),
        (frame(FrameType::Priority, Flags::default(), 1, &[0; 4]), "failed 1 http2_priority_invalid"),
    ];
    for (bytes, expected) in table {
        let mut peer = Peer::new(config());
        peer.feed(&request(1, true)).unwrap();
        peer.feed(&bytes).unwrap();
        peer.feed(&request(3, true)).unwrap();
        assert_eq!(peer.events, ["head 1 / true", expected, "head 3 / true"]);
        assert_eq!(peer.server.active_streams(), 1);
    }
    let mut peer = Peer::new(config());
    peer.feed(&request(1, false)).unwrap();
    peer.feed(&frame(FrameType::Headers, DONE, 1, b"")).unwrap();
    assert_eq!(peer.events[1], "failed 1 trailers_without_end");
    assert_eq!(Malformed::EndMissing.code(), "trailers_without_end");
}

#[test]
fn the_preface_and_settings_come_first() {
    for bad in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX"] {
        assert_eq!(Peer::fresh(config()).feed(bad), Err(ConnectionError::PrefaceInvalid));
    }
    for first in [request(1, true), frame(FrameType::Settings, Flags::ACK, 0, b"")] {
        let mut peer = Peer::fresh(config());
        assert_eq!(peer.feed(&[&PREFACE[..], &first].concat()), Err(ConnectionError::SettingsMissing));
    }
    let mut peer = Peer::fresh(config());
    peer.feed(&PREFACE[..10]).unwrap();
    assert_eq!(peer.server.next_deadline(), Some(NOW + Duration::from_secs(10)));
    assert_eq!(peer.server.expire(NOW + Duration::from_secs(9)), Ok(()));
    assert_eq!(peer.server.expire(NOW + Duration::from_secs(10)), Err(ConnectionError::HeadTimeout));
}

#[test]
fn windows_of_both_sides_are_kept() {
    let mut peer = Peer::new(config());
    for stream in [1, 3] {
        peer.feed(&request(stream, false)).unwrap();
    }
    for _ in 0..4 {
        peer.feed(&data(1, &[7; 16_384], false)).unwrap();
    }
    assert!(peer.drain().is_empty());
    // 4,464 bytes are left of the stream's 70,000.
    peer.feed(&data(1, &[7; 4465], false)).unwrap();
    assert_eq!(peer.events.last().unwrap(), "failed 1 http2_flow_control");
    assert_eq!(peer.server.receive_window.held(), 0);
    let frames = peer.drain();
    assert_eq!((frames[0].0, frames[0].2), (FrameType::WindowUpdate, 0));
    assert_eq!(frames[1].0, FrameType::RstStream);
    // Held content is released in halves.
    for _ in 0..4 {
        peer.feed(&data(3, &[7; 16_384], false)).unwrap();
    }
    peer.server.release(3, 34_000);
    assert!(peer.drain().is_empty());
    peer.server.release(3, 20_000);
    let frames = peer.drain();
    let update = |stream: u32, increment: u32| {
        (FrameType::WindowUpdate, Flags::default(), stream, increment.to_be_bytes().to_vec())
    };
    assert_eq!(frames, [update(3, 54_000), update(0, 58_465)]);
}

#[test]
fn the_window_of_the_connection_bounds_all_streams() {
    let mut peer = Peer::new(config());
    peer.feed(&[request(1, false), request(3, false)].concat()).unwrap();
    let mut sent = 0;
    let error = loop {
        let stream = if sent % 2 == 0 { 1 } else { 3 };
        match peer.feed(&data(stream, &[0; 16_384], false)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((sent, error), (6, ConnectionError::FlowControl));
}

#[test]
fn content_is_sent_within_windows_and_frames() {
    let mut peer = Peer::new(config());
    peer.feed(&request(1, true)).unwrap();
    peer.server.send_response(1, &ResponseHead::new(200), false).unwrap();
    assert_eq!(peer.server.send_data(1, &[1; 100_000], true), Ok(65_526), "the room in the output");
    assert_eq!(peer.server.send_data(1, &[1; 34_474], true), Ok(0));
    let lens: Vec<usize> = peer.drain().iter().skip(1).map(|frame| frame.3.len()).collect();
    assert_eq!(lens, [16_384, 16_384, 16_384, 65_526 - 3 * 16_384]);
    assert_eq!(peer.server.send_data(1, &[1; 34_474], true), Ok(9), "the window");
    // A smaller initial window makes it negative, and no update of the connection helps.
    let settings = [0, 4, 0, 0, 0, 100];
    peer.feed(&frame(FrameType::Settings, Flags::default(), 0, &settings)).unwrap();
    peer.feed(&number(FrameType::WindowUpdate, 0, 100_000)).unwrap();
    assert_eq!(peer.server.sendable(1), Some(0));
    peer.feed(&number(FrameType::WindowUpdate, 1, 65_535 - 100 + 7)).unwrap();
    assert_eq!(peer.server.send_data(1, &[1; 7], true), Ok(7));
    assert_eq!(peer.server.active_streams(), 0);
}

#[test]
fn turns_go_by_priority() {
    let mut peer = Peer::new(config());
    let priority = |stream: u32, value: &[u8]| {
        frame(FrameType::PriorityUpdate, Flags::default(), 0, &[&stream.to_be_bytes()[..], value].concat())
    };
    peer.feed(&priority(5, b"u=0")).unwrap();
    for stream in [1, 3, 5, 7] {
        peer.feed(&request(stream, true)).unwrap();
        peer.server.send_response(stream, &ResponseHead::new(200), false).unwrap();
    }
    peer.feed(&priority(3, b"i")).unwrap();
    peer.feed(&priority(7, b"i")).unwrap();
    for stream in [3, 1, 7, 5] {
        peer.server.want_turn(stream);
    }
    let mut turns = Vec::new();
    while let Some(stream) = peer.server.next_turn() {
        turns.push(stream);
        let again = turns.iter().filter(|&&other| other == stream).count() < 2;
        peer.server.send_data(stream, b"x", !again).unwrap();
        if again {
            peer.server.want_turn(stream);
        }
    }
    // The urgent one, then incremental ones in turns; one that isn't goes on until its end.
    assert_eq!(turns, [5, 5, 3, 1, 1, 7, 3, 7]);
}

#[test]
fn a_stream_without_a_window_has_its_turn_once_there_is_one() {
    let mut peer = Peer::new(config());
    let mut settings = Vec::new();
    write_settings(&[(INITIAL_WINDOW_SIZE, 0)], &mut settings);
    peer.feed(&settings).unwrap();
    for stream in [1, 3] {
        peer.feed(&request(stream, true)).unwrap();
        peer.server.send_response(stream, &ResponseHead::new(200), false).unwrap();
        peer.server.want_turn(stream);
    }
    assert_eq!(peer.server.next_turn(), None);
    peer.feed(&number(FrameType::WindowUpdate, 3, 5)).unwrap();
    assert_eq!((peer.server.next_turn(), peer.server.next_turn()), (Some(3), None));
    settings.clear();
    write_settings(&[(INITIAL_WINDOW_SIZE, 9)], &mut settings);
    peer.feed(&settings).unwrap();
    assert_eq!((peer.server.next_turn(), peer.server.next_turn()), (Some(1), None));
    assert_eq!(peer.server.send_data(1, b"0123456789", true), Ok(9));
}

#[test]
fn a_shutdown_has_two_phases_and_serves_what_was_begun() {
    let mut peer = Peer::new(config());
    peer.feed(&request(1, true)).unwrap();
    peer.server.shut_down(NOW);
    let frames = peer.drain();
    assert_eq!((frames[0].0, &frames[0].3[..4]), (FrameType::GoAway, &[0x7F, 0xFF, 0xFF, 0xFF][..]));
    // What was on its way is served.
    peer.feed(&request(3, true)).unwrap();
    let mut pong = Vec::new();
    write_ping(true, frames[1].3[..].try_into().unwrap(), &mut pong);
    peer.feed(&pong).unwrap();
    assert_eq!(peer.drain()[0].3[..4], [0, 0, 0, 3]);
    peer.feed(&request(5, true)).unwrap();
    assert_eq!(peer.events, ["head 1 / true", "head 3 / true"]);
    assert!(!peer.server.is_finished());
    for stream in [1, 3] {
        peer.server.send_response(stream, &ResponseHead::new(200), true).unwrap();
    }
    assert!(peer.server.is_finished());
    // Without an answer, the second phase comes by its deadline.
    let mut silent = Peer::new(config());
    silent.server.shut_down(NOW);
    silent.drain();
    silent.server.expire(silent.server.next_deadline().unwrap()).unwrap();
    assert_eq!(silent.drain()[0].0, FrameType::GoAway);
    assert!(silent.server.is_finished());
}

#[test]
fn streams_above_the_limit_are_refused() {
    let mut peer = Peer::new(Config { streams_max: 2, ..config() });
    for stream in [1, 3, 5] {
        peer.feed(&request(stream, true)).unwrap();
    }
    assert_eq!(peer.events[2], "failed 5 http2_stream_refused");
    assert_eq!(peer.drain()[0].3, [0, 0, 0, 7]);
    peer.server.send_response(1, &ResponseHead::new(200), true).unwrap();
    peer.feed(&request(7, true)).unwrap();
    assert_eq!(peer.events[3], "head 7 / true");
}

/// Feeds `attack`, which is given a growing number, until the connection ends.
fn attacked(config: Config, attack: impl Fn(u32) -> Vec<u8>) -> (u32, ConnectionError, usize) {
    let mut peer = Peer::new(config);
    let mut most = 0;
    for round in 0..20_000 {
        if let Err(error) = peer.feed(&attack(round)) {
            return (round, error, most);
        }
        most = most.max(peer.server.memory_bytes() + peer.head.memory_bytes());
        peer.server.sent(usize::MAX);
    }
    panic!("the attack went on");
}

#[test]
fn floods_are_counted_and_end_the_connection() {
    let none = Flags::default();
    let rate = Rate { burst: 50, per_second: 1 };
    let abuse = AbuseLimits {
        resets: rate,
        settings: rate,
        pings: rate,
        empty_frames: rate,
        // More, so that it isn't what ends the attacks by updates that are errors.
        window_updates: Rate { burst: 60, per_second: 1 },
        tiny_windows: rate,
        useless_frames: rate,
        oversized_heads: rate,
    };
    let config = Config { abuse, ..config() };
    let stream = |round: u32| round * 2 + 1;
    let big = || vec![("x-a", "b"); 101];
    type Attack<'a> = (Abuse, &'a dyn Fn(u32) -> Vec<u8>);
    let attacks: [Attack<'_>; 11] = [
        // Rapid reset (CVE-2023-44487).
        (Abuse::Resets, &|round| {
            [request(stream(round), true), number(FrameType::RstStream, stream(round), 8)].concat()
        }),
        // Resets that the peer provokes (CVE-2025-8671).
        (Abuse::Resets, &|round| {
            [request(stream(round), true), number(FrameType::WindowUpdate, stream(round), 0)].concat()
        }),
        (Abuse::Resets, &|round| frame(FrameType::Headers, DONE.and(END), stream(round), b"\x82")),
        (Abuse::Settings, &|_| frame(FrameType::Settings, none, 0, b"")),
        (Abuse::Pings, &|_| frame(FrameType::Ping, none, 0, &[0; 8])),
        (Abuse::EmptyFrames, &|round| {
            if round == 0 { request(1, false) } else { data(1, b"", false) }
        }),
        (Abuse::WindowUpdates, &|_| number(FrameType::WindowUpdate, 0, 1)),
        (Abuse::UselessFrames, &|_| frame(FrameType::Priority, none, 9, &[0, 0, 0, 3, 1])),
        (Abuse::UselessFrames, &|_| frame(FrameType::Unknown(0xAA), none, 0, b"x")),
        (Abuse::UselessFrames, &|round| {
            let update = [&(stream(round) + 100).to_be_bytes()[..], b"u=1"].concat();
            frame(FrameType::PriorityUpdate, none, 0, &update)
        }),
        (Abuse::OversizedHeads, &|round| {
            let block = [GET, &super::super::message::tests::block(&big())].concat();
            let opened = frame(FrameType::Headers, DONE, stream(round), &block);
            [opened, number(FrameType::RstStream, stream(round), 8)].concat()
        }),
    ];
    for (place, (abuse, attack)) in attacks.iter().enumerate() {
        let (rounds, error, memory) = attacked(config, attack);
        assert_eq!(error, ConnectionError::Abuse(*abuse), "attack {place}");
        assert_eq!(error.error_code(), ErrorCode::EnhanceYourCalm);
        assert!((49..=60).contains(&rounds), "attack {place}: {rounds} rounds");
        assert!(memory < 40_000, "attack {place}: {memory} bytes");
    }
}

#[test]
fn blocks_are_bounded_in_frames_and_bytes() {
    let none = Flags::default();
    let first =
        |round: u32| frame(FrameType::Headers, none, 1, &vec![0; if round == 0 { 16_000 } else { 0 }]);
    let next = |round: u32, part: &[u8]| match round {
        0 => first(0),
        _ => frame(FrameType::Continuation, none, 1, part),
    };
    let config = Config {
        abuse: AbuseLimits { empty_frames: Rate { burst: 99, per_second: 1 }, ..AbuseLimits::default() },
        ..config()
    };
    let (rounds, error, memory) = attacked(config, |round| next(round, &[0; 16_000]));
    assert_eq!((rounds, error), (3, ConnectionError::Abuse(Abuse::Continuations)));
    assert!(memory < 150_000, "{memory}");
    for part in [&b"x"[..], b""] {
        let (rounds, error, _) = attacked(config, |round| next(round, part));
        assert_eq!((rounds, error), (32, ConnectionError::Abuse(Abuse::Continuations)));
    }
}

#[test]
fn a_peer_that_reads_nothing_gets_no_more_answers() {
    let pings = Rate { burst: u32::MAX, per_second: 1_000_000 };
    let mut peer = Peer::new(Config { abuse: AbuseLimits { pings, ..AbuseLimits::default() }, ..config() });
    let ping = frame(FrameType::Ping, Flags::default(), 0, &[0; 8]);
    let error = loop {
        if let Err(error) = peer.feed(&ping) {
            break error;
        }
        assert!(peer.server.output().len() < 400_000);
    };
    assert_eq!(error, ConnectionError::Abuse(Abuse::UnreadAnswers));
}

#[test]
fn tiny_windows_are_counted() {
    let mut peer = Peer::new(config());
    let mut settings = Vec::new();
    write_settings(&[(INITIAL_WINDOW_SIZE, 1)], &mut settings);
    peer.feed(&settings).unwrap();
    peer.feed(&request(1, true)).unwrap();
    peer.server.send_response(1, &ResponseHead::new(200), false).unwrap();
    let mut frames = 0;
    let error = loop {
        frames += peer.server.send_data(1, &[0; 5000], true).unwrap();
        if let Err(error) = peer.feed(&number(FrameType::WindowUpdate, 1, 1)) {
            break error;
        }
        peer.server.sent(usize::MAX);
    };
    assert_eq!((frames, error), (501, ConnectionError::Abuse(Abuse::TinyWindows)));
}

#[test]
fn an_unfinished_head_has_a_deadline_that_more_bytes_do_not_move() {
    let later = |seconds: u64| NOW + Duration::from_secs(seconds);
    let mut peer = Peer::new(config());
    assert_eq!(peer.server.next_deadline(), None);
    peer.feed(&frame(FrameType::Headers, Flags::default(), 1, GET)).unwrap();
    let empty = frame(FrameType::Continuation, Flags::default(), 1, b"");
    for second in 1..9 {
        peer.feed_at(later(second), &empty).unwrap();
        assert_eq!(peer.server.next_deadline(), Some(later(10)));
    }
    assert_eq!(peer.server.expire(later(10)), Err(ConnectionError::HeadTimeout));
    // A part of a frame, completed in time: the deadline is gone.
    let mut peer = Peer::new(config());
    let bytes = request(1, false);
    peer.feed(&bytes[..10]).unwrap();
    assert_eq!(peer.server.next_deadline(), Some(later(10)));
    peer.feed(&bytes[10..]).unwrap();
    assert_eq!(peer.server.next_deadline(), None);
    // Content may take its time.
    peer.feed(&data(1, b"hello", false)[..11]).unwrap();
    assert_eq!(peer.server.next_deadline(), None);
}

#[test]
fn settings_are_acknowledged_in_time() {
    let mut peer = Peer::fresh(config());
    let mut hello = PREFACE.to_vec();
    write_settings(&[], &mut hello);
    peer.feed(&hello).unwrap();
    assert_eq!(peer.server.next_deadline(), Some(NOW + Duration::from_secs(10)));
    assert_eq!(peer.server.expire(NOW + Duration::from_secs(10)), Err(ConnectionError::SettingsTimeout));
    assert_eq!(peer.drain().pop().unwrap().3[7], 4);
}

/// A client and what it received, against frames of a server.
fn client(first: &[u8]) -> (Connection<Client>, ResponseHead) {
    let mut client = Connection::new(Arc::new(config()), NOW);
    let mut head = ResponseHead::default();
    assert!(client.output().starts_with(PREFACE));
    client.sent(usize::MAX);
    let mut hello = Vec::new();
    write_settings(&[(MAX_CONCURRENT_STREAMS, 2)], &mut hello);
    hello.extend_from_slice(first);
    let mut rest = &hello[..];
    while !rest.is_empty() {
        let received = client.receive(NOW, rest, &mut head).unwrap();
        assert!(received.taken > 0);
        rest = &rest[received.taken..];
    }
    (client, head)
}

#[test]
fn a_client_keeps_to_the_limits_and_learns_what_was_not_processed() {
    let (mut client, mut head) = client(b"");
    let mut request = RequestHead::default();
    request.fields.append_known(Known::Host, b"a.example").unwrap();
    assert_eq!(client.open(&request, None, true), Ok(1));
    assert_eq!(client.open(&request, None, false), Ok(3));
    assert_eq!(client.open(&request, None, true), Err(OpenError::TooMany));
    let goaway = frame(FrameType::GoAway, Flags::default(), 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let received = client.receive(NOW, &goaway, &mut head).unwrap();
    assert_eq!(received.event, Some(Event::GoAway { code: ErrorCode::NoError }));
    let received = client.receive(NOW, b"", &mut head).unwrap();
    assert_eq!(received.event, Some(Event::Reset { stream: 3, code: ErrorCode::RefusedStream }));
    assert_eq!(client.open(&request, None, true), Err(OpenError::GoingAway));
    assert!(!client.is_finished());
    // The other one is served; content that the driver holds stays counted.
    let bytes = [frame(FrameType::Headers, DONE, 1, &[0x88]), data(1, b"hello", true)].concat();
    let received = client.receive(NOW, &bytes, &mut head).unwrap();
    assert_eq!(
        (received.event, head.status),
        (Some(Event::Head { stream: 1, end_stream: false, protocol: None }), 200)
    );
    let received = client.receive(NOW, &bytes[received.taken..], &mut head).unwrap();
    assert_eq!(received.event, Some(Event::Data { stream: 1, bytes: b"hello", end_stream: true }));
    assert!(client.is_finished());
    assert_eq!((client.streams.len(), client.receive_window.held()), (1, 5));
    client.release(1, 5);
    assert_eq!((client.streams.len(), client.receive_window.held()), (0, 0));
}

#[test]
fn a_late_response_to_a_stream_that_was_reset_long_ago_ends_nothing() {
    let (mut client, mut head) = client(b"");
    for _ in 0..500 {
        let stream = client.open(&RequestHead::default(), None, true).unwrap();
        client.reset(stream, ErrorCode::Cancel);
    }
    for stream in [1, 3, 999] {
        let late = [frame(FrameType::Headers, DONE, stream, &[0x88]), data(stream, b"hello", true)].concat();
        let received = client.receive(NOW, &late, &mut head).unwrap();
        assert_eq!((received.event, received.taken), (None, late.len()), "{stream}");
    }
    assert_eq!(client.open(&RequestHead::default(), None, true), Ok(1001));
    // One that was never opened is no such stream.
    let idle = frame(FrameType::Headers, DONE, 1003, &[0x88]);
    assert_eq!(client.receive(NOW, &idle, &mut head), Err(ConnectionError::StreamIdle));
}

#[test]
fn a_response_to_head_has_no_content_and_none_comes_before_a_head() {
    for (method, expected) in [(Method::Head, "body_length_disagrees"), (Method::Get, "")] {
        let (mut client, mut head) = client(b"");
        let request = RequestHead { method, ..RequestHead::default() };
        client.open(&request, None, true).unwrap();
        let block = [0x88, 0x0F, 0x0D, 1, b'5'];
        let bytes = [frame(FrameType::Headers, DONE, 1, &block), data(1, b"hello", true)].concat();
        let received = client.receive(NOW, &bytes, &mut head).unwrap();
        match client.receive(NOW, &bytes[received.taken..], &mut head).unwrap().event {
            Some(Event::Failed { error, .. }) => assert_eq!(error.code(), expected),
            other => assert!(method == Method::Get && matches!(other, Some(Event::Data { .. }))),
        }
    }
    let (mut client, mut head) = client(b"");
    client.open(&RequestHead::default(), None, true).unwrap();
    let content = data(1, b"x", true);
    let received = client.receive(NOW, &content, &mut head).unwrap();
    let error = StreamError::Malformed(Malformed::HeadMissing);
    assert_eq!(received.event, Some(Event::Failed { stream: 1, error }));
}

#[test]
fn on_a_shared_connection_nobody_takes_the_window_of_others() {
    for is_shared in [false, true] {
        let config = Arc::new(Config { is_shared, ..config() });
        let mut client = Connection::<Client>::new(config, NOW);
        let mut head = ResponseHead::default();
        let mut settings = Vec::new();
        write_settings(&[], &mut settings);
        client.receive(NOW, &settings, &mut head).unwrap();
        for _ in 0..3 {
            client.open(&RequestHead::default(), None, true).unwrap();
        }
        let mut received = Ok(());
        // None of them is read: 60,000 bytes each, of 100,000 for the connection.
        for stream in [1, 3, 5] {
            let body = (0..4).map(|_| data(stream, &[0; 15_000], false));
            let bytes: Vec<u8> = std::iter::once(frame(FrameType::Headers, DONE, stream, &[0x88]))
                .chain(body)
                .flatten()
                .collect();
            let mut rest = &bytes[..];
            while !rest.is_empty() && received.is_ok() {
                match client.receive(NOW, rest, &mut head) {
                    Ok(found) => rest = &rest[found.taken..],
                    Err(error) => received = Err(error),
                }
            }
        }
        // The control: the peer would have to wait for the first two to be read.
        let expected = if is_shared { Ok(()) } else { Err(ConnectionError::FlowControl) };
        assert_eq!(received, expected);
        if is_shared {
            assert_eq!(client.receive_window.held(), 0);
            client.release(1, 60_000);
            client.discard(3, ErrorCode::Cancel);
            assert_eq!(client.receive_window.held(), 0);
        }
    }
}

#[test]
fn what_comes_late_for_those_who_left_a_shared_connection_ends_nothing() {
    for is_shared in [false, true] {
        let config = Arc::new(Config { is_shared, ..config() });
        let mut client = Connection::<Client>::new(config, NOW);
        let mut head = ResponseHead::default();
        let mut settings = Vec::new();
        write_settings(&[], &mut settings);
        client.receive(NOW, &settings, &mut head).unwrap();
        client.open(&RequestHead::default(), None, true).unwrap();
        client.reset(1, ErrorCode::Cancel);
        let late = data(1, b"x", false);
        let mut frames = (0..20_000).map(|_| client.receive(NOW, &late, &mut head).map(drop));
        assert_eq!(frames.all(|received| received.is_ok()), is_shared);
        if is_shared {
            // The control: frames without content are charged.
            let empty = data(1, b"", false);
            let mut frames = (0..20_000).map(|_| client.receive(NOW, &empty, &mut head).map(drop));
            assert!(!frames.all(|received| received.is_ok()));
        }
    }
}

//! States, the slab, and turns against plain queues.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn stream(id: u32, urgency: u8) -> Stream {
    let state = State::HalfClosedRemote(Sending::Head);
    let mut stream = Stream::new(id, state, Window::new(1), ReceiveWindow::new(1, 1));
    stream.priority.urgency = urgency;
    stream
}

#[test]
fn a_state_ends_from_both_sides_in_any_order() {
    let open = State::Open(Receiving::Body, Sending::Head);
    assert_eq!((open.receiving(), open.sending()), (Some(Receiving::Body), Some(Sending::Head)));
    let remote = open.end_receiving();
    assert_eq!(remote, State::HalfClosedRemote(Sending::Head));
    assert_eq!((remote.receiving(), remote.end_receiving()), (None, remote));
    assert_eq!(remote.after_sent(Sending::Body), State::HalfClosedRemote(Sending::Body));
    assert_eq!(remote.after_received(Receiving::Body), remote);
    assert_eq!(remote.end_sending(), State::Closed);
    let local = open.after_sent(Sending::Body).end_sending();
    assert_eq!(local, State::HalfClosedLocal(Receiving::Body));
    assert_eq!((local.sending(), local.end_sending()), (None, local));
    assert_eq!(local.end_receiving(), State::Closed);
    assert_eq!(State::Closed.end_sending().end_receiving(), State::Closed);
}

#[test]
fn urgent_streams_come_first_and_a_queue_has_two_ends() {
    let mut streams = Streams::default();
    for (id, urgency) in [(1, 3), (3, 0), (5, 3), (7, 7), (9, 3)] {
        assert!(streams.insert(stream(id, urgency)));
        streams.enqueue(id, false);
        streams.enqueue(id, true);
    }
    assert_eq!(streams.take_turn(), Some(3));
    assert_eq!(streams.take_turn(), Some(1));
    streams.enqueue(1, true);
    streams.dequeue(5);
    assert_eq!(streams.take_turn(), Some(1));
    streams.enqueue(1, false);
    assert!(streams.remove(9).is_some());
    assert_eq!(streams.take_turn(), Some(1));
    assert_eq!(streams.take_turn(), Some(7));
    assert_eq!(streams.take_turn(), None);
}

#[test]
fn identifiers_ascend_and_an_idle_slab_is_small() {
    let mut streams = Streams::default();
    assert!(streams.insert(stream(5, 0)));
    assert!(!streams.insert(stream(5, 0)) && !streams.insert(stream(3, 0)));
    for id in 3..500 {
        assert!(streams.insert(stream(id * 2 + 1, 0)));
    }
    for id in 2..500 {
        assert!(streams.remove(id * 2 + 1).is_some());
    }
    assert_eq!((streams.len(), streams.memory_bytes()), (0, 0));
    assert!(size_of::<Stream>() <= 72, "{}", size_of::<Stream>());
}

#[test]
fn late_frames_are_told_apart_for_a_while() {
    let mut closed = ClosedStreams::default();
    for id in 0..200 {
        closed.add(id * 2 + 1, if id % 2 == 0 { ClosedBy::Us } else { ClosedBy::Peer });
    }
    assert_eq!(
        (closed.get(1), closed.get(397), closed.get(399)),
        (None, Some(ClosedBy::Us), Some(ClosedBy::Peer))
    );
    assert!(closed.memory_bytes() <= 1024);
}

proptest! {
    #[test]
    fn turns_are_those_of_plain_queues(ops in proptest::collection::vec((0..5_u8, 0..12_u32, 0..8_u8), 0..200)) {
        let mut streams = Streams::default();
        let mut model: Vec<VecDeque<u32>> = vec![VecDeque::new(); 8];
        let (mut live, mut next) = (Vec::new(), 1);
        for (op, pick, urgency) in ops {
            let picked = live.get(pick as usize).copied();
            match (op, picked) {
                (0, _) => {
                    prop_assert!(streams.insert(stream(next, urgency)));
                    live.push(next);
                    next += 2;
                }
                (1, Some(id)) => {
                    prop_assert!(streams.remove(id).is_some());
                    live.retain(|&other| other != id);
                    model.iter_mut().for_each(|queue| queue.retain(|&other| other != id));
                }
                (2 | 3, Some(id)) => {
                    streams.enqueue(id, op == 2);
                    if !model.iter().flatten().any(|&other| other == id) {
                        let queue = &mut model[usize::from(streams.get(id).unwrap().priority.urgency)];
                        if op == 2 { queue.push_front(id) } else { queue.push_back(id) }
                    }
                }
                (4, _) => {
                    let expected = model.iter_mut().find_map(VecDeque::pop_front);
                    prop_assert_eq!(streams.take_turn(), expected);
                }
                _ => {}
            }
            prop_assert_eq!(streams.iter().map(|stream| stream.id).collect::<Vec<_>>(), live.clone());
        }
    }
}

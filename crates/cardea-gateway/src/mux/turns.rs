//! Who may send next on a connection: content by the codec's turns, and heads, which no window holds back, in their order as far
//! as there is room.

use std::collections::VecDeque;

use cardea_http::Fields;

use super::state::{Side, State};

/// How much of a body is sent in a turn, in bytes.
pub(super) const TURN_BYTES: usize = 16 * 1024;

/// What may wait to be sent before there are no more turns, in bytes.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// What may wait to be sent before no more heads are added, in bytes. Several of the largest that services send, and hundreds of
/// usual ones, so that a client that reads never waits for its driver; and little beside what the streams of a connection may hold
/// of bodies.
const HEADS_BYTES_MAX: usize = 256 * 1024;

/// What a field takes beside its name and value, at most: its representation and two lengths (RFC 7541 §6.2).
const FIELD_OVERHEAD_BYTES: usize = 8;

/// Turns that were given and not used yet.
#[derive(Debug, Default)]
pub(crate) struct Turns(usize);

impl Turns {
    /// A turn was used, or is not wanted any more.
    pub(super) const fn give_back(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    const fn reserved_bytes(&self) -> usize {
        self.0 * TURN_BYTES
    }
}

/// The streams that wait for room for a head, in their order.
#[derive(Debug, Default)]
pub(crate) struct Heads(VecDeque<(u32, usize)>);

impl Heads {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn remove(&mut self, stream: u32) {
        self.0.retain(|&(waiting, _)| waiting != stream);
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
    }
}

/// What the codec takes for `fields`, at most.
fn head_bytes(fields: &Fields) -> usize {
    fields.byte_len() + fields.len() * FIELD_OVERHEAD_BYTES
}

impl<S: Side> State<S> {
    /// Gives turns to the streams that wait for them, as far as the windows and the room allow.
    pub(crate) fn grant(&mut self) {
        while self.codec.output().len() + self.turns.reserved_bytes() < OUTPUT_BYTES_MAX {
            let Some(stream) = self.codec.next_turn() else { return };
            if let Some(entry) = self.streams.get_mut(&stream)
                && entry.closed.is_none()
                && !entry.has_turn
            {
                entry.wants_turn = false;
                entry.has_turn = true;
                self.turns.0 += 1;
                entry.wake();
            }
        }
    }

    /// Whether a stream may send a head of `fields` now. One that may not has a place in the queue from then on.
    pub(crate) fn may_send_head(&mut self, stream: u32, fields: &Fields, is_waiting: bool) -> bool {
        let first = self.heads.0.front().copied();
        let bytes = match first {
            Some((waiting, bytes)) if waiting == stream => bytes,
            Some(_) if is_waiting => return false,
            _ => head_bytes(fields),
        };
        let is_its_turn = first.is_none_or(|(waiting, _)| waiting == stream);
        let may = is_its_turn && self.has_room(bytes);
        if may && is_waiting {
            self.heads.remove(stream);
        } else if !may && !is_waiting {
            self.heads.0.push_back((stream, bytes));
        }
        may
    }

    /// Wakes the stream that is the next to send a head, if there is room for it.
    pub(crate) fn call_next_head(&mut self) {
        if let Some(&(stream, bytes)) = self.heads.0.front()
            && self.has_room(bytes)
            && let Some(entry) = self.streams.get(&stream)
        {
            entry.wake();
        }
    }

    /// Whether a usual head has room at once.
    pub(crate) fn may_answer_more(&self) -> bool {
        self.has_room(HEADS_BYTES_MAX / 2)
    }

    /// A head that is larger than all the room gets all of it.
    fn has_room(&self, bytes: usize) -> bool {
        let pending = self.codec.output().len();
        pending == 0 || pending + bytes <= HEADS_BYTES_MAX
    }
}

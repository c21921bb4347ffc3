//! The streams of a connection: a slab, the states of RFC 9113 §5.1, and the turns of those that have something to send
//! (RFC 9218 §10).

mod closed;
mod state;
#[cfg(test)]
mod tests;

pub(super) use closed::{ClosedBy, ClosedStreams};
pub(super) use state::{Receiving, Sending, State};

use super::priority::Priority;
use super::role::RequestKind;
use super::window::{ReceiveWindow, Window};

/// A stream that isn't idle. It leaves the slab when it is closed and what was received of it is released.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) state: State,
    pub(super) priority: Priority,
    pub(super) send_window: Window,
    pub(super) receive_window: ReceiveWindow,
    /// What the declared length still allows, if there is one (RFC 9113 §8.1.1).
    pub(super) expected: Option<u64>,
    /// What the request says of its response.
    pub(super) request: RequestKind,
    /// The application has something to send.
    pub(super) wants_turn: bool,
    turn: Turn,
}

/// The place of a stream in the queue of its urgency.
#[derive(Debug, Clone, Copy)]
struct Turn {
    is_queued: bool,
    urgency: u8,
    next: u16,
    previous: u16,
}

/// No slot.
const NONE: u16 = u16::MAX;

/// The most streams of a connection.
pub(super) const STREAMS_MAX: u32 = 10_000;

/// The slots that are kept allocated while there are no streams.
const SLOTS_KEPT: usize = 4;

/// A queue through the slots of streams.
#[derive(Debug, Clone, Copy)]
struct Queue {
    head: u16,
    tail: u16,
}

/// The streams, by slot and by identifier.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Vec<Option<Stream>>,
    free: Vec<u16>,
    /// Identifiers, which ascend because they are opened in that order, with their slots.
    index: Vec<(u32, u16)>,
    queues: [Queue; Priority::URGENCY_MAX as usize + 1],
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: Vec::new(),
            queues: [Queue { head: NONE, tail: NONE }; Priority::URGENCY_MAX as usize + 1],
        }
    }
}

impl Stream {
    /// An open stream whose head was received or sent.
    pub(super) fn new(id: u32, state: State, send_window: Window, receive_window: ReceiveWindow) -> Self {
        Self {
            id,
            state,
            priority: Priority::default(),
            send_window,
            receive_window,
            expected: None,
            request: RequestKind::Other,
            wants_turn: false,
            turn: Turn { is_queued: false, urgency: 0, next: NONE, previous: NONE },
        }
    }
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Stream>>()
            + self.free.capacity() * size_of::<u16>()
            + self.index.capacity() * size_of::<(u32, u16)>()
    }

    /// Adds a stream, whose identifier must be the highest. False if the slab is full.
    pub(super) fn insert(&mut self, stream: Stream) -> bool {
        if self.index.len() >= STREAMS_MAX as usize
            || self.index.last().is_some_and(|&(highest, _)| highest >= stream.id)
        {
            return false;
        }
        let id = stream.id;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u16
            }
        };
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = Some(stream);
        }
        self.index.push((id, slot));
        true
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let place = self.place_of(id)?;
        self.dequeue(id);
        let (_, slot) = self.index.remove(place);
        let stream = self.slots.get_mut(usize::from(slot))?.take();
        self.free.push(slot);
        if self.index.is_empty() && self.slots.capacity() > SLOTS_KEPT {
            self.slots = Vec::new();
            self.free = Vec::new();
            self.index = Vec::new();
        }
        stream
    }

    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        self.at(self.slot_of(id)?)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.at_mut(self.slot_of(id)?)
    }

    /// All streams, in the order of their identifiers.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Stream> {
        self.index.iter().filter_map(|&(_, slot)| self.at(slot))
    }

    /// Calls `change` with each stream.
    pub(super) fn for_each(&mut self, mut change: impl FnMut(&mut Stream)) {
        for stream in self.slots.iter_mut().flatten() {
            change(stream);
        }
    }

    /// Queues the streams that want a turn and whose window allows it.
    pub(super) fn enqueue_ready(&mut self) {
        for place in 0..self.index.len() {
            let Some(&(id, slot)) = self.index.get(place) else { return };
            if self.at(slot).is_some_and(|stream| stream.wants_turn && stream.send_window.available() > 0) {
                self.enqueue(id, false);
            }
        }
    }

    /// Queues a stream for a turn, at the beginning of its urgency or at the end. Nothing changes if it is queued.
    pub(super) fn enqueue(&mut self, id: u32, at_front: bool) {
        let Some(slot) = self.slot_of(id) else { return };
        let Some(stream) = self.at_mut(slot) else { return };
        if stream.turn.is_queued {
            return;
        }
        let urgency = stream.priority.urgency.min(Priority::URGENCY_MAX);
        stream.turn = Turn { is_queued: true, urgency, next: NONE, previous: NONE };
        let Some(queue) = self.queues.get_mut(usize::from(urgency)) else { return };
        let neighbour = if at_front {
            core::mem::replace(&mut queue.head, slot)
        } else {
            core::mem::replace(&mut queue.tail, slot)
        };
        if neighbour == NONE {
            *queue = Queue { head: slot, tail: slot };
        } else if at_front {
            self.link(slot, neighbour);
        } else {
            self.link(neighbour, slot);
        }
    }

    /// Removes a stream from its queue.
    pub(super) fn dequeue(&mut self, id: u32) {
        let Some(slot) = self.slot_of(id) else { return };
        let Some(stream) = self.at_mut(slot) else { return };
        if !stream.turn.is_queued {
            return;
        }
        stream.turn.is_queued = false;
        let Turn { urgency, next, previous, .. } = stream.turn;
        if let Some(previous) = self.at_mut(previous) {
            previous.turn.next = next;
        }
        if let Some(next) = self.at_mut(next) {
            next.turn.previous = previous;
        }
        let Some(queue) = self.queues.get_mut(usize::from(urgency)) else { return };
        if queue.head == slot {
            queue.head = next;
        }
        if queue.tail == slot {
            queue.tail = previous;
        }
    }

    /// Takes the stream whose turn it is out of its queue.
    pub(super) fn take_turn(&mut self) -> Option<u32> {
        let head = self.queues.iter().map(|queue| queue.head).find(|&head| head != NONE)?;
        let id = self.at(head)?.id;
        self.dequeue(id);
        Some(id)
    }

    /// Makes `second` the one behind `first`.
    fn link(&mut self, first: u16, second: u16) {
        if let Some(first) = self.at_mut(first) {
            first.turn.next = second;
        }
        if let Some(second) = self.at_mut(second) {
            second.turn.previous = first;
        }
    }

    fn place_of(&self, id: u32) -> Option<usize> {
        self.index.binary_search_by_key(&id, |&(id, _)| id).ok()
    }

    fn slot_of(&self, id: u32) -> Option<u16> {
        // Most frames are of the newest stream.
        match self.index.last() {
            Some(&(newest, slot)) if newest == id => Some(slot),
            _ => self.index.get(self.place_of(id)?).map(|&(_, slot)| slot),
        }
    }

    fn at(&self, slot: u16) -> Option<&Stream> {
        self.slots.get(usize::from(slot))?.as_ref()
    }

    fn at_mut(&mut self, slot: u16) -> Option<&mut Stream> {
        self.slots.get_mut(usize::from(slot))?.as_mut()
    }
}

//! Mirrors: copies of requests that another service gets beside the one that answers.
//!
//! A copy is made of what is sent to the service anyway, within its bounds, and carried by a task of its own. Nothing waits
//! for it, and nothing of it comes back: it is never sent twice, its response is read and dropped, and where there is no room
//! for it there is no copy.

mod carry;

use std::sync::Arc;

use cardea_http::{BodyLength, Fields, Known, Method, set_length};
use cardea_upstream::Affinity;

use super::{affinity, budget::Reserved, request, way::Way};
use crate::{
    exchange::Exchange,
    memory,
    model::{Mirror, MirrorOutcome, ModelRef},
    workers,
};

/// Tells services that a request is a copy. Clients can't send it.
pub(crate) const MIRRORED: &str = "cardea-mirrored";

/// A copy of a request.
#[derive(Debug)]
pub(crate) struct MirrorCopy {
    model: ModelRef,
    affinity: Option<Affinity>,
    method: Method,
    target: Vec<u8>,
    fields: Fields,
    body: Vec<u8>,
    reserved: Reserved,
    place: Place,
}

/// The place of a copy among those of its route. What becomes of the copy is counted when this is dropped.
#[derive(Debug)]
struct Place {
    mirror: Arc<Mirror>,
    outcome: MirrorOutcome,
}

impl Place {
    /// A place, unless as many copies are under way as may be.
    fn take(mirror: &Arc<Mirror>) -> Option<Self> {
        let has_room = memory::excess() == 0 && mirror.stats.begin(mirror.in_flight_max);
        if !has_room {
            mirror.stats.count(MirrorOutcome::Limited);
        }
        has_room.then(|| Self { mirror: Arc::clone(mirror), outcome: MirrorOutcome::Incomplete })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.mirror.stats.end();
        self.mirror.stats.count(self.outcome);
    }
}

/// Begins a copy of the request of `exchange`, whose head is as it came, if one is to be made.
#[inline]
pub(super) fn begin(way: Way<'_>, exchange: &Exchange, length: BodyLength) -> Option<Box<MirrorCopy>> {
    way.route.mirror.as_ref().and_then(|mirror| MirrorCopy::begin(way, mirror, exchange, length))
}

impl MirrorCopy {
    fn begin(
        way: Way<'_>,
        mirror: &Arc<Mirror>,
        exchange: &Exchange,
        length: BodyLength,
    ) -> Option<Box<Self>> {
        // A tunnel has no end, and its copy nobody to talk to.
        if exchange.upgrade || !exchange.id.sample().is_multiple_of(mirror.sample_one_in.get().into()) {
            return None;
        }
        let mut place = Place::take(mirror)?;
        let bytes_max = way.model.limits.replay_bytes_max;
        if length.stated().is_some_and(|length| length > bytes_max as u64) {
            place.outcome = MirrorOutcome::BodyTooLarge;
            return None;
        }
        Some(Box::new(Self {
            model: way.model.clone(),
            affinity: affinity(&mirror.service, exchange),
            method: exchange.head.method,
            target: Vec::new(),
            fields: Fields::default(),
            body: Vec::new(),
            reserved: Reserved::none(Arc::clone(way.model.mirror_budget())),
            place,
        }))
    }

    /// The copy with the head as it is sent, but for what the mirror must not get.
    pub(super) fn with_head(mut self: Box<Self>, way: Way<'_>, exchange: &mut Exchange) -> Option<Box<Self>> {
        request::with_head(exchange, way.route, BodyLength::None, |head| {
            self.target.extend_from_slice(head.target);
            self.fields.clone_from(head.fields);
        });
        // All of the body is there when it is sent.
        self.fields.remove(Known::Expect);
        if !self.place.mirror.forward_authorization {
            self.fields.remove(Known::Authorization);
        }
        self.fields.remove_by_name(MIRRORED.as_bytes());
        let is_marked = self.fields.append(MIRRORED.as_bytes(), b"1").is_ok();
        let bytes = self.fields.memory_bytes() + self.target.capacity();
        if !is_marked || !self.reserved.add(bytes) {
            self.place.outcome = MirrorOutcome::Limited;
            return None;
        }
        Some(self)
    }

    /// The copy with more of its body; none where that becomes too large.
    pub(super) fn with_body(mut self: Box<Self>, bytes: &[u8]) -> Option<Box<Self>> {
        if self.body.len() + bytes.len() > self.model.limits.replay_bytes_max {
            self.place.outcome = MirrorOutcome::BodyTooLarge;
            return None;
        }
        if !self.reserved.add(bytes.len()) {
            self.place.outcome = MirrorOutcome::Limited;
            return None;
        }
        self.body.extend_from_slice(bytes);
        Some(self)
    }

    /// Sends it, now that it is whole. Nothing waits for it.
    pub(super) fn send(mut self: Box<Self>) {
        let length = self.length().stated();
        if set_length(&mut self.fields, length).is_ok() {
            drop(workers::spawn(carry::carry(self)));
        }
    }

    /// How long its body is: a request that may have had one says that it is empty.
    fn length(&self) -> BodyLength {
        let had_none = self.body.is_empty() && self.fields.get(Known::ContentLength).is_none();
        if had_none { BodyLength::None } else { BodyLength::Exact(self.body.len() as u64) }
    }
}

//! The body of a request on its way to a service: what is kept to be sent again, then what the client sends.

use std::task::{Context, Poll, ready};

use cardea_http::{BodyLength, Fields};

use super::replay::Replay;
use crate::{
    body::{BodyError, BodySource},
    downstream::Downstream,
    exchange::Exchange,
    fields::{HeadNames, clean_request_trailers},
    model::ModelRef,
};

/// How far a request's body has come in one attempt.
#[derive(Debug)]
pub(super) struct RequestBody {
    length: BodyLength,
    replay: Replay,
    /// How much of what is kept was sent in this attempt.
    replayed: usize,
    /// It is kept back for now.
    is_held: bool,
    trailers: TrailerRules,
    /// The trailers as the service gets them, once the body has ended.
    cleaned: Option<Fields>,
}

/// What becomes of trailers.
#[derive(Debug)]
struct TrailerRules {
    /// The route's place, whose rules hold for them too.
    route: Option<usize>,
    /// The names of the request's head. None where no trailers may follow.
    names: Option<HeadNames>,
}

impl RequestBody {
    /// The body of the request of `exchange`, of which `replay` keeps what was sent before. Its head is the one that is sent.
    pub(super) fn new(exchange: &Exchange, length: BodyLength, replay: Replay) -> Self {
        let mut replay = replay;
        if length.is_empty() {
            replay.send_copy();
        }
        let names = (length == BodyLength::Unknown).then(|| HeadNames::of(exchange));
        let trailers = TrailerRules { route: exchange.route, names };
        Self { length, replay, replayed: 0, is_held: false, trailers, cleaned: None }
    }

    /// Keeps the body back, where there is one, until [`RequestBody::release`].
    pub(super) const fn hold(&mut self) {
        self.is_held = self.is_expected();
    }

    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }

    pub(super) const fn release(&mut self) {
        self.is_held = false;
    }

    /// Whether there is one, as far as the head says.
    pub(super) const fn is_expected(&self) -> bool {
        !self.length.is_empty()
    }

    /// Whether all of it could be sent once more.
    pub(super) const fn is_replayable(&self) -> bool {
        self.replay.is_possible()
    }

    /// What another attempt needs.
    pub(super) fn into_replay(self) -> Replay {
        self.replay
    }

    /// Where it comes from.
    pub(super) fn source<'a>(
        &'a mut self,
        model: &'a ModelRef,
        client: &'a mut dyn Downstream,
    ) -> Source<'a> {
        Source { body: self, model, client }
    }
}

impl TrailerRules {
    /// The trailers as the service gets them.
    fn clean(&self, model: &ModelRef, trailers: &Fields) -> Option<Fields> {
        let names = self.names.as_ref()?;
        let route = self.route.and_then(|route| model.router.get(route));
        Some(clean_request_trailers(model, route.map(|route| &**route), names, trailers))
    }
}

/// A request's body, with the client it comes from.
pub(super) struct Source<'a> {
    body: &'a mut RequestBody,
    model: &'a ModelRef,
    client: &'a mut dyn Downstream,
}

impl Source<'_> {
    /// What is kept and was not sent in this attempt.
    fn kept(&self) -> &[u8] {
        self.body.replay.kept().get(self.body.replayed..).unwrap_or_default()
    }
}

impl BodySource for Source<'_> {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        if self.body.is_held {
            // Whoever releases it wakes this task.
            return Poll::Pending;
        }
        if !self.kept().is_empty() {
            return Poll::Ready(Ok(true));
        }
        let more = ready!(self.client.poll_data(cx))?;
        if !more {
            let body = &mut *self.body;
            body.replay.send_copy();
            body.cleaned =
                self.client.trailers().and_then(|trailers| body.trailers.clean(self.model, trailers));
        }
        Poll::Ready(Ok(more))
    }

    fn chunk(&self) -> &[u8] {
        let kept = self.kept();
        if kept.is_empty() { self.client.chunk() } else { kept }
    }

    fn consume(&mut self, count: usize) {
        if !self.kept().is_empty() {
            self.body.replayed += count;
            return;
        }
        self.body.replay.record(self.client.chunk().get(..count).unwrap_or_default());
        self.body.replayed = self.body.replay.kept().len();
        self.client.consume(count);
    }

    fn trailers(&self) -> Option<&Fields> {
        self.body.cleaned.as_ref()
    }
}

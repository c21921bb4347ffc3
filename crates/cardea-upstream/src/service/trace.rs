//! What a choice of an endpoint tells of its steps.

use std::cell::RefCell;

use super::choice::ReachedLimit;

/// Why an endpoint can't be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is ejected, or its checks fail.
    Unhealthy,
    /// The operator has taken it out.
    TakenOut,
    /// The request has failed there.
    Tried,
    /// It has reached a limit.
    Limit(ReachedLimit),
}

impl Obstacle {
    /// The name in explanations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::TakenOut => "taken_out",
            Self::Tried => "tried",
            Self::Limit(ReachedLimit::Requests) => "requests_max",
            Self::Limit(ReachedLimit::Connections) => "connections_max",
        }
    }
}

/// A step of a choice. Regions and endpoints are given by their places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// So few endpoints are healthy that all are used.
    Panic,
    /// No healthy endpoint was found, so ejected ones are used too.
    EjectedToo,
    /// The region of the request was drawn by the shares, or is the only one.
    Region(usize),
    /// It has no endpoint for the request, so this one is asked.
    NextRegion(usize),
    /// The endpoint gets the request as its probe.
    Probe(u16),
    /// The endpoint was drawn, and can't be chosen.
    PassedOver(u16, Obstacle),
    /// The endpoint was drawn, and does not take this request in its slow start.
    SlowStart(u16),
    /// Of two that were drawn, the first is better. With their load: requests in flight for the weight, times seconds.
    Better { taken: u16, other: u16, cost: f32, other_cost: f32 },
    /// The endpoint that the key leads to.
    Key(u16),
    /// The endpoint that the key leads to has more than its share of the requests.
    KeyFull(u16),
}

/// Who is told of the steps of a choice.
pub(super) trait Trace {
    /// The choice is only asked about: it changes and counts nothing that others see.
    const IS_DRY: bool;

    fn note(&self, step: Step);
}

/// Nobody.
pub(super) struct Untraced;

impl Trace for Untraced {
    const IS_DRY: bool = false;

    #[inline]
    fn note(&self, _: Step) {}
}

/// The steps of a choice that is only asked about.
#[derive(Debug, Default)]
pub(super) struct Steps(RefCell<Vec<Step>>);

impl Steps {
    pub(super) fn into_inner(self) -> Vec<Step> {
        self.0.into_inner()
    }
}

impl Trace for Steps {
    const IS_DRY: bool = true;

    fn note(&self, step: Step) {
        self.0.borrow_mut().push(step);
    }
}

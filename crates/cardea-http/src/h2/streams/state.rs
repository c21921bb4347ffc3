//! The states of a stream (RFC 9113 §5.1).

/// The state of a stream that isn't idle. Streams are never reserved, because nobody pushes.
///
/// Each transition consumes the state and gives the next one, so that none can be skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Both sides send.
    Open(Receiving, Sending),
    /// The peer has ended its side.
    HalfClosedRemote(Sending),
    /// We have ended our side.
    HalfClosedLocal(Receiving),
    /// Both sides have ended.
    Closed,
}

/// What the peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// A response's head, after any number of informational ones.
    Head,
    /// DATA, then trailers.
    Body,
    /// Anything: it is discarded, because the request was refused.
    Discarded,
}

/// What we may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// A response's head, after any number of informational ones.
    Head,
    /// DATA, then trailers.
    Body,
}

impl State {
    /// What the peer may send, unless it has ended its side.
    pub(crate) const fn receiving(self) -> Option<Receiving> {
        match self {
            Self::Open(receiving, _) | Self::HalfClosedLocal(receiving) => Some(receiving),
            Self::HalfClosedRemote(_) | Self::Closed => None,
        }
    }

    /// What we may send, unless we have ended our side.
    pub(crate) const fn sending(self) -> Option<Sending> {
        match self {
            Self::Open(_, sending) | Self::HalfClosedRemote(sending) => Some(sending),
            Self::HalfClosedLocal(_) | Self::Closed => None,
        }
    }

    /// The state after the peer's head.
    #[must_use]
    pub(crate) const fn after_received(self, receiving: Receiving) -> Self {
        match self {
            Self::Open(_, sending) => Self::Open(receiving, sending),
            Self::HalfClosedLocal(_) => Self::HalfClosedLocal(receiving),
            ended @ (Self::HalfClosedRemote(_) | Self::Closed) => ended,
        }
    }

    /// The state after our head.
    #[must_use]
    pub(crate) const fn after_sent(self, sending: Sending) -> Self {
        match self {
            Self::Open(receiving, _) => Self::Open(receiving, sending),
            Self::HalfClosedRemote(_) => Self::HalfClosedRemote(sending),
            ended @ (Self::HalfClosedLocal(_) | Self::Closed) => ended,
        }
    }

    /// The state after END_STREAM of the peer.
    #[must_use]
    pub(crate) const fn end_receiving(self) -> Self {
        match self {
            Self::Open(_, sending) => Self::HalfClosedRemote(sending),
            Self::HalfClosedLocal(_) | Self::Closed => Self::Closed,
            ended @ Self::HalfClosedRemote(_) => ended,
        }
    }

    /// The state after our END_STREAM.
    #[must_use]
    pub(crate) const fn end_sending(self) -> Self {
        match self {
            Self::Open(receiving, _) => Self::HalfClosedLocal(receiving),
            Self::HalfClosedRemote(_) | Self::Closed => Self::Closed,
            ended @ Self::HalfClosedLocal(_) => ended,
        }
    }
}

//! Why a request could not be carried, by the step that failed and by whose fault it is.

use cardea_upstream::{FailureKind, RetryCause};

use crate::{
    body::BodyError,
    refusal::Reason,
    shortage::Shortage,
    termination::TerminationReason,
    upstream::{ConnectError, HeadError},
};

/// Why there is no connection to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcquireError {
    /// The client gave up meanwhile.
    ClientAborted,
    /// There are as many as there may be, all of them in use.
    Exhausted,
    /// None could be made.
    Connect(ConnectError),
    /// The right to the request ended meanwhile.
    Ended(TerminationReason),
}

impl AcquireError {
    /// Whether another endpoint would not help. Where the ports to one address are used up, those to another may not be.
    pub(super) const fn is_final(self) -> bool {
        matches!(
            self,
            Self::ClientAborted
                | Self::Ended(_)
                | Self::Connect(ConnectError::Own(Shortage::Descriptors | Shortage::Memory))
        )
    }
}

impl From<AcquireError> for Reason {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::ClientAborted => Self::ClientAborted,
            AcquireError::Ended(end) => Self::StreamEnded(end),
            AcquireError::Exhausted => Self::ConnectionsExhausted,
            AcquireError::Connect(ConnectError::Own(shortage)) => Self::FellShort(shortage),
            AcquireError::Connect(ConnectError::Endpoint(FailureKind::ConnectTimeout)) => {
                Self::ConnectTimeout
            }
            AcquireError::Connect(ConnectError::Endpoint(_)) => Self::ConnectFailed,
        }
    }
}

/// Why an attempt ended without the head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptError {
    /// The client gave up.
    ClientAborted,
    /// The client's body failed.
    Body(BodyError),
    /// The client's body stopped arriving.
    BodyTimeout,
    /// The client's body arrived at less than the least rate.
    BodyTooSlow,
    /// The service did not give one.
    Head(HeadError),
    /// The service did not take the request, or did not answer it, in the route's time.
    HeadTimeout,
    /// It did not answer in the time after which another endpoint is tried.
    TryTimeout,
    /// The whole exchange took too long.
    Timeout,
    /// The process had no room for the response.
    NoRoom,
    /// The right to it ended.
    Ended(TerminationReason),
}

impl AttemptError {
    /// As what another attempt may be made; none where nothing can help. An endpoint may close an idle connection at any time
    /// (RFC 9112 §9.3.1), so one that was `reused` may just have been stale.
    pub(super) const fn retry_cause(self, reused: bool) -> Option<RetryCause> {
        match self {
            Self::Head(HeadError::EndedBefore) if reused => Some(RetryCause::Stale),
            Self::Head(HeadError::Unprocessed { is_going_away: true }) => Some(RetryCause::Stale),
            Self::Head(HeadError::Unprocessed { is_going_away: false }) => Some(RetryCause::Refused),
            Self::Head(
                HeadError::EndedBefore
                | HeadError::EndedAfterInformational
                | HeadError::EndedWithin
                | HeadError::Reset,
            ) => Some(RetryCause::Closed),
            Self::TryTimeout => Some(RetryCause::Timeout),
            _ => None,
        }
    }

    /// Whether the service was not waited for to the end.
    pub(super) const fn is_abandoned(self) -> bool {
        matches!(
            self,
            Self::ClientAborted
                | Self::Body(BodyError::Aborted)
                | Self::Timeout
                | Self::NoRoom
                | Self::Ended(_)
        )
    }

    /// Whether the service has closed the connection with nothing of a final response.
    pub(super) const fn is_before_response(self) -> bool {
        matches!(self, Self::Head(HeadError::EndedBefore | HeadError::EndedAfterInformational))
    }

    /// Whether the service has sent something else than a response.
    pub(super) const fn is_malformed(self) -> bool {
        matches!(self, Self::Head(HeadError::Malformed(_) | HeadError::TooManyInformational))
    }

    /// What failed at the endpoint, where it is to blame.
    pub(super) const fn failure_kind(self) -> Option<FailureKind> {
        match self {
            Self::Head(error) => error.failure_kind(),
            Self::HeadTimeout | Self::TryTimeout => Some(FailureKind::ResponseTimeout),
            Self::ClientAborted
            | Self::Body(_)
            | Self::BodyTimeout
            | Self::BodyTooSlow
            | Self::Timeout
            | Self::NoRoom
            | Self::Ended(_) => None,
        }
    }
}

impl From<AttemptError> for Reason {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::ClientAborted => Self::ClientAborted,
            AttemptError::Body(error) => Self::from(error),
            AttemptError::BodyTimeout => Self::RequestBodyTimeout,
            AttemptError::BodyTooSlow => Self::RequestBodyTooSlow,
            AttemptError::Head(
                HeadError::EndedBefore
                | HeadError::EndedAfterInformational
                | HeadError::EndedWithin
                | HeadError::Reset,
            ) => Self::ServiceAborted,
            AttemptError::Head(HeadError::Unprocessed { .. }) => Self::ServiceRefused,
            AttemptError::Head(HeadError::RequestTooLarge) => Self::HeadTooLargeForService,
            AttemptError::Head(HeadError::Malformed(fault)) => Self::ServiceMalformed(fault.code()),
            AttemptError::Head(HeadError::TooManyInformational) => {
                Self::ServiceMalformed("informational_responses_too_many")
            }
            AttemptError::HeadTimeout | AttemptError::TryTimeout => Self::ResponseHeadTimeout,
            AttemptError::Timeout => Self::RequestTimeout,
            AttemptError::NoRoom => Self::Overloaded,
            AttemptError::Ended(end) => Self::StreamEnded(end),
        }
    }
}

//! Why the gateway ends what lasts, and how it says so in each protocol.

use cardea_http::grpc::GrpcStatus;
use cardea_identity::Lapse;

/// Why the gateway ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminationReason {
    /// The token's window is over, and the grace.
    TokenExpired,
    /// The caller was revoked or disabled.
    TokenRevoked,
    /// The token's issuer is not trusted any more, or not as it was.
    IssuerChanged,
    /// The client's certificate has expired or was revoked, or nobody vouches for it any more.
    CertificateInvalid,
    /// No route takes the request any more, or one that leads to no service.
    RouteRemoved,
    /// The route asks for more than the caller has shown.
    RequirementUnmet,
    /// The drain's deadline has come.
    Draining,
    /// The process holds as much for messages under way as it may, and this connection has held much of it for long.
    BuffersExhausted,
}

impl TerminationReason {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 8] = [
        Self::TokenExpired,
        Self::TokenRevoked,
        Self::IssuerChanged,
        Self::CertificateInvalid,
        Self::RouteRemoved,
        Self::RequirementUnmet,
        Self::Draining,
        Self::BuffersExhausted,
    ];

    /// The stable code, for the access log and metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TokenExpired => "token_expired",
            Self::TokenRevoked => "token_revoked",
            Self::IssuerChanged => "issuer_changed",
            Self::CertificateInvalid => "client_certificate_invalid",
            Self::RouteRemoved => "route_removed",
            Self::RequirementUnmet => "demand_unmet",
            Self::Draining => "drain_deadline",
            Self::BuffersExhausted => "buffers_exhausted",
        }
    }

    /// What the client is told, where its protocol has room for words.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::TokenExpired => "token expired",
            Self::TokenRevoked => "token revoked",
            Self::IssuerChanged => "token no longer accepted",
            Self::CertificateInvalid => "client certificate no longer valid",
            Self::RouteRemoved => "no longer available",
            Self::RequirementUnmet => "no longer allowed",
            Self::Draining => "going away",
            Self::BuffersExhausted => "out of buffers",
        }
    }

    /// The status of a WebSocket's close frame (RFC 6455 §7.4.1): going away, try again later (as IANA has it), or against the
    /// policy.
    pub(crate) const fn close_code(self) -> u16 {
        match self {
            Self::Draining => 1001,
            Self::BuffersExhausted => 1013,
            _ => 1008,
        }
    }

    /// The status of a gRPC call that ends.
    pub(crate) const fn grpc_status(self) -> GrpcStatus {
        match self {
            Self::TokenExpired | Self::TokenRevoked | Self::IssuerChanged | Self::CertificateInvalid => {
                GrpcStatus::Unauthenticated
            }
            Self::RouteRemoved | Self::RequirementUnmet => GrpcStatus::PermissionDenied,
            Self::BuffersExhausted => GrpcStatus::ResourceExhausted,
            Self::Draining => GrpcStatus::Unavailable,
        }
    }
}

impl From<Lapse> for TerminationReason {
    fn from(lapse: Lapse) -> Self {
        match lapse {
            Lapse::Expired => Self::TokenExpired,
            Lapse::Revoked => Self::TokenRevoked,
            Lapse::IssuerChanged => Self::IssuerChanged,
        }
    }
}

//! Why a request was refused: reason codes, and the one function that turns them into status codes.
//!
//! The caller is told the reason code, the request's id and a sentence that reveals nothing of the inside; the
//! operator finds the same code and id in the access log.

use std::borrow::Cow;

use cardea_guard::AdmissionRefusal;
use cardea_http::grpc::GrpcStatus;
use cardea_identity::TokenError;

use crate::{body::BodyError, shortage::Shortage, termination::TerminationReason};

/// Why the gateway answers in place of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The message breaks a rule of HTTP; its code and status come from the codec (RFC 9110, RFC 9112).
    Malformed {
        /// The codec's reason code.
        code: &'static str,
        /// The status that the RFC asks for.
        status: u16,
    },
    /// The head did not arrive in time.
    RequestHeadTimeout,
    /// The body stopped arriving.
    RequestBodyTimeout,
    /// The body arrived at less than the least rate.
    RequestBodyTooSlow,
    /// The body is larger than the route allows.
    BodyTooLarge,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    ExpectationFailed,
    /// A WebSocket in a version other than 13, or none (RFC 6455 §4.4).
    WebSocketVersion,
    /// What an extended CONNECT asks for has answered without opening a WebSocket.
    WebSocketRefused,
    /// The authority belongs to another trust domain than the connection (RFC 9110 §15.5.20).
    MisdirectedRequest,
    /// The authority's host requires a client certificate that the connection was not asked for, whatever it is
    /// (RFC 9110 §15.5.20).
    ClientCertificateUnasked,
    /// No route takes this authority and path.
    RouteNotFound,
    /// Routes take this path, none with this method; the value lists the methods that are taken.
    MethodNotAllowed(String),
    /// The path holds an encoding that the route does not allow.
    PathEncodingNotAllowed,
    /// The route needs a client certificate and the connection has none; the host where it is asked for, if there is one.
    ClientCertificateMissing(Option<String>),
    /// The client's certificate has expired or was revoked, or nobody vouches for it here.
    ClientCertificateInvalid,
    /// The client's certificate is not on the route's list.
    ClientCertificateNotListed,
    /// More than one `Authorization` header, or one that is malformed (RFC 6750 §3.1).
    CredentialsMalformed,
    /// A token is needed and none came.
    CredentialsMissing,
    /// A token came and does not hold; the code of the check that failed.
    TokenInvalid(&'static str),
    /// The token holds, the caller may not; what is missing, for `insufficient_scope`.
    InsufficientScope(String),
    /// The token holds, its caller lacks a role.
    RoleMissing,
    /// A policy says no; the reason that its rule gives, if the caller is to be told.
    PolicyDenied(Option<Box<str>>),
    /// A policy could not be evaluated for this request.
    PolicyFailed,
    /// The condition of a route could not be evaluated for this request.
    ConditionFailed,
    /// A throttle refuses it.
    RateLimited {
        /// When it would be admitted; none where it never would.
        retry_seconds: Option<u64>,
    },
    /// A throttle refuses it: its key has as many requests in flight as it may.
    TooManyInFlight,
    /// Its refusal was to be held, and there are as many in the tarpit as there may be.
    TarpitFull {
        /// When to come again.
        retry_seconds: u64,
    },
    /// There are as many requests in flight as there may be, and it can't wait, or has waited for too long.
    NotAdmitted(AdmissionRefusal),
    /// What the request costs could not be evaluated.
    ThrottleFailed,
    /// The keys that the token is to be checked with can't be had.
    KeysUnavailable,
    /// No endpoint of the service can be tried.
    NoEndpoint,
    /// Each endpoint of the service has as many requests as it may.
    EndpointsFull,
    /// No connection to the service within its bound.
    ConnectionsExhausted,
    /// No endpoint accepted a connection.
    ConnectFailed,
    /// The service did not accept a connection in time.
    ConnectTimeout,
    /// The service closed or reset the connection before its response.
    ServiceAborted,
    /// The service has refused to process the request (RFC 9113 §8.7).
    ServiceRefused,
    /// The head is larger than the service accepts (RFC 9113 §6.5.2).
    HeadTooLargeForService,
    /// A WebSocket to a service that is reached by HTTP/2 alone.
    UpgradeUnsupported,
    /// The service's response breaks a rule of HTTP; the codec's code.
    ServiceMalformed(&'static str),
    /// The head of the service's response did not arrive in time.
    ResponseHeadTimeout,
    /// The whole exchange took longer than the route allows.
    RequestTimeout,
    /// The time is over that the client has set for its call.
    DeadlineExceeded,
    /// The client gave up; nobody is there to be told.
    ClientAborted,
    /// An endpoint of the gateway's own has made a response that can't be sent.
    BuiltInFailed,
    /// The process or the machine has no descriptors, ports or memory left to connect with.
    FellShort(Shortage),
    /// The gateway has as many connections or exchanges as it may.
    Overloaded,
    /// The gateway is shutting down.
    Draining,
    /// The right to this request ended while it was under way.
    StreamEnded(TerminationReason),
}

impl Reason {
    /// The stable code, as the answer and the access log show it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { code, .. } => code,
            Self::RequestHeadTimeout => "request_head_timeout",
            Self::RequestBodyTimeout => "request_body_timeout",
            Self::RequestBodyTooSlow => "request_body_too_slow",
            Self::BodyTooLarge => "request_body_too_large",
            Self::ExpectationFailed => "expectation_failed",
            Self::WebSocketVersion => "websocket_version_unsupported",
            Self::WebSocketRefused => "websocket_refused",
            Self::MisdirectedRequest => "misdirected_request",
            Self::ClientCertificateUnasked => "client_certificate_unasked",
            Self::RouteNotFound => "route_not_found",
            Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::PathEncodingNotAllowed => "path_encoding_not_allowed",
            Self::ClientCertificateMissing(_) => "client_certificate_required",
            Self::ClientCertificateInvalid => "client_certificate_invalid",
            Self::ClientCertificateNotListed => "client_certificate_not_listed",
            Self::CredentialsMalformed => "credentials_malformed",
            Self::CredentialsMissing => "credentials_missing",
            Self::TokenInvalid(code) => code,
            Self::InsufficientScope(_) => "insufficient_scope",
            Self::RoleMissing => "role_missing",
            Self::PolicyDenied(_) => "policy_denied",
            Self::PolicyFailed => "policy_failed",
            Self::ConditionFailed => "condition_failed",
            Self::RateLimited { .. } => "rate_limited",
            Self::TooManyInFlight => "concurrency_limited",
            Self::TarpitFull { .. } => "tarpit_full",
            Self::NotAdmitted(AdmissionRefusal::QueueFull) => "queue_full",
            Self::NotAdmitted(AdmissionRefusal::Displaced) => "queue_displaced",
            Self::NotAdmitted(AdmissionRefusal::Expired) => "queue_timeout",
            Self::NotAdmitted(AdmissionRefusal::Shed) => "queue_shed",
            Self::NotAdmitted(AdmissionRefusal::OverShare) => "queue_share",
            Self::ThrottleFailed => "throttle_failed",
            Self::KeysUnavailable => "keys_unavailable",
            Self::NoEndpoint => "no_endpoint",
            Self::EndpointsFull => "upstream_requests_exhausted",
            Self::ConnectionsExhausted => "upstream_connections_exhausted",
            Self::ConnectFailed => "upstream_connect_failed",
            Self::ConnectTimeout => "upstream_connect_timeout",
            Self::ServiceAborted => "upstream_aborted",
            Self::ServiceRefused => "upstream_refused",
            Self::HeadTooLargeForService => "upstream_request_head_too_large",
            Self::UpgradeUnsupported => "upgrade_unsupported",
            Self::ServiceMalformed(_) => "upstream_malformed",
            Self::ResponseHeadTimeout => "upstream_response_head_timeout",
            Self::RequestTimeout => "request_timeout",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::ClientAborted => "client_aborted",
            Self::BuiltInFailed => "builtin_failed",
            Self::FellShort(_) => "gateway_resources_exhausted",
            Self::Overloaded => "overloaded",
            Self::Draining => "draining",
            Self::StreamEnded(end) => end.code(),
        }
    }

    /// The status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed { status, .. } => *status,
            Self::CredentialsMalformed | Self::PathEncodingNotAllowed => 400,
            Self::CredentialsMissing | Self::TokenInvalid(_) => 401,
            Self::ClientCertificateMissing(_)
            | Self::ClientCertificateInvalid
            | Self::ClientCertificateNotListed
            | Self::InsufficientScope(_)
            | Self::RoleMissing
            | Self::PolicyDenied(_)
            | Self::PolicyFailed
            | Self::ConditionFailed
            | Self::ThrottleFailed => 403,
            Self::RouteNotFound => 404,
            Self::MethodNotAllowed(_) => 405,
            Self::RequestHeadTimeout | Self::RequestBodyTimeout | Self::RequestBodyTooSlow => 408,
            Self::BodyTooLarge => 413,
            Self::ExpectationFailed => 417,
            Self::MisdirectedRequest | Self::ClientCertificateUnasked => 421,
            Self::WebSocketVersion => 426,
            Self::RateLimited { .. } | Self::TooManyInFlight | Self::TarpitFull { .. } => 429,
            Self::StreamEnded(end) => match end {
                TerminationReason::TokenExpired
                | TerminationReason::TokenRevoked
                | TerminationReason::IssuerChanged => 401,
                TerminationReason::RequirementUnmet | TerminationReason::CertificateInvalid => 403,
                TerminationReason::RouteRemoved => 404,
                TerminationReason::Draining | TerminationReason::BuffersExhausted => 503,
            },
            // Not a code of the RFCs: what nginx logs for this, and never sent.
            Self::ClientAborted => 499,
            Self::HeadTooLargeForService => 431,
            Self::BuiltInFailed => 500,
            Self::UpgradeUnsupported => 501,
            Self::WebSocketRefused
            | Self::ConnectFailed
            | Self::ServiceAborted
            | Self::ServiceMalformed(_) => 502,
            Self::KeysUnavailable
            | Self::NoEndpoint
            | Self::EndpointsFull
            | Self::ConnectionsExhausted
            | Self::ServiceRefused
            | Self::NotAdmitted(_)
            | Self::FellShort(_)
            | Self::Overloaded
            | Self::Draining => 503,
            Self::ConnectTimeout
            | Self::ResponseHeadTimeout
            | Self::RequestTimeout
            | Self::DeadlineExceeded => 504,
        }
    }

    /// The status of a gRPC call that is refused. It is what clients make of the HTTP status by themselves (the gRPC project's
    /// `http-grpc-status-mapping.md`), except that limits are told from failures.
    #[must_use]
    pub fn grpc_status(&self) -> GrpcStatus {
        match self {
            Self::StreamEnded(end) => return end.grpc_status(),
            Self::DeadlineExceeded => return GrpcStatus::DeadlineExceeded,
            _ => {}
        }
        match self.status() {
            400 => GrpcStatus::Internal,
            401 => GrpcStatus::Unauthenticated,
            403 => GrpcStatus::PermissionDenied,
            404 => GrpcStatus::Unimplemented,
            413 | 429 | 431 => GrpcStatus::ResourceExhausted,
            499 => GrpcStatus::Cancelled,
            502..=504 => GrpcStatus::Unavailable,
            _ => GrpcStatus::Unknown,
        }
    }

    /// What the caller is told.
    pub(crate) fn title(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Malformed { .. } => "The request is malformed.",
            Self::RequestHeadTimeout => "The request's head did not arrive in time.",
            Self::RequestBodyTimeout => "The request's body stopped arriving.",
            Self::RequestBodyTooSlow => "The request's body arrives too slowly.",
            Self::BodyTooLarge => "The request's body is larger than this resource allows.",
            Self::ExpectationFailed => "The expectation can't be met.",
            Self::WebSocketVersion => "A WebSocket is opened with version 13 of the protocol.",
            Self::WebSocketRefused => "The resource opens no WebSocket.",
            Self::MisdirectedRequest => {
                "This connection does not serve that authority; open another connection."
            }
            Self::ClientCertificateUnasked => {
                "This host requires a client certificate; open a TLS connection to it."
            }
            Self::RouteNotFound => "The resource does not exist.",
            Self::MethodNotAllowed(_) => "This resource does not support this method.",
            Self::PathEncodingNotAllowed => {
                "The path contains an encoding that this resource does not allow."
            }
            Self::ClientCertificateMissing(Some(_)) => {
                "A client certificate is required; the named host requests one."
            }
            Self::ClientCertificateMissing(None) => "A client certificate is required.",
            Self::ClientCertificateInvalid => "The client certificate is not valid.",
            Self::ClientCertificateNotListed => "The client certificate is not allowed for this resource.",
            Self::CredentialsMalformed => "The credentials are malformed.",
            Self::CredentialsMissing => "A bearer token is required.",
            Self::TokenInvalid(_) => "The token is not valid for this resource.",
            Self::InsufficientScope(_) => "The token's scope is insufficient.",
            Self::RoleMissing => "The caller lacks a role.",
            Self::PolicyDenied(_) | Self::PolicyFailed | Self::ConditionFailed | Self::ThrottleFailed => {
                "A policy does not allow this request."
            }
            Self::RateLimited { .. } | Self::TooManyInFlight | Self::TarpitFull { .. } => {
                "Too many requests."
            }
            Self::KeysUnavailable => "The token can't be verified at the moment.",
            Self::NoEndpoint | Self::EndpointsFull | Self::ConnectionsExhausted | Self::ServiceRefused => {
                "The service is not available."
            }
            Self::ConnectFailed => "The service can't be reached.",
            Self::ConnectTimeout => "The service can't be reached in time.",
            Self::ServiceAborted => "The service closed the connection.",
            Self::HeadTooLargeForService => "The request's head is larger than the service accepts.",
            Self::UpgradeUnsupported => "This resource does not support WebSockets.",
            Self::ServiceMalformed(_) => "The service's response is malformed.",
            Self::ResponseHeadTimeout => "The service did not respond in time.",
            Self::RequestTimeout => "The exchange took too long.",
            Self::DeadlineExceeded => "The call's deadline has passed.",
            Self::ClientAborted => "The client closed the connection.",
            Self::BuiltInFailed => "The gateway failed to generate a response.",
            Self::FellShort(_)
            | Self::NotAdmitted(_)
            | Self::Overloaded
            | Self::StreamEnded(TerminationReason::BuffersExhausted) => "The gateway has reached a limit.",
            Self::Draining | Self::StreamEnded(TerminationReason::Draining) => {
                "The gateway is shutting down."
            }
            Self::StreamEnded(_) => "The request is no longer authorized.",
        })
    }

    /// Whether the connection can't be trusted or used after this.
    #[must_use]
    pub fn closes(&self) -> bool {
        matches!(
            self,
            Self::Malformed { .. }
                | Self::RequestHeadTimeout
                | Self::RequestBodyTimeout
                | Self::RequestBodyTooSlow
                | Self::BodyTooLarge
                | Self::ExpectationFailed
                | Self::ClientAborted
                | Self::Draining
                | Self::StreamEnded(_)
        )
    }
}

impl From<TokenError> for Reason {
    fn from(error: TokenError) -> Self {
        if error.is_gateway_fault() { Self::KeysUnavailable } else { Self::TokenInvalid(error.code()) }
    }
}

/// What the client is told whose body did not arrive whole.
impl From<BodyError> for Reason {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Aborted => Self::ClientAborted,
            BodyError::Malformed(malformed) => Self::Malformed { code: malformed.code(), status: 400 },
            BodyError::TooLarge => Self::BodyTooLarge,
        }
    }
}

/// The codec's errors are the client's fault, with a code and a status of their own.
macro_rules! malformed {
    ($($error:ty),+) => {
        $(impl From<$error> for Reason {
            fn from(error: $error) -> Self {
                Self::Malformed { code: error.code(), status: error.status() }
            }
        })+
    };
}

malformed!(
    cardea_http::RequestError,
    cardea_http::TargetError,
    cardea_http::PathError,
    cardea_http::grpc::GrpcTimeoutError
);

#[cfg(test)]
mod tests;

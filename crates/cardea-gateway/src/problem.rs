//! What the caller is told of a refusal: the response for a [`Reason`].

use cardea_http::{Known, ResponseHead};

use crate::{
    builtin::ErrorFormat,
    exchange::Exchange,
    grpc::RefusedCall,
    model::Destination,
    refusal::Reason,
    response::{Response, ResponseBody},
    termination::TerminationReason,
    websocket::handshake,
};

/// Over how many seconds refused clients are spread.
const RETRY_SPREAD_SECONDS: u64 = 4;

impl Reason {
    /// The response to the caller: a problem document (RFC 9457), or the token endpoint's shape
    /// (RFC 6749 §5.2) where that is what the caller speaks.
    pub(crate) fn respond(&self, exchange: &Exchange) -> Response {
        let mut head = ResponseHead::new(self.status());
        if let Some(challenge) = self.challenge() {
            set(&mut head, Known::WwwAuthenticate, &challenge);
        }
        match self {
            Self::MethodNotAllowed(allow) => set(&mut head, Known::Allow, allow),
            Self::WebSocketVersion => {
                // RFC 9110 §15.5.22.
                set(&mut head, Known::Connection, "upgrade");
                set(&mut head, Known::Upgrade, "websocket");
                set(&mut head, Known::SecWebSocketVersion, handshake::VERSION);
            }
            Self::KeysUnavailable
            | Self::NoEndpoint
            | Self::EndpointsFull
            | Self::ConnectionsExhausted
            | Self::FellShort(_)
            | Self::StreamEnded(TerminationReason::BuffersExhausted)
            | Self::TooManyInFlight
            | Self::Overloaded => {
                set(&mut head, Known::RetryAfter, "1");
            }
            Self::NotAdmitted(_) => {
                set(&mut head, Known::RetryAfter, &jittered(exchange).to_string());
            }
            // Clients know this field; `RateLimit` says more (RFC 6585 §4).
            Self::RateLimited { retry_seconds: Some(seconds) }
            | Self::TarpitFull { retry_seconds: seconds } => {
                set(&mut head, Known::RetryAfter, &seconds.max(&1).to_string());
            }
            _ => {}
        }
        let id = String::from_utf8_lossy(&exchange.name()).into_owned();
        set(&mut head, Known::XRequestId, &id);
        if exchange.is_grpc {
            return self.refuse_call(head);
        }
        let body = if error_format(exchange) == ErrorFormat::Oauth {
            let error = match self.status() {
                429 | 503 => "temporarily_unavailable",
                400..=499 => "invalid_request",
                _ => "server_error",
            };
            set(&mut head, Known::ContentType, "application/json");
            set(&mut head, Known::CacheControl, "no-store");
            serde_json::json!({
                "error": error, "error_description": self.title(), "code": self.code(), "request_id": id,
            })
        } else {
            set(&mut head, Known::ContentType, "application/problem+json");
            set(&mut head, Known::CacheControl, "no-store");
            let mut document = serde_json::json!({
                "type": "about:blank", "title": self.title(), "status": self.status(),
                "code": self.code(), "request_id": id,
            });
            if let Self::ClientCertificateMissing(Some(host)) = self
                && let Some(members) = document.as_object_mut()
            {
                members.insert("step_up_host".to_owned(), host.as_str().into());
            }
            if let Self::PolicyDenied(Some(reason)) = self
                && let Some(members) = document.as_object_mut()
            {
                members.insert("detail".to_owned(), serde_json::Value::from(&**reason));
            }
            document
        };
        let mut response = Response::new(head, ResponseBody::text(body.to_string()));
        response.close = self.closes();
        response
    }

    /// The refusal of a gRPC call. Its `head` has the status and the fields of the refusal of any request.
    fn refuse_call(&self, head: ResponseHead) -> Response {
        let mut message = format!("{}: {}", self.code(), self.title());
        if let Self::PolicyDenied(Some(reason)) = self {
            message.push(' ');
            message.push_str(reason);
        }
        let mut response = Response::new(head, ResponseBody::Empty);
        response.close = self.closes();
        response.refused_call = Some(Box::new(RefusedCall { status: self.grpc_status(), message }));
        response
    }

    /// The `WWW-Authenticate` value (RFC 6750 §3): without credentials no `error`.
    fn challenge(&self) -> Option<String> {
        match self {
            Self::CredentialsMissing => Some("Bearer".to_owned()),
            Self::CredentialsMalformed => Some("Bearer error=\"invalid_request\"".to_owned()),
            Self::TokenInvalid(code) => {
                Some(format!("Bearer error=\"invalid_token\", error_description=\"{code}\""))
            }
            Self::StreamEnded(_) if self.status() == 401 => {
                Some(format!("Bearer error=\"invalid_token\", error_description=\"{}\"", self.code()))
            }
            Self::InsufficientScope(scope) => {
                let scope: String =
                    scope.chars().filter(|c| matches!(c, ' ' | '!' | '#'..='[' | ']'..='~')).collect();
                Some(format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\""))
            }
            Self::RoleMissing => Some("Bearer error=\"insufficient_scope\"".to_owned()),
            _ => None,
        }
    }
}

/// Seconds after which to try again where too much comes at once. Clients that were refused together come back apart.
fn jittered(exchange: &Exchange) -> u64 {
    1 + exchange.id.sample() % RETRY_SPREAD_SECONDS
}

/// How the caller expects errors.
fn error_format(exchange: &Exchange) -> ErrorFormat {
    match exchange.route().map(|route| &route.destination) {
        Some(Destination::BuiltIn(destination)) => destination.error_format(),
        _ => ErrorFormat::Problem,
    }
}

/// Sets a header whose value this file has made: it can't be refused.
fn set(head: &mut ResponseHead, known: Known, value: &str) {
    let _ = head.fields.set_known(known, value.as_bytes());
}

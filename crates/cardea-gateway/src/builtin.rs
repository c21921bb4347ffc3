//! Destinations inside the program: they answer requests themselves, behind the same checks as services.

mod answer;

use std::{fmt, future::Future, net::IpAddr, pin::Pin, sync::Arc};

use cardea_clock::{Clock, Mono};
use cardea_http::{Method, RequestHead, ResponseHead};

pub(crate) use answer::{answer, check_method};

pub use crate::tarpit::Offence;

use crate::refusal::Reason;

/// A destination inside the program.
pub trait BuiltIn: Send + Sync + fmt::Debug {
    /// Its name in the configuration and in explanations.
    fn name(&self) -> &'static str;

    /// The methods that it answers; others are refused. `None`: it answers all.
    fn methods(&self) -> Option<&'static [Method]>;

    /// The largest request body that is read for it, in bytes. `None`: none is read.
    fn body_bytes_max(&self) -> Option<u64> {
        None
    }

    /// The status of its answers, if that depends on nothing but the method.
    fn status(&self) -> Option<u16>;

    /// How its callers expect errors, whoever refuses a request.
    fn error_format(&self) -> ErrorFormat {
        ErrorFormat::Problem
    }

    /// Answers a request that has passed all checks.
    ///
    /// # Errors
    /// Why it can't.
    fn answer<'a>(&'a self, request: BuiltInRequest<'a>) -> BuiltInFuture<'a>;
}

/// What [`BuiltIn::answer`] returns.
pub type BuiltInFuture<'a> = Pin<Box<dyn Future<Output = Result<BuiltInResponse, Reason>> + Send + 'a>>;

/// The shape of an error in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorFormat {
    /// A problem document (RFC 9457).
    #[default]
    Problem,
    /// The JSON of a token endpoint (RFC 6749 §5.2).
    Oauth,
}

/// A request to a destination inside the program.
#[derive(Debug)]
pub struct BuiltInRequest<'a> {
    /// The head.
    pub head: &'a RequestHead,
    /// The query without `?`; `None` if there is no `?`.
    pub query: Option<&'a [u8]>,
    /// The body, if it was to be read.
    pub body: &'a [u8],
    /// Whether the gateway is on its way out: it serves on, and load balancers are to notice.
    pub is_draining: bool,
    /// The client's address.
    pub source: Option<IpAddr>,
    /// When the request's time is over.
    pub deadline: Option<Mono>,
    /// The time.
    pub clock: &'a Clock,
}

/// The answer of a destination inside the program.
#[derive(Debug)]
pub struct BuiltInResponse {
    /// The head, without fields that frame the message.
    pub head: ResponseHead,
    /// The body.
    pub body: Arc<[u8]>,
    /// Why the request was refused, for the log and the metrics and not for the client.
    pub reason: Option<&'static str>,
    /// Whether the request is an offence: its credentials are wrong, or were too often.
    pub offence: Option<Offence>,
}

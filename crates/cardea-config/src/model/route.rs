//! Routes and their destinations.

use std::{num::NonZeroU32, ops::Deref, sync::Arc, time::Duration};

use cardea_env::Template;
use cardea_gateway::{exchange::Exchange, model::RouteSettings, routing::RouteMatch};
use cardea_identity::Alternative;

use super::{ClientCertificateRule, RouteAdmission};

/// The conditions, the access requirement and the destination of requests.
#[derive(Debug, Clone)]
pub struct Route {
    pub name: String,
    /// The names of listeners exist. They are sorted, as are methods and fields.
    pub matches: RouteMatch,
    pub auth: Auth,
    pub client_certificate: Option<ClientCertificateRule>,
    pub destination: Destination,
    pub mirror: Option<Mirror>,
    /// Names of routes whose requests this one takes intentionally, although its requirement is weaker.
    pub opens: Vec<String>,
    pub admission: RouteAdmission,
    /// Its throttles include those of its service and of all routes.
    pub settings: RouteSettings,
}

impl Deref for Route {
    type Target = RouteSettings;

    fn deref(&self) -> &RouteSettings {
        &self.settings
    }
}

/// Who may make a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// All callers.
    Public,
    /// Callers whose token meets one of these; never empty. Without audiences, the first one of the issuer applies.
    AccessRequirement(Vec<Alternative>),
}

/// The destination of requests.
#[derive(Debug, Clone)]
pub enum Destination {
    /// A service.
    Service {
        /// Its index in [`Config::services`](super::Config::services).
        index: usize,
    },
    /// Several services.
    Split {
        /// A template. Requests for which it has the same value go to the same service.
        key: Option<Template<Exchange>>,
        /// At least one, one of them with a weight.
        shares: Vec<Share>,
    },
    /// A redirect.
    Redirect {
        /// A template of a URL or an absolute path.
        to: Template<Exchange>,
        /// Whether the request's query is appended. It is not if the template contains it.
        keep_query: bool,
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// A fixed response.
    Respond {
        /// 200 to 599.
        status: u16,
        /// The media type of the body.
        content_type: String,
        /// The content of the response.
        body: Arc<[u8]>,
    },
    /// A built-in destination.
    BuiltIn(BuiltIn),
}

/// A service that gets copies of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Its index in [`super::Config::services`].
    pub index: usize,
    pub sample_one_in: NonZeroU32,
    pub in_flight_max: u32,
    pub timeout: Duration,
    pub forward_authorization: bool,
}

/// A service of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Its index in [`Config::services`](super::Config::services).
    pub index: usize,
    pub weight: u32,
    /// The throttles that count its requests once they are authorized, by their places.
    pub throttles: Box<[usize]>,
}

/// The built-in destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    /// The token endpoint (RFC 6749 §3.2).
    Token,
    /// The key set (RFC 7517 §5).
    KeySet,
    /// Authorization server metadata (RFC 8414).
    OauthMetadata,
    /// OpenID Connect Discovery.
    OpenidConfiguration,
    /// The authorization endpoint, which refuses all requests.
    Authorize,
    /// Answers 200 while the process runs.
    Health,
}

impl Destination {
    /// The indices of the services that it leads to.
    pub fn services(&self) -> impl Iterator<Item = usize> {
        let (single, several) = match self {
            Self::Service { index } => (Some(*index), &[][..]),
            Self::Split { shares, .. } => (None, shares.as_slice()),
            _ => (None, &[][..]),
        };
        single.into_iter().chain(several.iter().map(|share| share.index))
    }

    /// A placeholder for an unresolved destination, in a configuration from which nothing is built.
    pub(in super::super) fn unresolved() -> Self {
        Self::Respond { status: 503, content_type: "text/plain".to_owned(), body: Arc::default() }
    }
}

//! What a route makes of the client's certificate: lets in, sends to where it is asked for, tells the service.

use cardea_clock::Wall;
use cardea_http::{HeaderNameSet, Known, Method, ResponseHead};
use cardea_tls::{Arrival, ClientCertificate, ClientMismatch, RequirementUnmet};

use crate::{
    exchange::Exchange,
    model::{Model, Route},
    refusal::Reason,
    response::{Response, ResponseBody},
};

pub use crate::model::{ClientCertificateForward, ClientCertificateRule};

/// The fields in which services are told of the client's certificate (RFC 9440). Only we set them.
pub const HEADERS: [&str; 2] = ["client-cert", "client-cert-chain"];

/// Which routes may serve a request, by what its connection has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Servable {
    /// All.
    Everywhere,
    /// Those that are bound to the listener, which has no TLS: every other listener would require a client certificate for
    /// such a host.
    WhereBound,
}

impl Servable {
    /// Whether this route may serve it.
    pub(crate) fn by(self, route: &Route) -> Result<(), Reason> {
        match self {
            Self::WhereBound if !route.is_bound => Err(Reason::ClientCertificateUnasked),
            Self::Everywhere | Self::WhereBound => Ok(()),
        }
    }
}

/// Whether the connection has shown what the host of the request requires `at` this time, whatever listener it came by.
pub(crate) fn meets_host(model: &Model, exchange: &Exchange, at: Wall) -> Result<Servable, Reason> {
    let secure = exchange.connection.as_ref().is_some_and(|connection| connection.tls.is_some());
    meets_host_over(model, exchange, secure, at)
}

/// The same of a connection that is said to be `secure`, one of TLS.
pub(crate) fn meets_host_over(
    model: &Model,
    exchange: &Exchange,
    secure: bool,
    at: Wall,
) -> Result<Servable, Reason> {
    let (Some(requirements), Some(connection)) = (&model.requirements, &exchange.connection) else {
        return Ok(Servable::Everywhere);
    };
    let arrival = Arrival { listener: &connection.listener.name, secure, certificate: shown(exchange) };
    let host = exchange.authority.as_ref().map_or("", cardea_http::Authority::host);
    match requirements.check(host, &arrival, at) {
        Ok(()) => Ok(Servable::Everywhere),
        Err(RequirementUnmet::CertificateUnaskedByDefault) => Ok(Servable::WhereBound),
        Err(RequirementUnmet::OtherTrustDomain) => Err(Reason::MisdirectedRequest),
        Err(RequirementUnmet::CertificateUnasked) => Err(Reason::ClientCertificateUnasked),
        Err(RequirementUnmet::CertificateInvalid) => Err(Reason::ClientCertificateInvalid),
    }
}

/// Whether the client may enter by its certificate `at` this time; a response where it has to go elsewhere for that.
pub(crate) fn admit(
    rule: &ClientCertificateRule,
    exchange: &Exchange,
    at: Wall,
) -> Result<Option<Response>, Reason> {
    if let Some(certificate) = shown(exchange) {
        let checked = rule.requirement.check(certificate, at);
        return match checked {
            Ok(()) => Ok(None),
            Err(ClientMismatch::NotVouchedFor) => Err(Reason::ClientCertificateInvalid),
            Err(ClientMismatch::NotListed) => Err(Reason::ClientCertificateNotListed),
        };
    }
    if !rule.required {
        return Ok(None);
    }
    let missing = || Reason::ClientCertificateMissing(rule.step_up.clone());
    match &rule.step_up {
        Some(host) if may_step_up(host, exchange) => step_up(host, exchange).map(Some).ok_or_else(missing),
        _ => Err(missing()),
    }
}

/// Sets what the service is told; the client's own fields of these names are gone.
pub(crate) fn tell_service(rule: &ClientCertificateRule, exchange: &mut Exchange) {
    if rule.forward == ClientCertificateForward::Nothing || !exchange.certificate_holds {
        return;
    }
    let Some(connection) = exchange.connection.clone() else { return };
    let Some(certificate) = connection.tls.as_ref().and_then(|tls| tls.client_certificate.as_deref()) else {
        return;
    };
    let fields = &mut exchange.head.fields;
    // Both are Base64 between colons, which every field can carry.
    let _ = fields.set_known(Known::ClientCert, certificate.header().as_bytes());
    if rule.forward == ClientCertificateForward::Chain && !certificate.chain_header().is_empty() {
        let _ = fields.set_known(Known::ClientCertChain, certificate.chain_header().as_bytes());
    }
}

/// To CGI programs, the address of the proxy that they send their own requests through ("httpoxy", CVE-2016-5385).
const PROXY: &str = "proxy";

/// The names that nobody but the gateway may set: those configured, those of RFC 9440, and `Proxy`, which nobody sets.
///
/// # Errors
/// If one is no token.
pub fn own_headers<'n>(
    configured: impl IntoIterator<Item = &'n str>,
) -> Result<HeaderNameSet, cardea_http::FieldError> {
    HeaderNameSet::new(configured.into_iter().chain(HEADERS).chain([PROXY]))
}

/// The certificate of the connection, whether it holds or not.
pub(crate) fn shown(exchange: &Exchange) -> Option<&ClientCertificate> {
    exchange.connection.as_ref()?.tls.as_ref()?.client_certificate.as_deref()
}

/// Requests that are safe to send again, from anywhere but where the client was asked already.
fn may_step_up(host: &str, exchange: &Exchange) -> bool {
    let is_there = exchange.connection.as_ref().is_some_and(|connection| connection.tls.is_some())
        && exchange.authority.as_ref().is_some_and(|authority| authority.as_str() == host);
    !is_there && matches!(exchange.head.method, Method::Get | Method::Head) && exchange.path.starts_with(b"/")
}

/// 307, which keeps the method (RFC 9110 §15.4.8): the same request at the configured host. Nothing of `Location` is the
/// client's but the path that was decided on, and the query.
fn step_up(host: &str, exchange: &Exchange) -> Option<Response> {
    let mut location = format!("https://{host}").into_bytes();
    location.extend_from_slice(&exchange.path);
    exchange.push_query(&mut location);
    let mut head = ResponseHead::new(307);
    head.fields.set_known(Known::Location, &location).ok()?;
    // The next one may show a certificate.
    head.fields.set_known(Known::CacheControl, b"no-store").ok()?;
    Some(Response::new(head, ResponseBody::Empty))
}

//! The built-in destinations: the authorization server's endpoints, and health.

use std::sync::Arc;

use cardea_gateway::{
    Reason,
    builtin::{BuiltIn, BuiltInFuture, BuiltInRequest, BuiltInResponse, ErrorFormat, Offence},
};
use cardea_http::{Known, Method, ResponseHead};
use cardea_issuer::{AuthorizationServer, Reply, RequestContext, TokenRequest};
use cardea_tls::ManagedCertificate;

use crate::{acme::Acme, config};

/// The largest token request, in bytes: many times the size of two assertions and a list of scopes.
const FORM_BYTES_MAX: u64 = 64 * 1024;

const READ: &[Method] = &[Method::Get, Method::Head];

/// The objects that this process has opened; none in checks and explanations.
#[derive(Default)]
pub(crate) struct Provided {
    pub(crate) issuer: Option<Arc<AuthorizationServer>>,
    /// The source of ACME certificates.
    pub(crate) acme: Option<Arc<Acme>>,
}

impl config::Provider for Provided {
    fn builtin(&self, which: config::BuiltIn) -> Arc<dyn BuiltIn> {
        let issuer = Issuer(self.issuer.clone());
        match which {
            config::BuiltIn::Token => Arc::new(Token(issuer)),
            config::BuiltIn::Authorize => Arc::new(Authorize(issuer)),
            config::BuiltIn::KeySet => Arc::new(Document(issuer, DocumentKind::KeySet)),
            config::BuiltIn::OauthMetadata => Arc::new(Document(issuer, DocumentKind::OauthMetadata)),
            config::BuiltIn::OpenidConfiguration => {
                Arc::new(Document(issuer, DocumentKind::OpenidConfiguration))
            }
            config::BuiltIn::Health => Arc::new(Health),
        }
    }

    fn certificate(&self, hosts: &[String]) -> Option<Arc<ManagedCertificate>> {
        self.acme.as_ref().map(|acme| acme.place(hosts))
    }
}

/// The authorization server; `None` in checks and explanations, which answer no requests.
#[derive(Debug)]
struct Issuer(Option<Arc<AuthorizationServer>>);

impl Issuer {
    fn server(&self) -> Result<&AuthorizationServer, Reason> {
        self.0.as_deref().ok_or(Reason::RouteNotFound)
    }
}

/// The token endpoint (RFC 6749 §3.2).
#[derive(Debug)]
struct Token(Issuer);

impl BuiltIn for Token {
    fn name(&self) -> &'static str {
        "token"
    }

    fn methods(&self) -> Option<&'static [Method]> {
        Some(&[Method::Post])
    }

    fn body_bytes_max(&self) -> Option<u64> {
        Some(FORM_BYTES_MAX)
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn error_format(&self) -> ErrorFormat {
        ErrorFormat::Oauth
    }

    fn answer<'a>(&'a self, request: BuiltInRequest<'a>) -> BuiltInFuture<'a> {
        Box::pin(async move {
            let fields = &request.head.fields;
            let authorization: Vec<&[u8]> = fields.get_all(Known::Authorization).collect();
            let token_request = TokenRequest {
                authorization: &authorization,
                content_type: fields.get(Known::ContentType),
                query_present: request.query.is_some(),
                body: request.body,
            };
            let source = RequestContext { address: request.source, deadline: request.deadline };
            let now = request.clock.precise();
            response_of(self.0.server()?.token_from(token_request, source, now).await)
        })
    }
}

/// The authorization endpoint, which refuses every request.
#[derive(Debug)]
struct Authorize(Issuer);

impl BuiltIn for Authorize {
    fn name(&self) -> &'static str {
        "authorize"
    }

    fn methods(&self) -> Option<&'static [Method]> {
        None
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn answer<'a>(&'a self, _: BuiltInRequest<'a>) -> BuiltInFuture<'a> {
        Box::pin(async move { response_of(self.0.server()?.authorize_refusal()) })
    }
}

/// A document about the authorization server.
#[derive(Debug)]
struct Document(Issuer, DocumentKind);

#[derive(Debug, Clone, Copy)]
enum DocumentKind {
    /// RFC 7517 §5.
    KeySet,
    /// RFC 8414.
    OauthMetadata,
    /// OpenID Connect Discovery.
    OpenidConfiguration,
}

impl BuiltIn for Document {
    fn name(&self) -> &'static str {
        match self.1 {
            DocumentKind::KeySet => "jwks",
            DocumentKind::OauthMetadata => "oauth_metadata",
            DocumentKind::OpenidConfiguration => "openid_configuration",
        }
    }

    fn methods(&self) -> Option<&'static [Method]> {
        Some(READ)
    }

    fn status(&self) -> Option<u16> {
        Some(200)
    }

    fn answer<'a>(&'a self, _: BuiltInRequest<'a>) -> BuiltInFuture<'a> {
        Box::pin(async move {
            let server = self.0.server()?;
            let (content_type, text) = match self.1 {
                DocumentKind::KeySet => ("application/jwk-set+json", server.key_set()),
                DocumentKind::OauthMetadata => ("application/json", server.oauth_metadata()),
                DocumentKind::OpenidConfiguration => ("application/json", server.openid_configuration()),
            };
            let cache = format!("public, max-age={}", server.key_set_max_age().as_secs());
            document(200, content_type, text.as_bytes(), &cache)
        })
    }
}

/// Answers 200 while the process runs, 503 while it drains.
#[derive(Debug)]
struct Health;

impl BuiltIn for Health {
    fn name(&self) -> &'static str {
        "health"
    }

    fn methods(&self) -> Option<&'static [Method]> {
        Some(READ)
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn answer<'a>(&'a self, request: BuiltInRequest<'a>) -> BuiltInFuture<'a> {
        let (status, text): (_, &[u8]) =
            if request.is_draining { (503, b"draining\n") } else { (200, b"ok\n") };
        Box::pin(async move { document(status, "text/plain", text, "no-store") })
    }
}

fn response_of(reply: Reply) -> Result<BuiltInResponse, Reason> {
    let mut head = ResponseHead::new(reply.status);
    for (name, value) in &reply.headers {
        head.fields.append(name.as_bytes(), value.as_bytes()).map_err(|_| Reason::BuiltInFailed)?;
    }
    let offence = reply.credentials_failed.then_some(Offence::WrongCredentials);
    Ok(BuiltInResponse { head, body: reply.body.into_bytes().into(), reason: reply.reason, offence })
}

fn document(status: u16, content_type: &str, body: &[u8], cache: &str) -> Result<BuiltInResponse, Reason> {
    let mut head = ResponseHead::new(status);
    for (known, value) in [(Known::ContentType, content_type), (Known::CacheControl, cache)] {
        head.fields.set_known(known, value.as_bytes()).map_err(|_| Reason::BuiltInFailed)?;
    }
    Ok(BuiltInResponse { head, body: body.into(), reason: None, offence: None })
}

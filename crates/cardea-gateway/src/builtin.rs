//! Endpoints of the gateway itself: destinations like a service, behind the same guards.

use std::{future::poll_fn, sync::Arc, task::Poll};

use cardea_http::{Known, Method, ResponseHead};
use cardea_issuer::{Reply, Source, TokenRequest};

use crate::{
    downstream::{BodyError, Downstream},
    exchange::Exchange,
    forward::request_deadline,
    gateway::Gateway,
    model::{BuiltIn, Model, Route},
    pipeline::Outcome,
    refusal::Reason,
    response::{Response, ResponseBody},
    timer::Timer,
};

/// The largest token request, in bytes: two assertions and a list of scopes fit many times.
const FORM_BYTES_MAX: u64 = 64 * 1024;

/// Answers a request for `which`.
pub(crate) async fn answer(
    gateway: &Gateway,
    model: &Model,
    route: &Route,
    which: BuiltIn,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<Outcome, Reason> {
    check_method(which, exchange)?;
    if which == BuiltIn::Health {
        return document(200, "text/plain", "ok\n".to_owned(), "no-store");
    }
    let Some(issuer) = &model.issuer else { return Err(Reason::RouteNotFound) };
    match which {
        BuiltIn::Token => {
            client.set_body_limit(FORM_BYTES_MAX.min(route.body_bytes_max));
            let body = read_body(route, client, timer).await?;
            let fields = &exchange.head.fields;
            let authorization: Vec<&[u8]> = fields.get_all(Known::Authorization).collect();
            let request = TokenRequest {
                authorization: &authorization,
                content_type: fields.get(Known::ContentType),
                query_present: exchange.query.is_some(),
                body: &body,
            };
            let source = Source {
                address: exchange.source,
                deadline: route.timeouts.request.map(|_| request_deadline(route, exchange)),
            };
            let reply = issuer.token_from(request, source, gateway.clock.precise()).await;
            exchange.response.reason = reply.reason;
            respond(reply)
        }
        BuiltIn::Authorize => respond(issuer.authorize_refusal()),
        BuiltIn::KeySet | BuiltIn::OauthMetadata | BuiltIn::OpenidConfiguration => {
            let (kind, text) = match which {
                BuiltIn::KeySet => ("application/jwk-set+json", issuer.key_set()),
                BuiltIn::OauthMetadata => ("application/json", issuer.oauth_metadata()),
                _ => ("application/json", issuer.openid_configuration()),
            };
            let cache = format!("public, max-age={}", issuer.key_set_max_age().as_secs());
            document(200, kind, text.to_string(), &cache)
        }
        BuiltIn::Health => Err(Reason::RouteNotFound),
    }
}

/// Whether an endpoint takes the request's method.
pub(crate) fn check_method(which: BuiltIn, exchange: &Exchange) -> Result<(), Reason> {
    let methods: &[Method] = match which {
        BuiltIn::Token => &[Method::Post],
        BuiltIn::KeySet | BuiltIn::OauthMetadata | BuiltIn::OpenidConfiguration | BuiltIn::Health => {
            &[Method::Get, Method::Head]
        }
        // It refuses whatever comes.
        BuiltIn::Authorize => return Ok(()),
    };
    if methods.contains(&exchange.head.method) {
        return Ok(());
    }
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    Err(Reason::MethodNotAllowed(names.join(", ")))
}

/// The whole request body, which the limit keeps small.
async fn read_body(route: &Route, client: &mut dyn Downstream, timer: &mut Timer) -> Result<Vec<u8>, Reason> {
    let mut body = Vec::new();
    let deadline = timer.now().saturating_add(route.timeouts.request_body_idle);
    let read = poll_fn(|cx| {
        loop {
            match std::task::ready!(client.poll_data(cx)) {
                Ok(true) => {
                    let count = client.chunk().len();
                    body.extend_from_slice(client.chunk());
                    client.consume(count);
                }
                Ok(false) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    });
    match timer.until(deadline, read).await {
        Ok(Ok(())) => Ok(body),
        Ok(Err(BodyError::Aborted)) => Err(Reason::ClientAborted),
        Ok(Err(BodyError::Malformed(code))) => Err(Reason::Malformed { code, status: 400 }),
        Ok(Err(BodyError::TooLarge)) => Err(Reason::BodyTooLarge),
        Err(_) => Err(Reason::RequestBodyTimeout),
    }
}

fn respond(reply: Reply) -> Result<Outcome, Reason> {
    let mut head = ResponseHead::new(reply.status);
    for (name, value) in &reply.headers {
        head.fields.append(name.as_bytes(), value.as_bytes()).map_err(|_| Reason::IssuerFailed)?;
    }
    Ok(Outcome::Respond(Response::new(head, ResponseBody::text(reply.body))))
}

fn document(status: u16, kind: &str, text: String, cache: &str) -> Result<Outcome, Reason> {
    let mut head = ResponseHead::new(status);
    for (known, value) in [(Known::ContentType, kind), (Known::CacheControl, cache)] {
        head.fields.set_known(known, value.as_bytes()).map_err(|_| Reason::IssuerFailed)?;
    }
    let bytes: Arc<[u8]> = text.into_bytes().into();
    Ok(Outcome::Respond(Response::new(head, ResponseBody::bytes(bytes))))
}

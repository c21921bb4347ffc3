//! Whose offence it is: what the request has proven of its caller, or else where it comes from.

use std::sync::Arc;

use cardea_guard::{AddressPrefix, Identity, Origin};
use cardea_http::Known;
use cardea_identity::{Caller, bearer_credentials};

use crate::{exchange::Exchange, model::Model};

/// A longer name of an issuer and a subject is not kept, in bytes: what is kept for each request that is held is bounded.
const IDENTITY_BYTES_MAX: usize = 512;

/// The issuer of an identity that a client certificate proves.
const OF_CERTIFICATE: &str = "certificate";

/// Where a request comes from. Nothing is verified for it, and nothing that was not verified counts. An address that trusted
/// proxies have is not known to be a client's.
pub(super) fn of(model: &Model, exchange: &mut Exchange) -> Origin {
    let is_proxy = |address| model.trusted_proxies.iter().any(|prefix| prefix.contains(address));
    let client = exchange.source.filter(|address| !is_proxy(*address));
    let prefix = client.map(AddressPrefix::of);
    match proven(model, exchange) {
        Proven::Nothing => Origin { prefix, identity: None },
        Proven::Identity(identity) => Origin { prefix, identity: Some(identity) },
        Proven::Nameless => Origin::default(),
    }
}

/// What a request has proven of its caller.
enum Proven {
    Nothing,
    Identity(Arc<Identity>),
    /// An identity that has no name of a usual length. Its address is not blamed for it.
    Nameless,
}

fn proven(model: &Model, exchange: &mut Exchange) -> Proven {
    if let Some(verdict) = &exchange.verdict {
        return named(&verdict.caller);
    }
    // It was refused before its token was looked at. A caller that was verified before is known by it.
    let credentials = bearer_credentials(exchange.head.fields.get_all(Known::Authorization));
    if let Ok(Some(credentials)) = credentials
        && let Some(verdict) = model.authenticator.known(credentials, &mut exchange.token, exchange.started)
    {
        let proven = named(&verdict.caller);
        exchange.token.put_back(verdict);
        return proven;
    }
    match exchange.client_certificate() {
        Some(certificate) => identity(OF_CERTIFICATE, certificate.fingerprint_hex()),
        None => Proven::Nothing,
    }
}

fn named(caller: &Caller) -> Proven {
    match caller.subject.as_deref().or(caller.client_id.as_deref()) {
        Some(subject) => identity(&caller.issuer, subject),
        None => Proven::Nameless,
    }
}

fn identity(issuer: &str, subject: &str) -> Proven {
    if issuer.len() + subject.len() > IDENTITY_BYTES_MAX {
        return Proven::Nameless;
    }
    Proven::Identity(Arc::new(Identity { issuer: issuer.into(), subject: subject.into() }))
}

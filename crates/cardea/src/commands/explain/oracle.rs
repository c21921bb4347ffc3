//! A gateway that explains requests and forwards none.
//!
//! Given claims represent a token: they are signed with a key that exists only in this run, and that every issuer gets.
//! So a token with these claims passes the same checks as one from the network.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Context as _;
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use cardea_clock::{Clock, CoarseClock, ManualClock, PERIOD_DEFAULT, Wall};
use cardea_gateway::{
    explain::{Explanation, Question, explain},
    gateway::Gateway,
    model::ListenerModel,
    record::Registry,
};
use cardea_http::Scheme;
use cardea_identity::{Algorithm, IssuerConfig, KeySource, LocalKeys, Preset};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};
use zeroize::Zeroizing;

use super::{
    super::{Failure, token::built},
    url::Url,
};
use crate::{
    cli::{Exit, Output},
    config::{self, BindAddress, Config, Foundation},
    fetch::HttpFetch,
    server::Provided,
};

/// The lifetime of the tokens of this run, in seconds.
const LIFETIME_SECONDS: i64 = 300;

/// The keys that tokens are verified with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// Those of the issuers.
    Real,
    /// A key generated for this run.
    Generated,
}

/// The credentials of the caller.
#[derive(Debug)]
pub(super) enum TokenOf {
    /// A complete token.
    Itself(Zeroizing<String>),
    /// Claims, and the name of their issuer.
    Claims(Map<String, Value>, Option<String>),
}

/// A request to explain.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) url: String,
    /// The request target, instead of the path and the query of the URL.
    pub(super) request_target: Option<String>,
    /// Whether it is HTTP/1.0 rather than HTTP/1.1.
    pub(super) http10: bool,
    pub(super) source: Option<IpAddr>,
    pub(super) listener: Option<String>,
    /// The values of `Host`, instead of the host of the URL.
    pub(super) hosts: Option<Vec<String>>,
    /// The other headers.
    pub(super) headers: Vec<(String, String)>,
    pub(super) token: Option<TokenOf>,
    pub(super) attributes: Vec<String>,
}

/// The gateway of a configuration.
pub(super) struct Oracle {
    config: Config,
    /// Whether each listener terminates TLS.
    secure: Vec<bool>,
    /// The client certificate rules of routes, by their names.
    certificates: HashMap<String, &'static str>,
    gateway: Arc<Gateway>,
    runtime: Runtime,
    clock: Clock,
    pair: Option<EcdsaKeyPair>,
    _coarse: CoarseClock,
}

impl Oracle {
    /// Builds the gateway. No certificate is loaded: trust domains are not checked here, and the configuration says
    /// what hosts require of clients.
    pub(super) fn new(
        mut config: Config,
        keys: Keys,
        time: Option<&str>,
        output: &mut Output,
    ) -> Result<Self, Failure> {
        for listener in &mut config.listeners {
            listener.unloaded_tls = listener.tls.take().or(listener.unloaded_tls.take());
        }
        let secure = config.listeners.iter().map(|listener| listener.unloaded_tls.is_some()).collect();
        config.services.iter_mut().for_each(|service| service.tls = None);
        // There is no handshake here, so there is no certificate to check.
        let certificates = config.routes.iter_mut().filter_map(|route| {
            let rule = route.client_certificate.take()?;
            Some((route.name.clone(), if rule.required { "required" } else { "optional" }))
        });
        let certificates = certificates.collect();
        config.client_authorities.clear();
        let coarse = CoarseClock::start(PERIOD_DEFAULT).context("starting the clock")?;
        let clock = match time {
            Some(time) => ManualClock::new(Wall::from_unix_seconds(unix_seconds(time)?)).clock(),
            None => coarse.clock(),
        };
        let runtime = Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
        let (built, pair) = match keys {
            Keys::Real => (runtime.block_on(built(&config, &clock, output))?, None),
            Keys::Generated => {
                let (built, pair) = with_generated_keys(&mut config, &clock)?;
                (built, Some(pair))
            }
        };
        for chain in &built.unknown_hosts {
            output.error(&format!(
                "{}: its hosts are unknown, so the client certificate requirements of hosts are not checked; list its \
                 hosts in the configuration",
                chain.display()
            ));
        }
        let gateway = Gateway::new(Arc::clone(&built.model), clock.clone(), Arc::new(Registry::new()))
            .context("starting the gateway")?;
        Ok(Self { config, secure, certificates, gateway, runtime, clock, pair, _coarse: coarse })
    }

    /// Explains a request.
    pub(super) fn ask(&self, request: &Request) -> Result<Explanation, Failure> {
        let usage = |message: String| Failure::new(Exit::Usage, message);
        let url = Url::parse(&request.url).map_err(|error| usage(format!("{:?}: {error}", request.url)))?;
        let (listener, local) = self.listener(request.listener.as_deref(), url.scheme)?;
        let hosts = match &request.hosts {
            Some(hosts) => hosts.iter().map(String::as_str).collect(),
            None => vec![url.authority],
        };
        let hosts = hosts.into_iter().map(|host| ("host", host));
        let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields = hosts.chain(headers).map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let mut fields: Vec<(String, Vec<u8>)> = fields.collect();
        if let Some(token) = &request.token {
            fields.push((
                "authorization".to_owned(),
                format!("Bearer {}", self.token(token)?.as_str()).into_bytes(),
            ));
        }
        let question = Question {
            method: request.method.clone().into_bytes(),
            scheme: url.scheme,
            target: request.request_target.clone().unwrap_or_else(|| url.target()).into_bytes(),
            http10: request.http10,
            fields,
            client: Some(SocketAddr::new(request.source.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), 50_000)),
            local,
            listener,
            attributes: request.attributes.clone(),
        };
        let mut explanation = self.runtime.block_on(explain(&self.gateway, question)).map_err(usage)?;
        let certificate = explanation.route.as_ref().and_then(|route| self.certificates.get(route));
        if let Some(need) = certificate {
            let requirement = explanation.requirement.take().unwrap_or_else(|| "no token".to_owned());
            explanation.requirement =
                Some(format!("{requirement}; a client certificate ({need}), which is not checked here"));
        }
        Ok(explanation)
    }

    fn listener(
        &self,
        name: Option<&str>,
        scheme: Scheme,
    ) -> Result<(Arc<ListenerModel>, Option<SocketAddr>), Failure> {
        let all = || self.config.listeners.iter().zip(&self.secure);
        let found = match name {
            Some(name) => all().find(|(listener, _)| listener.name == name),
            // A listener that serves the request, rather than one that redirects it.
            None => all().min_by_key(|(listener, secure)| {
                (**secure != (scheme == Scheme::Https), listener.redirect_to_https.is_some())
            }),
        };
        let Some((listener, _)) = found else {
            let names: Vec<&str> =
                self.config.listeners.iter().map(|listener| listener.name.as_str()).collect();
            let name = name.unwrap_or_default();
            let message = format!("there is no listener {name:?}; the listeners are: {}", names.join(", "));
            return Err(Failure::new(Exit::Usage, message));
        };
        let local = match &listener.address {
            BindAddress::Tcp(address) => Some(*address),
            BindAddress::Unix(_) => None,
        };
        let model = self.gateway.model();
        let model = model.listeners.get(&listener.name).context("a listener without a model")?;
        Ok((Arc::clone(model), local))
    }

    fn token(&self, token: &TokenOf) -> Result<Zeroizing<String>, Failure> {
        match (token, &self.pair) {
            (TokenOf::Itself(token), _) => Ok(token.clone()),
            (TokenOf::Claims(claims, issuer), Some(pair)) => {
                let issuer = self.issuer(claims, issuer.as_deref())?;
                Ok(sign(pair, issuer, claims, self.clock.wall().unix_seconds())?)
            }
            (TokenOf::Claims(..), None) => {
                Err(Failure::new(Exit::Usage, "claims can't be combined with tokens of real issuers"))
            }
        }
    }

    /// The issuer of the claims: the named one, or the one of their `iss`, or the only one.
    fn issuer(&self, claims: &Map<String, Value>, name: Option<&str>) -> Result<&IssuerConfig, Failure> {
        let issuers = &self.config.issuers;
        let iss = claims.get("iss").and_then(Value::as_str);
        let found = match (name, iss, issuers.as_slice()) {
            (Some(name), ..) => issuers.iter().find(|issuer| issuer.name == name),
            (None, Some(iss), _) => issuers.iter().find(|issuer| issuer.issuer == iss),
            (None, None, [only]) => Some(only),
            (None, None, _) => None,
        };
        found.map(|issuer| &issuer.value).ok_or_else(|| {
            let names: Vec<&str> = issuers.iter().map(|issuer| issuer.name.as_str()).collect();
            let message =
                format!("name the issuer of the claims with --issuer; the issuers are: {}", names.join(", "));
            Failure::new(Exit::Usage, message)
        })
    }
}

/// The configuration with one generated key for all issuers.
fn with_generated_keys(config: &mut Config, clock: &Clock) -> Result<(config::Built, EcdsaKeyPair), Failure> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
        .map_err(|_| Failure::new(Exit::Failure, "no key can be generated"))?;
    let (x, y) =
        pair.public_key().as_ref().get(1..).unwrap_or_default().split_at_checked(32).unwrap_or_default();
    let keys = json!({ "keys": [{
        "kty": "EC", "crv": "P-256", "kid": "generated", "use": "sig",
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
    }] });
    let local_keys = LocalKeys::new();
    local_keys.publish(keys.to_string().as_bytes()).context("the key of this run")?;
    for issuer in &mut config.issuers {
        issuer.keys = KeySource::Local(LocalKeys::new());
        issuer.algorithms = vec![Algorithm::Es256];
    }
    let fetch = Arc::new(HttpFetch::new());
    let foundation = Foundation {
        clock: clock.clone(),
        fetch,
        local_keys,
        provider: Arc::new(Provided::default()),
        names: Arc::default(),
        workers: 1,
        tolerates_certificates: true,
    };
    let built = config::build(config, &foundation, None).map_err(|problems| {
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::new(Exit::Usage, text.join("\n"))
    })?;
    Ok((built, pair))
}

/// A token with the claims and the mandatory ones of the issuer.
fn sign(
    pair: &EcdsaKeyPair,
    issuer: &IssuerConfig,
    claims: &Map<String, Value>,
    now: i64,
) -> Result<Zeroizing<String>, Failure> {
    let mut all = Map::new();
    all.insert("iss".to_owned(), issuer.issuer.as_str().into());
    let entra = match &issuer.preset {
        Some(Preset::EntraV1 { tenants }) => Some((tenants, "https://sts.windows.net/", "/", "1.0")),
        Some(Preset::EntraV2 { tenants }) => {
            Some((tenants, "https://login.microsoftonline.com/", "/v2.0", "2.0"))
        }
        _ => None,
    };
    if let Some((tenants, before, behind, version)) = entra {
        let tenant = claims.get("tid").and_then(Value::as_str).or(tenants.first().map(String::as_str));
        let tenant = tenant.unwrap_or_default();
        let iss = format!("{before}{tenant}{behind}");
        all.insert("iss".to_owned(), iss.into());
        all.insert("tid".to_owned(), tenant.into());
        all.insert("ver".to_owned(), version.into());
    }
    all.insert("aud".to_owned(), issuer.audiences.first().map_or("", String::as_str).into());
    all.insert("iat".to_owned(), now.into());
    all.insert("exp".to_owned(), (now + LIFETIME_SECONDS).into());
    all.extend(claims.clone());
    let typ = issuer.types.first().map_or("JWT", String::as_str);
    let header = json!({ "alg": "ES256", "typ": typ, "kid": "generated" });
    let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
    let input = format!("{}.{}", encode(header.to_string()), encode(Value::Object(all).to_string()));
    let signature = pair
        .sign(&SystemRandom::new(), input.as_bytes())
        .map_err(|_| Failure::new(Exit::Failure, "signing with the key of this run failed"))?;
    Ok(Zeroizing::new(format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

/// Parses an RFC 3339 time, or seconds since 1970.
fn unix_seconds(text: &str) -> Result<i64, Failure> {
    let nanos = || cardea_env::parse_time(text).map(|nanos| nanos.div_euclid(1_000_000_000));
    text.parse().ok().or_else(nanos).ok_or_else(|| {
        let message =
            format!("{text:?} is not a time; write \"2026-11-21T09:00:00Z\", or seconds since 1970");
        Failure::new(Exit::Usage, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("0", 0),
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2033-05-18T03:33:20Z", 2_000_000_000),
            ("2033-05-18T05:33:20+02:00", 2_000_000_000),
        ] {
            assert_eq!(unix_seconds(text).ok(), Some(expected), "{text}");
        }
        for text in ["", "yesterday", "2026-11-21", "2026-11-21T09:00:00"] {
            assert!(unix_seconds(text).is_err(), "{text}");
        }
    }
}

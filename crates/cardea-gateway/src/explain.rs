//! What the gateway would do with a request, told step by step and without sending any.
//!
//! It is decided on by the function that decides on every request, so that what is told is what would happen.

use std::{net::SocketAddr, sync::Arc};

use cardea_clock::Wall;
use cardea_env::{Effect, Escape, Policy, Template};
use cardea_guard::{AdmissionSettings, Offender, Priority};
use cardea_http::{
    Authority, BodyLength, Known, Scheme,
    h1::{RequestDecoder, request_framing},
};
use cardea_identity::AccessRequirement;
use cardea_upstream::RegionStats;

use crate::{
    admission, builtin,
    client_certificate::{self, ClientCertificateRule, Servable},
    conditions,
    decision::{self, Circumstances, Decision},
    exchange::{ConnectionFacts, Exchange, Origin, PolicyScope},
    forward,
    gateway::{Gateway, ModelRef},
    model::{Destination, ListenerModel, Model, Route, Share, ShareIndex, Split},
    pipeline,
    record::RequestId,
    refusal::Reason,
    response::Response,
    tarpit::{self, Offence},
    throttling::{self, Forecast},
};

/// A request that is only asked about.
#[derive(Debug)]
pub struct Question {
    /// The method, as it is sent.
    pub method: Vec<u8>,
    /// Whether it came over TLS.
    pub scheme: Scheme,
    /// The target, as it is sent.
    pub target: Vec<u8>,
    /// Whether it is sent as HTTP/1.0; else it is HTTP/1.1.
    pub http10: bool,
    /// Fields in their order, `Host` and credentials included.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Who connected.
    pub client: Option<SocketAddr>,
    /// Where they connected to.
    pub local: Option<SocketAddr>,
    /// By which listener.
    pub listener: Arc<ListenerModel>,
    /// Attributes whose values are asked for, beside those that the configuration adds.
    pub attributes: Vec<String>,
}

/// What would happen.
#[derive(Debug, Default)]
pub struct Explanation {
    /// The normalised host, with a port where that isn't the default.
    pub host: Option<String>,
    /// The normalised path.
    pub path: String,
    /// The address that counts as the source.
    pub source: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// What the route demands of a token, for people; none where it is public.
    pub requirement: Option<String>,
    /// Who is calling, where the route asks and the token holds.
    pub caller: Option<CallerExplanation>,
    /// The rules of policies, in the order in which they are asked.
    pub policies: Vec<RuleExplanation>,
    /// How the route distributes its requests, where it leads to several services.
    pub split: Option<SplitExplanation>,
    /// The service that would get a copy of the request, or of a part of such requests.
    pub mirror: Option<MirrorExplanation>,
    /// The throttles that would count the request, in the order in which they are asked.
    pub throttles: Vec<ThrottleExplanation>,
    /// The limits on requests in flight that the request would have to pass, where there are any.
    pub admission: Option<AdmissionExplanation>,
    /// What the tarpit makes of the request, where there is one.
    pub tarpit: Option<TarpitExplanation>,
    /// Attributes with their values, as far as they have one.
    pub attributes: Vec<(String, Option<String>)>,
    /// Why the gateway would refuse.
    pub refusal: Option<Refusal>,
    /// Where the request would go; none where it is refused.
    pub destination: Option<DestinationExplanation>,
}

/// Who is calling.
#[derive(Debug)]
pub struct CallerExplanation {
    /// The issuer's name in the configuration.
    pub issuer: String,
    /// The subject.
    pub subject: Option<String>,
    /// The client.
    pub client_id: Option<String>,
    /// The scopes.
    pub scopes: Vec<String>,
    /// The roles.
    pub roles: Vec<String>,
}

/// A rule of a policy.
#[derive(Debug)]
pub struct RuleExplanation {
    /// Whose policy.
    pub scope: PolicyScope,
    /// Whether it allows; else it denies.
    pub allows: bool,
    /// Its expression.
    pub expression: String,
    /// The reason that it gives.
    pub reason: Option<String>,
    /// Whether it holds, or why that can't be told.
    pub holds: Result<bool, String>,
}

/// The service that gets copies of a route's requests.
#[derive(Debug)]
pub struct MirrorExplanation {
    /// Its name.
    pub service: String,
    /// One request in so many is copied.
    pub sample_one_in: u32,
}

/// How a route distributes its requests over services.
#[derive(Debug)]
pub struct SplitExplanation {
    /// Whether the request has a key, by which its service is chosen. Else any may get it, and the one that gets the most is
    /// explained.
    pub has_key: bool,
    /// The services, each with its part of all requests, of 1.
    pub shares: Vec<(String, f64)>,
}

impl SplitExplanation {
    fn new(split: &Split, has_key: bool) -> Self {
        let total: f64 = split.shares().iter().map(|share| f64::from(share.weight)).sum();
        let part = |share: &Share| (share.service.name.clone(), f64::from(share.weight) / total);
        Self { has_key, shares: split.shares().iter().map(part).collect() }
    }
}

/// A throttle that would count a request.
#[derive(Debug)]
pub struct ThrottleExplanation {
    /// Its name.
    pub name: String,
    /// Whether it refuses nothing.
    pub dry_run: bool,
    /// The units that the request would use.
    pub cost: u64,
    /// Whether it would be admitted now.
    pub fits: bool,
    /// Of a throttle with a rate.
    pub rate: Option<RateExplanation>,
    /// Of a throttle that limits requests in flight: how many the key has, and may have.
    pub in_flight: Option<(u32, u32)>,
}

/// What a key may use of a throttle.
#[derive(Debug)]
pub struct RateExplanation {
    /// The units that the key would have left; those that it has where they do not fit.
    pub remaining: u64,
    /// The units that a key has at most.
    pub burst: u64,
}

/// How a request would be admitted.
#[derive(Debug)]
pub struct AdmissionExplanation {
    /// How important it is.
    pub priority: Priority,
    /// The limits, the narrowest first.
    pub limits: Vec<LimitExplanation>,
}

/// A limit on requests in flight.
#[derive(Debug)]
pub struct LimitExplanation {
    /// Its name in metrics.
    pub name: String,
    /// What it is configured to.
    pub settings: AdmissionSettings,
}

/// What the tarpit would make of a request.
#[derive(Debug)]
pub struct TarpitExplanation {
    /// What is done with refusals of repeat offenders.
    pub action: &'static str,
    /// Whose offence a refusal would be; none where it would not count.
    pub offender: Option<Offender>,
    /// Why the request is an offence, if it is one.
    pub offence: Option<&'static str>,
}

/// A refusal.
#[derive(Debug)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// The reason code, as the answer and the access log have it.
    pub code: &'static str,
    /// The reason of the rule that denies, as the access log has it.
    pub reason: Option<String>,
}

/// Where a request would go.
#[derive(Debug)]
pub enum DestinationExplanation {
    /// To a service.
    Service {
        /// Its name.
        name: String,
        /// The endpoints among which one would be chosen.
        endpoints: Vec<String>,
        /// Their regions, by preference.
        regions: Vec<RegionStats>,
        /// The target that would be sent.
        target: String,
        /// The fields that would be sent.
        fields: Vec<(String, String)>,
    },
    /// The gateway answers.
    Answer {
        /// `redirect`, `respond` or `builtin`.
        kind: &'static str,
        /// Which of its own endpoints answers, where one does.
        builtin: Option<&'static str>,
        /// The status, where it is known before it is done.
        status: Option<u16>,
        /// `Location`, of a redirect.
        location: Option<String>,
    },
}

/// Tells what the gateway would do.
///
/// # Errors
/// An attribute that is asked for does not exist, or a field can't be one.
pub async fn explain(gateway: &Gateway, question: Question) -> Result<Explanation, String> {
    let head = written(&question)?;
    let model = gateway.model_ref();
    let mut exchange = Exchange::take();
    exchange.id = RequestId::generate(gateway.clock.wall());
    exchange.started = gateway.clock.precise();
    exchange.model = Some(model.clone());
    exchange.scheme = question.scheme;
    exchange.connection = Some(Arc::new(ConnectionFacts {
        listener: question.listener,
        peer: question.client,
        local: question.local,
        origin: Origin::Peer,
        tls: None,
        token: std::sync::Mutex::default(),
        activity: Arc::default(),
    }));
    let mut explanation = Explanation::default();
    let mut shown: Vec<String> = Vec::new();
    if let Some(names) = &model.environment.names {
        shown.extend(names.custom().map(|(name, _)| name.to_owned()));
    }
    shown.extend(question.attributes);
    let walked = walk(gateway, &model, &head, &mut exchange, &mut explanation).await;
    // Before the head becomes what would be sent.
    for name in shown {
        let value = attribute(&model, &exchange, &name)?;
        explanation.attributes.push((name, value));
    }
    let arrived = match walked {
        Ok(Walked::To(route)) => {
            explanation.admission = admission(&model, route, &exchange);
            explanation.mirror = route.mirror.as_ref().map(|mirror| MirrorExplanation {
                service: mirror.service.name.clone(),
                sample_one_in: mirror.sample_one_in.get(),
            });
            arrive(&model, route, &mut exchange)
        }
        Ok(Walked::Answered(destination)) => Ok(destination),
        Err(reason) => Err(reason),
    };
    explanation.tarpit = tarpit(&model, &mut exchange, arrived.as_ref().err());
    match arrived {
        Ok(destination) => explanation.destination = Some(destination),
        Err(reason) => {
            explanation.refusal = Some(Refusal {
                status: reason.status(),
                code: reason.code(),
                reason: exchange.policy_rule().and_then(|rule| rule.reason.as_deref()).map(str::to_owned),
            });
        }
    }
    exchange.recycle();
    Ok(explanation)
}

fn admission(model: &Model, route: &Route, exchange: &Exchange) -> Option<AdmissionExplanation> {
    let limits = route.admission(exchange.share).limits.iter();
    let limits: Vec<_> = limits
        .map(|limit| LimitExplanation { name: limit.label.clone(), settings: limit.settings })
        .collect();
    let priority = admission::priority(model, route, exchange);
    (!limits.is_empty()).then_some(AdmissionExplanation { priority, limits })
}

fn tarpit(model: &Model, exchange: &mut Exchange, refused: Option<&Reason>) -> Option<TarpitExplanation> {
    let settings = model.tarpit.as_ref()?;
    let offence = refused.and_then(Offence::of).map(Offence::as_str);
    let offender = tarpit::offender_of(model, settings, exchange);
    Some(TarpitExplanation { action: settings.action.as_str(), offender, offence })
}

/// How far a request would come.
enum Walked<'m> {
    /// To the destination of this route.
    To(&'m Route),
    /// To an answer of the gateway's own.
    Answered(DestinationExplanation),
}

/// The way up to the destination.
async fn walk<'m>(
    gateway: &Gateway,
    model: &'m ModelRef,
    head: &[u8],
    exchange: &mut Exchange,
    explanation: &mut Explanation,
) -> Result<Walked<'m>, Reason> {
    let length = match decode(model, head, exchange) {
        Ok(length) => length,
        Err(reason) => {
            // As where it comes: what counts for nothing is not shown. It is refused already.
            let _ = decision::settle(model, exchange);
            return Err(reason);
        }
    };
    decision::normalise(model, exchange)?;
    pipeline::renew_length(length, exchange)?;
    explanation.host = exchange.authority.as_ref().map(|authority| authority.as_str().to_owned());
    explanation.path = lossy(&exchange.path);
    explanation.source = exchange.source.map(|source| source.to_string());
    if let Some(response) = pipeline::answer_without_route(exchange) {
        return Ok(Walked::Answered(answered(&response)));
    }
    match decision::decide(model, exchange, &mut Asked { gateway, length, explanation }).await? {
        Decision::Authorized(authorized) => Ok(Walked::To(authorized.route())),
        Decision::Elsewhere(response) => Ok(Walked::Answered(answered(&response))),
    }
}

/// The head as a client sends it.
///
/// # Errors
/// A part of it can't be asked about: it would be read as another part.
fn written(question: &Question) -> Result<Vec<u8>, String> {
    let Question { method, target, fields, .. } = question;
    let ends_line = |bytes: &[u8]| bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
    if ends_line(method) || ends_line(target) {
        return Err("a method or target must not contain the end of a line".to_owned());
    }
    let version: &[u8] = if question.http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    let mut head = [method, &b" "[..], target, version].concat();
    for (name, value) in fields {
        if ends_line(name.as_bytes()) || name.contains(':') || ends_line(value) {
            return Err(format!("{name:?} or its value is not valid in a field"));
        }
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Reads the head by the codec; how long its body is.
fn decode(model: &Model, head: &[u8], exchange: &mut Exchange) -> Result<BodyLength, Reason> {
    let decoded = RequestDecoder::new(model.limits.head).decode(head, &mut exchange.head);
    match decoded.map_err(Reason::from).inspect_err(|_| exchange.head.fields.clear())? {
        Some(_) => request_framing(&exchange.head).map(BodyLength::from).map_err(Reason::from),
        // Where it does not end, a client would be waited for.
        None => Err(Reason::RequestHeadTimeout),
    }
}

fn answered(response: &Response) -> DestinationExplanation {
    let location = response.head.fields.get(Known::Location).map(lossy);
    DestinationExplanation::Answer {
        kind: if location.is_some() { "redirect" } else { "respond" },
        builtin: None,
        status: Some(response.head.status),
        location,
    }
}

/// A request that is only asked about: notes what is decided on it.
struct Asked<'a> {
    gateway: &'a Gateway,
    length: BodyLength,
    explanation: &'a mut Explanation,
}

impl Circumstances for Asked<'_> {
    /// Where the handshake asks for a certificate, the client is taken to have shown one that holds: nobody has shown one or
    /// withheld it.
    fn meets_host(&mut self, model: &Model, exchange: &Exchange, at: Wall) -> Result<Servable, Reason> {
        let secure = exchange.scheme == Scheme::Https;
        let host = exchange.authority.as_ref().map_or("", Authority::host);
        let is_asked = model.requirements.as_ref().zip(exchange.connection.as_ref()).is_some_and(
            |(requirements, connection)| secure && requirements.asks(host, &connection.listener.name),
        );
        if is_asked {
            return Ok(Servable::Everywhere);
        }
        client_certificate::meets_host_over(model, exchange, secure, at)
    }

    async fn routed(&mut self, route: &Route, _: &mut Exchange) -> Result<(), Reason> {
        self.explanation.route = Some(route.name.clone());
        self.explanation.requirement = route.requirement.as_ref().map(describe);
        Ok(())
    }

    /// Nothing is charged.
    fn throttle(&mut self, model: &Model, places: &[usize], exchange: &mut Exchange) -> Result<(), Reason> {
        let throttles = &mut self.explanation.throttles;
        throttling::look(self.gateway, model, places, exchange, |forecast| {
            let Forecast { throttle, cost, standing, in_flight, fits } = forecast;
            let rate = throttle.rate.as_ref().zip(standing).map(|(rate, standing)| RateExplanation {
                remaining: standing.remaining,
                burst: rate.limit.burst(),
            });
            throttles.push(ThrottleExplanation {
                name: throttle.name.clone(),
                dry_run: throttle.dry_run,
                cost,
                fits,
                rate,
                in_flight: in_flight.zip(throttle.in_flight.as_ref().map(|limit| limit.max)),
            });
        })
    }

    /// As for [`Self::meets_host`].
    fn admit(
        &mut self,
        _: &ClientCertificateRule,
        _: &Exchange,
        _: Wall,
    ) -> Result<Option<Response>, Reason> {
        Ok(None)
    }

    fn check_body(&mut self, route: &Route, exchange: &Exchange) -> Result<(), Reason> {
        pipeline::check_body(self.length, route, exchange)
    }

    async fn identify(
        &mut self,
        model: &ModelRef,
        route: &Route,
        exchange: &mut Exchange,
    ) -> Result<(), Reason> {
        let identified = decision::identify(self.gateway, model, route, exchange).await;
        self.explanation.caller = exchange.verdict.as_ref().map(|verdict| {
            let caller = &verdict.caller;
            CallerExplanation {
                issuer: caller.issuer_name.to_string(),
                subject: caller.subject.clone(),
                client_id: caller.client_id.clone(),
                scopes: caller.scopes.clone(),
                roles: caller.roles.clone(),
            }
        });
        identified
    }

    fn check_policies(
        &mut self,
        model: &Model,
        route: &Route,
        exchange: &mut Exchange,
    ) -> Result<(), Reason> {
        let policies = [
            (PolicyScope::Gateway, model.environment.policy.as_ref()),
            (PolicyScope::Route, route.rules.policy.as_ref()),
        ];
        for (scope, policy) in policies {
            let told = policy.into_iter().flat_map(|policy| rules(scope, policy, exchange));
            self.explanation.policies.extend(told);
        }
        conditions::check(model, route, exchange)
    }

    /// Without a key, the next request may go elsewhere: the answer is the same each time nevertheless.
    fn choose_share(&mut self, split: &Split, exchange: &Exchange) -> ShareIndex {
        let by_key = split.by_key(exchange);
        self.explanation.split = Some(SplitExplanation::new(split, by_key.is_some()));
        by_key.unwrap_or_else(|| split.heaviest())
    }
}

/// What a route demands of a token, for people.
fn describe(requirement: &AccessRequirement) -> String {
    let all = requirement.alternatives.iter().map(|wanted| {
        let mut text = format!("issuer {}, audience {}", wanted.issuer, wanted.audiences.join(" or "));
        if !wanted.scopes.is_empty() {
            text.push_str(&format!(", scopes {}", wanted.scopes.join(" and ")));
        }
        if !wanted.roles.is_empty() {
            text.push_str(&format!(", role {}", wanted.roles.join(" or ")));
        }
        text
    });
    all.collect::<Vec<_>>().join("; or ")
}

fn rules(scope: PolicyScope, policy: &Policy<Exchange>, exchange: &Exchange) -> Vec<RuleExplanation> {
    let rules = policy.explain(exchange).map(|(rule, holds)| RuleExplanation {
        scope,
        allows: rule.effect == Effect::Allow,
        expression: rule.condition.source().to_owned(),
        reason: rule.reason.as_deref().map(str::to_owned),
        holds: holds.map_err(|fault| rule.condition.describe(fault)),
    });
    rules.collect()
}

fn attribute(model: &ModelRef, exchange: &Exchange, name: &str) -> Result<Option<String>, String> {
    let text = format!("{{{name}}}");
    let template = match &model.environment.names {
        Some(names) => Template::compile(&text, &**names),
        None => Template::compile(&text, &crate::attributes::TABLE),
    };
    let template = template.map_err(|error| error.to_string())?;
    let mut value = Vec::new();
    let rendered = template.render(exchange, Escape::Utf8, &mut value);
    Ok((!rendered.absent).then(|| lossy(&value)))
}

fn arrive(
    model: &ModelRef,
    route: &Route,
    exchange: &mut Exchange,
) -> Result<DestinationExplanation, Reason> {
    Ok(match &route.destination {
        Destination::Service(_) | Destination::Split(_) => {
            let service = exchange.service().map(Arc::clone).ok_or(Reason::NoEndpoint)?;
            let target = lossy(&forward::preview(model, route, exchange)?);
            let field = |field: cardea_http::Field<'_>| {
                (lossy(field.name).to_ascii_lowercase(), lossy(field.value).trim().to_owned())
            };
            let fields = exchange.head.fields.iter().map(field);
            let state = service.live.state();
            let endpoints = state.endpoints().map(|(_, endpoint)| endpoint.label().to_owned());
            DestinationExplanation::Service {
                name: service.name.clone(),
                endpoints: endpoints.collect(),
                regions: state.stats().regions,
                target,
                fields: fields.collect(),
            }
        }
        Destination::Redirect { to, keep_query, status } => {
            answered(&pipeline::redirect(to, *keep_query, *status, exchange)?)
        }
        Destination::Static { status, .. } => {
            let status = Some(*status);
            DestinationExplanation::Answer { kind: "respond", builtin: None, status, location: None }
        }
        Destination::BuiltIn(destination) => {
            builtin::check_method(&**destination, exchange)?;
            DestinationExplanation::Answer {
                kind: "builtin",
                builtin: Some(destination.name()),
                status: destination.status(),
                location: None,
            }
        }
    })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

//! Admission: the limits on requests in flight, and how important requests are.

use std::{sync::Arc, time::Duration};

use cardea_clock::Mono;
use cardea_env::{Expression, Inline, Scratch};
use cardea_guard::{AdaptiveLimit, Admission, AdmissionLimit, AdmissionSettings, Gate, Holding, Priority};

use crate::{conditions, exchange::Exchange, metrics::AdmissionMetrics, workers};

/// The limits of a model, and the queue that they share with those of all other models.
#[derive(Debug)]
pub struct AdmissionModel {
    /// The queue of the process.
    pub queue: Admission,
    /// The limits that are configured.
    pub limits: Vec<Arc<LimitModel>>,
    /// From this age on, an exchange is a stream.
    pub stream_after: Duration,
    /// How important requests are where their route does not say; normal where `None`.
    pub priority: Option<PriorityRule>,
    /// Whether the least important callers are refused during an overload.
    pub shed_callers: bool,
    /// What a client may have of an adaptive limit in any case, in percent.
    pub client_share: u32,
}

impl AdmissionModel {
    /// Puts the limits in force, also for the requests that are carried by an earlier model.
    pub(crate) fn enforce(&self, now: Mono) {
        self.queue.set_shedding(self.shed_callers);
        self.queue.set_client_share(self.client_share);
        for LimitModel { limit, settings, adaptive, .. } in self.limits.iter().map(|limit| &**limit) {
            match adaptive {
                Some(adaptive) => adaptive.limit.enforce(now),
                None => limit.set_bounds(settings.initial(), now),
            }
        }
    }
}

/// What a limit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitScope {
    /// All requests.
    Process,
    /// The requests to a service.
    Service,
    /// The requests of a route.
    Route,
    /// Exchanges that have become streams.
    Streams,
}

impl LimitScope {
    /// Its name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Service => "service",
            Self::Route => "route",
            Self::Streams => "streams",
        }
    }
}

/// A limit, as one configuration describes it.
#[derive(Debug)]
pub struct LimitModel {
    /// What it is for.
    pub scope: LimitScope,
    /// The name of the service or route; empty for the process.
    pub name: String,
    /// Its [label](Self::label).
    pub label: String,
    /// What it is configured to, which is put in force with the model.
    pub settings: AdmissionSettings,
    /// What changes the limit, where it is adaptive.
    pub adaptive: Option<AdaptiveModel>,
    /// What is counted, in all models that have it.
    pub limit: Arc<AdmissionLimit>,
    /// What is counted of requests, in all models that have it.
    pub metrics: Arc<AdmissionMetrics>,
}

impl LimitModel {
    /// Its name in metrics and explanations: `process`, `service/orders`.
    #[must_use]
    pub fn label(scope: LimitScope, name: &str) -> String {
        if name.is_empty() { scope.as_str().to_owned() } else { format!("{}/{name}", scope.as_str()) }
    }
}

/// An adaptive limit, and the kinds of requests that it tells apart.
#[derive(Debug, Clone)]
pub struct AdaptiveModel {
    /// The limit.
    pub limit: Arc<AdaptiveLimit>,
    /// The names of the classes: services, for the limit of the process, and routes, for that of a service.
    pub classes: Arc<[String]>,
}

/// An adaptive limit that learns from the responses of a route.
#[derive(Debug)]
pub struct Learner {
    /// The limit.
    pub limit: Arc<AdaptiveLimit>,
    /// The class of the responses.
    pub class: usize,
}

/// Admission to a route.
#[derive(Debug, Default)]
pub struct RouteAdmission {
    /// The limits that its requests have to pass, the narrowest first; none where `None`.
    pub gate: Option<Arc<Gate>>,
    /// The same limits, as they are configured.
    pub limits: Vec<Arc<LimitModel>>,
    /// The limit that its requests pass to where they become streams. Where `None`, they stay where they are.
    pub streams: Option<Arc<Gate>>,
    /// How important its requests are; as the model says where `None`.
    pub priority: Option<Priority>,
    /// The adaptive ones of its limits.
    pub learners: Vec<Learner>,
}

impl RouteAdmission {
    /// Tells adaptive limits how long the service took, from the end of a request to the beginning of its response.
    pub(crate) fn learn(&self, holding: &Holding, took: Duration, now: Mono) {
        for Learner { limit, class } in &self.learners {
            limit.note_of(holding, workers::current(), *class, took, now);
        }
    }
}

/// How important requests are, by an expression that gives the name of a priority.
#[derive(Debug, Clone)]
pub struct PriorityRule(Arc<Expression<Exchange>>);

impl PriorityRule {
    /// The priority that an expression names.
    #[must_use]
    pub fn new(expression: Expression<Exchange>) -> Self {
        Self(Arc::new(expression))
    }

    /// The expression.
    #[must_use]
    pub fn expression(&self) -> &Expression<Exchange> {
        &self.0
    }

    /// The priority of a request: normal where the expression fails or names none.
    #[must_use]
    pub fn of(&self, exchange: &Exchange) -> Priority {
        self.named(exchange).unwrap_or_default()
    }

    /// The priority that the expression names, if it names one.
    #[must_use]
    pub fn named(&self, exchange: &Exchange) -> Option<Priority> {
        let scratch = Scratch::new();
        let value = conditions::value(&self.0, exchange, &scratch)?;
        Priority::named(std::str::from_utf8(value.text(&mut Inline::new())?).ok()?)
    }
}

//! Admission: the limits on requests in flight, what goes on of them at a reload, and those of each route.

use std::{collections::HashMap, sync::Arc};

use cardea_gateway::{
    metrics::AdmissionMetrics,
    model::{
        AdaptiveModel, AdmissionModel, Destination, Learner, LimitModel, LimitScope, RouteAdmission, Service,
    },
};
use cardea_guard::{
    AdaptiveLimit, Admission, AdmissionLimit, AdmissionSettings, Gate, MaxInFlight, Priority,
};

use super::{
    super::model::{self, Located},
    Builder,
};

/// The limits that were made, and the ways past them.
pub(super) struct AdmissionParts {
    queue: Admission,
    /// By label.
    limits: HashMap<String, Arc<LimitModel>>,
    /// By the labels of their limits. Routes that have the same limits share a way.
    gates: HashMap<Vec<String>, Arc<Gate>>,
}

impl AdmissionParts {
    /// Nothing yet, on the queue of the process.
    pub(super) fn new(queue: Option<Admission>, workers: usize) -> Self {
        Self {
            queue: queue.unwrap_or_else(|| Admission::new(workers)),
            limits: HashMap::new(),
            gates: HashMap::new(),
        }
    }

    /// What the model has of it.
    pub(super) fn into_model(self, settings: &model::Admission) -> AdmissionModel {
        let mut limits: Vec<_> = self.limits.into_values().collect();
        limits.sort_by(|one, other| one.label.cmp(&other.label));
        AdmissionModel {
            queue: self.queue,
            limits,
            stream_after: settings.stream_after,
            priority: settings.priority.clone(),
            shed_callers: settings.shed_callers,
            client_share: settings.client_share,
        }
    }
}

impl Builder<'_> {
    /// The limits of a route.
    pub(super) fn route_admission(
        &mut self,
        route: &Located<model::Route>,
        destination: &Destination,
    ) -> RouteAdmission {
        let limited =
            route.admission.limit.map(|settings| (LimitScope::Route, route.name.as_str(), settings));
        let priority = route.admission.priority;
        match destination {
            Destination::Service(service) => self.service_admission(route, service),
            // That of its services.
            Destination::Split(_) => RouteAdmission { priority, ..RouteAdmission::default() },
            Destination::BuiltIn(builtin) if builtin.body_bytes_max().is_some() => {
                self.admission_of(limited, priority.or(Some(Priority::Critical)))
            }
            Destination::BuiltIn(_) | Destination::Redirect { .. } | Destination::Static { .. } => {
                if limited.is_some() {
                    self.problem(
                        route.at,
                        format!("route \"{}\" answers at once: its requests are not limited", route.name),
                        "remove its admission table",
                    );
                }
                RouteAdmission::default()
            }
        }
    }

    /// The limits of a route's requests to a service.
    pub(super) fn service_admission(
        &mut self,
        route: &Located<model::Route>,
        service: &Service,
    ) -> RouteAdmission {
        let limited =
            route.admission.limit.map(|settings| (LimitScope::Route, route.name.as_str(), settings));
        let of_service = self.service_settings(service);
        let of_service = of_service.map(|settings| (LimitScope::Service, service.name.as_str(), settings));
        let limits = limited.into_iter().chain(of_service);
        let mut admission = self.admission_of(limits, route.admission.priority);
        admission.learners = learners(&admission.limits, &route.name, &service.name);
        admission
    }

    /// The limits of an endpoint of the authorization server.
    pub(super) fn mounted_admission(&mut self, destination: &Destination) -> RouteAdmission {
        match destination {
            Destination::BuiltIn(builtin) if builtin.body_bytes_max().is_some() => {
                self.admission_of(None, Some(Priority::Critical))
            }
            _ => RouteAdmission::default(),
        }
    }

    fn service_settings(&self, service: &Service) -> Option<AdmissionSettings> {
        self.config.services.iter().find(|known| known.config.name == service.name)?.admission
    }

    /// Admission by these limits and that of the process.
    fn admission_of<'n>(
        &mut self,
        limits: impl IntoIterator<Item = (LimitScope, &'n str, AdmissionSettings)>,
        priority: Option<Priority>,
    ) -> RouteAdmission {
        let process = self.config.general.admission.limit.map(|settings| (LimitScope::Process, "", settings));
        let limits = limits.into_iter().chain(process);
        let limits: Vec<_> =
            limits.map(|(scope, name, settings)| self.admission_limit(scope, name, settings)).collect();
        if limits.is_empty() {
            return RouteAdmission { priority, ..RouteAdmission::default() };
        }
        let streams = self.config.general.admission.max_streams.map(|max_in_flight| {
            let max_in_flight = MaxInFlight::Fixed(max_in_flight);
            let settings =
                AdmissionSettings { max_in_flight, max_queue: Some(0), max_age: Default::default() };
            let limit = self.admission_limit(LimitScope::Streams, "", settings);
            self.gate(&[limit])
        });
        RouteAdmission {
            gate: Some(self.gate(&limits)),
            limits,
            streams,
            priority,
            ..RouteAdmission::default()
        }
    }

    fn gate(&mut self, limits: &[Arc<LimitModel>]) -> Arc<Gate> {
        let labels = limits.iter().map(|limit| limit.label.clone()).collect();
        let parts = &mut self.admission;
        let make = || parts.queue.gate(limits.iter().map(|limit| Arc::clone(&limit.limit)));
        Arc::clone(parts.gates.entry(labels).or_insert_with(make))
    }

    /// A limit. One that an earlier model has goes on with what is in flight; it changes once this model is in force.
    fn admission_limit(
        &mut self,
        scope: LimitScope,
        name: &str,
        settings: AdmissionSettings,
    ) -> Arc<LimitModel> {
        let label = LimitModel::label(scope, name);
        if let Some(made) = self.admission.limits.get(&label) {
            return Arc::clone(made);
        }
        let known = self.previous.map(|built| &built.model.admission.limits);
        let known = known.into_iter().flatten().find(|known| known.label == label).cloned();
        let limit = self.admission.queue.named_limit(&label, settings.initial());
        let metrics = known
            .as_ref()
            .map_or_else(|| Arc::new(AdmissionMetrics::new(&label)), |known| Arc::clone(&known.metrics));
        let adaptive = match settings.max_in_flight {
            MaxInFlight::Fixed(_) => None,
            MaxInFlight::Adaptive(_) => Some(self.adaptive(scope, name, settings, &limit, known.as_deref())),
        };
        let made = Arc::new(LimitModel {
            scope,
            name: name.to_owned(),
            label: label.clone(),
            settings,
            adaptive,
            limit,
            metrics,
        });
        self.admission.limits.insert(label, Arc::clone(&made));
        made
    }

    /// What adapts a limit. That of an earlier model goes on if it is for the same; another one begins with the same limit.
    fn adaptive(
        &self,
        scope: LimitScope,
        name: &str,
        settings: AdmissionSettings,
        limit: &Arc<AdmissionLimit>,
        known: Option<&LimitModel>,
    ) -> AdaptiveModel {
        let classes: Arc<[String]> = self.classes(scope, name).map(str::to_owned).collect();
        if let Some(adaptive) = known.and_then(|known| known.adaptive.as_ref())
            && adaptive.limit.settings() == settings
            && adaptive.classes == classes
        {
            return adaptive.clone();
        }
        let in_force = known.map(|_| limit.figures().max_in_flight);
        let now = self.foundation.clock.precise_mono();
        let adaptive = AdaptiveLimit::new(Arc::clone(limit), settings, classes.len(), in_force, now);
        AdaptiveModel { limit: Arc::new(adaptive), classes }
    }

    /// The kinds of requests that a limit tells apart: the services of the process, the routes of a service.
    fn classes<'c>(&'c self, scope: LimitScope, name: &'c str) -> impl Iterator<Item = &'c str> {
        let services = self.config.services.iter().map(|service| service.config.name.as_str());
        let is_it = move |index: usize| {
            self.config.services.get(index).is_some_and(|service| service.config.name == name)
        };
        let is_to = move |route: &&Located<model::Route>| match &route.destination {
            model::Destination::Service { index } => is_it(*index),
            model::Destination::Split { shares, .. } => shares.iter().any(|share| is_it(share.index)),
            _ => false,
        };
        let routes = self.config.routes.iter().filter(is_to).map(|route| route.name.as_str());
        services
            .filter(move |_| scope == LimitScope::Process)
            .chain(routes.filter(move |_| scope == LimitScope::Service))
    }
}

/// The adaptive limits that learn from the responses of a route.
fn learners(limits: &[Arc<LimitModel>], route: &str, service: &str) -> Vec<Learner> {
    let learner = |limit: &Arc<LimitModel>| {
        let adaptive = limit.adaptive.as_ref()?;
        let name = if limit.scope == LimitScope::Process { service } else { route };
        let class = adaptive.classes.iter().position(|class| class == name)?;
        Some(Learner { limit: Arc::clone(&adaptive.limit), class })
    };
    limits.iter().filter_map(learner).collect()
}

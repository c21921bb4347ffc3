//! Admission: the limits on requests in flight, what goes on of them at a reload, and those of each route.

use std::{collections::HashMap, sync::Arc};

use cardea_gateway::{
    metrics::AdmissionMetrics,
    model::{AdmissionModel, Destination, LimitModel, LimitScope, RouteAdmission, Service},
};
use cardea_guard::{Admission, AdmissionBounds, Gate, Priority};

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
        let limited = route.admission.limit.map(|bounds| (LimitScope::Route, route.name.as_str(), bounds));
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
        let limited = route.admission.limit.map(|bounds| (LimitScope::Route, route.name.as_str(), bounds));
        let of_service = self.service_bounds(service);
        let of_service = of_service.map(|bounds| (LimitScope::Service, service.name.as_str(), bounds));
        self.admission_of(limited.into_iter().chain(of_service), route.admission.priority)
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

    fn service_bounds(&self, service: &Service) -> Option<AdmissionBounds> {
        self.config.services.iter().find(|known| known.config.name == service.name)?.admission
    }

    /// Admission by these limits and that of the process.
    fn admission_of<'n>(
        &mut self,
        limits: impl IntoIterator<Item = (LimitScope, &'n str, AdmissionBounds)>,
        priority: Option<Priority>,
    ) -> RouteAdmission {
        let process = self.config.general.admission.limit.map(|bounds| (LimitScope::Process, "", bounds));
        let limits = limits.into_iter().chain(process);
        let limits: Vec<_> =
            limits.map(|(scope, name, bounds)| self.admission_limit(scope, name, bounds)).collect();
        if limits.is_empty() {
            return RouteAdmission { priority, ..RouteAdmission::default() };
        }
        let streams = self.config.general.admission.max_streams.map(|max_in_flight| {
            let bounds = AdmissionBounds { max_in_flight, max_queue: 0, max_age: Default::default() };
            let limit = self.admission_limit(LimitScope::Streams, "", bounds);
            self.gate(&[limit])
        });
        RouteAdmission { gate: Some(self.gate(&limits)), limits, streams, priority }
    }

    fn gate(&mut self, limits: &[Arc<LimitModel>]) -> Arc<Gate> {
        let labels = limits.iter().map(|limit| limit.label.clone()).collect();
        let parts = &mut self.admission;
        let make = || parts.queue.gate(limits.iter().map(|limit| Arc::clone(&limit.limit)));
        Arc::clone(parts.gates.entry(labels).or_insert_with(make))
    }

    /// A limit. One that an earlier model has goes on with what is in flight; its bounds change once this model is in force.
    fn admission_limit(&mut self, scope: LimitScope, name: &str, bounds: AdmissionBounds) -> Arc<LimitModel> {
        let label = LimitModel::label(scope, name);
        let parts = &mut self.admission;
        let known = self.previous.map(|built| &built.model.admission.limits);
        let known = known.into_iter().flatten().find(|known| known.label == label);
        let make = || {
            Arc::new(LimitModel {
                scope,
                name: name.to_owned(),
                bounds,
                limit: known.map_or_else(|| parts.queue.limit(bounds), |known| Arc::clone(&known.limit)),
                metrics: known.map_or_else(
                    || Arc::new(AdmissionMetrics::new(&label)),
                    |known| Arc::clone(&known.metrics),
                ),
                label: label.clone(),
            })
        };
        Arc::clone(parts.limits.entry(label.clone()).or_insert_with(make))
    }
}

//! Limits on requests in flight.

use std::{collections::BTreeSet, time::Duration};

use cardea_env::Kind;
use cardea_gateway::{exchange::Exchange, model::PriorityRule};
use cardea_guard::{AdaptiveBounds, AdmissionSettings, MaxInFlight};

use super::{
    super::{
        document::Cursor,
        form::InFlight,
        model::{Admission, General, RouteAdmission},
        raw::{RawAdmission, RawRouteAdmission, RawServiceAdmission},
    },
    Resolver,
    throttle::Reads,
};

impl Resolver<'_> {
    pub(super) fn admission(&mut self, raw: RawAdmission, at: Cursor<'_>) -> Admission {
        let mut reads = Reads::default();
        let priority = self.priority(raw.priority, &mut reads, at.key("priority"));
        Admission {
            limit: self.admission_settings(
                WrittenLimit {
                    max_in_flight: raw.max_in_flight,
                    floor: raw.floor,
                    ceiling: raw.ceiling,
                    max_queue: raw.max_queue,
                    max_age: None,
                },
                raw.max_age,
                at,
            ),
            max_age: raw.max_age,
            max_streams: raw.max_streams,
            stream_after: raw.stream_after,
            shed_callers: raw.shed_callers,
            client_share: raw.client_share,
            priority,
            priority_reads_path: reads.path,
        }
    }

    /// The expression of the priority.
    fn priority(
        &mut self,
        written: Option<String>,
        reads: &mut Reads,
        at: Cursor<'_>,
    ) -> Option<PriorityRule> {
        const REMEDY: &str = "write an expression that gives 'critical', 'high', 'normal' or 'low', as in \
            \"token.azp == 'batch' ? 'low' : 'normal'\"";
        let expression = self.expression(written, at)?;
        self.note_headers(expression.references().map(|(_, reference)| reference));
        self.note_reads(reads, &BTreeSet::new(), expression.references(), at);
        let kind = expression.kind();
        let is_constant = expression.references().next().is_none();
        let rule = PriorityRule::new(expression);
        if !matches!(kind, Kind::Text | Kind::Any) {
            self.error(at, format!("a priority is a text, and this is of type {kind}"), REMEDY);
        } else if is_constant && rule.named(&Exchange::default()).is_none() {
            self.error(at, "this is the name of no priority", REMEDY);
        }
        Some(rule)
    }

    /// The limit and the priority of a route.
    pub(super) fn route_admission(
        &mut self,
        raw: &RawRouteAdmission,
        general: &General,
        at: Cursor<'_>,
    ) -> RouteAdmission {
        let RawRouteAdmission { max_in_flight, max_queue, max_age, priority } = *raw;
        let written = WrittenLimit {
            max_in_flight: max_in_flight.map(InFlight::Number),
            max_queue,
            max_age,
            ..WrittenLimit::default()
        };
        let limit = self.admission_settings(written, general.admission.max_age, at);
        RouteAdmission { limit, priority }
    }

    /// The limit of a service.
    pub(super) fn service_admission(
        &mut self,
        raw: &RawServiceAdmission,
        general: &General,
        at: Cursor<'_>,
    ) -> Option<AdmissionSettings> {
        let RawServiceAdmission { max_in_flight, floor, ceiling, max_queue, max_age } = *raw;
        let written = WrittenLimit { max_in_flight, floor, ceiling, max_queue, max_age };
        self.admission_settings(written, general.admission.max_age, at)
    }

    /// A limit; none without `max_in_flight`, which the other keys need.
    fn admission_settings(
        &mut self,
        written: WrittenLimit,
        default_age: Duration,
        at: Cursor<'_>,
    ) -> Option<AdmissionSettings> {
        let WrittenLimit { max_in_flight, floor, ceiling, max_queue, max_age } = written;
        let of_adaptive = floor.map(|_| "floor").or(ceiling.map(|_| "ceiling"));
        let Some(max_in_flight) = max_in_flight else {
            let key = max_queue.map(|_| "max_queue").or(max_age.map(|_| "max_age")).or(of_adaptive);
            if let Some(key) = key.filter(|_| !at.lost_any(&["max_in_flight"])) {
                self.error(
                    at.key(key),
                    format!("{key} without max_in_flight: no request waits"),
                    "add max_in_flight to the same table, or remove the key",
                );
            }
            return None;
        };
        let max_in_flight = match max_in_flight {
            InFlight::Number(number) => {
                if let Some(key) = of_adaptive {
                    self.error(
                        at.key(key),
                        format!("{key} with a fixed limit: only adaptive limits have one"),
                        "write max_in_flight = \"adaptive\", or remove the key",
                    );
                }
                MaxInFlight::Fixed(number)
            }
            InFlight::Adaptive => {
                let bounds = AdaptiveBounds::default();
                let bounds = AdaptiveBounds {
                    floor: floor.unwrap_or(bounds.floor.min(ceiling.unwrap_or(u32::MAX))),
                    ceiling: ceiling.unwrap_or(bounds.ceiling.max(floor.unwrap_or(0))),
                };
                if bounds.floor > bounds.ceiling {
                    self.error(
                        at.key("floor"),
                        format!("the floor {} is above the ceiling {}", bounds.floor, bounds.ceiling),
                        "lower the floor, or raise the ceiling",
                    );
                }
                MaxInFlight::Adaptive(bounds)
            }
        };
        Some(AdmissionSettings { max_in_flight, max_queue, max_age: max_age.unwrap_or(default_age) })
    }
}

/// The keys of a limit.
#[derive(Debug, Clone, Copy, Default)]
struct WrittenLimit {
    max_in_flight: Option<InFlight>,
    floor: Option<u32>,
    ceiling: Option<u32>,
    max_queue: Option<u32>,
    max_age: Option<Duration>,
}

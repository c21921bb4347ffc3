//! Limits on requests in flight.

use std::{collections::BTreeSet, time::Duration};

use cardea_env::Kind;
use cardea_gateway::{exchange::Exchange, model::PriorityRule};
use cardea_guard::AdmissionBounds;

use super::{
    super::{
        document::Cursor,
        model::{Admission, General, RouteAdmission},
        raw::{RawAdmission, RawRouteAdmission},
    },
    Resolver,
    throttle::Reads,
};

impl Resolver<'_> {
    pub(super) fn admission(&mut self, raw: RawAdmission, at: Cursor<'_>) -> Admission {
        let mut reads = Reads::default();
        let priority = self.priority(raw.priority, &mut reads, at.key("priority"));
        Admission {
            limit: self.admission_bounds(raw.max_in_flight, raw.max_queue, None, raw.max_age, at),
            max_age: raw.max_age,
            max_streams: raw.max_streams,
            stream_after: raw.stream_after,
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
        let default_age = general.admission.max_age;
        let limit = self.admission_bounds(max_in_flight, max_queue, max_age, default_age, at);
        RouteAdmission { limit, priority }
    }

    /// The bounds of a limit; none without `max_in_flight`, which the other keys need.
    pub(super) fn admission_bounds(
        &mut self,
        max_in_flight: Option<u32>,
        max_queue: Option<u32>,
        max_age: Option<Duration>,
        default_age: Duration,
        at: Cursor<'_>,
    ) -> Option<AdmissionBounds> {
        let Some(max_in_flight) = max_in_flight else {
            let key = max_queue.map(|_| "max_queue").or(max_age.map(|_| "max_age"));
            if let Some(key) = key.filter(|_| !at.lost_any(&["max_in_flight"])) {
                self.error(
                    at.key(key),
                    format!("{key} without max_in_flight: no request waits"),
                    "add max_in_flight to the same table, or remove the key",
                );
            }
            return None;
        };
        Some(AdmissionBounds {
            max_in_flight,
            max_queue: max_queue.unwrap_or(max_in_flight),
            max_age: max_age.unwrap_or(default_age),
        })
    }
}

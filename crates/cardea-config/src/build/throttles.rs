//! Throttles, and what goes on of them at a reload.

use std::sync::Arc;

use cardea_gateway::{
    metrics::ThrottleMetrics,
    model::{Throttle, ThrottleInFlight, ThrottleRate},
};
use cardea_guard::{InFlightTable, ThrottleLimit, ThrottleTable};

use super::{super::model, Builder};

impl Builder<'_> {
    /// The throttles, in the order of the configuration.
    pub(super) fn throttles(&self) -> Vec<Throttle> {
        self.config.throttles.iter().map(|throttle| self.throttle(throttle)).collect()
    }

    fn throttle(&self, throttle: &model::Throttle) -> Throttle {
        let previous = self.previous.and_then(|built| {
            let index = built.model.throttles.iter().position(|known| known.name == throttle.name)?;
            Some((built.throttles.get(index)?, built.model.throttles.get(index)?))
        });
        // What keys have used and have in flight goes on for the same key.
        let known = previous.filter(|(settings, _)| settings.has_key_of(throttle)).map(|(_, known)| known);
        let rate =
            throttle.rate.map(|limit| ThrottleRate { limit, table: self.rate_table(throttle, limit, known) });
        let in_flight = throttle.max_in_flight.map(|max| {
            let known = known.and_then(|known| known.in_flight.as_ref());
            let table = known.map_or_else(
                || Arc::new(InFlightTable::new(throttle.keys_max)),
                |known| Arc::clone(&known.table),
            );
            ThrottleInFlight { max, table }
        });
        Throttle {
            name: throttle.name.clone(),
            key: throttle.key.clone(),
            rate,
            in_flight,
            when: throttle.when.clone(),
            cost: throttle.cost.clone(),
            dry_run: throttle.dry_run,
            report: throttle.report,
            metrics: previous.map_or_else(
                || Arc::new(ThrottleMetrics::new(&throttle.name)),
                |(_, known)| Arc::clone(&known.metrics),
            ),
        }
    }

    /// What keys have used.
    fn rate_table(
        &self,
        throttle: &model::Throttle,
        limit: ThrottleLimit,
        known: Option<&Throttle>,
    ) -> Arc<ThrottleTable> {
        match known.and_then(|known| known.rate.as_ref()) {
            Some(known) if known.limit == limit => Arc::clone(&known.table),
            Some(known) => {
                let now = self.foundation.clock.precise().mono;
                Arc::new(known.table.converted(known.limit, limit, now))
            }
            None => Arc::new(ThrottleTable::new(throttle.keys_max)),
        }
    }
}

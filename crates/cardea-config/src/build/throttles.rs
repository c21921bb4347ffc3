//! Throttles, and what goes on of them at a reload.

use std::sync::Arc;

use cardea_gateway::{metrics::ThrottleMetrics, model::Throttle};
use cardea_guard::ThrottleTable;

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
        let now = self.foundation.clock.precise().mono;
        let table = match previous {
            Some((settings, known)) if settings.has_key_of(throttle) && known.limit == throttle.limit => {
                Arc::clone(&known.table)
            }
            Some((settings, known)) if settings.has_key_of(throttle) => {
                Arc::new(known.table.converted(known.limit, throttle.limit, now))
            }
            _ => Arc::new(ThrottleTable::new(throttle.keys_max)),
        };
        Throttle {
            name: throttle.name.clone(),
            key: throttle.key.clone(),
            limit: throttle.limit,
            when: throttle.when.clone(),
            cost: throttle.cost.clone(),
            dry_run: throttle.dry_run,
            report: throttle.report,
            table,
            metrics: previous.map_or_else(
                || Arc::new(ThrottleMetrics::new(&throttle.name)),
                |(_, known)| Arc::clone(&known.metrics),
            ),
        }
    }
}

//! The tarpit.

use cardea_gateway::model::TarpitModel;
use cardea_guard::{OffenceLimit, TarpitBounds};

use super::{
    super::{document::Cursor, raw::RawTarpit, text::display_duration},
    Resolver,
};

impl Resolver<'_> {
    pub(super) fn tarpit(&mut self, raw: RawTarpit, at: Cursor<'_>) -> TarpitModel {
        if raw.delay_min > raw.delay_max && !at.lost_any(&["delay_min", "delay_max"]) {
            self.error(
                at.key("delay_min"),
                format!(
                    "delay_min ({}) is above delay_max ({})",
                    display_duration(raw.delay_min),
                    display_duration(raw.delay_max)
                ),
                "lower the one or raise the other",
            );
        }
        TarpitModel {
            action: raw.action,
            limit: OffenceLimit { offences: raw.offences, memory: raw.memory },
            delay_min: raw.delay_min,
            delay_max: raw.delay_max,
            bounds: TarpitBounds {
                held_max: raw.held_max,
                per_prefix_max: raw.per_prefix_max,
                per_identity_max: raw.per_identity_max,
            },
            per_connection_max: raw.per_connection_max,
            allow: raw.allow,
            when: self.condition(raw.when, at.key("when")),
        }
    }
}

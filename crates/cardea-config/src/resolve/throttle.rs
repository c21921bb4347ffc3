//! Throttles, and where they are named.

use cardea_guard::{ThrottleLimit, ThrottleLimitError};

use super::{
    super::{
        document::Cursor,
        model::{Located, Throttle},
        raw::RawThrottle,
        rules::FieldTemplate,
    },
    Resolver,
};

impl Resolver<'_> {
    pub(super) fn throttles(&mut self, raw: Vec<RawThrottle>, at: Cursor<'_>) -> Vec<Located<Throttle>> {
        self.each(raw, at, Self::throttle)
    }

    fn throttle(&mut self, raw: RawThrottle, at: Cursor<'_>) -> Throttle {
        let key = raw.key.into_iter().enumerate();
        let key = key.map(|(index, text)| FieldTemplate { text, at: at.key("key").index(index).location() });
        let burst = raw.burst.unwrap_or(raw.rate.count);
        let limit = ThrottleLimit::new(raw.rate.count, raw.rate.per, burst).unwrap_or_else(|error| {
            let remedy = match error {
                ThrottleLimitError::Zero => "write at least 1",
                ThrottleLimitError::TooFast => "write at most \"1000000/s\"",
                ThrottleLimitError::TooLong => "lower the burst or raise the rate",
            };
            let key = if error == ThrottleLimitError::TooLong { "burst" } else { "rate" };
            if !at.lost_any(&["rate", "burst"]) {
                self.error(at.key(key), error.to_string(), remedy);
            }
            ThrottleLimit::default()
        });
        Throttle {
            name: raw.name,
            key: key.collect(),
            ipv4_prefix: raw.ipv4_prefix,
            ipv6_prefix: raw.ipv6_prefix,
            limit,
            when: self.expression(raw.when, at.key("when")),
            cost: self.expression(raw.cost, at.key("cost")),
            dry_run: raw.dry_run,
            report: raw.report,
            all_routes: raw.all_routes,
            keys_max: raw.keys_max,
        }
    }

    /// The throttles that a route or a service names.
    pub(super) fn throttle_names(
        &mut self,
        raw: Vec<String>,
        throttles: &[Located<Throttle>],
        at: Cursor<'_>,
    ) -> Vec<String> {
        let known = || throttles.iter().map(|throttle| throttle.name.as_str());
        for (index, name) in raw.iter().enumerate() {
            let at = at.index(index);
            if !known().any(|known| known == name) {
                self.unknown("throttle", name, known(), at);
            } else if raw.iter().take(index).any(|earlier| earlier == name) {
                self.error(at, format!("{:?} is there twice", at.shown(name)), "remove one of them");
            }
        }
        raw
    }
}

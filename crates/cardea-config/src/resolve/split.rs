//! Splits: routes that lead to several services.

use std::collections::{BTreeSet, HashSet};

use cardea_env::Template;
use cardea_gateway::{
    exchange::Exchange,
    model::{RouteThrottles, SHARES_MAX},
};

use super::{
    super::{
        document::Cursor,
        model::{Destination, Located, Share, SourceText, Throttle},
        raw::RawShare,
    },
    Names, Resolver,
    compile::is_path,
    throttle::{is_known_when_counted, is_service, throttles_of, throttles_read_path},
};

impl Resolver<'_> {
    pub(super) fn split(
        &mut self,
        raw: Vec<RawShare>,
        key: Option<String>,
        names: &Names<'_>,
        at: Cursor<'_>,
    ) -> Option<Destination> {
        let key_at = at.key("split_key");
        let key = key.and_then(|text| self.split_key(text, key_at));
        let at = at.key("split");
        if raw.len() > SHARES_MAX {
            self.error(at, format!("a split has at most {SHARES_MAX} services"), "remove some");
        }
        let is_weightless = |(position, share): (usize, &RawShare)| {
            share.weight == 0 && !at.index(position).lost_any(&["weight"])
        };
        if !raw.is_empty() && raw.iter().enumerate().all(is_weightless) {
            self.error(
                at,
                "no service of the split has a weight above 0, so that no request could go anywhere",
                "give one of them a weight of at least 1",
            );
        }
        let (mut seen, mut is_complete) = (HashSet::new(), true);
        let mut shares = Vec::with_capacity(raw.len());
        for (position, RawShare { service, weight }) in raw.into_iter().enumerate() {
            let at = at.index(position).key("service");
            let Some(index) = self.service_index(&service, names, at) else {
                is_complete = false;
                continue;
            };
            if !seen.insert(index) {
                self.error(
                    at,
                    format!("the service {:?} is in the split twice", at.shown(&service)),
                    "keep one of them, with the sum of the weights",
                );
            }
            // Its throttles are known once the route's are.
            shares.push(Share { index, weight, throttles: Box::default() });
        }
        is_complete.then_some(Destination::Split { key, shares })
    }

    /// A template of a key, which is never shown. It is rendered once the request is authorized.
    fn split_key(&mut self, text: String, at: Cursor<'_>) -> Option<Template<Exchange>> {
        let template = self.raw_template(&SourceText { text, at: at.location() })?;
        if template.constant().is_some() {
            self.error(
                at,
                "it reads no attribute, so that all requests would go to one service",
                "name one in braces: \"{token.sub}\"",
            );
        }
        let sources: BTreeSet<String> =
            template.references().flat_map(|reference| self.names.sources(reference)).collect();
        if let Some(late) = sources.iter().find(|source| is_service(source) || !is_known_when_counted(source))
        {
            self.error(
                at,
                format!("{late:?} is not known yet when the service is chosen"),
                "read request, source, destination, connection, gateway, route or token, or attributes made of these",
            );
        }
        Some(template)
    }

    /// Whether the choice of the service depends on the path: its own key does.
    pub(super) fn split_reads_path(&self, destination: &Destination, names: &Names<'_>) -> bool {
        let Destination::Split { key, shares } = destination else { return false };
        let counted = shares.iter().flat_map(|share| &share.throttles);
        key.as_ref().is_some_and(|key| key.references().any(|reference| self.reads(reference, is_path)))
            || throttles_read_path(names.throttles, counted)
    }
}

/// The throttles of a route to several services, and of its services. What needs no choice counts before; a throttle that counts
/// by the service counts after it, and so do those of the services.
pub(super) fn split_throttles(
    throttles: &[Located<Throttle>],
    own: &[String],
    shares: &mut [Share],
    names: &Names<'_>,
) -> RouteThrottles {
    let of_route = throttles_of(throttles, own.iter());
    let reads_service =
        |place: &&usize| throttles.get(**place).is_some_and(|throttle| throttle.reads_service);
    let (late, early): (Vec<_>, Vec<_>) = of_route.before_identification.iter().partition(reads_service);
    let mut after: Vec<usize> = of_route.after_authorization.iter().chain(late).copied().collect();
    for share in shares {
        let named = names.services.get(share.index).map(|service| &service.throttles);
        let of_share = throttles_of(throttles, named.into_iter().flatten());
        let more = of_share.places().filter(|place| !early.contains(place));
        let places: BTreeSet<usize> = after.iter().chain(more).copied().collect();
        share.throttles = places.into_iter().collect();
    }
    after.sort_unstable();
    RouteThrottles {
        before_identification: early.into_iter().copied().collect(),
        after_authorization: after.into(),
    }
}

//! Mirrors of routes.

use super::{
    super::{
        document::Cursor,
        model::{Destination, Mirror},
        raw::RawMirror,
    },
    Names, Resolver,
};

impl Resolver<'_> {
    /// The mirror of a route that leads to `destination`, where that is known.
    pub(super) fn mirror(
        &mut self,
        raw: RawMirror,
        destination: Option<&Destination>,
        names: &Names<'_>,
        at: Cursor<'_>,
    ) -> Option<Mirror> {
        let RawMirror { service, sample_one_in, in_flight_max, timeout, forward_authorization } = raw;
        let at_service = at.key("service");
        let index = self.service_index(&service, names, at_service)?;
        let is_sent = |destination: &Destination| destination.services().any(|service| service == index);
        if destination.is_some_and(|destination| destination.services().next().is_none()) {
            self.error(
                at,
                "requests that the gateway answers itself are not copied",
                "remove mirror, or let the route lead to a service",
            );
        } else if destination.is_some_and(is_sent) {
            self.error(
                at_service,
                format!(
                    "the service {:?} would get requests of this route twice",
                    at_service.shown(&service)
                ),
                "name another service",
            );
        }
        Some(Mirror { index, sample_one_in, in_flight_max, timeout, forward_authorization })
    }
}

//! The decision on a request: one order of checks for requests that come, for streams that are judged again and for requests
//! that are only asked about.
//!
//! [`decide`] is the order. Where the three differ, a [`Circumstances`] says how. What a request may reach, it reaches by an
//! [`Authorized`], which nothing else makes.

mod identify;
mod normalise;
mod route;

use cardea_clock::Wall;

pub(crate) use identify::identify;
pub(crate) use normalise::{normalise, settle};

use crate::{
    client_certificate::{self, ClientCertificateRule, Servable},
    conditions,
    exchange::Exchange,
    fields,
    model::{Destination, Model, ModelRef, Route, ShareIndex, Split},
    refusal::Reason,
    response::Response,
};

/// What was decided on a request that was not refused.
pub(crate) enum Decision<'m> {
    /// It may reach the destination of its route.
    Authorized(Authorized<'m>),
    /// The client has to go elsewhere first.
    Elsewhere(Response),
}

/// The proof that a request has passed every check of its route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authorized<'m> {
    route: &'m Route,
}

impl<'m> Authorized<'m> {
    /// The route that carries the request.
    pub(crate) const fn route(&self) -> &'m Route {
        self.route
    }
}

/// In which way a request is decided on. What a method leaves out is done as for a request that has just come.
pub(crate) trait Circumstances {
    /// The time at which certificates are judged.
    fn certificate_time(&self, exchange: &Exchange) -> Wall {
        exchange.started.wall
    }

    /// Which routes may serve the request, by what its host requires of the connection.
    fn meets_host(&mut self, model: &Model, exchange: &Exchange, at: Wall) -> Result<Servable, Reason> {
        client_certificate::meets_host(model, exchange, at)
    }

    /// The route is chosen, and serves the host as the client came.
    async fn routed(&mut self, route: &Route, exchange: &mut Exchange) -> Result<(), Reason>;

    /// Charges the request to the throttles at these places of the model.
    fn throttle(&mut self, model: &Model, places: &[usize], exchange: &mut Exchange) -> Result<(), Reason>;

    /// Whether the client may enter by its certificate; a response where it has to go elsewhere for that.
    fn admit(
        &mut self,
        rule: &ClientCertificateRule,
        exchange: &Exchange,
        at: Wall,
    ) -> Result<Option<Response>, Reason> {
        client_certificate::admit(rule, exchange, at)
    }

    /// Whether the route takes the body.
    fn check_body(&mut self, route: &Route, exchange: &Exchange) -> Result<(), Reason>;

    /// Finds out who is calling, where the route asks.
    async fn identify(
        &mut self,
        model: &ModelRef,
        route: &Route,
        exchange: &mut Exchange,
    ) -> Result<(), Reason>;

    /// Whether the policies let the request in.
    fn check_policies(
        &mut self,
        model: &Model,
        route: &Route,
        exchange: &mut Exchange,
    ) -> Result<(), Reason> {
        conditions::check(model, route, exchange)
    }

    /// The service of a request to several.
    fn choose_share(&mut self, split: &Split, exchange: &Exchange) -> ShareIndex {
        split.choose(exchange)
    }
}

/// Decides on a request that is [normalised](normalise).
///
/// # Errors
/// Why it is refused.
pub(crate) async fn decide<'m, C: Circumstances>(
    model: &'m ModelRef,
    exchange: &mut Exchange,
    circumstances: &mut C,
) -> Result<Decision<'m>, Reason> {
    let at = circumstances.certificate_time(exchange);
    let servable = circumstances.meets_host(model, exchange, at)?;
    let route = route::choose_route(model, exchange)?;
    servable.by(route)?;
    fields::settle_for(model, route, exchange);
    circumstances.routed(route, exchange).await?;
    // Before identification, so that a flood causes no verification of tokens.
    circumstances.throttle(model, &route.throttles.before_identification, exchange)?;
    route::check_path(model, route, exchange)?;
    if let Some(rule) = &route.client_certificate
        && let Some(response) = circumstances.admit(rule, exchange, at)?
    {
        return Ok(Decision::Elsewhere(response));
    }
    circumstances.check_body(route, exchange)?;
    circumstances.identify(model, route, exchange).await?;
    identify::meets_requirement(route, exchange)?;
    conditions::change_attributes(&route.rules.attributes, exchange);
    circumstances.check_policies(model, route, exchange)?;
    let throttles = match &route.destination {
        // By now everything is known that its key may read.
        Destination::Split(split) => {
            exchange.share = Some(circumstances.choose_share(split, exchange));
            route.share(exchange.share).map_or(&[][..], |share| &share.throttles)
        }
        _ => &route.throttles.after_authorization,
    };
    // After authorization, so that requests without the right use up nobody's limit.
    circumstances.throttle(model, throttles, exchange)?;
    Ok(Decision::Authorized(Authorized { route }))
}

//! Who is calling, and whether the route lets them.

use cardea_http::Known;
use cardea_identity::{AccessRequirement, AccessRequirementError, Unidentified, Verdict, bearer_credentials};

use crate::{
    exchange::Exchange,
    gateway::Gateway,
    model::{Model, Route},
    refusal::Reason,
};

/// Who is calling. A route that asks for nobody gets nobody, whatever came.
pub(crate) async fn identify(
    gateway: &Gateway,
    model: &Model,
    route: &Route,
    exchange: &mut Exchange,
) -> Result<(), Reason> {
    if route.requirement.is_none() {
        return Ok(());
    }
    let credentials = match bearer_credentials(exchange.head.fields.get_all(Known::Authorization)) {
        Ok(Some(credentials)) => credentials,
        Ok(None) => return Err(Reason::CredentialsMissing),
        Err(error) if error.is_bad_request() => return Err(Reason::CredentialsMalformed),
        // Another scheme's credentials are none of ours.
        Err(_) => return Err(Reason::CredentialsMissing),
    };
    let identified = model.authenticator.identify(credentials, &mut exchange.token, exchange.started).await;
    let (verdict, source) = identified.map_err(|why| match why {
        Unidentified::Credentials(_) => Reason::CredentialsMalformed,
        Unidentified::Token(error) => Reason::from(error),
    })?;
    gateway.metrics.verdict(source);
    exchange.verdict = Some(verdict);
    Ok(())
}

/// Whether the token says what the route demands of it.
pub(super) fn meets_requirement(route: &Route, exchange: &Exchange) -> Result<(), Reason> {
    let Some(requirement) = &route.requirement else { return Ok(()) };
    let Some(verdict) = &exchange.verdict else { return Err(Reason::CredentialsMissing) };
    check_requirement(requirement, verdict)
}

fn check_requirement(requirement: &AccessRequirement, verdict: &Verdict) -> Result<(), Reason> {
    requirement.check(verdict).map_err(|error| match error {
        AccessRequirementError::Scope { needed } => Reason::InsufficientScope(needed),
        other if other.is_invalid_token() => Reason::TokenInvalid(other.code()),
        // A role is missing, or can't be shown.
        _ => Reason::RoleMissing,
    })
}

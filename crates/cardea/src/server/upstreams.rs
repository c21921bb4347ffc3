//! The state of services and endpoints for the operator, and what the operator changes of it.

use cardea_clock::Mono;
use cardea_upstream::{EndpointStats, Override, ServiceStats};

use super::run::Server;
use crate::admin::protocol::{AdminError, Code, Overridden, OverrideTo, Upstream, UpstreamEndpoint};

impl Server {
    /// Takes an endpoint out, or in again.
    pub(super) async fn set_override(
        &self,
        service: &str,
        endpoint: &str,
        to: OverrideTo,
    ) -> Result<Overridden, AdminError> {
        // A reload makes its state of the present one, so that nothing may change meanwhile.
        let current = self.current.lock().await;
        let Some(found) = current.built.services.get(service) else {
            let message = format!("there is no service {service:?}");
            return Err(AdminError::new(Code::NotFound, message));
        };
        let overridden = match to {
            OverrideTo::Drain => Some(Override::Drained),
            OverrideTo::Disable => Some(Override::Disabled),
            OverrideTo::Enable => None,
        };
        let now = self.gateway.clock.precise().mono;
        let changed = found
            .live
            .set_override(endpoint, overridden, now)
            .map_err(|error| AdminError::new(Code::Failed, error.to_string()))?;
        let state = found.live.state();
        let Some(changed) = changed else {
            let known: Vec<_> = state.endpoints().map(|(_, known)| known.label()).collect();
            let message = format!(
                "service {service:?} has no endpoint {endpoint:?}; it has {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
            return Err(AdminError::new(Code::NotFound, message));
        };
        self.checks.follow(&current.built.model.services);
        let there = state.endpoints().filter(|(_, known)| known.is_called(endpoint));
        let others = state.endpoints().filter(|(_, known)| known.overridden().is_none()).count();
        Ok(Overridden {
            changed,
            in_flight: there.map(|(_, known)| known.in_flight() as u64).sum(),
            others: others as u64,
        })
    }
}

/// What the operator is shown of a service.
pub(super) fn shown(stats: &ServiceStats, now: Mono) -> Upstream {
    Upstream {
        service: stats.name.clone(),
        panicking: stats.panicking,
        endpoints: stats.endpoints.iter().map(|endpoint| shown_endpoint(endpoint, now)).collect(),
    }
}

fn shown_endpoint(stats: &EndpointStats, now: Mono) -> UpstreamEndpoint {
    let last_check = stats.check.last.map(|result| result.as_str().to_owned());
    let ejected = stats.ejection.map(|ejection| ejection.cause.as_str().to_owned());
    let (state, cause) = if let Some(overridden) = stats.overridden {
        (overridden.as_str(), None)
    } else if stats.check.up == Some(false) {
        ("down", last_check.clone())
    } else if stats.ejection.is_some() {
        ("ejected", ejected.clone())
    } else {
        ("healthy", None)
    };
    let milliseconds =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    UpstreamEndpoint {
        address: stats.address.to_string(),
        name: stats.name.as_ref().map(ToString::to_string),
        region: stats.region.clone(),
        weight: stats.weight,
        state: state.to_owned(),
        cause,
        ejected,
        ejected_for_milliseconds: stats.ejection.map(|one| milliseconds(one.until.saturating_since(now))),
        check_up: stats.check.up,
        last_check,
        check_late_milliseconds: stats
            .check_waits_since
            .map(|since| milliseconds(now.saturating_since(since))),
        overridden: stats.overridden.map(|overridden| overridden.as_str().to_owned()),
        in_flight: stats.in_flight as u64,
        connections: stats.connections as u64,
        latency_ewma_microseconds: stats
            .latency
            .map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
    }
}

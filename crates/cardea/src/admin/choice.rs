//! How an endpoint of a service would be chosen now: for the command line by the socket, and for others by the TCP listener.

use cardea_gateway::{gateway::Gateway, workers};
use cardea_upstream::{
    Affinity, ChoiceExplanation, ChoiceStep, EndpointExplanation, RegionExplanation, Selection,
};

use super::protocol::{AdminError, Code, ExplainedChoice, ExplainedEndpoint, ExplainedRegion, ExplainedStep};

/// Explains the choice for an idempotent request, whose hash policy yields `key`.
pub(crate) fn explain(
    gateway: &Gateway,
    service: &str,
    key: Option<&str>,
) -> Result<ExplainedChoice, AdminError> {
    let model = gateway.model();
    let Some(found) = model.services.iter().find(|known| known.name == service) else {
        return Err(AdminError::new(Code::NotFound, format!("there is no service {service:?}")));
    };
    if key.is_some() && found.hash_policy.is_none() {
        let message = format!("service {service:?} has no hash_policy, so no key leads to an endpoint");
        return Err(AdminError::new(Code::Invalid, message));
    }
    let selection = Selection {
        worker: workers::current(),
        now: gateway.clock.precise_mono(),
        affinity: key.map(|key| Affinity::of(key.as_bytes())),
        may_be_lost: false,
    };
    Ok(shown(service, found.live.state().explain(&selection)))
}

fn shown(service: &str, explained: ChoiceExplanation) -> ExplainedChoice {
    ExplainedChoice {
        service: service.to_owned(),
        chosen: explained.chosen,
        steps: explained.steps.into_iter().map(shown_step).collect(),
        regions: explained.regions.into_iter().map(shown_region).collect(),
        endpoints: explained.endpoints.into_iter().map(shown_endpoint).collect(),
    }
}

fn shown_step(step: ChoiceStep) -> ExplainedStep {
    let costs = step.costs.map(|(cost, other)| (f64::from(cost), f64::from(other)));
    ExplainedStep {
        step: step.what.to_owned(),
        region: step.region,
        endpoint: step.endpoint,
        other: step.other,
        reason: step.obstacle.map(|obstacle| obstacle.as_str().to_owned()),
        cost: costs.map(|(cost, _)| cost),
        other_cost: costs.map(|(_, other)| other),
    }
}

fn shown_region(region: RegionExplanation) -> ExplainedRegion {
    let stats = region.stats;
    ExplainedRegion {
        region: stats.name,
        home: stats.is_home,
        round_trip_milliseconds: stats.round_trip.map(|taken| taken.as_secs_f64() * 1e3),
        measured: stats.is_measured,
        endpoints: stats.endpoints as u64,
        healthy: stats.healthy as u64,
        in_flight: u64::from(region.in_flight),
        band: region.band.map(f64::from),
        share: f64::from(stats.share),
    }
}

fn shown_endpoint(endpoint: EndpointExplanation) -> ExplainedEndpoint {
    ExplainedEndpoint {
        endpoint: endpoint.endpoint,
        region: endpoint.region,
        weight: endpoint.weight,
        obstacle: endpoint.obstacle.map(|obstacle| obstacle.as_str().to_owned()),
        share: f64::from(endpoint.share),
        in_flight: endpoint.in_flight as u64,
        latency_ewma_microseconds: endpoint.latency.map(|seconds| (seconds * 1e6) as u64),
    }
}

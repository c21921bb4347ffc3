//! Turns what the configuration says into what the libraries take, one value at a time.

use std::{collections::HashMap, num::NonZeroU32, path::PathBuf, sync::Arc};

use cardea_gateway::model::{AllowEncoded, Forwarding, Limits, PathPart, Prefix, ServiceTls};
use cardea_http::{ForwardedHeader, ForwardedPolicy, HeaderNameSet, h1::HeadLimits};
use cardea_identity::{Algorithm, ClaimNames, IssuerConfig, KeyRefresh, KeySource, LocalKeys, Preset};
use cardea_tls::{
    ClientTlsConfig, Roots, StatelessTickets, TicketKeys, TicketSecretConfig, client_config, server_name,
};
use cardea_upstream::{Address, EndpointConfig};

use crate::config::{self, Config};

pub(super) fn limits(config: &Config) -> Limits {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let head = HeadLimits {
        head_bytes_max: size(config.limits.head_bytes_max),
        target_bytes_max: size(config.limits.target_bytes_max),
        fields_max: size(u64::from(config.limits.fields_max)),
    };
    let response_head = HeadLimits {
        head_bytes_max: size(config.limits.response_head_bytes_max),
        fields_max: size(u64::from(config.limits.response_fields_max)),
        ..head
    };
    Limits {
        head,
        response_head,
        replay_bytes_max: size(config.limits.replay_bytes_max),
        replay_total_bytes_max: size(config.limits.replay_total_bytes_max),
        buffered_bytes_max: size(config.limits.buffered_bytes_max),
        http2_streams_max: config.limits.http2_streams_max,
        connections_max: size(u64::from(config.limits.connections_max)),
        connections_per_prefix_max: config
            .limits
            .connections_per_prefix_max
            .unwrap_or(config.limits.connections_max / 2)
            .max(1),
        handshakes_max: size(u64::from(config.limits.handshakes_max)),
        handshakes_per_prefix_max: config.limits.handshakes_per_prefix_max,
        new_connections_per_second_max: NonZeroU32::new(config.limits.new_connections_per_second_max),
    }
}

pub(super) fn forwarding(config: &Config, strangers: HeaderNameSet) -> Forwarding {
    Forwarding {
        via: config.forwarding.via.clone(),
        policy: match config.forwarding.forwarded {
            config::ForwardedPolicy::Set => ForwardedPolicy::Set,
            config::ForwardedPolicy::Append => ForwardedPolicy::Append,
            config::ForwardedPolicy::Trust => ForwardedPolicy::Trust,
            config::ForwardedPolicy::Off => ForwardedPolicy::Off,
        },
        header: match config.forwarding.header {
            config::ForwardedHeader::XForwarded => ForwardedHeader::XForwarded,
            config::ForwardedHeader::Forwarded => ForwardedHeader::Forwarded,
        },
        strangers,
    }
}

pub(super) fn prefixes(prefixes: &[config::IpPrefix]) -> Vec<Prefix> {
    prefixes.iter().map(|prefix| Prefix { address: prefix.address, bits: prefix.length }).collect()
}

pub(super) fn issuer_config(issuer: &config::Issuer, local_keys: &LocalKeys) -> IssuerConfig {
    let algorithm = |algorithm: &config::Algorithm| match algorithm {
        config::Algorithm::Rs256 => Algorithm::Rs256,
        config::Algorithm::Rs384 => Algorithm::Rs384,
        config::Algorithm::Rs512 => Algorithm::Rs512,
        config::Algorithm::Ps256 => Algorithm::Ps256,
        config::Algorithm::Ps384 => Algorithm::Ps384,
        config::Algorithm::Ps512 => Algorithm::Ps512,
        config::Algorithm::Es256 => Algorithm::Es256,
        config::Algorithm::Es384 => Algorithm::Es384,
        config::Algorithm::Es512 => Algorithm::Es512,
        config::Algorithm::EdDsa => Algorithm::EdDsa,
    };
    let paths = |names: &[String]| names.iter().map(|name| name.as_str().into()).collect();
    IssuerConfig {
        name: issuer.name.clone(),
        issuer: issuer.issuer.clone(),
        audiences: issuer.audiences.clone(),
        keys: match &issuer.keys {
            config::KeySource::Discovery => KeySource::Discovery,
            config::KeySource::Url(url) => KeySource::Url(url.clone()),
            config::KeySource::File(path) => KeySource::File(path.clone()),
            config::KeySource::Local => KeySource::Local(local_keys.clone()),
        },
        algorithms: issuer.algorithms.iter().map(algorithm).collect(),
        types: issuer.types.clone(),
        clock_skew: issuer.clock_skew,
        refresh: KeyRefresh { stale_if_error: issuer.stale_keys_max, ..KeyRefresh::default() },
        lifetime_max: issuer.lifetime_max,
        verdicts_max: issuer.verdicts_max,
        claims: ClaimNames { scopes: paths(&issuer.claims.scopes), roles: paths(&issuer.claims.roles) },
        preset: issuer.preset.as_ref().map(|preset| match preset.version {
            config::EntraVersion::V1 => Preset::EntraV1 { tenants: preset.tenants.clone() },
            config::EntraVersion::V2 => Preset::EntraV2 { tenants: preset.tenants.clone() },
        }),
        allow_private_addresses: issuer.allow_private_addresses,
        key_hosts: issuer.key_hosts.clone(),
        ca_file: issuer.ca_file.clone(),
        ..IssuerConfig::default()
    }
}

pub(super) fn endpoint(endpoint: &config::Endpoint) -> EndpointConfig {
    EndpointConfig {
        address: match &endpoint.address {
            config::Address::Tcp(address) => Address::Tcp(*address),
            config::Address::Name { host, port } => Address::Name { host: host.clone(), port: *port },
            config::Address::Unix(path) => Address::Unix(path.clone()),
        },
        region: endpoint.region.clone(),
        weight: endpoint.weight,
    }
}

/// The regions of a service's endpoints, by the labels that endpoints have in logs.
pub(super) fn regions(service: &config::Service) -> Vec<(String, String)> {
    let regions = service
        .endpoints
        .iter()
        .filter_map(|written| Some((endpoint(written).address.to_string(), written.region.clone()?)));
    regions.collect()
}

pub(super) fn service_tls(
    tls: &config::ServiceTls,
    shared: &mut HashMap<Option<PathBuf>, Arc<rustls::ClientConfig>>,
) -> Result<ServiceTls, cardea_tls::TlsError> {
    let config = match shared.get(&tls.ca_file) {
        Some(config) => Arc::clone(config),
        None => {
            let roots = tls.ca_file.clone().map_or(Roots::System, Roots::File);
            let config = client_config(&ClientTlsConfig { roots, ..ClientTlsConfig::default() })?;
            shared.insert(tls.ca_file.clone(), Arc::clone(&config));
            config
        }
    };
    let server_name = tls.server_name.as_deref().map(server_name).transpose()?;
    Ok(ServiceTls { config, server_name })
}

/// The tickets of the listener of this name.
pub(super) fn stateless_tickets(tickets: &config::StatelessTickets, listener: &str) -> StatelessTickets {
    let keys = match &tickets.secret {
        None => TicketKeys::Process,
        Some(file) => {
            TicketKeys::Fleet(TicketSecretConfig { file: file.clone(), context: listener.to_owned() })
        }
    };
    StatelessTickets { keys, tls12: tickets.tls12 }
}

/// Splits `/v2/{id}/x` into what stands and what is filled in. That each parameter is one of the route's pattern was
/// checked when the configuration was read.
pub(super) fn path_parts(text: &str) -> Vec<PathPart> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((literal, tail)) = rest.split_once('{') {
        let Some((name, after)) = tail.split_once('}') else { break };
        if !literal.is_empty() {
            parts.push(PathPart::Literal(literal.to_owned()));
        }
        parts.push(PathPart::Parameter(name.trim_start_matches('*').to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(PathPart::Literal(rest.to_owned()));
    }
    parts
}

pub(super) fn allow(bytes: &[config::EncodedPathByte]) -> AllowEncoded {
    AllowEncoded {
        slash: bytes.contains(&config::EncodedPathByte::Slash),
        encoded_backslash: bytes.contains(&config::EncodedPathByte::EncodedBackslash),
        backslash: bytes.contains(&config::EncodedPathByte::Backslash),
        parameters: bytes.contains(&config::EncodedPathByte::Parameters),
        nul: false,
    }
}

//! Services.

use std::{collections::HashSet, time::Duration};

use cardea_env::Template;
use cardea_gateway::{exchange::Exchange, model::Protocol};
use cardea_http::{Authority, Scheme};
use cardea_tls::{ClientTlsConfig, Roots, server_name};
use cardea_upstream::{
    Address, BreakerConfig, CheckConfig, CheckMethod, CheckProtocol, ENDPOINTS_MAX, EndpointSource,
    HealthConfig, PoolConfig, ServiceConfig, Target,
};

use super::{
    super::{
        document::Cursor,
        model::{Failover, General, Located, Service, ServiceTls, SourceText, Throttle},
        raw::{RawEndpoint, RawService},
        text::display_duration,
    },
    Resolver, request_timeout,
};

impl Resolver<'_> {
    pub(super) fn services(
        &mut self,
        raw: Vec<RawService>,
        general: &General,
        throttles: &[Located<Throttle>],
        at: Cursor<'_>,
    ) -> Vec<Located<Service>> {
        self.each(raw, at, |this, raw, at| this.service(raw, general, throttles, at))
    }

    fn service(
        &mut self,
        raw: RawService,
        general: &General,
        throttles: &[Located<Throttle>],
        at: Cursor<'_>,
    ) -> Service {
        let request = request_timeout(&general.exchanges);
        if let Some(connect) = raw.connect_timeout {
            self.leaves_time(("connect_timeout", connect), ("timeouts.request", request), at);
        }
        let needs_name = raw.tls.as_ref().is_some_and(|tls| tls.server_name.is_none());
        let endpoints = self.endpoints(raw.endpoint, needs_name, at.key("endpoint"));
        let tls = raw.tls.map(|tls| {
            let at = at.key("tls");
            let name = tls.server_name.and_then(|name| {
                let found = server_name(&name);
                if found.is_err() {
                    let at = at.key("server_name");
                    self.error(
                        at,
                        format!("{:?} is not a name that a certificate can have", at.shown(&name)),
                        "write a host name or an IP address",
                    );
                }
                found.ok()
            });
            let roots = tls.ca_file.map(|file| Roots::File(self.key_file(at.key("ca_file"), &file).0));
            let client = ClientTlsConfig { roots: roots.unwrap_or_default(), ..ClientTlsConfig::default() };
            ServiceTls { client, server_name: name }
        });
        let pool = PoolConfig {
            idle_max: raw.pool.idle_max,
            connections_max: raw.pool.connections_max,
            requests_max: raw.pool.requests_max,
            age_max: raw.pool.age_max,
            streams_max: raw.pool.streams_max,
            idle_timeout: raw.pool.idle_timeout.unwrap_or(general.pool.idle_timeout),
            ..general.pool
        };
        let mut failover = general.failover;
        raw.failover.apply(&mut failover);
        // What all services have is reported once.
        if failover != general.failover {
            self.failover(&failover, request, at.key("failover"));
        }
        let hash_policy = raw.hash_policy.and_then(|text| self.hash_policy(text, at.key("hash_policy")));
        let mut check = general.check.clone();
        raw.health_check.apply(&mut check);
        if check != general.check {
            self.health_check(&check, at.key("health_check"));
        }
        let protocol = raw.protocol.unwrap_or_default();
        if protocol == Protocol::Http2 && check.protocol == CheckProtocol::Http {
            self.error(
                at.key("protocol"),
                "its endpoints are checked by requests of HTTP/1.1, which a service with \"http2\" may not take",
                "write protocol = \"tcp\" in the service's health_check, or protocol = \"auto\" in the service",
            );
        }
        Service {
            config: ServiceConfig {
                pool,
                balance: raw.balance.unwrap_or(general.balance),
                breaker: BreakerConfig {
                    requests_max: raw.circuit_breaker.requests_max,
                    pending_max: raw.circuit_breaker.pending_max,
                },
                health: failover.health,
                check,
                retry: failover.retry,
                spill: failover.spill,
                ..ServiceConfig::new(raw.name, Vec::new())
            },
            endpoints,
            protocol,
            connect_timeout: raw.connect_timeout.unwrap_or(general.exchanges.connect),
            hash_policy,
            admission: self.service_admission(&raw.admission, general, at.key("admission")),
            throttles: self.throttle_names(raw.throttles, throttles, at.key("throttles")),
            tls,
        }
    }

    fn endpoints(&mut self, raw: Vec<RawEndpoint>, needs_name: bool, at: Cursor<'_>) -> Vec<EndpointSource> {
        if raw.len() > ENDPOINTS_MAX {
            let message = format!("a service has at most {ENDPOINTS_MAX} endpoints");
            self.error(at, message, "divide them among several services");
        }
        let mut targets = HashSet::new();
        let mut endpoints = Vec::with_capacity(raw.len());
        for (index, raw) in raw.into_iter().enumerate() {
            let at = at.index(index);
            let (target, key) = match (raw.address, raw.srv) {
                (Some(target), None) => (target, "address"),
                (None, Some(name)) => (Target::Name(name), "srv"),
                (Some(_), Some(_)) => {
                    self.error(
                        at.key("srv"),
                        "an endpoint has an address or srv, not both",
                        "remove one of them",
                    );
                    continue;
                }
                (None, None) => {
                    if !at.lost_any(&["address", "srv"]) {
                        self.error(at, "the endpoint has no address", r#"add address = "10.0.0.1:8080""#);
                    }
                    continue;
                }
            };
            let at_target = at.key(key);
            if key == "srv" && raw.weight != 1 {
                self.error(at.key("weight"), "SRV records have weights of their own", "remove weight");
            }
            if needs_name && matches!(target, Target::Address(Address::Unix(_))) {
                self.error(
                    at_target,
                    "TLS to a Unix socket has no name to verify",
                    "add server_name to the service's tls table",
                );
            }
            if !targets.insert(target.clone()) {
                self.error(
                    at_target,
                    format!("{target} is there twice"),
                    "remove one, and give the other more weight if it should get more",
                );
            }
            let (region, weight, capacity) = (raw.region, raw.weight, raw.capacity);
            endpoints.push(EndpointSource { target, region, weight, capacity });
        }
        endpoints
    }

    /// A template of a key, which is never shown.
    fn hash_policy(&mut self, text: String, at: Cursor<'_>) -> Option<Template<Exchange>> {
        let template = self.raw_template(&SourceText { text, at: at.location() })?;
        if template.constant().is_some() {
            self.error(
                at,
                "it reads no attribute, so that all requests would go to one endpoint",
                "name one in braces: \"{token.sub}\"",
            );
        }
        Some(template)
    }

    /// What a check sends, and whether it can be passed.
    pub(super) fn health_check(&mut self, check: &CheckConfig, at: Cursor<'_>) {
        let is_target = |path: &str| {
            path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
        };
        if !is_target(&check.path) {
            self.error(
                at.key("path"),
                format!("{:?} is no path of a request", at.shown(&check.path)),
                "write it as it is sent: \"/\" first, no spaces, other bytes percent-encoded",
            );
        }
        if let Some(host) = &check.host
            && Authority::parse(host.as_bytes(), Scheme::Http).is_err()
        {
            self.error(
                at.key("host"),
                format!("{:?} is no host", at.shown(host)),
                "write a host name or an IP address, with a port if it is not the default one",
            );
        }
        if check.body_contains.is_some() && check.method == CheckMethod::Head {
            self.error(
                at.key("body_contains"),
                "a response to HEAD has no body",
                "remove it, or use method = \"GET\"",
            );
        }
    }

    /// The relations between keys that hold for all services or for one.
    pub(super) fn failover(&mut self, failover: &Failover, request: Duration, at: Cursor<'_>) {
        let HealthConfig { ejection_time, ejection_time_max, .. } = failover.health;
        if ejection_time > ejection_time_max {
            self.error(
                at.key("ejection_time"),
                format!(
                    "ejection_time ({}) is above ejection_time_max ({})",
                    display_duration(ejection_time),
                    display_duration(ejection_time_max)
                ),
                "lower ejection_time, or raise ejection_time_max",
            );
        }
        if let Some(limit) = failover.retry.try_timeout {
            self.leaves_time(("try_timeout", limit), ("timeouts.request", request), at);
        }
    }
}

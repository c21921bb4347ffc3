//! Services.

use std::collections::HashSet;

use rustls::pki_types::ServerName;

use super::{
    super::{
        document::Cursor,
        model::{Endpoint, Service, ServicePool, ServiceTls},
        raw::RawService,
        rules::FieldTemplate,
        sections::Timeouts,
        text::{Address, display_duration},
    },
    Resolver,
};

impl Resolver<'_> {
    pub(super) fn services(
        &mut self,
        raw: Vec<RawService>,
        timeouts: &Timeouts,
        at: Cursor<'_>,
    ) -> Vec<Service> {
        let mut services = Vec::with_capacity(raw.len());
        for (index, raw) in raw.into_iter().enumerate() {
            let at = at.index(index);
            let before = self.problems.reported();
            let mut service = self.service(raw, timeouts, at);
            service.is_sound = self.is_sound_since(before, at);
            services.push(service);
        }
        services
    }

    fn service(&mut self, raw: RawService, timeouts: &Timeouts, at: Cursor<'_>) -> Service {
        if let Some(connect) = raw.connect_timeout
            && connect >= timeouts.request
        {
            self.error(
                at.key("connect_timeout"),
                format!(
                    "connect_timeout ({}) is not below timeouts.request ({})",
                    display_duration(connect),
                    display_duration(timeouts.request)
                ),
                "lower it, so that there is time left for another endpoint",
            );
        }
        let mut addresses = HashSet::new();
        for (index, endpoint) in raw.endpoint.iter().enumerate() {
            let at = at.key("endpoint").index(index).key("address");
            if !addresses.insert(&endpoint.address) {
                self.error(
                    at,
                    format!("{} is there twice", endpoint.address),
                    "remove one, and give the other more weight if it should get more",
                );
            }
            let nameless = matches!(endpoint.address, Address::Unix(_));
            if nameless && raw.tls.as_ref().is_some_and(|tls| tls.server_name.is_none()) {
                self.error(
                    at,
                    "TLS to a Unix socket has no name to verify",
                    "add server_name to the service's tls table",
                );
            }
        }
        let tls = raw.tls.map(|tls| {
            let at = at.key("tls");
            if let Some(name) = &tls.server_name
                && ServerName::try_from(name.as_str()).is_err()
            {
                self.error(
                    at.key("server_name"),
                    format!(
                        "{:?} is not a name that a certificate can have",
                        at.key("server_name").shown(name)
                    ),
                    "write a host name or an IP address",
                );
            }
            let ca_file = tls.ca_file.map(|file| self.key_file(at.key("ca_file"), &file).0);
            ServiceTls { ca_file, server_name: tls.server_name }
        });
        Service {
            name: raw.name,
            connect_timeout: raw.connect_timeout.unwrap_or(timeouts.connect),
            hash_policy: raw
                .hash_policy
                .map(|text| FieldTemplate { text, at: at.key("hash_policy").place() }),
            tls,
            pool: ServicePool {
                idle_max: raw.pool.idle_max as usize,
                connections_max: raw.pool.connections_max.map(|max| max as usize),
                idle_timeout: raw.pool.idle_timeout.unwrap_or(timeouts.upstream_keep_alive_idle),
            },
            endpoints: raw
                .endpoint
                .into_iter()
                .map(|raw| Endpoint { address: raw.address, region: raw.region, weight: raw.weight })
                .collect(),
            at: at.place(),
            is_sound: false,
        }
    }
}

//! How the endpoints of a service are checked.

use cardea_upstream::{Address, CheckConfig, Endpoint};
use rustls::pki_types::ServerName;

use crate::{
    model::ServiceTls,
    upstream::{Pooled, check},
};

/// How the endpoints of a service are checked.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) config: CheckConfig,
    pub(super) tls: Option<ServiceTls>,
}

impl Settings {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let tls = match (&self.tls, &other.tls) {
            (Some(one), Some(other)) => {
                std::sync::Arc::ptr_eq(&one.config, &other.config) && one.server_name == other.server_name
            }
            (None, None) => true,
            _ => false,
        };
        tls && self.config == other.config
    }

    /// The request that an endpoint is checked with over HTTP.
    pub(super) fn request(&self, endpoint: &Endpoint<Pooled>) -> Vec<u8> {
        check::request(&self.host(endpoint), &self.config)
    }

    /// The `Host` of a request.
    fn host(&self, endpoint: &Endpoint<Pooled>) -> String {
        let certificate = self.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
        match (&self.config.host, certificate, endpoint.name(), endpoint.address()) {
            (Some(host), ..) => host.clone(),
            (None, Some(ServerName::DnsName(name)), ..) => name.as_ref().to_owned(),
            (None, _, Some(name), _) => match name.port() {
                Some(port) => format!("{}:{port}", name.verified()),
                None => name.verified().to_owned(),
            },
            (None, _, None, Address::Unix(_)) => "localhost".to_owned(),
            (None, _, None, address) => address.to_string(),
        }
    }
}

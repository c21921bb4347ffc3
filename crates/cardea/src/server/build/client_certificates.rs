//! Who vouches for clients, which hosts ask them, and whether what routes want can ever be had.

use std::{collections::HashMap, sync::Arc};

use cardea_gateway::{
    client_certificate::{ClientCertificateForward, ClientCertificateRule},
    model::ListenerModel,
};
use cardea_tls::{ClientAuthConfig, ClientAuthMode, ClientAuthority, ClientAuthorityConfig, ClientDemand};

use super::Builder;
use crate::config;

impl Builder<'_> {
    /// Loads all of them. One whose settings are the same goes on.
    pub(super) fn client_authorities(&mut self) {
        for authority in self.config.client_authorities.iter().filter(|one| one.is_sound) {
            let settings = ClientAuthorityConfig {
                name: authority.name.clone(),
                roots: authority.ca_file.clone(),
                crls: authority.crl_files.clone(),
            };
            let old = self.previous.and_then(|built| built.client_authorities.get(&authority.name));
            let loaded = match old.filter(|old| *old.config() == settings) {
                Some(old) => old.reload_if_changed().map(|_| Arc::clone(old)),
                None => ClientAuthority::load(&settings),
            };
            match loaded {
                Ok(loaded) => {
                    self.client_authorities.insert(authority.name.clone(), loaded);
                }
                Err(error) => self.problem(authority.at, error, "see the file named"),
            }
        }
    }

    /// How the hosts of a certificate ask. An authority that could not be loaded has its own problem reported already.
    pub(super) fn client_auth(&self, certificate: &config::Certificate) -> Option<ClientAuthConfig> {
        let mode = match certificate.client_certificate {
            config::ClientCertificateMode::Off => return None,
            config::ClientCertificateMode::Request => ClientAuthMode::Request,
            config::ClientCertificateMode::Require => ClientAuthMode::Require,
        };
        Some(ClientAuthConfig { mode, authorities: self.named(&certificate.client_authorities) })
    }

    pub(super) fn client_certificate(&self, rule: &config::ClientCertificateRule) -> ClientCertificateRule {
        ClientCertificateRule {
            required: rule.need == config::ClientCertificateNeed::Required,
            demand: ClientDemand {
                authorities: self.named(&rule.authorities),
                names: rule.names.clone(),
                fingerprints: rule.fingerprints.clone(),
            },
            step_up: rule.step_up.as_ref().map(|step_up| match step_up.port {
                None => step_up.host.clone(),
                Some(port) => format!("{}:{port}", step_up.host),
            }),
            forward: match rule.forward {
                config::ClientCertificateForward::None => ClientCertificateForward::Nothing,
                config::ClientCertificateForward::Leaf => ClientCertificateForward::Leaf,
                config::ClientCertificateForward::Chain => ClientCertificateForward::Chain,
            },
        }
    }

    /// A route that wants what no handshake asks for would let nobody in, and send clients in circles.
    pub(super) fn check_client_certificates(&mut self, listeners: &HashMap<String, Arc<ListenerModel>>) {
        let tls: Vec<_> = listeners.values().filter_map(|listener| listener.tls.as_ref()).collect();
        let is_complete = tls.len()
            == self.config.listeners.iter().filter(|listener| listener.tls.is_some()).count()
            && self.client_authorities.len() == self.config.client_authorities.len()
            && self.config.listeners.iter().all(|listener| listener.is_sound);
        if !is_complete {
            // What could not be loaded is reported.
            return;
        }
        for route in self.config.routes.iter().filter(|route| route.is_sound) {
            let Some(rule) = &route.client_certificate else { continue };
            let fits = |asked: &ClientAuthConfig| {
                rule.authorities.is_empty()
                    || asked.authorities.iter().any(|one| rule.authorities.contains(&one.config().name))
            };
            if !tls.iter().any(|tls| tls.client_auths().iter().any(fits)) {
                self.problem(
                    rule.at,
                    format!("no listener asks for a certificate that the route \"{}\" would take", route.name),
                    "set client_certificate = \"request\" and client_authorities on [listener.tls] or one of its certificates",
                );
            } else if let Some(step_up) = &rule.step_up
                && !tls.iter().any(|tls| tls.client_auth_of(&step_up.host).as_ref().is_some_and(fits))
            {
                self.problem(
                    rule.at,
                    format!("nobody is asked for a certificate that would do at the step-up host \"{}\"", step_up.host),
                    "set client_certificate = \"request\" and client_authorities on the certificate of that host",
                );
            }
        }
    }

    fn named(&self, names: &[String]) -> Vec<Arc<ClientAuthority>> {
        names.iter().filter_map(|name| self.client_authorities.get(name).map(Arc::clone)).collect()
    }
}

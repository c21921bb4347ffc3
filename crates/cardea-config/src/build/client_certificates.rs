//! Client certificates: loads the authorities, and checks that the rules of routes can be met.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use cardea_gateway::{client_certificate::ClientCertificateRule, model::ListenerModel};
use cardea_tls::{
    CertificateRequirement, ClientAuthConfig, ClientAuthMode, ClientAuthority, HostRequirements, ServerTls,
};

use super::{
    super::{
        model::{self, Located},
        source::Location,
    },
    Builder,
};

impl Builder<'_> {
    /// Loads all client authorities. One with unchanged settings is kept.
    pub(super) fn client_authorities(&mut self) {
        for authority in self.config.client_authorities.iter().filter(|one| one.is_sound) {
            let settings = &authority.value;
            let old = self.previous.and_then(|built| built.client_authorities.get(&authority.name));
            let loaded = match old.filter(|old| old.config() == settings) {
                Some(old) => old.reload_if_changed().map(|_| Arc::clone(old)),
                None => ClientAuthority::load(settings),
            };
            match loaded {
                Ok(loaded) => {
                    for fault in loaded.faults(self.foundation.clock.wall()) {
                        self.warn(authority.at, fault.to_string(), fault.problem.remedy());
                    }
                    self.client_authorities.insert(authority.name.clone(), loaded);
                }
                Err(error) => self.problem(authority.at, error, "see the file named"),
            }
        }
    }

    /// The client certificate policy of a certificate's hosts. An authority that could not be loaded was reported
    /// already.
    pub(super) fn client_auth(&self, certificate: &model::Certificate) -> Option<ClientAuthConfig> {
        let mode = certificate.client_certificate?;
        Some(ClientAuthConfig { mode, authorities: self.named(&certificate.client_authorities) })
    }

    pub(super) fn client_certificate(&self, rule: &model::ClientCertificateRule) -> ClientCertificateRule {
        ClientCertificateRule {
            required: rule.required,
            requirement: CertificateRequirement {
                authorities: self.named(&rule.authorities),
                names: rule.names.clone(),
                fingerprints: rule.fingerprints.clone(),
            },
            step_up: rule.step_up.as_ref().map(|step_up| match step_up.port {
                None => step_up.host.clone(),
                Some(port) => format!("{}:{port}", step_up.host),
            }),
            forward: rule.forward,
        }
    }

    /// Reports routes that require a certificate which no handshake requests: they would refuse all clients, or
    /// redirect them in a loop.
    pub(super) fn check_client_certificates(&mut self, listeners: &HashMap<String, Arc<ListenerModel>>) {
        if !self.has_all(listeners) {
            return;
        }
        for route in self.config.routes.iter().filter(|route| route.is_sound) {
            let Some(rule) = &route.client_certificate else { continue };
            let fits = |asked: &ClientAuthConfig| {
                rule.authorities.is_empty()
                    || asked.authorities.iter().any(|one| rule.authorities.contains(&one.config().name))
            };
            let tls = tls_of(route, listeners);
            if !tls.iter().any(|tls| tls.client_auths().iter().any(fits)) {
                self.problem(
                    rule.at,
                    format!("no listener of the route \"{}\" asks for a certificate that it would take", route.name),
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

    /// What the hosts of certificates require, over all listeners. Where certificates are not loaded, by what is
    /// configured; then also the certificates whose hosts can't be told, with which nothing can be said of any.
    pub(super) fn requirements(
        &mut self,
        listeners: &HashMap<String, Arc<ListenerModel>>,
    ) -> (Option<HostRequirements>, Vec<PathBuf>) {
        let unloaded = |listener: &Located<model::Listener>| {
            let tls = listener.unloaded_tls.as_ref()?;
            Some((listener.name.clone(), self.certificate_configs(tls)))
        };
        let unloaded: Vec<_> = self.config.listeners.iter().filter_map(unloaded).collect();
        if !unloaded.is_empty() {
            let declared = unloaded.iter().map(|(name, certificates)| (name.as_str(), certificates.clone()));
            return match HostRequirements::declared(declared) {
                Ok(requirements) => (requirements, Vec::new()),
                Err(unknown) => (None, unknown),
            };
        }
        (self.loaded_requirements(listeners), Vec::new())
    }

    fn loaded_requirements(
        &mut self,
        listeners: &HashMap<String, Arc<ListenerModel>>,
    ) -> Option<HostRequirements> {
        if !self.has_all(listeners) {
            return None;
        }
        let config = self.config;
        self.check_hosts_are_named();
        // In configured order, so that messages about two of them are stable.
        let secure = config.listeners.iter().filter_map(|listener| {
            Some((listener.name.as_str(), Arc::clone(listeners.get(&listener.name)?.tls.as_ref()?)))
        });
        let requirements = HostRequirements::new(secure)?;
        for contradiction in requirements.contradictions() {
            let first = config.sources.position(self.certificate_location(
                listeners,
                &contradiction.first,
                &contradiction.host,
            ));
            let message = format!(
                "clients of {} are not asked here as they are at {first}, and one of the two requires a client certificate",
                contradiction.host
            );
            let at = self.certificate_location(listeners, &contradiction.second, &contradiction.host);
            self.problem(
                at,
                message,
                "what a host requires holds wherever it is asked for: require the same client_authorities in both places",
            );
        }
        for route in config.routes.iter().filter(|route| route.is_sound) {
            for host in &route.matches.hosts {
                let Some(asking) = requirements.listeners_that_ask(&host.to_string()) else { continue };
                let is_bound = |name: &str| route.matches.listeners.iter().any(|bound| bound == name);
                if !route.matches.listeners.is_empty() && !asking.iter().any(|name| is_bound(name)) {
                    let message = format!(
                        "the host {host} requires client certificates, and no listener of the route \"{}\" asks for them, \
                         so that every request is refused",
                        route.name
                    );
                    let remedy = format!("bind the route to a listener that does: {}", asking.join(", "));
                    self.problem(route.at, message, &remedy);
                }
            }
        }
        Some(requirements)
    }

    /// Reports certificates that require those of clients for the hosts that their files name, where other certificates require
    /// less: another file, put there by a renewal, would open the hosts that it does not name.
    fn check_hosts_are_named(&mut self) {
        let tls = self.config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let certificates: Vec<_> = tls.flat_map(|tls| &tls.certificates).collect();
        let requires = |certificate: &model::Certificate| {
            certificate.client_certificate == Some(ClientAuthMode::Require)
        };
        for certificate in
            certificates.iter().filter(|certificate| certificate.is_sound && requires(certificate))
        {
            let is_named = !certificate.hosts.is_empty();
            let is_alone = certificates
                .iter()
                .all(|other| requires(other) && other.client_authorities == certificate.client_authorities);
            if !is_named && !is_alone {
                self.problem(
                    certificate.at,
                    "this certificate requires those of clients, and only its file tells for which hosts: another file would end it",
                    "name them: hosts = [\"…\"]",
                );
            }
        }
    }

    /// Warns of route hosts that no certificate names: their clients get the default certificate with its requirements.
    pub(super) fn check_certificates_of_routes(&mut self, listeners: &HashMap<String, Arc<ListenerModel>>) {
        if !self.has_all(listeners) {
            return;
        }
        let config = self.config;
        for route in config.routes.iter().filter(|route| route.is_sound) {
            let secure = tls_of(route, listeners);
            if secure.is_empty() {
                continue;
            }
            for host in &route.matches.hosts {
                if !secure.iter().any(|tls| tls.has_certificate_for(&host.to_string())) {
                    let message = format!(
                        "no certificate of the route's listeners names {host}, so that its clients get the default certificate \
                         and are required what that one requires"
                    );
                    let remedy = "name it in a certificate, or bind the route to the listeners that serve it";
                    self.warn(route.at, message, remedy);
                }
            }
        }
    }

    /// The location of a host's certificate, or else of its listener.
    fn certificate_location(
        &self,
        listeners: &HashMap<String, Arc<ListenerModel>>,
        listener: &str,
        host: &str,
    ) -> Location {
        let Some(written) = self.config.listeners.iter().find(|one| one.name == listener) else {
            return Location::default();
        };
        // Its names may be known only from its file.
        let served = listeners.get(listener).and_then(|listener| listener.tls.as_ref());
        let served = served.map(|tls| tls.certificates()).unwrap_or_default();
        let of_host = served.iter().find(|info| info.hosts.iter().any(|name| name == host));
        let is_meant = |certificate: &&Located<model::Certificate>| {
            let is_file = matches!(
                &certificate.source,
                model::CertificateSource::Files { chain, .. } if of_host.is_some_and(|info| info.path == *chain)
            );
            is_file || certificate.hosts.iter().any(|name| name == host)
        };
        let mut certificates = written.tls.iter().flat_map(|tls| &tls.certificates);
        certificates.find(is_meant).map_or(written.at, |certificate| certificate.at)
    }

    /// Whether the TLS of all listeners could be loaded; failures were reported.
    fn has_all(&self, listeners: &HashMap<String, Arc<ListenerModel>>) -> bool {
        let secure = |listener: &&Located<model::Listener>| listener.tls.is_some();
        let loaded = listeners.values().filter(|listener| listener.tls.is_some()).count();
        loaded == self.config.listeners.iter().filter(secure).count()
            && self.client_authorities.len() == self.config.client_authorities.len()
            && self
                .config
                .listeners
                .iter()
                .all(|listener| listener.is_sound && listener.unloaded_tls.is_none())
    }

    fn named(&self, names: &[String]) -> Vec<Arc<ClientAuthority>> {
        names.iter().filter_map(|name| self.client_authorities.get(name).map(Arc::clone)).collect()
    }
}

/// TLS of the listeners that a route is bound to.
fn tls_of<'l>(
    route: &model::Route,
    listeners: &'l HashMap<String, Arc<ListenerModel>>,
) -> Vec<&'l Arc<ServerTls>> {
    let bound = &route.matches.listeners;
    let listeners = listeners.iter().filter(|(name, _)| bound.is_empty() || bound.contains(name));
    listeners.filter_map(|(_, listener)| listener.tls.as_ref()).collect()
}

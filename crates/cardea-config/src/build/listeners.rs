//! Listeners and their TLS.

use std::{collections::HashMap, sync::Arc};

use cardea_gateway::{metrics::ListenerMetrics, model::ListenerModel};
use cardea_tls::{
    CertificateConfig, CertificateError, ManagedCertificate, OcspConfig, ServerTls, ServerTlsConfig, TlsError,
};

use super::{
    super::model::{self, Located},
    Builder, Built,
};

impl Builder<'_> {
    pub(super) fn listeners(&mut self) -> HashMap<String, Arc<ListenerModel>> {
        let mut models = HashMap::new();
        for listener in &self.config.listeners {
            let tls = match &listener.tls {
                None => None,
                Some(tls) => match self.server_tls(listener, tls) {
                    Some(tls) => Some(tls),
                    None => continue,
                },
            };
            let known = self.previous.and_then(|built| built.model.listeners.get(&listener.name));
            let metrics = known.map_or_else(
                || Arc::new(ListenerMetrics::new(&listener.name)),
                |known| Arc::clone(&known.metrics),
            );
            let model = ListenerModel {
                name: listener.name.clone(),
                tls,
                proxy_protocol: listener.proxy_protocol.clone(),
                redirect_to_https: listener.redirect_to_https,
                h2c: listener.h2c,
                metrics,
            };
            models.insert(listener.name.clone(), Arc::new(model));
        }
        models
    }

    /// Reports a gateway none of whose listeners can serve anything.
    pub(super) fn check_something_is_served(&mut self, listeners: &HashMap<String, Arc<ListenerModel>>) {
        let serves = |listener: &Arc<ListenerModel>| match &listener.tls {
            None => true,
            // A certificate that has yet to be issued will be served later.
            Some(tls) => {
                tls.certificate_states().iter().any(|state| state.served.is_some() || state.is_awaited)
            }
        };
        if listeners.is_empty() || listeners.values().any(serves) {
            return;
        }
        for listener in &self.config.listeners {
            let Some(tls) = listeners.get(&listener.name).and_then(|model| model.tls.as_ref()) else {
                continue;
            };
            for problem in tls.certificate_states().iter().flat_map(|state| &state.problems) {
                self.problem(listener.at, problem, "see the file named");
            }
        }
    }

    /// The certificates of a listener that are sound.
    pub(super) fn certificate_configs(&self, tls: &model::ListenerTls) -> Vec<CertificateConfig> {
        let certificate = |certificate: &Located<model::Certificate>| {
            let settings = match &certificate.source {
                model::CertificateSource::Files { chain, key } => CertificateConfig {
                    chain: chain.clone(),
                    key: key.clone(),
                    hosts: certificate.hosts.clone(),
                    managed: None,
                    trust_domain: certificate.trust_domain.clone(),
                    client_auth: None,
                    ocsp: None,
                },
                model::CertificateSource::Memory(place) => place.config(&certificate.trust_domain),
                model::CertificateSource::Acme => {
                    let hosts = &certificate.hosts;
                    let place = self.foundation.provider.certificate(hosts);
                    // In a check, no certificate is issued yet.
                    let place = place.unwrap_or_else(|| ManagedCertificate::new("acme", hosts.clone()));
                    place.config(&certificate.trust_domain)
                }
            };
            let ocsp = certificate.ocsp.clone();
            CertificateConfig { client_auth: self.client_auth(certificate), ocsp, ..settings }
        };
        tls.certificates.iter().filter(|one| one.is_sound).map(certificate).collect()
    }

    /// TLS of a listener. One whose settings are the same goes on, with its sessions.
    fn server_tls(
        &mut self,
        listener: &Located<model::Listener>,
        tls: &model::ListenerTls,
    ) -> Option<Arc<ServerTls>> {
        let settings =
            ServerTlsConfig { certificates: self.certificate_configs(tls), ..tls.settings.clone() };
        if settings.certificates.is_empty() && !tls.certificates.is_empty() {
            // None of them is sound, which was reported.
            return None;
        }
        self.tls.insert(listener.name.clone(), settings.clone());
        let same = |built: &&Built| built.tls.get(&listener.name) == Some(&settings);
        let old = self.previous.filter(same).and_then(|built| built.model.listeners.get(&listener.name));
        if let Some(old) = old.and_then(|old| old.tls.as_ref()) {
            // Changed files are read now, so that a reload reports their problems.
            if let Err(error) = old.reload_if_changed(self.foundation.clock.wall()) {
                self.problem(listener.at, error, "see the file named");
            }
            return Some(Arc::clone(old));
        }
        // At a start all are tolerated, at a reload only those that are already unusable.
        let running = self.previous.map(|built| built.unusable_certificates());
        let tolerates = |certificate: &CertificateConfig| match &running {
            None => self.foundation.tolerates_certificates,
            Some(unusable) => unusable.contains(&certificate.chain),
        };
        match ServerTls::load_tolerating(&settings, &self.foundation.clock, &tolerates) {
            Ok(tls) => Some(Arc::new(tls)),
            Err(TlsError::Certificates(errors)) => {
                for error in errors {
                    self.certificate_problem(listener, tls, &error);
                }
                None
            }
            Err(error) => {
                self.problem(listener.at, error, "see the file named");
                None
            }
        }
    }

    /// Reports a problem of a certificate, at the certificate's location.
    fn certificate_problem(
        &mut self,
        listener: &Located<model::Listener>,
        tls: &model::ListenerTls,
        error: &CertificateError,
    ) {
        let names_it = |certificate: &&Located<model::Certificate>| {
            let staple = match &certificate.ocsp {
                Some(OcspConfig::File(path)) => Some(path),
                Some(OcspConfig::Fetch) | None => None,
            };
            let model::CertificateSource::Files { chain, key } = &certificate.source else { return false };
            [Some(chain), Some(key), staple].contains(&Some(&error.path))
        };
        let at = tls.certificates.iter().find(names_it).map_or(listener.at, |certificate| certificate.at);
        self.problem(at, error, "see the file named");
    }
}

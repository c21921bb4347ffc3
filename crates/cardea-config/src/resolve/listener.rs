//! Listeners.

use std::path::PathBuf;

use cardea_env::Network;
use cardea_gateway::model::ProxyProtocol;
use cardea_tls::{
    ClientAuthMode, OcspConfig, ServerTlsConfig, StatelessTickets, TicketKeys, TicketSecretConfig,
};

use super::{
    super::{
        document::Cursor,
        model::{Certificate, CertificateSource, Listener, ListenerTls, Located, Route},
        raw::{RawCertificate, RawListener, RawListenerTls, RawRedirectToHttps},
        sections::{ClientCertificateMode, ProxyProtocolVersion, Tickets},
        text::BindAddress,
    },
    Resolver,
    path::host_pattern,
};

/// The most early data of a client: a request head of usual size, and the content of one record.
const EARLY_DATA_BYTES_MAX: u32 = 16 << 10;
/// The default permissions of a Unix socket: its owner and group.
const SOCKET_MODE: u32 = 0o660;

impl Resolver<'_> {
    pub(super) fn listeners(
        &mut self,
        raw: Vec<RawListener>,
        authorities: &[&str],
        trusted: &[Network],
        root: Cursor<'_>,
    ) -> Vec<Located<Listener>> {
        let at = root.key("listener");
        if raw.is_empty() && !self.dropped.any("listener") {
            self.error(
                root,
                "there is no listener, so nothing could reach the gateway",
                "add a table [[listener]] with name and address",
            );
        }
        self.each(raw, at, |this, raw, at| this.listener(raw, authorities, trusted, at))
    }

    fn listener(
        &mut self,
        raw: RawListener,
        authorities: &[&str],
        trusted: &[Network],
        at: Cursor<'_>,
    ) -> Listener {
        let is_unix = matches!(raw.address, BindAddress::Unix(_));
        if raw.mode.is_some() && !is_unix {
            self.error(at.key("mode"), "mode is for Unix sockets only", "remove it");
        }
        let redirect_to_https = match raw.redirect_to_https {
            None | Some(RawRedirectToHttps::Switch(false)) => None,
            Some(RawRedirectToHttps::Switch(true)) => Some(443),
            Some(RawRedirectToHttps::Port(port)) => Some(port),
        };
        if redirect_to_https.is_some() && raw.tls.is_some() {
            self.error(
                at.key("redirect_to_https"),
                "a listener with TLS redirects to itself",
                "remove redirect_to_https here, and set it on the listener without TLS",
            );
        }
        let (v1, v2) = match raw.proxy_protocol {
            ProxyProtocolVersion::Off => (false, false),
            ProxyProtocolVersion::V1 => (true, false),
            ProxyProtocolVersion::V2 => (false, true),
            ProxyProtocolVersion::Any => (true, true),
        };
        let speaks_proxy = v1 || v2;
        if !speaks_proxy && !raw.proxy_protocol_from.is_empty() {
            self.error(
                at.key("proxy_protocol_from"),
                "proxy_protocol_from has no effect while proxy_protocol is off",
                "set proxy_protocol, or remove it",
            );
        }
        let trusted =
            if raw.proxy_protocol_from.is_empty() { trusted.to_vec() } else { raw.proxy_protocol_from };
        if speaks_proxy
            && !is_unix
            && trusted.is_empty()
            && !at.lost_any(&["proxy_protocol_from"])
            && !self.lost_trusted_proxies
        {
            self.error(
                at.key("proxy_protocol"),
                "nobody is trusted to speak the PROXY protocol, so every connection would be refused",
                "name the load balancers: proxy_protocol_from = [\"10.0.0.0/8\"]",
            );
        }
        if raw.h2c && raw.tls.is_some() {
            self.error(
                at.key("h2c"),
                "h2c is HTTP/2 without TLS, and this listener has TLS",
                "remove it: with TLS, http2 offers HTTP/2",
            );
        }
        let tls = raw.tls.map(|tls| {
            let mut tls = self.listener_tls(tls, &raw.name, authorities, at.key("tls"));
            if !raw.http2 {
                tls.settings.alpn = vec![b"http/1.1".to_vec()];
            }
            tls
        });
        Listener {
            name: raw.name,
            address: raw.address,
            mode: raw.mode.unwrap_or(SOCKET_MODE),
            redirect_to_https,
            proxy_protocol: speaks_proxy.then_some(ProxyProtocol { trusted, v1, v2 }),
            h2c: raw.h2c,
            tls,
            unloaded_tls: None,
        }
    }

    fn listener_tls(
        &mut self,
        raw: RawListenerTls,
        listener: &str,
        authorities: &[&str],
        at: Cursor<'_>,
    ) -> ListenerTls {
        self.known_authorities(&raw.client_authorities, authorities, at.key("client_authorities"));
        let stateless_tickets = self.stateless_tickets(&raw, listener, at);
        let listener_lost = at.lost_any(&["client_authorities", "client_certificate"]);
        if raw.early_data && (stateless_tickets.is_some() || raw.sessions_max == 0) {
            self.error(
                at.key("early_data"),
                "only sessions that are remembered, and are good for one use, can begin with early data",
                "leave out early_data, or the stateless tickets, and keep sessions_max above 0",
            );
        }
        let (listener_mode, listener_authorities) = (raw.client_certificate, raw.client_authorities);
        let mut certificates = Vec::with_capacity(raw.certificate.len());
        for (index, raw) in raw.certificate.into_iter().enumerate() {
            let at = at.key("certificate").index(index);
            let before = self.problems.reported();
            let source = self.certificate_source(&raw, at);
            let hosts = self.hosts(raw.hosts, at.key("hosts"));
            if raw.acme {
                self.acme_hosts(&hosts, at);
            }
            let mode = match raw.client_certificate.unwrap_or(listener_mode) {
                ClientCertificateMode::Off => None,
                ClientCertificateMode::Request => Some(ClientAuthMode::Request),
                ClientCertificateMode::Require => Some(ClientAuthMode::Require),
            };
            let asked = match &raw.client_authorities {
                Some(own) => self.asked_authorities(mode, own, authorities, at),
                None if listener_lost => Vec::new(),
                None if listener_authorities.is_empty() => self.asked_authorities(mode, &[], authorities, at),
                None if mode.is_none() => Vec::new(),
                None => listener_authorities.clone(),
            };
            let ocsp = raw.ocsp_staple.map(|written| match written.as_str() {
                "fetch" => OcspConfig::Fetch,
                path => OcspConfig::File(self.key_file(at.key("ocsp_staple"), path).0),
            });
            let value = Certificate {
                source,
                hosts,
                trust_domain: raw.trust_domain,
                ocsp,
                client_certificate: mode,
                client_authorities: asked,
            };
            let mut certificate = self.placed(value, before, at);
            certificate.is_sound &= !listener_lost;
            certificates.push(certificate);
        }
        let settings = ServerTlsConfig {
            min_version: raw.min_version,
            sessions_max: raw.sessions_max,
            session_lifetime: raw.session_lifetime,
            early_data_bytes_max: if raw.early_data { EARLY_DATA_BYTES_MAX } else { 0 },
            stateless_tickets,
            ..ServerTlsConfig::default()
        };
        ListenerTls { settings, certificates }
    }

    fn stateless_tickets(
        &mut self,
        raw: &RawListenerTls,
        listener: &str,
        at: Cursor<'_>,
    ) -> Option<StatelessTickets> {
        let secret = raw.ticket_secret.as_ref().map(|written| {
            let (path, content) = self.key_file(at.key("ticket_secret"), written);
            drop(content.map(zeroize::Zeroizing::new));
            path
        });
        if raw.tickets == Some(Tickets::Stateful) && secret.is_some() {
            self.error(
                at.key("ticket_secret"),
                "ticket_secret has no effect on stateful tickets",
                "write tickets = \"stateless\", or remove it",
            );
        }
        let is_stateless = raw.tickets == Some(Tickets::Stateless) || secret.is_some();
        if raw.tls12_tickets && !is_stateless && !at.lost_any(&["tickets", "ticket_secret"]) {
            self.error(
                at.key("tls12_tickets"),
                "tls12_tickets has no effect on stateful tickets",
                "write tickets = \"stateless\", or remove it",
            );
        }
        let keys = match secret {
            None => TicketKeys::Process,
            Some(file) => TicketKeys::Fleet(TicketSecretConfig { file, context: listener.to_owned() }),
        };
        is_stateless.then_some(StatelessTickets { keys, tls12: raw.tls12_tickets })
    }

    /// Reports routes that allow early data which no listener accepts.
    pub(super) fn early_data_of_routes(
        &mut self,
        routes: &[Located<Route>],
        listeners: &[Located<Listener>],
    ) {
        let takes = |listener: &Listener| listener.tls.as_ref().is_some_and(ListenerTls::early_data);
        if self.dropped.any("listener") || listeners.iter().any(|one| takes(one) || !one.is_sound) {
            return;
        }
        for route in routes.iter().filter(|route| route.early_data) {
            self.problems.add(
                route.at,
                format!("the route {:?} allows early data, which no listener takes", route.name),
                "write early_data = true in [listener.tls], or remove it here",
            );
        }
    }

    fn certificate_source(&mut self, raw: &RawCertificate, at: Cursor<'_>) -> CertificateSource {
        if raw.acme {
            for (name, is_written) in [("chain", raw.chain.is_some()), ("key", raw.key.is_some())] {
                if is_written {
                    self.error(at.key(name), "with acme = true there are no files", format!("remove {name}"));
                }
            }
            return CertificateSource::Acme;
        }
        let file = |this: &mut Self, name: &str, written: Option<&str>| match written {
            Some(written) => this.certificate_file(at.key(name), written),
            None => {
                if !at.lost_any(&[name, "acme"]) {
                    let remedy = format!("name a PEM file: {name} = \"…\"; or write acme = true");
                    this.error(at, format!("the certificate has no {name}"), remedy);
                }
                PathBuf::new()
            }
        };
        let chain = file(self, "chain", raw.chain.as_deref());
        let key = file(self, "key", raw.key.as_deref());
        CertificateSource::Files { chain, key }
    }

    /// Host patterns in lower case.
    pub(super) fn hosts(&mut self, raw: Vec<String>, at: Cursor<'_>) -> Vec<String> {
        let mut hosts: Vec<String> = Vec::with_capacity(raw.len());
        for (index, written) in raw.into_iter().enumerate() {
            let at = at.index(index);
            match host_pattern(&written) {
                Ok(host) if hosts.contains(&host) => {
                    self.error(at, format!("{:?} is there twice", at.shown(&written)), "remove one of them");
                }
                Ok(host) => hosts.push(host),
                Err(remedy) => {
                    self.error(at, format!("{:?} is not a host", at.shown(&written)), at.remedy(remedy));
                }
            }
        }
        hosts
    }
}

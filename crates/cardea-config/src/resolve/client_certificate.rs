//! Client certificates: the authorities, the hosts that request them, and the rules of routes.

use cardea_gateway::{client_certificate::ClientCertificateForward, routing::HostPattern};
use cardea_tls::{ClientAuthMode, ClientAuthorityConfig};

use super::{
    super::{
        document::Cursor,
        model::{ClientCertificateRule, Located, StepUp},
        raw::{RawClientAuthority, RawClientCertificate, RawClientCertificateRule},
        sections::ClientCertificateNeed,
    },
    Resolver,
    path::host_pattern,
};

impl Resolver<'_> {
    pub(super) fn client_authorities(
        &mut self,
        raw: Vec<RawClientAuthority>,
        at: Cursor<'_>,
    ) -> Vec<Located<ClientAuthorityConfig>> {
        self.each(raw, at, |this, raw, at| {
            let (roots, _) = this.key_file(at.key("ca_file"), &raw.ca_file);
            let lists = raw.crl_files.iter().enumerate();
            let crls = lists.map(|(index, list)| this.key_file(at.key("crl_files").index(index), list).0);
            ClientAuthorityConfig { name: raw.name, roots, crls: crls.collect() }
        })
    }

    /// The client certificate policy of a certificate's hosts, from its own table or the listener's.
    pub(super) fn asked_authorities(
        &mut self,
        mode: Option<ClientAuthMode>,
        written: &[String],
        known: &[&str],
        at: Cursor<'_>,
    ) -> Vec<String> {
        let keys = ["client_authorities"];
        if mode.is_none() {
            return Vec::new();
        }
        if written.is_empty() && !at.lost_any(&keys) {
            self.error(
                at.key("client_certificate"),
                "nobody may vouch for clients, so that no certificate would do",
                "name them: client_authorities = [\"…\"], each a table [[client_authority]]",
            );
        }
        self.known_authorities(written, known, at.key("client_authorities"));
        written.to_vec()
    }

    pub(super) fn known_authorities(&mut self, written: &[String], known: &[&str], at: Cursor<'_>) {
        self.known_names("client_authority", written, known.iter().copied(), at);
    }

    pub(super) fn client_certificate(
        &mut self,
        raw: RawClientCertificate,
        hosts: &[HostPattern],
        known: &[&str],
        at: Cursor<'_>,
    ) -> ClientCertificateRule {
        let raw = match raw {
            RawClientCertificate::Rule(rule) => rule,
            RawClientCertificate::Need(mode) => RawClientCertificateRule {
                mode,
                authorities: Vec::new(),
                names: Vec::new(),
                fingerprints: Vec::new(),
                step_up: None,
                forward: ClientCertificateForward::default(),
            },
        };
        self.known_authorities(&raw.authorities, known, at.key("authorities"));
        let mut names = Vec::with_capacity(raw.names.len());
        for (index, written) in raw.names.iter().enumerate() {
            let at = at.key("names").index(index);
            match written.parse() {
                Ok(name) => names.push(name),
                Err(error) => {
                    let remedy = format!("{error}");
                    self.error(at, format!("{:?} is not a name of a client", at.shown(written)), remedy);
                }
            }
        }
        let mut fingerprints = Vec::with_capacity(raw.fingerprints.len());
        for (index, written) in raw.fingerprints.iter().enumerate() {
            let at = at.key("fingerprints").index(index);
            match fingerprint(written) {
                Some(fingerprint) => fingerprints.push(fingerprint),
                None => self.error(
                    at,
                    format!("{:?} is not a fingerprint", at.shown(written)),
                    "write 64 hexadecimal digits, from: openssl x509 -in FILE -noout -fingerprint -sha256",
                ),
            }
        }
        let step_up =
            raw.step_up.and_then(|written| self.step_up(&written, raw.mode, hosts, at.key("step_up")));
        ClientCertificateRule {
            required: raw.mode == ClientCertificateNeed::Required,
            authorities: raw.authorities,
            names,
            fingerprints,
            step_up,
            forward: raw.forward,
            at: at.location(),
        }
    }

    fn step_up(
        &mut self,
        written: &str,
        need: ClientCertificateNeed,
        hosts: &[HostPattern],
        at: Cursor<'_>,
    ) -> Option<StepUp> {
        if need == ClientCertificateNeed::Optional {
            self.error(at, "nobody is sent there for a certificate that is optional", "remove it");
        }
        let (host, port) = match written.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse::<u16>().ok().filter(|port| *port > 0))
            }
            _ => (written, Some(443)),
        };
        let (Ok(host), Some(port), false) = (host_pattern(host), port, host.contains('*')) else {
            self.error(
                at,
                format!("{:?} is not a host to send clients to", at.shown(written)),
                "write a host, with its port unless that is 443: \"step-up.example.com\"",
            );
            return None;
        };
        let covered = hosts.is_empty() || hosts.iter().any(|pattern| pattern.covers(&host));
        if !covered {
            self.error(
                at,
                format!("the route is not for {host:?}, so that whoever is sent there finds nothing"),
                "add it to the route's hosts",
            );
        }
        Some(StepUp { host, port: Some(port).filter(|port| *port != 443) })
    }
}

/// SHA-256 in hexadecimal, with or without colons.
fn fingerprint(written: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> = written
        .chars()
        .filter(|letter| *letter != ':')
        .map(|letter| letter.to_digit(16))
        .collect::<Option<_>>()?;
    let mut out = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
        let [high, low] = pair else { return None };
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(out)
}

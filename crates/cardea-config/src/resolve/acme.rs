//! Certificates from an ACME authority.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use url::Url;
use zeroize::Zeroizing;

use super::{
    super::{
        document::Cursor,
        model::{Acme, CertificateSource, DatabaseUse, ExternalAccount, Listener, Located},
        raw::{RawAcme, RawExternalAccount},
        sections::ChallengeKind,
    },
    Resolver,
};

/// The most hosts of a certificate, as with public authorities.
const HOSTS_MAX: usize = 100;

impl Resolver<'_> {
    /// The authority; `None` if it could not be resolved, which was reported.
    pub(super) fn acme(&mut self, raw: RawAcme, at: Cursor<'_>) -> Option<Acme> {
        let directory = Url::parse(&raw.directory).ok().filter(|url| {
            url.scheme() == "https"
                && url.host().is_some()
                && url.username().is_empty()
                && url.fragment().is_none()
        });
        if directory.is_none() {
            let at = at.key("directory");
            self.error(
                at,
                format!("{:?} is not the URL of a directory", at.shown(&raw.directory)),
                "write an https URL, as in \"https://acme-v02.api.letsencrypt.org/directory\" (RFC 8555 §7.1.1)",
            );
        }
        if !raw.terms_of_service_agreed {
            self.error(
                at.key("terms_of_service_agreed"),
                "the authority issues nothing to who does not agree to its terms of service",
                "read them; if you agree, write true, else take the section out",
            );
        }
        for (index, contact) in raw.contacts.iter().enumerate() {
            let at = at.key("contacts").index(index);
            let fits = Url::parse(contact).is_ok() && !contact.contains(char::is_whitespace);
            if !fits {
                self.error(
                    at,
                    format!("{:?} is not a contact", at.shown(contact)),
                    "write a URL, as in \"mailto:certificates@example.com\"",
                );
            }
        }
        let used_for = DatabaseUse::Acme { directory: directory.clone() };
        let (database, wrapping_key) = self.database_with_key(&raw.database, raw.wrapping_key, used_for, at);
        let ca_file = raw.ca_file.map(|file| self.key_file(at.key("ca_file"), &file).0);
        let mut challenges: Vec<ChallengeKind> = Vec::new();
        for (index, kind) in raw.challenges.into_iter().enumerate() {
            if challenges.contains(&kind) {
                let message = format!("{:?} is there twice", kind.as_str());
                self.error(at.key("challenges").index(index), message, "remove one of them");
            }
            challenges.push(kind);
        }
        let external_account = match raw.external_account {
            Some(raw) => Some(self.external_account(raw, at.key("external_account"))?),
            None => None,
        };
        Some(Acme {
            directory: directory?,
            contacts: raw.contacts,
            database: database?,
            wrapping_key: wrapping_key?,
            ca_file,
            challenges,
            external_account,
            key_type: raw.key_type,
            renew_before_percent: raw.renew_before_percent,
            at: at.location(),
        })
    }

    fn external_account(&mut self, raw: RawExternalAccount, at: Cursor<'_>) -> Option<ExternalAccount> {
        if raw.key_id.trim().is_empty() {
            self.error(
                at.key("key_id"),
                "the key's name is empty",
                "write the one that the authority gave out",
            );
        }
        let at_key = at.key("hmac_key");
        let secret = self.secret(raw.hmac_key, at_key)?;
        let text = secret.expose().trim_ascii();
        let unpadded = text.iter().rposition(|&byte| byte != b'=').map_or(&[][..], |last| &text[..=last]);
        match URL_SAFE_NO_PAD.decode(unpadded) {
            Ok(key) => {
                Some(ExternalAccount { key_id: raw.key_id, hmac_key: secret.replaced(Zeroizing::new(key)) })
            }
            Err(_) => {
                let message = format!("the key in {} is not base64url", secret.origin());
                self.error(at_key, message, "copy it as the authority gave it out");
                None
            }
        }
    }

    /// Checks that involve both certificates and the authority.
    pub(super) fn acme_certificates(
        &mut self,
        listeners: &[Located<Listener>],
        acme: Option<&Acme>,
        written: bool,
    ) {
        let from_authority = listeners.iter().filter_map(|listener| listener.tls.as_ref()).any(|tls| {
            tls.certificates.iter().any(|certificate| certificate.source == CertificateSource::Acme)
        });
        for tls in listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            for certificate in &tls.certificates {
                if certificate.source == CertificateSource::Acme && !written {
                    self.problems.add(
                        certificate.at,
                        "the certificate comes from an authority, but none is configured",
                        "add the section [acme], or name chain and key in place of acme = true",
                    );
                }
            }
        }
        let Some(acme) = acme else { return };
        let by_http_alone = acme.challenges == [ChallengeKind::Http01];
        if from_authority && by_http_alone && listeners.iter().all(|listener| listener.tls.is_some()) {
            self.problems.add(
                acme.at,
                "http-01 is answered by a listener without TLS, and there is none",
                "add a listener for port 80 (it may have redirect_to_https), or write challenges = [\"tls-alpn-01\"]",
            );
        }
    }

    /// The hosts of a certificate from the authority. They must be configured, because no file contains them.
    pub(super) fn acme_hosts(&mut self, hosts: &[String], at: Cursor<'_>) {
        if hosts.is_empty() && !at.lost_any(&["hosts"]) {
            self.error(
                at,
                "a certificate from an authority needs hosts",
                "name them: hosts = [\"www.example.com\"]",
            );
        }
        if hosts.len() > HOSTS_MAX {
            self.error(
                at.key("hosts"),
                format!("a certificate is for at most {HOSTS_MAX} hosts, this one for {}", hosts.len()),
                "spread them over several certificates",
            );
        }
        for (index, host) in hosts.iter().enumerate() {
            let at = at.key("hosts").index(index);
            if host.starts_with("*.") {
                self.error(
                    at,
                    "an authority gives out wildcards by DNS alone, which the gateway can't change (RFC 8555 §8.4)",
                    "name each host, or use another tool and name its files in chain and key",
                );
            } else if host.starts_with('[')
                || host.parse::<std::net::Ipv4Addr>().is_ok()
                || !host.contains('.')
            {
                self.error(at, format!("{host:?} is no public name"), "name hosts as in \"www.example.com\"");
            }
        }
    }
}

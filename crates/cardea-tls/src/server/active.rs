//! The data that handshakes and requests of a listener read. A reload replaces it as a whole.

use std::fmt;
use std::sync::Arc;

use cardea_clock::Clock;
use rustls::ServerConfig;
use rustls::server::StoresServerSessions as _;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

use super::Slot;
use crate::bound::Bound;
use crate::certificate::{Certificate, CertificateInfo};
use crate::client_auth::{PolicyVerifier, unix_time};
use crate::config::{CertificateConfig, ServerTlsConfig, UnknownName};
use crate::error::TlsError;
use crate::names::Names;
use crate::provider;
use crate::sessions::{SessionStats, Sessions};
use crate::tickets::{TicketSecrets, Ticketer};

/// More tickets than this help no client; each costs an entry of the session store.
const TICKETS_MAX: u8 = 4;

pub(super) struct Active {
    pub(super) names: Arc<Names>,
    /// By the indices in the names. Never empty.
    policies: Vec<Policy>,
    fallback: Policy,
    pub(super) certificates: Vec<CertificateInfo>,
}

/// A client certificate policy, with the sessions of its clients.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) config: Arc<ServerConfig>,
    pub(super) verifier: Option<Arc<PolicyVerifier>>,
    sessions: Arc<Sessions>,
}

impl Active {
    pub(super) fn new(
        settings: &ServerTlsConfig,
        slots: &[Slot],
        before: Option<&Self>,
        clock: &Clock,
        ticket_secrets: Option<&Arc<TicketSecrets>>,
    ) -> Result<Self, TlsError> {
        let certificates: Vec<Certificate> = slots.iter().filter_map(Slot::certificate).collect();
        let awaits = |(_, slot): &(&CertificateConfig, &Slot)| slot.certificate.is_none();
        let awaited: Vec<_> = settings
            .certificates
            .iter()
            .zip(slots)
            .filter(awaits)
            .map(|(config, slot)| slot.awaited(config))
            .collect();
        let awaited: Vec<_> = awaited.iter().map(AsRef::as_ref).collect();
        let unknown_name = if may_be_default(settings, slots, certificates.first()) {
            settings.unknown_name
        } else {
            UnknownName::Refuse
        };
        let names = Names::new(&certificates, &awaited, unknown_name).map_err(TlsError::Certificates)?;
        let names = Arc::new(names);
        let before = before.filter(|before| before.names.same_trust_domains(&names));
        let mut policies = Vec::with_capacity(names.policies().len());
        for (index, policy) in names.policies().iter().enumerate() {
            let verifier = policy.as_ref().map(PolicyVerifier::new);
            let old = before.and_then(|before| before.policies.get(index)).filter(|old| !old.is_outdated());
            let sessions = match old {
                Some(old) => Arc::clone(&old.sessions),
                None => Sessions::new(settings, verifier.is_some(), clock)?,
            };
            let config =
                server_config(settings, &names, &sessions, verifier.as_ref(), ticket_secrets, clock)?;
            policies.push(Policy { config: Arc::new(config), verifier, sessions });
        }
        let Some(fallback) = policies.first().cloned() else { return Err(TlsError::NoCertificate) };
        Ok(Self {
            names,
            policies,
            fallback,
            certificates: certificates.into_iter().map(|certificate| certificate.info).collect(),
        })
    }

    pub(super) fn asks_by_name(&self) -> bool {
        self.policies.len() > 1
    }

    pub(super) fn policy(&self, sni: Option<&str>) -> &Policy {
        if !self.asks_by_name() {
            return &self.fallback;
        }
        self.policies.get(self.names.policy_of(sni)).unwrap_or(&self.fallback)
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.policies.iter().any(Policy::is_outdated)
    }

    /// Wipes expired sessions.
    pub(super) fn reclaim(&self) {
        self.policies.iter().for_each(|policy| policy.sessions.reclaim());
    }

    pub(super) fn session_stats(&self) -> SessionStats {
        self.policies.iter().map(|policy| policy.sessions.stats()).fold(
            SessionStats::default(),
            |sum, stats| SessionStats {
                sessions: sum.sessions + stats.sessions,
                bytes: sum.bytes + stats.bytes,
                hits: sum.hits + stats.hits,
                misses: sum.misses + stats.misses,
                evicted: sum.evicted + stats.evicted,
            },
        )
    }
}

impl Policy {
    fn is_outdated(&self) -> bool {
        self.verifier.as_ref().is_some_and(|verifier| verifier.is_outdated())
    }
}

/// Whether the first usable certificate may be the default. It must not replace an unusable or missing one with another
/// trust domain or client certificate policy, or one whose hosts are unknown.
fn may_be_default(settings: &ServerTlsConfig, slots: &[Slot], first: Option<&Certificate>) -> bool {
    if slots.iter().any(|slot| slot.is_unusable && slot.hosts.is_none()) {
        return false;
    }
    match (settings.certificates.first(), slots.first(), first) {
        (Some(wanted), Some(slot), Some(first)) if slot.certificate.is_none() => {
            wanted.trust_domain == first.info.trust_domain && wanted.client_auth == first.client_auth
        }
        _ => true,
    }
}

fn server_config(
    settings: &ServerTlsConfig,
    names: &Arc<Names>,
    sessions: &Arc<Sessions>,
    verifier: Option<&Arc<PolicyVerifier>>,
    ticket_secrets: Option<&Arc<TicketSecrets>>,
    clock: &Clock,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_details(provider(), Arc::new(Time(clock.clone())))
        .with_protocol_versions(settings.min_version.versions())?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(Arc::<PolicyVerifier>::clone(verifier)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::<Names>::clone(names));
    config.alpn_protocols.clone_from(&settings.alpn);
    // Our order of cipher suites; see `provider` for the reason.
    config.ignore_client_order = true;
    if let (Some(secrets), Some(tickets), None) = (ticket_secrets, &settings.stateless_tickets, verifier)
        && !settings.session_lifetime.is_zero()
    {
        config.ticketer = Bound::new(names, Ticketer::new(secrets, tickets, &names.trust_domains()));
    }
    // Otherwise stateful tickets: a stolen ticket key can't decrypt recorded sessions, and each ticket works once.
    config.session_storage = Bound::new(names, Arc::clone(sessions));
    config.send_tls13_tickets = if sessions.can_cache() || config.ticketer.enabled() {
        usize::from(settings.tickets.min(TICKETS_MAX))
    } else {
        0
    };
    // Single use prevents replayed requests (RFC 8446 §8.1), and a client's certificate is checked only after the
    // handshake.
    if verifier.is_none() && sessions.can_cache() && !config.ticketer.enabled() {
        config.max_early_data_size = settings.early_data_bytes_max;
        // The response need not wait for the handshake either: only the client that began the session can read it.
        config.send_half_rtt_data = settings.early_data_bytes_max > 0;
    }
    Ok(config)
}

/// The clock in the form of rustls.
struct Time(Clock);

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(self.0.wall()))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

//! What an operator decides about TLS, as plain values.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::client_auth::ClientAuthConfig;
use crate::managed::ManagedCertificate;
use crate::staple::OcspConfig;

/// One certificate that a listener serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateConfig {
    /// PEM file with the leaf first, then each issuer in turn; at most 1 MiB and 16 certificates.
    pub chain: PathBuf,
    /// PEM file with the leaf's private key, unencrypted: PKCS #8, SEC 1 or PKCS #1.
    pub key: PathBuf,
    /// Host names that it is served for: names, `*.` wildcards or addresses, each covered by the leaf.
    /// Empty: every DNS name and IP address of the leaf's subject alternative names.
    pub hosts: Vec<String>,
    /// Where chain and key come from in place of files; `chain` is then a name for messages. Handshakes for its hosts, which
    /// must be named, fail until it has been filled.
    pub managed: Option<Arc<ManagedCertificate>>,
    /// Hosts of one trust domain may share a connection; a request for a host of another one gets 421.
    pub trust_domain: String,
    /// Whether its hosts ask clients for certificates; all certificates of a host ask in the same way. Sessions of hosts
    /// that ask are remembered here, whatever tickets others get, and each is good for one use.
    pub client_auth: Option<ClientAuthConfig>,
    /// Where responses about it come from (OCSP), to be sent along in handshakes. `None`: none is sent.
    pub ocsp: Option<OcspConfig>,
}

/// The lowest version of TLS that is negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

impl MinVersion {
    pub(crate) fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => &FROM_TLS12,
            Self::Tls13 => &FROM_TLS13,
        }
    }
}

static FROM_TLS12: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static FROM_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];

/// What is served to a client that names no host, or one that no certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownName {
    /// The first certificate of the listener (and those of another key type for the same host).
    #[default]
    DefaultCertificate,
    /// Nothing: the handshake fails with an alert, so scanners by address learn no host name.
    Refuse,
}

/// Tickets that carry their session, sealed, instead of standing for one that is remembered (RFC 5077). They can be used more
/// than once, for [`ServerTlsConfig::session_lifetime`] and up to an hour longer, and at most for 7 days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatelessTickets {
    /// Where their keys come from.
    pub keys: TicketKeys,
    /// Whether sessions of TLS 1.2 get such tickets, too. Whoever has the keys can read what these sessions say, where the
    /// key exchange of TLS 1.3 prevents that. Without, they are remembered, and resumed by their ids.
    pub tls12: bool,
}

/// Where the keys of tickets come from. All move on each hour, and what is older than tickets may be is wiped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketKeys {
    /// From a secret that is made at start and never leaves the memory of this process: tickets end with it.
    Process,
    /// From a secret that the nodes of a fleet share.
    Fleet(TicketSecretConfig),
}

/// A secret that the nodes of a fleet share, so that each resumes what any of them began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketSecretConfig {
    /// One line with the Unix time from which it counts, and 64 hexadecimal digits:
    /// `echo "$(date +%s) $(openssl rand -hex 32)"`. Every hour the secret in it is replaced by one that follows from it and
    /// opens no ticket that has expired, so it should be in a folder that the service may write to; each node has its own copy.
    pub file: PathBuf,
    /// What tells this listener from others that have the same secret, and is the same on all nodes: its name.
    pub context: String,
}

/// TLS as a listener terminates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsConfig {
    /// Certificates; at least one. The first is the default one.
    pub certificates: Vec<CertificateConfig>,
    /// Default: TLS 1.2.
    pub min_version: MinVersion,
    /// Protocols by our preference (RFC 7301). Default: `h2`, `http/1.1`. A client that offers only others is
    /// refused; one that offers none is let in.
    pub alpn: Vec<Vec<u8>>,
    /// Default: the first certificate.
    pub unknown_name: UnknownName,
    /// Sessions remembered for resumption, of at most 4 KiB each on average; below 2^31. In a full store an expired
    /// one goes first, else one that nobody has resumed lately. Hosts that ask clients for certificates, each kind by
    /// itself, have as many of their own. Default: 20,000. 0: no resumption.
    pub sessions_max: usize,
    /// How long a session can be resumed, since it began or was last resumed by TLS 1.3. Default: 12 hours. Clients
    /// are told 24 hours, and keep none for longer than 7 days (RFC 8446 §4.6.1). Zero: no resumption.
    pub session_lifetime: Duration,
    /// Where present, tickets carry their sessions. Default: none; a ticket of TLS 1.3 stands for a session that is
    /// remembered and good for one use.
    pub stateless_tickets: Option<StatelessTickets>,
    /// What a client that resumes a session by TLS 1.3 may send before the handshake is done (0-RTT), in bytes. Who has recorded
    /// it can send it again: it is let in once, since the session is taken out of the store by its first use, so there is
    /// none with stateless tickets, nor for hosts that ask for certificates. Default: 0.
    pub early_data_bytes_max: u32,
    /// TLS 1.3 tickets sent after a full handshake. Default: 1, since most clients resume once at a time and
    /// each ticket costs a key derivation, a record and a place in the session store. At most 4.
    pub tickets: u8,
}

impl Default for ServerTlsConfig {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            min_version: MinVersion::default(),
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            unknown_name: UnknownName::default(),
            sessions_max: 20_000,
            session_lifetime: Duration::from_secs(12 * 3_600),
            stateless_tickets: None,
            early_data_bytes_max: 0,
            tickets: 1,
        }
    }
}

/// Which certificate authorities a client of ours believes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Roots {
    /// The system's store, read once per process.
    #[default]
    System,
    /// Only those of this PEM file; at most 1 MiB.
    File(PathBuf),
    /// The system's store and those of this PEM file.
    SystemAnd(PathBuf),
}

/// TLS as we speak it to an upstream, or to where key sets come from. Servers are always verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTlsConfig {
    /// Default: the system's.
    pub roots: Roots,
    /// Default: TLS 1.2.
    pub min_version: MinVersion,
    /// Protocols offered, by preference. Default: `http/1.1`.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for ClientTlsConfig {
    fn default() -> Self {
        Self { roots: Roots::default(), min_version: MinVersion::default(), alpn: vec![b"http/1.1".to_vec()] }
    }
}

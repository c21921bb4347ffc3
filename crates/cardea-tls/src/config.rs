//! The TLS settings of listeners and clients, as plain values.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::client_auth::ClientAuthConfig;
use crate::managed::ManagedCertificate;
use crate::staple::OcspConfig;

/// A certificate of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateConfig {
    /// PEM file with the leaf first, then each issuer in turn; at most 1 MiB and 16 certificates.
    pub chain: PathBuf,
    /// PEM file with the leaf's private key, unencrypted: PKCS #8, SEC 1 or PKCS #1.
    pub key: PathBuf,
    /// The host names that it is served for: names, `*.` wildcards or addresses, each covered by the leaf. If empty,
    /// every DNS name and IP address of the leaf's subject alternative names.
    pub hosts: Vec<String>,
    /// The source of chain and key instead of files; then `chain` is a name for messages. Its hosts must be configured,
    /// and handshakes for them fail until it contains a certificate.
    pub managed: Option<Arc<ManagedCertificate>>,
    /// The trust domain of its hosts. Hosts of one trust domain may share a connection; a request for a host of another
    /// one is answered 421.
    pub trust_domain: String,
    /// The client certificate policy of its hosts. All certificates of a host must have the same. Sessions of hosts
    /// that request client certificates are always stored here, and each is used once.
    pub client_auth: Option<ClientAuthConfig>,
    /// The source of stapled OCSP responses; `None` disables stapling.
    pub ocsp: Option<OcspConfig>,
}

/// The lowest TLS version that is negotiated.
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

/// Which certificate a client gets that sends no server name or an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownName {
    /// The default certificate: the first of the listener, and those of other key types for the same host.
    #[default]
    DefaultCertificate,
    /// None: the handshake fails with an alert, so that scanners by address learn no host name.
    Refuse,
}

/// Tickets that contain their encrypted session, instead of referring to a stored one (RFC 5077). They can be used more
/// than once, for [`ServerTlsConfig::session_lifetime`] and up to an hour longer, and for 7 days at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatelessTickets {
    /// The source of their keys.
    pub keys: TicketKeys,
    /// Whether TLS 1.2 sessions get such tickets too. A holder of the keys can decrypt recorded TLS 1.2 sessions, which
    /// the key exchange of TLS 1.3 prevents. If false, TLS 1.2 sessions are stored and resumed by their ids.
    pub tls12: bool,
}

/// The source of ticket keys. All keys change every hour, and keys that no valid ticket needs are wiped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketKeys {
    /// A random secret that is created at start and never leaves the process: its tickets end with the process.
    Process,
    /// A secret that the nodes of a fleet share.
    Fleet(TicketSecretConfig),
}

/// A secret that the nodes of a fleet share, so that each can resume the sessions of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketSecretConfig {
    /// A file with one line: the Unix time from which the secret is valid, and 64 hexadecimal digits: `echo "$(date
    /// +%s) $(openssl rand -hex 32)"`. Every hour the secret in the file is replaced by its successor, which opens no
    /// expired ticket. So the service must be able to write to the folder, and each node needs its own copy.
    pub file: PathBuf,
    /// Distinguishes this listener from others with the same secret, and is the same on all nodes: the listener's name.
    pub context: String,
}

/// The TLS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsConfig {
    /// The certificates; at least one. The first is the default.
    pub certificates: Vec<CertificateConfig>,
    /// Default: TLS 1.2.
    pub min_version: MinVersion,
    /// Protocols in our order of preference (RFC 7301). Default: `h2`, `http/1.1`. A client that offers only others is
    /// refused; one that offers none is accepted.
    pub alpn: Vec<Vec<u8>>,
    /// Default: the first certificate.
    pub unknown_name: UnknownName,
    /// The most stored sessions for resumption, of at most 4 KiB each on average; below 2^31. A full store evicts an
    /// expired session first, else one that was not resumed recently. Hosts that request client certificates have
    /// separate stores of the same size, one per policy. Default: 20,000. Zero disables resumption.
    pub sessions_max: usize,
    /// How long a session can be resumed after it began or was last resumed with TLS 1.3. Default: 12 hours. Clients
    /// are told 24 hours, and keep no session for longer than 7 days (RFC 8446 §4.6.1). Zero disables resumption.
    pub session_lifetime: Duration,
    /// If set, tickets contain their sessions. Default: none; then a TLS 1.3 ticket refers to a stored session and is
    /// used once.
    pub stateless_tickets: Option<StatelessTickets>,
    /// The most bytes of early data (0-RTT), which a client that resumes a TLS 1.3 session may send before the
    /// handshake is done. An attacker can record and resend them. They are accepted once, because the first use removes
    /// the session from the store; so there is no early data with stateless tickets, nor for hosts that request client
    /// certificates. Default: 0.
    pub early_data_bytes_max: u32,
    /// TLS 1.3 tickets sent after a full handshake. Default: 1, because most clients resume one session at a time, and
    /// each ticket costs a key derivation, a record and an entry of the session store. At most 4.
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

/// The CA certificates that a TLS client trusts.
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

/// The TLS settings for connections to upstreams and to servers of key sets. Servers are always verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTlsConfig {
    /// Default: the system's store.
    pub roots: Roots,
    /// Default: TLS 1.2.
    pub min_version: MinVersion,
    /// Protocols offered, in order of preference. Default: `http/1.1`.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for ClientTlsConfig {
    fn default() -> Self {
        Self { roots: Roots::default(), min_version: MinVersion::default(), alpn: vec![b"http/1.1".to_vec()] }
    }
}

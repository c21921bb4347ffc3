//! The errors of certificates, keys and roots, each with its remedy.

use std::path::PathBuf;

use thiserror::Error;

use crate::client_auth::UnsupportedList;
use crate::staple::StapleError;

/// Why a TLS configuration can't be used. Every message is for the operator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Certificates or keys that can't be used: all of them, not only the first.
    #[error("{}", lines(.0))]
    Certificates(Vec<CertificateError>),
    /// A listener without a certificate.
    #[error("no certificate is configured: a TLS listener needs at least one")]
    NoCertificate,
    /// A file of root certificates can't be used.
    #[error("{}: {problem}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: CertificateProblem,
    },
    /// The system's store has no usable root certificate.
    #[error(
        "the system has no usable root certificates ({0}): install ca-certificates, or name a file of roots"
    )]
    SystemRoots(String),
    /// The host is no valid server name.
    #[error("\"{0}\" is neither a DNS name nor an IP address")]
    ServerName(String),
    /// More sessions than can be stored.
    #[error("sessions: {0}")]
    Sessions(#[from] cardea_cache::LimitsError),
    /// rustls refuses the combination of settings.
    #[error("TLS settings: {0}")]
    Settings(#[from] rustls::Error),
}

/// Why a connection must be closed after its handshake.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeRefused {
    /// The handshake isn't finished.
    #[error("the handshake is not finished")]
    Unfinished,
    /// The client sent no certificate although it is required.
    #[error("the client has shown no certificate")]
    CertificateMissing,
    /// The client sent a certificate that wasn't requested.
    #[error("the client has shown a certificate that nobody asked for")]
    CertificateUnasked,
    /// The certificate of a resumed session is no longer valid.
    #[error("the client's certificate does not hold any longer: {0}")]
    CertificateInvalid(rustls::Error),
    /// The parser that reads its names can't parse the certificate.
    #[error("the client's certificate can't be read")]
    CertificateUnreadable,
}

/// A certificate or key that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {problem}", path.display())]
pub struct CertificateError {
    /// The file to be corrected.
    pub path: PathBuf,
    /// The problem and its remedy.
    pub problem: CertificateProblem,
}

/// The problem of a file; the message ends with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// The file can't be read.
    #[error("can't be read: {0}; check the path and that the service's user may read it")]
    Unreadable(String),
    /// The file is larger than any chain or key.
    #[error("is larger than {limit_bytes} bytes; is it the right file?")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// An unusable certificate whose hosts are unknown, although its hosts request client certificates.
    #[error(
        "its hosts can't be told, so what they require of clients could not be enforced; correct the file or list the `hosts`"
    )]
    HostsUnknown,
    /// No usable secret for tickets.
    #[error("{0}")]
    TicketSecret(&'static str),
    /// The file is empty.
    #[error("is empty; write the PEM file again")]
    Empty,
    /// Binary DER where PEM is expected.
    #[error("is DER, not PEM; convert it with `openssl x509 -inform der` (`openssl pkey` for a key)")]
    NotPem,
    /// PEM that is truncated or damaged.
    #[error("is truncated or damaged ({0}); write the PEM file again")]
    Damaged(String),
    /// PEM without a certificate.
    #[error("holds no certificate (no \"BEGIN CERTIFICATE\" line){}", if *.holds_key { "; it holds a key: are chain and key swapped?" } else { "; name the file with the chain" })]
    NoCertificate {
        /// Whether it contains a private key instead.
        holds_key: bool,
    },
    /// PEM without a private key.
    #[error("holds no private key{}", if *.holds_certificate { "; it holds a certificate: are chain and key swapped?" } else { "; name the file with the key" })]
    NoKey {
        /// Whether it contains a certificate instead.
        holds_certificate: bool,
    },
    /// A private key that is encrypted with a passphrase.
    #[error(
        "is encrypted with a passphrase; decrypt it with `openssl pkey -in KEY -out NEW` and restrict who may read it"
    )]
    EncryptedKey,
    /// A key that the TLS stack doesn't support.
    #[error(
        "is not a key that TLS can use ({0}); use ECDSA P-256 or P-384, Ed25519, or RSA of 2048 bits or more"
    )]
    UnusableKey(String),
    /// A certificate that can't be parsed.
    #[error(
        "certificate {position} can't be parsed ({reason}); get the certificate again from its authority"
    )]
    Malformed {
        /// Its position in the file, from 1.
        position: usize,
        /// The parser's error.
        reason: String,
    },
    /// More certificates than any chain has.
    #[error("holds more than {limit} certificates; leave only the leaf and its issuers")]
    ChainTooLong {
        /// The limit.
        limit: usize,
    },
    /// The key belongs to no certificate of the chain.
    #[error("does not belong to the key {}; configure the chain and the key that were issued together", key.display())]
    KeyMismatch {
        /// The key's file.
        key: PathBuf,
    },
    /// The key belongs to a certificate, but not to the first one.
    #[error(
        "is in the wrong order: the key belongs to certificate {position}; put that one first, then each issuer"
    )]
    LeafNotFirst {
        /// The position of the leaf, from 1.
        position: usize,
    },
    /// A certificate that isn't followed by its issuer.
    #[error(
        "is in the wrong order: certificate {position} is not issued by the next one; put each issuer right after what it issued and leave out the rest"
    )]
    BrokenChain {
        /// The position of the certificate whose issuer doesn't follow, from 1.
        position: usize,
    },
    /// The leaf has expired.
    #[error("expired on {0}; renew it")]
    Expired(String),
    /// The leaf isn't valid yet.
    #[error("is not valid before {0}; check the clock of this machine, or wait")]
    NotYetValid(String),
    /// A leaf without names, and no configured hosts.
    #[error("names no host: no subject alternative name of type DNS or IP; issue it with one")]
    NoNames,
    /// A configured host that is no valid host name.
    #[error(
        "is configured for \"{0}\", which is no host; write a host name, a wildcard such as \"*.example.com\", or an IP address"
    )]
    BadHost(String),
    /// A configured host that the leaf doesn't cover.
    #[error(
        "is configured for \"{host}\", which it does not cover (it covers {covered}); clients would refuse it"
    )]
    HostNotCovered {
        /// The host.
        host: String,
        /// The names that it covers.
        covered: String,
    },
    /// A host in two trust domains.
    #[error("serves \"{host}\" in trust domain \"{domain}\", but {} serves it in \"{other_domain}\"; a host belongs to one trust domain", other.display())]
    TrustDomainConflict {
        /// The host.
        host: String,
        /// The trust domain of this certificate.
        domain: String,
        /// The other certificate.
        other: PathBuf,
        /// The trust domain of the other certificate.
        other_domain: String,
    },
    /// A host with two different client certificate policies.
    #[error("serves \"{host}\", as {} does, and asks clients for certificates in another way; a host asks in one way", other.display())]
    ClientAuthConflict {
        /// The host.
        host: String,
        /// The other certificate.
        other: PathBuf,
    },
    /// A file of revocation lists without any.
    #[error(
        "holds no revocation list (no \"BEGIN X509 CRL\" line); convert DER with `openssl crl -inform der`"
    )]
    NoRevocationList,
    /// An OCSP response that can't be stapled. The certificate is served without it.
    #[error("{0}")]
    Staple(StapleError),
    /// A revocation list that can't be parsed.
    #[error("holds a revocation list that can't be parsed ({0}); get it again from its authority")]
    BadRevocationList(String),
    /// A revocation list of a kind that is not supported.
    #[error("holds {0}; this kind is not supported: ask the authority for a complete list")]
    UnsupportedRevocationList(UnsupportedList),
}

pub(crate) fn lines(errors: &[CertificateError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

//! What can be wrong with certificates, keys and roots, each with its remedy.

use std::path::PathBuf;

use thiserror::Error;

use crate::staple::StapleError;

/// Why a TLS configuration can't be used. Every message is meant for the operator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Certificates or keys that can't be used: all of them, not only the first.
    #[error("{}", lines(.0))]
    Certificates(Vec<CertificateError>),
    /// A listener without a certificate.
    #[error("no certificate is configured: a TLS listener needs at least one")]
    NoCertificate,
    /// A file of root certificates.
    #[error("{}: {problem}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: CertificateProblem,
    },
    /// The system's store of root certificates has none that can be used.
    #[error(
        "the system has no usable root certificates ({0}): install ca-certificates, or name a file of roots"
    )]
    SystemRoots(String),
    /// A host that can't be connected to by TLS.
    #[error("\"{0}\" is neither a DNS name nor an IP address")]
    ServerName(String),
    /// More sessions than can be kept.
    #[error("sessions: {0}")]
    Sessions(#[from] cardea_cache::LimitsError),
    /// rustls refuses the combination of settings.
    #[error("TLS settings: {0}")]
    Settings(#[from] rustls::Error),
}

/// Why a connection must be closed though its handshake is done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeRefused {
    /// It isn't done.
    #[error("the handshake is not finished")]
    Unfinished,
    /// The client showed no certificate where it must.
    #[error("the client has shown no certificate")]
    CertificateMissing,
    /// The client showed one where it wasn't asked.
    #[error("the client has shown a certificate that nobody asked for")]
    CertificateUnasked,
    /// The certificate of a resumed session does not hold any longer.
    #[error("the client's certificate does not hold any longer: {0}")]
    CertificateInvalid(rustls::Error),
    /// The certificate can't be parsed by the parser that reads its names.
    #[error("the client's certificate can't be read")]
    CertificateUnreadable,
}

/// One certificate or key that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {problem}", path.display())]
pub struct CertificateError {
    /// The file that has to be changed.
    pub path: PathBuf,
    /// What is wrong with it, and the remedy.
    pub problem: CertificateProblem,
}

/// What is wrong with a file; the message ends with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// The file can't be read.
    #[error("can't be read: {0}; check the path and that the service's user may read it")]
    Unreadable(String),
    /// The file is larger than any chain or key is.
    #[error("is larger than {limit_bytes} bytes; is it the right file?")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// An unusable certificate whose hosts can't be told, though clients of these hosts are asked for certificates.
    #[error(
        "its hosts can't be told, so what they require of clients could not be enforced; correct the file or list the `hosts`"
    )]
    HostsUnknown,
    /// No secret for tickets that can be used.
    #[error("{0}")]
    TicketSecret(&'static str),
    /// Nothing in it.
    #[error("is empty; write the PEM file again")]
    Empty,
    /// Binary DER where PEM is expected.
    #[error("is DER, not PEM; convert it with `openssl x509 -inform der` (`openssl pkey` for a key)")]
    NotPem,
    /// PEM that breaks off or is damaged.
    #[error("is truncated or damaged ({0}); write the PEM file again")]
    Damaged(String),
    /// PEM without a certificate.
    #[error("holds no certificate (no \"BEGIN CERTIFICATE\" line){}", if *.holds_key { "; it holds a key: are chain and key swapped?" } else { "; name the file with the chain" })]
    NoCertificate {
        /// Whether there is a private key in it instead.
        holds_key: bool,
    },
    /// PEM without a private key.
    #[error("holds no private key{}", if *.holds_certificate { "; it holds a certificate: are chain and key swapped?" } else { "; name the file with the key" })]
    NoKey {
        /// Whether there is a certificate in it instead.
        holds_certificate: bool,
    },
    /// A private key under a passphrase.
    #[error(
        "is encrypted with a passphrase; decrypt it with `openssl pkey -in KEY -out NEW` and restrict who may read it"
    )]
    EncryptedKey,
    /// A key that the TLS stack doesn't take.
    #[error(
        "is not a key that TLS can use ({0}); use ECDSA P-256 or P-384, Ed25519, or RSA of 2048 bits or more"
    )]
    UnusableKey(String),
    /// A certificate that can't be parsed.
    #[error(
        "certificate {position} can't be parsed ({reason}); get the certificate again from its authority"
    )]
    Malformed {
        /// Counted from 1.
        position: usize,
        /// What the parser says.
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
        /// Where the leaf is, counted from 1.
        position: usize,
    },
    /// A certificate that isn't followed by its issuer.
    #[error(
        "is in the wrong order: certificate {position} is not issued by the next one; put each issuer right after what it issued and leave out the rest"
    )]
    BrokenChain {
        /// The certificate whose issuer doesn't follow, counted from 1.
        position: usize,
    },
    /// The leaf's time is over.
    #[error("expired on {0}; renew it")]
    Expired(String),
    /// The leaf's time has not come.
    #[error("is not valid before {0}; check the clock of this machine, or wait")]
    NotYetValid(String),
    /// A leaf without names, where none are configured either.
    #[error("names no host: no subject alternative name of type DNS or IP; issue it with one")]
    NoNames,
    /// A configured host that isn't one.
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
        /// What it does cover.
        covered: String,
    },
    /// One host in two trust domains.
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
    /// One host that asks clients for certificates in two ways.
    #[error("serves \"{host}\", as {} does, and asks clients for certificates in another way; a host asks in one way", other.display())]
    ClientAuthConflict {
        /// The host.
        host: String,
        /// The other certificate.
        other: PathBuf,
    },
    /// A file of revocation lists without one.
    #[error(
        "holds no revocation list (no \"BEGIN X509 CRL\" line); convert DER with `openssl crl -inform der`"
    )]
    NoRevocationList,
    /// A response about the certificate that can't be served. The certificate is served without it.
    #[error("{0}")]
    Staple(StapleError),
    /// A revocation list that can't be parsed.
    #[error("holds a revocation list that can't be parsed ({0}); get it again from its authority")]
    BadRevocationList(String),
}

pub(crate) fn lines(errors: &[CertificateError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

//! The persistent state of certificates from an ACME authority (RFC 8555).
//!
//! All nodes that use the database share it. Each node serves every issued certificate and answers every challenge. One
//! node at a time, the holder of the lease, talks to the authority.

use std::fmt;

use cardea_clock::Wall;

use crate::{Database, StoreFuture};

/// The durable state of ACME. An acknowledged write survives a loss of power.
pub trait AcmeStore: Database {
    /// A counter of all changes of certificates and challenges, by any node.
    fn acme_version(&self) -> StoreFuture<'_, u64>;

    /// The account at the authority of that directory.
    fn acme_account<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, Option<AccountRecord>>;

    /// Stores an account, replacing the one before.
    fn put_acme_account<'a>(&'a self, account: &'a AccountRecord) -> StoreFuture<'a, ()>;

    /// Deletes the account at the authority of that directory.
    fn delete_acme_account<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, ()>;

    /// All certificates of that directory, whether issued or only attempted.
    fn acme_certificates<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, Vec<CertificateRecord>>;

    /// Stores a certificate with its key, replacing the one before.
    fn put_acme_certificate<'a>(&'a self, certificate: &'a CertificateRecord) -> StoreFuture<'a, ()>;

    /// Updates only the renewal information of a stored certificate. All else stays: another process may have made it
    /// due meanwhile.
    fn put_acme_renewal<'a>(&'a self, certificate: &'a CertificateRecord) -> StoreFuture<'a, ()>;

    /// The challenges that have not expired at `now`.
    fn acme_challenges(&self, now: Wall) -> StoreFuture<'_, Vec<ChallengeRecord>>;

    /// Replaces all challenges. Only the holder of the lease has any.
    fn replace_acme_challenges<'a>(&'a self, challenges: &'a [ChallengeRecord]) -> StoreFuture<'a, ()>;

    /// Takes the lease until `until`, or extends it. Returns whether `holder` has it now. A lease held by another node
    /// lasts until it expires.
    fn take_acme_lease<'a>(&'a self, holder: &'a str, now: Wall, until: Wall) -> StoreFuture<'a, bool>;

    /// Releases the lease, if `holder` has it.
    fn release_acme_lease<'a>(&'a self, holder: &'a str) -> StoreFuture<'a, ()>;

    /// Deletes certificates that expired before `before`, and those never issued whose last attempt was before it.
    fn forget_acme_certificates(&self, before: Wall) -> StoreFuture<'_, ()>;
}

/// An account at an authority.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountRecord {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The account's URL, which is its name in requests (RFC 8555 §6.2).
    pub url: String,
    /// The contacts registered with the authority.
    pub contacts: Vec<String>,
    /// Its private key: PKCS #8, encrypted with the wrapping key.
    pub sealed: Vec<u8>,
    /// The id of the wrapping key.
    pub wrapping_key_id: String,
    /// The time of registration.
    pub created_at: Wall,
}

impl fmt::Debug for AccountRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountRecord").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A certificate, or the attempts to get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRecord {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The hosts of the certificate, sorted.
    pub hosts: Vec<String>,
    /// The type of its key, as in the configuration.
    pub key_type: String,
    /// The last issued certificate.
    pub issued: Option<IssuedRecord>,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// The earliest time of the next attempt.
    pub next_attempt_at: Option<Wall>,
    /// The time window in which the authority wants the certificate to be renewed (RFC 9773 §4.2), if known.
    pub renewal_window: Option<(Wall, Wall)>,
    /// The earliest time to ask for that window again.
    pub ask_renewal_at: Option<Wall>,
    /// Why the last attempt failed: a reason code and a sentence.
    pub problem: Option<(String, String)>,
}

/// An issued certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedRecord {
    /// The chain in PEM, the leaf first.
    pub chain: String,
    /// Its private key: PKCS #8, encrypted with the wrapping key.
    pub sealed: Vec<u8>,
    /// The id of the wrapping key.
    pub wrapping_key_id: String,
    /// The time of issuance.
    pub issued_at: Wall,
    /// The end of its validity.
    pub not_after: Wall,
}

impl fmt::Debug for IssuedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedRecord")
            .field("issued_at", &self.issued_at)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// A challenge, which the authority may request at any moment.
#[derive(Clone, PartialEq, Eq)]
pub struct ChallengeRecord {
    /// The authority's token.
    pub token: String,
    /// `http-01` or `tls-alpn-01`.
    pub kind: String,
    /// The host to be validated.
    pub host: String,
    /// The answer to the challenge (RFC 8555 §8.1).
    pub key_authorization: String,
    /// The time from which it is no longer requested.
    pub expires_at: Wall,
}

impl fmt::Debug for ChallengeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChallengeRecord")
            .field("kind", &self.kind)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

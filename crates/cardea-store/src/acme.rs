//! What has to be kept of certificates that come from an ACME authority (RFC 8555).
//!
//! It is shared by all nodes that use the database: each serves what any of them was issued, answers the challenges of any
//! of them, and one of them at a time, the holder of the lease, asks the authority.

use std::fmt;

use cardea_clock::Wall;

use crate::{Database, StoreFuture};

/// The durable state of ACME. What a write acknowledged survives the loss of power.
pub trait AcmeStore: Database {
    /// Counts every change of a certificate or a challenge, by whichever node.
    fn acme_version(&self) -> StoreFuture<'_, u64>;

    /// The account at the authority of that directory.
    fn acme_account<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, Option<AccountRecord>>;

    /// Keeps an account, in the place of the one before.
    fn put_acme_account<'a>(&'a self, account: &'a AccountRecord) -> StoreFuture<'a, ()>;

    /// Forgets the account at the authority of that directory.
    fn delete_acme_account<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, ()>;

    /// All certificates of that directory, issued or tried for.
    fn acme_certificates<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, Vec<CertificateRecord>>;

    /// Keeps a certificate with its key, whole, in the place of the one before.
    fn put_acme_certificate<'a>(&'a self, certificate: &'a CertificateRecord) -> StoreFuture<'a, ()>;

    /// Keeps of a certificate that was kept what the authority says about its renewal, and nothing else: somebody may have
    /// made it due meanwhile.
    fn put_acme_renewal<'a>(&'a self, certificate: &'a CertificateRecord) -> StoreFuture<'a, ()>;

    /// The challenges that have not expired at `now`.
    fn acme_challenges(&self, now: Wall) -> StoreFuture<'_, Vec<ChallengeRecord>>;

    /// Replaces all challenges: there are only those of the holder of the lease.
    fn replace_acme_challenges<'a>(&'a self, challenges: &'a [ChallengeRecord]) -> StoreFuture<'a, ()>;

    /// Takes the lease until `until`, or holds it for longer. Gives whether `holder` has it now; another one's lasts until
    /// its time is over.
    fn take_acme_lease<'a>(&'a self, holder: &'a str, now: Wall, until: Wall) -> StoreFuture<'a, bool>;

    /// Gives the lease back, if `holder` has it.
    fn release_acme_lease<'a>(&'a self, holder: &'a str) -> StoreFuture<'a, ()>;

    /// Forgets certificates that expired before `before`, and those never issued that were last tried for before it.
    fn forget_acme_certificates(&self, before: Wall) -> StoreFuture<'_, ()>;
}

/// An account at an authority.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountRecord {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The account's URL, which is its name in requests (RFC 8555 §6.2).
    pub url: String,
    /// What the authority was told about whom to contact.
    pub contacts: Vec<String>,
    /// Its private key, PKCS #8 under the wrapping key.
    pub sealed: Vec<u8>,
    /// Which wrapping key.
    pub wrapping_key_id: String,
    /// When it was registered.
    pub created_at: Wall,
}

impl fmt::Debug for AccountRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountRecord").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A certificate, or how attempts at one have gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRecord {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The hosts it is for, sorted.
    pub hosts: Vec<String>,
    /// The type of its key, as the configuration names it.
    pub key_type: String,
    /// The last one that was issued.
    pub issued: Option<IssuedRecord>,
    /// Attempts that have failed since the last success.
    pub failures: u32,
    /// Before this no attempt is made.
    pub next_attempt_at: Option<Wall>,
    /// From when to when the authority wants what was issued to be renewed (RFC 9773 §4.2), as far as it has said.
    pub renewal_window: Option<(Wall, Wall)>,
    /// Before this it is not asked about that again.
    pub ask_renewal_at: Option<Wall>,
    /// Why the last attempt failed: a short name, and a sentence.
    pub problem: Option<(String, String)>,
}

/// A certificate that was issued.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedRecord {
    /// PEM, the leaf first.
    pub chain: String,
    /// Its private key, PKCS #8 under the wrapping key.
    pub sealed: Vec<u8>,
    /// Which wrapping key.
    pub wrapping_key_id: String,
    /// When it came.
    pub issued_at: Wall,
    /// When it expires.
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

/// A challenge that the authority may ask about at any moment.
#[derive(Clone, PartialEq, Eq)]
pub struct ChallengeRecord {
    /// The authority's token.
    pub token: String,
    /// `http-01` or `tls-alpn-01`.
    pub kind: String,
    /// The host that it is about.
    pub host: String,
    /// The answer (RFC 8555 §8.1).
    pub key_authorization: String,
    /// From when nobody asks any more.
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

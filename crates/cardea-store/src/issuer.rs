//! What the authorization server keeps: clients with their secrets, and signing keys.
//!
//! The trait speaks of whole records, and every change names the version that it was made from. So the rules are
//! written once, above it, and a database needs nothing but atomic writes. `tests/it/conformance.rs` is what every
//! implementation must pass.

use std::fmt;

use cardea_clock::Wall;
use serde::Serialize;

use crate::{Database, StoreFuture};

/// A durable registry of clients and signing keys, shared by any number of tasks and, where the database
/// allows it, of processes. What a write acknowledged survives the loss of power.
pub trait IssuerStore: Database {
    /// The client of that id, with its secrets, as of one moment.
    fn client<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<ClientRecord>>;

    /// At most `limit` clients in the byte order of their ids, those after `after`.
    fn clients<'a>(&'a self, after: Option<&'a str>, limit: u32) -> StoreFuture<'a, Vec<ClientRecord>>;

    /// Adds a client as version 1 and gives the record as it was stored. Where a client of that id was
    /// deleted before, its tombstone goes, the record's `tokens_revoked_through` becomes its `created_at`, and its version
    /// is the one after the deleted client's last, in the same transaction: a version of an id never comes back, as long
    /// as anything may be bound to it.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`](crate::StoreError::AlreadyExists).
    fn insert_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ClientRecord>;

    /// Adds clients as [`IssuerStore::insert_client`] does, all of them or none, and says after each thousand how many it has
    /// added.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExistAt`](crate::StoreError::AlreadyExistAt).
    fn insert_clients<'a>(
        &'a self,
        records: &'a [ClientRecord],
        progress: &'a (dyn Fn(usize) + Sync),
    ) -> StoreFuture<'a, ()>;

    /// Replaces the client whose version is `record.version`, and counts the version up.
    ///
    /// # Errors
    /// [`StoreError::Changed`](crate::StoreError::Changed) where the stored version is another one, or the client is gone.
    fn update_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ()>;

    /// Deletes a client with its secrets and leaves a tombstone. Gives whether there was one.
    fn delete_client<'a>(&'a self, id: &'a str, deleted_at: Wall) -> StoreFuture<'a, bool>;

    /// Everything that was disabled, enabled again or deleted at or after `since`, as it stands now.
    fn revocations(&self, since: Wall) -> StoreFuture<'_, Vec<Revocation>>;

    /// Forgets the tombstones of clients that were deleted before `before`.
    fn forget_tombstones(&self, before: Wall) -> StoreFuture<'_, ()>;

    /// What clients have for secrets that are live at `now`: at most 1,000 combinations of formats, the most frequent
    /// ones.
    fn secret_mix(&self, now: Wall) -> StoreFuture<'_, Vec<SecretMix>>;

    /// The key by which stand-ins are chosen for clients that don't exist: `candidate` where there was none yet. It never
    /// changes.
    fn stand_in_key(&self, candidate: [u8; 32]) -> StoreFuture<'_, [u8; 32]>;

    /// All signing keys; version 0 and none where there have never been any.
    fn keys(&self) -> StoreFuture<'_, KeySetRecord>;

    /// Replaces all signing keys where their version is still `version`, and counts it up.
    ///
    /// # Errors
    /// [`StoreError::Changed`](crate::StoreError::Changed) where it is not.
    fn replace_keys<'a>(&'a self, version: u64, keys: &'a [KeyRecord]) -> StoreFuture<'a, ()>;

    /// Until when the keys are known to have been published; `None` where that was never written down.
    fn published_through(&self) -> StoreFuture<'_, Option<Wall>>;

    /// Writes down that the keys are published at `now`.
    fn mark_published(&self, now: Wall) -> StoreFuture<'_, ()>;
}

/// A client as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// The client id.
    pub id: String,
    /// Counts the changes, from 1; of a client whose id a deleted one had, from that one's last version.
    pub version: u64,
    /// A name for people.
    pub name: String,
    /// Whether it may have tokens.
    pub enabled: bool,
    /// The grants it may use.
    pub grant_types: Vec<GrantType>,
    /// The scopes it may ask for, and is given when it asks for none.
    pub scopes: Vec<String>,
    /// The audiences it may ask for; empty: all.
    pub audiences: Vec<String>,
    /// How long its tokens live, in seconds; `None`: as configured.
    pub token_lifetime_seconds: Option<u32>,
    /// How its Basic credentials are read.
    pub basic_encoding: BasicEncoding,
    /// Whether a right secret of it may be remembered for a while.
    pub remember_secret: bool,
    /// When it was created.
    pub created_at: Wall,
    /// When it was last changed.
    pub updated_at: Wall,
    /// Since when it has been disabled.
    pub disabled_at: Option<Wall>,
    /// Tokens issued in this second or before are refused.
    pub tokens_revoked_through: Option<Wall>,
    /// Its secrets, oldest first.
    pub secrets: Vec<SecretRecord>,
}

/// A client secret as it is stored: never the secret itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRecord {
    /// Names the secret within its client.
    pub id: String,
    /// How `verifier` was made: `sha256`, for generated secrets of 256 random bits; else algorithm and cost, as
    /// a stored secret's profile in `cardea-kdf` names them. An unknown format matches nothing.
    pub format: String,
    /// Where the secret came from: `generated` by us, `chosen` by somebody, or `imported` as a hash.
    pub provenance: String,
    /// What a presented secret is compared with: SHA-256, or the text of a stored secret in its own format.
    pub verifier: Vec<u8>,
    /// When it was made.
    pub created_at: Wall,
    /// From when it is refused.
    pub expires_at: Option<Wall>,
}

impl fmt::Debug for SecretRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretRecord")
            .field("id", &self.id)
            .field("format", &self.format)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// How many clients have secrets of the same formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretMix {
    /// How many clients.
    pub clients: u64,
    /// The formats of their secrets, as often as there are secrets of them.
    pub formats: Vec<String>,
}

/// A client whose tokens, or some of them, are no longer good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The client.
    pub client_id: String,
    /// What became of it.
    pub state: RevocationState,
}

/// What became of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationState {
    /// Disabled at that time, and disabled still.
    Disabled(Wall),
    /// In use; its tokens issued in the second of that time or before are refused.
    IssuedThrough(Wall),
    /// Deleted at that time.
    Deleted(Wall),
}

/// All signing keys and the version of their set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySetRecord {
    /// Counts the changes of the set.
    pub version: u64,
    /// The keys, in the order in which they take over.
    pub keys: Vec<KeyRecord>,
}

/// A signing key as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key's id: its RFC 7638 thumbprint.
    pub kid: String,
    /// How it signs.
    pub algorithm: SigningAlgorithm,
    /// PKCS #8 under the wrapping key.
    pub wrapped: Vec<u8>,
    /// Which wrapping key.
    pub wrapping_key_id: String,
    /// When it was made; published since.
    pub created_at: Wall,
    /// From when it signs.
    pub activates_at: Wall,
    /// From when it is no longer published; known once its successor is.
    pub remove_at: Option<Wall>,
}

impl fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRecord")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .field("activates_at", &self.activates_at)
            .field("remove_at", &self.remove_at)
            .finish_non_exhaustive()
    }
}

/// A grant of RFC 6749 that a client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantType {
    /// RFC 6749 §4.4.
    ClientCredentials,
}

impl GrantType {
    /// Its name in requests and metadata.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientCredentials => "client_credentials",
        }
    }

    /// The grant of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        (name == Self::ClientCredentials.as_str()).then_some(Self::ClientCredentials)
    }
}

/// How a client fills in HTTP Basic. RFC 6749 §2.3.1 wants id and secret form-encoded first; many clients do not.
/// For ids and secrets of `[A-Za-z0-9_]`, such as we generate, it makes no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BasicEncoding {
    /// Both readings are tried. Not for ids with `%`, `+` or `:`, where they differ.
    #[default]
    Auto,
    /// As the RFC says.
    FormEncoded,
    /// As RFC 7617 says, and nothing more.
    Raw,
}

impl BasicEncoding {
    /// Its name in the store and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::FormEncoded => "form-encoded",
            Self::Raw => "raw",
        }
    }

    /// The encoding of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Auto, Self::FormEncoded, Self::Raw].into_iter().find(|encoding| encoding.as_str() == name)
    }
}

/// How access tokens are signed (RFC 7518 §3.1, RFC 8037).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SigningAlgorithm {
    /// ECDSA on P-256 with SHA-256: short, quick to sign. The default.
    #[default]
    Es256,
    /// RSA PKCS #1 v1.5 with SHA-256 and 2048-bit keys, for verifiers that know nothing else. It signs on
    /// threads apart.
    Rs256,
    /// Ed25519.
    EdDsa,
}

impl SigningAlgorithm {
    /// Its name in JOSE headers and key sets.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm of that name; case matters (RFC 7515 §4.1.1).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Es256, Self::Rs256, Self::EdDsa].into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

impl fmt::Display for SigningAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_go_by_their_exact_names() {
        for algorithm in [SigningAlgorithm::Es256, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa] {
            assert_eq!(SigningAlgorithm::parse(algorithm.as_str()), Some(algorithm));
        }
        assert_eq!(SigningAlgorithm::parse("es256"), None);
        assert_eq!(SigningAlgorithm::parse("none"), None);
    }
}

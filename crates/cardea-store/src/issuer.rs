//! The persistent data of the authorization server: clients with their secrets, and signing keys.
//!
//! The trait works on whole records, and every change names the version that it is based on. So the rules are
//! implemented once, above the trait, and a database needs only atomic writes. Every implementation must pass
//! `tests/it/conformance.rs`.

use std::fmt;

use cardea_clock::Wall;
use serde::Serialize;

use crate::{Database, StoreFuture};

/// A durable registry of clients and signing keys, shared by any number of tasks and, if the database allows it, of
/// processes. An acknowledged write survives a loss of power.
pub trait IssuerStore: Database {
    /// The client with that id and its secrets, from one consistent read.
    fn client<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<ClientRecord>>;

    /// At most `limit` clients whose ids follow `after`, in byte order.
    fn clients<'a>(&'a self, after: Option<&'a str>, limit: u32) -> StoreFuture<'a, Vec<ClientRecord>>;

    /// Adds a client as version 1 and returns the stored record. If a client with that id was deleted before, its
    /// tombstone is removed, the record's `tokens_revoked_through` becomes its `created_at`, and its version follows
    /// the deleted client's last one, in the same transaction. So a version of an id is never used twice while anything
    /// may be bound to it.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`](crate::StoreError::AlreadyExists).
    fn insert_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ClientRecord>;

    /// Adds all of the clients or none, as [`IssuerStore::insert_client`] does, and reports progress after each
    /// thousand.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExistAt`](crate::StoreError::AlreadyExistAt).
    fn insert_clients<'a>(
        &'a self,
        records: &'a [ClientRecord],
        progress: &'a (dyn Fn(usize) + Sync),
    ) -> StoreFuture<'a, ()>;

    /// Replaces the client whose version is `record.version`, and increments the version.
    ///
    /// # Errors
    /// [`StoreError::Changed`](crate::StoreError::Changed) if the stored version is another one, or the client was
    /// deleted.
    fn update_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ()>;

    /// Deletes a client with its secrets and leaves a tombstone. Returns whether the client existed.
    fn delete_client<'a>(&'a self, id: &'a str, deleted_at: Wall) -> StoreFuture<'a, bool>;

    /// The current state of every client that was disabled, enabled or deleted at or after `since`.
    fn revocations(&self, since: Wall) -> StoreFuture<'_, Vec<Revocation>>;

    /// Deletes the tombstones of clients that were deleted before `before`.
    fn forget_tombstones(&self, before: Wall) -> StoreFuture<'_, ()>;

    /// The distribution of the formats of secrets that are valid at `now`: the 1,000 most frequent combinations.
    fn secret_mix(&self, now: Wall) -> StoreFuture<'_, Vec<SecretMix>>;

    /// The key that dummy secrets are chosen with. `candidate` is stored if there is none yet. It never changes.
    fn dummy_key(&self, candidate: [u8; 32]) -> StoreFuture<'_, [u8; 32]>;

    /// All signing keys; version 0 and no keys if none were ever stored.
    fn keys(&self) -> StoreFuture<'_, KeySetRecord>;

    /// Replaces all signing keys if their version is `version`, and increments the version.
    ///
    /// # Errors
    /// [`StoreError::Changed`](crate::StoreError::Changed) if it is another one.
    fn replace_keys<'a>(&'a self, version: u64, keys: &'a [KeyRecord]) -> StoreFuture<'a, ()>;

    /// Until when the keys are known to have been published; `None` if that was never recorded.
    fn published_through(&self) -> StoreFuture<'_, Option<Wall>>;

    /// Records that the keys are published at `now`.
    fn mark_published(&self, now: Wall) -> StoreFuture<'_, ()>;
}

/// A stored client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// At most 128 bytes of visible ASCII.
    pub id: String,
    /// Counts the changes, from 1, or from the last version of a deleted client with the same id.
    pub version: u64,
    /// A display name.
    pub name: String,
    /// Whether the client can get tokens.
    pub enabled: bool,
    /// The allowed grants.
    pub grant_types: Vec<GrantType>,
    /// The scopes that the client may request. A request without scopes gets all of them.
    pub scopes: Vec<String>,
    /// The audiences that the client may request; empty: only the default audience.
    pub audiences: Vec<String>,
    /// The lifetime of the client's tokens in seconds; `None`: the configured lifetime.
    pub token_lifetime_seconds: Option<u32>,
    /// The encoding of the client's Basic credentials.
    pub basic_encoding: BasicEncoding,
    /// Whether a verified secret of the client may be cached.
    pub remember_secret: bool,
    /// The time of creation.
    pub created_at: Wall,
    /// The time of the last change.
    pub updated_at: Wall,
    /// The time of disabling.
    pub disabled_at: Option<Wall>,
    /// Tokens issued in this second or before are refused.
    pub tokens_revoked_through: Option<Wall>,
    /// Its secrets, oldest first.
    pub secrets: Vec<SecretRecord>,
}

/// A stored client secret: never the secret itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRecord {
    /// Identifies the secret within its client.
    pub id: String,
    /// The algorithm of `verifier`: `sha256` for generated secrets of 256 random bits, otherwise the algorithm and cost
    /// in the form of a stored secret's profile in `cardea-kdf`. An unknown format matches nothing.
    pub format: String,
    /// The origin of the secret: `generated` by the server, `chosen` by an operator, or `imported` as a hash.
    pub provenance: String,
    /// The hash that a presented secret is compared with: a SHA-256, or a stored secret in its own format.
    pub verifier: Vec<u8>,
    /// The time of creation.
    pub created_at: Wall,
    /// The time from which the secret is refused.
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

/// The number of clients whose secrets have the same formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretMix {
    /// At least 1.
    pub clients: u64,
    /// The formats of the secrets of such a client, one per secret.
    pub formats: Vec<String>,
}

/// A client whose tokens are revoked, all or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The client, which may be deleted.
    pub client_id: String,
    /// The present state of the client.
    pub state: RevocationState,
}

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationState {
    /// Disabled at that time.
    Disabled(Wall),
    /// Enabled. Tokens issued in the second of that time or before are refused.
    IssuedThrough(Wall),
    /// Deleted at that time.
    Deleted(Wall),
}

/// All signing keys and the version of their set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySetRecord {
    /// The version of the set, which counts its changes.
    pub version: u64,
    /// The keys, in the order of activation.
    pub keys: Vec<KeyRecord>,
}

/// A stored signing key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key's id: its RFC 7638 thumbprint.
    pub kid: String,
    /// The signature algorithm.
    pub algorithm: SigningAlgorithm,
    /// PKCS #8, encrypted with the wrapping key.
    pub wrapped: Vec<u8>,
    /// The id of the wrapping key.
    pub wrapping_key_id: String,
    /// The time of creation and of first publication.
    pub created_at: Wall,
    /// The time from which the key signs.
    pub activates_at: Wall,
    /// The time from which the key is no longer published. It is set when its successor exists.
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
    /// The client-credentials grant (RFC 6749 §4.4).
    ClientCredentials,
}

impl GrantType {
    /// The name in requests and metadata.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientCredentials => "client_credentials",
        }
    }

    /// The grant with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        (name == Self::ClientCredentials.as_str()).then_some(Self::ClientCredentials)
    }
}

/// How a client encodes HTTP Basic credentials. RFC 6749 §2.3.1 requires form-encoding of id and secret; many clients
/// don't do it. It makes no difference for ids and secrets of `[A-Za-z0-9_]`, such as generated ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BasicEncoding {
    /// Both readings are tried. Not allowed for ids with `%`, `+` or `:`, where they differ.
    #[default]
    Auto,
    /// Form-encoded (RFC 6749 §2.3.1).
    FormEncoded,
    /// Not encoded (RFC 7617).
    Raw,
}

impl BasicEncoding {
    /// The name in the store and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::FormEncoded => "form-encoded",
            Self::Raw => "raw",
        }
    }

    /// The encoding with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Auto, Self::FormEncoded, Self::Raw].into_iter().find(|encoding| encoding.as_str() == name)
    }
}

/// The signature algorithm of access tokens (RFC 7518 §3.1, RFC 8037).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SigningAlgorithm {
    /// ECDSA on P-256 with SHA-256: short signatures, fast to sign. The default.
    #[default]
    Es256,
    /// RSA PKCS #1 v1.5 with SHA-256 and 2048-bit keys, for verifiers that support nothing else. It signs on separate
    /// threads.
    Rs256,
    /// Ed25519.
    EdDsa,
}

impl SigningAlgorithm {
    /// The name in JOSE headers and key sets.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm with that name, which is case-sensitive (RFC 7515 §4.1.1).
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

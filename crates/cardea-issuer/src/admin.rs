//! Management of clients and keys, for the command line and the admin socket.

use std::time::Duration;

use cardea_clock::{Timestamp, Wall};
use cardea_store::{ClientRecord, KeyRecord, Revocation, RevocationState, SecretRecord, StoreError};

use crate::{
    AuthorizationServer, Client, Created, IssuerError, Key, NewClient, Page, RotateWhen, Secret, WrappingKey,
    client::check_secret_lifetime, client::invalid, client_auth::FORMAT_SHA256, client_auth::SECRETS_MAX,
    client_auth::is_live, revocation, rotation::KEYS_MAX, rotation::keys_gone_at, rotation::set_removals,
    secret::generate_client_id, secret::generate_secret_id, server::ATTEMPTS_MAX, server::Changes,
    server::log_new_key, server::log_redated_key,
};

/// The most clients in a page.
const PAGE_MAX: u32 = 1_000;
/// The longest time for which an old secret may stay valid beside a new one.
const SECRET_OVERLAP_MAX: Duration = Duration::from_secs(90 * 24 * 3_600);

impl AuthorizationServer {
    /// Creates a client with its first secret. When this returns, the client is durable and can get tokens.
    ///
    /// # Errors
    /// [`IssuerError::InvalidClient`], [`IssuerError::ClientExists`], [`IssuerError::Store`]; [`IssuerError::Busy`] if
    /// a chosen secret can't be hashed now.
    pub async fn create_client(&self, new: NewClient, now: Timestamp) -> Result<Created, IssuerError> {
        new.check(&self.config())?;
        let mono = now.mono;
        let now = now.wall;
        let (secret, secret_record) = match new.secret {
            None => new_secret(now, new.secret_expires_in)?,
            Some(secret) => {
                let (format, text) = self.verifier.hash_chosen(secret.expose(), mono).await?;
                (secret, secret_of(now, new.secret_expires_in, format, "chosen", text.into_bytes())?)
            }
        };
        let lifetime = new.access_token_lifetime.map(|lifetime| u32::try_from(lifetime.as_secs()));
        let record = ClientRecord {
            id: match new.id {
                Some(id) => id,
                None => generate_client_id()?,
            },
            version: 1,
            name: new.name,
            enabled: true,
            grant_types: new.grant_types,
            scopes: new.scopes,
            audiences: new.audiences,
            token_lifetime_seconds: lifetime
                .transpose()
                .map_err(|_| invalid("access_token_lifetime", "too long".into()))?,
            basic_encoding: new.basic_encoding,
            remember_secret: new.remember_secret,
            created_at: now,
            updated_at: now,
            disabled_at: None,
            tokens_revoked_through: None,
            secrets: vec![secret_record],
        };
        let mut changes = self.changes.lock().await;
        let stored = match self.store.insert_client(&record).await {
            Ok(stored) => stored,
            Err(StoreError::AlreadyExists) => return Err(IssuerError::ClientExists { id: record.id }),
            Err(error) => return Err(error.into()),
        };
        self.verifier.clients_changed();
        if let Some(revoked_through) = stored.tokens_revoked_through {
            // A client of this id existed before. Its tokens stay revoked.
            self.tell(&mut changes, &stored.id, RevocationState::IssuedThrough(revoked_through));
        }
        tracing::info!(client_id = stored.id, "client created");
        Ok(Created { client: Client::from(&stored), secret })
    }

    /// A page of at most `limit` clients (1,000 at most) whose ids follow `after`, in byte order.
    ///
    /// # Errors
    /// [`IssuerError::Store`].
    pub async fn list_clients(&self, after: Option<&str>, limit: u32) -> Result<Page, IssuerError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut records = self.store.clients(after, limit + 1).await?;
        let more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let next = if more { records.last().map(|record| record.id.clone()) } else { None };
        Ok(Page { clients: records.iter().map(Client::from).collect(), next })
    }

    /// One client.
    ///
    /// # Errors
    /// [`IssuerError::UnknownClient`], [`IssuerError::Store`].
    pub async fn show_client(&self, id: &str) -> Result<Client, IssuerError> {
        Ok(Client::from(&self.client(id).await?))
    }

    /// Adds a new secret to a client. Existing secrets stay valid for `overlap`, at most 90 days, or until they expire
    /// if that is sooner. An `overlap` of zero invalidates them at once. Issued tokens stay valid.
    ///
    /// # Errors
    /// [`IssuerError::UnknownClient`], [`IssuerError::InvalidClient`], [`IssuerError::TooManySecrets`] if more than
    /// eight would be valid, [`IssuerError::Store`].
    pub async fn rotate_secret(
        &self,
        id: &str,
        overlap: Duration,
        expires_in: Option<Duration>,
        now: Timestamp,
    ) -> Result<Created, IssuerError> {
        check_secret_lifetime(expires_in)?;
        if overlap > SECRET_OVERLAP_MAX {
            return Err(invalid("overlap", "expected at most 90 days".into()));
        }
        let now = now.wall;
        let (secret, secret_record) = new_secret(now, expires_in)?;
        let until = now.saturating_add(overlap);
        let _changes = self.changes.lock().await;
        let record = self
            .change_client(id, now, |record| {
                for secret in &mut record.secrets {
                    secret.expires_at =
                        Some(secret.expires_at.map_or(until, |expires_at| expires_at.min(until)));
                }
                record.secrets.retain(|secret| is_live(secret, now));
                if record.secrets.len() >= SECRETS_MAX {
                    return Err(IssuerError::TooManySecrets { id: id.into(), limit: SECRETS_MAX });
                }
                record.secrets.push(secret_record.clone());
                Ok(())
            })
            .await?;
        tracing::info!(client_id = id, secret_id = secret_record.id, "client secret rotated");
        Ok(Created { client: Client::from(&record), secret })
    }

    /// Disables a client. When this returns, the client gets no more tokens, and its issued tokens are refused.
    /// Disabling a disabled client changes nothing.
    ///
    /// # Errors
    /// [`IssuerError::UnknownClient`], [`IssuerError::Store`].
    pub async fn disable_client(&self, id: &str, now: Timestamp) -> Result<Client, IssuerError> {
        let now = now.wall;
        let mut changes = self.changes.lock().await;
        let record = self
            .change_client(id, now, |record| {
                record.enabled = false;
                record.disabled_at.get_or_insert(now);
                Ok(())
            })
            .await?;
        self.tell(&mut changes, id, RevocationState::Disabled(record.disabled_at.unwrap_or(now)));
        tracing::info!(client_id = id, "client disabled");
        Ok(Client::from(&record))
    }

    /// Enables a client again. Tokens issued in this second or earlier stay revoked; tokens issued from now on carry a
    /// later second. Enabling an enabled client changes nothing.
    ///
    /// A client that was disabled while the clock was ahead gets no tokens until that time. If it lies beyond the life of
    /// the present keys, disabling and enabling the client again corrects it.
    ///
    /// # Errors
    /// [`IssuerError::UnknownClient`], [`IssuerError::Store`].
    pub async fn enable_client(&self, id: &str, now: Timestamp) -> Result<Client, IssuerError> {
        let now = now.wall;
        let keys_gone_at = keys_gone_at(&self.config(), self.takes_over_at(now));
        let mut changes = self.changes.lock().await;
        let record = self
            .change_client(id, now, |record| {
                if let Some(disabled_at) = record.disabled_at.take() {
                    // The time of disabling is not enough: a concurrent request may have been answered a moment later.
                    let earlier = [Some(disabled_at), record.tokens_revoked_through].into_iter().flatten();
                    let through = revocation::revoked_through(earlier, keys_gone_at, now);
                    if Some(disabled_at).max(record.tokens_revoked_through) > Some(through) {
                        tracing::warn!(
                            client_id = id,
                            "the client was disabled while the clock was ahead; its revocation is corrected, but a gateway \
                             that runs since then refuses its tokens until the next start"
                        );
                    }
                    record.tokens_revoked_through = Some(through);
                }
                record.enabled = true;
                Ok(())
            })
            .await?;
        if let Some(revoked_through) = record.tokens_revoked_through {
            self.tell(&mut changes, id, RevocationState::IssuedThrough(revoked_through));
        }
        tracing::info!(client_id = id, "client enabled");
        Ok(Client::from(&record))
    }

    /// Deletes a client. When this returns, its tokens are refused permanently: a new client with the same id doesn't
    /// make them valid again.
    ///
    /// # Errors
    /// [`IssuerError::UnknownClient`], [`IssuerError::Store`].
    pub async fn delete_client(&self, id: &str, now: Timestamp) -> Result<(), IssuerError> {
        let mut changes = self.changes.lock().await;
        if !self.store.delete_client(id, now.wall).await? {
            return Err(IssuerError::UnknownClient { id: id.into() });
        }
        self.verifier.clients_changed();
        self.tell(&mut changes, id, RevocationState::Deleted(now.wall));
        tracing::info!(client_id = id, "client deleted");
        Ok(())
    }

    /// The signing keys, in the order of activation.
    ///
    /// # Errors
    /// [`IssuerError::Store`].
    pub async fn list_keys(&self, now: Timestamp) -> Result<Vec<Key>, IssuerError> {
        let _changes = self.changes.lock().await;
        self.load_keys().await?;
        Ok(self.keys.load().describe(self.moment(now.wall)))
    }

    /// Starts the rotation to the next signing key, which is generated if there is none. [`RotateWhen::Scheduled`]
    /// changes nothing if a key is already published ahead, except times that a clock set that was ahead. With [`RotateWhen::Now`] the key that is published ahead,
    /// which verifiers know already, or else a new key signs when this returns. Returns the resulting keys.
    ///
    /// # Errors
    /// [`IssuerError::TooManyKeys`], [`IssuerError::Store`].
    pub async fn rotate_key(&self, when: RotateWhen, now: Timestamp) -> Result<Vec<Key>, IssuerError> {
        let now = now.wall;
        let _changes = self.changes.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let mut stored = self.load_keys().await?;
            let redated = self.redate(&mut stored.keys, now).await?;
            if !redated.is_empty() {
                if self.replace_keys(stored.version, stored.keys).await? {
                    redated.iter().for_each(log_redated_key);
                }
                continue;
            }
            let pending = stored.keys.last().is_some_and(|newest| now < newest.activates_at);
            if when == RotateWhen::Scheduled && pending {
                return Ok(self.keys.load().describe(self.moment(now)));
            }
            let mut keys = stored.keys;
            let signing = self.keys.load().signing_index(self.moment(now));
            let next = signing.map_or(0, |signing| signing + 1);
            let (made, is_full) = (keys.get(next).is_none(), keys.len() >= KEYS_MAX);
            match keys.get_mut(next) {
                Some(waiting) if when == RotateWhen::Now => {
                    // Marked as created to sign at once, so that it is never withheld.
                    (waiting.created_at, waiting.activates_at) = (now, now);
                }
                _ if is_full => return Err(IssuerError::TooManyKeys { limit: KEYS_MAX }),
                _ => {
                    let activates_at = match when {
                        RotateWhen::Now => now,
                        RotateWhen::Scheduled => self.takes_over_at(now),
                    };
                    keys.push(self.create_key(now, activates_at).await?);
                }
            }
            set_removals(&mut keys, &self.config());
            let next = keys.get(next).cloned();
            if self.replace_keys(stored.version, keys).await? {
                match &next {
                    Some(key) if made => log_new_key(key),
                    Some(key) => tracing::info!(kid = key.kid, "the published key signs now"),
                    None => {}
                }
                return Ok(self.keys.load().describe(self.moment(now)));
            }
        }
        Err(IssuerError::Contended { what: "key set" })
    }

    /// Encrypts all signing keys with a new wrapping key, in one transaction. From then on the server can open its keys
    /// only with the new wrapping key, so configure it before the next start.
    ///
    /// This future must be awaited to its end. If it is dropped midway, the store may have the new key while the server
    /// holds the old one; [`Self::maintain`] reports that until the restart.
    ///
    /// # Errors
    /// [`IssuerError::WrappingKey`], [`IssuerError::Store`]. Then nothing was changed.
    pub async fn rewrap(&self, new: WrappingKey) -> Result<(), IssuerError> {
        let _changes = self.changes.lock().await;
        let old = self.wrapping_key();
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.load_keys().await?;
            let keys: Vec<KeyRecord> =
                stored.keys.iter().map(|key| rewrapped(key, &old, &new)).collect::<Result<_, _>>()?;
            match self.store.replace_keys(stored.version, &keys).await {
                Ok(()) => {
                    self.set_wrapping_key(new);
                    self.load_keys().await?;
                    tracing::info!("signing keys wrapped again");
                    return Ok(());
                }
                Err(StoreError::Changed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IssuerError::Contended { what: "key set" })
    }

    /// Closes the store. Later requests are answered 503.
    pub async fn close(&self) {
        self.store.close().await;
    }

    async fn client(&self, id: &str) -> Result<ClientRecord, IssuerError> {
        self.store.client(id).await?.ok_or_else(|| IssuerError::UnknownClient { id: id.into() })
    }

    /// Applies a change to the stored client, and retries if another change was concurrent.
    async fn change_client(
        &self,
        id: &str,
        now: Wall,
        change: impl Fn(&mut ClientRecord) -> Result<(), IssuerError>,
    ) -> Result<ClientRecord, IssuerError> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.client(id).await?;
            let mut record = before.clone();
            change(&mut record)?;
            if record == before {
                return Ok(record);
            }
            record.updated_at = now;
            match self.store.update_client(&record).await {
                Ok(()) => {
                    self.verifier.clients_changed();
                    record.version = record.version.saturating_add(1);
                    return Ok(record);
                }
                Err(StoreError::Changed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IssuerError::Contended { what: "client" })
    }

    /// Notifies the sink. `_changes` proves that the lock is held, so that the sink receives changes in their order.
    fn tell(&self, _changes: &mut Changes, id: &str, state: RevocationState) {
        if let Some(sink) = self.sink.get() {
            revocation::tell(&**sink, &Revocation { client_id: id.to_owned(), state });
        }
    }
}

fn new_secret(now: Wall, expires_in: Option<Duration>) -> Result<(Secret, SecretRecord), IssuerError> {
    let secret = Secret::generate()?;
    let digest = secret.digest();
    Ok((secret, secret_of(now, expires_in, FORMAT_SHA256.to_owned(), "generated", digest)?))
}

pub(crate) fn secret_of(
    now: Wall,
    expires_in: Option<Duration>,
    format: String,
    provenance: &str,
    verifier: Vec<u8>,
) -> Result<SecretRecord, IssuerError> {
    Ok(SecretRecord {
        id: generate_secret_id()?,
        format,
        provenance: provenance.to_owned(),
        verifier,
        created_at: now,
        expires_at: expires_in.map(|expires_in| now.saturating_add(expires_in)),
    })
}

fn rewrapped(key: &KeyRecord, old: &WrappingKey, new: &WrappingKey) -> Result<KeyRecord, IssuerError> {
    let pkcs8 = old.unwrap(&key.kid, key.algorithm, &key.wrapping_key_id, &key.wrapped)?;
    let wrapped = new
        .wrap(&key.kid, key.algorithm, &pkcs8)
        .ok_or(IssuerError::Crypto("the signing key can't be wrapped"))?;
    Ok(KeyRecord { wrapped, wrapping_key_id: new.id().to_owned(), ..key.clone() })
}

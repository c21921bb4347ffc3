//! The import of clients from another server, with the hashes of their secrets.

use std::collections::HashSet;

use cardea_clock::Timestamp;
use cardea_kdf::stored::StoredSecret;
use cardea_store::{ClientRecord, StoreError};

use crate::{AuthorizationServer, IssuerError, NewClient, RefusedClient, admin::secret_of, client::invalid};

/// A client to be imported.
#[derive(Clone)]
pub struct ImportedClient {
    /// The client. It needs an id and must not have a secret of its own.
    pub client: NewClient,
    /// The stored hash of its secret, in one of the formats of [`StoredSecret::parse`].
    pub secret_hash: String,
    /// Whether the client can get tokens.
    pub enabled: bool,
}

impl std::fmt::Debug for ImportedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportedClient").field("id", &self.client.id).finish_non_exhaustive()
    }
}

impl AuthorizationServer {
    /// Checks whether a client can be imported, without access to the store.
    ///
    /// # Errors
    /// [`IssuerError::InvalidClient`] for the first field that is wrong.
    pub fn check_import(&self, imported: &ImportedClient) -> Result<(), IssuerError> {
        if imported.client.id.is_none() {
            return Err(invalid("client_id", "missing".to_owned()));
        }
        imported.client.check(&self.config())?;
        stored(imported).map(drop)
    }

    /// Imports all of the clients or none, and reports progress after each thousand. A secret is hashed again when it
    /// is first verified, if the configured hash is stronger.
    ///
    /// # Errors
    /// [`IssuerError::ImportRefused`] names the clients that can't be imported; [`IssuerError::Store`].
    pub async fn import_clients(
        &self,
        clients: &[ImportedClient],
        progress: &(dyn Fn(usize) + Sync),
        now: Timestamp,
    ) -> Result<(), IssuerError> {
        let mut records = Vec::with_capacity(clients.len());
        let mut seen = HashSet::with_capacity(clients.len());
        let mut refused = Vec::new();
        for (index, imported) in clients.iter().enumerate() {
            match self.check_import(imported).and_then(|()| record(imported, now)) {
                Ok(record) if !seen.insert(record.id.clone()) => {
                    refused
                        .push(RefusedClient { index, problem: format!("duplicate client {:?}", record.id) });
                }
                Ok(record) => records.push(record),
                Err(error) => refused.push(RefusedClient { index, problem: error.to_string() }),
            }
        }
        if !refused.is_empty() {
            return Err(IssuerError::ImportRefused(refused));
        }
        // Other processes learn of the revocations of old tokens as of any change in the store.
        let _changes = self.changes.lock().await;
        match self.store.insert_clients(&records, progress).await {
            Ok(()) => {}
            Err(StoreError::AlreadyExistAt { indices }) => {
                let refused = indices.into_iter().filter_map(|index| {
                    let id = &records.get(index)?.id;
                    Some(RefusedClient { index, problem: format!("a client {id:?} already exists") })
                });
                return Err(IssuerError::ImportRefused(refused.collect()));
            }
            Err(error) => return Err(error.into()),
        }
        self.verifier.clients_changed();
        self.verifier.set_mix(&self.store.secret_mix(now.wall).await?);
        tracing::info!(clients = records.len(), "clients imported");
        Ok(())
    }
}

fn stored(imported: &ImportedClient) -> Result<StoredSecret, IssuerError> {
    StoredSecret::parse(&imported.secret_hash).map_err(|error| invalid("secret_hash", error.to_string()))
}

fn record(imported: &ImportedClient, now: Timestamp) -> Result<ClientRecord, IssuerError> {
    let (new, now) = (imported.client.clone(), now.wall);
    let format = stored(imported)?.profile();
    let verifier = imported.secret_hash.clone().into_bytes();
    let lifetime = new.access_token_lifetime.map(|lifetime| u32::try_from(lifetime.as_secs())).transpose();
    Ok(ClientRecord {
        id: new.id.ok_or_else(|| invalid("client_id", "missing".to_owned()))?,
        version: 1,
        name: new.name,
        enabled: imported.enabled,
        grant_types: new.grant_types,
        scopes: new.scopes,
        audiences: new.audiences,
        token_lifetime_seconds: lifetime
            .map_err(|_| invalid("access_token_lifetime", "too long".to_owned()))?,
        basic_encoding: new.basic_encoding,
        remember_secret: new.remember_secret,
        created_at: now,
        updated_at: now,
        disabled_at: (!imported.enabled).then_some(now),
        tokens_revoked_through: None,
        secrets: vec![secret_of(now, new.secret_expires_in, format, "imported", verifier)?],
    })
}

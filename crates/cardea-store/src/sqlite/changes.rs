//! The statements of transactions. Each function gets the connection of a transaction that its caller begins and ends.

use cardea_clock::Wall;
use sqlx::SqliteConnection;

use super::{failed, rows::bind_client};
use crate::{ClientRecord, KeyRecord, StoreError};

/// An import reports its progress after this many clients.
const PROGRESS_EVERY: usize = 1_000;
/// The most clients that an import reports as not importable.
const TOLD_MAX: usize = 1_000;

/// Adds a client and its secrets. If a client with that id was deleted before, its tombstone is removed, its tokens
/// stay revoked, and its versions are continued.
pub(super) async fn insert_client(
    connection: &mut SqliteConnection,
    record: &ClientRecord,
) -> Result<ClientRecord, StoreError> {
    let mut record = ClientRecord { version: 1, ..record.clone() };
    let before: Option<i64> =
        sqlx::query_scalar("DELETE FROM deleted_clients WHERE id = ?1 RETURNING version")
            .bind(&record.id)
            .fetch_optional(&mut *connection)
            .await
            .map_err(failed)?;
    if let Some(version) = before {
        let version =
            u64::try_from(version).map_err(|_| StoreError::Invalid { what: "deleted_clients.version" })?;
        record.version = version.saturating_add(1);
        record.tokens_revoked_through = Some(record.created_at);
    }
    bind_client(
        "INSERT INTO clients (id, version, name, enabled, grant_types, scopes, audiences, \
         token_lifetime_seconds, basic_encoding, created_at, updated_at, disabled_at, tokens_revoked_through, \
         remember_secret) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        &record,
    )?
    .execute(&mut *connection)
    .await
    .map_err(failed)?;
    insert_secrets(connection, &record).await?;
    Ok(record)
}

pub(super) async fn insert_clients(
    connection: &mut SqliteConnection,
    records: &[ClientRecord],
    progress: &(dyn Fn(usize) + Sync),
) -> Result<(), StoreError> {
    let mut indices = Vec::new();
    for (index, record) in records.iter().enumerate() {
        match insert_client(connection, record).await {
            Ok(_) => {}
            // The remaining clients are tried too, so that all that exist already are reported at once.
            Err(StoreError::AlreadyExists) => indices.push(index),
            Err(error) => return Err(error),
        }
        if indices.len() >= TOLD_MAX {
            break;
        }
        if (index + 1) % PROGRESS_EVERY == 0 {
            progress(index + 1);
        }
    }
    if indices.is_empty() { Ok(()) } else { Err(StoreError::AlreadyExistAt { indices }) }
}

pub(super) async fn update_client(
    connection: &mut SqliteConnection,
    record: &ClientRecord,
) -> Result<(), StoreError> {
    let updated = bind_client(
        "UPDATE clients SET version = version + 1, name = ?3, enabled = ?4, grant_types = ?5, scopes = ?6, \
         audiences = ?7, token_lifetime_seconds = ?8, basic_encoding = ?9, created_at = ?10, updated_at = ?11, \
         disabled_at = ?12, tokens_revoked_through = ?13, remember_secret = ?14 WHERE id = ?1 AND version = ?2",
        record,
    )?
    .execute(&mut *connection)
    .await
    .map_err(failed)?;
    if updated.rows_affected() != 1 {
        return Err(StoreError::Changed);
    }
    sqlx::query("DELETE FROM secrets WHERE client_id = ?1")
        .bind(&record.id)
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    insert_secrets(connection, record).await
}

/// Returns whether the client existed.
pub(super) async fn delete_client(
    connection: &mut SqliteConnection,
    id: &str,
    deleted_at: Wall,
) -> Result<bool, StoreError> {
    let deleted: Option<i64> = sqlx::query_scalar("DELETE FROM clients WHERE id = ?1 RETURNING version")
        .bind(id)
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed)?;
    let Some(version) = deleted else { return Ok(false) };
    sqlx::query("INSERT OR REPLACE INTO deleted_clients (id, deleted_at, version) VALUES (?1, ?2, ?3)")
        .bind(id)
        .bind(deleted_at.unix_nanos())
        .bind(version)
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    Ok(true)
}

pub(super) async fn replace_keys(
    connection: &mut SqliteConnection,
    version: u64,
    keys: &[KeyRecord],
) -> Result<(), StoreError> {
    let expected = i64::try_from(version).map_err(|_| StoreError::Changed)?;
    let statement = if version == 0 {
        "INSERT INTO key_set (id, version) VALUES (1, ?1 + 1) ON CONFLICT DO NOTHING"
    } else {
        "UPDATE key_set SET version = version + 1 WHERE version = ?1"
    };
    let counted = sqlx::query(statement).bind(expected).execute(&mut *connection).await.map_err(failed)?;
    if counted.rows_affected() != 1 {
        return Err(StoreError::Changed);
    }
    sqlx::query("DELETE FROM signing_keys").execute(&mut *connection).await.map_err(failed)?;
    for (position, key) in (0_i64..).zip(keys) {
        sqlx::query(
            "INSERT INTO signing_keys (kid, algorithm, wrapped, wrapping_key_id, created_at, activates_at, \
             remove_at, position) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )
        .bind(&key.kid)
        .bind(key.algorithm.as_str())
        .bind(&key.wrapped)
        .bind(&key.wrapping_key_id)
        .bind(key.created_at.unix_nanos())
        .bind(key.activates_at.unix_nanos())
        .bind(key.remove_at.map(Wall::unix_nanos))
        .bind(position)
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    }
    Ok(())
}

async fn insert_secrets(connection: &mut SqliteConnection, record: &ClientRecord) -> Result<(), StoreError> {
    for secret in &record.secrets {
        sqlx::query(
            "INSERT INTO secrets (client_id, id, format, provenance, verifier, created_at, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .bind(&record.id)
        .bind(&secret.id)
        .bind(&secret.format)
        .bind(&secret.provenance)
        .bind(&secret.verifier)
        .bind(secret.created_at.unix_nanos())
        .bind(secret.expires_at.map(Wall::unix_nanos))
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    }
    Ok(())
}

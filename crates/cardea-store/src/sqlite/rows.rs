//! Conversion between records and rows.

use cardea_clock::Wall;
use sqlx::{Row as _, Sqlite, query::Query, sqlite::SqliteArguments, sqlite::SqliteRow};

use super::failed;
use crate::{
    BasicEncoding, ClientRecord, GrantType, KeyRecord, SecretMix, SecretRecord, SigningAlgorithm, StoreError,
};

macro_rules! select_clients {
    ($from:literal) => {
        concat!(
            "SELECT c.id, c.version, c.name, c.enabled, c.grant_types, c.scopes, c.audiences, \
             c.token_lifetime_seconds, c.basic_encoding, c.remember_secret, c.created_at, c.updated_at, c.disabled_at, \
             c.tokens_revoked_through, s.id AS secret_id, s.format, s.provenance, s.verifier, \
             s.created_at AS secret_created_at, s.expires_at AS secret_expires_at FROM ",
            $from,
            " LEFT JOIN secrets s ON s.client_id = c.id ORDER BY c.id, s.created_at, s.id"
        )
    };
}

/// One client with its secrets, one row per secret. ?1 is the client id.
pub(super) const SELECT_CLIENT: &str = select_clients!("(SELECT * FROM clients WHERE id = ?1) c");
/// A page of clients with their secrets, one row per secret. ?1 is the id before the page, ?2 the length of the page.
pub(super) const SELECT_CLIENTS: &str =
    select_clients!("(SELECT * FROM clients WHERE id > ?1 ORDER BY id LIMIT ?2) c");

/// Binds a client's columns to ?1 … ?14, in the order of the table.
pub(super) fn bind_client<'q>(
    statement: &'static str,
    record: &'q ClientRecord,
) -> Result<Query<'q, Sqlite, SqliteArguments>, StoreError> {
    let version =
        i64::try_from(record.version).map_err(|_| StoreError::Invalid { what: "clients.version" })?;
    let audiences =
        serde_json::to_string(&record.audiences).map_err(|error| StoreError::Failed(Box::new(error)))?;
    let grant_types: Vec<&str> = record.grant_types.iter().map(|grant| grant.as_str()).collect();
    Ok(sqlx::query(statement)
        .bind(&record.id)
        .bind(version)
        .bind(&record.name)
        .bind(record.enabled)
        .bind(grant_types.join(" "))
        .bind(record.scopes.join(" "))
        .bind(audiences)
        .bind(record.token_lifetime_seconds.map(i64::from))
        .bind(record.basic_encoding.as_str())
        .bind(record.created_at.unix_nanos())
        .bind(record.updated_at.unix_nanos())
        .bind(record.disabled_at.map(Wall::unix_nanos))
        .bind(record.tokens_revoked_through.map(Wall::unix_nanos))
        .bind(record.remember_secret))
}

/// Converts rows of client and secret, sorted by client, to clients.
pub(super) fn clients_of(rows: &[SqliteRow]) -> Result<Vec<ClientRecord>, StoreError> {
    let mut clients: Vec<ClientRecord> = Vec::new();
    for row in rows {
        let id: &str = row.try_get("id").map_err(failed)?;
        if clients.last().is_none_or(|client| client.id != id) {
            clients.push(client_of(row)?);
        }
        if let (Some(client), Some(secret)) = (clients.last_mut(), secret_of(row)?) {
            client.secrets.push(secret);
        }
    }
    Ok(clients)
}

fn client_of(row: &SqliteRow) -> Result<ClientRecord, StoreError> {
    let invalid = |what| StoreError::Invalid { what };
    let audiences: &str = row.try_get("audiences").map_err(failed)?;
    let version: i64 = row.try_get("version").map_err(failed)?;
    let lifetime: Option<i64> = row.try_get("token_lifetime_seconds").map_err(failed)?;
    let encoding: &str = row.try_get("basic_encoding").map_err(failed)?;
    let grant_types: &str = row.try_get("grant_types").map_err(failed)?;
    Ok(ClientRecord {
        id: row.try_get("id").map_err(failed)?,
        version: u64::try_from(version).map_err(|_| invalid("clients.version"))?,
        name: row.try_get("name").map_err(failed)?,
        enabled: row.try_get("enabled").map_err(failed)?,
        // An unknown grant is ignored, because this program can't issue it.
        grant_types: grant_types.split_ascii_whitespace().filter_map(GrantType::parse).collect(),
        scopes: words(row.try_get("scopes").map_err(failed)?),
        audiences: serde_json::from_str(audiences).map_err(|_| invalid("clients.audiences"))?,
        token_lifetime_seconds: lifetime
            .map(u32::try_from)
            .transpose()
            .map_err(|_| invalid("clients.token_lifetime_seconds"))?,
        basic_encoding: BasicEncoding::parse(encoding).ok_or_else(|| invalid("clients.basic_encoding"))?,
        remember_secret: row.try_get("remember_secret").map_err(failed)?,
        created_at: Wall::from_unix_nanos(row.try_get("created_at").map_err(failed)?),
        updated_at: Wall::from_unix_nanos(row.try_get("updated_at").map_err(failed)?),
        disabled_at: wall(row, "disabled_at")?,
        tokens_revoked_through: wall(row, "tokens_revoked_through")?,
        secrets: Vec::new(),
    })
}

/// The secret of a row; a client without secrets has one row without a secret.
fn secret_of(row: &SqliteRow) -> Result<Option<SecretRecord>, StoreError> {
    let Some(id) = row.try_get::<Option<String>, _>("secret_id").map_err(failed)? else { return Ok(None) };
    Ok(Some(SecretRecord {
        id,
        format: row.try_get("format").map_err(failed)?,
        provenance: row.try_get("provenance").map_err(failed)?,
        verifier: row.try_get("verifier").map_err(failed)?,
        created_at: Wall::from_unix_nanos(row.try_get("secret_created_at").map_err(failed)?),
        expires_at: wall(row, "secret_expires_at")?,
    }))
}

/// The key of a row; a set without keys has one row without a key.
pub(super) fn key_of(row: &SqliteRow) -> Result<Option<KeyRecord>, StoreError> {
    let Some(kid) = row.try_get::<Option<String>, _>("kid").map_err(failed)? else { return Ok(None) };
    let algorithm: &str = row.try_get("algorithm").map_err(failed)?;
    Ok(Some(KeyRecord {
        kid,
        algorithm: SigningAlgorithm::parse(algorithm)
            .ok_or(StoreError::Invalid { what: "signing_keys.algorithm" })?,
        wrapped: row.try_get("wrapped").map_err(failed)?,
        wrapping_key_id: row.try_get("wrapping_key_id").map_err(failed)?,
        created_at: Wall::from_unix_nanos(row.try_get("created_at").map_err(failed)?),
        activates_at: Wall::from_unix_nanos(row.try_get("activates_at").map_err(failed)?),
        remove_at: wall(row, "remove_at")?,
    }))
}

/// A row of the distribution of secret formats.
pub(super) fn mix_of(row: &SqliteRow) -> Result<SecretMix, StoreError> {
    let clients: i64 = row.try_get("clients").map_err(failed)?;
    Ok(SecretMix {
        clients: u64::try_from(clients).unwrap_or(0),
        formats: words(row.try_get("formats").map_err(failed)?),
    })
}

fn wall(row: &SqliteRow, column: &'static str) -> Result<Option<Wall>, StoreError> {
    Ok(row.try_get::<Option<i64>, _>(column).map_err(failed)?.map(Wall::from_unix_nanos))
}

fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

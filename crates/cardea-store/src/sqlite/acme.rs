//! The state of ACME in SQLite.

use cardea_clock::Wall;
use sqlx::{
    Row as _, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{SqliteStore, failed};
use crate::{
    AccountRecord, AcmeStore, CertificateRecord, ChallengeRecord, IssuedRecord, StoreError, StoreFuture,
};

impl AcmeStore for SqliteStore {
    fn acme_version(&self) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let version = self.reader.scalar(sqlx::query_scalar("SELECT version FROM acme_state")).await?;
            u64::try_from(version).map_err(|_| StoreError::Invalid { what: "acme_state.version" })
        })
    }

    fn acme_account<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, Option<AccountRecord>> {
        Box::pin(async move {
            let query = sqlx::query("SELECT * FROM acme_accounts WHERE directory = ?1").bind(directory);
            let row = self.reader.optional(query).await?;
            row.as_ref().map(account_of).transpose()
        })
    }

    fn put_acme_account<'a>(&'a self, account: &'a AccountRecord) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let query = sqlx::query(
                "INSERT OR REPLACE INTO acme_accounts (directory, url, contacts, sealed, wrapping_key_id, created_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .bind(&account.directory)
            .bind(&account.url)
            .bind(account.contacts.join(" "))
            .bind(&account.sealed)
            .bind(&account.wrapping_key_id)
            .bind(account.created_at.unix_nanos());
            self.write(query).await.map(drop)
        })
    }

    fn delete_acme_account<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let query = sqlx::query("DELETE FROM acme_accounts WHERE directory = ?1").bind(directory);
            self.write(query).await.map(drop)
        })
    }

    fn acme_certificates<'a>(&'a self, directory: &'a str) -> StoreFuture<'a, Vec<CertificateRecord>> {
        Box::pin(async move {
            let query = sqlx::query("SELECT * FROM acme_certificates WHERE directory = ?1").bind(directory);
            let rows = self.reader.all(query).await?;
            rows.iter().map(certificate_of).collect()
        })
    }

    fn put_acme_certificate<'a>(&'a self, certificate: &'a CertificateRecord) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let issued = certificate.issued.as_ref();
            let problem = certificate.problem.as_ref();
            let done = async {
            let connection = write.connection()?;
            sqlx::query(
                "INSERT OR REPLACE INTO acme_certificates (directory, hosts, key_type, chain, sealed, wrapping_key_id, \
                 issued_at, not_after, failures, next_attempt_at, reason, problem, renew_from, renew_until, \
                 ask_renewal_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )
            .bind(&certificate.directory)
            .bind(certificate.hosts.join(" "))
            .bind(&certificate.key_type)
            .bind(issued.map(|issued| &issued.chain))
            .bind(issued.map(|issued| &issued.sealed))
            .bind(issued.map(|issued| &issued.wrapping_key_id))
            .bind(issued.map(|issued| issued.issued_at.unix_nanos()))
            .bind(issued.map(|issued| issued.not_after.unix_nanos()))
            .bind(i64::from(certificate.failures))
            .bind(certificate.next_attempt_at.map(Wall::unix_nanos))
            .bind(problem.map(|(reason, _)| reason))
            .bind(problem.map(|(_, message)| message))
            .bind(certificate.renewal_window.map(|(from, _)| from.unix_nanos()))
            .bind(certificate.renewal_window.map(|(_, until)| until.unix_nanos()))
            .bind(certificate.ask_renewal_at.map(Wall::unix_nanos))
            .execute(&mut *connection)
                .await
                .map_err(failed)?;
            count(connection).await
            }.await;
            write.end(done).await
        })
    }

    fn put_acme_renewal<'a>(&'a self, certificate: &'a CertificateRecord) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let done = async {
                let connection = write.connection()?;
                sqlx::query(
                    "UPDATE acme_certificates SET renew_from = ?4, renew_until = ?5, ask_renewal_at = ?6 \
                 WHERE directory = ?1 AND hosts = ?2 AND key_type = ?3",
                )
                .bind(&certificate.directory)
                .bind(certificate.hosts.join(" "))
                .bind(&certificate.key_type)
                .bind(certificate.renewal_window.map(|(from, _)| from.unix_nanos()))
                .bind(certificate.renewal_window.map(|(_, until)| until.unix_nanos()))
                .bind(certificate.ask_renewal_at.map(Wall::unix_nanos))
                .execute(&mut *connection)
                .await
                .map_err(failed)?;
                count(connection).await
            }
            .await;
            write.end(done).await
        })
    }

    fn acme_challenges(&self, now: Wall) -> StoreFuture<'_, Vec<ChallengeRecord>> {
        Box::pin(async move {
            let query =
                sqlx::query("SELECT * FROM acme_challenges WHERE expires_at > ?1").bind(now.unix_nanos());
            let rows = self.reader.all(query).await?;
            rows.iter().map(challenge_of).collect()
        })
    }

    fn replace_acme_challenges<'a>(&'a self, challenges: &'a [ChallengeRecord]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let done = async {
                let connection = write.connection()?;
                sqlx::query("DELETE FROM acme_challenges").execute(&mut *connection).await.map_err(failed)?;
                for challenge in challenges {
                    sqlx::query(
                        "INSERT INTO acme_challenges (token, kind, host, key_authorization, expires_at) \
                         VALUES (?1, ?2, ?3, ?4, ?5)",
                    )
                    .bind(&challenge.token)
                    .bind(&challenge.kind)
                    .bind(&challenge.host)
                    .bind(&challenge.key_authorization)
                    .bind(challenge.expires_at.unix_nanos())
                    .execute(&mut *connection)
                    .await
                    .map_err(failed)?;
                }
                count(connection).await
            }
            .await;
            write.end(done).await
        })
    }

    fn take_acme_lease<'a>(&'a self, holder: &'a str, now: Wall, until: Wall) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let query = sqlx::query(
                "UPDATE acme_state SET lease_holder = ?1, lease_until = ?3 \
                 WHERE lease_holder = ?1 OR lease_until <= ?2",
            )
            .bind(holder)
            .bind(now.unix_nanos())
            .bind(until.unix_nanos());
            Ok(self.write(query).await? == 1)
        })
    }

    fn release_acme_lease<'a>(&'a self, holder: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let query = sqlx::query(
                "UPDATE acme_state SET lease_holder = '', lease_until = 0 WHERE lease_holder = ?1",
            )
            .bind(holder);
            self.write(query).await.map(drop)
        })
    }

    fn forget_acme_certificates(&self, before: Wall) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let query = sqlx::query(
                "DELETE FROM acme_certificates WHERE coalesce(not_after, next_attempt_at, 0) < ?1 \
                 AND coalesce(next_attempt_at, 0) < ?1",
            )
            .bind(before.unix_nanos());
            self.write(query).await.map(drop)
        })
    }
}

impl SqliteStore {
    /// Writes by one statement, and says how many rows that changed.
    async fn write(&self, query: Query<'_, Sqlite, SqliteArguments>) -> Result<u64, StoreError> {
        let mut write = self.writer.begin().await?;
        let done = query.execute(write.connection()?).await.map_err(failed);
        write.end(done).await.map(|done| done.rows_affected())
    }
}

/// Counts a change that all nodes must see.
async fn count(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let count = sqlx::query("UPDATE acme_state SET version = version + 1");
    count.execute(connection).await.map(drop).map_err(failed)
}

fn account_of(row: &SqliteRow) -> Result<AccountRecord, StoreError> {
    Ok(AccountRecord {
        directory: row.try_get("directory").map_err(failed)?,
        url: row.try_get("url").map_err(failed)?,
        contacts: words(row, "contacts")?,
        sealed: row.try_get("sealed").map_err(failed)?,
        wrapping_key_id: row.try_get("wrapping_key_id").map_err(failed)?,
        created_at: Wall::from_unix_nanos(row.try_get("created_at").map_err(failed)?),
    })
}

fn certificate_of(row: &SqliteRow) -> Result<CertificateRecord, StoreError> {
    let time = |name: &str| -> Result<Option<Wall>, StoreError> {
        Ok(row.try_get::<Option<i64>, _>(name).map_err(failed)?.map(Wall::from_unix_nanos))
    };
    let chain: Option<String> = row.try_get("chain").map_err(failed)?;
    let issued = match (chain, time("issued_at")?, time("not_after")?) {
        (Some(chain), Some(issued_at), Some(not_after)) => Some(IssuedRecord {
            chain,
            sealed: row.try_get("sealed").map_err(failed)?,
            wrapping_key_id: row.try_get("wrapping_key_id").map_err(failed)?,
            issued_at,
            not_after,
        }),
        _ => None,
    };
    let reason: Option<String> = row.try_get("reason").map_err(failed)?;
    let problem: Option<String> = row.try_get("problem").map_err(failed)?;
    let failures: i64 = row.try_get("failures").map_err(failed)?;
    Ok(CertificateRecord {
        directory: row.try_get("directory").map_err(failed)?,
        hosts: words(row, "hosts")?,
        key_type: row.try_get("key_type").map_err(failed)?,
        issued,
        failures: u32::try_from(failures)
            .map_err(|_| StoreError::Invalid { what: "acme_certificates.failures" })?,
        next_attempt_at: time("next_attempt_at")?,
        renewal_window: time("renew_from")?.zip(time("renew_until")?),
        ask_renewal_at: time("ask_renewal_at")?,
        problem: reason.zip(problem),
    })
}

fn challenge_of(row: &SqliteRow) -> Result<ChallengeRecord, StoreError> {
    Ok(ChallengeRecord {
        token: row.try_get("token").map_err(failed)?,
        kind: row.try_get("kind").map_err(failed)?,
        host: row.try_get("host").map_err(failed)?,
        key_authorization: row.try_get("key_authorization").map_err(failed)?,
        expires_at: Wall::from_unix_nanos(row.try_get("expires_at").map_err(failed)?),
    })
}

fn words(row: &SqliteRow, name: &str) -> Result<Vec<String>, StoreError> {
    let text: String = row.try_get(name).map_err(failed)?;
    Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;

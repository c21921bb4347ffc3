//! The connections that read.

use sqlx::{
    Sqlite, SqlitePool,
    query::{Query, QueryScalar},
    sqlite::{SqliteArguments, SqliteRow},
};

use super::failed;
use crate::StoreError;

/// Reads, several at once. A connection that met an error is closed; another one is opened when it is needed.
#[derive(Clone)]
pub(super) struct Reader(pub(super) SqlitePool);

impl Reader {
    pub(super) async fn all(
        &self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let mut connection = self.0.acquire().await.map_err(failed)?;
        let rows = query.fetch_all(&mut *connection).await;
        if rows.is_err() {
            connection.close_on_drop();
        }
        rows.map_err(failed)
    }

    pub(super) async fn optional(
        &self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Option<SqliteRow>, StoreError> {
        Ok(self.all(query).await?.into_iter().next())
    }

    pub(super) async fn scalar(
        &self,
        query: QueryScalar<'_, Sqlite, i64, SqliteArguments>,
    ) -> Result<i64, StoreError> {
        let mut connection = self.0.acquire().await.map_err(failed)?;
        let value = query.fetch_one(&mut *connection).await;
        if value.is_err() {
            connection.close_on_drop();
        }
        value.map_err(failed)
    }

    pub(super) async fn close(&self) {
        self.0.close().await;
    }
}

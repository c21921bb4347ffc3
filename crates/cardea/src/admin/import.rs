//! The import of clients from another server, and the assembly of its parts.

use std::{mem, time::Duration};

use cardea_issuer::{ImportedClient, NewClient};

pub(crate) use self::client::ImportClient;
use super::{
    manage::encoding,
    protocol::{AdminError, Code, Request},
};

mod client;

/// The most clients of one import, which is one transaction.
pub(crate) const IMPORT_CLIENTS_MAX: usize = 100_000;

/// The most bytes of one import.
pub(crate) const IMPORT_BYTES_MAX: usize = 64 * 1024 * 1024;

impl ImportClient {
    fn into_imported(self) -> Result<ImportedClient, AdminError> {
        Ok(ImportedClient {
            client: NewClient {
                basic_encoding: encoding(self.basic_encoding.as_deref())?,
                name: self.name.unwrap_or_else(|| self.client_id.clone()),
                id: Some(self.client_id),
                scopes: self.scopes,
                audiences: self.audiences,
                access_token_lifetime: self.access_token_lifetime_seconds.map(Duration::from_secs),
                secret_expires_in: self.secret_expires_in_seconds.map(Duration::from_secs),
                remember_secret: self.remember_secret.unwrap_or(true),
                ..NewClient::default()
            },
            secret_hash: self.secret_hash.expose().to_owned(),
            enabled: self.enabled.unwrap_or(true),
        })
    }
}

/// Converts clients for the authorization server.
///
/// # Errors
/// The client with an unknown value.
pub(crate) fn imported(clients: Vec<ImportClient>) -> Result<Vec<ImportedClient>, AdminError> {
    let each = clients.into_iter().enumerate().map(|(index, client)| {
        client.into_imported().map_err(|refusal| AdminError { index: Some(index), ..refusal })
    });
    each.collect()
}

/// The parts of an import that were received on a connection. It is carried out as a whole, or not at all.
#[derive(Default)]
pub(super) struct Staged {
    clients: Vec<ImportClient>,
    bytes: usize,
}

impl Staged {
    /// Whether an import was begun and is incomplete.
    pub(super) fn is_begun(&self) -> bool {
        self.bytes > 0
    }

    /// Takes a request of that many bytes. Returns the request to carry out, unless it is a part that others follow.
    ///
    /// # Errors
    /// If a limit is exceeded. Then the connection must be closed, because the next part would start another import.
    pub(super) fn take(&mut self, request: Request, bytes: usize) -> Result<Option<Request>, AdminError> {
        let Request::ClientImport { clients, more } = request else { return Ok(Some(request)) };
        self.bytes = self.bytes.saturating_add(bytes);
        self.clients.extend(clients);
        if self.clients.len() > IMPORT_CLIENTS_MAX || self.bytes > IMPORT_BYTES_MAX {
            let most = IMPORT_BYTES_MAX >> 20;
            let message = format!("an import has at most {IMPORT_CLIENTS_MAX} clients and {most} MiB");
            return Err(AdminError::new(Code::Limit, message));
        }
        if more {
            return Ok(None);
        }
        let whole = mem::take(self);
        Ok(Some(Request::ClientImport { clients: whole.clients, more: false }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str) -> ImportClient {
        let line = format!(r#"{{"client_id":"{id}","secret_hash":"h"}}"#);
        serde_json::from_str(&line).unwrap()
    }

    fn part(ids: &[&str], more: bool) -> Request {
        Request::ClientImport { clients: ids.iter().map(|id| client(id)).collect(), more }
    }

    #[test]
    fn parts_become_one_import() {
        let mut staged = Staged::default();
        assert_eq!(staged.take(Request::Status, 9), Ok(Some(Request::Status)));
        assert!(!staged.is_begun(), "nothing of an import");
        assert_eq!(staged.take(part(&["a", "b"], true), 9), Ok(None));
        assert!(staged.is_begun());
        assert_eq!(staged.take(part(&["c"], false), 9), Ok(Some(part(&["a", "b", "c"], false))));
        assert!(!staged.is_begun());
        assert_eq!(staged.take(part(&["d"], false), 9), Ok(Some(part(&["d"], false))));
    }

    #[test]
    fn an_import_has_a_bound() {
        let mut staged = Staged::default();
        assert_eq!(staged.take(part(&["a"], true), IMPORT_BYTES_MAX), Ok(None));
        assert_eq!(staged.take(part(&["b"], true), 1).unwrap_err().code, Code::Limit);
        let mut staged = Staged::default();
        let many = vec![client("a"); IMPORT_CLIENTS_MAX];
        assert_eq!(staged.take(Request::ClientImport { clients: many, more: true }, 1), Ok(None));
        assert_eq!(staged.take(part(&["b"], false), 1).unwrap_err().code, Code::Limit);
    }

    #[test]
    fn omitted_members_have_the_defaults_of_a_new_client() {
        let imported = client("a").into_imported().unwrap();
        let (new, plain) = (imported.client, NewClient::default());
        assert_eq!((new.id.as_deref(), new.name.as_str(), imported.enabled), (Some("a"), "a", true));
        assert_eq!((new.remember_secret, new.basic_encoding), (plain.remember_secret, plain.basic_encoding));
    }

    #[test]
    fn an_unknown_value_is_reported_with_its_index() {
        let odd = ImportClient { basic_encoding: Some("rot13".into()), ..client("b") };
        let refusal = imported(vec![client("a"), odd]).unwrap_err();
        assert_eq!((refusal.index, refusal.message.contains("rot13")), (Some(1), true));
    }

    #[test]
    fn no_message_contains_a_secret_hash() {
        let object = r#"{"client_id":"a","secret_hash":{"secretData":{}}}"#;
        let read: ImportClient = serde_json::from_str(object).unwrap();
        assert_eq!(read.secret_hash.expose(), r#"{"secretData":{}}"#);
        let wrong = r#"{"client_id":"a","secret_hash":4711}"#;
        let error = serde_json::from_str::<ImportClient>(wrong).unwrap_err().to_string();
        assert!(error.contains("secret_hash") && !error.contains("4711"), "{error}");
        assert!(!format!("{:?}", client("a")).contains("\"h\""));
    }
}

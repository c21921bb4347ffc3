//! Operations on clients and keys of an authorization server, for the server and the command line.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cardea_clock::Timestamp;
use cardea_issuer::{
    AuthorizationServer, Created, IssuerError, Key, NewClient, RefusedClient, RotateWhen, Secret, WrappingKey,
};
use cardea_store::BasicEncoding;
use zeroize::Zeroizing;

use super::{
    import::imported,
    protocol::{AdminError, Answer, Code, ItemError, Request, Sensitive},
};

/// The default page size of client lists.
const PAGE: u32 = 200;

/// The most clients of a refused import that are reported besides the first.
const OTHERS_MAX: usize = 1_000;

/// Carries out a request on clients or keys. It is in effect when this returns. `progress` is called with the number of
/// clients that an import has written.
///
/// # Errors
/// Why it failed, or that it needs a running server.
pub(crate) async fn execute(
    server: &AuthorizationServer,
    request: Request,
    progress: &(dyn Fn(usize) + Sync),
    now: Timestamp,
) -> Result<Answer, AdminError> {
    let answer = match request {
        Request::ClientCreate {
            id,
            name,
            scopes,
            audiences,
            token_lifetime_seconds,
            secret_expires_in_seconds,
            basic_encoding,
            secret,
            remember_secret,
        } => {
            let new = NewClient {
                id,
                name,
                scopes,
                audiences,
                access_token_lifetime: token_lifetime_seconds.map(Duration::from_secs),
                secret_expires_in: secret_expires_in_seconds.map(Duration::from_secs),
                basic_encoding: encoding(basic_encoding.as_deref())?,
                secret: secret.map(|secret| Secret::chosen(secret.expose())).transpose()?,
                remember_secret: remember_secret.unwrap_or(true),
                ..NewClient::default()
            };
            created(server.create_client(new, now).await?)
        }
        Request::ClientImport { more: true, .. } => {
            return Err(AdminError::new(Code::Malformed, "a part of an import without the others"));
        }
        Request::ClientImport { clients, more: false } => {
            server.import_clients(&imported(clients)?, progress, now).await?;
            Answer::Done
        }
        Request::ClientList { after, limit } => {
            let page = server.list_clients(after.as_deref(), limit.unwrap_or(PAGE)).await?;
            Answer::Clients { clients: page.clients.into_iter().map(Into::into).collect(), next: page.next }
        }
        Request::ClientShow { id } => Answer::Client(server.show_client(&id).await?.into()),
        Request::ClientRotate { id, overlap_seconds, secret_expires_in_seconds } => {
            let expires_in = secret_expires_in_seconds.map(Duration::from_secs);
            let overlap = Duration::from_secs(overlap_seconds);
            created(server.rotate_secret(&id, overlap, expires_in, now).await?)
        }
        Request::ClientDisable { id } => Answer::Client(server.disable_client(&id, now).await?.into()),
        Request::ClientEnable { id } => Answer::Client(server.enable_client(&id, now).await?.into()),
        Request::ClientDelete { id } => {
            server.delete_client(&id, now).await?;
            Answer::Done
        }
        Request::KeyList => keys(server.list_keys(now).await?),
        Request::KeyRotate { now: at_once } => {
            let when = if at_once { RotateWhen::Now } else { RotateWhen::Scheduled };
            keys(server.rotate_key(when, now).await?)
        }
        Request::KeyRewrap { new_key } => {
            server.rewrap(wrapping_key(&new_key)?).await?;
            keys(server.list_keys(now).await?)
        }
        Request::Status
        | Request::Reload
        | Request::Drain
        | Request::UpstreamList
        | Request::UpstreamExplain { .. }
        | Request::UpstreamOverride { .. }
        | Request::TarpitList
        | Request::TarpitRelease { .. }
        | Request::CertificateList
        | Request::CertificateRenew { .. } => {
            return Err(AdminError::new(
                Code::Failed,
                "this command needs a running gateway, and none responds",
            ));
        }
    };
    Ok(answer)
}

fn created(created: Created) -> Answer {
    Answer::Created { client: created.client.into(), secret: Sensitive::new(created.secret.expose()) }
}

fn keys(keys: Vec<Key>) -> Answer {
    Answer::Keys(keys.into_iter().map(Into::into).collect())
}

pub(super) fn encoding(name: Option<&str>) -> Result<BasicEncoding, AdminError> {
    let Some(name) = name else { return Ok(BasicEncoding::default()) };
    let unknown = || {
        AdminError::new(Code::Invalid, format!("basic_encoding {name:?} is not auto, form-encoded or raw"))
    };
    BasicEncoding::parse(name).ok_or_else(unknown)
}

fn wrapping_key(text: &Sensitive) -> Result<WrappingKey, AdminError> {
    let Ok(bytes) = STANDARD.decode(text.expose()).map(Zeroizing::new) else {
        return Err(AdminError::new(Code::Malformed, "new_key is not base64"));
    };
    WrappingKey::parse(&bytes).map_err(|error| AdminError::new(Code::Invalid, error.to_string()))
}

impl From<IssuerError> for AdminError {
    fn from(error: IssuerError) -> Self {
        let code = match &error {
            IssuerError::UnknownClient { .. } => Code::NotFound,
            IssuerError::ClientExists { .. } => Code::Exists,
            IssuerError::InvalidClient { .. } | IssuerError::ImportRefused(_) => Code::Invalid,
            IssuerError::TooManySecrets { .. } | IssuerError::TooManyKeys { .. } => Code::Limit,
            _ => Code::Failed,
        };
        let (index, others) = match &error {
            IssuerError::ImportRefused(refused) => {
                let one = |one: &RefusedClient| ItemError { index: one.index, message: one.problem.clone() };
                let others = refused.iter().skip(1).take(OTHERS_MAX).map(one).collect();
                (refused.first().map(|first| first.index), others)
            }
            _ => (None, Vec::new()),
        };
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            let shown = error.to_string();
            if !message.ends_with(&shown) {
                message = format!("{message}: {shown}");
            }
            cause = error.source();
        }
        Self { code, message, index, others }
    }
}

//! A server in memory with a manual clock, and helpers for its tests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use cardea_clock::{ManualClock, Timestamp, Wall};
use cardea_issuer::{
    AuthorizationServer, AuthorizationServerConfig, Created, NewClient, Reply, RevocationSink, TokenRequest,
    WrappingKey,
};
use cardea_store::{IssuerStore, sqlite::SqliteStore};
use serde_json::Value;
use url::Url;

pub(crate) const START: Wall = Wall::from_unix_seconds(1_700_000_000);
pub(crate) const FORM: &[u8] = b"application/x-www-form-urlencoded";
pub(crate) const GRANT: &str = "grant_type=client_credentials";

/// The default audience and the resources.
const AUDIENCES: [&str; 3] =
    ["https://api.example.com", "https://api.example.com/orders", "https://api.example.com/users"];

pub(crate) fn config() -> AuthorizationServerConfig {
    AuthorizationServerConfig {
        resources: AUDIENCES.iter().skip(1).map(|&resource| resource.to_owned()).collect(),
        scopes: ["orders:read", "orders:write", "users:read"].map(str::to_owned).to_vec(),
        // Shorter than the defaults, so that a year has many rotations.
        key_lifetime: Duration::from_secs(30 * 86_400),
        key_overlap: Duration::from_secs(25 * 3_600),
        ..AuthorizationServerConfig::new(Url::parse("https://id.example.com").unwrap(), AUDIENCES[0])
    }
}

pub(crate) fn wrapping_key() -> WrappingKey {
    WrappingKey::from_bytes(&[9; 32])
}

pub(crate) struct Fixture {
    pub(crate) server: Arc<AuthorizationServer>,
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<dyn IssuerStore>,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(config()).await
    }

    pub(crate) async fn with(config: AuthorizationServerConfig) -> Self {
        let store: Arc<dyn IssuerStore> = Arc::new(SqliteStore::in_memory().await.unwrap());
        let clock = ManualClock::new(START);
        let server =
            AuthorizationServer::open(config, Arc::clone(&store), wrapping_key(), clock.clock().now());
        Self { server: Arc::new(server.await.unwrap()), clock, store }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.clock().now()
    }

    pub(crate) async fn client(&self) -> Created {
        self.client_of(NewClient {
            scopes: vec!["orders:read".into(), "users:read".into()],
            audiences: AUDIENCES.map(str::to_owned).to_vec(),
            ..NewClient::default()
        })
        .await
    }

    pub(crate) async fn client_of(&self, new: NewClient) -> Created {
        self.server.create_client(new, self.now()).await.unwrap()
    }

    pub(crate) async fn post(&self, authorization: &[&str], body: &str) -> Reply {
        self.post_as(&self.server, authorization, body).await
    }

    pub(crate) async fn post_as(
        &self,
        server: &AuthorizationServer,
        authorization: &[&str],
        body: &str,
    ) -> Reply {
        let values: Vec<&[u8]> = authorization.iter().map(|value| value.as_bytes()).collect();
        let request = TokenRequest {
            authorization: &values,
            content_type: Some(FORM),
            query_present: false,
            body: body.as_bytes(),
        };
        server.token(request, self.now()).await
    }

    /// A token, requested with Basic credentials.
    pub(crate) async fn token(&self, created: &Created) -> Token {
        let reply = self.post(&[&basic_of(created)], GRANT).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        self.verified(&reply)
    }

    /// The token of a reply, verified with the published key set only.
    pub(crate) fn verified(&self, reply: &Reply) -> Token {
        let response: Value = serde_json::from_str(&reply.body).unwrap();
        let token = response["access_token"].as_str().unwrap();
        let key_set: Value = serde_json::from_str(&self.server.key_set()).unwrap();
        let (header, claims) = verify(token, &key_set).expect("the token verifies");
        Token { header, claims, response }
    }

    pub(crate) async fn tries(&self, created: &Created) -> u16 {
        self.post(&[&basic_of(created)], GRANT).await.status
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

pub(crate) struct Token {
    pub(crate) header: Value,
    pub(crate) claims: Value,
    pub(crate) response: Value,
}

pub(crate) fn basic(id: &str, secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")))
}

pub(crate) fn basic_of(created: &Created) -> String {
    basic(&created.client.client_id, created.secret.expose())
}

pub(crate) fn json(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap()
}

pub(crate) fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

/// Header and claims of a token whose signature verifies with the key that it names.
pub(crate) fn verify(token: &str, key_set: &Value) -> Option<(Value, Value)> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
    let claims: Value = serde_json::from_slice(&decode(claims)?).ok()?;
    let signature = decode(signature)?;
    let jwk = key_set["keys"].as_array()?.iter().find(|key| key["kid"] == header["kid"])?;
    assert_eq!(jwk["alg"], header["alg"]);
    let member = |name: &str| decode(jwk[name].as_str().unwrap()).unwrap();
    let message = signed.as_bytes();
    match jwk["kty"].as_str()? {
        "EC" => {
            let point = [vec![4], member("x"), member("y")].concat();
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, &signature)
        }
        "RSA" => RsaPublicKeyComponents { n: member("n"), e: member("e") }.verify(
            &RSA_PKCS1_2048_8192_SHA256,
            message,
            &signature,
        ),
        _ => UnparsedPublicKey::new(&ED25519, member("x")).verify(message, &signature),
    }
    .ok()?;
    Some((header, claims))
}

/// The notifications of a sink, in order.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Vec<Said>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Disabled(String),
    Enabled(String, i64),
    Deleted(String),
}

impl Told {
    pub(crate) fn take(&self) -> Vec<Said> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl RevocationSink for Told {
    fn disabled(&self, client_id: &str, _forget_after: Wall) {
        self.0.lock().unwrap().push(Said::Disabled(client_id.into()));
    }

    fn enabled(&self, client_id: &str, revoked_through: Wall, _forget_after: Wall) {
        self.0.lock().unwrap().push(Said::Enabled(client_id.into(), revoked_through.unix_seconds()));
    }

    fn deleted(&self, client_id: &str, _forget_after: Wall) {
        self.0.lock().unwrap().push(Said::Deleted(client_id.into()));
    }
}

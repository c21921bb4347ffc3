//! An issuer of tokens.

use std::sync::Arc;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use cardea_identity::{Authenticator, IssuerConfig, KeySource, LocalKeys, NoFetch};
use serde_json::{Value, json};

pub(crate) const ISSUER: &str = "https://id.example";

pub(crate) struct Issuer {
    pair: EcdsaKeyPair,
    config: IssuerConfig,
    pub(crate) authenticator: Arc<Authenticator>,
}

impl Issuer {
    /// An issuer whose configuration is changed in some way.
    pub(crate) fn new(change: fn(IssuerConfig) -> IssuerConfig) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = &pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(32);
        let jwks = json!({"keys": [{
            "kty": "EC", "crv": "P-256", "kid": "k", "use": "sig",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]});
        let keys = LocalKeys::new();
        keys.publish(jwks.to_string().as_bytes()).unwrap();
        let config = change(IssuerConfig {
            name: "main".into(),
            issuer: ISSUER.into(),
            audiences: vec!["api".into(), "api2".into()],
            keys: KeySource::Local(keys),
            ..IssuerConfig::default()
        });
        let authenticator = Authenticator::new(vec![config.clone()], None, Arc::new(NoFetch)).unwrap();
        Self { pair, config, authenticator: Arc::new(authenticator) }
    }

    /// The same issuer under another configuration, which may leave it out.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(IssuerConfig) -> Option<IssuerConfig>) {
        let configs = change(self.config.clone()).into_iter().collect();
        let next = Authenticator::new(configs, Some(&self.authenticator), Arc::new(NoFetch));
        self.authenticator = Arc::new(next.unwrap());
    }

    /// Signs `claims`, on top of those that pass at `now`.
    pub(crate) fn token(&self, now: i64, claims: &Value) -> String {
        let mut all = json!({
            "iss": ISSUER, "aud": "api", "sub": "alice", "client_id": "app", "jti": "1",
            "iat": now - 10, "exp": now + 600, "scope": "read write",
        });
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": "k"});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let input = format!("{}.{}", encode(&header), encode(&all));
        let signature = self.pair.sign(&SystemRandom::new(), input.as_bytes()).unwrap();
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

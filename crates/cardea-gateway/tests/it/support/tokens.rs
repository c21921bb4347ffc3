//! An issuer of tokens.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use cardea_identity::LocalKeys;
use serde_json::{Value, json};

pub(crate) const ISSUER: &str = "https://id.example";

pub(crate) struct Issuer {
    pair: EcdsaKeyPair,
    pub(crate) keys: LocalKeys,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let (pair, keys) = (new_pair(), LocalKeys::new());
        publish(&keys, &[("k", &pair), ("old", &new_pair())]);
        Self { pair, keys }
    }

    /// Publishes the key that signs alone: another one that was there is gone.
    pub(crate) fn retire_another(&self) {
        publish(&self.keys, &[("k", &self.pair)]);
    }

    /// Publishes another key, in place of the one that signs.
    pub(crate) fn rotate(&self) {
        publish(&self.keys, &[("next", &new_pair())]);
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

fn new_pair() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

fn publish(keys: &LocalKeys, pairs: &[(&str, &EcdsaKeyPair)]) {
    let jwk = |(id, pair): &(&str, &EcdsaKeyPair)| {
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        json!({
            "kty": "EC", "crv": "P-256", "kid": id, "use": "sig",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        })
    };
    let jwks = json!({"keys": pairs.iter().map(jwk).collect::<Vec<_>>()});
    keys.publish(jwks.to_string().as_bytes()).unwrap();
}

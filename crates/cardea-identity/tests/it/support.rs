//! Signing keys, tokens, a scripted network, and an authenticator to test.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cardea_clock::{Mono, Timestamp, Wall};
use cardea_identity::{
    Algorithm, Authenticator, Fetch, FetchError, FetchRequest, IssuerConfig, KeySource, LocalKeys, NoFetch,
    TokenError, Verdict,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://id.example";

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp {
        wall: Wall::from_unix_seconds(seconds),
        mono: Mono::from_nanos(u64::try_from(seconds - NOW + 100_000).unwrap() * 1_000_000_000),
    }
}

pub(crate) fn now() -> Timestamp {
    at(NOW)
}

pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

enum Pair {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(&'static rsa::KeyPair),
}

/// A private key with a name.
pub(crate) struct Signer {
    pub(crate) kid: String,
    pub(crate) algorithm: Algorithm,
    pair: Pair,
}

impl Signer {
    pub(crate) fn new(kid: &str, algorithm: Algorithm) -> Self {
        let ec =
            |algorithm: &'static EcdsaSigningAlgorithm| Pair::Ec(EcdsaKeyPair::generate(algorithm).unwrap());
        let pair = match algorithm {
            Algorithm::Es256 => ec(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::Es384 => ec(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::Es512 => ec(&signature::ECDSA_P521_SHA512_FIXED_SIGNING),
            Algorithm::EdDsa => Pair::Ed(Ed25519KeyPair::generate().unwrap()),
            _ => Pair::Rsa(rsa_pair()),
        };
        Self { kid: kid.to_owned(), algorithm, pair }
    }

    /// The public half; without `alg`, as Entra ID publishes its keys.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Ec(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let crv = match x.len() {
                    32 => "P-256",
                    48 => "P-384",
                    _ => "P-521",
                };
                json!({"kty": "EC", "crv": crv, "x": base64url(x), "y": base64url(y)})
            }
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(pair.public_key())})
            }
            Pair::Rsa(pair) => {
                // RFC 8017 §A.1.1, with 2048 bits: nine bytes before the modulus, 65537 at the end.
                let der = pair.public_key().as_ref();
                json!({"kty": "RSA", "n": base64url(&der[9..265]), "e": base64url(&der[267..])})
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk
    }

    pub(crate) fn jwks(&self) -> Vec<u8> {
        jwks(&[self])
    }

    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm.name(), "typ": "at+jwt", "kid": self.kid})
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.with_header(&self.header(), claims)
    }

    pub(crate) fn with_header(&self, header: &Value, claims: &Value) -> String {
        self.raw(header.to_string(), claims.to_string())
    }

    /// Signs any bytes as header and payload.
    pub(crate) fn raw(&self, header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> String {
        let input = format!("{}.{}", base64url(header), base64url(payload));
        let signature = self.sign(input.as_bytes());
        format!("{input}.{}", base64url(signature))
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match self.algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_SHA384,
                    _ => &signature::RSA_PSS_SHA512,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}

fn rsa_pair() -> &'static rsa::KeyPair {
    static PAIR: OnceLock<rsa::KeyPair> = OnceLock::new();
    PAIR.get_or_init(|| rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap())
}

pub(crate) fn jwks(signers: &[&Signer]) -> Vec<u8> {
    let keys: Vec<_> = signers.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string().into_bytes()
}

/// Acceptable claims.
pub(crate) fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": "api", "sub": "alice", "client_id": "app", "jti": "1",
        "iat": NOW - 10, "exp": NOW + 600, "scope": "read write", "roles": ["ops"],
    })
}

pub(crate) fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

pub(crate) fn claims_without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

pub(crate) fn config(keys: KeySource) -> IssuerConfig {
    IssuerConfig {
        name: "main".to_owned(),
        issuer: ISSUER.to_owned(),
        audiences: vec!["api".to_owned(), "api2".to_owned()],
        keys,
        ..IssuerConfig::default()
    }
}

/// An issuer with one key in memory.
pub(crate) struct Fixture {
    pub(crate) authenticator: Authenticator,
    pub(crate) signer: Signer,
    pub(crate) keys: LocalKeys,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Algorithm::Es256, |_| {})
    }

    pub(crate) fn with(algorithm: Algorithm, change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let signer = Signer::new("key", algorithm);
        let keys = LocalKeys::new();
        keys.publish(&signer.jwks()).unwrap();
        let mut config = config(KeySource::Local(keys.clone()));
        config.algorithms = Algorithm::ALL.to_vec();
        change(&mut config);
        let authenticator = Authenticator::new(vec![config], None, no_network()).unwrap();
        Self { authenticator, signer, keys }
    }

    pub(crate) fn verify(&self, token: impl AsRef<[u8]>) -> Result<Arc<Verdict>, TokenError> {
        self.verify_at(token, now())
    }

    pub(crate) fn verify_at(
        &self,
        token: impl AsRef<[u8]>,
        now: Timestamp,
    ) -> Result<Arc<Verdict>, TokenError> {
        at_once(self.authenticator.verify(token.as_ref(), now))
    }

    /// Verifies signed claims.
    pub(crate) fn judge(&self, claims: &Value) -> Result<Arc<Verdict>, TokenError> {
        self.verify(self.signer.token(claims))
    }

    /// The control of an attack: the same issuer and key, with an acceptable token.
    #[track_caller]
    pub(crate) fn control(&self) {
        assert_eq!(self.judge(&claims()).map(|_| ()), Ok(()), "the control fails");
    }
}

/// The result of a future that must not wait, because its key is known.
#[track_caller]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

pub(crate) fn no_network() -> Arc<dyn Fetch> {
    Arc::new(NoFetch)
}

/// A network with scripted responses, which counts requests.
#[derive(Default)]
pub(crate) struct Network {
    answers: Mutex<HashMap<String, Result<Vec<u8>, FetchError>>>,
    calls: Mutex<Vec<String>>,
    /// If set, each response waits for a permit.
    pub(crate) gate: Mutex<Option<Arc<Semaphore>>>,
}

impl Network {
    pub(crate) fn answer(&self, url: &str, answer: Result<Vec<u8>, FetchError>) {
        self.answers.lock().unwrap().insert(url.to_owned(), answer);
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    /// From now on responses wait for permits.
    pub(crate) fn hold(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        *self.gate.lock().unwrap() = Some(Arc::clone(&gate));
        gate
    }
}

impl Fetch for Network {
    fn fetch<'a>(
        &'a self,
        request: FetchRequest<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send + 'a>> {
        self.calls.lock().unwrap().push(request.url.to_string());
        assert_eq!(request.bytes_max, 1024 * 1024);
        Box::pin(async move {
            let gate = self.gate.lock().unwrap().clone();
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            let answers = self.answers.lock().unwrap();
            answers.get(request.url.as_str()).cloned().unwrap_or(Err(FetchError::Status(404)))
        })
    }
}

//! What the verification of a token costs, per algorithm, beside `jsonwebtoken` and the verification of the signature
//! alone by OpenSSL and by AWS-LC: `cargo bench --manifest-path bench/Cargo.toml --package bench-micro`.
//!
//! Cardea and `jsonwebtoken` do the same work: form, header, signature, `iss`, `aud`, `exp`, claims; both with
//! AWS-LC. Cardea also refuses duplicate names, chooses the key, and looks for revocations. The other two are given
//! the signature decoded and do nothing beside.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use aws_lc_rs::signature::{self, ParsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bench_measure::{Case, Suite};
use cardea_clock::{Mono, Timestamp, Wall};
use cardea_identity::{Algorithm, Authenticator, IssuerConfig, KeySource, LocalKeys, NoFetch};
use jsonwebtoken::{DecodingKey, Validation, decode};
use openssl::bn::BigNumContext;
use openssl::ec::{EcGroup, EcKey, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer, Verifier};
use serde::Deserialize;
use serde_json::{Value, json};

const ISSUER: &str = "https://id.example";
/// `jsonwebtoken` compares with the clock of the system: tokens last until 2100.
const EXPIRES: i64 = 4_102_444_800;

const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa];

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    for algorithm in ALGORITHMS {
        let name = format!("verify-{}", algorithm.name().to_ascii_lowercase());
        suite.case(&name, |case| verify(case, &Token::new(algorithm)));
    }
}

fn verify(case: &mut Case<'_>, token: &Token) {
    let authenticator = token.authenticator();
    let now = Timestamp { wall: Wall::from_unix_seconds(1_800_000_000), mono: Mono::from_nanos(1) };
    let ours =
        || at_once(authenticator.verify(black_box(token.text.as_bytes()), now)).expect("the token is good");
    let key = token.decoding_key();
    let mut validation = Validation::new(token.theirs());
    validation.set_issuer(&[ISSUER]);
    validation.set_audience(&["api"]);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    let theirs = || decode::<Claims>(black_box(&token.text), &key, &validation).expect("the token is good");
    // The allocations are those of the claims, whatever the algorithm; a key of elliptic curves is made in equal time
    // each time, so that it can be taken off.
    if token.algorithm == Algorithm::Es256 {
        case.counted("cardea", ours);
        case.counted("jsonwebtoken", theirs);
    } else {
        case.timed("cardea", ours);
        case.timed("jsonwebtoken", theirs);
    }
    case.timed("openssl-signature-alone", || token.openssl_verifies());
    let key = token.aws_lc_key();
    case.timed("aws-lc-signature-alone", || {
        key.verify_sig(black_box(token.input()), &token.signature).expect("the signature is good");
    });
}

/// What an application asks of a token.
#[derive(Deserialize)]
struct Claims {
    #[expect(dead_code, reason = "read, as an application would have it")]
    sub: String,
    #[expect(dead_code, reason = "read, as an application would have it")]
    scope: String,
}

/// A signed token and its key.
struct Token {
    algorithm: Algorithm,
    private: PKey<Private>,
    public: PKey<Public>,
    text: String,
    /// As the token has it.
    signature: Vec<u8>,
    /// As OpenSSL has it: for ECDSA in DER.
    der: Vec<u8>,
}

impl Token {
    fn new(algorithm: Algorithm) -> Self {
        let private = match algorithm {
            Algorithm::Es256 => curve(Nid::X9_62_PRIME256V1),
            Algorithm::Es384 => curve(Nid::SECP384R1),
            Algorithm::EdDsa => PKey::generate_ed25519().expect("a key is made"),
            _ => PKey::from_rsa(Rsa::generate(2048).expect("a key is made")).expect("a key is made"),
        };
        let der = private.public_key_to_der().expect("the key has a public half");
        let public = PKey::public_key_from_der(&der).expect("the key has a public half");
        let header = json!({"alg": algorithm.name(), "typ": "at+jwt", "kid": "1"});
        let input = format!("{}.{}", base64url(header.to_string()), base64url(claims().to_string()));
        let mut token =
            Self { algorithm, private, public, text: String::new(), signature: Vec::new(), der: Vec::new() };
        token.der = token.sign(input.as_bytes());
        token.signature = match algorithm {
            Algorithm::Es256 => joined(&token.der, 32),
            Algorithm::Es384 => joined(&token.der, 48),
            _ => token.der.clone(),
        };
        token.text = format!("{input}.{}", base64url(&token.signature));
        assert!(token.openssl_verifies());
        token
    }

    /// What is signed.
    fn input(&self) -> &[u8] {
        let end = self.text.rfind('.').expect("a token has three parts");
        &self.text.as_bytes()[..end]
    }

    fn digest(&self) -> MessageDigest {
        if self.algorithm == Algorithm::Es384 { MessageDigest::sha384() } else { MessageDigest::sha256() }
    }

    fn sign(&self, input: &[u8]) -> Vec<u8> {
        let mut signer = match self.algorithm {
            Algorithm::EdDsa => Signer::new_without_digest(&self.private),
            _ => Signer::new(self.digest(), &self.private),
        }
        .expect("the key signs");
        if self.algorithm == Algorithm::Ps256 {
            signer.set_rsa_padding(Padding::PKCS1_PSS).expect("the key pads");
            signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).expect("the key pads");
        }
        signer.sign_oneshot_to_vec(input).expect("the key signs")
    }

    fn openssl_verifies(&self) -> bool {
        let mut verifier = match self.algorithm {
            Algorithm::EdDsa => Verifier::new_without_digest(&self.public),
            _ => Verifier::new(self.digest(), &self.public),
        }
        .expect("the key verifies");
        if self.algorithm == Algorithm::Ps256 {
            verifier.set_rsa_padding(Padding::PKCS1_PSS).expect("the key pads");
            verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).expect("the key pads");
        }
        verifier.verify_oneshot(&self.der, black_box(self.input())).expect("the key verifies")
    }

    fn jwk(&self) -> Value {
        match self.algorithm {
            Algorithm::Es256 | Algorithm::Es384 => {
                let point = self.point();
                let (x, y) = point[1..].split_at(point.len() / 2);
                let curve = if self.algorithm == Algorithm::Es256 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y), "kid": "1"})
            }
            Algorithm::EdDsa => {
                let x = self.public.raw_public_key().expect("the key is raw");
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(x), "kid": "1"})
            }
            _ => {
                let rsa = self.public.rsa().expect("the key is RSA");
                let (n, e) = (rsa.n().to_vec(), rsa.e().to_vec());
                json!({"kty": "RSA", "n": base64url(n), "e": base64url(e), "kid": "1"})
            }
        }
    }

    fn point(&self) -> Vec<u8> {
        let key = self.public.ec_key().expect("the key is a point");
        let mut context = BigNumContext::new().expect("there is memory");
        let form = PointConversionForm::UNCOMPRESSED;
        key.public_key().to_bytes(key.group(), form, &mut context).expect("the key is a point")
    }

    fn authenticator(&self) -> Authenticator {
        let keys = LocalKeys::new();
        keys.publish(json!({"keys": [self.jwk()]}).to_string().as_bytes()).expect("the key set is good");
        let config = IssuerConfig {
            name: "main".to_owned(),
            issuer: ISSUER.to_owned(),
            audiences: vec!["api".to_owned()],
            algorithms: ALGORITHMS.to_vec(),
            keys: KeySource::Local(keys),
            ..IssuerConfig::default()
        };
        Authenticator::new(vec![config], None, Arc::new(NoFetch)).expect("the issuer is good")
    }

    fn decoding_key(&self) -> DecodingKey {
        let jwk = serde_json::from_value(self.jwk()).expect("the key is good");
        DecodingKey::from_jwk(&jwk).expect("the key is good")
    }

    fn theirs(&self) -> jsonwebtoken::Algorithm {
        self.algorithm.name().parse().expect("the algorithm is known")
    }

    fn aws_lc_key(&self) -> ParsedPublicKey {
        match self.algorithm {
            Algorithm::Es256 => ParsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, self.point()),
            Algorithm::Es384 => ParsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, self.point()),
            Algorithm::EdDsa => ParsedPublicKey::new(
                &signature::ED25519,
                self.public.raw_public_key().expect("the key is raw"),
            ),
            Algorithm::Ps256 => ParsedPublicKey::new(&signature::RSA_PSS_2048_8192_SHA256, self.rsa()),
            _ => ParsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, self.rsa()),
        }
        .expect("the key is good")
    }

    fn rsa(&self) -> Vec<u8> {
        self.public.rsa().and_then(|rsa| rsa.public_key_to_der_pkcs1()).expect("the key is RSA")
    }
}

/// As an authorization server states them (RFC 9068 §2.2).
fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": "api", "sub": "5b9c1f7e-2d34-4b7a-9c0d-1e2f3a4b5c6d", "client_id": "orders-sync",
        "jti": "b2f1c3d4e5f60718293a4b5c6d7e8f90", "iat": 1_799_999_990, "exp": EXPIRES,
        "scope": "orders.read orders.write", "roles": ["operator"],
    })
}

fn curve(name: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(name).expect("the curve is known");
    PKey::from_ec_key(EcKey::generate(&group).expect("a key is made")).expect("a key is made")
}

/// r and s at full length, one after the other (RFC 7518 §3.4).
fn joined(der: &[u8], length: i32) -> Vec<u8> {
    let signature = EcdsaSig::from_der(der).expect("the signature is DER");
    let full = |number: &openssl::bn::BigNumRef| number.to_vec_padded(length).expect("the number fits");
    [full(signature.r()), full(signature.s())].concat()
}

fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// With its key at hand, a token waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the keys are local"),
    }
}

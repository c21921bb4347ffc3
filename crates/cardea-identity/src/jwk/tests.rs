//! Key sets: accepted, skipped and refused keys; signatures from published vectors.

mod vectors;

use serde_json::json;

use super::*;
use crate::jws::Compact;

/// RFC 7515 §A.3.
const EC_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const EC_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
/// RFC 8037 §A.2.
const ED_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
/// RFC 7515 §A.2.
const RSA_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";

fn set(keys: &Value) -> (KeySet, Vec<Skipped>) {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes(), &Algorithm::ALL).unwrap()
}

/// Verifies a compact JWS as the authenticator does, without checking claims.
fn verify(keys: &KeySet, jws: &str) -> Result<(), TokenError> {
    let compact = Compact::parse(jws.as_bytes())?;
    let header = Header::parse(&compact.header)?;
    let algorithm = header.algorithm.ok_or(TokenError::AlgorithmNotAllowed)?;
    keys.select(&header)?.verify(algorithm, compact.signing_input, &compact.signature)
}

fn ec() -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": EC_X, "y": EC_Y, "kid": "e"})
}

fn rsa() -> Value {
    json!({"kty": "RSA", "n": RSA_N, "e": "AQAB", "kid": "r"})
}

fn with(mut key: Value, name: &str, value: Value) -> Value {
    key.as_object_mut().unwrap().insert(name.to_owned(), value);
    key
}

fn without(mut key: Value, name: &str) -> Value {
    key.as_object_mut().unwrap().remove(name);
    key
}

#[test]
fn keys_that_verify_are_taken() {
    for key in [
        ec(),
        rsa(),
        json!({"kty": "OKP", "crv": "Ed25519", "x": ED_X}),
        with(ec(), "use", json!("sig")),
        with(ec(), "key_ops", json!(["verify"])),
        with(ec(), "key_ops", json!(["sign", "verify"])),
        with(ec(), "alg", json!("ES256")),
        with(rsa(), "alg", json!("PS512")),
        with(rsa(), "x5c", json!(["ignored"])),
        with(rsa(), "e", json!("Aw")),
        // RFC 7518 §6.3.1.1 mentions leading zero octets.
        with(rsa(), "n", json!(format!("{}", leading_zero(RSA_N)))),
    ] {
        let (keys, skipped) = set(&json!([key.clone()]));
        assert_eq!((keys.len(), skipped), (1, vec![]), "{key}");
    }
}

fn leading_zero(n: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let bytes = URL_SAFE_NO_PAD.decode(n).unwrap();
    URL_SAFE_NO_PAD.encode([&[0][..], &bytes].concat())
}

#[test]
fn keys_that_are_not_for_us_are_skipped_quietly_and_dangerous_ones_loudly() {
    let small = &RSA_N[..340];
    let even = format!("{}oA", &RSA_N[..RSA_N.len() - 2]);
    let huge = "q".repeat(1368);
    let off_curve = format!("{}1", &EC_Y[..EC_Y.len() - 1].replace("IWI5a", "IWI5b"));
    let quiet = [
        json!({"kty": "new"}),
        json!({"kty": "EC", "crv": "secp256k1", "x": EC_X, "y": EC_Y}),
        json!({"kty": "OKP", "crv": "X25519", "x": ED_X}),
        json!({"kty": "OKP", "crv": "Ed448", "x": ED_X}),
        with(ec(), "use", json!("enc")),
        with(ec(), "key_ops", json!(["sign"])),
        with(ec(), "key_ops", json!([])),
        with(rsa(), "alg", json!("RSA-OAEP")),
        with(rsa(), "alg", json!("none")),
        with(rsa(), "alg", json!("HS256")),
    ];
    let loud = [
        json!("text"),
        json!({}),
        json!({"kty": "oct", "k": "AAAA"}),
        with(ec(), "d", json!("AAAA")),
        with(rsa(), "d", json!("AAAA")),
        with(rsa(), "p", json!("AAAA")),
        with(rsa(), "k", json!("AAAA")),
        with(ec(), "kid", json!(1)),
        with(ec(), "kid", json!("k".repeat(513))),
        with(ec(), "use", json!(["sig"])),
        with(ec(), "key_ops", json!("verify")),
        with(ec(), "key_ops", json!(["verify", 1])),
        with(ec(), "alg", json!("ES384")),
        with(ec(), "alg", json!("RS256")),
        with(rsa(), "alg", json!("ES256")),
        without(ec(), "y"),
        without(rsa(), "e"),
        with(ec(), "x", json!(format!("{EC_X}="))),
        with(ec(), "x", json!("AAAA")),
        with(ec(), "y", json!(off_curve)),
        with(ec(), "y", json!(EC_X)),
        with(rsa(), "n", json!(small)),
        with(rsa(), "n", json!(even)),
        with(rsa(), "n", json!(huge)),
        with(rsa(), "n", json!("AAAA")),
        with(rsa(), "e", json!("AQ")),
        with(rsa(), "e", json!("Ag")),
        with(rsa(), "e", json!("AAEAAQ")),
        with(rsa(), "e", json!("AQAAAAE")),
    ];
    let cases = quiet.iter().map(|key| (key, false));
    for (key, alarming) in cases.chain(loud.iter().map(|key| (key, true))) {
        let (keys, skipped) = set(&json!([key, ec()]));
        assert_eq!(keys.len(), 1, "{key}");
        assert_eq!(skipped.len(), 1, "{key}");
        assert_eq!(skipped.first().unwrap().alarming, alarming, "{key} {skipped:?}");
    }
}

#[test]
fn sets_that_are_no_sets_are_refused_whole() {
    let parse = |bytes: &[u8]| KeySet::parse(bytes, &Algorithm::ALL).map(|_| ());
    assert_eq!(parse(br#"{"keys":[]}"#), Ok(()));
    assert_eq!(parse(br#"{"keys":[],"more":1}"#), Ok(()));
    assert_eq!(parse(b"{}"), Err(KeySetError::NoKeys));
    assert_eq!(parse(br#"{"keys":{}}"#), Err(KeySetError::NoKeys));
    assert!(matches!(parse(br#"{"keys":[],"keys":[]}"#), Err(KeySetError::Json(_))));
    assert!(matches!(parse(b"<html>"), Err(KeySetError::Json(_))));
    let many = json!({"keys": vec![json!({"kty": "new"}); KEYS_MAX + 1]}).to_string();
    assert_eq!(parse(many.as_bytes()), Err(KeySetError::TooManyKeys));
    let large = vec![b' '; DOCUMENT_BYTES_MAX + 1];
    assert_eq!(parse(&large), Err(KeySetError::TooLarge));
}

#[test]
fn a_key_is_selected_by_name_or_as_the_only_one_that_fits() {
    let header = |text: &str| Header::parse(text.as_bytes()).unwrap();
    let select = |keys: &Value, text: &str| set(keys).0.select(&header(text)).map(|key| key.kid.clone());
    let es = r#"{"alg":"ES256"}"#;
    let es_e = r#"{"alg":"ES256","kid":"e"}"#;
    let nameless = without(ec(), "kid");
    assert_eq!(select(&json!([ec(), rsa()]), es_e), Ok(Some("e".into())));
    assert_eq!(select(&json!([ec(), rsa()]), es), Ok(Some("e".into())));
    assert_eq!(select(&json!([nameless]), es), Ok(None));
    assert_eq!(select(&json!([nameless]), es_e), Err(TokenError::KeyUnknown));
    assert_eq!(select(&json!([ec(), ec()]), es_e), Err(TokenError::KeyAmbiguous));
    assert_eq!(select(&json!([ec(), nameless]), es), Err(TokenError::KeyAmbiguous));
    assert_eq!(select(&json!([rsa()]), es), Err(TokenError::KeyUnknown));
    let named_e = with(rsa(), "kid", json!("e"));
    assert_eq!(select(&json!([named_e]), es_e), Err(TokenError::KeyMismatch));
    // RFC 7517 §4.5: keys of different types with the same id are distinguished by the algorithm.
    assert_eq!(select(&json!([ec(), named_e]), es_e), Ok(Some("e".into())));
}

#[test]
fn a_key_of_an_issuer_verifies_only_with_allowed_algorithms() {
    let bytes = json!({"keys": [rsa()]}).to_string();
    let (keys, _) = KeySet::parse(bytes.as_bytes(), &[Algorithm::Ps256]).unwrap();
    let header = |alg: &str| Header::parse(format!("{{\"alg\":\"{alg}\"}}").as_bytes()).unwrap();
    assert!(keys.select(&header("PS256")).is_ok());
    assert!(keys.select(&header("RS256")).is_err());
    let (keys, skipped) = KeySet::parse(bytes.as_bytes(), &[Algorithm::Es256]).unwrap();
    assert_eq!((keys.len(), skipped.len()), (0, 1));
}

#[test]
fn the_epoch_moves_when_a_key_goes_or_changes_and_not_when_one_comes() {
    let first = set(&json!([ec()])).0;
    let added = set(&json!([rsa(), ec()])).0.succeeding(&first);
    assert_eq!(added.epoch, first.epoch);
    let gone = set(&json!([rsa()])).0.succeeding(&added);
    assert_ne!(gone.epoch, added.epoch);
    let changed = with(rsa(), "e", json!("Aw"));
    let changed = set(&json!([changed])).0.succeeding(&gone);
    assert_ne!(changed.epoch, gone.epoch);
    let narrowed = set(&json!([with(rsa(), "alg", json!("RS256"))])).0.succeeding(&gone);
    assert_ne!(narrowed.epoch, gone.epoch);
}

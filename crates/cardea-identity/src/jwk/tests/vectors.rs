//! Signatures from the RFCs, and the Wycheproof vectors if their folder exists.

use std::path::PathBuf;

use super::*;

#[test]
fn the_examples_of_the_rfcs_verify_and_fail_when_touched() {
    let joe =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let rs256 = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let es256 = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let es512 = "AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn";
    let eddsa = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let p521 = json!({"kty": "EC", "crv": "P-521",
        "x": "AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk",
        "y": "ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2"});
    let table = [
        ("RFC 7515 A.2", rsa(), format!("eyJhbGciOiJSUzI1NiJ9.{joe}"), rs256),
        ("RFC 7515 A.3", ec(), format!("eyJhbGciOiJFUzI1NiJ9.{joe}"), es256),
        ("RFC 7515 A.4", p521, "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA".to_owned(), es512),
        (
            "RFC 8037 A.4",
            json!({"kty": "OKP", "crv": "Ed25519", "x": ED_X}),
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
            eddsa,
        ),
    ];
    for (name, key, signed, signature) in table {
        let keys = set(&json!([key])).0;
        assert_eq!(verify(&keys, &format!("{signed}.{signature}")), Ok(()), "{name}");
        let (header, payload) = signed.split_once('.').unwrap();
        for touched in [
            format!("{header}.{}.{signature}", other_start(payload)),
            format!("{header}.{payload}.{}", other_start(signature)),
            format!("{header}..{signature}"),
        ] {
            assert_eq!(verify(&keys, &touched), Err(TokenError::SignatureInvalid), "{name}");
        }
    }
}

/// The same base64url with another first character.
fn other_start(segment: &str) -> String {
    let first = if segment.starts_with('A') { 'B' } else { 'A' };
    format!("{first}{}", &segment[1..])
}

fn vectors(file: &str) -> Option<Value> {
    let folder = std::env::var_os("CARDEA_VECTORS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors")),
        PathBuf::from,
    );
    let path = folder.join("wycheproof").join(file);
    match std::fs::read(&path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        Err(error) => {
            println!("SKIPPED: no vectors at {}: {error}", path.display());
            None
        }
    }
}

/// Valid vectors that are refused here, each with the reason.
fn deviates(group: &Value, test: &Value) -> Option<&'static str> {
    let key = group.get("public").or_else(|| group.get("private"))?;
    let first = key.get("keys").and_then(|keys| keys.get(0)).unwrap_or(key);
    if first.get("kty")? == "oct" {
        return Some("symmetric keys are never used");
    }
    match first.get("alg").and_then(Value::as_str) {
        // The vectors' key for P-521 misspells its algorithm; RFC 7517 §4.4 lets a key bind itself.
        Some("ES521") => Some("the key is for an algorithm that does not exist"),
        Some("PS256") if test.get("comment")? == "Figure20" => Some("the key says PS256, the token PS384"),
        _ => None,
    }
}

#[test]
fn the_wycheproof_signatures_verify_where_valid_and_never_where_not() {
    for (file, least) in [("json_web_signature_test.json", 400), ("json_web_key_test.json", 26)] {
        let Some(document) = vectors(file) else { continue };
        let mut counted = 0;
        for group in document.get("testGroups").unwrap().as_array().unwrap() {
            let key = group.get("public").or_else(|| group.get("private")).unwrap();
            let document = match key.get("keys") {
                Some(_) => key.clone(),
                None => json!({ "keys": [key] }),
            };
            let (keys, _) = KeySet::parse(document.to_string().as_bytes(), &Algorithm::ALL).unwrap();
            for test in group.get("tests").unwrap().as_array().unwrap() {
                counted += 1;
                let jws = match test.get("jws").unwrap() {
                    Value::String(jws) => jws.clone(),
                    json => json.to_string(),
                };
                let expected = test.get("result").unwrap() == "valid" && deviates(group, test).is_none();
                let found = verify(&keys, &jws);
                assert_eq!(found.is_ok(), expected, "{file} {test}: {found:?}");
            }
        }
        assert!(counted >= least, "{file}: {counted}");
    }
}

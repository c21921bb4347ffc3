//! Attacks on the token format, each beside a control that passes (RFC 8725 §2).

use aws_lc_rs::hmac;
use cardea_identity::{AccessRequirement, AccessRequirementError, Algorithm, Alternative, TokenError};
use serde_json::{Value, json};

use crate::support::{Fixture, ISSUER, Signer, base64url, claims, claims_with, jwks};

fn header_with(fixture: &Fixture, name: &str, value: Value) -> Value {
    let mut header = fixture.signer.header();
    header[name] = value;
    header
}

#[test]
fn alg_none_in_all_spellings() {
    let fixture = Fixture::new();
    fixture.control();
    for alg in ["none", "None", "NONE", "nOnE", "none ", " none", "", "null"] {
        let header = header_with(&fixture, "alg", json!(alg));
        let signed = fixture.signer.with_header(&header, &claims());
        let stripped = format!("{}.", signed.rsplit_once('.').unwrap().0);
        for token in [signed, stripped] {
            assert_eq!(fixture.verify(&token).unwrap_err(), TokenError::AlgorithmNotAllowed, "{alg:?}");
        }
    }
    for alg in [Value::Null, json!(["none"]), json!(0), json!({})] {
        let token = fixture.signer.with_header(&header_with(&fixture, "alg", alg), &claims());
        assert_eq!(fixture.verify(token).unwrap_err().code(), "header_malformed");
    }
    let token = fixture.signer.with_header(&json!({"kid": "key"}), &claims());
    assert_eq!(fixture.verify(token).unwrap_err().code(), "header_malformed");
}

#[test]
fn algorithm_confusion_with_the_public_key_as_hmac_secret() {
    let fixture = Fixture::with(Algorithm::Rs256, |_| {});
    fixture.control();
    let jwk = fixture.signer.jwk().to_string();
    let n = fixture.signer.jwk()["n"].as_str().unwrap().to_owned();
    for (alg, algorithm) in
        [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]
    {
        for secret in [jwk.as_bytes(), n.as_bytes()] {
            let header = header_with(&fixture, "alg", json!(alg)).to_string();
            let input = format!("{}.{}", base64url(header), base64url(claims().to_string()));
            let tag = hmac::sign(&hmac::Key::new(algorithm, secret), input.as_bytes());
            let token = format!("{input}.{}", base64url(tag));
            assert_eq!(fixture.verify(token).unwrap_err(), TokenError::AlgorithmNotAllowed);
        }
    }
}

#[test]
fn an_algorithm_that_is_not_on_the_issuers_list() {
    let fixture = Fixture::with(Algorithm::Rs256, |config| {
        config.algorithms = vec![Algorithm::Rs256];
    });
    fixture.control();
    let ps = Signer::new("key", Algorithm::Ps256);
    assert_eq!(fixture.verify(ps.token(&claims())).unwrap_err(), TokenError::AlgorithmNotAllowed);
}

#[test]
fn an_algorithm_of_another_key_type() {
    for algorithm in Algorithm::ALL {
        let fixture = Fixture::with(algorithm, |_| {});
        fixture.control();
        for other in Algorithm::ALL {
            if other == algorithm {
                continue;
            }
            // Signed with an algorithm of the key, but with another `alg`.
            let token =
                fixture.signer.with_header(&header_with(&fixture, "alg", json!(other.name())), &claims());
            let error = fixture.verify(token).unwrap_err();
            assert!(
                matches!(error, TokenError::KeyMismatch | TokenError::SignatureInvalid),
                "{algorithm} as {other}: {error:?}"
            );
        }
    }
}

#[test]
fn a_key_whose_alg_use_or_key_ops_forbid_it() {
    let fixture = Fixture::with(Algorithm::Rs256, |_| {});
    let publish = |name: &str, value: Value| {
        let mut jwk = fixture.signer.jwk();
        jwk[name] = value;
        let set = json!({ "keys": [jwk] }).to_string();
        fixture.keys.publish(set.as_bytes()).unwrap();
        fixture.judge(&claims()).map(|_| ())
    };
    assert_eq!(publish("alg", json!("RS256")), Ok(()));
    assert_eq!(publish("key_ops", json!(["verify"])), Ok(()));
    assert_eq!(publish("alg", json!("PS256")), Err(TokenError::KeyMismatch));
    assert_eq!(publish("use", json!("enc")), Err(TokenError::KeyUnknown));
    assert_eq!(publish("key_ops", json!(["encrypt"])), Err(TokenError::KeyUnknown));
    assert_eq!(publish("d", json!("AAAA")), Err(TokenError::KeyUnknown));
}

#[test]
fn a_token_that_brings_its_own_key() {
    let fixture = Fixture::new();
    fixture.control();
    let own = Signer::new("own", Algorithm::Es256);
    for (name, value) in [
        ("jwk", own.jwk()),
        ("jku", json!("https://evil.example/keys")),
        ("x5u", json!("https://evil.example/cert")),
        ("x5c", json!(["MIIB"])),
    ] {
        for signer in [&own, &fixture.signer] {
            let mut header = signer.header();
            header[name] = value.clone();
            let token = signer.with_header(&header, &claims());
            assert_eq!(fixture.verify(token).unwrap_err(), TokenError::HeaderNotAccepted(name));
        }
    }
    // A thumbprint names a certificate without containing it; Entra ID sends one.
    let token = fixture.signer.with_header(&header_with(&fixture, "x5t", json!("AAAA")), &claims());
    assert!(fixture.verify(token).is_ok());
}

#[test]
fn kid_traversal_injection_oversize_and_wrong_types() {
    let fixture = Fixture::new();
    fixture.control();
    for kid in
        ["../../../dev/null", "/etc/passwd", "key'--", "key\0", "KEY", "key ", "", "https://evil.example"]
    {
        let token = fixture.signer.with_header(&header_with(&fixture, "kid", json!(kid)), &claims());
        assert_eq!(fixture.verify(token).unwrap_err(), TokenError::KeyUnknown, "{kid:?}");
    }
    for kid in [json!("k".repeat(513)), json!(1), Value::Null, json!(["key"])] {
        let token = fixture.signer.with_header(&header_with(&fixture, "kid", kid), &claims());
        assert_eq!(fixture.verify(token).unwrap_err().code(), "header_malformed");
    }
}

#[test]
fn kid_duplicated_in_the_header_or_in_the_key_set() {
    let fixture = Fixture::new();
    fixture.control();
    let header = r#"{"alg":"ES256","typ":"at+jwt","kid":"other","kid":"key"}"#;
    let token = fixture.signer.raw(header, claims().to_string());
    assert_eq!(fixture.verify(token).unwrap_err().code(), "header_malformed");

    let twin = Signer::new("key", Algorithm::Es256);
    fixture.keys.publish(&jwks(&[&fixture.signer, &twin])).unwrap();
    assert_eq!(fixture.judge(&claims()).unwrap_err(), TokenError::KeyAmbiguous);
}

#[test]
fn critical_extensions_unencoded_payload_and_compression() {
    let fixture = Fixture::new();
    fixture.control();
    for (name, value) in [
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("crit", json!(["b64"])),
        ("b64", json!(false)),
        ("b64", json!(true)),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
    ] {
        let token = fixture.signer.with_header(&header_with(&fixture, name, value), &claims());
        assert_eq!(fixture.verify(token).unwrap_err(), TokenError::HeaderNotAccepted(name));
    }
}

#[test]
fn jwe_and_json_serialisation_where_a_compact_jws_belongs() {
    let fixture = Fixture::new();
    fixture.control();
    let token = fixture.signer.token(&claims());
    let parts: Vec<_> = token.split('.').collect();
    let (protected, payload, signature) = (parts[0], parts[1], parts[2]);
    let flattened = json!({"protected": protected, "payload": payload, "signature": signature});
    let general =
        json!({"payload": payload, "signatures": [{"protected": protected, "signature": signature}]});
    for text in [
        flattened.to_string(),
        general.to_string(),
        format!("{token}.AAAA.AAAA"),
        format!("{token}."),
        format!(".{token}"),
        format!("{protected}.{payload}"),
        format!("{protected}..{signature}"),
        format!("..{signature}"),
        "..".to_owned(),
        String::new(),
    ] {
        assert!(fixture.verify(&text).is_err(), "{text}");
    }
    assert_eq!(fixture.verify(flattened.to_string()).unwrap_err().code(), "token_malformed");
}

#[test]
fn signatures_of_zeros_in_der_cut_or_extended() {
    for algorithm in
        [Algorithm::Es256, Algorithm::Es384, Algorithm::Es512, Algorithm::EdDsa, Algorithm::Rs256]
    {
        let fixture = Fixture::with(algorithm, |_| {});
        fixture.control();
        let token = fixture.signer.token(&claims());
        let (input, _) = token.rsplit_once('.').unwrap();
        let good = fixture.signer.sign(input.as_bytes());
        let (r, s) = good.split_at(good.len() / 2);
        let integer = |number: &[u8]| {
            let number = [&[0][..], number].concat();
            [&[2, u8::try_from(number.len()).unwrap()][..], &number].concat()
        };
        let mut bad = vec![
            vec![],
            vec![0; good.len()],
            good[..good.len() - 1].to_vec(),
            [&good[..], &[0]].concat(),
            [&[0][..], &good].concat(),
            [s, r].concat(),
            vec![0xff; good.len()],
        ];
        if good.len() < 140 {
            let body = [integer(r), integer(s)].concat();
            let der = if body.len() < 128 {
                [&[0x30, u8::try_from(body.len()).unwrap()][..], &body].concat()
            } else {
                [&[0x30, 0x81, u8::try_from(body.len()).unwrap()][..], &body].concat()
            };
            bad.push(der);
        }
        for signature in bad {
            let token = format!("{input}.{}", base64url(&signature));
            assert_eq!(
                fixture.verify(token).unwrap_err(),
                TokenError::SignatureInvalid,
                "{algorithm} {} bytes",
                signature.len()
            );
        }
    }
}

#[test]
fn base64url_that_is_not_canonical() {
    // A payload whose last character carries unused bits: its length modulo 3 is 1.
    let fixture = Fixture::new();
    let mut text = claims().to_string();
    while text.len() % 3 != 1 {
        text.push(' ');
    }
    let token = fixture.signer.raw(fixture.signer.header().to_string(), &text);
    assert!(fixture.verify(&token).is_ok());
    let (input, signature) = token.rsplit_once('.').unwrap();
    let last = input.chars().last().unwrap();
    let next = char::from(u8::try_from(last).unwrap() + 1);
    for bad in [
        format!("{}{next}.{signature}", &input[..input.len() - 1]),
        format!("{input}=.{signature}"),
        format!("{input}==.{signature}"),
        format!("{input}.{signature}="),
        format!("{input}.{signature}=="),
        format!("{input}\n.{signature}"),
        format!(" {token}"),
        format!("{token} "),
        format!("{token}\0"),
        token.replace('_', "/").replace('-', "+") + "+",
    ] {
        assert_eq!(fixture.verify(&bad).unwrap_err().code(), "token_malformed", "{bad:?}");
    }
}

#[test]
fn duplicate_names_in_header_and_claims() {
    let fixture = Fixture::new();
    fixture.control();
    let body = claims().to_string();
    for header in [
        r#"{"alg":"none","alg":"ES256","typ":"at+jwt","kid":"key"}"#,
        r#"{"alg":"ES256","typ":"at+jwt","kid":"key","\u0061lg":"none"}"#,
    ] {
        let token = fixture.signer.raw(header, &body);
        assert_eq!(fixture.verify(token).unwrap_err().code(), "header_malformed");
    }
    let end = &body[1..];
    for claims in [
        format!("{{\"sub\":\"root\",{end}"),
        format!("{{\"\\u0073ub\":\"root\",{end}"),
        format!("{{\"nested\":{{\"a\":1,\"a\":2}},{end}"),
    ] {
        let token = fixture.signer.raw(fixture.signer.header().to_string(), &claims);
        assert_eq!(fixture.verify(token).unwrap_err().code(), "claims_malformed", "{claims}");
    }
}

#[test]
fn depth_number_and_size_bombs() {
    let fixture = Fixture::new();
    fixture.control();
    let header = fixture.signer.header().to_string();
    let body = claims().to_string();
    let end = &body[1..];
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    for extra in [
        format!("\"x\":{deep}"),
        format!("\"x\":{}{}", "{\"a\":".repeat(500), format_args!("1{}", "}".repeat(500))),
        "\"x\":1e400".to_owned(),
        format!("\"x\":{}", "9".repeat(9000)),
        format!("\"x\":[{}1]", "1,".repeat(4500)),
    ] {
        let token = fixture.signer.raw(&header, format!("{{{extra},{end}"));
        assert_eq!(fixture.verify(token).unwrap_err().code(), "claims_malformed");
    }
    let token = fixture.signer.raw(&header, format!("{{\"x\":\"{}\",{end}", "a".repeat(13_000)));
    assert_eq!(fixture.verify(token).unwrap_err(), TokenError::TooLarge);
    let token = fixture.signer.with_header(&header_with(&fixture, "x", json!("a".repeat(4000))), &claims());
    assert_eq!(fixture.verify(token).unwrap_err(), TokenError::TooLarge);
    let nested = header_with(&fixture, "x", json!([[[[[1]]]]]));
    let token = fixture.signer.with_header(&nested, &claims());
    assert_eq!(fixture.verify(token).unwrap_err().code(), "header_malformed");
}

#[test]
fn issuers_that_nearly_match() {
    let fixture = Fixture::new();
    fixture.control();
    for iss in [
        "https://id.example/",
        "https://ID.example",
        "HTTPS://id.example",
        "http://id.example",
        "https://id.example:443",
        "https://id.example ",
        " https://id.example",
        "https://id.example.",
        "https://id.example?x",
        "https://id.example#",
        "https://id.example\0",
        "id.example",
        "",
        "https://id.example.evil.example",
        "https://evil.example/https://id.example",
        "main",
    ] {
        let error = fixture.judge(&claims_with("iss", json!(iss))).unwrap_err();
        assert_eq!(error, TokenError::IssuerUnknown, "{iss:?}");
    }
    for iss in [Value::Null, json!([ISSUER]), json!(1), json!({"a": ISSUER})] {
        let error = fixture.judge(&claims_with("iss", iss)).unwrap_err();
        assert_eq!(error, TokenError::ClaimInvalid("iss"));
    }
}

#[test]
fn a_key_of_one_issuer_does_not_sign_for_another() {
    let fixture = Fixture::new();
    let stranger = Signer::new("key", Algorithm::Es256);
    fixture.control();
    assert_eq!(fixture.verify(stranger.token(&claims())).unwrap_err(), TokenError::SignatureInvalid);
}

#[test]
fn wrong_types() {
    let fixture = Fixture::new();
    let typ = |fixture: &Fixture, typ: Value| {
        let token = fixture.signer.with_header(&header_with(fixture, "typ", typ), &claims());
        fixture.verify(token).map(|_| ())
    };
    for good in ["at+jwt", "AT+JWT", "application/at+jwt", "Application/At+Jwt", "JWT"] {
        assert_eq!(typ(&fixture, json!(good)), Ok(()), "{good}");
    }
    for bad in
        ["", "id+jwt", "logout+jwt", "dpop+jwt", "at+jwt ", "application/application/at+jwt", "text/jwt"]
    {
        assert_eq!(typ(&fixture, json!(bad)), Err(TokenError::TypeNotAccepted), "{bad}");
    }
    assert_eq!(typ(&fixture, json!(1)).unwrap_err().code(), "header_malformed");

    let untyped = json!({"alg": "ES256", "kid": "key"});
    let token = |fixture: &Fixture| fixture.signer.with_header(&untyped, &claims());
    assert_eq!(fixture.verify(token(&fixture)).unwrap_err(), TokenError::TypeNotAccepted);
    let lenient = Fixture::with(Algorithm::Es256, |config| config.types = vec![String::new()]);
    assert!(lenient.verify(token(&lenient)).is_ok());
    let strict = Fixture::with(Algorithm::Es256, |config| config.types = vec!["application/at+JWT".into()]);
    assert_eq!(typ(&strict, json!("at+jwt")), Ok(()));
    assert_eq!(typ(&strict, json!("JWT")), Err(TokenError::TypeNotAccepted));
}

#[test]
fn a_token_bound_to_a_sender_that_cannot_be_checked() {
    let fixture = Fixture::new();
    fixture.control();
    for cnf in [json!({"jkt": "x"}), json!({"x5t#S256": "x"}), json!({}), Value::Null, json!("x")] {
        let error = fixture.judge(&claims_with("cnf", cnf)).unwrap_err();
        assert_eq!(error, TokenError::SenderConstrained);
    }
}

#[test]
fn a_token_admitted_on_one_route_tried_on_another() {
    let fixture = Fixture::new();
    let verdict = fixture.judge(&claims()).unwrap();
    let requirement = |audience: &str, scope: &str| AccessRequirement {
        alternatives: vec![Alternative {
            issuer: "main".to_owned(),
            audiences: vec![audience.to_owned()],
            scopes: vec![scope.to_owned()],
            roles: Vec::new(),
        }],
    };
    assert_eq!(requirement("api", "read").check(&verdict), Ok(()));
    assert_eq!(requirement("api2", "read").check(&verdict), Err(AccessRequirementError::Audience));
    let needed = "admin".to_owned();
    assert_eq!(requirement("api", "admin").check(&verdict), Err(AccessRequirementError::Scope { needed }));
}

#[test]
fn messages_reveal_nothing_of_the_token() {
    let fixture = Fixture::new();
    let secret = "s3cr3t-value";
    let mut tokens = vec![
        fixture.signer.token(&claims_with("iss", json!(secret))),
        fixture.signer.token(&claims_with("aud", json!(secret))),
        fixture.signer.token(&claims_with("exp", json!(secret))),
        fixture.signer.with_header(&header_with(&fixture, "kid", json!(secret)), &claims()),
        fixture.signer.with_header(&header_with(&fixture, "alg", json!(secret)), &claims()),
        fixture.signer.with_header(&header_with(&fixture, "typ", json!(secret)), &claims()),
        fixture.signer.raw(secret, secret),
    ];
    tokens.push(secret.to_owned());
    for token in tokens {
        let error = fixture.verify(&token).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}

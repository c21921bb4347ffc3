//! Stored secrets compared with the formats' own libraries, and malformed ones.

use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Created by `tests/vectors/make.py`.
const VECTORS: &str = include_str!("../../tests/vectors/stored.json");

struct Sample {
    made_by: String,
    secret: String,
    stored: String,
    profile: String,
}

fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let all: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
        let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
        let sample = |value| Sample {
            made_by: text(value, "made_by"),
            secret: text(value, "secret"),
            stored: text(value, "stored"),
            profile: text(value, "profile"),
        };
        all.iter().map(sample).collect()
    })
}

#[test]
fn each_format_is_read_as_its_own_library_writes_it() {
    let samples = samples();
    for name in [
        "passlib",
        "argon2-cffi",
        "bcrypt",
        "Django",
        "PHC",
        "Ory Hydra",
        "ASP.NET Core Identity V2",
        "ASP.NET Core Identity V3",
        "OpenIddict",
        "Duende",
        "Keycloak",
    ] {
        assert!(samples.iter().any(|sample| sample.made_by == name), "{name} has samples");
    }
    for Sample { made_by, secret, stored, profile } in samples {
        let parsed =
            StoredSecret::parse(stored).unwrap_or_else(|error| panic!("{made_by} {stored}: {error}"));
        assert_eq!(parsed.profile(), *profile, "{made_by} {stored}");
        assert!(parsed.verify(secret.as_bytes()), "{made_by} {stored}");
        let mut other = secret.clone().into_bytes();
        other[0] ^= 1;
        assert!(!parsed.verify(&other), "another secret: {made_by} {stored}");
        other[0] ^= 1;
        other.push(b'x');
        assert!(!parsed.verify(&other), "a longer secret: {made_by} {stored}");
    }
}

#[test]
fn a_lane_job_is_what_verify_does() {
    let mut jobs = 0;
    for Sample { secret, stored, .. } in samples() {
        let parsed = StoredSecret::parse(stored).unwrap();
        let Some(job) = parsed.lane_job() else { continue };
        jobs += 1;
        assert_eq!(
            crate::verify(job.prf, secret.as_bytes(), job.salt, job.iterations, job.expected),
            Ok(true)
        );
    }
    assert!(jobs > 60, "{jobs}");
}

#[test]
fn a_dummy_has_the_cost_of_its_profile() {
    for Sample { profile, .. } in samples() {
        let dummy = StoredSecret::dummy(profile).unwrap();
        assert_eq!(dummy.profile(), *profile);
    }
    for profile in [
        "",
        "sha256",
        "pbkdf2-sha512",
        "pbkdf2-sha512;i=0;l=64",
        "pbkdf2-sha512;i=4000000000;l=64",
        "bcrypt;c=31",
        "argon2;id;m=64",
        "pbkdf2-sha512;i=1;l=4000000000",
    ] {
        assert!(StoredSecret::dummy(profile).is_err(), "{profile:?}");
    }
}

#[test]
fn the_field_that_is_wrong_is_named() {
    let salt = "c2FsdHNhbHRzYWx0c2FsdA";
    let hash = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let control = format!("$pbkdf2-sha256$i=1000,l=32${salt}${hash}");
    StoredSecret::parse(&control).unwrap();
    let keycloak = |secret: &str, credential: &str| {
        format!("{{\"secretData\":{secret},\"credentialData\":{credential}}}")
    };
    let good = format!("{{\"value\":\"{hash}=\",\"salt\":\"{salt}==\"}}");
    StoredSecret::parse(&keycloak(&good, r#"{"hashIterations":1,"algorithm":"pbkdf2-sha256"}"#)).unwrap();
    for (text, field) in [
        (String::new(), "hash"),
        ("plain".into(), "hash"),
        ("x".repeat(5_000), "hash"),
        ("$".into(), "algorithm"),
        ("$md5$x$y".into(), "algorithm"),
        ("md5$x$y".into(), "algorithm"),
        ("$argon2d$v=19$m=64,t=1,p=1$AAAA$AAAA".into(), "algorithm"),
        ("$2x$04$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), "algorithm"),
        (format!("{control}$x"), "hash"),
        (control.replace("i=1000", "i=0"), "iterations"),
        (control.replace("i=1000", "i=01000"), "i"),
        (control.replace("i=1000", "i=-1"), "i"),
        (control.replace("i=1000", "i=99999999999"), "i"),
        (control.replace("i=1000", "i=4294967295"), "iterations"),
        (control.replace("i=1000", "i=10000001"), "iterations"),
        (control.replace("l=32", "l=31"), "l"),
        (control.replace(&format!("${salt}"), "$AAAA"), "salt"),
        (control.replace(&format!("${salt}"), "$!AAA"), "salt"),
        (control.replace(hash, &format!("{hash}=")), "hash"),
        (control.replace(hash, "AAAA").replace(",l=32", ""), "hash"),
        (control.replace(salt, &"A".repeat(400)), "salt"),
        (format!("$pbkdf2-sha256$+1${salt}${hash}"), "rounds"),
        (format!("$argon2id$v=20$m=64,t=1,p=1${salt}${hash}"), "v"),
        (format!("$argon2id$v=19$m=64,t=1${salt}${hash}"), "p"),
        (format!("$argon2id$v=19$t=1,m=64,p=1${salt}${hash}"), "m"),
        (format!("$argon2id$v=19$m=64,t=1,p=1,data=AA${salt}${hash}"), "parameters"),
        (format!("$argon2id$v=19$m=7,t=1,p=1${salt}${hash}"), "parameters"),
        (format!("$argon2id$v=19$m=262145,t=1,p=1${salt}${hash}"), "memory"),
        (format!("$argon2id$v=19$m=262144,t=17,p=1${salt}${hash}"), "passes"),
        (format!("$argon2id$v=19$m=64,t=1,p=17${salt}${hash}"), "parameters"),
        (format!("$scrypt$ln=0,r=8,p=1${salt}${hash}"), "parameters"),
        (format!("$scrypt$ln=19,r=8,p=1${salt}${hash}"), "memory"),
        (format!("$scrypt$ln=18,r=8,p=17${salt}${hash}"), "parameters"),
        ("$2b$4$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), "cost"),
        ("$2b$31$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), "cost"),
        ("$2b$04$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), "hash"),
        ("$2b$04$éAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), "salt"),
        ("$bcrypt-sha256$v=3,t=2b,r=4$AAAAAAAAAAAAAAAAAAAAAA$AAAA".into(), "v"),
        ("$bcrypt-sha256$v=2,t=2a,r=4$AAAAAAAAAAAAAAAAAAAAAA$AAAA".into(), "t"),
        ("$bcrypt-sha256$v=2,t=2b,r=04$AAAAAAAAAAAAAAAAAAAAAA$AAAA".into(), "rounds"),
        ("$bcrypt-sha256$2y,4$AAAAAAAAAAAAAAAAAAAAAA$AAAA".into(), "ident"),
        ("$bcrypt-sha256$2b,4$AAAA$AAAA".into(), "salt"),
        ("$bcrypt-sha256$2b,4$AAAAAAAAAAAAAAAAAAAAAA$AAAA".into(), "hash"),
        ("$bcrypt-sha256$2b,4$AAAAAAAAAAAAAAAAAAAAAA".into(), "hash"),
        ("$bcrypt-sha256$2b,31$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), "cost"),
        (
            "bcrypt$$bcrypt-sha256$2b,4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into(),
            "algorithm",
        ),
        ("pbkdf2_sha256$1000$salt-of-12-b".into(), "hash"),
        (format!("pbkdf2_sha256$x$salt-of-12-b${hash}="), "iterations"),
        (format!("pbkdf2_sha256$1000$short${hash}="), "salt"),
        (format!("scrypt$15$salt-of-12-b$8$1${hash}="), "n"),
        ("bcrypt$$argon2id$x".into(), "hash"),
        ("AAAA".into(), "subkey"),
        ("AQAAAA==".into(), "header"),
        ("/w==".into(), "format marker"),
        ("{}".into(), "secretData"),
        ("{".into(), "credential"),
        (keycloak("\"x\"", "{}"), "secretData"),
        (keycloak("[]", "{}"), "secretData"),
        (keycloak(&good, "{}"), "hashIterations"),
        (keycloak(&good, r#"{"hashIterations":-1,"algorithm":"pbkdf2"}"#), "hashIterations"),
        (keycloak(&good, r#"{"hashIterations":1,"algorithm":"md5"}"#), "algorithm"),
        (keycloak(&good, r#"{"hashIterations":1,"algorithm":"argon2"}"#), "type"),
        (keycloak(r#"{"salt":"AA=="}"#, "{}"), "value"),
    ] {
        let error = StoredSecret::parse(&text).expect_err(&text);
        assert_eq!(error.field, field, "{text}: {error}");
    }
}

#[test]
fn v3_says_where_its_bytes_are_wrong() {
    use ::base64::Engine as _;
    let bytes = |prf: u32, count: u32, salt: u32, rest: usize| {
        let mut bytes = vec![1];
        for word in [prf, count, salt] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.resize(13 + rest, 7);
        super::base64::PADDED.encode(bytes)
    };
    StoredSecret::parse(&bytes(1, 10_000, 16, 48)).unwrap();
    for (text, field) in [
        (bytes(3, 10_000, 16, 48), "prf"),
        (bytes(1, 0, 16, 48), "iterations"),
        (bytes(1, u32::MAX, 16, 48), "iterations"),
        (bytes(1, 10_000, 15, 48), "salt"),
        (bytes(1, 10_000, u32::MAX, 48), "salt"),
        (bytes(1, 10_000, 33, 48), "subkey"),
        (bytes(1, 10_000, 16, 400), "hash"),
    ] {
        assert_eq!(StoredSecret::parse(&text).unwrap_err().field, field);
    }
}

#[test]
fn secrets_with_nul_empty_and_over_long_ones_match_nothing() {
    let stored = Target::new(10_000).unwrap().hash(b"secret", &[7; 16]).unwrap();
    let stored = StoredSecret::parse(&stored).unwrap();
    assert!(stored.verify(b"secret"));
    // HMAC pads keys with zeros: without the check, this would be the same key.
    assert!(!stored.verify(b"secret\0"));
    assert_eq!(check_secret(b""), Err(SecretError::Empty));
    assert_eq!(check_secret(b"a\0b"), Err(SecretError::Nul));
    assert_eq!(check_secret(&[b'x'; SECRET_BYTES_MAX]), Ok(()));
    assert_eq!(check_secret(&[b'x'; SECRET_BYTES_MAX + 1]), Err(SecretError::TooLong));
    assert_eq!(Target::new(10_000).unwrap().hash(b"a\0", &[7; 16]), Err(SecretError::Nul));
}

#[test]
fn bcrypt_takes_72_bytes_and_not_one_more() {
    let known = samples().iter().find(|sample| sample.made_by == "bcrypt" && sample.secret.len() == 72);
    let known = known.unwrap();
    let stored = StoredSecret::parse(&known.stored).unwrap();
    assert!(stored.verify(known.secret.as_bytes()));
    assert!(!stored.verify(format!("{}x", known.secret).as_bytes()), "its first 72 bytes would match");
}

#[test]
fn a_job_of_a_target_makes_what_the_target_makes() {
    let (target, salt) = (Target::new(10_000).unwrap(), [7; 16]);
    let secret = |text: &[u8]| crate::Password::new(text.to_vec().into());
    let mut job = Some(target.job(&secret(b"secret"), &salt, ()).unwrap());
    let mut engine = crate::Engine::new(Target::PRF);
    let mut made = None;
    while engine
        .step(&mut || job.take(), &mut |(), derived| made = Some(target.text(&salt, derived.unwrap())))
    {}
    assert_eq!(made, target.hash(b"secret", &salt).ok());
    assert_eq!(target.job(&secret(b""), &salt, ()).unwrap_err(), SecretError::Empty);
}

#[test]
fn rehashing_only_raises_the_iterations() {
    let target = Target::new(210_000).unwrap();
    let standard = |profile: &str| StoredSecret::dummy(profile).unwrap().needs_rehash(&target);
    for (profile, anew) in [
        ("digest;l=32", true),
        ("pbkdf2-sha1;i=1000;l=32", true),
        ("pbkdf2-sha1;i=1300001;l=20", false),
        ("pbkdf2-sha256;i=10000;l=32", true),
        ("pbkdf2-sha256;i=600000;l=32", false),
        ("pbkdf2-sha512;i=209999;l=64", true),
        ("pbkdf2-sha512;i=210000;l=32", false),
        ("pbkdf2-sha512;i=310000;l=64", false),
        ("argon2;id;m=64;t=1;p=1;l=32", false),
        ("scrypt;ln=4;r=8;p=1;l=32", false),
        ("bcrypt;c=4", false),
    ] {
        assert_eq!(standard(profile), anew, "{profile}");
    }
    let hashed = StoredSecret::parse(&target.hash(b"s", &[1; 16]).unwrap()).unwrap();
    assert_eq!(hashed.profile(), target.profile());
    assert!(!hashed.needs_rehash(&target), "what it makes is as it wants it");
    assert!(Target::new(9_999).is_err() && Target::new(10_000_001).is_err());
}

#[test]
fn debug_shows_no_salt_and_no_hash() {
    let stored = StoredSecret::parse(&samples()[0].stored).unwrap();
    assert_eq!(format!("{stored:?}"), "StoredSecret(\"pbkdf2-sha1;i=1000;l=20\")");
}

proptest! {
    #[test]
    fn no_text_panics_and_what_is_read_is_within_its_limits(text in "\\PC{0,80}") {
        fuzz_stored_secret(text.as_bytes());
    }

    #[test]
    fn no_change_of_a_good_text_panics(
        index in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut text = index.get(samples()).stored.clone().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        fuzz_stored_secret(&text);
    }
}

//! Readings of Basic and form credentials.

use base64::engine::general_purpose::STANDARD;

use super::*;
use cardea_store::GrantType;

const NOW: Wall = Wall::from_unix_seconds(1_000);

fn readings(
    authorization: &[&str],
    body: &str,
) -> Result<Vec<(String, Option<BasicEncoding>)>, &'static str> {
    let values: Vec<&[u8]> = authorization.iter().map(|value| value.as_bytes()).collect();
    let form = Form::parse(body.as_bytes()).unwrap();
    match presented(&values, &form) {
        Ok(presented) => {
            Ok(presented.readings.into_iter().map(|reading| (reading.id, reading.encoding)).collect())
        }
        Err(refusal) => Err(refusal.reason()),
    }
}

fn basic_of(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

#[test]
fn credentials_are_found_where_the_rfc_allows_them() {
    let plain = |id: &str| Ok(vec![(id.to_owned(), None)]);
    assert_eq!(readings(&[&basic_of("id:secret")], ""), plain("id"));
    assert_eq!(readings(&[&basic_of("id:secret").replace("Basic", "bAsIc  ")], ""), plain("id"));
    assert_eq!(readings(&[basic_of("id:secret").trim_end_matches('=')], ""), plain("id"));
    assert_eq!(readings(&[&basic_of("id:se:cr:et")], "client_id=id"), plain("id"));
    assert_eq!(readings(&[], "client_id=i%3Ad&client_secret=s"), plain("i:d"));
}

#[test]
fn basic_is_read_both_ways_only_where_they_differ() {
    let (form, raw) = (Some(BasicEncoding::FormEncoded), Some(BasicEncoding::Raw));
    let ids = |credentials: &str| readings(&[&basic_of(credentials)], "").unwrap();
    assert_eq!(ids("a%2Bb:s"), [("a+b".into(), form), ("a%2Bb".into(), raw)]);
    assert_eq!(ids("a+b:s"), [("a b".into(), form), ("a+b".into(), raw)]);
    assert_eq!(ids("a:s+s"), [("a".into(), form), ("a".into(), raw)]);
    assert_eq!(ids("a%:s"), [("a%".into(), raw)], "no form-encoding at all");
}

#[test]
fn what_is_missing_doubled_or_malformed_is_refused() {
    let basic = basic_of("id:secret");
    for (authorization, body, reason) in [
        (vec![], "", "client_authentication_missing"),
        (vec![], "client_id=id", "client_authentication_missing"),
        (vec![], "client_id=id&client_secret=", "client_authentication_missing"),
        (vec![], "client_secret=s", "client_id_missing"),
        (vec![], "client_assertion=x&client_id=id", "client_assertion_unsupported"),
        (vec![basic.as_str(), basic.as_str()], "", "two_client_authentications"),
        (vec![basic.as_str()], "client_secret=s", "two_client_authentications"),
        (vec![basic.as_str()], "client_assertion=x", "two_client_authentications"),
        (vec![], "client_id=i&client_secret=s&client_assertion=x", "two_client_authentications"),
        (vec![""], "", "authorization_scheme_unsupported"),
        (vec!["Bearer abc"], "", "authorization_scheme_unsupported"),
        (vec!["Basic"], "", "basic_malformed"),
        (vec!["Basic !!!"], "", "basic_malformed"),
        (vec!["Basic aWQ="], "", "basic_malformed"),
        (vec!["Basic OnNlY3JldA=="], "", "basic_malformed"),
        (vec!["Basic aWQ6c2VjcmV0 x"], "", "basic_malformed"),
    ] {
        assert_eq!(readings(&authorization, body), Err(reason), "{authorization:?} {body}");
    }
    assert_eq!(readings(&[&basic_of(&"x".repeat(5_000))], ""), Err("basic_malformed"));
}

#[test]
fn an_id_that_no_client_can_have_gives_no_reading() {
    assert_eq!(readings(&[&basic_of(&format!("{}:s", "x".repeat(129)))], ""), Ok(vec![]));
    assert_eq!(readings(&[&format!("Basic {}", STANDARD.encode(b"\xff:s"))], ""), Ok(vec![]));
}

fn record(encoding: BasicEncoding, secrets: Vec<SecretRecord>) -> ClientRecord {
    ClientRecord {
        id: "id".into(),
        version: 1,
        name: String::new(),
        enabled: true,
        grant_types: vec![GrantType::ClientCredentials],
        scopes: vec![],
        audiences: vec![],
        token_lifetime_seconds: None,
        basic_encoding: encoding,
        remember_secret: true,
        created_at: NOW,
        updated_at: NOW,
        disabled_at: None,
        tokens_revoked_through: None,
        secrets,
    }
}

fn secret(text: &str, expires_at: Option<Wall>) -> SecretRecord {
    SecretRecord {
        id: text.into(),
        format: FORMAT_SHA256.into(),
        provenance: "generated".into(),
        verifier: sha256(text.as_bytes()).to_vec(),
        created_at: NOW,
        expires_at,
    }
}

fn held(reading: &Reading, record: Option<&ClientRecord>) -> bool {
    reading.holds_generated(record, NOW) && record.is_some_and(|record| is_permitted(record, reading))
}

#[test]
fn any_live_secret_holds_and_nothing_else_does() {
    let later = NOW.saturating_add(std::time::Duration::from_nanos(1));
    let mut known = record(
        BasicEncoding::Auto,
        vec![secret("old", Some(NOW)), secret("leaving", Some(later)), secret("new", None), secret("", None)],
    );
    known.secrets[3].verifier = vec![];
    let holds = |text: &str, record: Option<&ClientRecord>| {
        held(&reading(b"id", text.as_bytes(), None).unwrap(), record)
    };
    assert!(holds("new", Some(&known)));
    assert!(holds("leaving", Some(&known)));
    assert!(!holds("old", Some(&known)), "it expires at that very moment");
    assert!(!holds("guess", Some(&known)));
    assert!(!holds("", Some(&known)), "an empty verifier matches nothing");
    assert!(!holds("new", None));

    let unknown_format = SecretRecord { format: "pbkdf2-sha512".into(), ..secret("new", None) };
    assert!(!holds("new", Some(&record(BasicEncoding::Auto, vec![unknown_format]))));
    assert!(!holds("new", Some(&record(BasicEncoding::Auto, vec![]))));
    assert!(!holds("new", Some(&ClientRecord { enabled: false, ..known })));
}

#[test]
fn the_record_says_which_reading_holds() {
    use BasicEncoding::{Auto, FormEncoded, Raw};
    for (recorded, read, holds) in [
        (Auto, Some(FormEncoded), true),
        (Auto, Some(Raw), true),
        (FormEncoded, Some(FormEncoded), true),
        (FormEncoded, Some(Raw), false),
        (Raw, Some(FormEncoded), false),
        (Raw, Some(Raw), true),
        (Raw, None, true),
        (FormEncoded, None, true),
    ] {
        let reading = reading(b"id", b"s", read).unwrap();
        let record = record(recorded, vec![secret("s", None)]);
        assert_eq!(held(&reading, Some(&record)), holds, "{recorded:?} read as {read:?}");
    }
}

//! Properties that hold for any bytes: checked by the fuzzer, and by the tests over its corpus.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cardea_clock::{Mono, Timestamp, Wall};
use serde_json::{Map, Value};

use crate::check::{Recorder, Silent};
use crate::config::{IssuerConfig, KeySource};
use crate::issuer::{Issuer, Trusted};
use crate::jwk::KeySet;
use crate::jws::{Compact, Header};
use crate::keyset::LocalKeys;
use crate::{Algorithm, Preset, bearer_token, claims, decode_unverified, json};

const TENANT: &str = "11111111-2222-3333-4444-555555555555";

/// Reads `data` in every way that untrusted bytes are read: as credentials, as a token, as a key set, and, split at the
/// first line feed, as the header and the claims of an authentic token.
///
/// It is pure and must return for any `data`.
///
/// # Panics
/// If a property is violated; that is a finding.
pub fn fuzz_token(data: &[u8]) {
    credentials(data);
    token(data);
    key_set(data);
    object(data);
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    if let (Some(header), Some(payload)) = (parts.next(), parts.next()) {
        judged(header, payload);
    }
}

fn credentials(data: &[u8]) {
    if let Ok(Some(token)) = bearer_token(std::iter::once(data)) {
        assert!(data.ends_with(token) && !token.is_empty());
        assert!(token.is_ascii() && !token.contains(&b' '));
    }
}

fn token(data: &[u8]) {
    let Ok(compact) = Compact::parse(data) else {
        assert!(decode_unverified(data).is_err());
        return;
    };
    // Canonical: the decoded parts have only one encoding.
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (header, payload) = (encode(&compact.header), encode(&compact.payload));
    let again = format!("{header}.{payload}.{}", encode(&compact.signature));
    assert_eq!(again.as_bytes(), data);
    assert!(data.starts_with(compact.signing_input));
    judged(&compact.header, &compact.payload);
}

fn key_set(data: &[u8]) {
    if let Ok((keys, skipped)) = KeySet::parse(data, &Algorithm::ALL) {
        assert!(keys.len() + skipped.len() <= 128);
    }
}

fn object(data: &[u8]) -> Option<Map<String, Value>> {
    let map = json::object(data, json::CLAIMS_LIMITS).ok()?;
    let reference = serde_json::from_slice::<Map<String, Value>>(data).ok();
    assert_eq!(reference.as_ref(), Some(&map));
    Some(map)
}

/// Claims with a valid signature, under an ordinary issuer and under a preset.
fn judged(header: &[u8], payload: &[u8]) {
    let (Ok(header), Some(payload)) = (Header::parse(header), object(payload)) else {
        return;
    };
    let now =
        Timestamp { wall: Wall::from_unix_seconds(1_800_000_000), mono: Mono::from_nanos(1_000_000_000) };
    for trusted in trusted() {
        let verdict = claims::judge(&mut Silent, trusted, &header, payload.clone(), 1, now);
        let mut recorder = Recorder::default();
        let explained = claims::judge(&mut recorder, trusted, &header, payload.clone(), 1, now);
        assert_eq!(verdict.as_ref().err(), explained.as_ref().err());
        let failed = recorder.0.iter().filter(|check| !check.passed).count();
        assert_eq!(failed, usize::from(verdict.is_err()));
        let Ok(verdict) = verdict else { continue };
        assert!(verdict.is_valid_at(now));
        let caller = &verdict.caller;
        assert!(caller.audiences.iter().any(|audience| audience == "api"));
        assert!(!caller.claims.contains_key("cnf"));
        let texts = [&caller.subject, &caller.client_id, &caller.token_id];
        let lists = caller.scopes.iter().chain(&caller.roles);
        for text in texts.into_iter().flatten().chain(lists) {
            assert!(!text.is_empty() && !text.chars().any(char::is_control));
        }
    }
}

fn trusted() -> &'static [Trusted] {
    static TRUSTED: OnceLock<Vec<Trusted>> = OnceLock::new();
    TRUSTED.get_or_init(|| {
        let tenants = vec![TENANT.to_owned()];
        [None, Some(Preset::EntraV2 { tenants })]
            .into_iter()
            .filter_map(|preset| {
                let tenant = preset.is_some().then(|| TENANT.to_owned());
                let mut config = IssuerConfig {
                    name: "fuzz".to_owned(),
                    issuer: "https://id.example".to_owned(),
                    audiences: vec!["api".to_owned()],
                    keys: KeySource::Local(LocalKeys::new()),
                    preset,
                    ..IssuerConfig::default()
                };
                config.claims.roles.push("a.b".into());
                config.claims.roles.push("groups".into());
                Some(Trusted {
                    issuer: Issuer::new(config, None).ok()?,
                    iss: Arc::from("https://id.example"),
                    tenant,
                })
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_of_the_fuzzer_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/token");
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            fuzz_token(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 20, "{replayed} inputs");
        let grown = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/grown/token.hex");
        let lines = std::fs::read_to_string(grown).unwrap();
        assert!(lines.lines().count() >= 100, "{grown} was cut");
        for line in lines.lines() {
            let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            let input: Vec<u8> = line.as_bytes().chunks(2).map(octet).collect();
            fuzz_token(&input);
        }
        assert_eq!(trusted().len(), 2);
    }
}

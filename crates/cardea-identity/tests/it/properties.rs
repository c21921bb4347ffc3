//! For any input: no panic, and no token verifies but the signed one.

use std::sync::OnceLock;

use cardea_identity::{Algorithm, bearer_token, decode_unverified};
use proptest::prelude::*;

use crate::support::{Fixture, base64url, claims};

/// A key and a token for each key type, created once.
fn fixtures() -> &'static [(Fixture, String)] {
    static FIXTURES: OnceLock<Vec<(Fixture, String)>> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256]
            .into_iter()
            .map(|algorithm| {
                let fixture = Fixture::with(algorithm, |_| {});
                let token = fixture.signer.token(&claims());
                (fixture, token)
            })
            .collect()
    })
}

fn must_fail(fixture: &Fixture, original: &str, mutated: &[u8]) -> Result<(), TestCaseError> {
    let verified = fixture.verify(mutated).is_ok();
    prop_assert_eq!(verified, mutated == original.as_bytes());
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_verify(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (fixture, _) = &fixtures()[0];
        prop_assert!(fixture.verify(&bytes).is_err());
        let _ = decode_unverified(&bytes);
        let _ = bearer_token(std::iter::once(&bytes[..]));
    }

    #[test]
    fn arbitrary_text_in_the_segments_never_verifies(
        header in r#"[{}\[\]":,a-z0-9 ]{0,60}"#,
        payload in r#"[{}\[\]":,a-z0-9 ]{0,60}"#,
        signature in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let token = format!("{}.{}.{}", base64url(header), base64url(payload), base64url(signature));
        prop_assert!(fixtures()[0].0.verify(token).is_err());
    }

    #[test]
    fn no_replaced_byte_verifies(which in 0..3_usize, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (fixture, token) = &fixtures()[which];
        let mut bytes = token.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        must_fail(fixture, token, &bytes)?;
    }

    #[test]
    fn no_cut_inserted_or_repeated_part_verifies(
        which in 0..3_usize,
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        into in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let (fixture, token) = &fixtures()[which];
        let bytes = token.as_bytes();
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        let (from, to) = (from.min(to), from.max(to));
        let mut mutated = bytes.to_vec();
        if cut {
            mutated.drain(from..to);
        } else {
            let into = into.index(bytes.len());
            mutated.splice(into..into, bytes[from..to].iter().copied());
        }
        must_fail(fixture, token, &mutated)?;
    }

    #[test]
    fn any_signed_json_is_judged_without_panic(payload in r#"\{("(exp|iat|nbf|aud|sub|scope|roles|iss)":(-?[0-9]{1,20}(\.[0-9]{1,3})?(e[0-9]{1,3})?|"[a-z ]{0,9}"|\[[0-9],"x"\]|null|\{\}),){0,6}"z":1\}"#) {
        let (fixture, _) = &fixtures()[0];
        let token = fixture.signer.raw(fixture.signer.header().to_string(), payload);
        prop_assert!(fixture.verify(token).is_err());
    }
}

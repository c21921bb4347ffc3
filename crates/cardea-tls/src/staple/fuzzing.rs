//! Properties that hold for any bytes of a responder: checked by the fuzzer, and by the tests over its corpus.

use std::sync::OnceLock;
use std::time::Duration;

use cardea_clock::Wall;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::response::{self, Basic, Subject};
use super::{STAPLE_BYTES_MAX, Staple, StapleError};

/// The certificate of the corpus, and its issuer.
const CHAIN: &str = include_str!("fuzzing/chain.pem");

/// An hour after the responses of the corpus were made.
const NOW: Wall = Wall::from_unix_seconds(1_795_263_447);

/// Reads `data` as a response about a certificate, and also as the signed part of one, because no fuzzer finds a
/// signature.
///
/// It is pure and must return for any `data`.
///
/// # Panics
/// If a property is violated; that is a finding.
pub fn fuzz_staple(data: &[u8]) {
    let chain = chain();
    let checked = Staple::check(data.to_vec(), chain, NOW);
    assert!(data.len() <= STAPLE_BYTES_MAX || checked == Err(StapleError::TooLarge));
    let Ok(subject) = Subject::of(chain) else { unreachable!("the chain is ours") };
    let inner = response::successful(data).unwrap_or(data);
    let said = Basic::read(inner).map(|basic| basic.says(&subject, NOW));
    if let Some(Ok((this_update, next_update))) = said {
        assert!(this_update <= NOW.saturating_add(Duration::from_secs(300)) && NOW < next_update);
    }
    if let Ok(staple) = checked {
        assert_eq!(said, Some(Ok((staple.this_update, staple.next_update))));
        assert_eq!(staple.der, data, "what is served is what was checked");
        assert!(!staple.is_over(NOW));
        let late = Staple::check(data.to_vec(), chain, staple.next_update);
        assert!(matches!(late, Err(StapleError::OutOfTime | StapleError::NotSigned)), "{late:?}");
        // A response about the issuer's certificate, signed by itself.
        let [_, issuer] = chain else { unreachable!("the chain has two") };
        let other = Staple::check(data.to_vec(), &[issuer.clone(), issuer.clone()], NOW);
        assert_eq!(other, Err(StapleError::OtherCertificate));
    }
}

fn chain() -> &'static [CertificateDer<'static>] {
    static CHAIN_DER: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    CHAIN_DER
        .get_or_init(|| CertificateDer::pem_slice_iter(CHAIN.as_bytes()).filter_map(Result::ok).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_of_the_fuzzer_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/staple");
        let mut good = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let data = std::fs::read(&path).unwrap();
            fuzz_staple(&data);
            if Staple::check(data, chain(), NOW).is_ok() {
                good.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
        good.sort();
        let expected = ["by-issuer", "by-key", "by-responder", "of-two", "sha256", "with-nonce"]
            .map(|name| format!("good-{name}"));
        assert_eq!(good, expected);
    }
}

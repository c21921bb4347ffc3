//! Properties that hold for any bytes that are parsed as a stored secret.

use super::StoredSecret;

/// Parses `data` as a stored secret. An accepted one has a profile, and a dummy secret with that profile has the same
/// cost. Nothing is hashed.
///
/// # Panics
/// If a property is violated.
#[doc(hidden)]
pub fn fuzz_stored_secret(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(stored) = StoredSecret::parse(text) else { return };
    let profile = stored.profile();
    assert!(profile.len() <= 64 && profile.bytes().all(|byte| byte.is_ascii_graphic()), "{profile:?}");
    let dummy = StoredSecret::dummy(&profile);
    assert!(dummy.is_ok_and(|dummy| dummy.profile() == profile), "{profile:?}");
    assert!(StoredSecret::parse(text.trim_end_matches('\0')).is_ok());
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_corpus_of_the_fuzzer_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/stored_secret");
        let mut taken = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let data = fs::read(entry.unwrap().path()).unwrap();
            fuzz_stored_secret(&data);
            taken += usize::from(StoredSecret::parse(std::str::from_utf8(&data).unwrap()).is_ok());
        }
        assert!(taken > 20, "{taken}");
    }
}

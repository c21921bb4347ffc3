//! Any bytes, as `cardea_kdf::stored::fuzz_stored_secret` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_kdf::stored::fuzz_stored_secret(data));

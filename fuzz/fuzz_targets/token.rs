//! Any bytes, as `cardea_identity::fuzz_token` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_identity::fuzz_token(data));

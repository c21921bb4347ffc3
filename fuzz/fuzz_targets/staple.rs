//! Any bytes, as `cardea_tls::fuzz_staple` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_tls::fuzz_staple(data));

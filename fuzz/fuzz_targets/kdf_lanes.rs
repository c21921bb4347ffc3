//! Any jobs, as `cardea_kdf::fuzz_lanes` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_kdf::fuzz_lanes(data));

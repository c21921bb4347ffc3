//! Any bytes, as `cardea_env::fuzzing::template` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_env::fuzzing::template(data));

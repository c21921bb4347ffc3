//! Any bytes, as `cardea_env::fuzzing::expression` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_env::fuzzing::expression(data));

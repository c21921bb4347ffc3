//! Any bytes, as `cardea_http::fuzzing::hpack` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_http::fuzzing::hpack(data));

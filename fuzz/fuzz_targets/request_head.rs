//! Any bytes, as `cardea_http::fuzzing::request_head` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_http::fuzzing::request_head(data));

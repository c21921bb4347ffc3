//! Any bytes, as `cardea_http::fuzzing::http2_connection` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_http::fuzzing::http2_connection(data));

//! Any bytes, as `cardea_http::fuzzing::grpc` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cardea_http::fuzzing::grpc(data));

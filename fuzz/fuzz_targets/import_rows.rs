//! Any bytes, as `fuzz_rows` of the program takes them.
#![no_main]

#[path = "../import.rs"]
mod import;

use import::{admin, fuzzing};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzzing::fuzz_rows(data);
});

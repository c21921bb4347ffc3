//! Attacks on the built program, each beside the request that must succeed. The origins behind it are those that are fooled
//! most easily: they fold the names of fields as CGI does, and read lengths as octal numbers.
#![expect(dead_code, reason = "other subjects use the rest of the laboratory")]

mod framing;
mod informational;
mod lab;
mod surplus_bytes;

//! Attacks on the built program, each beside the request that must succeed. The origins behind it are those that are fooled
//! most easily: they fold the names of fields as CGI does, and read lengths as octal numbers.

mod authority_port;
mod conditional_headers;
mod credentials;
mod framing;
mod header_names;
mod hint_headers;
mod hop_by_hop;
mod hosts_and_certificates;
mod informational;
mod key_publication;
mod lab;
mod path_parameters;
mod precedence;
mod proxy_protocol;
mod surplus_bytes;
mod trailers;

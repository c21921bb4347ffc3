//! Certificates from an authority (RFC 8555): ordered when there is none, renewed in time, and shared by all gateways that
//! share the database.
//!
//! Every second each gateway looks whether the database has changed, and takes over certificates and challenges; so all of
//! them serve what any was issued, and answer whomever the authority asks. Where something has to be ordered, one of them
//! takes the lease and does it; what comes of it, it gets back through the database like the others.

mod http;
mod order;
mod renewal;
mod schedule;
mod state;
mod work;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    state::{Acme, SOURCE_PREFIX, Status},
    work::start,
};

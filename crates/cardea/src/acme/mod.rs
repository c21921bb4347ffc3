//! Certificates from an ACME authority (RFC 8555): ordered if missing, renewed in time, and shared by all gateways with
//! the same database.
//!
//! Every second each gateway checks whether the database has changed, and takes over certificates and challenges. So
//! all of them serve every issued certificate and answer every challenge. If a certificate must be ordered, one gateway
//! takes the lease and orders it; all gateways get the result through the database.

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

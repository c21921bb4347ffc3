//! What counts as one place that connections come from.

use std::net::IpAddr;

/// An IPv4 address, or the half of an IPv6 address that its owner can't choose (RFC 4291 §2.5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Prefix(u64, bool);

impl Prefix {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits()), true),
            IpAddr::V6(address) => Self(u64::try_from(address.to_bits() >> 64).unwrap_or(0), false),
        }
    }
}

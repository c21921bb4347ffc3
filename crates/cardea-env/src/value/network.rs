//! Networks: an address and a prefix length.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, such as `10.0.0.0/8` or `2001:db8::/32`. A single address is a network with the full prefix length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

impl Network {
    /// Whether it contains an address. An IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2) is the IPv4 address.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = network.to_bits() ^ address.to_bits();
                differ.checked_shr(32 - u32::from(self.length)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = network.to_bits() ^ address.to_bits();
                differ.checked_shr(128 - u32::from(self.length)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether it contains another network.
    #[must_use]
    pub fn contains_network(self, other: Network) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// The prefix length.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Whether it contains only one address.
    const fn is_single(self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.length == 32,
            IpAddr::V6(_) => self.length == 128,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Form)?;
        let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => bits,
            Some(length) if length.len() <= 3 && length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().ok().filter(|length| *length <= bits).ok_or(NetworkError::Length)?
            }
            Some(_) => return Err(NetworkError::Length),
        };
        let first = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        let network = Self { address: first, length };
        // 10.1.2.3/8 is ambiguous: an address or a network.
        if first == address { Ok(network) } else { Err(NetworkError::HostBits { network }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_single() {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.length)
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// Not an address, or an address and a length.
    #[error("not an address or a network, such as 10.0.0.0/8")]
    Form,
    /// The length is no number, or larger than the address.
    #[error("the length of a network is at most 32, for IPv6 128")]
    Length,
    /// Bits beyond the prefix length are set.
    #[error("the address has bits beyond the network's length")]
    HostBits {
        /// The network without them.
        network: Network,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_the_addresses_that_share_their_bits() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "::1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "10.0.0.1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("::1", "::2", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network} and {address}");
        }
    }

    #[test]
    fn prefixes_with_host_bits_are_refused_and_the_network_is_suggested() {
        for (text, network) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.0.0.1/0", "0.0.0.0/0"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::1/0", "::/0"),
        ] {
            let network = network.parse().unwrap();
            assert_eq!(text.parse::<Network>(), Err(NetworkError::HostBits { network }), "{text}");
        }
    }
}

//! Who offends: an identity that was verified, or else an address prefix.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use crate::AddressPrefix;

/// A verified identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Who vouches for it. A subject means nothing without.
    pub issuer: Box<str>,
    /// Who it is.
    pub subject: Box<str>,
}

/// Whose offences are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Offender {
    /// Whoever has an address of this prefix, and has proven no identity.
    Prefix(AddressPrefix),
    /// An identity, from wherever.
    Identity(Arc<Identity>),
}

/// Where a request comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The prefix of the client's address, where that is known.
    pub prefix: Option<AddressPrefix>,
    /// The identity that it has proven.
    pub identity: Option<Arc<Identity>>,
}

impl Origin {
    /// Whose offences those of the request are. `None` where nothing is known of it.
    #[must_use]
    pub fn offender(&self) -> Option<Offender> {
        let identity = self.identity.clone().map(Offender::Identity);
        identity.or_else(|| self.prefix.map(Offender::Prefix))
    }

    /// Whether the request is one of this offender's.
    pub(super) fn is(&self, offender: &Offender) -> bool {
        match offender {
            Offender::Identity(identity) => self.identity.as_ref() == Some(identity),
            Offender::Prefix(prefix) => self.identity.is_none() && self.prefix == Some(*prefix),
        }
    }
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Identity(identity) => write!(f, "{} of {}", identity.subject, identity.issuer),
        }
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first_address() {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

impl AddressPrefix {
    /// Its first address.
    #[must_use]
    pub fn first_address(self) -> IpAddr {
        match self {
            Self(bits, true) => IpAddr::V4(u32::try_from(bits).unwrap_or_default().into()),
            Self(bits, false) => IpAddr::V6(Ipv6Addr::from_bits(u128::from(bits) << 64)),
        }
    }
}

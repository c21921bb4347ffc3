//! Client names: the alternative names of certificates, and the names that routes accept.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;
use x509_parser::extensions::GeneralName;

use crate::names::address;

/// A subject alternative name (RFC 5280 §4.2.1.6), written with its type: `dns:api.example.com`,
/// `uri:spiffe://example.com/api`, `email:api@example.com`, `ip:192.0.2.1`.
///
/// It contains only visible ASCII, so that names can be listed separated by spaces. Other alternative names are
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientName {
    /// A DNS name in lower case. A wildcard in a certificate matches only its own text.
    Dns(String),
    /// A URI, compared octet by octet.
    Uri(String),
    /// An email address with its domain in lower case.
    Email(String),
    /// An IP address.
    Ip(IpAddr),
}

/// A text that is not a client name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "write the type first, as in \"dns:api.example.com\", \"uri:spiffe://example.com/api\", \"email:api@example.com\" or \"ip:192.0.2.1\""
)]
pub struct ClientNameError;

impl ClientName {
    /// The name in a certificate; `None` for other types, and for text that is not visible ASCII.
    pub(super) fn of(name: &GeneralName<'_>) -> Option<Self> {
        match name {
            GeneralName::DNSName(text) => visible(text).map(|text| Self::Dns(text.to_ascii_lowercase())),
            GeneralName::URI(text) => visible(text).map(|text| Self::Uri(text.to_owned())),
            GeneralName::RFC822Name(text) => visible(text).and_then(email),
            GeneralName::IPAddress(octets) => address(octets).map(Self::Ip),
            _ => None,
        }
    }

    /// The name without its type.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Dns(text) | Self::Uri(text) | Self::Email(text) => text.clone(),
            Self::Ip(address) => address.to_string(),
        }
    }
}

impl FromStr for ClientName {
    type Err = ClientNameError;

    fn from_str(text: &str) -> Result<Self, ClientNameError> {
        let (kind, name) = text.split_once(':').ok_or(ClientNameError)?;
        let name = visible(name).ok_or(ClientNameError)?;
        match kind {
            // A pattern would match nothing.
            "dns" if !name.contains('*') => Ok(Self::Dns(name.to_ascii_lowercase())),
            "uri" if name.contains(':') => Ok(Self::Uri(name.to_owned())),
            "email" => email(name).ok_or(ClientNameError),
            "ip" => name.parse().map(Self::Ip).map_err(|_| ClientNameError),
            _ => Err(ClientNameError),
        }
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Dns(_) => "dns",
            Self::Uri(_) => "uri",
            Self::Email(_) => "email",
            Self::Ip(_) => "ip",
        };
        write!(f, "{kind}:{}", self.text())
    }
}

fn visible(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}

/// The local part may be case-sensitive (RFC 5321 §2.4).
fn email(text: &str) -> Option<ClientName> {
    let (local, domain) =
        text.rsplit_once('@').filter(|(local, domain)| !local.is_empty() && !domain.is_empty())?;
    Some(ClientName::Email(format!("{local}@{}", domain.to_ascii_lowercase())))
}

//! Names of endpoints in the DNS, and what they were last resolved to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use crate::address::{Address, AddressError, host_and_port, is_host_name};
use crate::config::{ENDPOINTS_MAX, EndpointConfig, WEIGHT_MAX};

/// How many addresses of a name are used. Each is an endpoint.
pub const ADDRESSES_MAX: usize = 256;

/// Weights of service records are multiplied by this, so that those of a target with several addresses can be divided among
/// these: 65,535 times this is no more than [`WEIGHT_MAX`].
const WEIGHT_UNIT: u32 = 12;

/// What is asked of the DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Query {
    /// The addresses of a host: A and AAAA records (RFC 1035 §3.4.1, RFC 3596).
    Host(String),
    /// The hosts and ports of a service: SRV records (RFC 2782), and the addresses of their targets.
    Service(String),
}

impl Query {
    /// The name that is looked up.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Host(name) | Self::Service(name) => name,
        }
    }

    /// The kind of records, in metrics.
    #[must_use]
    pub fn records(&self) -> &'static str {
        match self {
            Self::Host(_) => "address",
            Self::Service(_) => "srv",
        }
    }
}

/// A name that stands for endpoints. [`fmt::Display`] writes it as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DnsName {
    query: Query,
    /// 0 where the records have it.
    port: u16,
}

impl DnsName {
    /// The addresses of a host, with this port; none if that is no host name. Case and a final dot do not count.
    #[must_use]
    pub fn host(name: &str, port: u16) -> Option<Self> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        is_host_name(&name).then_some(Self { query: Query::Host(name), port })
    }

    /// What the SRV records of a name say; none if it does not have the form `_service._protocol.domain`.
    #[must_use]
    pub fn service(name: &str) -> Option<Self> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let (service, rest) = name.split_once('.')?;
        let (protocol, domain) = rest.split_once('.')?;
        let is_label = |label: &str| label.len() > 1 && label.starts_with('_');
        let is_it = is_label(service) && is_label(protocol) && is_host_name(domain) && is_host_name(&name);
        is_it.then_some(Self { query: Query::Service(name), port: 0 })
    }

    /// What is asked of the DNS.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// The port, if it is configured.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        (self.port != 0).then_some(self.port)
    }

    /// The name that certificates must have. Of a service it is the domain, never a target: whoever forges answers could name
    /// any (RFC 9525 §6.1).
    #[must_use]
    pub fn verified(&self) -> &str {
        match &self.query {
            Query::Host(name) => name,
            Query::Service(name) => name.splitn(3, '.').nth(2).unwrap_or(name),
        }
    }

    /// The name and one of its addresses, as the endpoint is called in logs and metrics.
    pub(crate) fn label(&self, address: &Address) -> String {
        format!("{}/{address}", self.query.name())
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.query {
            Query::Host(name) => write!(f, "{name}:{}", self.port),
            Query::Service(name) => name.fmt(f),
        }
    }
}

/// What the operator configures as the address of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// One endpoint.
    Address(Address),
    /// An endpoint at each address of the name.
    Name(Arc<DnsName>),
}

impl Target {
    /// The name, if it is one.
    #[must_use]
    pub fn name(&self) -> Option<&Arc<DnsName>> {
        match self {
            Self::Address(_) => None,
            Self::Name(name) => Some(name),
        }
    }
}

impl FromStr for Target {
    type Err = AddressError;

    /// An address, or a host and a port.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = match text.parse() {
            Ok(address) => return Ok(Self::Address(address)),
            Err(error @ AddressError::Host(_)) => error,
            Err(error) => return Err(error),
        };
        let name = host_and_port(text).and_then(|(host, port)| DnsName::host(host, port));
        name.map(|name| Self::Name(Arc::new(name))).ok_or(error)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// Endpoints as the operator configures them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSource {
    /// Where they listen.
    pub target: Target,
    /// See [`EndpointConfig::region`].
    pub region: Option<String>,
    /// See [`EndpointConfig::weight`]. Each address of a host has it; SRV records have weights of their own.
    pub weight: u32,
    /// See [`EndpointConfig::capacity`]. Each address of a name has it.
    pub capacity: Option<NonZeroU32>,
}

/// One address of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resolved {
    /// Lower ones are used first. 0 for a host.
    pub priority: u16,
    /// The address.
    pub address: IpAddr,
    /// The port of an SRV record; 0 for a host.
    pub port: u16,
    /// The weight of an SRV record; 0 for a host.
    pub weight: u16,
    /// How many addresses the target of the SRV record has; 1 for a host.
    pub siblings: u16,
}

impl Resolved {
    /// An address of a host.
    #[must_use]
    pub fn of_host(address: IpAddr) -> Self {
        Self { priority: 0, address: address.to_canonical(), port: 0, weight: 0, siblings: 1 }
    }

    /// The weight of the endpoint. One of 0 has a small chance beside others, and all beside its like (RFC 2782).
    fn weight(&self) -> u32 {
        let weight = u32::from(self.weight) * WEIGHT_UNIT / u32::from(self.siblings.max(1));
        weight.clamp(1, WEIGHT_MAX)
    }
}

/// What has changed by a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// There are other addresses than before.
    pub changed: bool,
    /// So many addresses are not used: there are more than [`ADDRESSES_MAX`].
    pub unused: usize,
}

/// The addresses of names, for the endpoints of all services.
pub struct ResolvedNames {
    addresses: Mutex<HashMap<Query, Arc<[Resolved]>>>,
    is_excluded: OnceLock<Box<dyn Fn(SocketAddr) -> bool + Send + Sync>>,
}

impl Default for ResolvedNames {
    fn default() -> Self {
        Self { addresses: Mutex::new(HashMap::new()), is_excluded: OnceLock::new() }
    }
}

impl fmt::Debug for ResolvedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResolvedNames").field(&self.addresses).finish()
    }
}

impl ResolvedNames {
    /// Puts other addresses in place of those that a name had, in whatever order they come.
    ///
    /// Of more than [`ADDRESSES_MAX`], those that are in use stay, so that answers in random order do not replace healthy
    /// endpoints. Of the others the first by priority and address are taken.
    pub fn replace(&self, query: &Query, addresses: impl IntoIterator<Item = Resolved>) -> Change {
        let mut addresses: Vec<Resolved> = addresses.into_iter().collect();
        addresses.sort_unstable();
        // An address with two weights or priorities is one endpoint.
        let mut seen = HashSet::with_capacity(addresses.len());
        addresses.retain(|one| seen.insert((one.address, one.port)));
        let mut names = self.lock();
        let known = names.get(query).cloned().unwrap_or_default();
        let unused = addresses.len().saturating_sub(ADDRESSES_MAX);
        if unused > 0 {
            let used: HashSet<_> = known.iter().map(|one| (one.address, one.port)).collect();
            addresses.sort_by_key(|one| (one.priority, !used.contains(&(one.address, one.port))));
            addresses.truncate(ADDRESSES_MAX);
            addresses.sort_unstable();
        }
        let changed = *known != *addresses;
        if addresses.is_empty() {
            names.remove(query);
        } else if changed {
            names.insert(query.clone(), addresses.into());
        }
        Change { changed, unused }
    }

    /// Makes no endpoints of addresses for which `is_excluded` says so. The first call counts.
    pub fn exclude(&self, is_excluded: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) {
        let _ = self.is_excluded.set(Box::new(is_excluded));
    }

    /// Forgets all names but those for which `keeps` says so.
    pub fn retain(&self, keeps: impl Fn(&Query) -> bool) {
        self.lock().retain(|query, _| keeps(query));
    }

    /// How many addresses of a name are used.
    #[must_use]
    pub fn count(&self, query: &Query) -> usize {
        self.lock().get(query).map_or(0, |addresses| addresses.len())
    }

    /// The endpoints of a service: each address of a name in place of the name. A name without known addresses has none.
    ///
    /// An address of two names is an endpoint of each: behind one address may be several servers, told apart by their names.
    #[must_use]
    pub fn expand(&self, sources: &[EndpointSource]) -> Vec<EndpointConfig> {
        let names = self.lock();
        let mut endpoints = Vec::with_capacity(sources.len());
        for EndpointSource { target, region, weight, capacity } in sources {
            let endpoint = |address, weight| EndpointConfig {
                region: region.clone(),
                weight,
                capacity: *capacity,
                name: target.name().cloned(),
                ..EndpointConfig::new(address)
            };
            let name = match target {
                Target::Address(address) => {
                    endpoints.push(endpoint(address.clone(), *weight));
                    continue;
                }
                Target::Name(name) => name,
            };
            for resolved in names.get(name.query()).iter().flat_map(|addresses| addresses.iter()) {
                let (port, weight) = match name.port() {
                    Some(port) => (port, *weight),
                    None => (resolved.port, resolved.weight()),
                };
                let address = SocketAddr::new(resolved.address, port);
                if self.is_excluded.get().is_some_and(|is_excluded| is_excluded(address)) {
                    continue;
                }
                let address = Address::Tcp(address);
                endpoints.push(EndpointConfig { priority: resolved.priority, ..endpoint(address, weight) });
            }
        }
        endpoints.truncate(ENDPOINTS_MAX);
        endpoints
    }

    /// The state is sound at every moment: nothing under the lock can panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<Query, Arc<[Resolved]>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

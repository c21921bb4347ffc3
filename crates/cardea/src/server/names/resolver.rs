//! Asks the DNS, by `hickory-resolver`, which tells the TTL of answers; the system's resolver does not.

use std::{
    collections::{HashMap, HashSet},
    fs,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use cardea_clock::Mono;
use cardea_upstream::{ADDRESSES_MAX, Answer, Query, Resolved};
use hickory_resolver::{
    Hosts, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::{Query as Question, ResponseCode},
        rr::{Name, RData, RecordType},
    },
    system_conf,
};
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use crate::config::Dns as Settings;

/// Questions that are open at a time. Each holds a descriptor.
const QUESTIONS_MAX: usize = 64;

/// Hosts of one service that are looked up at a time, with two questions each: a service whose hosts nobody answers for leaves
/// most questions to other names.
const HOSTS_AT_ONCE: usize = 4;

/// The most addresses that are kept of an answer: more than are used, so that it is seen that there are too many.
const KEPT_MAX: usize = 2 * ADDRESSES_MAX;

/// How long a name server may take to answer, and how often it is asked.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;

/// For all attempts at all name servers, for one question.
const QUESTION_MAX: Duration = Duration::from_secs(10);

/// How long what the file of hosts says is used; then it is looked whether the file has changed.
const HOSTS_TTL: Duration = Duration::from_secs(10);

/// How often it is looked whether the system's files have changed.
const FILES_EVERY: Duration = Duration::from_secs(1);

/// The files that say how the system resolves names.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Resolves names as the configuration and the system's files say.
pub(super) struct Resolver {
    made: tokio::sync::Mutex<Option<Made>>,
    questions: Arc<Semaphore>,
    /// The last addresses of each host, by the name that led to it: they stay in use where only a part of an answer can be had.
    last: Mutex<HashMap<Query, LastAddresses>>,
}

type LastAddresses = HashMap<(String, RecordType), Vec<IpAddr>>;

/// What questions are asked with, and what it was made of.
struct Made {
    settings: Settings,
    files: [Option<(SystemTime, u64)>; FILES.len()],
    looked: Mono,
    dns: Arc<Dns>,
}

struct Dns {
    resolver: TokioResolver,
    hosts: Hosts,
    /// Names with fewer dots are looked up with the suffixes of the search list first (resolv.conf(5)).
    dots_min: usize,
    search: Vec<Name>,
    questions: Arc<Semaphore>,
    allows_loopback: bool,
}

/// The answer to one question.
#[derive(Clone, Debug)]
enum Found {
    Records(Vec<RData>, Duration),
    Missing,
    Failed(String),
}

/// Addresses of one host.
struct Host {
    addresses: Vec<IpAddr>,
    ttl: Duration,
    /// Why some of them are not known, or are those of an earlier answer.
    error: Option<String>,
    last: LastAddresses,
}

impl Resolver {
    pub(super) fn new() -> Self {
        Self {
            made: tokio::sync::Mutex::new(None),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            last: Mutex::default(),
        }
    }

    /// What is asked now; whether it differs from what was asked before.
    pub(super) async fn refresh(&self, settings: &Settings, now: Mono) -> Result<bool, String> {
        let mut made = self.made.lock().await;
        if let Some(made) = &*made
            && made.settings == *settings
            && now.saturating_since(made.looked) < FILES_EVERY
        {
            return Ok(false);
        }
        let previous = made.as_ref().filter(|made| made.settings == *settings).map(|made| made.files);
        let (wanted, questions) = (settings.clone(), Arc::clone(&self.questions));
        // Reads files.
        let read = tokio::task::spawn_blocking(move || {
            let files = FILES.map(|path| {
                let file = fs::metadata(path).ok()?;
                Some((file.modified().ok()?, file.len()))
            });
            if previous == Some(files) {
                return Ok::<_, String>(None);
            }
            let dns = Dns::new(&wanted, questions).map_err(|error| error.to_string())?;
            Ok(Some(Made { settings: wanted, files, looked: now, dns: Arc::new(dns) }))
        });
        match read.await.map_err(|error| error.to_string())?? {
            Some(fresh) => Ok(made.replace(fresh).is_some()),
            None => {
                if let Some(made) = &mut *made {
                    made.looked = now;
                }
                Ok(false)
            }
        }
    }

    /// Looks a name up. To be called after [`Self::refresh`].
    pub(super) async fn resolve(&self, query: &Query) -> Answer {
        let dns = self.made.lock().await.as_ref().map(|made| Arc::clone(&made.dns));
        let Some(dns) = dns else { return Answer::Failed("there are no name servers".to_owned()) };
        let before = Arc::new(self.lock().get(query).cloned().unwrap_or_default());
        let (answer, last) = match query {
            Query::Host(name) => dns.resolve_host(name, before).await,
            Query::Service(name) => dns.resolve_service(name, before).await,
        };
        if let Some(last) = last {
            self.lock().insert(query.clone(), last);
        }
        answer
    }

    /// Forgets all names but those for which `keeps` says so.
    pub(super) fn retain(&self, keeps: impl Fn(&Query) -> bool) {
        self.lock().retain(|query, _| keeps(query));
    }

    /// The state is sound at every moment: nothing under the lock can panic.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Query, LastAddresses>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dns {
    fn new(settings: &Settings, questions: Arc<Semaphore>) -> Result<Self, NetError> {
        let servers = &settings.servers;
        let (config, mut options) = if servers.is_empty() {
            system_conf::read_system_conf()?
        } else {
            let server = |address: &SocketAddr| {
                let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
                connections.iter_mut().for_each(|connection| connection.port = address.port());
                NameServerConfig::new(address.ip(), true, connections)
            };
            let config = ResolverConfig::from_name_servers(servers.iter().map(server).collect());
            (config, ResolverOpts::default())
        };
        let dots_min = options.ndots;
        let search = config.search().to_vec();
        options.timeout = options.timeout.min(ANSWER_MAX);
        options.attempts = ATTEMPTS;
        // What is asked for is due.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let resolver = resolver.with_options(options).build()?;
        let hosts = Hosts::from_system().unwrap_or_default();
        let allows_loopback = settings.danger_allow_loopback;
        Ok(Self { resolver, hosts, dots_min, search, questions, allows_loopback })
    }

    async fn resolve_host(&self, name: &str, before: Arc<LastAddresses>) -> (Answer, Option<LastAddresses>) {
        let Host { addresses, ttl, error, last } = self.host(name, NameSource::of(name), &before).await;
        let answer = match (addresses.is_empty(), error) {
            // All that is known is from earlier answers.
            (_, Some(error)) if ttl == Duration::MAX => Answer::Failed(error),
            (true, Some(error)) => Answer::Failed(error),
            (true, None) => Answer::Missing,
            (false, partial) => Answer::Found {
                addresses: addresses.into_iter().map(Resolved::of_host).collect(),
                ttl,
                partial,
            },
        };
        (answer, Some(last))
    }

    /// RFC 2782.
    async fn resolve_service(
        self: &Arc<Self>,
        name: &str,
        before: Arc<LastAddresses>,
    ) -> (Answer, Option<LastAddresses>) {
        let (records, mut ttl) = match self.first(name, &[RecordType::SRV]).await.pop() {
            Some(Found::Records(records, ttl)) => (records, ttl),
            Some(Found::Failed(error)) => return (Answer::Failed(error), None),
            Some(Found::Missing) | None => return (Answer::Missing, None),
        };
        let services = records.into_iter().filter_map(|record| match record {
            // The root as its target says that there is no such service.
            RData::SRV(service) if !service.target.is_root() => Some(service),
            _ => None,
        });
        let mut services: Vec<_> = services.collect();
        services.sort_by_key(|service| service.priority);
        // None has less than one address.
        services.truncate(ADDRESSES_MAX);
        let (mut last, mut addresses, mut partial) = (LastAddresses::new(), Vec::new(), None);
        let mut lookups = JoinSet::new();
        let turns = Arc::new(Semaphore::new(HOSTS_AT_ONCE));
        for service in services {
            let (this, before, turns) = (Arc::clone(self), Arc::clone(&before), Arc::clone(&turns));
            lookups.spawn(async move {
                // Closed by nobody.
                let _turn = turns.acquire_owned().await;
                let host = this.host(&service.target.to_string(), NameSource::Answer, &before).await;
                (service, host)
            });
        }
        while let Some(done) = lookups.join_next().await {
            let Ok((service, host)) = done else { continue };
            last.extend(host.last);
            partial = partial.or(host.error);
            ttl = if host.addresses.is_empty() { ttl } else { ttl.min(host.ttl) };
            let siblings = u16::try_from(host.addresses.len()).unwrap_or(u16::MAX);
            addresses.extend(host.addresses.into_iter().map(|address| Resolved {
                priority: service.priority,
                port: service.port,
                weight: service.weight,
                siblings,
                ..Resolved::of_host(address)
            }));
        }
        addresses.retain(|resolved| resolved.port != 0);
        let answer = match (addresses.is_empty(), partial) {
            (true, Some(error)) => Answer::Failed(error),
            (true, None) => Answer::Missing,
            (false, partial) => Answer::Found { addresses, ttl, partial },
        };
        (answer, Some(last))
    }

    /// The addresses of a host. Those of a family that nobody has answered for are those `before`.
    async fn host(&self, name: &str, source: NameSource, before: &LastAddresses) -> Host {
        const FAMILIES: [RecordType; 2] = [RecordType::A, RecordType::AAAA];
        let mut addresses = self.in_file(name);
        addresses.retain(|address| source == NameSource::Configuration || self.may_use(address, source));
        let mut host = Host { addresses, ttl: HOSTS_TTL, error: None, last: LastAddresses::new() };
        if !host.addresses.is_empty() {
            return host;
        }
        host.ttl = Duration::MAX;
        for (family, found) in FAMILIES.into_iter().zip(self.first(name, &FAMILIES).await) {
            let key = (name.to_owned(), family);
            let addresses = match found {
                Found::Records(records, ttl) => {
                    host.ttl = host.ttl.min(ttl);
                    let last = before.get(&key).map_or(&[][..], |last| last);
                    let all = records.iter().filter_map(RData::ip_addr);
                    let used = bounded(all.filter(|address| self.may_use(address, source)), last);
                    if used.is_empty() {
                        host.error = Some(NO_HOSTS.to_owned());
                        last.to_vec()
                    } else {
                        used
                    }
                }
                Found::Missing => Vec::new(),
                Found::Failed(error) => {
                    host.error = Some(error);
                    before.get(&key).cloned().unwrap_or_default()
                }
            };
            host.addresses.extend(&addresses);
            host.last.insert(key, addresses);
        }
        host
    }

    /// Whether an address from an answer is used. Services on this machine trust whoever can connect to loopback.
    fn may_use(&self, address: &IpAddr, source: NameSource) -> bool {
        let allows_loopback = self.allows_loopback || source == NameSource::Localhost;
        is_host(address) && (allows_loopback || !address.to_canonical().is_loopback())
    }

    /// What the system's file of hosts says, as the system's resolver reads it.
    fn in_file(&self, name: &str) -> Vec<IpAddr> {
        let Ok(name) = Name::from_str_relaxed(name) else { return Vec::new() };
        let find = |family| self.hosts.lookup_static_host(&Question::query(name.clone(), family));
        let found = [RecordType::A, RecordType::AAAA].into_iter().filter_map(find);
        found
            .flat_map(|found| {
                found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The answers for the first name of the search list for which there are records. Where nobody answers for a name, the
    /// next one is not asked for: it may be another host's.
    async fn first(&self, name: &str, types: &[RecordType]) -> Vec<Found> {
        let mut answers = vec![Found::Failed("the name is too long".to_owned()); types.len()];
        for name in self.candidates(name) {
            answers = self.ask(&name, types).await;
            if answers.iter().any(|answer| !matches!(answer, Found::Missing)) {
                break;
            }
        }
        answers
    }

    fn candidates(&self, name: &str) -> Vec<Name> {
        let Ok(name) = Name::from_str_relaxed(name) else { return Vec::new() };
        if name.is_fqdn() {
            return vec![name];
        }
        let mut absolute = name.clone();
        absolute.set_fqdn(true);
        let searched = self.search.iter().filter_map(|suffix| name.clone().append_domain(suffix).ok());
        let has_dots = usize::from(name.num_labels()) > self.dots_min;
        match has_dots || name.is_localhost() {
            true => std::iter::once(absolute).chain(searched).collect(),
            false => searched.chain([absolute]).collect(),
        }
    }

    /// Asks for records of several types at once.
    async fn ask(&self, name: &Name, types: &[RecordType]) -> Vec<Found> {
        let mut asked = JoinSet::new();
        for (at, kind) in types.iter().copied().enumerate() {
            let (resolver, name, questions) =
                (self.resolver.clone(), name.clone(), Arc::clone(&self.questions));
            asked.spawn(async move {
                // Closed by nobody.
                let _permit = questions.acquire_owned().await;
                let found = timeout(QUESTION_MAX, resolver.lookup(name, kind)).await;
                (
                    at,
                    found.map_or_else(
                        |_| Some(Found::Failed("no name server has answered in time".to_owned())),
                        answer,
                    ),
                )
            });
        }
        let mut answers = vec![Some(Found::Failed("the look-up was aborted".to_owned())); types.len()];
        while let Some(done) = asked.join_next().await {
            if let Ok((at, found)) = done {
                answers[at] = found;
            }
        }
        // Where there are records of another type, aliases lead to them, and there are none of this one.
        let is_proven = answers.iter().flatten().any(|found| matches!(found, Found::Records(..)));
        let unproven = || if is_proven { Found::Missing } else { Found::Failed(UNPROVEN.to_owned()) };
        answers.into_iter().map(|found| found.unwrap_or_else(unproven)).collect()
    }
}

/// Who has named a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameSource {
    /// The configuration. What the file of hosts says of the name is the operator's word.
    Configuration,
    /// The configuration, by a name that means this machine (RFC 6761 §6.3). No name server is asked for it.
    Localhost,
    /// An SRV record. It could name `localhost`, or this machine as the file of hosts does.
    Answer,
}

impl NameSource {
    /// Of a name in the configuration.
    fn of(name: &str) -> Self {
        match Name::from_str_relaxed(name) {
            Ok(name) if name.is_localhost() => Self::Localhost,
            _ => Self::Configuration,
        }
    }
}

/// Why an answer without records says nothing.
const UNPROVEN: &str = "an alias has no end, or the answer has neither the name nor an SOA record";

/// Why an answer with addresses says nothing.
const NO_HOSTS: &str = "the answer has only addresses that are not used, such as loopback or link-local ones; if services run on \
                        this machine, name them by address or in /etc/hosts, or set dns.danger_allow_loopback";

/// Whether an address can be that of a service: whoever answers for a name must not lead requests to addresses that have a meaning
/// on the gateway's own network alone, such as the metadata services of clouds (RFC 6890).
fn is_host(address: &IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_link_local()
                || address.is_multicast()
                || address.is_broadcast()
                || address.octets()[0] == 0)
        }
        IpAddr::V6(address) => {
            !(address.is_unicast_link_local() || address.is_multicast() || address.is_unspecified())
        }
    }
}

/// [`KEPT_MAX`] of these addresses, those of the `last` answer first.
fn bounded(addresses: impl Iterator<Item = IpAddr>, last: &[IpAddr]) -> Vec<IpAddr> {
    let last: HashSet<&IpAddr> = last.iter().collect();
    let (mut kept, mut others) = (Vec::new(), Vec::new());
    for address in addresses {
        let part = if last.contains(&address) { &mut kept } else { &mut others };
        if part.len() < KEPT_MAX {
            part.push(address);
        }
    }
    kept.extend(others);
    kept.truncate(KEPT_MAX);
    kept.shrink_to_fit();
    kept
}

/// What an answer says. `None` where it has no records and nothing that shows that there are none: an alias without an end, an
/// answer for another name, or one without the SOA record that it should have (RFC 2308 §2.2).
fn answer(found: Result<hickory_resolver::lookup::Lookup, NetError>) -> Option<Found> {
    match found {
        Ok(found) => {
            let kind = found.query().query_type();
            let ttl = found.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
            let records = found.answers().iter().filter(|record| record.record_type() == kind);
            let records: Vec<RData> = records.map(|record| record.data.clone()).collect();
            (!records.is_empty()).then(|| Found::Records(records, Duration::from_secs(ttl.into())))
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => match (&none.soa, &none.ns) {
            (Some(_), _) => Some(Found::Missing),
            (None, Some(_)) => Some(Found::Failed("the name server refers to others".to_owned())),
            (None, None) => (none.response_code == ResponseCode::NXDomain).then_some(Found::Missing),
        },
        Err(error) => Some(Found::Failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn addresses_that_are_no_hosts_are_not_used() {
        let is_used = |text: &str| is_host(&text.parse().unwrap());
        for text in ["169.254.169.254", "::ffff:169.254.169.254", "224.0.0.1", "255.255.255.255", "0.0.0.0"] {
            assert!(!is_used(text), "{text}");
        }
        for text in ["fe80::1", "ff02::1", "::", "0.1.2.3"] {
            assert!(!is_used(text), "{text}");
        }
        for text in ["10.0.0.1", "127.0.0.1", "192.0.2.1", "::1", "fd00::1", "2001:db8::1"] {
            assert!(is_used(text), "{text}");
        }
    }

    #[test]
    fn of_a_large_answer_a_part_is_kept_and_known_addresses_first() {
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        let last: Vec<IpAddr> = (9_990..10_000).map(address).collect();
        let kept = bounded((0..10_000).map(address), &last);
        assert_eq!(kept.len(), KEPT_MAX);
        assert!(kept.capacity() < 2 * KEPT_MAX);
        assert_eq!(kept[..10], last);
        assert_eq!(kept[10..12], [address(0), address(1)]);
        assert_eq!(bounded((0..3).map(address), &[]), [0, 1, 2].map(address));
    }
}

//! Warnings about valid configurations that probably do not do what their author wants. A warning is given only if the
//! setting certainly has no effect, or another one than written.

use std::collections::{HashMap, HashSet};

use cardea_gateway::{
    model::RouteThrottles,
    routing::{HeaderMatch, HostPattern, PathMatch},
};
use cardea_identity::{Alternative, IssuerConfig, KeySource};
use cardea_upstream::{Address, Target};

use super::{
    model::{Auth, Config, Listener, Located, Route},
    problem::Problems,
};

/// The port of HTTP over TLS.
const HTTPS: u16 = 443;

/// Adds the warnings about a configuration.
pub(super) fn lint(config: &Config, problems: &mut Problems) {
    unused(config, problems);
    unused_throttles(config, problems);
    subjects_without_issuer(config, problems);
    clear_text(config, problems);
    redirecting_listeners(config, problems);
    tokens_of_our_own(config, problems);
    unreachable(config, problems);
    ambiguous_paths(config, problems);
}

fn requirements(config: &Config) -> impl Iterator<Item = (&Located<Route>, &Alternative)> {
    config.routes.iter().flat_map(|route| {
        let alternatives = match &route.auth {
            Auth::Public => &[],
            Auth::AccessRequirement(alternatives) => alternatives.as_slice(),
        };
        alternatives.iter().map(move |alternative| (route, alternative))
    })
}

/// Services, issuers and client authorities that are never used.
fn unused(config: &Config, problems: &mut Problems) {
    let mirrors = config.routes.iter().filter_map(|route| route.mirror.as_ref()).map(|mirror| mirror.index);
    let destinations = config.routes.iter().flat_map(|route| route.destination.services());
    let services: HashSet<usize> = destinations.chain(mirrors).collect();
    for (_, service) in config.services.iter().enumerate().filter(|(index, _)| !services.contains(index)) {
        problems.warn(
            service.at,
            format!("no route leads to the service {:?}", service.config.name),
            format!("add a route with service = {:?}, or remove the service", service.config.name),
        );
    }
    let issuers: HashSet<&str> = requirements(config).map(|(_, one)| one.issuer.as_str()).collect();
    for issuer in config.issuers.iter().filter(|issuer| !issuers.contains(issuer.name.as_str())) {
        problems.warn(
            issuer.at,
            format!("no route asks for tokens of the issuer {:?}", issuer.name),
            format!("name it in the auth of a route, {{ issuer = {:?} }}, or remove it", issuer.name),
        );
    }
    let tls = config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let authorities: HashSet<&str> = tls
        .flat_map(|tls| &tls.certificates)
        .flat_map(|certificate| &certificate.client_authorities)
        .map(String::as_str)
        .collect();
    for authority in &config.client_authorities {
        if !authorities.contains(authority.name.as_str()) {
            problems.warn(
                authority.at,
                format!("no listener asks for certificates of the client authority {:?}", authority.name),
                "name it in client_authorities of [listener.tls] or of a certificate, or remove it",
            );
        }
    }
}

/// Throttles that count no requests.
fn unused_throttles(config: &Config, problems: &mut Problems) {
    let named: HashSet<&String> = config.services.iter().flat_map(|service| &service.throttles).collect();
    let of_routes = config.routes.iter().flat_map(|route| {
        let RouteThrottles { before_identification, after_authorization } = &route.throttles;
        before_identification.iter().chain(after_authorization)
    });
    let counting: HashSet<&usize> = of_routes.collect();
    for (index, throttle) in config.throttles.iter().enumerate() {
        if !throttle.all_routes && !counting.contains(&index) && !named.contains(&throttle.name) {
            problems.warn(
                throttle.at,
                format!("the throttle {:?} counts no requests", throttle.name),
                "write all_routes = true, or name it in throttles of a route or a service",
            );
        }
    }
}

/// Throttles by what issuers call their callers, which may be the same for two of them.
fn subjects_without_issuer(config: &Config, problems: &mut Problems) {
    if config.issuers.len() < 2 {
        return;
    }
    for throttle in &config.throttles {
        let reads =
            |names: &[&str]| throttle.written_key.iter().find(|one| names.contains(&one.text.as_str()));
        if let Some(subject) = reads(&["token.sub", "token.client_id"])
            && reads(&["token.iss", "token.issuer_name"]).is_none()
        {
            problems.warn(
                subject.at,
                format!(
                    "callers of different issuers share a limit where they have the same {:?}",
                    subject.text
                ),
                "add \"token.iss\" to the key",
            );
        }
    }
}

/// Requests in clear text to the port where TLS is spoken.
fn clear_text(config: &Config, problems: &mut Problems) {
    for service in config.services.iter().filter(|service| service.tls.is_none()) {
        let port = |target: &Target| match target {
            Target::Address(Address::Tcp(address)) => Some(address.port()),
            Target::Address(Address::Unix(_)) => None,
            Target::Name(name) => name.port(),
        };
        if let Some(endpoint) = service.endpoints.iter().find(|one| port(&one.target) == Some(HTTPS)) {
            problems.warn(
                service.at,
                format!(
                    "requests travel in clear text to {}, where TLS is usually spoken: the service {:?} has no tls",
                    endpoint.target, service.config.name
                ),
                "add tls = {} to the service",
            );
        }
    }
}

fn redirecting_listeners(config: &Config, problems: &mut Problems) {
    let redirects = |listener: &Located<Listener>| listener.redirect_to_https.is_some();
    if let (Some(first), false) = (config.listeners.first(), config.routes.is_empty())
        && config.listeners.iter().all(redirects)
    {
        problems.warn(
            first.at,
            "every listener redirects to https, so that no route is ever used",
            "add a listener with [listener.tls]",
        );
    }
}

/// Requirements that no token of the built-in authorization server can meet.
fn tokens_of_our_own(config: &Config, problems: &mut Problems) {
    let Some(server) = config.authorization_server.as_ref().map(|server| &server.settings) else { return };
    let local = |name: &str| -> Option<&IssuerConfig> {
        let is_local = |issuer: &IssuerConfig| matches!(issuer.keys, KeySource::Local(_));
        config.issuers.iter().map(|issuer| &issuer.value).find(|one| is_local(one) && one.name == name)
    };
    let is_issued =
        |audience: &String| *audience == server.default_audience || server.resources.contains(audience);
    for (route, alternative) in requirements(config) {
        let Some(issuer) = local(&alternative.issuer) else { continue };
        // Without a list of scopes, clients can be given any.
        let unknown = |scope: &&String| !server.scopes.is_empty() && !server.scopes.contains(scope);
        for scope in alternative.scopes.iter().filter(unknown) {
            problems.warn(
                route.at,
                format!(
                    "the route {:?} asks for the scope {scope:?}, which the authorization server gives to no client",
                    route.name
                ),
                "add it to authorization_server.scopes, or correct it here",
            );
        }
        let audiences = match alternative.audiences.as_slice() {
            [] => issuer.audiences.get(..1).unwrap_or_default(),
            written => written,
        };
        if !audiences.iter().any(is_issued) {
            problems.warn(
                route.at,
                format!(
                    "the route {:?} asks for an audience that the authorization server issues no token for",
                    route.name
                ),
                format!(
                    "add {:?} to authorization_server.resources, or correct the audience",
                    audiences.first().map_or("", String::as_str)
                ),
            );
        }
    }
}

/// Routes whose requests are all taken by preferred routes. A preferred route is narrower, so it takes several: a
/// `path_prefix` is covered by its own path, the path with a final slash, and a pattern for everything below.
fn unreachable(config: &Config, problems: &mut Problems) {
    // By the path, or by the part before `/{*…}`, because there may be ten thousand routes.
    let mut exact: HashMap<&str, Vec<&Located<Route>>> = HashMap::new();
    let mut below: HashMap<&str, Vec<&Located<Route>>> = HashMap::new();
    for route in &config.routes {
        match &route.matches.path {
            PathMatch::Exact(path) => exact.entry(path).or_default().push(route),
            PathMatch::Pattern(pattern) => {
                if let Some((before, _)) = pattern.split_once("/{*") {
                    below.entry(before).or_default().push(route);
                }
            }
            PathMatch::Prefix(_) => {}
        }
    }
    for route in &config.routes {
        let PathMatch::Prefix(prefix) = &route.matches.path else { continue };
        let start = prefix.trim_end_matches('/');
        let slash = format!("{start}/");
        let all = [exact.get(prefix.as_str()), exact.get(slash.as_str()), below.get(start)];
        let [Some(same), Some(slash), Some(below)] = all else { continue };
        let taken = |host: Option<&HostPattern>, candidates: &[&Located<Route>]| -> Option<String> {
            let taker = candidates.iter().find(|other| {
                let hosts =
                    host.map_or(other.matches.hosts.is_empty(), |host| other.matches.hosts.contains(host));
                hosts && takes_all_of(other, route)
            })?;
            Some(format!("{:?}", taker.name))
        };
        let takers = |host: Option<&HostPattern>| -> Option<[String; 3]> {
            Some([taken(host, same)?, taken(host, slash)?, taken(host, below)?])
        };
        let found = match route.matches.hosts.as_slice() {
            [] => takers(None),
            [first, rest @ ..] if rest.iter().all(|host| takers(Some(host)).is_some()) => takers(Some(first)),
            _ => None,
        };
        if let Some(takers) = found {
            let mut names = takers.to_vec();
            names.dedup();
            problems.warn(
                route.at,
                format!("no request reaches the route {:?}: preferred ones take them all", route.name),
                format!("remove it, or one of {}", names.join(", ")),
            );
        }
    }
}

/// Routes that allow ambiguous slashes or backslashes while their rules read the path. Path parameters are allowed only
/// on purpose, for services that keep them.
fn ambiguous_paths(config: &Config, problems: &mut Problems) {
    let reads_path = |route: &Route| {
        config.environment.reads_path || route.rules.reads_path || route.rules.when_reads_path
    };
    for route in config.routes.iter().filter(|route| reads_path(route)) {
        let allow = &route.allow;
        let spellings = [(allow.slash, "%2F"), (allow.encoded_backslash, "%5C"), (allow.backslash, "\\")];
        let spellings = spellings.into_iter().filter(|(is_allowed, _)| *is_allowed);
        let spellings: Vec<&str> = spellings.map(|(_, spelling)| spelling).collect();
        if spellings.is_empty() {
            continue;
        }
        problems.warn(
            route.at,
            format!(
                "the route {:?} lets {} pass in paths, and a policy or a condition reads the path: a service that \
                 reads it as a slash serves another path than the one that was judged",
                route.name,
                spellings.join(", ")
            ),
            "remove it from allow_encoded, or give the paths that need it a route whose rules do not read them",
        );
    }
}

/// Whether a route has no condition but its path that the other one does not have too.
fn takes_all_of(route: &Route, other: &Route) -> bool {
    let methods = route.matches.methods.is_empty()
        || (!other.matches.methods.is_empty()
            && other.matches.methods.iter().all(|method| route.matches.methods.contains(method)));
    let headers = route.matches.headers.iter().all(|(name, wanted)| {
        other
            .matches
            .headers
            .iter()
            .any(|(field, value)| name == field && (wanted == value || *wanted == HeaderMatch::Present))
    });
    let listeners = route.matches.listeners.is_empty()
        || (!other.matches.listeners.is_empty()
            && other.matches.listeners.iter().all(|name| route.matches.listeners.contains(name)));
    methods && headers && listeners && !route.matches.condition
}

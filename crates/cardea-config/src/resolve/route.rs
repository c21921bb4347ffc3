//! Routes.

use std::collections::{BTreeMap, HashMap, hash_map};

use cardea_env::Condition;
use cardea_gateway::{
    exchange::Exchange,
    model::{AllowEncoded, Rewrite, RouteRules, RouteSettings, RouteThrottles, Timeouts},
    routing::{HeaderMatch, HostPattern, PathMatch, RouteMatch},
};
use cardea_identity::Alternative;

use super::{
    super::{
        document::Cursor,
        model::{Auth, Destination, Located, Route},
        raw::{
            OneOrMany, RawAccessRequirement, RawAttributeEdits, RawAuth, RawHeaderCondition, RawPolicyRule,
            RawRoute,
        },
        sections::EncodedPathByte,
        text::{display_duration, is_token},
    },
    Names, Resolver,
    compile::{Is, KNOWN_AT_THE_END, KNOWN_BEFORE_ROUTE, is_path, is_time},
    destination::WrittenDestination,
    path::{check_path, check_pattern},
    request_timeout,
    split::split_throttles,
    throttle::{throttles_of, throttles_read_path},
};

/// The conditions of a route in a form that is equal for two routes with the same conditions.
type MatchKey<'r> =
    (Option<&'r HostPattern>, &'r PathMatch, &'r str, &'r [(String, HeaderMatch)], bool, &'r str);

impl Resolver<'_> {
    pub(super) fn routes(
        &mut self,
        raw: Vec<RawRoute>,
        names: &Names<'_>,
        at: Cursor<'_>,
    ) -> Vec<Located<Route>> {
        let mut routes: Vec<Located<Route>> = Vec::with_capacity(raw.len());
        for (index, raw) in raw.into_iter().enumerate() {
            let at = at.index(index);
            let before = self.problems.reported();
            let (value, is_resolved) = self.route(raw, names, at);
            let mut route = self.placed(value, before, at);
            route.is_sound &= is_resolved;
            routes.push(route);
        }
        self.unique_matches(&routes);
        routes
    }

    /// Reports two routes with the same conditions, neither of which has precedence.
    fn unique_matches(&mut self, routes: &[Located<Route>]) {
        let mut seen: HashMap<MatchKey<'_>, usize> = HashMap::new();
        let any = [String::new()];
        for (index, route) in routes.iter().enumerate().filter(|(_, route)| route.is_sound) {
            let RouteMatch { hosts, path, methods, headers, listeners, condition } = &route.matches;
            let hosts = if hosts.is_empty() { vec![None] } else { hosts.iter().map(Some).collect() };
            let methods = if methods.is_empty() { &any[..] } else { methods };
            let listeners = if listeners.is_empty() { &any[..] } else { listeners };
            let mut same = None;
            for host in hosts {
                for (method, listener) in
                    methods.iter().flat_map(|method| listeners.iter().map(move |listener| (method, listener)))
                {
                    let key =
                        (host, path, method.as_str(), headers.as_slice(), *condition, listener.as_str());
                    match seen.entry(key) {
                        hash_map::Entry::Vacant(vacant) => {
                            vacant.insert(index);
                        }
                        hash_map::Entry::Occupied(first) => same = Some(*first.get()),
                    }
                }
            }
            if let Some(first) = same.and_then(|first| routes.get(first))
                && first.at != route.at
            {
                let position = self.sources.position(first.at);
                self.problems.add(
                    route.at,
                    format!(
                        "the route {:?} is for the same requests as {:?} at {position}",
                        route.name, first.name
                    ),
                    "let them differ in host, path, method, header, listener, or in whether they have a condition",
                );
            }
        }
    }

    /// A route, and whether its references are known.
    fn route(&mut self, raw: RawRoute, names: &Names<'_>, at: Cursor<'_>) -> (Route, bool) {
        let hosts = self.host_patterns(raw.hosts, at.key("hosts"));
        let mut listeners = raw.listeners.unwrap_or_default();
        let known = names.listeners.iter().map(|listener| listener.name.as_str());
        self.known_names("listener", &listeners, known, at.key("listeners"));
        self.no_repetition(&listeners, at.key("listeners"));
        listeners.sort();
        listeners.dedup();
        let (path, parameters) = self.path_match(raw.path, raw.path_prefix, raw.path_pattern, at);
        let methods = self.methods(raw.methods, at.key("methods"));
        let headers = self.header_conditions(raw.headers, at.key("headers"));
        let auth = self.auth(raw.auth, names, at.key("auth"));
        let client_certificate = raw.client_certificate.map(|raw| {
            self.client_certificate(raw, &hosts, names.client_authorities, at.key("client_certificate"))
        });

        if raw.strip_prefix && !matches!(path, PathMatch::Prefix(_)) && !at.lost_any(&["path_prefix"]) {
            self.error(
                at.key("strip_prefix"),
                "strip_prefix needs a path_prefix that it could take away",
                "use path_prefix, or rewrite_path",
            );
        }
        if raw.strip_prefix && raw.rewrite_path.is_some() {
            self.error(
                at.key("rewrite_path"),
                "a path is stripped or rewritten, not both",
                "keep one of them",
            );
        }
        let rewrite = match (raw.rewrite_path, &path) {
            (Some(written), _) => {
                let known = (!at.lost_any(&["path_pattern"])).then_some(parameters.as_slice());
                Rewrite::Path(self.rewrite_path(&written, known, at.key("rewrite_path")))
            }
            (None, PathMatch::Prefix(prefix)) if raw.strip_prefix => Rewrite::StripPrefix(prefix.clone()),
            (None, _) => Rewrite::None,
        };

        let mut timeouts = names.general.exchanges.clone();
        let has_own_timeout = raw.timeouts.request.is_some();
        raw.timeouts.apply(&mut timeouts);
        let written = WrittenDestination {
            service: raw.service,
            split: raw.split,
            split_key: raw.split_key,
            redirect: raw.redirect,
            respond: raw.respond,
            builtin: raw.builtin,
        };
        let mut destination = self.destination(written, &raw.name, names, at);
        if has_own_timeout {
            let services = destination.iter().flat_map(Destination::services);
            self.leaves_time_to_connect(services, &timeouts, names, at);
        }
        let mirror = raw.mirror.map(|raw| self.mirror(raw, destination.as_ref(), names, at.key("mirror")));
        let request_headers =
            self.header_rules(raw.request_headers, names.identity_headers, true, at.key("request_headers"));
        let response_headers = self.header_rules(
            raw.response_headers,
            names.identity_headers,
            false,
            at.key("response_headers"),
        );
        let forward_authorization =
            raw.forward_authorization.unwrap_or(auth == Auth::Public || names.forwards_authorization);
        let throttles =
            self.counting_throttles(raw.throttles, destination.as_mut(), names, at.key("throttles"));
        let condition = raw.when.is_some();
        let mut rules = self.route_rules(raw.when, raw.policy, raw.attributes, at);
        rules.reads_path |= self.headers_read_path(request_headers.rules())
            || self.headers_read_path(response_headers.rules())
            || throttles_read_path(names.throttles, throttles.places())
            || destination.as_ref().is_some_and(|destination| self.split_reads_path(destination, names))
            || (names.general.admission.priority_reads_path && raw.admission.priority.is_none());
        let is_resolved = destination.is_some() && mirror != Some(None) && self.is_resolved(&auth, names);
        let settings = RouteSettings {
            early_data: raw.early_data,
            timeouts,
            body_bytes_max: raw.body_bytes_max.unwrap_or(names.general.body_bytes_max),
            allow: allow_encoded(&raw.allow_encoded),
            rewrite,
            forward_authorization,
            request_headers,
            response_headers,
            rules,
            throttles,
        };
        let route = Route {
            name: raw.name,
            matches: RouteMatch { hosts, path, methods, headers, listeners, condition },
            auth,
            client_certificate,
            destination: destination.unwrap_or_else(Destination::unresolved),
            mirror: mirror.flatten(),
            opens: raw.opens,
            admission: self.route_admission(&raw.admission, names.general, at.key("admission")),
            settings,
        };
        (route, is_resolved)
    }

    /// Reports services whose connect timeout is not below the timeout of a request.
    fn leaves_time_to_connect(
        &mut self,
        services: impl Iterator<Item = usize>,
        timeouts: &Timeouts,
        names: &Names<'_>,
        at: Cursor<'_>,
    ) {
        let request = request_timeout(timeouts);
        let services = services.filter_map(|index| names.services.get(index));
        for service in services.filter(|service| service.is_sound && service.connect_timeout >= request) {
            self.error(
                at.key("timeouts").key("request"),
                format!(
                    "request ({}) is not above the connect timeout ({}) of the service {:?}",
                    display_duration(request),
                    display_duration(service.connect_timeout),
                    service.config.name
                ),
                "raise it, or lower the service's connect_timeout",
            );
        }
    }

    /// The throttles that count the requests of a route: its own, those of its service and those of all routes.
    fn counting_throttles(
        &mut self,
        raw: Vec<String>,
        destination: Option<&mut Destination>,
        names: &Names<'_>,
        at: Cursor<'_>,
    ) -> RouteThrottles {
        let own = self.throttle_names(raw, names.throttles, at);
        let service = match destination {
            Some(Destination::Service { index }) => names.services.get(*index),
            Some(Destination::Split { shares, .. }) => {
                return split_throttles(names.throttles, &own, shares, names);
            }
            _ => None,
        };
        let named = service.into_iter().flat_map(|service| &service.throttles).chain(&own);
        throttles_of(names.throttles, named)
    }

    /// The rules of a route, and what they read.
    fn route_rules(
        &mut self,
        when: Option<String>,
        policy: Vec<RawPolicyRule>,
        attributes: OneOrMany<RawAttributeEdits>,
        at: Cursor<'_>,
    ) -> RouteRules {
        let when = self.condition(when, at.key("when"));
        if let Some(when) = &when {
            self.known_before_route(when, at.key("when"));
        }
        let policy = self.policy(policy, at.key("policy"));
        let attributes = self.attribute_rules(attributes, at.key("attributes"));
        let when_reads = |is: Is| when.as_ref().is_some_and(|when| self.condition_reads(when, is));
        let decision_reads = |is: Is| {
            self.policy_reads(policy.as_ref(), is)
                || attributes.iter().any(|rule| self.attribute_rule_reads(rule, is))
        };
        let (when_reads_path, when_reads_time) = (when_reads(is_path), when_reads(is_time));
        let (reads_path, reads_time) = (decision_reads(is_path), decision_reads(is_time));
        self.time_chooses |= when_reads_time;
        RouteRules { when, attributes: attributes.into(), policy, when_reads_path, reads_path, reads_time }
    }

    /// Reports a condition that reads an attribute which is not known yet where a route is chosen.
    fn known_before_route(&mut self, when: &Condition<Exchange>, at: Cursor<'_>) {
        // An attribute that could not be compiled was reported already.
        let is_late = |source: &String| match self.attributes.get(source) {
            Some(has_source) => !has_source,
            None => {
                KNOWN_AT_THE_END.contains(&source.as_str())
                    || !KNOWN_BEFORE_ROUTE.iter().any(|known| source.starts_with(known))
            }
        };
        let late = when.references().find_map(|(name, reference)| {
            Some((name, self.names.sources(reference).into_iter().find(is_late)?))
        });
        if let Some((name, source)) = late {
            let what = if name.starts_with("custom.") && source != name {
                format!("\"{name}\" reads \"{source}\", which")
            } else {
                format!("\"{name}\"")
            };
            self.error(
                at,
                format!("{what} is not known yet where a route is chosen"),
                "read request, source, destination, connection or gateway, or attributes made of these; what the caller may is for policy",
            );
        }
    }

    /// The host patterns of a route.
    fn host_patterns(&mut self, raw: Vec<String>, at: Cursor<'_>) -> Vec<HostPattern> {
        let mut patterns = Vec::with_capacity(raw.len());
        for host in self.hosts(raw, at) {
            match host.parse() {
                Ok(pattern) => patterns.push(pattern),
                // An invalid host is never dropped silently: a route without hosts matches every host.
                Err(error) => {
                    self.error(
                        at,
                        format!("host \"{host}\": {error}"),
                        "name a host, or \"*.\" and a domain",
                    );
                }
            }
        }
        patterns
    }

    /// Whether the issuers that a route refers to are known.
    fn is_resolved(&self, auth: &Auth, names: &Names<'_>) -> bool {
        match auth {
            Auth::Public => true,
            Auth::AccessRequirement(alternatives) => alternatives
                .iter()
                .all(|one| names.issuers.get(one.issuer.as_str()).is_some_and(|issuer| issuer.is_sound)),
        }
    }

    fn path_match(
        &mut self,
        exact: Option<String>,
        prefix: Option<String>,
        pattern: Option<String>,
        at: Cursor<'_>,
    ) -> (PathMatch, Vec<String>) {
        self.only_one(
            &[
                ("path", exact.is_some()),
                ("path_prefix", prefix.is_some()),
                ("path_pattern", pattern.is_some()),
            ],
            at,
            "a route has one of path, path_prefix and path_pattern",
            "keep one, and write further routes for the others",
        );
        let wrong = |this: &mut Self, key: &str, written: &str, remedy: String| {
            let at = at.key(key);
            this.error(
                at,
                format!("{:?} is not a path that a request could have", at.shown(written)),
                remedy,
            );
        };
        for (key, written) in [("path", &exact), ("path_prefix", &prefix)] {
            if let Some(written) = written.as_ref().filter(|written| written.contains('*')) {
                let at = at.key(key);
                self.problems.warn(
                    at.location(),
                    format!("{:?} has a *, which stands for itself alone", at.shown(written)),
                    "a path_prefix takes everything below it without one; for one segment write path_pattern = \"/users/{id}\"",
                );
            }
        }
        match (exact, prefix, pattern) {
            (Some(path), ..) => {
                if let Err(remedy) = check_path(&path) {
                    wrong(self, "path", &path, remedy);
                }
                (PathMatch::Exact(path), Vec::new())
            }
            (None, Some(prefix), _) => {
                if let Err(remedy) = check_path(&prefix) {
                    wrong(self, "path_prefix", &prefix, remedy);
                }
                // Prefixes end at segments, so a final slash has no meaning.
                let prefix = match prefix.strip_suffix('/') {
                    Some(shorter) if !shorter.is_empty() => shorter.to_owned(),
                    _ => prefix,
                };
                (PathMatch::Prefix(prefix), Vec::new())
            }
            (None, None, Some(pattern)) => {
                let parameters = check_pattern(&pattern).unwrap_or_else(|remedy| {
                    wrong(self, "path_pattern", &pattern, remedy);
                    Default::default()
                });
                (PathMatch::Pattern(pattern), parameters.into_iter().collect())
            }
            (None, None, None) => (PathMatch::Prefix("/".to_owned()), Vec::new()),
        }
    }

    fn methods(&mut self, raw: Vec<String>, at: Cursor<'_>) -> Vec<String> {
        for (index, method) in raw.iter().enumerate() {
            let at = at.index(index);
            if !is_token(method) {
                self.error(at, format!("{:?} is not a method", at.shown(method)), "write it as in \"GET\"");
            } else if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
                let remedy =
                    format!("write {:?}: methods are case-sensitive (RFC 9110 §9.1)", method.to_uppercase());
                self.error(at, format!("{:?} is in lower case", at.shown(method)), at.remedy(remedy));
            } else if method == "CONNECT" {
                self.error(at, "CONNECT asks for a forward proxy, which this is not", "remove it");
            }
        }
        let mut methods = raw;
        methods.sort();
        methods.dedup();
        methods
    }

    fn header_conditions(
        &mut self,
        raw: BTreeMap<String, RawHeaderCondition>,
        at: Cursor<'_>,
    ) -> Vec<(String, HeaderMatch)> {
        let mut conditions: BTreeMap<String, HeaderMatch> = BTreeMap::new();
        for (name, condition) in raw {
            let entry = at.key(&name);
            let lower = name.to_ascii_lowercase();
            if !is_token(&lower) {
                self.problems.add(
                    entry.key_location(),
                    format!("{name:?} is not a field name"),
                    "use letters, digits and - (RFC 9110 §5.1)",
                );
            }
            let condition = match condition {
                RawHeaderCondition::Present(true) => HeaderMatch::Present,
                RawHeaderCondition::Present(false) => {
                    self.error(
                        entry,
                        "a condition cannot ask for a field to be absent",
                        "write true for a field that must be there, or its value; the route without the condition takes the rest",
                    );
                    HeaderMatch::Present
                }
                RawHeaderCondition::Exact(value) => HeaderMatch::Exact(value),
            };
            if conditions.insert(lower, condition).is_some() {
                self.problems.add(
                    entry.key_location(),
                    format!("{name:?} is there twice"),
                    "keep one of them",
                );
            }
        }
        conditions.into_iter().collect()
    }

    fn auth(&mut self, raw: RawAuth, names: &Names<'_>, at: Cursor<'_>) -> Auth {
        match raw {
            RawAuth::Public(_) => Auth::Public,
            RawAuth::AccessRequirement(requirement) => {
                Auth::AccessRequirement(vec![self.requirement(requirement, names, at)])
            }
            RawAuth::Alternatives(requirements) => {
                if requirements.is_empty() {
                    self.error(
                        at,
                        "nobody could make this request: auth has no alternative",
                        "add one: { issuer = \"…\" }",
                    );
                }
                let requirements = requirements.into_iter().enumerate();
                Auth::AccessRequirement(
                    requirements
                        .map(|(index, requirement)| self.requirement(requirement, names, at.index(index)))
                        .collect(),
                )
            }
        }
    }

    fn requirement(&mut self, raw: RawAccessRequirement, names: &Names<'_>, at: Cursor<'_>) -> Alternative {
        match names.issuers.get(raw.issuer.as_str()) {
            Some(issuer) if !issuer.is_sound => {}
            Some(issuer) => {
                for (index, audience) in raw.audiences.iter().enumerate() {
                    if !issuer.audiences.contains(audience) {
                        let at = at.key("audiences").index(index);
                        self.error(
                            at,
                            format!(
                                "{:?} is not among the audiences of the issuer {:?}",
                                at.shown(audience),
                                raw.issuer
                            ),
                            "add it to the issuer's audiences; as it is, no token could ever fit",
                        );
                    }
                }
            }
            None => self.unknown("issuer", &raw.issuer, names.issuers.keys().copied(), at.key("issuer")),
        }
        for (index, scope) in raw.scopes.iter().enumerate() {
            self.scope(scope, at.key("scopes").index(index));
        }
        for (index, role) in raw.roles.iter().enumerate() {
            if role.trim().is_empty() {
                self.error(at.key("roles").index(index), "a role is empty", "write its name");
            }
        }
        Alternative { issuer: raw.issuer, audiences: raw.audiences, scopes: raw.scopes, roles: raw.roles }
    }
}

fn allow_encoded(written: &[EncodedPathByte]) -> AllowEncoded {
    AllowEncoded {
        slash: written.contains(&EncodedPathByte::Slash),
        encoded_backslash: written.contains(&EncodedPathByte::EncodedBackslash),
        backslash: written.contains(&EncodedPathByte::Backslash),
        parameters: written.contains(&EncodedPathByte::Parameters),
    }
}

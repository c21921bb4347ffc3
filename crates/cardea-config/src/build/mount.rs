//! The endpoints of the built-in authorization server, which exist without routes.

use std::{collections::HashSet, sync::Arc};

use cardea_gateway::{
    model::{Destination, Route, RouteRules, RouteSettings},
    routing::{HostPattern, PathMatch, RouteMatch},
};
use cardea_issuer::Endpoints;

use super::{
    super::{
        model::BuiltIn,
        resolve::{throttles_of, throttles_read_path},
    },
    Builder,
};

impl Builder<'_> {
    /// The endpoints of the built-in authorization server as routes on the host of its issuer.
    pub(super) fn mount_issuer(&mut self, routes: &mut Vec<(RouteMatch, Arc<Route>)>) {
        // Derived from the configuration, so that `check` and `explain`, which open no registry, have them too.
        let Some(config) = &self.config.authorization_server else { return };
        if !config.mount {
            return;
        }
        let host = config.settings.issuer.host_str().unwrap_or_default();
        let hosts: Vec<HostPattern> = match host.parse() {
            Ok(host) => vec![host],
            Err(error) => {
                self.problem(config.at, format!("issuer host \"{host}\": {error}"), "name a host");
                return;
            }
        };
        let taken: HashSet<(Vec<HostPattern>, String)> = routes
            .iter()
            .filter_map(|(matches, _)| match &matches.path {
                PathMatch::Exact(path) => Some((matches.hosts.clone(), path.clone())),
                _ => None,
            })
            .collect();
        let endpoints = Endpoints::of_issuer(&config.settings.issuer);
        let mounted = [
            ("token", &endpoints.token, BuiltIn::Token),
            ("jwks", &endpoints.jwks, BuiltIn::KeySet),
            ("authorize", &endpoints.authorize, BuiltIn::Authorize),
            ("oauth-metadata", &endpoints.oauth_metadata, BuiltIn::OauthMetadata),
            ("openid-configuration", &endpoints.openid_configuration, BuiltIn::OpenidConfiguration),
        ];
        for (name, path, which) in mounted {
            // The configuration's own route for that path takes precedence.
            if taken.contains(&(hosts.clone(), path.clone())) {
                continue;
            }
            let mut matches = RouteMatch::new(PathMatch::Exact(path.clone()));
            matches.hosts.clone_from(&hosts);
            let name = format!("authorization-server-{name}");
            let throttles = throttles_of(&self.config.throttles, [].iter());
            let destination = Destination::BuiltIn(self.foundation.provider.builtin(which));
            let admission = self.mounted_admission(&destination);
            let route = Route {
                requirement: None,
                client_certificate: None,
                destination,
                mirror: None,
                is_bound: false,
                settings: RouteSettings {
                    timeouts: self.config.general.exchanges.clone(),
                    body_bytes_max: 64 * 1024,
                    forward_authorization: true,
                    rules: RouteRules {
                        reads_path: throttles_read_path(&self.config.throttles, throttles.places()),
                        ..RouteRules::default()
                    },
                    throttles,
                    ..RouteSettings::default()
                },
                admission,
                metrics: self.route_metrics(&name),
                name,
            };
            routes.push((matches, Arc::new(route)));
        }
    }
}

//! The client authorities of listeners: the expiry of their revocation lists, and the faults of their files that
//! cause refusals.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use cardea_clock::Wall;
use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{Definition, GaugeDef, Samples},
    },
};
use cardea_tls::{AuthorityFault, ClientAuthority};

use super::certificates::{DAY_SECONDS, Warned, ending};

static LIST_EXPIRY: GaugeDef<2> = GaugeDef::new(
    "cardea_tls_client_crl_expiry_timestamp_seconds",
    "When the first revocation list of a file expires, in Unix time. Then the clients that it covers are refused. Lists that \
     a newer one of the same authority supersedes are not included.",
    ["client_authority", "crl"],
);
static FAULTS: GaugeDef<1> = GaugeDef::new(
    "cardea_tls_client_authority_faults",
    "Faults in a client authority's files that cause clients to be refused: expired or missing revocation lists, and \
     certificates that are not CA certificates.",
    ["client_authority"],
);

/// The metrics of client authorities.
pub(super) static DEFINITIONS: &[Definition] = &[LIST_EXPIRY.definition(), FAULTS.definition()];

/// The authorities that any listener uses, by name.
fn in_use(gateway: &Gateway) -> BTreeMap<String, Arc<ClientAuthority>> {
    let model = gateway.model();
    let tls = model.listeners.values().filter_map(|listener| listener.tls.as_ref());
    let authorities = tls.flat_map(|tls| tls.client_auths()).flat_map(|client_auth| client_auth.authorities);
    authorities.map(|authority| (authority.config().name.clone(), authority)).collect()
}

/// The faults of their files, with the authorities' names.
pub(crate) fn client_authority_faults(gateway: &Gateway) -> Vec<(String, AuthorityFault)> {
    let now = gateway.clock.wall();
    let faults = |(name, authority): (String, Arc<ClientAuthority>)| {
        authority.faults(now).into_iter().map(move |fault| (name.clone(), fault))
    };
    in_use(gateway).into_iter().flat_map(faults).collect()
}

/// Registers the metrics. The gateway holds the registry, so they must not hold the gateway.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    let weak = Arc::downgrade(gateway);
    registry.collect_gauge(&LIST_EXPIRY, move |samples: &mut Samples<'_>| {
        let Some(gateway) = weak.upgrade() else { return };
        for (name, authority) in in_use(&gateway) {
            let mut first: BTreeMap<PathBuf, Wall> = BTreeMap::new();
            for list in authority.revocation_lists() {
                let end = first.entry(list.path).or_insert(Wall::MAX);
                *end = list.next_update.min(*end);
            }
            for (path, end) in first {
                samples.push(&[&name, &path.to_string_lossy()], end.unix_seconds() as f64);
            }
        }
    });
    let weak = Arc::downgrade(gateway);
    registry.collect_gauge(&FAULTS, move |samples: &mut Samples<'_>| {
        let Some(gateway) = weak.upgrade() else { return };
        let now = gateway.clock.wall();
        for (name, authority) in in_use(&gateway) {
            let refusing = authority.faults(now).into_iter().filter(|fault| fault.problem.refuses_clients());
            samples.push(&[&name], refusing.count() as f64);
        }
    });
}

/// What was logged.
#[derive(Default)]
pub(super) struct FaultLog(Mutex<Logged>);

#[derive(Default)]
struct Logged {
    /// The day on which each fault was last logged.
    faults: HashMap<(String, AuthorityFault), i64>,
    ends: Warned,
}

impl FaultLog {
    /// Logs faults and probable mistakes in files once a day, or all of them if `again`. Warns of revocation lists that expire soon.
    pub(super) fn report(&self, gateway: &Gateway, again: bool) {
        let now = gateway.clock.wall();
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let day = now.unix_seconds() / DAY_SECONDS;
        // Faults that were corrected are removed.
        let before = std::mem::take(&mut logged.faults);
        for (name, fault) in client_authority_faults(gateway) {
            let key = (name, fault);
            if again || before.get(&key) != Some(&day) {
                let (name, fault) = &key;
                let (path, problem, remedy) = (fault.path.display(), &fault.problem, fault.problem.remedy());
                if problem.refuses_clients() {
                    tracing::error!(client_authority = %name, %path, %problem, remedy, "clients are refused");
                } else {
                    tracing::warn!(
                        client_authority = %name, %path, %problem, remedy,
                        "a file of a client authority is likely to be wrong"
                    );
                }
            }
            logged.faults.insert(key, day);
        }
        let lists = in_use(gateway).into_values().flat_map(|authority| authority.revocation_lists());
        // Expired lists are faults.
        let lists = lists.filter(|list| list.next_update > now);
        for list in
            ending(lists, |list| (&list.path, list.this_update, list.next_update), &mut logged.ends, now)
        {
            tracing::warn!(
                path = %list.path.display(),
                issuer = %list.issuer,
                next_update_unix_seconds = list.next_update.unix_seconds(),
                "a revocation list expires soon; then the clients that it covers are refused"
            );
        }
    }
}

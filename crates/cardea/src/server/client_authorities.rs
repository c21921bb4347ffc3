//! What concerns the authorities that vouch for clients: until when their revocation lists hold, and what of their files
//! keeps out clients.

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
    "When the first revocation list of a file expires, in Unix time: from then on the clients that it covers are refused. \
     Lists that a newer one of the same authority supersedes do not count.",
    ["client_authority", "crl"],
);
static FAULTS: GaugeDef<1> = GaugeDef::new(
    "cardea_tls_client_authority_faults",
    "Faults of a client authority's files by which clients are refused: expired and missing revocation lists, certificates \
     that are no authority's.",
    ["client_authority"],
);

/// The metrics of client authorities.
pub(super) static DEFINITIONS: &[Definition] = &[LIST_EXPIRY.definition(), FAULTS.definition()];

/// Those that vouch for clients of a listener, by name.
fn in_use(gateway: &Gateway) -> BTreeMap<String, Arc<ClientAuthority>> {
    let model = gateway.model();
    let asked = model.listeners.values().filter_map(|listener| listener.tls.as_ref());
    let authorities = asked.flat_map(|tls| tls.client_auths()).flat_map(|asked| asked.authorities);
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

/// Enters the metrics. The gateway holds the registry, so they must not hold the gateway.
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

/// What was said in the log.
#[derive(Default)]
pub(super) struct Told(Mutex<Said>);

#[derive(Default)]
struct Said {
    /// On which day.
    faults: HashMap<(String, AuthorityFault), i64>,
    ends: Warned,
}

impl Told {
    /// Says what keeps out clients or is likely to be a mistake: once a day, or all of it where it is to be said `again`. Warns of lists that end soon.
    pub(super) fn tell(&self, gateway: &Gateway, again: bool) {
        let now = gateway.clock.wall();
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let day = now.unix_seconds() / DAY_SECONDS;
        // What is put right is forgotten.
        let before = std::mem::take(&mut said.faults);
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
            said.faults.insert(key, day);
        }
        let lists = in_use(gateway).into_values().flat_map(|authority| authority.revocation_lists());
        // Those that have expired are faults.
        let lists = lists.filter(|list| list.next_update > now);
        for list in
            ending(lists, |list| (&list.path, list.this_update, list.next_update), &mut said.ends, now)
        {
            tracing::warn!(
                path = %list.path.display(),
                issuer = %list.issuer,
                next_update_unix_seconds = list.next_update.unix_seconds(),
                "a revocation list expires soon; the clients that it covers are refused then"
            );
        }
    }
}

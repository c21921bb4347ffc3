//! A service whose endpoints change while requests use it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cardea_clock::Mono;

use crate::config::ConfigError;
use crate::endpoint::Override;
use crate::service::{Connections, ServiceState};

/// The state of a service in force. A change of its endpoints replaces the state, and nothing else of the configuration.
///
/// Requests hold the state for as long as they last. If all of them counted their references in one place, its cache line
/// would travel between the processors with each request; so each worker has a handle of its own.
pub struct LiveService<C> {
    /// At least one.
    handles: Box<[ArcSwap<Handle<C>>]>,
}

/// What the requests of one worker count, on cache lines of its own: two, as processors fetch them in pairs.
#[repr(align(128))]
struct Handle<C>(Arc<ServiceState<C>>);

/// The state that a request uses from its first attempt to its last, whatever changes meanwhile.
pub struct ServiceRef<C>(Arc<Handle<C>>);

impl<C> LiveService<C> {
    /// A service with this state.
    #[must_use]
    pub fn new(state: &Arc<ServiceState<C>>) -> Self {
        let handle = |_| ArcSwap::from_pointee(Handle(Arc::clone(state)));
        Self { handles: (0..state.workers()).map(handle).collect() }
    }

    /// The state for a request of `worker`.
    #[must_use]
    pub fn current(&self, worker: usize) -> ServiceRef<C> {
        ServiceRef(self.handles[worker % self.handles.len()].load_full())
    }

    /// The state in force, for everything but requests.
    #[must_use]
    pub fn state(&self) -> Arc<ServiceState<C>> {
        Arc::clone(&self.handles[0].load().0)
    }

    /// Overrides the health of the endpoints that are called so ([`Endpoint::is_called`](crate::Endpoint::is_called)); `None`
    /// ends the override. It applies to all requests that are not at an endpoint yet, and lasts until the endpoint leaves the
    /// service; for a name, it also applies to addresses that the name has later. Calls must not overlap.
    ///
    /// Returns whether an override has changed; `None` if there is no such endpoint.
    ///
    /// # Errors
    /// A configuration that is not valid, which a service in force never has.
    pub fn set_override(
        &self,
        called: &str,
        overridden: Option<Override>,
        now: Mono,
    ) -> Result<Option<bool>, ConfigError> {
        let state = self.state();
        let all = state.endpoints().map(|(_, endpoint)| endpoint);
        let (called, text): (Vec<_>, _) =
            (all.filter(|endpoint| endpoint.is_called(called)).collect(), called);
        if called.is_empty() {
            return Ok(None);
        }
        if called.iter().any(|endpoint| endpoint.has_name(text)) {
            state.override_name(text, overridden);
        }
        let others = called.into_iter().filter(|endpoint| endpoint.overridden() != overridden);
        let changed: Vec<_> = others.collect();
        if changed.is_empty() {
            return Ok(Some(false));
        }
        changed.iter().for_each(|endpoint| endpoint.shared.set_override(overridden));
        let next = ServiceState::reconcile(&state.config(), Some(&state), Connections::Kept)?;
        self.replace(&next, now);
        for endpoint in changed {
            if overridden.is_none() {
                endpoint.shared.health.start_slowly(now);
            }
            tracing::warn!(
                service = state.name(),
                endpoint = endpoint.label(),
                overridden = overridden.map_or("enabled", Override::as_str),
                "endpoint is overridden by the operator"
            );
        }
        Ok(Some(true))
    }

    /// Puts another state in force, which was made of the present one by [`ServiceState::reconcile`], and activates it. Requests
    /// under way go on with the state that they began with. To be called by one at a time.
    pub fn replace(&self, state: &Arc<ServiceState<C>>, now: Mono) {
        let previous = self.state();
        for handle in &self.handles {
            handle.store(Arc::new(Handle(Arc::clone(state))));
        }
        state.activate(Some(&previous), now);
    }
}

impl<C> Clone for ServiceRef<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> Deref for ServiceRef<C> {
    type Target = ServiceState<C>;

    fn deref(&self) -> &ServiceState<C> {
        &self.0.0
    }
}

impl<C> fmt::Debug for LiveService<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveService").field("name", &self.state().name()).finish_non_exhaustive()
    }
}

impl<C> fmt::Debug for ServiceRef<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceRef").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Usage;
    use crate::{
        AttemptedEndpoints, EndpointConfig, EndpointSource, PoolConfig, Query, Resolved, ResolvedNames,
        Selection, ServiceConfig,
    };

    fn config(ports: &[u16]) -> ServiceConfig {
        let endpoint = |port: &u16| EndpointConfig::new(format!("10.0.0.1:{port}").parse().unwrap());
        let pool = PoolConfig { workers: 3, ..PoolConfig::default() };
        ServiceConfig { pool, ..ServiceConfig::new("s", ports.iter().map(endpoint).collect()) }
    }

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    fn chosen(state: &ServiceState<()>, now: Mono) -> Option<String> {
        let selection = Selection { now, ..Selection::default() };
        let (_, endpoint) = state.choose(&selection, &AttemptedEndpoints::new())?;
        Some(endpoint.label().to_string())
    }

    #[test]
    fn a_request_keeps_its_endpoints_and_the_next_one_gets_the_new_ones() {
        let first = ServiceState::<()>::reconcile(&config(&[1]), None, Connections::Kept).unwrap();
        let live = LiveService::new(&first);
        let held = live.current(2);
        let (choice, endpoint) = held.choose(&Selection::default(), &AttemptedEndpoints::new()).unwrap();
        let in_flight = endpoint.begin(2);
        let second = ServiceState::reconcile(&config(&[2]), Some(&live.state()), Connections::Kept).unwrap();
        live.replace(&second, at(1));
        assert_eq!(chosen(&held, at(1)).as_deref(), Some("10.0.0.1:1"));
        held.responded(choice, at(1), 200, None);
        for worker in 0..7 {
            assert_eq!(chosen(&live.current(worker), at(1)).as_deref(), Some("10.0.0.1:2"), "{worker}");
        }
        // What it still has is dropped once it is put back.
        let endpoint = held.endpoint(choice.endpoint).unwrap();
        assert_eq!(endpoint.pool().place(2, Usage::new(Mono::MIN)).put((), at(1)), Some(()));
        drop(in_flight);
        assert_eq!(endpoint.in_flight(), 0);
    }

    #[test]
    fn an_endpoint_that_stays_keeps_its_state() {
        let first = ServiceState::<()>::reconcile(&config(&[1, 2]), None, Connections::Kept).unwrap();
        let live = LiveService::new(&first);
        let place = |state: &ServiceState<()>| {
            state.endpoints().map(|(_, one)| one.pool().place(0, Usage::new(Mono::MIN))).next()
        };
        assert!(place(&live.state()).unwrap().put((), at(1)).is_none());
        let second =
            ServiceState::reconcile(&config(&[3, 1]), Some(&live.state()), Connections::Kept).unwrap();
        live.replace(&second, at(1));
        let idle: Vec<_> = live.state().endpoints().map(|(_, one)| one.pool().stats().idle).collect();
        assert_eq!(idle, [0, 1]);
    }

    #[test]
    fn an_override_holds_for_requests_under_way_and_across_reloads() {
        let first = ServiceState::<()>::reconcile(&config(&[1, 2]), None, Connections::Kept).unwrap();
        let live = LiveService::new(&first);
        let held = live.current(0);
        assert_eq!(live.set_override("10.0.0.1:9", Some(Override::Drained), at(1)), Ok(None));
        assert_eq!(live.set_override("10.0.0.1:1", Some(Override::Drained), at(1)), Ok(Some(true)));
        assert_eq!(live.set_override("10.0.0.1:1", Some(Override::Drained), at(1)), Ok(Some(false)));
        let reload =
            ServiceState::reconcile(&config(&[3, 1, 2]), Some(&live.state()), Connections::Dropped).unwrap();
        for step in 1..200 {
            for state in [&*held, &live.state(), &reload] {
                assert_ne!(chosen(state, at(step)).as_deref(), Some("10.0.0.1:1"));
            }
        }
        assert_eq!(live.set_override("10.0.0.1:2", Some(Override::Disabled), at(200)), Ok(Some(true)));
        // Nothing is left, not even where too few are healthy.
        for state in [&*held, &live.state()] {
            assert_eq!(chosen(state, at(201)), None);
        }
        assert_eq!(live.set_override("10.0.0.1:1", None, at(202)), Ok(Some(true)));
        assert_eq!(chosen(&live.state(), at(202)).as_deref(), Some("10.0.0.1:1"));
        let states: Vec<_> = live.state().endpoints().map(|(_, one)| one.overridden()).collect();
        assert_eq!(states, [None, Some(Override::Disabled)]);
    }

    #[test]
    fn an_override_of_a_name_holds_for_its_later_addresses_and_one_of_an_address_for_itself() {
        let (names, a) = (ResolvedNames::default(), Query::Host("a.test".to_owned()));
        let target = "a.test:80".parse().unwrap();
        let source = EndpointSource { target, region: None, weight: 1, capacity: None };
        let state = |addresses: &[&str], previous: Option<&Arc<ServiceState<()>>>| {
            let resolved = addresses.iter().map(|one| Resolved::of_host(one.parse().unwrap()));
            names.replace(&a, resolved.collect::<Vec<_>>());
            let endpoints = names.expand(std::slice::from_ref(&source));
            ServiceState::reconcile(&ServiceConfig { endpoints, ..config(&[]) }, previous, Connections::Kept)
                .unwrap()
        };
        let overrides = |live: &LiveService<()>| -> Vec<_> {
            live.state().endpoints().map(|(_, one)| (one.label().to_string(), one.overridden())).collect()
        };
        let live = LiveService::new(&state(&["10.0.0.1", "10.0.0.2"], None));
        assert_eq!(live.set_override("10.0.0.1:80", Some(Override::Drained), at(1)), Ok(Some(true)));
        let at_first = [
            ("a.test/10.0.0.1:80".to_owned(), Some(Override::Drained)),
            ("a.test/10.0.0.2:80".to_owned(), None),
        ];
        assert_eq!(overrides(&live), at_first);
        assert_eq!(live.set_override("a.test:80", Some(Override::Drained), at(2)), Ok(Some(true)));
        live.replace(&state(&["10.0.0.2", "10.0.0.3"], Some(&live.state())), at(3));
        let drained = overrides(&live);
        assert_eq!(
            drained.iter().map(|(_, one)| *one).collect::<Vec<_>>(),
            [Some(Override::Drained); 2],
            "{drained:?}"
        );
        assert_eq!(live.set_override("a.test/10.0.0.3:80", None, at(4)), Ok(Some(true)));
        live.replace(&state(&["10.0.0.3", "10.0.0.4"], Some(&live.state())), at(5));
        let mixed: Vec<_> = overrides(&live).into_iter().map(|(_, one)| one).collect();
        assert_eq!(mixed, [None, Some(Override::Drained)]);
        assert_eq!(live.set_override("a.test:80", None, at(6)), Ok(Some(true)));
        live.replace(&state(&["10.0.0.5"], Some(&live.state())), at(7));
        assert_eq!(overrides(&live), [("a.test/10.0.0.5:80".to_owned(), None)]);
    }

    #[test]
    fn a_disabled_endpoint_keeps_no_connection_and_an_enabled_one_does() {
        let first = ServiceState::<()>::reconcile(&config(&[1]), None, Connections::Kept).unwrap();
        let live = LiveService::new(&first);
        let place = |live: &LiveService<()>| {
            live.state()
                .endpoints()
                .map(|(_, one)| one.pool().place(0, Usage::new(Mono::MIN)))
                .next()
                .unwrap()
        };
        let used = place(&live);
        assert_eq!(used.put((), at(1)), None);
        assert_eq!(live.set_override("10.0.0.1:1", Some(Override::Disabled), at(1)), Ok(Some(true)));
        assert_eq!(used.put((), at(1)), Some(()), "what is still in use is dropped");
        assert_eq!(live.state().stats().endpoints[0].pool.idle, 0);
        assert_eq!(live.set_override("10.0.0.1:1", None, at(2)), Ok(Some(true)));
        assert_eq!(place(&live).put((), at(2)), None);
    }

    #[test]
    fn a_service_may_have_no_endpoints_for_a_while() {
        let none = ServiceState::<()>::reconcile(&config(&[]), None, Connections::Kept).unwrap();
        let live = LiveService::new(&none);
        assert_eq!(chosen(&live.state(), at(1)), None);
        let some = ServiceState::reconcile(&config(&[1]), Some(&live.state()), Connections::Kept).unwrap();
        live.replace(&some, at(1));
        assert_eq!(chosen(&live.state(), at(1)).as_deref(), Some("10.0.0.1:1"));
    }
}

//! The results of reloads: for metrics, `cardea status` and the log.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cardea_clock::Wall;
use cardea_gateway::record::{
    Registry,
    metrics::{CounterDef, Definition, GaugeDef, Samples},
};

static RELOADS: CounterDef<1> =
    CounterDef::new("cardea_config_reloads_total", "Reloads, by result: `success` or `failure`.", ["result"]);
static GENERATION: GaugeDef<0> = GaugeDef::new(
    "cardea_config_generation",
    "The number of configurations since the process started, including the current one.",
    [],
);
static SUCCESSFUL: GaugeDef<0> = GaugeDef::new(
    "cardea_config_last_reload_successful",
    "1 if the last reload succeeded or there was none, 0 if it failed and the previous configuration stays in effect.",
    [],
);
static LOADED_AT: GaugeDef<0> = GaugeDef::new(
    "cardea_config_last_reload_success_timestamp_seconds",
    "When the current configuration was loaded, in Unix time.",
    [],
);
static FAILED_AT: GaugeDef<0> = GaugeDef::new(
    "cardea_config_last_reload_failure_timestamp_seconds",
    "When a reload last failed, in Unix time; 0 if none did.",
    [],
);
static DURATION: GaugeDef<0> = GaugeDef::new(
    "cardea_config_last_reload_duration_seconds",
    "How long the last reload took, whether or not it succeeded; 0 if there was none.",
    [],
);

/// The metrics of reloads.
pub(super) static DEFINITIONS: &[Definition] = &[
    RELOADS.definition(),
    GENERATION.definition(),
    SUCCESSFUL.definition(),
    LOADED_AT.definition(),
    FAILED_AT.definition(),
    DURATION.definition(),
];

/// The reloads of a server.
pub(crate) struct Reloads(Mutex<State>);

/// The state of reloads.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The number of configurations so far, including the current one.
    pub(crate) generation: u64,
    /// When the current one was loaded.
    pub(crate) loaded_at: Wall,
    /// When a reload last failed.
    pub(crate) failed_at: Option<Wall>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// The last reload.
    pub(crate) last: Option<Last>,
}

/// A reload.
#[derive(Debug, Clone)]
pub(crate) struct Last {
    pub(crate) took: Duration,
    /// The error, if it failed.
    pub(crate) error: Option<String>,
}

impl Reloads {
    /// No reload yet.
    pub(crate) fn new(now: Wall) -> Self {
        Self(Mutex::new(State {
            generation: 1,
            loaded_at: now,
            failed_at: None,
            succeeded: 0,
            failed: 0,
            last: None,
        }))
    }

    /// Records a successful reload.
    pub(crate) fn succeeded(&self, at: Wall, took: Duration) {
        let mut state = self.lock();
        state.generation += 1;
        state.succeeded += 1;
        state.loaded_at = at;
        state.last = Some(Last { took, error: None });
    }

    /// Records a failed reload.
    pub(crate) fn failed(&self, at: Wall, took: Duration, error: String) {
        let mut state = self.lock();
        state.failed += 1;
        state.failed_at = Some(at);
        state.last = Some(Last { took, error: Some(error) });
    }

    /// The present state.
    pub(crate) fn state(&self) -> State {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the metrics.
    pub(super) fn register(self: &Arc<Self>, registry: &Registry) {
        let this = Arc::clone(self);
        registry.collect_counter(&RELOADS, move |samples: &mut Samples<'_>| {
            let state = this.state();
            samples.push(&["success"], state.succeeded as f64);
            samples.push(&["failure"], state.failed as f64);
        });
        let gauge = |def: &'static GaugeDef<0>, read: fn(&State) -> f64| {
            let this = Arc::clone(self);
            registry
                .collect_gauge(def, move |samples: &mut Samples<'_>| samples.push(&[], read(&this.state())));
        };
        gauge(&GENERATION, |state| state.generation as f64);
        gauge(&SUCCESSFUL, |state| {
            f64::from(u8::from(state.last.as_ref().is_none_or(|last| last.error.is_none())))
        });
        gauge(&LOADED_AT, |state| state.loaded_at.unix_seconds() as f64);
        gauge(&FAILED_AT, |state| state.failed_at.map_or(0, Wall::unix_seconds) as f64);
        gauge(&DURATION, |state| state.last.as_ref().map_or(0.0, |last| last.took.as_secs_f64()));
    }
}

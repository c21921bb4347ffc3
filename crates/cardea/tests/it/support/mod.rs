//! What the tests of the program share: a folder with a configuration, the process, an origin, a client.

pub(crate) mod client;
pub(crate) mod dns;
pub(crate) mod folder;
pub(crate) mod metrics;
pub(crate) mod origin;
pub(crate) mod pebble;
pub(crate) mod program;
pub(crate) mod server;
pub(crate) mod wire;

use std::{sync::OnceLock, time::Duration};

use cardea_clock::{CoarseClock, PERIOD_DEFAULT, Timestamp};

pub(crate) use self::{
    client::Connection,
    folder::Folder,
    origin::Origin,
    program::{Program, cardea, run, run_with},
    server::Server,
};

/// How long anything may take that is waited for. Far more than it needs, since machines are busy.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// The time.
pub(crate) fn now() -> Timestamp {
    static CLOCK: OnceLock<CoarseClock> = OnceLock::new();
    CLOCK.get_or_init(|| CoarseClock::start(PERIOD_DEFAULT).unwrap()).clock().precise()
}

/// How long it is since `then`.
pub(crate) fn since(then: Timestamp) -> Duration {
    now().mono.saturating_since(then.mono)
}

/// Waits until `found` has found something: for what tells nobody when it happens.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since(begun) < WAIT_MAX, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

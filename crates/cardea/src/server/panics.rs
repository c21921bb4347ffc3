//! Panics: each ends its connection, or the process.

use std::{
    panic::{self, PanicHookInfo},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use cardea_gateway::{
    record::{
        Registry,
        metrics::{CounterDef, Definition},
    },
    workers,
};

static PANICS: CounterDef<0> = CounterDef::new(
    "cardea_panics_total",
    "Connections and streams that ended because of a panic, which is a bug in the program.",
    [],
);

/// For the page of metrics.
pub(super) static DEFINITIONS: &[Definition] = &[PANICS.definition()];

/// Since the process started.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Registers the metric.
pub(super) fn register(registry: &Registry) {
    registry.collect_counter(&PANICS, |samples| samples.push(&[], COUNT.load(Relaxed) as f64));
}

/// Logs and counts panics. A panic outside of a connection ends the process at once: the failed part is needed, and a
/// supervisor can restart the process.
pub(super) fn watch() {
    panic::set_hook(Box::new(|info| {
        let contained = workers::contains_panics();
        COUNT.fetch_add(1, Relaxed);
        let thread = thread::current();
        tracing::error!(
            location = %info.location().map_or_else(String::new, ToString::to_string),
            thread = thread.name(),
            message = text(info),
            contained,
            "the program panicked; please report this bug"
        );
        if !contained {
            // tidy: banned: the failed part is needed, and there is no caller for an error
            process::abort();
        }
    }));
}

/// The message of the panic if it is a constant of the program. Others may contain a caller's data.
fn text(info: &PanicHookInfo<'_>) -> &'static str {
    info.payload().downcast_ref::<&'static str>().copied().unwrap_or("(not shown: it may hold data)")
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::Command, sync::mpsc};

    use cardea_gateway::workers::Workers;

    use super::*;
    use crate::{config::Log, logging};

    /// A caller's data, which must not be shown.
    const DATA: &str = "hunter2";

    /// Runs one of the tests below in its own process, and returns its exit status and output.
    fn run(name: &str) -> (process::ExitStatus, String) {
        let name = format!("server::panics::tests::{name}");
        let arguments = ["--exact", &name, "--ignored", "--nocapture"];
        let ran = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
        (ran.status, String::from_utf8_lossy(&ran.stderr).into_owned())
    }

    #[test]
    #[ignore = "it ends the process; another test runs it"]
    fn on_a_thread_that_is_needed() {
        logging::start(&Log::default());
        watch();
        let needed = thread::spawn(|| panic::panic_any(format!("about {DATA}")));
        assert!(needed.join().is_ok(), "not reached");
    }

    #[test]
    #[ignore = "it replaces what the process does with panics; another test runs it"]
    fn on_a_connection() {
        logging::start(&Log::default());
        watch();
        let workers = Workers::start(1).unwrap();
        let (tell, told) = mpsc::channel();
        let panicking = workers.runtime(0).spawn(async { panic::panic_any(format!("about {DATA}")) });
        workers.runtime(0).spawn(async move { tell.send(panicking.await.is_err()).unwrap() });
        assert!(told.recv().unwrap(), "the worker goes on");
        assert_eq!(COUNT.load(Relaxed), 1);
    }

    #[test]
    fn a_panic_ends_its_connection_alone_and_elsewhere_the_process() {
        for (name, ends) in [("on_a_connection", false), ("on_a_thread_that_is_needed", true)] {
            let (status, said) = run(name);
            assert_eq!(status.success(), !ends, "{name}: {status} {said}");
            assert_eq!(status.signal(), ends.then_some(6), "{name}: {said}");
            assert!(said.contains("panics.rs:") && said.contains(&format!("contained={}", !ends)), "{said}");
            assert!(!said.contains(DATA), "{said}");
        }
    }
}

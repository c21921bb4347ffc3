//! The program's own log: structured, to standard error.

use std::sync::OnceLock;

use tracing_subscriber::{
    EnvFilter, Registry, fmt, layer::SubscriberExt as _, reload, util::SubscriberInitExt as _,
};

use crate::config::{Log, LogFormat, LogLevel};

/// The filter of the log, once it was started and unless `RUST_LOG` is set.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Starts the log with the configured settings. `RUST_LOG` overrides the level.
pub(crate) fn start(log: &Log) {
    let from_environment = EnvFilter::try_from_default_env().ok();
    let is_fixed = from_environment.is_some();
    let (filter, handle) = reload::Layer::new(from_environment.unwrap_or_else(|| filter(log.level)));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let begun = match log.format {
        LogFormat::Text => {
            registry.with(lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))).try_init()
        }
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
    // A second start (in tests) keeps the first.
    if begun.is_ok() && !is_fixed {
        let _ = FILTER.set(handle);
    }
}

/// Changes the level.
pub(crate) fn set_level(level: LogLevel) {
    if let Some(handle) = FILTER.get() {
        // It fails only if there is no log any more.
        let _ = handle.reload(filter(level));
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // Libraries are less verbose.
    EnvFilter::new(format!(
        "warn,cardea={level},cardea_gateway={level},cardea_identity={level},cardea_issuer={level},cardea_store={level},cardea_tls={level},cardea_upstream={level}"
    ))
}

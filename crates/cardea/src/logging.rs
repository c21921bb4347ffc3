//! The program's own log: structured, to standard error.

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Log, LogFormat, LogLevel};

/// Begins to log as the configuration says. `RUST_LOG` overrides the level.
pub(crate) fn start(log: &Log) {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // Libraries have less to say than we do.
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,cardea={level},cardea_gateway={level},cardea_identity={level},cardea_issuer={level},cardea_tls={level},cardea_upstream={level}")));
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A second start (in tests) keeps the first.
    let _ = match log.format {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

//! The signals of the process.

use std::sync::Arc;

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::run::Server;

/// The handled signals.
pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    reopen: Signal,
}

impl Signals {
    /// Installs the handlers. By default, each of the signals ends the process.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }

    /// Waits for a signal to end; returns whether it was sent from a terminal.
    pub(super) async fn end(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => true,
        }
    }

    /// Handles signals until one requests the end, then drains.
    pub(super) async fn obey(mut self, server: &Arc<Server>) {
        let interactive = loop {
            tokio::select! {
                _ = self.hangup.recv() => {
                    let reloaded = tokio::select! {
                        reloaded = server.reload() => reloaded,
                        interactive = self.end() => break interactive,
                    };
                    match reloaded {
                        Ok(_) => {
                            tracing::info!(generation = server.reloads.state().generation, "configuration reloaded");
                        }
                        Err(error) => tracing::error!(
                            "the configuration was not reloaded, the previous one stays in effect:\n{error:#}"
                        ),
                    }
                }
                _ = self.reopen.recv() => {
                    if let Some(log) = server.gateway.access_log() {
                        log.reopen();
                    }
                }
                () = server.drain_requested.notified() => break false,
                _ = self.terminate.recv() => break false,
                _ = self.interrupt.recv() => break true,
            }
        };
        // A second signal aborts the drain.
        tokio::select! {
            () = server.drain(!interactive) => {}
            _ = self.end() => {}
        }
    }
}

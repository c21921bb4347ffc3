//! The operator's side doors: a TCP listener that only reads, and a Unix socket through which things are changed.

mod connection;
pub(crate) mod http;
mod import;
mod manage;
pub(crate) mod protocol;
mod sensitive;
pub(crate) mod socket;
mod state;
#[cfg(test)]
pub(crate) mod testing;

use std::{path::Path, pin::Pin, sync::Arc};

use anyhow::{Context as _, Result};
use cardea_clock::Timestamp;
use cardea_gateway::workers;
use cardea_issuer::AuthorizationServer;
use tokio::task::JoinHandle;

pub(crate) use self::{
    connection::{Connection, ConnectionError},
    import::{IMPORT_BYTES_MAX, IMPORT_CLIENTS_MAX, ImportClient, imported},
    manage::execute,
    state::{AdminState, Ready},
};
use self::{
    protocol::{Certificate, Reloaded, Status},
    socket::AdminSocket,
};

/// What takes its time.
pub(crate) type ControlFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the admin socket asks of the running server.
pub(crate) trait Control: Send + Sync + 'static {
    /// The exact time.
    fn now(&self) -> Timestamp;

    /// The authorization server, where there is one.
    fn issuer(&self) -> Option<Arc<AuthorizationServer>>;

    /// How the server does.
    fn status(&self) -> ControlFuture<'_, Status>;

    /// Reads the configuration again and puts it in force. What is wrong changes nothing and is told.
    fn reload(&self) -> ControlFuture<'_, Result<Reloaded>>;

    /// Begins to drain, and returns at once.
    fn drain(&self) -> ControlFuture<'_, ()>;

    /// The certificates that are served, or are to be.
    fn certificates(&self) -> Vec<Certificate>;

    /// Orders the certificate that a host belongs to; whether there is one from an authority.
    fn renew_certificate<'a>(&'a self, host: &'a str) -> ControlFuture<'a, Result<bool>>;

    /// The authorization server's keys have changed: publishes them to the verifier, before the command returns.
    fn keys_changed(&self) -> Result<()>;
}

/// An admin socket that is served while this lives. Dropping it removes the socket.
#[must_use = "the socket goes when this is dropped"]
pub(crate) struct Running {
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Binds the admin socket; `None` where it is closed by configuration. To be called on the runtime, as the user that
/// the server goes on as: the socket is of that user alone. And before the server opens its database: from here on,
/// commands wait until the server answers, where without a socket they would go around it.
///
/// # Errors
/// What [`AdminSocket::bind`] says, with the key of the configuration.
pub(crate) fn bind_socket(path: Option<&Path>) -> Result<Option<AdminSocket>> {
    let Some(path) = path else { return Ok(None) };
    let socket = AdminSocket::bind(path).with_context(|| {
        format!(
            "admin.socket {} can't be listened on (its folder must be there and be the server's user's to \
                 write; \"off\" closes it)",
            path.display()
        )
    })?;
    Ok(Some(socket))
}

/// Answers on the admin socket.
pub(crate) fn serve_socket<C: Control>(socket: AdminSocket, control: &Arc<C>) -> Running {
    let control: Arc<dyn Control> = Arc::<C>::clone(control);
    Running { task: workers::spawn(socket::serve(socket, control)) }
}

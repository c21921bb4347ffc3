//! Administration: a TCP listener that is read only, and a Unix socket for changes.

pub(crate) mod choice;
mod connection;
pub(crate) mod http;
mod idle;
mod import;
mod manage;
pub(crate) mod protocol;
mod sensitive;
pub(crate) mod socket;
mod state;
pub(crate) mod tarpit;
#[cfg(test)]
pub(crate) mod testing;

use std::{io, os::fd::BorrowedFd, path::Path, pin::Pin, sync::Arc};

use anyhow::{Context as _, Result};
use cardea_clock::Timestamp;
use cardea_gateway::{accepting::Failed, workers};
use cardea_guard::Offender;
use cardea_issuer::AuthorizationServer;
use tokio::task::JoinHandle;

pub(crate) use self::{
    connection::{Connection, ConnectionError},
    import::{IMPORT_BYTES_MAX, IMPORT_CLIENTS_MAX, ImportClient, imported},
    manage::execute,
    state::{AdminState, Ready},
};
use self::{
    protocol::{
        AdminError, Certificate, ExplainedChoice, Held, Overridden, OverrideTo, Reloaded, Status, Upstream,
    },
    socket::AdminSocket,
};

/// The future of a slow operation.
pub(crate) type ControlFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The operations of the running server that the admin socket uses.
pub(crate) trait Control: Send + Sync + 'static {
    /// The exact time.
    fn now(&self) -> Timestamp;

    /// The authorization server, if there is one.
    fn issuer(&self) -> Option<Arc<AuthorizationServer>>;

    /// Makes room where the admin socket can't accept.
    fn failed_to_accept(&self, socket: BorrowedFd<'_>, error: &io::Error) -> Failed;

    /// The status of the server.
    fn status(&self) -> ControlFuture<'_, Status>;

    /// Reloads the configuration. An invalid configuration changes nothing, and its problems are returned.
    fn reload(&self) -> ControlFuture<'_, Result<Reloaded>>;

    /// Begins to drain, and returns at once.
    fn drain(&self) -> ControlFuture<'_, ()>;

    /// The services with their endpoints.
    fn upstreams(&self) -> Vec<Upstream>;

    /// Which endpoint of a service a request would get now, and why.
    fn explain_choice(&self, service: &str, key: Option<&str>) -> Result<ExplainedChoice, AdminError>;

    /// Takes an endpoint out, or in again; it is in effect when this returns.
    fn override_endpoint<'a>(
        &'a self,
        service: &'a str,
        endpoint: &'a str,
        to: OverrideTo,
    ) -> ControlFuture<'a, Result<Overridden, AdminError>>;

    /// Whose requests are held in the tarpit.
    fn held(&self) -> Vec<Held>;

    /// Has what is held of an offender, or of all, answered now, and forgets their offences. How many were held.
    fn release(&self, which: Option<&Offender>) -> usize;

    /// The configured certificates, served or not.
    fn certificates(&self) -> Vec<Certificate>;

    /// Orders the certificate of a host; returns whether it has one from an authority.
    fn renew_certificate<'a>(&'a self, host: &'a str) -> ControlFuture<'a, Result<bool>>;

    /// Ends the streams of clients that have just lost their rights, before the command returns.
    fn settle_streams(&self) -> ControlFuture<'_, ()>;

    /// Publishes changed keys of the authorization server to the verifier, before the command returns.
    fn keys_changed(&self) -> Result<()>;
}

/// An admin socket that is served until this is dropped, which removes the socket.
#[must_use = "the socket goes when this is dropped"]
pub(crate) struct Running {
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Binds the admin socket; `None` if it is disabled. Call it on the runtime, as the user that the server runs as,
/// because only that user may use the socket. Call it before the server opens its database: from then on commands wait
/// for the server, whereas without a socket they would change the database directly.
///
/// # Errors
/// Those of [`AdminSocket::bind`], with the key of the configuration.
pub(crate) fn bind_socket(path: Option<&Path>) -> Result<Option<AdminSocket>> {
    let Some(path) = path else { return Ok(None) };
    let socket = AdminSocket::bind(path).with_context(|| {
        format!(
            "cannot listen on admin.socket {} (its folder must exist and be writable by the server's user; \"off\" \
             disables the socket)",
            path.display()
        )
    })?;
    Ok(Some(socket))
}

/// Serves the admin socket.
pub(crate) fn serve_socket<C: Control>(socket: AdminSocket, control: &Arc<C>) -> Running {
    let control: Arc<dyn Control> = Arc::<C>::clone(control);
    Running { task: workers::spawn(socket::serve(socket, control)) }
}

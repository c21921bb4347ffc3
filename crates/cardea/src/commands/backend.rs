//! Where commands for clients and keys are carried out: in the running server, or on its database if none runs.

use std::{iter::Peekable, path::Path, pin::pin, time::Duration, vec};

use anyhow::Context as _;
use cardea_clock::{CoarseClock, PERIOD_DEFAULT};
use cardea_issuer::AuthorizationServer;
use tokio::{
    runtime::{self, Runtime},
    sync::mpsc,
};

use super::{Failure, gateway_of};
use crate::{
    admin::{
        Connection, ConnectionError, ImportClient, execute, imported,
        protocol::{AdminError, Answer, REQUEST_BYTES_MAX, Reply, Request},
    },
    cli::{Exit, Output},
    config::Config,
    server,
};

/// The largest size of the clients in one request of an import, in bytes; the rest is for the surrounding JSON.
const PART_BYTES_MAX: usize = REQUEST_BYTES_MAX - 1024;

/// The interval of progress messages, in clients.
const PROGRESS_EVERY: usize = 1_000;

/// The timeout of an import in a running server, which may be large, on a slow disk.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(600);

/// Carries out requests.
pub(super) enum Backend {
    /// The running server, through its admin socket.
    Server(Connection),
    /// The database.
    Store(Box<Store>),
}

pub(super) struct Store {
    server: AuthorizationServer,
    clock: CoarseClock,
    runtime: Runtime,
}

impl Backend {
    /// The running server if its admin socket answers, else the database that the configuration at `path` names.
    pub(super) fn open(path: &Path, config: &Config, output: &mut Output) -> Result<Self, Failure> {
        let Some(settings) = &config.authorization_server else {
            let message =
                "the configuration has no [authorization_server], so there are no clients and keys; see docs";
            return Err(Failure::new(Exit::Usage, message));
        };
        match &config.admin.socket {
            Some(socket) => match gateway_of(path, socket)? {
                Some(connection) => return Ok(Self::Server(connection)),
                None => output.error(&format!(
                    "note: no gateway responds at {}; using the database {} directly",
                    socket.display(),
                    settings.database.display()
                )),
            },
            None => output.error(
                "note: admin.socket is off; a running gateway applies changes within a few seconds, not before this \
                 command returns",
            ),
        }
        let clock = CoarseClock::start(PERIOD_DEFAULT).context("starting the clock")?;
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
        let server = runtime.block_on(server::open_issuer(settings, clock.clock().precise()))?;
        Ok(Self::Store(Box::new(Store { server, clock, runtime })))
    }

    /// Carries out one request; it is in effect when this returns.
    pub(super) fn call(&mut self, request: Request) -> Result<Answer, Failure> {
        match self {
            Self::Server(connection) => match connection.call(&request)? {
                Reply::Ok(answer) => Ok(answer),
                Reply::Error(refusal) => Err(refusal.into()),
                Reply::Progress { .. } => Err(unexpected()),
            },
            Self::Store(store) => {
                let now = store.clock.clock().precise();
                Ok(store.runtime.block_on(execute(&store.server, request, &|_| {}, now))?)
            }
        }
    }

    /// Imports all of the clients or none; the import is in effect when this returns. Reports progress.
    ///
    /// # Errors
    /// The inner one is that of the authorization server.
    pub(super) fn import(
        &mut self,
        clients: Vec<ImportClient>,
        output: &mut Output,
    ) -> Result<Result<(), AdminError>, Failure> {
        match self {
            Self::Server(connection) => send(connection, clients, output),
            Self::Store(store) => Ok(store.import(clients, output)),
        }
    }

    /// Whether a running server carries out requests.
    pub(super) fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

impl Store {
    fn import(&self, clients: Vec<ImportClient>, output: &mut Output) -> Result<(), AdminError> {
        let clients = imported(clients)?;
        let now = self.clock.clock().precise();
        // If it is full, the progress to be reported is out of date.
        let (tell, mut told) = mpsc::channel(1);
        let progress = |count: usize| {
            let _ = tell.try_send(count);
        };
        self.runtime.block_on(async {
            let mut import = pin!(self.server.import_clients(&clients, &progress, now));
            loop {
                tokio::select! {
                    done = &mut import => return done.map_err(AdminError::from),
                    Some(count) = told.recv() => progressed(count, clients.len(), output),
                }
            }
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The database then writes its log back, so that only one file is left.
        self.runtime.block_on(self.server.close());
    }
}

/// Sends an import in as many requests as needed. The server does nothing before the last one.
fn send(
    connection: &mut Connection,
    clients: Vec<ImportClient>,
    output: &mut Output,
) -> Result<Result<(), AdminError>, Failure> {
    connection.set_reply_timeout(IMPORT_TIMEOUT)?;
    let (total, mut sent) = (clients.len(), 0);
    let mut clients = clients.into_iter().peekable();
    loop {
        let part = part(&mut clients);
        let more = clients.peek().is_some();
        let before = sent;
        sent += part.len();
        let mut written = |count| progressed(count, total, output);
        match connection.call_with_progress(&Request::ClientImport { clients: part, more }, &mut written)? {
            Reply::Ok(Answer::Done) => {}
            Reply::Ok(_) | Reply::Progress { .. } => return Err(unexpected()),
            Reply::Error(refusal) => return Ok(Err(refusal)),
        }
        if !more {
            return Ok(Ok(()));
        }
        if before / PROGRESS_EVERY < sent / PROGRESS_EVERY {
            output.error(&format!("note: {sent} of {total} clients sent"));
        }
    }
}

/// As many of the clients as fit into one request, but at least one.
fn part(clients: &mut Peekable<vec::IntoIter<ImportClient>>) -> Vec<ImportClient> {
    let mut part = Vec::new();
    let mut bytes = 0;
    while let Some(client) = clients.next_if(|client| {
        // With the comma. A client that can't be serialised is refused when it is sent.
        bytes += serde_json::to_vec(client).map_or(0, |text| text.len() + 1);
        part.is_empty() || bytes <= PART_BYTES_MAX
    }) {
        part.push(client);
    }
    part
}

fn progressed(count: usize, total: usize, output: &mut Output) {
    output.error(&format!("note: {count} of {total} clients written; none takes effect before all are"));
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self::new(Exit::Failure, error.to_string())
    }
}

/// A reply of another kind than expected.
pub(super) fn unexpected() -> Failure {
    Failure::new(
        Exit::Failure,
        "the gateway sent an unexpected reply; use the same version of cardea for both",
    )
}

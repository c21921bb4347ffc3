//! Where commands on clients and keys are carried out: in the running server, or on its database where none runs.

use anyhow::Context as _;
use cardea_clock::{CoarseClock, PERIOD_DEFAULT};
use cardea_issuer::AuthorizationServer;
use tokio::runtime::{self, Runtime};

use super::Failure;
use crate::{
    admin::{
        Connection, ConnectionError, execute,
        protocol::{Answer, Reply, Request},
    },
    cli::{Exit, Output},
    config::Config,
    server,
};

/// What carries out requests.
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
    /// The running server where its admin socket answers, else the database that the configuration names.
    pub(super) fn open(config: &Config, output: &mut Output) -> Result<Self, Failure> {
        let Some(settings) = &config.authorization_server else {
            let message = "the configuration has no [authorization_server], so there are no clients and no keys; see docs";
            return Err(Failure::new(Exit::Usage, message));
        };
        match &config.admin.socket {
            Some(path) => match Connection::open(path)? {
                Some(connection) => return Ok(Self::Server(connection)),
                None => output.error(&format!(
                    "note: no gateway answers at {}; working on {} itself",
                    path.display(),
                    settings.database.display()
                )),
            },
            None => output.error(
                "note: admin.socket is off; a gateway that runs takes changes over within a few seconds, \
                 not before this command returns",
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
            },
            Self::Store(store) => {
                let now = store.clock.clock().precise();
                Ok(store.runtime.block_on(execute(&store.server, request, now))?)
            }
        }
    }

    /// Whether a running server does the work.
    pub(super) fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Lets the database write its log back, so that one file is left.
        self.runtime.block_on(self.server.close());
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self::new(Exit::Failure, error.to_string())
    }
}

/// An answer of another kind than the request has.
pub(super) fn unexpected() -> Failure {
    Failure::new(
        Exit::Failure,
        "the gateway answered something else; use the same version of cardea for both",
    )
}

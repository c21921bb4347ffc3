//! Test fixtures for administration and commands: a folder with a configuration, and a server that has only an admin
//! socket.

use std::{
    fs, io,
    os::{fd::BorrowedFd, unix::fs::PermissionsExt as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use anyhow::{Result, bail};
use cardea_clock::{Clock, ManualClock, Timestamp, Wall};
use cardea_gateway::accepting::Failed;
use cardea_issuer::AuthorizationServer;
use tempfile::TempDir;

use super::{
    Control, ControlFuture,
    protocol::{AdminError, Code, Overridden, OverrideTo, Reloaded, Status},
};
use crate::{
    config::{self, Config},
    server,
};

/// The scenario's time: 2027-01-15T08:00:00Z.
pub(crate) const NOW: i64 = 1_800_000_000;

const CONFIG: &str = r#"
[admin]
address = "off"
socket = "admin.sock"

[[listener]]
name = "main"
address = "127.0.0.1:0"

[authorization_server]
issuer = "https://auth.example.com"
database = "sqlite:cardea.db"
wrapping_key = { file = "wrapping.key" }
default_audience = "https://api.example.com"
resources = ["https://other.example.com"]
scopes = ["read", "write"]

[[issuer]]
name = "own"
local = true
audiences = ["https://api.example.com"]

[[route]]
name = "open"
path = "/"
auth = "public"
respond = { body = "hello" }

[[route]]
name = "api"
path = "/api"
auth = { issuer = "own", scopes = ["read"] }
respond = { body = "hello" }

[[route]]
name = "writing"
path = "/write"
auth = { issuer = "own", scopes = ["read", "write"] }
respond = { body = "hello" }
"#;

/// A folder with a configuration and a wrapping key.
pub(crate) struct Fixture {
    folder: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        fixture.file("cardea.toml", CONFIG);
        fixture.file("wrapping.key", &"ab".repeat(32));
        fixture
    }

    /// Writes a private file.
    pub(crate) fn file(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Changes the configuration.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.path("cardea.toml")).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(self.path("cardea.toml"), text.replace(from, to)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self) -> Config {
        config::load(&self.path("cardea.toml"), &|_| None).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The authorization server, on the configured database.
    pub(crate) async fn issuer(&self, now: Timestamp) -> Arc<AuthorizationServer> {
        let config = self.config();
        Arc::new(server::open_issuer(config.authorization_server.as_ref().unwrap(), now).await.unwrap())
    }
}

/// A server that implements only what the admin socket needs.
pub(crate) struct Fake {
    pub(crate) clock: Clock,
    pub(crate) issuer: Option<Arc<AuthorizationServer>>,
    /// The configuration file.
    configuration: PathBuf,
    /// How often keys were published.
    pub(crate) published: AtomicUsize,
    /// How often draining was requested.
    pub(crate) drained: AtomicUsize,
}

impl Fake {
    pub(crate) fn new(clock: Clock, issuer: Option<Arc<AuthorizationServer>>) -> Arc<Self> {
        Self::of(PathBuf::new(), clock, issuer)
    }

    /// A server with this configuration.
    pub(crate) fn of(
        configuration: PathBuf,
        clock: Clock,
        issuer: Option<Arc<AuthorizationServer>>,
    ) -> Arc<Self> {
        let (published, drained) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { clock, issuer, configuration, published, drained })
    }
}

impl Control for Fake {
    fn settle_streams(&self) -> ControlFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn now(&self) -> Timestamp {
        self.clock.precise()
    }

    fn issuer(&self) -> Option<Arc<AuthorizationServer>> {
        self.issuer.clone()
    }

    fn failed_to_accept(&self, _: BorrowedFd<'_>, _: &io::Error) -> Failed {
        Failed::Pause
    }

    fn status(&self) -> ControlFuture<'_, Status> {
        let status = Status {
            version: "1.2.3".into(),
            process_id: 7,
            uptime_seconds: 8,
            phase: "running".into(),
            connections: 9,
            generation: 1,
            configuration: self.configuration.display().to_string(),
            ..Status::default()
        };
        Box::pin(async { status })
    }

    fn reload(&self) -> ControlFuture<'_, Result<Reloaded>> {
        Box::pin(async { bail!("cardea.toml:1:1: unknown key") })
    }

    fn drain(&self) -> ControlFuture<'_, ()> {
        self.drained.fetch_add(1, SeqCst);
        Box::pin(async {})
    }

    fn upstreams(&self) -> Vec<super::protocol::Upstream> {
        Vec::new()
    }

    fn explain_choice(
        &self,
        service: &str,
        _: Option<&str>,
    ) -> Result<super::protocol::ExplainedChoice, AdminError> {
        Err(AdminError::new(Code::NotFound, format!("there is no service {service:?}")))
    }

    fn override_endpoint<'a>(
        &'a self,
        service: &'a str,
        _: &'a str,
        _: OverrideTo,
    ) -> ControlFuture<'a, Result<Overridden, AdminError>> {
        let message = format!("there is no service {service:?}");
        Box::pin(async { Err(AdminError::new(Code::NotFound, message)) })
    }

    fn held(&self) -> Vec<super::protocol::Held> {
        Vec::new()
    }

    fn release(&self, _: Option<&cardea_guard::Offender>) -> usize {
        0
    }

    fn certificates(&self) -> Vec<super::protocol::Certificate> {
        Vec::new()
    }

    fn renew_certificate<'a>(&'a self, host: &'a str) -> ControlFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(host == "a.test") })
    }

    fn keys_changed(&self) -> Result<()> {
        self.published.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// A clock that stays at [`NOW`].
pub(crate) fn clock() -> Clock {
    ManualClock::new(Wall::from_unix_seconds(NOW)).clock()
}

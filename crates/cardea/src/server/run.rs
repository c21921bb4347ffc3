//! A server, from start to shutdown.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use cardea_clock::{CoarseClock, Mono, Timestamp};
use cardea_gateway::{
    checks::Checks,
    gateway::{Gateway, Phase},
    listener,
    record::{AccessLog, Registry, metrics},
    workers::{self, Workers},
};
use cardea_identity::LocalKeys;
use cardea_issuer::RevocationSink;
use cardea_tls::ClientAuthority;
use tokio::{
    sync::{Mutex, Notify},
    task::JoinHandle,
    time::timeout,
};

use super::{
    background,
    builtins::Provided,
    certificates, client_authorities, health,
    issuer::{self, Revoker, publish_keys},
    key_cache::KeyCache,
    listen::{self, Inherited, Sockets, bind},
    names::Names,
    panics,
    reloads::Reloads,
    signals::Signals,
    socket_file::SocketFile,
    telemetry,
};
use crate::{
    acme::{self, Acme},
    admin::{self, AdminState},
    config::{self, BindAddress, Built, Config, Fingerprint, Foundation, Problem, Problems, build},
    fetch::HttpFetch,
    process,
};

/// How long WebSocket closing handshakes may take after the drain's deadline.
const ENDING: Duration = Duration::from_secs(1);
/// How long a running order may take to end when the server stops.
const GIVING_BACK_MAX: Duration = Duration::from_secs(2);

/// A running server.
pub(crate) struct Server {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) foundation: Foundation,
    pub(crate) provided: Arc<Provided>,
    pub(crate) admin: Arc<AdminState>,
    pub(crate) admin_address: Option<SocketAddr>,
    pub(super) reloads: Arc<Reloads>,
    pub(super) current: Mutex<Current>,
    pub(super) workers: Arc<Workers>,
    pub(super) revoker: Arc<Revoker>,
    /// The path of the configuration, for reloads.
    pub(super) path: PathBuf,
    /// The configuration of the start.
    pub(super) started_with: Fingerprint,
    started: Mono,
    /// Notified when draining is requested over the admin socket.
    pub(super) drain_requested: Notify,
    /// Whether the authorization server's store is closed, or about to be.
    store_closed: AtomicBool,
    pub(super) key_cache: Arc<KeyCache>,
    /// The active checks of services.
    pub(super) checks: Checks,
    /// The names of endpoints.
    pub(super) names: Arc<Names>,
    /// The faults of client authorities that were logged.
    pub(super) client_authority_faults: client_authorities::FaultLog,
    /// Looks after certificates from the authority.
    acme: Mutex<Option<JoinHandle<()>>>,
    _clock: CoarseClock,
}

/// The state that a reload changes.
pub(super) struct Current {
    pub(super) config: Config,
    pub(super) built: Built,
    pub(super) listeners: HashMap<String, Listening>,
}

impl Current {
    /// The Unix sockets whose permissions differ from the configured ones, with the latter.
    fn other_modes(&mut self) -> impl Iterator<Item = (&str, &mut SocketFile, u32)> {
        let (config, listeners) = (&self.config, &mut self.listeners);
        listeners.iter_mut().filter_map(|(name, listening)| {
            let wanted = config.listeners.iter().find(|wanted| wanted.name == *name)?.mode;
            let file = listening.file.as_mut().filter(|file| file.mode() != wanted)?;
            Some((name.as_str(), file, wanted))
        })
    }

    fn has_all_modes(&self) -> bool {
        let has_mode = |wanted: &config::Located<config::Listener>| {
            let file = self.listeners.get(&wanted.name).and_then(|listening| listening.file.as_ref());
            file.is_none_or(|file| file.mode() == wanted.mode)
        };
        self.config.listeners.iter().all(has_mode)
    }

    /// Sets the configured permissions of Unix sockets. Those that can't be changed keep theirs until the next start.
    pub(super) fn set_modes(&mut self) {
        for (listener, file, mode) in self.other_modes() {
            let shown = format!("{mode:o}");
            match file.set_mode(mode) {
                Ok(()) => tracing::info!(listener, mode = shown, "the socket's permissions were changed"),
                Err(error) => {
                    tracing::warn!(listener, mode = shown, %error, "the socket's permissions can't be changed");
                }
            }
        }
    }
}

/// A listener with bound sockets that does not serve yet.
pub(super) struct Bound {
    pub(super) name: String,
    address: BindAddress,
    /// The bound TCP address.
    local: Option<SocketAddr>,
    file: Option<SocketFile>,
    sockets: listener::Watched,
}

pub(super) struct Listening {
    pub(super) address: BindAddress,
    /// The bound address as text.
    pub(super) shown: String,
    /// The file of a Unix socket that this process bound.
    file: Option<SocketFile>,
    pub(super) serving: listener::Serving,
}

impl Server {
    /// Starts everything that `config` (read from `path`) describes, on sockets that are already bound. Connections run
    /// on `workers`, everything else on the runtime of the caller.
    pub(crate) async fn start(
        config: Config,
        path: PathBuf,
        sockets: Vec<(String, Sockets)>,
        admin_socket: Option<std::net::TcpListener>,
        workers: Arc<Workers>,
    ) -> Result<Arc<Self>> {
        let coarse = CoarseClock::start(config.process.clock_period).context("starting the clock")?;
        let clock = coarse.clock();
        let registry = Arc::new(Registry::new());
        metrics::process::register(&registry);
        registry.collect_series();

        let issuer = match &config.authorization_server {
            Some(settings) => Some(Arc::new(issuer::open(settings, clock.precise()).await?)),
            None => None,
        };
        let local_keys = LocalKeys::new();
        if let Some(issuer) = &issuer {
            publish_keys(issuer, &local_keys)?;
        }
        let acme = match &config.acme {
            Some(settings) => Some(Acme::open(settings, clock.clone()).await?),
            None => None,
        };
        let admin_address = admin_socket.as_ref().and_then(|socket| socket.local_addr().ok());
        let names = Names::of(&config, admin_address, clock.clone()).await;
        let provided = Arc::new(Provided { issuer, acme });
        let foundation = Foundation {
            clock: clock.clone(),
            fetch: Arc::new(HttpFetch::new()),
            local_keys,
            provider: Arc::clone(&provided) as _,
            names: Arc::clone(names.resolved()),
            workers: workers.count(),
            tolerates_certificates: true,
        };
        let built = build(&config, &foundation, None).map_err(|problems| anyhow!(listed(problems)))?;

        let gateway = Gateway::new(Arc::clone(&built.model), clock.clone(), Arc::clone(&registry))
            .context("starting the gateway")?;
        gateway.set_access_log(access_log(&config, &gateway, &registry)?);
        telemetry::register(&registry, &gateway, provided.issuer.as_ref());
        let reloads = Arc::new(Reloads::new(clock.precise().wall));
        reloads.register(&registry);
        certificates::register(&registry, &gateway);
        certificates::report_unusable(&gateway);
        client_authorities::register(&registry, &gateway);
        let client_authority_faults = client_authorities::FaultLog::default();
        client_authority_faults.report(&gateway, true);
        let revoker = Arc::new(Revoker::new(Arc::clone(&gateway), &config));
        if let Some(issuer) = &provided.issuer {
            issuer
                .set_revocation_sink(Arc::clone(&revoker) as Arc<dyn RevocationSink>, clock.precise())
                .await?;
        }
        let key_cache = Arc::new(KeyCache::new(config.key_cache.clone()));
        restore_keys(&key_cache, &built, clock.precise()).await;
        built.model.authenticator.maintain(clock.precise()).await;

        let admin = Arc::new(AdminState::new(Arc::clone(&gateway), registry, provided.issuer.clone()));
        admin.follow(&config.readiness);
        health::register(&admin, provided.acme.as_ref());
        admin.set_hosts(&config.admin.hosts);
        let started_with = config.fingerprint.clone();
        let checks = Checks::new(&gateway);
        checks.follow(&built.model.services);
        let server = Arc::new(Self {
            gateway,
            foundation,
            provided,
            admin,
            admin_address,
            reloads,
            current: Mutex::new(Current { config, built, listeners: HashMap::new() }),
            workers,
            revoker,
            path,
            started_with,
            started: clock.precise().mono,
            drain_requested: Notify::new(),
            store_closed: AtomicBool::new(false),
            key_cache,
            checks,
            names,
            client_authority_faults,
            acme: Mutex::default(),
            _clock: coarse,
        });
        {
            let mut current = server.current.lock().await;
            for (name, sockets) in sockets {
                let wanted = current.config.listeners.iter().find(|listener| listener.name == name);
                let bound = server.watch(wanted.context("a socket without a listener")?, sockets)?;
                server.listen(&mut current, bound);
            }
        }
        if let Some(socket) = admin_socket {
            server.serve_admin(socket)?;
        }
        background::start(&server);
        if let Some(acme) = &server.provided.acme {
            telemetry::register_acme(server.admin.registry(), acme);
            acme.follow(&server.current.lock().await.config);
            let task = acme::start(acme, &server.gateway);
            server.acme.lock().await.replace(task);
        }
        Ok(server)
    }

    fn serve_admin(&self, socket: std::net::TcpListener) -> Result<()> {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::TcpListener::from_std(socket)?;
        tracing::info!(address = %socket.local_addr()?, "the admin listener serves");
        let (admin, stopping) = (Arc::clone(&self.admin), Arc::clone(&self.gateway));
        workers::spawn(async move {
            // Until the very end: readiness is requested while the gateway drains.
            let end = async move {
                stopping.stopping().await;
                stopping.idle().await;
            };
            admin::http::serve(socket, admin, end).await;
        });
        Ok(())
    }

    /// Does everything that can fail before a listener serves.
    pub(super) fn watch(&self, wanted: &config::Listener, sockets: Sockets) -> Result<Bound> {
        let Sockets { sockets, file } = sockets;
        let local = sockets.first().and_then(listener::ListenSocket::local_address);
        let sockets = listener::watch(&self.workers, sockets)
            .with_context(|| format!("watching the sockets of listener {}", wanted.name))?;
        Ok(Bound { name: wanted.name.clone(), address: wanted.address.clone(), local, file, sockets })
    }

    pub(super) fn listen(&self, current: &mut Current, bound: Bound) {
        let Bound { name, address, local, file, sockets } = bound;
        let shown = local.map_or_else(|| address.to_string(), |local| local.to_string());
        tracing::info!(listener = %name, address = %shown, "listening");
        let serving = sockets.serve(&self.gateway, &self.workers, &name);
        current.listeners.insert(name, Listening { address, shown, file, serving });
    }

    /// Closes idle connections to services that are too old.
    pub(super) async fn sweep(&self, now: Mono) {
        let current = self.current.lock().await;
        for service in current.built.services.values() {
            service.live.state().sweep(now);
        }
    }

    /// The client authorities of the current configuration.
    pub(super) async fn client_authorities(&self) -> Vec<Arc<ClientAuthority>> {
        self.current.lock().await.built.client_authorities.values().map(Arc::clone).collect()
    }

    /// Keys of the current configuration that have not taken effect.
    pub(super) async fn needs_restart(&self) -> Vec<String> {
        self.not_in_effect(&*self.current.lock().await)
    }

    /// The same: keys that keep their values of the start, and permissions that could not be changed.
    pub(super) fn not_in_effect(&self, current: &Current) -> Vec<String> {
        let mut keys = self.started_with.changed_with(&current.config.fingerprint, config::Effect::Restart);
        if !current.has_all_modes() {
            keys.push("listener.mode".to_owned());
            keys.sort_unstable();
        }
        keys
    }

    /// The uptime of this server.
    pub(super) fn uptime(&self) -> Duration {
        self.gateway.clock.precise().mono.saturating_since(self.started)
    }

    /// Whether operations that need the authorization server's store must fail now.
    pub(super) fn is_store_closed(&self) -> bool {
        self.store_closed.load(Relaxed)
    }

    /// Makes the server drain as on SIGTERM.
    pub(super) fn request_drain(&self) {
        self.drain_requested.notify_one();
    }

    /// Shuts down in order: unready, then not accepting, then ended; at the deadline, remaining connections are reset.
    pub(crate) async fn drain(&self, delay: bool) {
        let drain = {
            let current = self.current.lock().await;
            current.config.drain.clone()
        };
        tracing::info!(connections = self.gateway.connections(), "draining");
        self.gateway.advance(Phase::Draining);
        if delay {
            tokio::time::sleep(drain.delay).await;
        }
        self.gateway.advance(Phase::Stopping);
        // The deadline counts from the signal.
        let left = if delay { drain.deadline.saturating_sub(drain.delay) } else { drain.deadline };
        if timeout(left, self.gateway.idle()).await.is_err() {
            tracing::warn!(
                connections = self.gateway.connections(),
                "the drain deadline has passed; the remaining connections are reset"
            );
            self.gateway.advance(Phase::Ending);
            // Nothing is waited for after that: no closing handshake of either side.
            let _ = timeout(ENDING, self.gateway.idle()).await;
        }
        self.store_closed.store(true, Relaxed);
        if let Some(issuer) = &self.provided.issuer {
            issuer.close().await;
        }
        if let Some(acme) = &self.provided.acme {
            if let Some(task) = self.acme.lock().await.take() {
                // It ends by itself, after it has released the lease.
                let _ = timeout(GIVING_BACK_MAX, task).await;
            }
            acme.close().await;
        }
    }
}

/// Restores the stored keys of new issuers.
pub(super) async fn restore_keys(cache: &Arc<KeyCache>, built: &Built, now: Timestamp) {
    let (cache, authenticator) = (Arc::clone(cache), Arc::clone(&built.model.authenticator));
    let _ = tokio::task::spawn_blocking(move || cache.restore(&authenticator, now)).await;
}

pub(super) fn listed(problems: Vec<Problem>) -> String {
    Problems::from_located(problems).to_string()
}

pub(super) fn access_log(
    config: &Config,
    gateway: &Gateway,
    registry: &Arc<Registry>,
) -> Result<Option<Arc<AccessLog>>> {
    let Some(settings) = &config.access_log else { return Ok(None) };
    let log = AccessLog::start(settings.config.clone(), gateway.clock.clone())
        .context("the access log can't be opened")?;
    log.register(registry);
    Ok(Some(Arc::new(log)))
}

/// Runs the server of the configuration at `path` until it is stopped.
pub(crate) fn run(config: Config, path: PathBuf) -> Result<()> {
    panics::watch();
    let mut inherited = Inherited::from_environment()?;
    let count = match config.process.workers {
        0 => workers::default_count(),
        count => count,
    };
    let sockets = bind(&config, &mut inherited, count)?;
    let admin_socket = match config.admin.address {
        Some(address) => Some(listen::tcp(address).with_context(|| {
            format!("cannot listen on admin.address {address}; does another gateway run there?")
        })?),
        None => None,
    };
    for socket in inherited.unused() {
        tracing::warn!(socket, "an inherited socket matches no listener and is closed");
    }
    process::raise_descriptor_limit(process::descriptors_needed(&config, count));
    process::check_descriptor_limit(count)?;
    // Only binding the ports needs the privileges that are dropped here.
    process::drop_privileges(&config.process)?;
    process::settle_dumpable(&config.process)?;
    let workers = Workers::start(count).context("starting the workers")?;
    let runtime = workers::control_runtime().context("starting the runtime")?;
    let mut gateway = None;
    let result = runtime.block_on(async {
        // Before the first connection: a signal without a handler ends the process at once.
        let mut signals = Signals::new()?;
        let control = admin::bind_socket(config.admin.socket.as_deref())?;
        let server = tokio::select! {
            server = Server::start(config, path, sockets, admin_socket, Arc::clone(&workers)) => server?,
            // Fetching issuers' keys may be slow.
            _ = signals.end() => return Ok(()),
        };
        let control = control.map(|socket| admin::serve_socket(socket, &server));
        signals.obey(&server).await;
        drop(control);
        gateway = Some(Arc::clone(&server.gateway));
        Ok(())
    });
    // Remaining connections are dropped with their runtime, which resets running responses.
    workers.stop();
    if let Some(gateway) = gateway {
        // Including a line for each of them.
        gateway.close_retired_logs();
        let _ = gateway.access_log().is_none_or(|log| log.flush(Duration::from_secs(2)));
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

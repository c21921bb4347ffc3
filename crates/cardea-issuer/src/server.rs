//! The authorization server itself: what it holds, how it opens, what it publishes, how it keeps itself up to date.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use arc_swap::ArcSwap;
use cardea_clock::{Timestamp, Wall};
use cardea_store::{
    IssuerStore, KeyRecord, KeySetRecord, Revocation, SigningAlgorithm, StoreError, WriteHealth,
};
use tokio::sync::{Mutex, MutexGuard, Semaphore};

use crate::{
    AuthorizationServerConfig, CLOCK_SKEW_MAX, Endpoints, IssuerError, Reply, RevocationSink, TokenRequest,
    WrappingKey, error_reply, grant, key_ring, key_ring::KeyRing, key_ring::Moment, metadata::Metadata,
    revocation, revocation::REVOCATION_RETENTION, rotation, signing::SigningKey, verification::SecretStats,
    verification::Source, verification::Verifier,
};

/// How often a change is tried again that somebody else got ahead of.
pub(crate) const ATTEMPTS_MAX: usize = 8;

/// How often the registry's secrets are counted, for what stands in for those that don't exist.
const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// The authorization server. Shared in an `Arc`; every method may be called at any time from any task.
pub struct AuthorizationServer {
    config: ArcSwap<AuthorizationServerConfig>,
    /// The issuer as tokens and metadata spell it, which never changes.
    issuer: Box<str>,
    pub(crate) store: Arc<dyn IssuerStore>,
    pub(crate) keys: ArcSwap<KeyRing>,
    /// Bounds how many RSA signatures are made at once.
    pub(crate) signing_permits: Arc<Semaphore>,
    pub(crate) verifier: Verifier,
    pub(crate) sink: OnceLock<Arc<dyn RevocationSink>>,
    /// Held through every change that this process makes, so that the sink hears of them in the order of the store. It
    /// is asynchronous, so no thread waits for it, and no token request takes it.
    pub(crate) changes: Mutex<Changes>,
    /// Until when it is known which keys may sign, in nanoseconds since the Unix epoch.
    trusted_until: AtomicI64,
    /// Copies of the key set from before the last change of the configuration.
    copies: RwLock<Copies>,
    wrapping_key: RwLock<WrappingKey>,
    endpoints: Endpoints,
    metadata: ArcSwap<Metadata>,
}

/// What those who change something share.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Up to when the store's revocations have been told to the sink.
    pub(crate) told_until: Wall,
    /// When tombstones were last forgotten.
    forgot_at: Wall,
    /// When the registry's secrets were last counted.
    counted_at: Wall,
    /// Until when this process is known to have published the keys; `None` before it first did.
    published_through: Option<Wall>,
    /// What this process last wrote down of that.
    marked: Option<Wall>,
}

/// What became of maintenance, where the store could be read.
#[derive(Debug)]
pub struct Maintained {
    /// Whether what had to be written was: an error means that nothing can be administered now.
    pub writes: Result<(), IssuerError>,
}

/// How long others may hold copies of the key set that they cached before the configuration changed.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    /// From when on, and for how long.
    since: Option<Wall>,
    wait: Duration,
}

impl Copies {
    /// Notes that the key set was to be cached for `max_age` until `now`.
    fn note(&mut self, max_age: Duration, now: Wall) {
        // Twice as long, as in the lead of a key: whoever caches it may be late.
        let wait = max_age.saturating_mul(2);
        if now.saturating_add(wait) >= self.gone_at(now) {
            (self.since, self.wait) = (Some(now), wait);
        }
    }

    /// When there are none any more. A clock that was set back doesn't make it later than if they had been made just now.
    fn gone_at(self, now: Wall) -> Wall {
        self.since.map_or(Wall::MIN, |since| since.min(now).saturating_add(self.wait))
    }
}

/// Revocations that were read and are to be told.
#[must_use]
#[derive(Debug)]
pub struct PendingRevocations<'a> {
    found: Vec<Revocation>,
    _changes: MutexGuard<'a, Changes>,
}

impl PendingRevocations<'_> {
    /// Tells them.
    pub fn tell(self, sink: &dyn RevocationSink) {
        self.found.iter().for_each(|revocation| revocation::tell(sink, revocation));
    }
}

impl AuthorizationServer {
    /// Checks the configuration, loads and unwraps the signing keys, and makes the first one where there is none.
    ///
    /// # Errors
    /// [`IssuerError::InvalidConfig`]; [`IssuerError::WrappingKey`] where the key is not the one that the
    /// stored keys were wrapped with, in which case nothing was changed; [`IssuerError::DamagedKey`];
    /// [`IssuerError::Store`].
    pub async fn open(
        config: AuthorizationServerConfig,
        store: Arc<dyn IssuerStore>,
        wrapping_key: WrappingKey,
        now: Timestamp,
    ) -> Result<Self, IssuerError> {
        config.check()?;
        let endpoints = Endpoints::of(&config);
        let metadata = Metadata::of(&config, &endpoints)?;
        let ring = KeyRing::load(&store.keys().await?, &wrapping_key, None)?;
        let verifier = Verifier::new(&config.secrets, &stand_in_key(&*store).await?)?;
        verifier.follow(&store.secret_mix(now.wall).await?);
        let server = Self {
            verifier,
            issuer: config.issuer_text().into(),
            config: ArcSwap::from_pointee(config),
            store,
            keys: ArcSwap::from_pointee(ring),
            signing_permits: Arc::new(Semaphore::new(thread::available_parallelism().map_or(1, usize::from))),
            sink: OnceLock::new(),
            changes: Mutex::new(Changes {
                told_until: Wall::MIN,
                forgot_at: Wall::MIN,
                counted_at: now.wall,
                published_through: None,
                marked: None,
            }),
            trusted_until: AtomicI64::new(now.wall.unix_nanos()),
            copies: RwLock::default(),
            wrapping_key: RwLock::new(wrapping_key),
            endpoints,
            metadata: ArcSwap::from_pointee(metadata),
        };
        if server.keys.load().entries.is_empty() {
            server.rotate_if_due(now.wall).await?;
        }
        let published = server.store.published_through().await?;
        server.trust_until(published.unwrap_or(now.wall));
        Ok(server)
    }

    /// Answers a token request of which nothing is known but what it says: see [`Self::token_from`].
    pub async fn token(&self, request: TokenRequest<'_>, now: Timestamp) -> Reply {
        self.token_from(request, Source::default(), now).await
    }

    /// Answers a token request. Failures are counted for `source`, and a hash is waited for no longer than it allows:
    /// 429 for too many failures, 503 where there are too many hashes to compute, both with `Retry-After`.
    pub async fn token_from(&self, request: TokenRequest<'_>, source: Source, now: Timestamp) -> Reply {
        grant::token(self, request, source, now).await
    }

    /// Figures of the verification of secrets.
    #[must_use]
    pub fn secret_stats(&self, now: Timestamp) -> SecretStats {
        self.verifier.stats(now.mono)
    }

    /// The authorization endpoint, which exists because metadata must name one. It refuses every request and
    /// never redirects: no client has a redirection URI that could be trusted (RFC 6749 §4.1.2.1).
    #[must_use]
    pub fn authorize_refusal(&self) -> Reply {
        let description = "this server issues tokens to clients only; use the token endpoint";
        error_reply("unsupported_response_type", description, 400).because("authorize_unsupported")
    }

    /// The issuer as tokens and metadata spell it: without a trailing slash.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<AuthorizationServerConfig> {
        self.config.load_full()
    }

    /// Goes on by another configuration: token requests that begin from now on, and keys with the next
    /// [`Self::maintain`]. Its issuer must be the same; its `secrets` are left as they are, since their threads and
    /// tables are there for good. Keys that are made from now on sign no earlier than whoever cached the key set until now
    /// fetches it again.
    ///
    /// # Errors
    /// [`IssuerError::InvalidConfig`], in which case nothing has changed.
    pub fn reconfigure(&self, mut config: AuthorizationServerConfig, now: Wall) -> Result<(), IssuerError> {
        config.secrets = self.config.load().secrets.clone();
        config.check()?;
        if config.issuer_text() != self.issuer() {
            let problem = "it can't change while the server runs".to_owned();
            return Err(IssuerError::InvalidConfig { field: "issuer", problem });
        }
        let metadata = Metadata::of(&config, &self.endpoints)?;
        self.copies.write().unwrap_or_else(PoisonError::into_inner).note(self.key_set_max_age(), now);
        self.config.store(Arc::new(config));
        self.metadata.store(Arc::new(metadata));
        Ok(())
    }

    /// Where the gateway serves it.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The metadata of RFC 8414, as JSON.
    #[must_use]
    pub fn oauth_metadata(&self) -> Arc<str> {
        Arc::clone(&self.metadata.load().oauth)
    }

    /// The metadata of OpenID Connect Discovery, as JSON.
    #[must_use]
    pub fn openid_configuration(&self) -> Arc<str> {
        Arc::clone(&self.metadata.load().openid)
    }

    /// The published key set (RFC 7517 §5), as JSON. The same `Arc` until a key comes or goes.
    #[must_use]
    pub fn key_set(&self) -> Arc<str> {
        Arc::clone(&self.keys.load().key_set)
    }

    /// How long the key set and the metadata may be cached: `max-age` for the gateway. At most half of what a key is
    /// published ahead, so that a key is known everywhere before it signs.
    #[must_use]
    pub fn key_set_max_age(&self) -> Duration {
        self.config.load().key_set_max_age()
    }

    /// How writing to the store fares, on which all administration depends.
    #[must_use]
    pub fn write_health(&self) -> WriteHealth {
        self.store.write_health()
    }

    /// Names who is to be told of revocations, and tells it all that matter. Only the first sink is told anything; a
    /// second one is refused.
    ///
    /// # Errors
    /// [`IssuerError::SinkNamed`];
    /// [`IssuerError::Store`] where they can't be read; then no request may be let in yet.
    pub async fn set_revocation_sink(
        &self,
        sink: Arc<dyn RevocationSink>,
        now: Timestamp,
    ) -> Result<(), IssuerError> {
        let mut changes = self.changes.lock().await;
        if self.sink.get().is_some() {
            return Err(IssuerError::SinkNamed);
        }
        let since = now.wall.saturating_sub(REVOCATION_RETENTION);
        for revocation in self.store.revocations(since).await? {
            revocation::tell(&*sink, &revocation);
        }
        changes.told_until = now.wall;
        self.sink.set(sink).map_err(|_| IssuerError::SinkNamed)
    }

    /// All revocations that matter, for a sink that has to learn of them again. Until they are told or dropped, nothing is
    /// administered and nothing else is told, so that no change is missed in between.
    ///
    /// # Errors
    /// [`IssuerError::Store`] where they can't be read.
    pub async fn revocations(&self, now: Timestamp) -> Result<PendingRevocations<'_>, IssuerError> {
        let changes = self.changes.lock().await;
        let found = self.store.revocations(now.wall.saturating_sub(REVOCATION_RETENTION)).await?;
        Ok(PendingRevocations { found, _changes: changes })
    }

    /// What is to be done every few seconds by whoever publishes the keys: takes over what other processes changed in the
    /// store (keys, revocations), brings keys, lets them take over and removes them when they are due. It is cheap where
    /// nothing is due.
    ///
    /// # Errors
    /// [`IssuerError::Store`] where the store can't be read, and [`IssuerError::WrappingKey`] where another process
    /// wrapped the keys anew. The server goes on with what it has; the next call tries again.
    pub async fn maintain(&self, now: Timestamp) -> Result<Maintained, IssuerError> {
        let mut changes = self.changes.lock().await;
        self.tell_revocations(&mut changes, now.wall).await?;
        if changes.counted_at.saturating_add(COUNTED_EVERY) <= now.wall || now.wall < changes.counted_at {
            self.verifier.follow(&self.store.secret_mix(now.wall).await?);
            changes.counted_at = now.wall;
        }
        self.load_keys().await?;
        Ok(Maintained { writes: self.keep(&mut changes, now.wall).await })
    }

    /// The part of maintenance that writes.
    async fn keep(&self, changes: &mut Changes, now: Wall) -> Result<(), IssuerError> {
        if self.store.write_health().failing {
            // Whether there is room again is learnt by the smallest change there is.
            self.store.probe().await?;
            tracing::info!("changes can be stored again");
        }
        if changes.forgot_at.saturating_add(REVOCATION_RETENTION) < now {
            // Kept twice as long as they matter: nothing depends on when exactly they go.
            let before = now.saturating_sub(REVOCATION_RETENTION).saturating_sub(REVOCATION_RETENTION);
            self.store.forget_tombstones(before).await?;
            changes.forgot_at = now;
        }
        // First which keys may take over: what is removed depends on it.
        self.keep_published(changes, now).await?;
        self.rotate_if_due(now).await
    }

    /// Lets no key sign that was not published for long enough, whatever the reason: nobody was there, or the clock
    /// stepped ahead.
    async fn keep_published(&self, changes: &mut Changes, now: Wall) -> Result<(), IssuerError> {
        let through = self.published_through(changes, now).await?;
        let config = self.config();
        for _ in 0..ATTEMPTS_MAX {
            let KeySetRecord { version, mut keys } = self.load_keys().await?;
            if rotation::withhold(&mut keys, through, &config, now) {
                rotation::set_removals(&mut keys, &config);
                if !self.replace_keys(version, keys).await? {
                    continue;
                }
                tracing::warn!(
                    "a signing key was not published for as long as it should be, and signs later"
                );
            }
            if rotation::is_mark_due(&self.load_keys().await?.keys, changes.marked, &config, now) {
                self.store.mark_published(now).await?;
                changes.marked = Some(now);
            }
            changes.published_through = Some(now);
            self.trust_until(now);
            return Ok(());
        }
        Err(IssuerError::Contended { what: "key set" })
    }

    async fn published_through(&self, changes: &Changes, now: Wall) -> Result<Wall, IssuerError> {
        let known = changes.published_through;
        let unpublished_max = rotation::unpublished_max(&self.config.load());
        if let Some(through) = known.filter(|through| now.saturating_since(*through) <= unpublished_max) {
            return Ok(through);
        }
        // Another process may have published them meanwhile.
        Ok(self.store.published_through().await?.max(known).unwrap_or(now))
    }

    /// Until a while after `published_through`, keys take over when they are due; later only once it is known that they
    /// were published.
    fn trust_until(&self, published_through: Wall) {
        let until = published_through.saturating_add(rotation::unpublished_max(&self.config.load()));
        self.trusted_until.store(until.unix_nanos(), Ordering::Relaxed);
    }

    /// The key that signs at `now`.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`] where there is none, which a server that opened never shows.
    pub(crate) fn signing_key(&self, now: Wall) -> Result<Arc<SigningKey>, IssuerError> {
        self.keys.load().signing(self.moment(now))
    }

    pub(crate) fn moment(&self, now: Wall) -> Moment {
        let trusted_until = Wall::from_unix_nanos(self.trusted_until.load(Ordering::Relaxed));
        Moment { now, published: now.min(trusted_until) }
    }

    /// Tells the sink what other processes revoked. It reads a little further back than it must, for their clocks.
    async fn tell_revocations(&self, changes: &mut Changes, now: Wall) -> Result<(), IssuerError> {
        let Some(sink) = self.sink.get() else { return Ok(()) };
        let since = changes.told_until.min(now).saturating_sub(CLOCK_SKEW_MAX);
        for revocation in self.store.revocations(since).await? {
            revocation::tell(&**sink, &revocation);
        }
        changes.told_until = now;
        Ok(())
    }

    /// Does to the stored keys what their plan says. Called by one task at a time; other processes are kept
    /// apart by the set's version.
    async fn rotate_if_due(&self, now: Wall) -> Result<(), IssuerError> {
        for _ in 0..ATTEMPTS_MAX {
            let (stored, config) = (self.load_keys().await?, self.config());
            let plan = rotation::plan(&stored.keys, &config, self.takes_over_at(now), now);
            if !plan.changed && plan.create.is_none() {
                return Ok(());
            }
            let mut keys = plan.keys;
            if let Some(activates_at) = plan.create {
                keys.push(self.create_key(now, activates_at).await?);
                rotation::set_removals(&mut keys, &config);
            }
            let newest = keys.last().cloned();
            if self.replace_keys(stored.version, keys).await? {
                if plan.create.is_some() {
                    newest.iter().for_each(tell_of_new_key);
                }
                return Ok(());
            }
        }
        Err(IssuerError::Contended { what: "key set" })
    }

    /// Reads the stored keys, and makes them the ones in use where they are newer.
    pub(crate) async fn load_keys(&self) -> Result<KeySetRecord, IssuerError> {
        let stored = self.store.keys().await?;
        let current = self.keys.load_full();
        if stored.version != current.version {
            let ring = KeyRing::load(&stored, &self.wrapping_key(), Some(&current))?;
            self.keys.store(Arc::new(ring));
        }
        Ok(stored)
    }

    /// Stores keys in the place of those of `version`, and puts them in use. `false`: somebody else was faster.
    pub(crate) async fn replace_keys(&self, version: u64, keys: Vec<KeyRecord>) -> Result<bool, IssuerError> {
        // Load first: what can't be loaded must not be stored.
        let replacement = KeySetRecord { version: version.saturating_add(1), keys };
        let ring = KeyRing::load(&replacement, &self.wrapping_key(), Some(&self.keys.load()))?;
        match self.store.replace_keys(version, &replacement.keys).await {
            Ok(()) => {
                self.keys.store(Arc::new(ring));
                Ok(true)
            }
            Err(StoreError::Changed) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// When a key that is published from `now` on may sign: then, all who cache the key set know it.
    pub(crate) fn takes_over_at(&self, now: Wall) -> Wall {
        let copies = *self.copies.read().unwrap_or_else(PoisonError::into_inner);
        now.saturating_add(self.config.load().key_publish_ahead).max(copies.gone_at(now))
    }

    pub(crate) async fn create_key(&self, now: Wall, activates_at: Wall) -> Result<KeyRecord, IssuerError> {
        let algorithm: SigningAlgorithm = self.config.load().algorithm;
        let wrapping_key = self.wrapping_key();
        tokio::task::spawn_blocking(move || key_ring::create(algorithm, &wrapping_key, now, activates_at))
            .await
            .map_err(|_| IssuerError::Crypto("making a key was stopped"))?
    }

    pub(crate) fn wrapping_key(&self) -> WrappingKey {
        self.wrapping_key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_wrapping_key(&self, key: WrappingKey) {
        *self.wrapping_key.write().unwrap_or_else(PoisonError::into_inner) = key;
    }
}

/// Said once the key is stored, and not before.
pub(crate) fn tell_of_new_key(key: &KeyRecord) {
    let (algorithm, activates_at) = (key.algorithm, key.activates_at.unix_seconds());
    tracing::info!(kid = key.kid, %algorithm, activates_at, "signing key made");
}

/// The registry's key for stand-ins, which is made by whoever needs it first.
async fn stand_in_key(store: &dyn IssuerStore) -> Result<[u8; 32], IssuerError> {
    let mut candidate = [0; 32];
    aws_lc_rs::rand::fill(&mut candidate).map_err(|_| IssuerError::Crypto("no randomness"))?;
    Ok(store.stand_in_key(candidate).await?)
}

impl fmt::Debug for AuthorizationServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizationServer")
            .field("issuer", &self.issuer())
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

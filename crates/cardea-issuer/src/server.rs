//! The authorization server: its state, start, publications and maintenance.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use arc_swap::ArcSwap;
use cardea_clock::{ConfirmedWall, Mono, Timestamp, Wall};
use cardea_store::{
    IssuerStore, KeyRecord, KeySetRecord, Revocation, SigningAlgorithm, StoreError, WriteHealth,
};
use tokio::sync::{Mutex, MutexGuard, Semaphore};

use crate::{
    AuthorizationServerConfig, CLOCK_SKEW_MAX, Endpoints, IssuerError, Reply, RevocationSink, TokenRequest,
    WrappingKey, config::KEY_SET_AGE_DEFAULT, error_reply, grant, key_ring, key_ring::KeyRing,
    key_ring::Moment, metadata::Metadata, revocation, revocation::REVOCATION_RETENTION, rotation,
    signing::SigningKey, verification::RequestContext, verification::SecretStats, verification::Verifier,
};

/// How often a change is retried after a concurrent change.
pub(crate) const ATTEMPTS_MAX: usize = 8;

/// For how long keys must have been misdated before they are corrected: a clock can be behind for a moment.
const REDATED_AFTER: Duration = Duration::from_secs(60);

/// For how long the clock must have gone evenly before keys are removed by it, and how far it may be from the monotonic clock.
const CLOCK_CONFIRMED_AFTER: Duration = Duration::from_secs(60);
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// How often the registry's secrets are counted, for the distribution of dummy secrets.
const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// The authorization server. It is shared in an `Arc`; every method may be called at any time from any task.
pub struct AuthorizationServer {
    config: ArcSwap<AuthorizationServerConfig>,
    /// The issuer as tokens and metadata spell it. It never changes.
    issuer: Box<str>,
    pub(crate) store: Arc<dyn IssuerStore>,
    pub(crate) keys: ArcSwap<KeyRing>,
    /// Bounds the concurrent RSA signatures.
    pub(crate) signing_permits: Arc<Semaphore>,
    pub(crate) verifier: Verifier,
    pub(crate) sink: OnceLock<Arc<dyn RevocationSink>>,
    /// Held during every change that this process makes, so that the sink receives changes in the order of the store.
    /// It is asynchronous, so no thread waits for it, and no token request takes it.
    pub(crate) changes: Mutex<Changes>,
    /// Until when the set of keys that may sign is known, in nanoseconds since the Unix epoch.
    trusted_until: AtomicI64,
    clock_has_stepped: AtomicBool,
    /// Cached copies of the key set from before the last change of the configuration.
    copies: RwLock<Copies>,
    wrapping_key: RwLock<WrappingKey>,
    endpoints: Endpoints,
    metadata: ArcSwap<Metadata>,
}

/// State that is shared by all changes.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The time up to which the sink has received the store's revocations.
    pub(crate) told_until: Wall,
    /// When tombstones were last deleted.
    forgot_at: Wall,
    /// When the registry's secrets were last counted.
    counted_at: Wall,
    /// Until when this process is known to have published the keys; `None` before the first publication.
    published_through: Option<Wall>,
    /// The value of it that this process last stored.
    marked: Option<Wall>,
    /// Since when keys have been misdated.
    misdated_since: Option<Mono>,
    /// How far the clock is believed where a key is removed, which can't be undone.
    clock: ConfirmedWall,
}

/// The result of maintenance, if the store could be read.
#[derive(Debug)]
pub struct Maintained {
    /// The result of the writes. After an error, administration doesn't work for now.
    pub writes: Result<(), IssuerError>,
}

/// How long copies of the key set may be cached that were fetched before the configuration changed.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    /// The start of that time, and its length.
    since: Option<Wall>,
    wait: Duration,
}

impl Copies {
    /// Records that the key set could be cached for `max_age` until `now`.
    fn note(&mut self, max_age: Duration, now: Wall) {
        // Twice as long, as with `key_publish_ahead`: a cache may be late.
        let wait = max_age.saturating_mul(2);
        if now.saturating_add(wait) >= self.gone_at(now) {
            (self.since, self.wait) = (Some(now), wait);
        }
    }

    /// When no copy is left. If the clock was set back, it is no later than if the copies had been fetched just now.
    fn gone_at(self, now: Wall) -> Wall {
        self.since.map_or(Wall::MIN, |since| since.min(now).saturating_add(self.wait))
    }
}

/// Revocations that were read and must be passed to the sink.
#[must_use]
#[derive(Debug)]
pub struct PendingRevocations<'a> {
    found: Vec<Revocation>,
    _changes: MutexGuard<'a, Changes>,
}

impl PendingRevocations<'_> {
    /// Passes them to the sink.
    pub fn tell(self, sink: &dyn RevocationSink) {
        self.found.iter().for_each(|revocation| revocation::tell(sink, revocation));
    }
}

impl AuthorizationServer {
    /// Checks the configuration, loads and decrypts the signing keys, and creates the first one if there is none.
    ///
    /// # Errors
    /// [`IssuerError::InvalidConfig`]; [`IssuerError::WrappingKey`] if the stored keys were encrypted with another key,
    /// in which case nothing was changed; [`IssuerError::DamagedKey`]; [`IssuerError::Store`].
    pub async fn open(
        config: AuthorizationServerConfig,
        store: Arc<dyn IssuerStore>,
        wrapping_key: WrappingKey,
        now: Timestamp,
    ) -> Result<Self, IssuerError> {
        config.check()?;
        let endpoints = Endpoints::of(&config);
        let metadata = Metadata::of(&config, &endpoints)?;
        let records = store.keys().await?;
        let ring = KeyRing::load(&records, &wrapping_key, None)?;
        let mut copies = Copies::default();
        if !ring.entries.is_empty() {
            // How long the key set could be cached before the restart is not stored. It was half of the time at most for which
            // keys were published ahead then.
            let ahead = |key: &KeyRecord| key.activates_at.saturating_since(key.created_at);
            let longest = records.keys.iter().map(ahead).max().unwrap_or_default() / 2;
            copies.note(config.key_set_max_age().max(KEY_SET_AGE_DEFAULT).max(longest), now.wall);
        }
        let verifier = Verifier::new(&config.secrets, &dummy_key(&*store).await?)?;
        verifier.set_mix(&store.secret_mix(now.wall).await?);
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
                misdated_since: None,
                clock: ConfirmedWall::new(now, CLOCK_TOLERANCE, CLOCK_CONFIRMED_AFTER),
            }),
            trusted_until: AtomicI64::new(now.wall.unix_nanos()),
            clock_has_stepped: AtomicBool::new(false),
            copies: RwLock::new(copies),
            wrapping_key: RwLock::new(wrapping_key),
            endpoints,
            metadata: ArcSwap::from_pointee(metadata),
        };
        if server.keys.load().entries.is_empty() {
            server.rotate_if_due(now.wall, Wall::MIN).await?;
        }
        let published = server.store.published_through().await?;
        server.trust_until(published.unwrap_or(now.wall));
        Ok(server)
    }

    /// Answers a token request from an unknown address and without a deadline: see [`Self::token_from`].
    pub async fn token(&self, request: TokenRequest<'_>, now: Timestamp) -> Reply {
        self.token_from(request, RequestContext::default(), now).await
    }

    /// Answers a token request. Failures are counted for the address of `context`, and its deadline limits the wait for
    /// a hash. Too many failures are answered 429, a full hash queue 503, both with `Retry-After`.
    pub async fn token_from(
        &self,
        request: TokenRequest<'_>,
        context: RequestContext,
        now: Timestamp,
    ) -> Reply {
        grant::token(self, request, context, now).await
    }

    /// Statistics of the verification of secrets.
    #[must_use]
    pub fn secret_stats(&self, now: Timestamp) -> SecretStats {
        self.verifier.stats(now.mono)
    }

    /// The authorization endpoint, which exists because metadata must name one. It refuses every request and never
    /// redirects, because no client has a redirection URI that could be trusted (RFC 6749 §4.1.2.1).
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

    /// Changes the configuration: for token requests that begin from now on, and for keys at the next
    /// [`Self::maintain`]. The issuer must be the same. `secrets` are not changed, because their threads and tables
    /// exist for the life of the process. New keys sign only after every cached copy of the key set has expired.
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

    /// The paths at which the gateway serves it.
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

    /// The published key set (RFC 7517 §5), as JSON. The `Arc` stays the same until a key is added or removed.
    #[must_use]
    pub fn key_set(&self) -> Arc<str> {
        Arc::clone(&self.keys.load().key_set)
    }

    /// How long the key set and the metadata may be cached: the gateway's `max-age`. It is at most half of
    /// `key_publish_ahead`, so that a key is known everywhere before it signs.
    #[must_use]
    pub fn key_set_max_age(&self) -> Duration {
        self.config.load().key_set_max_age()
    }

    /// The state of writes to the store, on which all administration depends.
    #[must_use]
    pub fn write_health(&self) -> WriteHealth {
        self.store.write_health()
    }

    /// Sets the receiver of revocations, and passes all current ones to it. Only one sink can be set; a second one is
    /// refused.
    ///
    /// # Errors
    /// [`IssuerError::SinkNamed`]; [`IssuerError::Store`] if the revocations can't be read: then no request may be
    /// accepted yet.
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

    /// All current revocations, for a sink that needs them again. Until they are passed on or dropped, administration
    /// and other notifications wait, so that no change is missed.
    ///
    /// # Errors
    /// [`IssuerError::Store`] if they can't be read.
    pub async fn revocations(&self, now: Timestamp) -> Result<PendingRevocations<'_>, IssuerError> {
        let changes = self.changes.lock().await;
        let found = self.store.revocations(now.wall.saturating_sub(REVOCATION_RETENTION)).await?;
        Ok(PendingRevocations { found, _changes: changes })
    }

    /// Whether the wall clock has stepped forward, by what the monotonic clock says, and has not gone on from there for long
    /// enough to be believed.
    #[must_use]
    pub fn clock_has_stepped(&self) -> bool {
        self.clock_has_stepped.load(Ordering::Relaxed)
    }

    /// Maintenance, to be called every few seconds by the process that publishes the keys. It takes over changes of
    /// other processes (keys, revocations), and creates, activates and removes keys that are due. It is cheap if
    /// nothing is due.
    ///
    /// # Errors
    /// [`IssuerError::Store`] if the store can't be read, and [`IssuerError::WrappingKey`] if another process changed
    /// the wrapping key. The server continues with its present state; the next call tries again.
    pub async fn maintain(&self, now: Timestamp) -> Result<Maintained, IssuerError> {
        let mut changes = self.changes.lock().await;
        changes.clock.observe(now);
        let has_stepped = changes.clock.latest(now.mono).is_some_and(|latest| latest < now.wall);
        self.clock_has_stepped.store(has_stepped, Ordering::Relaxed);
        self.tell_revocations(&mut changes, now.wall).await?;
        if changes.counted_at.saturating_add(COUNTED_EVERY) <= now.wall || now.wall < changes.counted_at {
            self.verifier.set_mix(&self.store.secret_mix(now.wall).await?);
            changes.counted_at = now.wall;
        }
        self.load_keys().await?;
        Ok(Maintained { writes: self.keep(&mut changes, now).await })
    }

    /// The part of maintenance that writes.
    async fn keep(&self, changes: &mut Changes, at: Timestamp) -> Result<(), IssuerError> {
        let now = at.wall;
        if self.store.write_health().failing {
            // The smallest change shows whether there is disk space again.
            self.store.probe().await?;
            tracing::info!("changes can be stored again");
        }
        if changes.forgot_at.saturating_add(REVOCATION_RETENTION) < now {
            // Tombstones are kept for twice as long as needed, because nothing depends on the exact time.
            let before = now.saturating_sub(REVOCATION_RETENTION).saturating_sub(REVOCATION_RETENTION);
            self.store.forget_tombstones(before).await?;
            changes.forgot_at = now;
        }
        // Activations come first, because removals depend on them.
        self.keep_dated(changes, at).await?;
        self.keep_published(changes, now).await?;
        let confirmed = changes.clock.latest(at.mono).unwrap_or(Wall::MIN).min(now);
        self.rotate_if_due(now, confirmed).await
    }

    /// Corrects the times of keys that a clock set that was ahead, once the clock has shown another time for a while.
    async fn keep_dated(&self, changes: &mut Changes, now: Timestamp) -> Result<(), IssuerError> {
        for _ in 0..ATTEMPTS_MAX {
            let KeySetRecord { version, mut keys } = self.load_keys().await?;
            if !rotation::is_misdated(&keys, &self.config(), self.takes_over_at(now.wall)) {
                changes.misdated_since = None;
                return Ok(());
            }
            let since = *changes.misdated_since.get_or_insert(now.mono);
            if now.mono.saturating_since(since) < REDATED_AFTER {
                return Ok(());
            }
            let corrected = self.redate(&mut keys, now.wall).await?;
            if self.replace_keys(version, keys).await? {
                corrected.iter().for_each(log_redated_key);
                return Ok(());
            }
        }
        Err(IssuerError::Contended { what: "key set" })
    }

    /// Corrects the times of misdated keys, which are to be stored then, and returns these keys.
    pub(crate) async fn redate(
        &self,
        keys: &mut [KeyRecord],
        now: Wall,
    ) -> Result<Vec<KeyRecord>, IssuerError> {
        let corrected = rotation::redate(keys, &self.config(), self.takes_over_at(now), now);
        // A mark in the future would say that the keys were published while no process ran. It is corrected first, so
        // that no key can sign by it.
        if !corrected.is_empty() && self.store.published_through().await?.is_some_and(|through| through > now)
        {
            self.store.mark_published(now).await?;
        }
        Ok(corrected)
    }

    /// Prevents a key from signing that was not published for long enough, because no process ran or the clock stepped
    /// forward.
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
                tracing::warn!("a signing key was not published for long enough, and signs later");
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

    /// For a while after `published_through`, keys sign when they are due; after that only once their publication is
    /// confirmed.
    fn trust_until(&self, published_through: Wall) {
        let until = published_through.saturating_add(rotation::unpublished_max(&self.config.load()));
        self.trusted_until.store(until.unix_nanos(), Ordering::Relaxed);
    }

    /// The key that signs at `now`.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`] if there is none, which can't happen after the server opened.
    pub(crate) fn signing_key(&self, now: Wall) -> Result<Arc<SigningKey>, IssuerError> {
        self.keys.load().signing(self.moment(now))
    }

    pub(crate) fn moment(&self, now: Wall) -> Moment {
        let trusted_until = Wall::from_unix_nanos(self.trusted_until.load(Ordering::Relaxed));
        Moment { now, published: now.min(trusted_until) }
    }

    /// Passes the revocations of other processes to the sink. The range read overlaps the last one, to allow for clock
    /// differences.
    async fn tell_revocations(&self, changes: &mut Changes, now: Wall) -> Result<(), IssuerError> {
        let Some(sink) = self.sink.get() else { return Ok(()) };
        let since = changes.told_until.min(now).saturating_sub(CLOCK_SKEW_MAX);
        for revocation in self.store.revocations(since).await? {
            revocation::tell(&**sink, &revocation);
        }
        changes.told_until = now;
        Ok(())
    }

    /// Applies the rotation plan to the stored keys. Only one task calls it at a time; the version of the set excludes
    /// other processes. Keys are removed by the time that is `confirmed`.
    async fn rotate_if_due(&self, now: Wall, confirmed: Wall) -> Result<(), IssuerError> {
        for _ in 0..ATTEMPTS_MAX {
            let (stored, config) = (self.load_keys().await?, self.config());
            let plan = rotation::plan(&stored.keys, &config, self.takes_over_at(now), now, confirmed);
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
                    newest.iter().for_each(log_new_key);
                }
                return Ok(());
            }
        }
        Err(IssuerError::Contended { what: "key set" })
    }

    /// Reads the stored keys, and uses them if they are newer.
    pub(crate) async fn load_keys(&self) -> Result<KeySetRecord, IssuerError> {
        let stored = self.store.keys().await?;
        let current = self.keys.load_full();
        if stored.version != current.version {
            let ring = KeyRing::load(&stored, &self.wrapping_key(), Some(&current))?;
            self.keys.store(Arc::new(ring));
        }
        Ok(stored)
    }

    /// Replaces the stored keys if their version is still `version`, and uses the new ones. Returns `false` after a
    /// concurrent change.
    pub(crate) async fn replace_keys(&self, version: u64, keys: Vec<KeyRecord>) -> Result<bool, IssuerError> {
        // They are loaded before they are stored: keys that can't be loaded must not be stored.
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

    /// When a key that is published from `now` on may sign: when every cached copy of the key set contains it.
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

/// Must be called only after the key is stored.
pub(crate) fn log_new_key(key: &KeyRecord) {
    let (algorithm, activates_at) = (key.algorithm, key.activates_at.unix_seconds());
    tracing::info!(kid = key.kid, %algorithm, activates_at, "signing key created");
}

/// Must be called only after the key is stored.
pub(crate) fn log_redated_key(key: &KeyRecord) {
    let activates_at = key.activates_at.unix_seconds();
    tracing::warn!(
        kid = key.kid,
        activates_at,
        "a signing key was to sign too far in the future, because the clock was ahead; its times were corrected"
    );
}

/// The key that dummy secrets are chosen with. The first process that needs it stores it.
async fn dummy_key(store: &dyn IssuerStore) -> Result<[u8; 32], IssuerError> {
    let mut candidate = [0; 32];
    aws_lc_rs::rand::fill(&mut candidate).map_err(|_| IssuerError::Crypto("no randomness"))?;
    Ok(store.dummy_key(candidate).await?)
}

impl fmt::Debug for AuthorizationServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizationServer")
            .field("issuer", &self.issuer())
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

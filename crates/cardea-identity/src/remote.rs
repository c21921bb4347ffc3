//! Keys behind a URL. One fetch runs at a time, ahead of need, and fetched keys are used for a bounded time.
//!
//! Requests read a snapshot. A fetch is its own task, so that a caller who disconnects can't abort it: otherwise an
//! attacker could prevent new keys from ever arriving. Fetches for unknown key ids, which anybody can cause, have a
//! cooldown.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use cardea_clock::{Mono, Timestamp, Wall};
use serde_json::Value;
use tokio::sync::watch;
use url::Url;

use crate::authenticator::{Fetches, KeySetStatus};
use crate::config::{IssuerConfig, KeySource, SKEW_MAX};
use crate::error::{IdentityError, TokenError};
use crate::fetch::{Fetch, FetchError, FetchRequest};
use crate::jwk::{DOCUMENT_BYTES_MAX, Key, KeySet};
use crate::jws::Header;
use crate::keyset::{IssuerKeys, KeyEpoch, report};
use crate::{json, policy};

/// The first delay after a failure. It doubles with each failure up to [`BACK_OFF_MAX`].
const BACK_OFF: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// The fetched keys of one issuer.
pub(crate) struct Remote {
    config: IssuerConfig,
    place: KeyDocumentUrl,
    current: ArcSwap<Snapshot>,
    key_epoch: Arc<KeyEpoch>,
    /// When the next fetch is due, as [`Mono::nanos`]; `u64::MAX` while one runs. It is separate from the snapshot, so
    /// that a request needs one load to see that nothing is due.
    due_at: AtomicU64,
    flight: Mutex<Flight>,
}

enum KeyDocumentUrl {
    /// The issuer, whose metadata has the URL of the keys.
    Discovery(Url),
    Keys(Url),
}

struct Snapshot {
    /// `None` before the first successful fetch.
    keys: Option<Arc<KeySet>>,
    /// Until when the keys are used, even if fetches fail.
    usable_until: Mono,
    /// When the fetch of the keys started.
    fetched_at: Mono,
    /// The document that contained them; `None` for restored keys.
    document: Option<Arc<[u8]>>,
}

/// A fetched key set, to be kept across a restart.
#[derive(Clone)]
pub struct KeyDocument {
    /// The issuer's name in the configuration.
    pub issuer: Arc<str>,
    /// The settings that the keys depend on. The keys must not be used with other settings.
    pub source: String,
    /// The document (RFC 7517 §5).
    pub bytes: Arc<[u8]>,
    /// The time of the fetch.
    pub fetched_at: Wall,
    /// The same time on the monotonic clock, which identifies the document.
    pub fetched: Mono,
}

impl std::fmt::Debug for KeyDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyDocument")
            .field("issuer", &self.issuer)
            .field("fetched_at", &self.fetched_at)
            .finish_non_exhaustive()
    }
}

/// State that only fetches use.
#[derive(Default)]
struct Flight {
    running: Option<watch::Receiver<()>>,
    /// After failures, the earliest time of the next fetch.
    retry_at: Option<Mono>,
    /// The earliest time of the next fetch for an unknown key.
    cooled_at: Option<Mono>,
    failures: u32,
    fetches: Fetches,
    /// The URL that discovery found. It is requested again at every scheduled refresh, but not for unknown keys.
    found: Option<Url>,
    last_error: Option<String>,
}

/// Why a fetch is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchReason {
    /// The fetch is due, or there is no usable key.
    Due,
    /// A token names an unknown key.
    UnknownKey,
}

impl Remote {
    /// No keys yet; the first fetch is due at once.
    ///
    /// # Errors
    /// The configured URL is not allowed, or the issuer for discovery is no URL.
    pub(crate) fn new(config: &IssuerConfig, keys: &KeySource) -> Result<Self, IdentityError> {
        let place = match keys {
            KeySource::Url(url) => KeyDocumentUrl::Keys(url.clone()),
            _ => KeyDocumentUrl::Discovery(
                Url::parse(&config.issuer)
                    .ok()
                    .filter(|url| url.query().is_none())
                    .ok_or_else(|| config.error("discovery needs an issuer that is a URL without query"))?,
            ),
        };
        let (KeyDocumentUrl::Keys(url) | KeyDocumentUrl::Discovery(url)) = &place;
        policy::check(url, config).map_err(|error| config.error(error.to_string()))?;
        Ok(Self {
            config: config.clone(),
            place,
            current: ArcSwap::from_pointee(Snapshot {
                keys: None,
                usable_until: Mono::MIN,
                fetched_at: Mono::MIN,
                document: None,
            }),
            key_epoch: Arc::default(),
            due_at: AtomicU64::new(0),
            flight: Mutex::default(),
        })
    }

    /// Takes over the keys that were fetched for another configuration of the same issuer.
    pub(crate) fn seed(&self, previous: &Self) {
        self.put(previous.current.load_full());
        self.flight().fetches = previous.flight().fetches;
        let due_at = previous.due_at.load(Ordering::Acquire);
        if due_at != u64::MAX {
            self.due_at.store(due_at, Ordering::Release);
        }
    }

    /// Whether keys were ever fetched or restored.
    pub(crate) fn has_keys(&self) -> bool {
        self.current.load().keys.is_some()
    }

    /// The document that contains the keys, if this process fetched it.
    pub(crate) fn document(&self, now: Timestamp) -> Option<KeyDocument> {
        let current = self.current.load();
        let (bytes, fetched) = (current.document.clone()?, current.fetched_at);
        Some(KeyDocument {
            issuer: self.config.name.as_str().into(),
            source: self.config.key_source_text(),
            bytes,
            fetched_at: now.wall.saturating_sub(now.mono.saturating_since(fetched)),
            fetched,
        })
    }

    /// Restores keys from a document that was fetched at that time, before a restart. They expire when they would have
    /// without it, and are fetched again at once. Keys that are already known are kept.
    ///
    /// # Errors
    /// [`IdentityError`] if the document is no key set, was fetched with other settings, or is from the future.
    pub(crate) fn restore(
        &self,
        document: &[u8],
        source: &str,
        fetched_at: Wall,
        now: Timestamp,
    ) -> Result<(), IdentityError> {
        if source != self.config.key_source_text() {
            return Err(self.config.error("the stored keys belong to other settings"));
        }
        if fetched_at > now.wall.saturating_add(SKEW_MAX) {
            return Err(self
                .config
                .error("the stored keys are dated in the future: the clock has stepped back"));
        }
        let (keys, skipped) = KeySet::parse(document, &self.config.algorithms)?;
        report(&self.config.name, &skipped);
        let refresh = self.config.refresh;
        let end = fetched_at.saturating_add(refresh.lifetime).saturating_add(refresh.stale_if_error);
        let usable_until = now.mono.saturating_add(end.saturating_since(now.wall));
        // Excludes a concurrent fetch.
        let _flight = self.flight();
        if self.current.load().keys.is_none() {
            let age = u64::try_from(now.wall.saturating_since(fetched_at).as_nanos()).unwrap_or(u64::MAX);
            self.put(Arc::new(Snapshot {
                keys: Some(Arc::new(keys)),
                usable_until,
                fetched_at: Mono::from_nanos(now.mono.nanos().saturating_sub(age)),
                document: None,
            }));
        }
        Ok(())
    }

    fn put(&self, snapshot: Arc<Snapshot>) {
        self.current.store(Arc::clone(&snapshot));
        self.key_epoch.publish(snapshot.keys.as_deref(), snapshot.usable_until);
    }

    pub(crate) fn key_epoch(&self) -> &Arc<KeyEpoch> {
        &self.key_epoch
    }

    /// The known key for `header`.
    ///
    /// # Errors
    /// [`TokenError::KeysUnavailable`] if there are no keys or they are too old.
    pub(crate) fn select(&self, header: &Header, now: Mono) -> Result<(Arc<Key>, u64), TokenError> {
        let snapshot = self.current.load();
        let usable = snapshot.keys.as_deref().filter(|_| now < snapshot.usable_until);
        IssuerKeys::select(header, usable)
    }

    /// Whether a fetch is due: before the keys expire, or when a failed fetch may be retried.
    pub(crate) fn is_due(&self, now: Mono) -> bool {
        now.nanos() >= self.due_at.load(Ordering::Relaxed)
    }

    /// Joins the running fetch or starts one; `None` if none may start now.
    pub(crate) fn start(
        self: &Arc<Self>,
        fetch: &Arc<dyn Fetch>,
        now: Mono,
        why: FetchReason,
    ) -> Option<watch::Receiver<()>> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let mut flight = self.flight();
        if let Some(running) = &flight.running {
            return Some(running.clone());
        }
        let passed = |limit: Option<Mono>| limit.is_none_or(|limit| limit <= now);
        let cooled = why == FetchReason::Due || passed(flight.cooled_at);
        if !passed(flight.retry_at) || !cooled {
            return None;
        }
        let (landed, running) = watch::channel(());
        flight.running = Some(running.clone());
        flight.cooled_at = Some(now.saturating_add(self.config.refresh.cooldown));
        let found = flight.found.clone().filter(|_| why == FetchReason::UnknownKey);
        self.due_at.store(u64::MAX, Ordering::Release);
        drop(flight);
        let landing = Landing { remote: Arc::clone(self), started: now, result: None, _landed: landed };
        runtime.spawn(landing.fly(Arc::clone(fetch), found));
        Some(running)
    }

    /// Waits for the end of the fetch, for the configured timeout at most.
    pub(crate) async fn landed(&self, mut flight: watch::Receiver<()>) {
        // An error of `changed` means that the fetch has ended: the sender was dropped.
        let _ = tokio::time::timeout(self.config.refresh.timeout, flight.changed()).await;
    }

    pub(crate) fn status(&self, issuer: Arc<str>, now: Mono) -> KeySetStatus {
        let snapshot = self.current.load();
        let flight = self.flight();
        KeySetStatus {
            issuer,
            keys: snapshot.keys.as_ref().map_or(0, |keys| keys.len()),
            usable: snapshot.keys.is_some() && now < snapshot.usable_until,
            failures: flight.failures,
            last_error: flight.last_error.clone(),
            age: snapshot.keys.as_ref().map(|_| now.saturating_since(snapshot.fetched_at)),
            fetches: Some(flight.fetches),
        }
    }

    fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the keys; `found` is the URL that an earlier discovery found.
    async fn load(&self, fetch: &dyn Fetch, found: Option<Url>) -> Result<Fetched, IdentityError> {
        let place = match (&self.place, found) {
            (KeyDocumentUrl::Keys(url), _) => url.clone(),
            (KeyDocumentUrl::Discovery(_), Some(url)) => url,
            (KeyDocumentUrl::Discovery(issuer), None) => self.discover(fetch, issuer).await?,
        };
        let bytes = self.get(fetch, &place).await?;
        let (keys, skipped) = KeySet::parse(&bytes, &self.config.algorithms)?;
        report(&self.config.name, &skipped);
        Ok(Fetched { keys, place, document: bytes.into() })
    }

    /// Reads `jwks_uri` from the issuer's metadata.
    async fn discover(&self, fetch: &dyn Fetch, issuer: &Url) -> Result<Url, IdentityError> {
        let path = issuer.path().trim_end_matches('/');
        let mut metadata = issuer.clone();
        metadata.set_path(&format!("{path}/.well-known/openid-configuration"));
        let bytes = match self.get(fetch, &metadata).await {
            Err(IdentityError::Fetch(FetchError::Status(404))) => {
                metadata.set_path(&format!("/.well-known/oauth-authorization-server{path}"));
                self.get(fetch, &metadata).await?
            }
            other => other?,
        };
        let document = json::object(&bytes, json::DOCUMENT_LIMITS).map_err(IdentityError::Discovery)?;
        // RFC 8414 §3.3: identical, or the document is another issuer's.
        if document.get("issuer").and_then(Value::as_str) != Some(self.config.issuer.as_str()) {
            return Err(IdentityError::Discovery("its issuer is not the configured one"));
        }
        let keys = document
            .get("jwks_uri")
            .and_then(Value::as_str)
            .and_then(|uri| Url::parse(uri).ok())
            .ok_or(IdentityError::Discovery("it has no jwks_uri that is a URL"))?;
        policy::check_discovered(&keys, issuer, &self.config)?;
        Ok(keys)
    }

    async fn get(&self, fetch: &dyn Fetch, url: &Url) -> Result<Vec<u8>, IdentityError> {
        let bytes = fetch
            .fetch(FetchRequest {
                url,
                bytes_max: DOCUMENT_BYTES_MAX,
                timeout: self.config.refresh.timeout,
                allow_private_addresses: self.config.allow_private_addresses,
                danger_allow_http_loopback: self.config.danger_allow_http_loopback,
                ca_file: self.config.ca_file.as_deref(),
            })
            .await?;
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(FetchError::TooLarge.into());
        }
        Ok(bytes)
    }
}

struct Fetched {
    keys: KeySet,
    place: Url,
    document: Arc<[u8]>,
}

/// Ends a fetch, whatever happens to its task: `drop` does the last step.
struct Landing {
    remote: Arc<Remote>,
    started: Mono,
    result: Option<Result<Fetched, IdentityError>>,
    /// Dropped last, which wakes the waiting requests.
    _landed: watch::Sender<()>,
}

impl Landing {
    async fn fly(mut self, fetch: Arc<dyn Fetch>, found: Option<Url>) {
        let remote = Arc::clone(&self.remote);
        let load = remote.load(&*fetch, found);
        let result = tokio::time::timeout(remote.config.refresh.timeout, load).await;
        self.result = Some(result.unwrap_or(Err(FetchError::Timeout.into())));
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let remote = &*self.remote;
        let refresh = remote.config.refresh;
        let result = self.result.take();
        let result =
            result.unwrap_or_else(|| Err(FetchError::Io("the fetch was abandoned".to_owned()).into()));
        let mut flight = remote.flight();
        let due_at = match result {
            Ok(Fetched { keys, place, document }) => {
                let keys = match &remote.current.load().keys {
                    Some(previous) => keys.succeeding(previous),
                    None => keys,
                };
                // The lifetime starts with the request, because a slow response is as old as its request.
                let fresh_until = self.started.saturating_add(refresh.lifetime);
                remote.put(Arc::new(Snapshot {
                    keys: Some(Arc::new(keys)),
                    usable_until: fresh_until.saturating_add(refresh.stale_if_error),
                    fetched_at: self.started,
                    document: Some(document),
                }));
                flight.failures = 0;
                flight.fetches.succeeded += 1;
                flight.retry_at = None;
                flight.last_error = None;
                flight.found = Some(place);
                let ahead = refresh.lifetime.saturating_sub(refresh.ahead);
                self.started.saturating_add(ahead)
            }
            Err(error) => {
                let doublings = flight.failures.min(6);
                let wait = (BACK_OFF * 2_u32.pow(doublings)).min(BACK_OFF_MAX);
                let retry_at = self.started.saturating_add(wait);
                flight.failures = flight.failures.saturating_add(1);
                flight.fetches.failed += 1;
                flight.retry_at = Some(retry_at);
                flight.found = None;
                let (issuer, failures) = (remote.config.name.as_str(), flight.failures);
                tracing::warn!(issuer, failures, %error, "the issuer's keys could not be fetched");
                flight.last_error = Some(error.to_string());
                retry_at
            }
        };
        flight.running = None;
        remote.due_at.store(due_at.nanos(), Ordering::Release);
    }
}

//! The issuers that a configuration trusts, and the steps of token verification.

mod steps;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cardea_clock::{Mono, Timestamp, Wall};

use crate::bearer::{BearerCredentials, CredentialsError};
use crate::check::{Check, Recorder, Silent};
use crate::config::IssuerConfig;
use crate::error::{IdentityError, TokenError};
use crate::fetch::{Fetch, NoFetch};
use crate::issuer::{Issuer, Trusted};
use crate::jwk::next_epoch;
use crate::keyset::IssuerKeys;
use crate::remote::{FetchReason, KeyDocument, Remote};
use crate::revocations::Revocations;
use crate::verdict::{Lapse, Verdict};
use crate::verdict_cache::{
    ConnectionTokenCache, Failed, VerdictCache, VerdictRef, VerdictSource, VerifiedToken,
};

/// The most issuers of a configuration.
const ISSUERS_MAX: usize = 1000;

/// The trusted issuers of one configuration. It is immutable; key sets and revocations are passed on to the next one.
pub struct Authenticator {
    /// By the exact `iss`. A preset with several tenants has several for one issuer.
    trusted: HashMap<Arc<str>, Trusted, foldhash::fast::RandomState>,
    /// By the configured name.
    issuers: HashMap<Arc<str>, Arc<Issuer>, foldhash::fast::RandomState>,
    fetch: Arc<dyn Fetch>,
    revocations: Arc<Revocations>,
    memory: VerdictCache,
    /// Distinguishes this authenticator from all others of the process.
    configuration: u64,
}

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unidentified {
    /// The credentials contain no token. 400 `invalid_request`.
    Credentials(CredentialsError),
    /// The token is refused, or can't be verified.
    Token(TokenError),
}

/// The state of an issuer's keys, for metrics and the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetStatus {
    /// The issuer's name in the configuration.
    pub issuer: Arc<str>,
    /// The number of keys that can verify.
    pub keys: usize,
    /// Whether tokens can be verified: there are keys, and they are not too old.
    pub usable: bool,
    /// Failed fetches since the last successful one.
    pub failures: u32,
    /// Why the last fetch failed, for the operator.
    pub last_error: Option<String>,
    /// The time since the keys were fetched; `None` if they are not fetched, or were not yet.
    pub age: Option<Duration>,
    /// Completed fetches; `None` if the keys are not fetched.
    pub fetches: Option<Fetches>,
}

/// Completed fetches since the issuer first appeared in the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetches {
    /// Fetches that returned keys.
    pub succeeded: u64,
    /// Fetches that failed.
    pub failed: u64,
}

impl Authenticator {
    /// Resolves the issuers of a configuration. It reads key files (blocking, while a configuration loads), but fetches
    /// nothing and spawns nothing: see [`Authenticator::maintain`].
    ///
    /// The revocations, and the keys of unchanged issuers, are taken over from `previous`.
    ///
    /// # Errors
    /// The first issuer with invalid settings, addresses or key file, and repeated names or `iss`.
    pub fn new(
        issuers: Vec<IssuerConfig>,
        previous: Option<&Self>,
        fetch: Arc<dyn Fetch>,
    ) -> Result<Self, IdentityError> {
        let mut this = Self {
            trusted: HashMap::default(),
            issuers: HashMap::default(),
            fetch,
            revocations: previous.map_or_else(Arc::default, |old| Arc::clone(&old.revocations)),
            memory: VerdictCache::new(previous.map(|previous| &previous.memory))
                .map_err(IdentityError::OutOfMemory)?,
            configuration: next_epoch(),
        };
        for (index, config) in issuers.into_iter().enumerate() {
            if index >= ISSUERS_MAX {
                return Err(config.error("more than 1,000 issuers"));
            }
            let old = previous.and_then(|old| old.issuers.get(config.name.as_str()));
            let issuer = Issuer::new(config, old)?;
            this.add(&issuer)?;
        }
        Ok(this)
    }

    /// All errors of a configuration, where [`Authenticator::new`] returns the first. It reads key files and fetches
    /// nothing.
    #[must_use]
    pub fn check(issuers: &[IssuerConfig]) -> Vec<IdentityError> {
        let mut this = match Self::new(Vec::new(), None, Arc::new(NoFetch)) {
            Ok(this) => this,
            Err(error) => return vec![error],
        };
        issuers
            .iter()
            .filter_map(|config| Issuer::new(config.clone(), None).and_then(|issuer| this.add(&issuer)).err())
            .collect()
    }

    fn add(&mut self, issuer: &Arc<Issuer>) -> Result<(), IdentityError> {
        let config = &issuer.config;
        let name = Arc::clone(&issuer.name);
        if self.issuers.insert(name, Arc::clone(issuer)).is_some() {
            return Err(config.error("the name occurs twice"));
        }
        let accepted = match &config.preset {
            None => vec![(config.issuer.clone(), None)],
            Some(preset) => {
                preset.expand(config)?.into_iter().map(|tenant| (tenant.issuer, Some(tenant.id))).collect()
            }
        };
        for (iss, tenant) in accepted {
            let iss: Arc<str> = iss.into();
            let trusted = Trusted { issuer: Arc::clone(issuer), iss: Arc::clone(&iss), tenant };
            if self.trusted.insert(Arc::clone(&iss), trusted).is_some() {
                return Err(config.error(format!("the issuer {iss:?} occurs twice")));
            }
        }
        Ok(())
    }

    /// The verdict of the connection's last token, if these credentials are the same and it is still valid.
    fn recall(
        &self,
        credentials: BearerCredentials<'_>,
        slot: &mut ConnectionTokenCache,
        now: Timestamp,
    ) -> Option<VerdictRef> {
        slot.take(credentials.unchecked(), |known, configuration| {
            if configuration == self.configuration {
                self.stands(known, now)
            } else {
                self.is_current(&known.verdict, now)
            }
        })
    }

    /// The cached verdict of these credentials, if it is still valid. It is stored for the connection too.
    fn find(
        &self,
        credentials: BearerCredentials<'_>,
        slot: &mut ConnectionTokenCache,
        now: Timestamp,
    ) -> Option<VerdictRef> {
        let known = self.memory.find(credentials.unchecked(), now.mono, |known| self.stands(known, now))?;
        Some(slot.hold(known, self.configuration))
    }

    /// Verifies a token that has no cached verdict, as [`Authenticator::verify`] does, and caches the verdict. A token
    /// that fails leaves the connection's slot empty.
    ///
    /// # Errors
    /// Those of [`Authenticator::verify`].
    async fn learn(
        &self,
        token: &[u8],
        slot: &mut ConnectionTokenCache,
        now: Timestamp,
    ) -> Result<VerdictRef, TokenError> {
        // The slot stays empty until the end of this function, so that a mistake finds nothing.
        slot.clear();
        if self.has_failed(token, now) {
            return Err(TokenError::SignatureInvalid);
        }
        let (verdict, issuer) = self.verified(token, now).await?;
        let known = VerifiedToken::new(token, verdict, &issuer.key_epoch);
        self.memory.keep(Arc::clone(&known), &issuer, now.mono);
        Ok(slot.hold(known, self.configuration))
    }

    /// The verdict of credentials, and its source: the connection, the cache or a verification. The caller [puts it
    /// back](ConnectionTokenCache::put_back) into the slot; a failure leaves the slot empty.
    ///
    /// # Errors
    /// Credentials without a token, and the errors of [`Authenticator::verify`].
    pub async fn identify(
        &self,
        credentials: BearerCredentials<'_>,
        slot: &mut ConnectionTokenCache,
        now: Timestamp,
    ) -> Result<(VerdictRef, VerdictSource), Unidentified> {
        if let Some(verdict) = self.recall(credentials, slot, now) {
            return Ok((verdict, VerdictSource::Connection));
        }
        if let Some(verdict) = self.find(credentials, slot, now) {
            return Ok((verdict, VerdictSource::Cache));
        }
        slot.clear();
        let token = credentials.token().map_err(Unidentified::Credentials)?;
        // Boxed, so that this rare path doesn't enlarge the future of the common one.
        let verdict = Box::pin(self.learn(token, slot, now)).await.map_err(Unidentified::Token)?;
        Ok((verdict, VerdictSource::Verification))
    }

    /// The verdict of credentials that were verified before, for this connection or another one, if it is still valid.
    /// Verifies nothing. The caller [puts it back](ConnectionTokenCache::put_back) into the slot.
    pub fn known(
        &self,
        credentials: BearerCredentials<'_>,
        slot: &mut ConnectionTokenCache,
        now: Timestamp,
    ) -> Option<VerdictRef> {
        self.recall(credentials, slot, now).or_else(|| self.find(credentials, slot, now))
    }

    /// Verifies a token, and caches an invalid signature.
    async fn verified(&self, token: &[u8], now: Timestamp) -> Result<(Verdict, Arc<Issuer>), TokenError> {
        self.memory.verifications.fetch_add(1, Ordering::Relaxed);
        let mut signer = None;
        let result = self.run(token, now, &mut Silent, &mut signer).await;
        match (result, signer) {
            (Ok(verdict), Some((issuer, _))) => Ok((verdict, issuer)),
            // A verdict always has a signer.
            (Ok(_), None) => Err(TokenError::KeysUnavailable),
            (Err(error), signer) => {
                if let (TokenError::SignatureInvalid, Some((issuer, epoch))) = (&error, signer) {
                    let failed = Failed { issuer: Arc::clone(&issuer.name), epoch };
                    self.memory.failures().insert(token, failed, now.mono);
                }
                Err(error)
            }
        }
    }

    /// Whether the same bytes failed with the same keys before.
    fn has_failed(&self, token: &[u8], now: Timestamp) -> bool {
        self.memory.failures().get(token, now.mono).is_some_and(|failed| {
            let issuer = self.issuers.get(&*failed.issuer);
            issuer.and_then(|issuer| issuer.current_epoch(now.mono)) == Some(failed.epoch)
        })
    }

    /// Verifies a token. If the key is known, it completes without waiting. For an unknown key, or before the first
    /// keys, it waits for a fetch, for the issuer's configured timeout at most.
    ///
    /// # Errors
    /// [`TokenError`]: 401 `invalid_token`, except [`TokenError::is_gateway_fault`], which is 503.
    pub async fn verify(&self, token: &[u8], now: Timestamp) -> Result<Arc<Verdict>, TokenError> {
        self.run(token, now, &mut Silent, &mut None).await.map(Arc::new)
    }

    /// Verifies a token as [`Authenticator::verify`] does and returns every step, up to and including the one that
    /// fails. The texts quote the token's header and claims, for the holder of the token only.
    pub async fn explain(&self, token: &[u8], now: Timestamp) -> Vec<Check> {
        let mut recorder = Recorder::default();
        // The last step contains the result.
        let _ = self.run(token, now, &mut recorder, &mut None).await;
        recorder.0
    }

    /// Whether a verdict is still valid: now is within its window, its issuer's configuration is unchanged, its key was
    /// neither removed nor changed, and its subject is not revoked. This is checked on each use of a cached verdict.
    #[must_use]
    pub fn is_current(&self, verdict: &Verdict, now: Timestamp) -> bool {
        let issuer = self.issuers.get(&*verdict.caller.issuer_name);
        verdict.is_valid_at(now)
            && issuer.and_then(|issuer| issuer.current_epoch(now.mono)) == Some(verdict.epoch)
            && !self.revocations.is_revoked(verdict)
    }

    /// [`Authenticator::is_current`] for a verdict that was reached under this configuration.
    fn stands(&self, known: &VerifiedToken, now: Timestamp) -> bool {
        known.stands(now) && !self.revocations.is_revoked(&known.verdict)
    }

    /// Why a verdict that is held, such as a stream's, is no longer valid. After its end it stays valid for `grace`.
    ///
    /// Unlike [`Authenticator::is_current`], it ignores that an issuer's keys are currently unavailable, which says
    /// nothing about the caller.
    #[must_use]
    pub fn lapse(&self, verdict: &Verdict, now: Timestamp, grace: Duration) -> Option<Lapse> {
        let Some(issuer) = self.issuers.get(&*verdict.caller.issuer_name) else {
            return Some(Lapse::IssuerChanged);
        };
        if now.wall >= verdict.not_after.saturating_add(grace)
            || now.mono >= verdict.deadline.saturating_add(grace)
        {
            Some(Lapse::Expired)
        } else if self.revocations.is_revoked(verdict) {
            Some(Lapse::Revoked)
        } else if issuer.current_epoch(now.mono).is_some_and(|epoch| epoch != verdict.epoch) {
            Some(Lapse::IssuerChanged)
        } else {
            None
        }
    }

    /// The verdict that this configuration and the present keys reach on the token of a verdict that is held, such as a
    /// stream's, after [`Authenticator::lapse`] has returned [`Lapse::IssuerChanged`]: a change of an issuer's settings or
    /// keys need not concern every token. It does not wait for keys; `None` if there are none at present, which says
    /// nothing about the caller. The end of the validity of the new verdict may be past, since the holder may have a
    /// grace: `lapse` tells.
    ///
    /// # Errors
    /// The token is not accepted any more.
    pub fn renew(&self, held: &VerdictRef, now: Timestamp) -> Result<Option<VerdictRef>, Lapse> {
        let token = held.token();
        if let Some(known) = self.memory.find(token, now.mono, |known| self.stands(known, now)) {
            return Ok(Some(VerdictRef::new(known)));
        }
        match self.verify_again(held, now) {
            Ok((verdict, issuer)) => {
                let is_valid = verdict.is_valid_at(now);
                let known = VerifiedToken::new(token, verdict, &issuer.key_epoch);
                if is_valid {
                    self.memory.keep(Arc::clone(&known), &issuer, now.mono);
                }
                Ok(Some(VerdictRef::new(known)))
            }
            Err(TokenError::KeysUnavailable) => Ok(None),
            Err(TokenError::Revoked) => Err(Lapse::Revoked),
            Err(_) => Err(Lapse::IssuerChanged),
        }
    }

    /// A number that changes whenever a verdict may have become invalid for another reason than time. Holders of many
    /// verdicts check them only when it changes.
    #[must_use]
    pub fn epoch(&self, now: Mono) -> u64 {
        let epochs = self.issuers.values().filter_map(|issuer| issuer.current_epoch(now));
        // Each issuer's epoch only grows; unlike in a sum, mixed bits don't cancel each other out.
        let mix = |epoch: u64| epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let known = mix(self.configuration) ^ mix(self.revocations.epoch() << 32);
        epochs.fold(known, |all, epoch| all ^ mix(epoch))
    }

    /// Tokens that had to be verified because no verdict was cached. Reloads don't reset the count.
    #[must_use]
    pub fn verifications(&self) -> u64 {
        self.memory.verifications.load(Ordering::Relaxed)
    }

    /// The number of cached verdicts of all issuers; a gauge.
    #[must_use]
    pub fn verdicts(&self) -> usize {
        self.issuers.values().map(|issuer| issuer.verdicts.len()).sum()
    }

    /// Fetches the keys that are due and waits for them, for the issuers' timeouts at most. Deletes revocations whose
    /// tokens have expired. The program calls it once before it is ready and then every few seconds. Failures are
    /// logged, counted and retried with exponential backoff.
    pub async fn maintain(&self, now: Timestamp) {
        self.revocations.purge(now.wall);
        let flights: Vec<_> = self
            .remotes()
            .filter(|(_, remote)| remote.is_due(now.mono))
            .filter_map(|(_, remote)| {
                let flight = remote.start(&self.fetch, now.mono, FetchReason::Due)?;
                Some((remote, flight))
            })
            .collect();
        for (remote, flight) in flights {
            remote.landed(flight).await;
        }
    }

    /// The fetched key sets, to be kept across a restart.
    #[must_use]
    pub fn key_documents(&self, now: Timestamp) -> Vec<KeyDocument> {
        self.remotes().filter_map(|(_, remote)| remote.document(now)).collect()
    }

    /// The issuers whose keys are fetched and not yet known: the candidates for [`Self::restore_keys`].
    #[must_use]
    pub fn issuers_without_keys(&self) -> Vec<Arc<str>> {
        let unknown = self.remotes().filter(|(_, remote)| !remote.has_keys());
        unknown.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Restores an issuer's keys from a document that this program stored before a restart ([`KeyDocument`]). They
    /// expire when they would have without the restart, and are fetched again at once. Keys that are already known are
    /// kept.
    ///
    /// # Errors
    /// No such issuer fetches its keys; the document is no key set, was fetched with other settings, or is from the
    /// future.
    pub fn restore_keys(
        &self,
        issuer: &str,
        document: &[u8],
        source: &str,
        fetched_at: Wall,
        now: Timestamp,
    ) -> Result<(), IdentityError> {
        let found = self.remotes().find(|(name, _)| &***name == issuer);
        let Some((_, remote)) = found else {
            return Err(IdentityError::Config {
                name: issuer.to_owned(),
                message: "there is no such issuer whose keys are fetched".to_owned(),
            });
        };
        remote.restore(document, source, fetched_at, now)
    }

    /// Frees the memory of expired entries; to be called every few seconds.
    pub fn reclaim(&self, now: Timestamp) {
        self.issuers.values().for_each(|issuer| issuer.verdicts.reclaim(now.mono));
        self.memory.failures().reclaim(now.mono);
    }

    /// Whether [`Authenticator::maintain`] would fetch something.
    #[must_use]
    pub fn refresh_due(&self, now: Timestamp) -> bool {
        self.remotes().any(|(_, remote)| remote.is_due(now.mono))
    }

    /// The state of every issuer's keys, sorted by name.
    #[must_use]
    pub fn key_sets(&self, now: Timestamp) -> Vec<KeySetStatus> {
        let mut all: Vec<_> = self
            .issuers
            .values()
            .map(|issuer| {
                let at_hand = |keys: Option<usize>| KeySetStatus {
                    issuer: Arc::clone(&issuer.name),
                    keys: keys.unwrap_or(0),
                    usable: keys.is_some(),
                    failures: 0,
                    last_error: None,
                    age: None,
                    fetches: None,
                };
                match &issuer.source {
                    IssuerKeys::Fixed(keys) => at_hand(Some(keys.len())),
                    IssuerKeys::Local(keys) => at_hand(keys.load().map(|keys| keys.len())),
                    IssuerKeys::Remote(remote) => remote.status(Arc::clone(&issuer.name), now.mono),
                }
            })
            .collect();
        all.sort_by(|a, b| a.issuer.cmp(&b.issuer));
        all
    }

    /// Revoked and disabled subjects, shared by all configurations of the process.
    #[must_use]
    pub fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    fn remotes(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Remote>)> {
        self.issuers.iter().filter_map(|(name, issuer)| match &issuer.source {
            IssuerKeys::Remote(remote) => Some((name, remote)),
            _ => None,
        })
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<_> = self.issuers.keys().collect();
        names.sort();
        f.debug_struct("Authenticator").field("issuers", &names).finish_non_exhaustive()
    }
}

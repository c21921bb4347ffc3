//! The issuers that a configuration trusts, and the verification of a token step by step.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cardea_clock::{Mono, Timestamp, Wall};
use serde_json::{Map, Value};

use crate::bearer::{BearerCredentials, CredentialsError};
use crate::check::{Check, Observer, Recorder, Silent, show};
use crate::claims;
use crate::config::IssuerConfig;
use crate::entra;
use crate::error::{IdentityError, TokenError};
use crate::fetch::{Fetch, NoFetch};
use crate::issuer::{Issuer, Trusted};
use crate::json;
use crate::jwk::{Key, next_epoch};
use crate::jws::{Compact, Header, TOKEN_BYTES_MAX};
use crate::keyset::Source;
use crate::remembered::{ConnectionTokenCache, Failed, Known, Memory, VerdictRef, VerdictSource};
use crate::remote::{KeyDocument, Remote, Why};
use crate::revocations::Revocations;
use crate::verdict::{Lapse, Verdict};

/// The most issuers of a configuration.
const ISSUERS_MAX: usize = 1000;

/// The trusted issuers of one configuration. Immutable; key sets and revocations live on in the next.
pub struct Authenticator {
    /// By the exact `iss`; several lead to one issuer where a preset has several tenants.
    trusted: HashMap<Arc<str>, Trusted, foldhash::fast::RandomState>,
    /// By configured name.
    issuers: HashMap<Arc<str>, Arc<Issuer>, foldhash::fast::RandomState>,
    fetch: Arc<dyn Fetch>,
    revocations: Arc<Revocations>,
    memory: Memory,
    /// Tells this authenticator from all others of the process.
    configuration: u64,
}

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unidentified {
    /// The credentials hold no token. 400 `invalid_request`.
    Credentials(CredentialsError),
    /// The token is refused, or can't be verified.
    Token(TokenError),
}

/// How an issuer's keys do, for metrics and the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetStatus {
    /// The issuer's name in the configuration.
    pub issuer: Arc<str>,
    /// How many keys can verify.
    pub keys: usize,
    /// Whether tokens can be verified: there are keys, and they are not too old.
    pub usable: bool,
    /// Failed fetches since the last good one.
    pub failures: u32,
    /// Why the last fetch failed; for the operator.
    pub last_error: Option<String>,
    /// How long ago the keys were fetched; `None` where they are not fetched, or were not yet.
    pub age: Option<Duration>,
    /// How many fetches have ended; `None` where the keys are not fetched.
    pub fetches: Option<Fetches>,
}

/// How many fetches have ended, since the issuer first appeared in the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetches {
    /// With keys.
    pub succeeded: u64,
    /// Without.
    pub failed: u64,
}

impl Authenticator {
    /// Resolves the issuers of a configuration. Reads key files (blocking, while a configuration
    /// loads), fetches nothing and spawns nothing: see [`Authenticator::maintain`].
    ///
    /// From `previous` it takes over the revocations, and the keys of issuers that are still the same.
    ///
    /// # Errors
    /// The first issuer whose settings, addresses or key file are unusable, and repeated names or `iss`.
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
            memory: Memory::new(previous.map(|previous| &previous.memory))
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

    /// Every error of a configuration at once, where [`Authenticator::new`] stops at the first. Reads
    /// key files, fetches nothing.
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

    /// The verdict that the connection remembers of its last token, if these credentials are the same and it still holds.
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

    /// The verdict that is remembered in common of a token, if these credentials are the same and it still holds. The
    /// connection remembers it then.
    fn find(
        &self,
        credentials: BearerCredentials<'_>,
        slot: &mut ConnectionTokenCache,
        now: Timestamp,
    ) -> Option<VerdictRef> {
        let known = self.memory.find(credentials.unchecked(), now.mono, |known| self.stands(known, now))?;
        Some(slot.hold(known, self.configuration))
    }

    /// The verdict of a token of which nothing is remembered, as [`Authenticator::verify`] reaches it. It is remembered
    /// then, in common and by the connection; a token that fails leaves the slot empty.
    ///
    /// # Errors
    /// As those of [`Authenticator::verify`].
    async fn learn(
        &self,
        token: &[u8],
        slot: &mut ConnectionTokenCache,
        now: Timestamp,
    ) -> Result<VerdictRef, TokenError> {
        // Until the end of this function nothing is there that a mistake could find.
        slot.clear();
        if self.has_failed(token, now) {
            return Err(TokenError::SignatureInvalid);
        }
        let (verdict, issuer) = self.verified(token, now).await?;
        let known = Known::new(token, verdict, &issuer.standing);
        self.memory.keep(Arc::clone(&known), &issuer, now.mono);
        Ok(slot.hold(known, self.configuration))
    }

    /// The verdict of credentials: recalled, found or learnt, and which of the three. It is to be
    /// [put back](ConnectionTokenCache::put_back) into the slot; a failure leaves that empty.
    ///
    /// # Errors
    /// Credentials that hold no token, and whatever [`Authenticator::verify`] says of it.
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
        // Boxed: the rare way must not make the future of the usual one larger.
        let verdict = Box::pin(self.learn(token, slot, now)).await.map_err(Unidentified::Token)?;
        Ok((verdict, VerdictSource::Verification))
    }

    /// Verifies and remembers a wrong signature.
    async fn verified(&self, token: &[u8], now: Timestamp) -> Result<(Verdict, Arc<Issuer>), TokenError> {
        self.memory.verifications.fetch_add(1, Ordering::Relaxed);
        let mut signer = None;
        let result = self.run(token, now, &mut Silent, &mut signer).await;
        match (result, signer) {
            (Ok(verdict), Some((issuer, _))) => Ok((verdict, issuer)),
            // There is no verdict without the one whose it is.
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

    /// Whether the same bytes failed before the same keys.
    fn has_failed(&self, token: &[u8], now: Timestamp) -> bool {
        self.memory.failures().get(token, now.mono).is_some_and(|failed| {
            let issuer = self.issuers.get(&*failed.issuer);
            issuer.and_then(|issuer| issuer.current_epoch(now.mono)) == Some(failed.epoch)
        })
    }

    /// Verifies a token. With the key at hand it completes without waiting; for an unknown key or
    /// before the first keys it waits for a fetch, at most the issuer's configured timeout.
    ///
    /// # Errors
    /// [`TokenError`]: 401 `invalid_token`, but for [`TokenError::is_gateway_fault`], which is 503.
    pub async fn verify(&self, token: &[u8], now: Timestamp) -> Result<Arc<Verdict>, TokenError> {
        self.run(token, now, &mut Silent, &mut None).await.map(Arc::new)
    }

    /// Verifies a token as [`Authenticator::verify`] does and tells every step, up to and including
    /// the one that fails. The texts quote the token's header and claims: for the one who holds it.
    pub async fn explain(&self, token: &[u8], now: Timestamp) -> Vec<Check> {
        let mut recorder = Recorder::default();
        // The result is the last of the steps.
        let _ = self.run(token, now, &mut recorder, &mut None).await;
        recorder.0
    }

    /// Whether a verdict still holds: within its window, its issuer configured as it was, its key
    /// neither gone nor changed, its subject not revoked. What a cached verdict is asked on each use.
    #[must_use]
    pub fn is_current(&self, verdict: &Verdict, now: Timestamp) -> bool {
        let issuer = self.issuers.get(&*verdict.caller.issuer_name);
        verdict.is_valid_at(now)
            && issuer.and_then(|issuer| issuer.current_epoch(now.mono)) == Some(verdict.epoch)
            && !self.revocations.is_revoked(verdict)
    }

    /// [`Authenticator::is_current`], for a verdict that was reached under this configuration.
    fn stands(&self, known: &Known, now: Timestamp) -> bool {
        known.stands(now) && !self.revocations.is_revoked(&known.verdict)
    }

    /// Why a verdict does not hold any more, for one that is held on to: a stream's. Past its end it holds for `grace`.
    ///
    /// Other than [`Authenticator::is_current`], it goes on where an issuer's keys can't be had at the moment: that
    /// says nothing of the caller.
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

    /// A number that changes whenever a verdict may have lapsed otherwise than by time: for those who hold on to many,
    /// and would ask of each.
    #[must_use]
    pub fn epoch(&self, now: Mono) -> u64 {
        let epochs = self.issuers.values().filter_map(|issuer| issuer.current_epoch(now));
        // Each issuer's only grows; unlike a sum, mixed bits don't cancel each other out.
        let mix = |epoch: u64| epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let known = mix(self.configuration) ^ mix(self.revocations.epoch() << 32);
        epochs.fold(known, |all, epoch| all ^ mix(epoch))
    }

    /// How many tokens had to be verified because nothing was remembered of them; counted on through reloads.
    #[must_use]
    pub fn verifications(&self) -> u64 {
        self.memory.verifications.load(Ordering::Relaxed)
    }

    /// How many verdicts are remembered, of all issuers; a gauge.
    #[must_use]
    pub fn verdicts(&self) -> usize {
        self.issuers.values().map(|issuer| issuer.verdicts.len()).sum()
    }

    /// Fetches the keys that are due and waits for them, at most the issuers' timeouts; forgets
    /// revocations that have no more tokens. The program calls it once before it is ready and then
    /// every few seconds; failures are logged, counted and repeated with growing waits.
    pub async fn maintain(&self, now: Timestamp) {
        self.revocations.purge(now.wall);
        let flights: Vec<_> = self
            .remotes()
            .filter(|(_, remote)| remote.is_due(now.mono))
            .filter_map(|(_, remote)| {
                let flight = remote.start(&self.fetch, now.mono, Why::Due)?;
                Some((remote, flight))
            })
            .collect();
        for (remote, flight) in flights {
            remote.landed(flight).await;
        }
    }

    /// The key sets that were fetched, to be kept over a restart.
    #[must_use]
    pub fn key_documents(&self, now: Timestamp) -> Vec<KeyDocument> {
        self.remotes().filter_map(|(_, remote)| remote.document(now)).collect()
    }

    /// The issuers whose keys are fetched and have not been known yet: those to [restore](Self::restore_keys).
    #[must_use]
    pub fn issuers_without_keys(&self) -> Vec<Arc<str>> {
        let unknown = self.remotes().filter(|(_, remote)| !remote.has_keys());
        unknown.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Takes an issuer's keys from a document that was kept over a restart ([`KeyDocument`]), by whom only this program can
    /// have been. They are used for as long as they would have been without the restart, and fetched again at once. Keys
    /// that are there already stay.
    ///
    /// # Errors
    /// There is no such issuer whose keys are fetched; the document is no key set, from other settings, or from the future.
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

    /// Gives up the memory of what has expired; to be called every few seconds.
    pub fn reclaim(&self, now: Timestamp) {
        self.issuers.values().for_each(|issuer| issuer.verdicts.reclaim(now.mono));
        self.memory.failures().reclaim(now.mono);
    }

    /// Whether [`Authenticator::maintain`] would fetch something.
    #[must_use]
    pub fn refresh_due(&self, now: Timestamp) -> bool {
        self.remotes().any(|(_, remote)| remote.is_due(now.mono))
    }

    /// How every issuer's keys do, in the order of their names.
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
                    Source::Fixed(keys) => at_hand(Some(keys.len())),
                    Source::Local(keys) => at_hand(keys.load().map(|keys| keys.len())),
                    Source::Remote(remote) => remote.status(Arc::clone(&issuer.name), now.mono),
                }
            })
            .collect();
        all.sort_by(|a, b| a.issuer.cmp(&b.issuer));
        all
    }

    /// Revoked and disabled subjects; the same for every configuration of the process.
    #[must_use]
    pub fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    fn remotes(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Remote>)> {
        self.issuers.iter().filter_map(|(name, issuer)| match &issuer.source {
            Source::Remote(remote) => Some((name, remote)),
            _ => None,
        })
    }

    /// The steps, in the order of RFC 7519 §7.2 and RFC 7515 §5.2. `signer` is told whose key is tried, and the epoch.
    async fn run(
        &self,
        token: &[u8],
        now: Timestamp,
        observer: &mut impl Observer,
        signer: &mut Option<(Arc<Issuer>, u64)>,
    ) -> Result<Verdict, TokenError> {
        let compact = observer.observe("form", Compact::parse(token), || {
            let expected = "three segments of base64url, in at most";
            let found = token.split(|&byte| byte == b'.').count();
            (
                format!("{expected} {TOKEN_BYTES_MAX} bytes"),
                format!("{found} segments, {} bytes", token.len()),
            )
        })?;
        let header = observer.observe("header", Header::parse(&compact.header), || {
            let expected = "a JSON object with alg, without crit, b64, zip, enc or a key of its own";
            (expected.to_owned(), quote(&compact.header))
        })?;
        let claims = json::object(&compact.payload, json::CLAIMS_LIMITS).map_err(TokenError::ClaimsMalformed);
        let claims = observer.observe("claims", claims, || {
            let found = format!("{} bytes", compact.payload.len());
            ("a JSON object with unique names".to_owned(), found)
        })?;
        let trusted = observer.observe("issuer", self.trusted(&claims), || {
            let mut known: Vec<_> = self.trusted.keys().take(16).collect();
            known.sort();
            (format!("iss one of {known:?}"), show(claims.get("iss")))
        })?;
        let issuer = &trusted.issuer;
        let algorithm = observer.observe("algorithm", issuer.allows(&header), || {
            let names: Vec<_> = issuer.config.algorithms.iter().map(|a| a.name()).collect();
            (format!("alg one of {names:?}"), show(header.fields.get("alg")))
        })?;
        let found = self.key(trusted, &header, now).await;
        let (key, epoch) = observer.observe("key", found, || {
            let expected = "one key of the issuer for the token's kid and alg".to_owned();
            (expected, format!("kid {}", show(header.fields.get("kid"))))
        })?;
        let epoch = issuer.epoch(epoch);
        *signer = Some((Arc::clone(issuer), epoch));
        let verified = key.verify(algorithm, compact.signing_input, &compact.signature);
        observer.observe("signature", verified, || {
            let expected = format!("a signature by that key with {algorithm}");
            (expected, format!("{} bytes", compact.signature.len()))
        })?;
        let verdict = claims::judge(observer, trusted, &header, claims, epoch, now)?;
        let revoked = if self.revocations.is_revoked(&verdict) { Err(TokenError::Revoked) } else { Ok(()) };
        observer.observe("revocation", revoked, || {
            let subject = verdict.caller.subject.as_deref().unwrap_or("absent");
            ("a subject that is not revoked".to_owned(), format!("sub {subject:?}"))
        })?;
        Ok(verdict)
    }

    /// Whose token it claims to be: `iss`, compared exactly (RFC 7519 §4.1.1). Claims are looked at
    /// before the signature for this alone.
    fn trusted(&self, claims: &Map<String, Value>) -> Result<&Trusted, TokenError> {
        match claims.get("iss") {
            None => Err(TokenError::ClaimMissing("iss")),
            Some(Value::String(iss)) => self.trusted.get(iss.as_str()).ok_or(TokenError::IssuerUnknown),
            Some(_) => Err(TokenError::ClaimInvalid("iss")),
        }
    }

    async fn key(
        &self,
        trusted: &Trusted,
        header: &Header,
        now: Timestamp,
    ) -> Result<(Arc<Key>, u64), TokenError> {
        let found = match &trusted.issuer.source {
            Source::Fixed(keys) => Source::select(header, Some(keys)),
            Source::Local(keys) => Source::select(header, keys.load().as_deref()),
            Source::Remote(remote) => match self.key_at_hand(remote, header, now) {
                // Boxed: the rare way must not make the future of the usual one larger.
                Err(TokenError::KeyUnknown | TokenError::KeysUnavailable) => {
                    Box::pin(self.fetched_key(remote, header, now)).await
                }
                found => found,
            },
        }?;
        match &trusted.tenant {
            Some(tenant) if !entra::key_serves(found.0.issuer.as_deref(), tenant) => {
                Err(TokenError::KeyMismatch)
            }
            _ => Ok(found),
        }
    }

    fn key_at_hand(
        &self,
        remote: &Arc<Remote>,
        header: &Header,
        now: Timestamp,
    ) -> Result<(Arc<Key>, u64), TokenError> {
        if remote.is_due(now.mono) {
            // Ahead of need: this request goes on with the keys at hand.
            let _ = remote.start(&self.fetch, now.mono, Why::Due);
        }
        remote.select(header, now.mono)
    }

    async fn fetched_key(
        &self,
        remote: &Arc<Remote>,
        header: &Header,
        now: Timestamp,
    ) -> Result<(Arc<Key>, u64), TokenError> {
        let unusable = matches!(remote.select(header, now.mono), Err(TokenError::KeysUnavailable));
        let why = if unusable { Why::Due } else { Why::UnknownKey };
        if let Some(flight) = remote.start(&self.fetch, now.mono, why) {
            remote.landed(flight).await;
        }
        remote.select(header, now.mono)
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<_> = self.issuers.keys().collect();
        names.sort();
        f.debug_struct("Authenticator").field("issuers", &names).finish_non_exhaustive()
    }
}

/// Bytes of a header as text, cut to 200 characters.
fn quote(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(200).collect()
}

//! Caches of verdicts: of a connection's last token, of an issuer's recent tokens, and of tokens with an invalid
//! signature.
//!
//! A cached verdict replaces the verification and nothing else. Its validity (times, key, issuer configuration,
//! revocations) is checked on each use, and the route's access requirement is compared with it each time.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use cardea_cache::{Entry, Lifetime, Limits, LimitsError, Sharded};
use cardea_clock::{Mono, Timestamp};

use crate::issuer::Issuer;
use crate::keyset::KeyEpoch;
use crate::verdict::Verdict;

/// No verdict is cached for longer, whatever its token states.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// The memory for an issuer's verdicts, in bytes for each of `verdicts_max`. Tokens are rarely larger than 1 KiB, and
/// their claims in memory take about three times as much.
const BYTES_PER_VERDICT: usize = 4096;
/// The memory of a verdict without its token and claims, in bytes.
const VERDICT_BYTES: usize = 512;
/// How many different protected headers of one issuer are learnt until one of its keys is removed or changed. An issuer
/// normally has one per key; one that varies them more has no cache hits, at no cost to the others.
const HEADERS_PER_ISSUER: usize = 16;
/// How many issuers may have the same header: those without key ids.
const ISSUERS_PER_HEADER: usize = 8;
/// The most cached invalid signatures, their total size and their lifetime: a flood of one bad token costs one
/// verification a minute. Nothing here depends on what such a token claims.
const FAILURES_MAX: usize = 4096;
const FAILURES_BYTES_MAX: usize = 4 * 1024 * 1024;
const FAILURE_LIFETIME: Duration = Duration::from_secs(60);
/// The most expired entries of a shard that one call removes, which bounds how long it holds the lock.
const RECLAIMED_MAX: usize = 256;
/// The shards of the shared caches. More of them brought no measurable gain.
const SHARDS: usize = 64;

/// A verdict that is held for a request, or for as long as its connection uses the token.
///
/// Each connection has its own reference count: otherwise all processors would write the count of a token that many
/// connections use.
#[derive(Debug, Clone)]
pub struct VerdictRef(Arc<Holder>);

#[derive(Debug)]
struct Holder(Arc<VerifiedToken>);

impl VerdictRef {
    pub(crate) fn new(known: Arc<VerifiedToken>) -> Self {
        Self(Arc::new(Holder(known)))
    }

    /// The token that it is about.
    pub(crate) fn token(&self) -> &[u8] {
        &self.0.0.token
    }
}

impl Deref for VerdictRef {
    type Target = Verdict;

    fn deref(&self) -> &Verdict {
        &self.0.0.verdict
    }
}

/// The source of a verdict, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictSource {
    /// The connection's last token was used again.
    Connection,
    /// Another connection used the token before.
    Cache,
    /// The token was verified.
    Verification,
}

impl VerdictSource {
    /// The label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Cache => "cache",
            Self::Verification => "verification",
        }
    }
}

/// A connection's last token and its verdict. It is looked up with the bytes of a token: a request without one is
/// anonymous, whatever came before.
///
/// A request borrows the verdict and [puts it back](ConnectionTokenCache::put_back). For consecutive requests, no count
/// is written and no lock taken. Concurrent requests have clones.
#[derive(Clone, Default)]
pub struct ConnectionTokenCache {
    verdict: Option<VerdictRef>,
    /// The authenticator that produced the verdict.
    configuration: u64,
}

impl ConnectionTokenCache {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self { verdict: None, configuration: 0 }
    }

    /// Stores a verdict that [`Authenticator::identify`](crate::Authenticator::identify) returned last for this slot.
    /// One that is not put back is looked up in the issuer's cache next time.
    pub fn put_back(&mut self, verdict: VerdictRef) {
        self.verdict = Some(verdict);
    }

    /// Whether both contain the same verdict.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let same = match (&self.verdict, &other.verdict) {
            (Some(one), Some(two)) => Arc::ptr_eq(&one.0, &two.0),
            (one, two) => one.is_none() && two.is_none(),
        };
        same && self.configuration == other.configuration
    }

    /// The verdict, if these bytes are those of the last token and `holds` accepts it.
    pub(crate) fn take(
        &mut self,
        token: &[u8],
        holds: impl FnOnce(&VerifiedToken, u64) -> bool,
    ) -> Option<VerdictRef> {
        let known = &*self.verdict.as_ref()?.0.0;
        if known.is(token) && holds(known, self.configuration) { self.verdict.take() } else { None }
    }

    /// A verdict of that configuration to be put back. It reuses the allocation of the last one if nobody else holds
    /// that.
    pub(crate) fn hold(&mut self, known: Arc<VerifiedToken>, configuration: u64) -> VerdictRef {
        self.configuration = configuration;
        if let Some(VerdictRef(mut last)) = self.verdict.take()
            && let Some(holder) = Arc::get_mut(&mut last)
        {
            holder.0 = known;
            return VerdictRef(last);
        }
        VerdictRef::new(known)
    }

    /// Clears the slot, after any token that failed.
    pub(crate) fn clear(&mut self) {
        self.verdict = None;
    }
}

impl fmt::Debug for ConnectionTokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionTokenCache").finish_non_exhaustive()
    }
}

/// A token with its verdict. The fields that a hit reads come first.
pub(crate) struct VerifiedToken {
    token: Box<[u8]>,
    signature_start: usize,
    /// The epoch of its issuer's keys.
    key_epoch: Arc<KeyEpoch>,
    pub(crate) verdict: Verdict,
}

impl VerifiedToken {
    pub(crate) fn new(token: &[u8], verdict: Verdict, key_epoch: &Arc<KeyEpoch>) -> Arc<Self> {
        let signature_start = signature_start(token);
        Arc::new(Self { token: token.into(), signature_start, key_epoch: Arc::clone(key_epoch), verdict })
    }

    /// Whether the verdict is within its window and its issuer's keys are unchanged, if the issuer's configuration is.
    pub(crate) fn stands(&self, now: Timestamp) -> bool {
        // The other half of an epoch is that of the configuration.
        let same = |epoch: u64| (epoch ^ self.verdict.epoch) & 0xffff_ffff == 0;
        self.verdict.is_valid_at(now) && self.key_epoch.epoch(now.mono).is_some_and(same)
    }

    /// Whether these are the token's bytes. The time reveals nothing to a caller with part of a signature: the
    /// signature is compared first, and in full.
    fn is(&self, token: &[u8]) -> bool {
        if self.token.len() != token.len() {
            return false;
        }
        let at = self.signature_start;
        let (Some((signed, signature)), Some((other, others))) =
            (self.token.split_at_checked(at), token.split_at_checked(at))
        else {
            return false;
        };
        differing(signature, others) == 0 && signed == other
    }
}

/// The token is a credential: only its length is shown.
impl fmt::Debug for VerifiedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known")
            .field("token", &format_args!("[{} bytes redacted]", self.token.len()))
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

/// Zero if both slices, which have the same length, are equal. It takes the same time wherever they differ. It compares
/// eight octets at a time, because every request needs it.
fn differing(one: &[u8], other: &[u8]) -> u64 {
    let ((words, rest), (others, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let words = words.iter().zip(others).fold(0, |bits, (one, two)| bits | (word(one) ^ word(two)));
    let rest = rest.iter().zip(other_rest).fold(0, |bits, (one, two)| bits | (one ^ two));
    std::hint::black_box(words | u64::from(rest))
}

/// The start of the last segment.
fn signature_start(token: &[u8]) -> usize {
    memchr::memrchr(b'.', token).map_or(0, |dot| dot + 1)
}

/// The protected header in its encoded form: the bytes up to the first dot.
fn header_of(token: &[u8]) -> Option<&[u8]> {
    token.get(..memchr::memchr(b'.', token)?)
}

/// A token as the key of a cache: hashed by its signature, which differs between accepted tokens, and compared in full.
trait Token {
    fn bytes(&self) -> &[u8];
}

struct TokenKey(Arc<VerifiedToken>);

impl Token for TokenKey {
    fn bytes(&self) -> &[u8] {
        &self.0.token
    }
}

impl Token for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Hash for dyn Token + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let token = self.bytes();
        state.write(token.get(signature_start(token)..).unwrap_or_default());
    }
}

impl PartialEq for dyn Token + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for dyn Token + '_ {}

impl Hash for TokenKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self as &dyn Token).hash(state);
    }
}

impl PartialEq for TokenKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for TokenKey {}

impl<'a> Borrow<dyn Token + 'a> for TokenKey {
    fn borrow(&self) -> &(dyn Token + 'a) {
        self
    }
}

/// The verdicts of one issuer. Each issuer has its own table, so that none can evict another's entries.
///
/// Only accepted tokens are stored, so the hash need not withstand deliberate collisions: it is fast, and randomly
/// seeded.
pub(crate) struct IssuerVerdicts(Sharded<TokenKey, Arc<VerifiedToken>, foldhash::quality::RandomState>);

impl IssuerVerdicts {
    /// A table for that many verdicts; 0 disables it.
    pub(crate) fn new(verdicts_max: usize) -> Result<Self, LimitsError> {
        let limits = Limits {
            entries: verdicts_max,
            bytes: verdicts_max.saturating_mul(BYTES_PER_VERDICT),
            lifetime: Lifetime::Own { max: LIFETIME_MAX },
        };
        // The claims are the payload, which is three quarters of most tokens, and take a multiple of it.
        let weigh = |_: &TokenKey, known: &Arc<VerifiedToken>| VERDICT_BYTES + known.token.len() * 3;
        Sharded::weighed(limits, SHARDS, weigh, foldhash::quality::RandomState::default()).map(Self)
    }

    fn get(&self, token: &[u8], now: Mono) -> Option<Arc<VerifiedToken>> {
        self.0.get(&token as &dyn Token, now)
    }

    fn remove(&self, token: &[u8]) {
        drop(self.0.remove(&token as &dyn Token));
    }

    fn insert(&self, known: Arc<VerifiedToken>, now: Mono) {
        let deadline = Some(known.verdict.deadline);
        let entry = Entry { key: TokenKey(Arc::clone(&known)), value: known, deadline };
        // If it is not stored, the token is verified again.
        let _ = self.0.insert_entry(entry, now);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn reclaim(&self, now: Mono) {
        self.0.reclaim(RECLAIMED_MAX, now);
    }
}

/// The caches that all connections share.
pub(crate) struct VerdictCache {
    /// The issuers whose tokens begin with a header, learnt from verified tokens.
    headers: ArcSwap<Headers>,
    learning: Mutex<()>,
    failures: Arc<Failures>,
    /// The number of tokens that had to be verified.
    pub(crate) verifications: Arc<AtomicU64>,
}

type Headers = HashMap<Box<[u8]>, Vec<Owner>, foldhash::fast::RandomState>;

/// An issuer whose tokens have a header, and its epoch when that was learnt.
#[derive(Clone)]
struct Owner {
    issuer: Arc<Issuer>,
    epoch: u64,
}

impl Owner {
    fn is(&self, issuer: &Arc<Issuer>) -> bool {
        Arc::ptr_eq(&self.issuer, issuer)
    }
}

impl VerdictCache {
    /// An empty cache with the failures and the count of the previous configuration.
    pub(crate) fn new(previous: Option<&Self>) -> Result<Self, LimitsError> {
        let failures = match previous {
            Some(previous) => Arc::clone(&previous.failures),
            None => Arc::new(Failures::new()?),
        };
        let verifications = previous.map(|previous| Arc::clone(&previous.verifications)).unwrap_or_default();
        Ok(Self { headers: ArcSwap::default(), learning: Mutex::new(()), failures, verifications })
    }

    /// The cached verdict of a token, if `holds` accepts it.
    pub(crate) fn find(
        &self,
        token: &[u8],
        now: Mono,
        holds: impl Fn(&VerifiedToken) -> bool,
    ) -> Option<Arc<VerifiedToken>> {
        let headers = self.headers.load();
        headers.get(header_of(token)?)?.iter().find_map(|Owner { issuer, .. }| {
            let known = issuer.verdicts.get(token, now)?;
            if holds(&known) {
                return Some(known);
            }
            issuer.verdicts.remove(token);
            None
        })
    }

    /// Stores a verdict that was just reached.
    pub(crate) fn keep(&self, known: Arc<VerifiedToken>, issuer: &Arc<Issuer>, now: Mono) {
        if let Some(header) = header_of(&known.token)
            && (self.knows(header, issuer) || self.learn(header, issuer, known.verdict.epoch))
        {
            issuer.verdicts.insert(known, now);
        }
    }

    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    fn knows(&self, header: &[u8], issuer: &Arc<Issuer>) -> bool {
        let headers = self.headers.load();
        headers.get(header).is_some_and(|owners| owners.iter().any(|owner| owner.is(issuer)))
    }

    /// Whether the header now belongs to the issuer.
    fn learn(&self, header: &[u8], issuer: &Arc<Issuer>, epoch: u64) -> bool {
        let _one_at_a_time = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        if self.knows(header, issuer) {
            return true;
        }
        let mut headers = Headers::clone(&self.headers.load());
        // Headers of removed keys may no longer be sent.
        headers.retain(|_, owners| {
            owners.retain(|owner| !owner.is(issuer) || owner.epoch == epoch);
            !owners.is_empty()
        });
        let known = headers.values().flatten().filter(|owner| owner.is(issuer)).count();
        let owners = headers.entry(header.into()).or_default();
        if known >= HEADERS_PER_ISSUER || owners.len() >= ISSUERS_PER_HEADER {
            return false;
        }
        owners.push(Owner { issuer: Arc::clone(issuer), epoch });
        self.headers.store(Arc::new(headers));
        true
    }
}

/// Tokens whose signature doesn't match the key that they name.
pub(crate) struct Failures(Sharded<Arc<[u8]>, Failed>);

/// The issuer of that key and its epoch: with another key the token may be valid.
#[derive(Clone)]
pub(crate) struct Failed {
    /// The issuer's name in the configuration.
    pub(crate) issuer: Arc<str>,
    pub(crate) epoch: u64,
}

impl Failures {
    fn new() -> Result<Self, LimitsError> {
        let limits = Limits {
            entries: FAILURES_MAX,
            bytes: FAILURES_BYTES_MAX,
            lifetime: Lifetime::Same(FAILURE_LIFETIME),
        };
        Sharded::weighed(limits, SHARDS, |token: &Arc<[u8]>, _| token.len(), std::hash::RandomState::new())
            .map(Self)
    }

    pub(crate) fn get(&self, token: &[u8], now: Mono) -> Option<Failed> {
        self.0.get(token, now)
    }

    pub(crate) fn reclaim(&self, now: Mono) {
        self.0.reclaim(RECLAIMED_MAX, now);
    }

    pub(crate) fn insert(&self, token: &[u8], failed: Failed, now: Mono) {
        let _ = self.0.insert(token.into(), failed, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slots_token_is_compared_to_its_last_byte() {
        let known = VerifiedToken::new(b"aa.bb.cccc", Verdict::inverted(), &Arc::default());
        assert!(known.is(b"aa.bb.cccc"));
        for at in 0..known.token.len() {
            let flip = |(index, byte): (usize, &u8)| if index == at { byte ^ 1 } else { *byte };
            let other: Vec<u8> = known.token.iter().enumerate().map(flip).collect();
            assert!(!known.is(&other), "{}", String::from_utf8_lossy(&other));
        }
        for other in [&b""[..], b"aa.bb.ccc", b"aa.bb.ccccc", b"cccc"] {
            assert!(!known.is(other));
        }
    }

    #[test]
    fn tokens_with_one_signature_share_a_hash_and_nothing_else() {
        let hash = |token: &[u8]| {
            let mut hasher = std::hash::DefaultHasher::new();
            (&token as &dyn Token).hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(b"a.b.sig"), hash(b"x.y.sig"));
        assert_ne!(hash(b"a.b.sig"), hash(b"a.b.gis"));
        let verdicts = IssuerVerdicts::new(1024).unwrap();
        let now = Mono::from_nanos(1);
        let deadline = now.saturating_add(Duration::from_secs(600));
        let known = |token: &[u8], epoch| {
            VerifiedToken::new(token, Verdict { deadline, epoch, ..Verdict::inverted() }, &Arc::default())
        };
        verdicts.insert(known(b"a.b.sig", 1), now);
        assert!(verdicts.get(b"x.y.sig", now).is_none());
        verdicts.insert(known(b"x.y.sig", 2), now);
        let epoch = |token: &[u8]| verdicts.get(token, now).map(|known| known.verdict.epoch);
        assert_eq!((epoch(b"a.b.sig"), epoch(b"x.y.sig")), (Some(1), Some(2)));
        assert!(verdicts.get(b"a.b.sig", deadline).is_none(), "not after its deadline");
    }
}

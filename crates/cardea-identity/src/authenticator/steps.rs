//! The verification of a token, step by step, in the order of RFC 7519 §7.2 and RFC 7515 §5.2.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cardea_clock::Timestamp;
use serde_json::{Map, Value};

use super::Authenticator;
use crate::algorithm::Algorithm;
use crate::check::{Observer, Silent, show};
use crate::claims;
use crate::entra;
use crate::error::TokenError;
use crate::issuer::{Issuer, Trusted};
use crate::json;
use crate::jwk::Key;
use crate::jws::{Compact, Header, TOKEN_BYTES_MAX};
use crate::keyset::IssuerKeys;
use crate::remote::{FetchReason, Remote};
use crate::verdict::Verdict;
use crate::verdict_cache::VerdictRef;

/// A token that names a trusted issuer and an algorithm that the issuer may use. Nothing of it is proven yet.
struct Presented<'a> {
    compact: Compact<'a>,
    header: Header,
    claims: Map<String, Value>,
    trusted: &'a Trusted,
    algorithm: Algorithm,
}

impl Authenticator {
    /// The steps, in the order of RFC 7519 §7.2 and RFC 7515 §5.2. `signer` receives the issuer whose key is tried, and
    /// the epoch.
    pub(super) async fn run(
        &self,
        token: &[u8],
        now: Timestamp,
        observer: &mut impl Observer,
        signer: &mut Option<(Arc<Issuer>, u64)>,
    ) -> Result<Verdict, TokenError> {
        let presented = self.present(token, observer)?;
        let found = self.key(presented.trusted, &presented.header, now).await;
        self.conclude(presented, found, now, observer, signer)
    }

    /// The steps before the key is known.
    fn present<'a>(
        &'a self,
        token: &'a [u8],
        observer: &mut impl Observer,
    ) -> Result<Presented<'a>, TokenError> {
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
        Ok(Presented { compact, header, claims, trusted, algorithm })
    }

    /// The steps from the key on.
    fn conclude(
        &self,
        presented: Presented<'_>,
        found: Result<(Arc<Key>, u64), TokenError>,
        now: Timestamp,
        observer: &mut impl Observer,
        signer: &mut Option<(Arc<Issuer>, u64)>,
    ) -> Result<Verdict, TokenError> {
        let Presented { compact, header, claims, trusted, algorithm } = presented;
        let issuer = &trusted.issuer;
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

    /// The issuer that the token claims to be from: `iss`, compared exactly (RFC 7519 §4.1.1). Claims are read before
    /// the signature is verified for this purpose only.
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
            IssuerKeys::Remote(remote) => {
                if remote.is_due(now.mono) {
                    // A fetch ahead of time: this request continues with the known keys.
                    let _ = remote.start(&self.fetch, now.mono, FetchReason::Due);
                }
                match Self::key_at_hand(trusted, header, now) {
                    Err(TokenError::KeyUnknown | TokenError::KeysUnavailable) => {
                        // Boxed, so that this rare path doesn't enlarge the future of the common one.
                        Box::pin(self.fetched_key(remote, header, now)).await
                    }
                    found => found,
                }
            }
            IssuerKeys::Fixed(_) | IssuerKeys::Local(_) => Self::key_at_hand(trusted, header, now),
        }?;
        Self::serving(trusted, found)
    }

    /// Among the keys that are known.
    fn key_at_hand(
        trusted: &Trusted,
        header: &Header,
        now: Timestamp,
    ) -> Result<(Arc<Key>, u64), TokenError> {
        match &trusted.issuer.source {
            IssuerKeys::Fixed(keys) => IssuerKeys::select(header, Some(keys)),
            IssuerKeys::Local(keys) => IssuerKeys::select(header, keys.load().as_deref()),
            IssuerKeys::Remote(remote) => remote.select(header, now.mono),
        }
    }

    /// A key that was found, if it serves the tenant.
    fn serving(trusted: &Trusted, found: (Arc<Key>, u64)) -> Result<(Arc<Key>, u64), TokenError> {
        match &trusted.tenant {
            Some(tenant) if !entra::key_serves(found.0.issuer.as_deref(), tenant) => {
                Err(TokenError::KeyMismatch)
            }
            _ => Ok(found),
        }
    }

    async fn fetched_key(
        &self,
        remote: &Arc<Remote>,
        header: &Header,
        now: Timestamp,
    ) -> Result<(Arc<Key>, u64), TokenError> {
        let unusable = matches!(remote.select(header, now.mono), Err(TokenError::KeysUnavailable));
        let why = if unusable { FetchReason::Due } else { FetchReason::UnknownKey };
        if let Some(flight) = remote.start(&self.fetch, now.mono, why) {
            remote.landed(flight).await;
        }
        remote.select(header, now.mono)
    }

    /// All steps of the verification but the end of the token's validity, with the keys at hand.
    pub(super) fn verify_again(
        &self,
        held: &VerdictRef,
        now: Timestamp,
    ) -> Result<(Verdict, Arc<Issuer>), TokenError> {
        self.memory.verifications.fetch_add(1, Ordering::Relaxed);
        let presented = self.present(held.token(), &mut Silent)?;
        let issuer = Arc::clone(&presented.trusted.issuer);
        let key = Self::key_at_hand(presented.trusted, &presented.header, now)
            .and_then(|found| Self::serving(presented.trusted, found));
        let at = Timestamp { wall: claims::until_expiry(&presented.claims, now.wall), mono: now.mono };
        let mut verdict = self.conclude(presented, key, at, &mut Silent, &mut None)?;
        verdict.deadline = now.mono.saturating_add(verdict.not_after.saturating_since(now.wall));
        Ok((verdict, issuer))
    }
}

/// Bytes of a header as text, cut to 200 characters.
fn quote(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(200).collect()
}

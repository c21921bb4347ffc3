//! A chain of secrets, one per hour, each derived from the previous one.

use std::collections::VecDeque;
use std::time::Duration;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use cardea_clock::Wall;
use zeroize::Zeroizing;

pub(crate) const SECRET_LEN: usize = 32;
/// How long a secret is used for new tickets.
pub(crate) const STEP: Duration = Duration::from_secs(3_600);
/// The most steps at once: ten years, which take a tenth of a second.
const CHAIN_MAX: u64 = 10 * 366 * 24;
const TOO_OLD: &str = "is older than ten years; write a new one";

pub(crate) type Secret = Zeroizing<[u8; SECRET_LEN]>;

/// The hour of a time, from the Unix epoch.
pub(crate) fn step_at(now: Wall) -> u64 {
    u64::try_from(now.unix_seconds()).unwrap_or(0) / STEP.as_secs()
}

/// HKDF-Expand (RFC 5869 §2.3) of `secret` to another secret; `info` must begin with its purpose.
pub(crate) fn expand(secret: &[u8; SECRET_LEN], info: &[&[u8]]) -> Option<Secret> {
    struct Len;
    impl KeyType for Len {
        fn len(&self) -> usize {
            SECRET_LEN
        }
    }
    let mut out = Secret::default();
    Prk::new_less_safe(HKDF_SHA256, secret).expand(info, Len).ok()?.fill(&mut *out).ok()?;
    Some(out)
}

/// The secret of the chain after `steps` hours.
pub(crate) fn move_on(mut secret: Secret, steps: u64) -> Result<Secret, &'static str> {
    if steps > CHAIN_MAX {
        return Err(TOO_OLD);
    }
    for _ in 0..steps {
        secret = next(&secret)?;
    }
    Ok(secret)
}

fn next(secret: &Secret) -> Result<Secret, &'static str> {
    expand(secret, &[b"cardea ticket chain"]).ok_or("can't be moved on")
}

/// The secrets of the current and recent hours, and the link from which the chain continues. Dropped ones are wiped.
#[derive(Clone)]
pub(crate) struct Ring {
    first: u64,
    /// The secrets from hour `first` to the hour after now. No other secret can be derived from them.
    secrets: VecDeque<Secret>,
    chain: Secret,
}

impl Ring {
    /// Starts with the link of hour `begin`, and advances to the hour `confirmed`.
    pub(crate) fn new(
        begin: u64,
        chain: Secret,
        now: u64,
        confirmed: u64,
        kept: u64,
    ) -> Result<Self, &'static str> {
        if begin > now + 1 {
            return Err("begins in the future; check its first number and the clock");
        }
        if now.saturating_sub(kept).saturating_sub(begin) > CHAIN_MAX {
            return Err(TOO_OLD);
        }
        let upto = confirmed.min(now).max(begin);
        let first = begin.max(upto.saturating_sub(kept));
        let chain = move_on(chain, first - begin)?;
        let mut ring = Self { first, secrets: VecDeque::new(), chain };
        ring.advance(upto, kept);
        Ok(ring)
    }

    /// The oldest kept hour.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// Whether no secret must be derived or wiped at this hour. That is true if the clock was set back.
    pub(crate) fn is_current(&self, now: u64) -> bool {
        now + 1 < self.end()
    }

    /// Derives the secrets up to the hour after `now`, and wipes those older than `kept` hours.
    pub(crate) fn advance(&mut self, now: u64, kept: u64) {
        if now.saturating_sub(self.end()) > CHAIN_MAX {
            // The clock is far off. There are no secrets for such a time, so nothing is resumed.
            return;
        }
        while self.end() <= now + 1 {
            let made = expand(&self.chain, &[b"cardea ticket hour"]).zip(next(&self.chain).ok());
            let Some((secret, chain)) = made else { return };
            self.secrets.push_back(secret);
            self.chain = chain;
            // Keeps the number of secrets bounded meanwhile.
            self.wipe(now, kept);
        }
        self.wipe(now, kept);
    }

    /// The secret of a kept hour.
    pub(crate) fn secret(&self, step: u64) -> Option<&[u8; SECRET_LEN]> {
        let index = usize::try_from(step.checked_sub(self.first)?).ok()?;
        self.secrets.get(index).map(|secret| &**secret)
    }

    fn end(&self) -> u64 {
        self.first + self.secrets.len() as u64
    }

    fn wipe(&mut self, now: u64, kept: u64) {
        while self.first + kept < now && self.secrets.pop_front().is_some() {
            self.first += 1;
        }
    }
}

//! When certificates are renewed, and when what failed is tried again. Pure: time and chance are arguments.

use std::time::{Duration, SystemTime};

use cardea_clock::Wall;

/// What an authority may ask us to wait: beyond it, its answer is taken for a mistake and cut.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);

/// What was issued and can't be served is replaced after this time: here, no authority can help soon.
const REPLACED_AFTER: Duration = Duration::from_secs(3_600);

/// However soon an authority suggests it, a certificate is not replaced before this time.
const SUGGESTED_AFTER: Duration = Duration::from_secs(3_600);

/// When an authority is asked again that did not say when it wants a certificate to be renewed.
const UNANSWERED: Duration = Duration::from_secs(6 * 3_600);

/// Renewals are spread over this part of a lifetime, in percent, so that those of many hosts that began together part.
const SPREAD_PERCENT: u32 = 2;

/// Why an attempt failed, as far as it matters to when the next one is made and to what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The authority can't be talked to: the network, its name, its certificate, its silence.
    Unreachable,
    /// The authority is in trouble itself (5xx).
    AuthorityFailed,
    /// It was asked too often (RFC 8555 §6.6).
    RateLimited,
    /// It does not know the account any more, or does not want it.
    Account,
    /// It refuses to issue: a host that it does not serve, a record that forbids it (CAA).
    Refused,
    /// It could not see that the host is ours.
    Challenge,
    /// It said what the protocol does not allow, or issued what can't be served.
    BadAnswer,
    /// Something on our side: the database, a key.
    Internal,
}

impl Reason {
    /// All of them, for metrics.
    pub(crate) const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::AuthorityFailed,
        Self::RateLimited,
        Self::Account,
        Self::Refused,
        Self::Challenge,
        Self::BadAnswer,
        Self::Internal,
    ];

    /// Its name in logs, metrics and the database.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::AuthorityFailed => "authority_failed",
            Self::RateLimited => "rate_limited",
            Self::Account => "account",
            Self::Refused => "refused",
            Self::Challenge => "challenge",
            Self::BadAnswer => "bad_answer",
            Self::Internal => "internal",
        }
    }

    /// The first wait, and the longest. What costs the authority nothing is tried again soon; what it counts is not:
    /// public authorities allow five failed validations of a host in an hour.
    fn waits(self) -> (Duration, Duration) {
        const MINUTE: u64 = 60;
        let (first, longest) = match self {
            Self::Unreachable | Self::AuthorityFailed | Self::Internal => (MINUTE / 2, 60 * MINUTE),
            Self::Challenge | Self::BadAnswer => (5 * MINUTE, 12 * 60 * MINUTE),
            Self::RateLimited | Self::Account | Self::Refused => (60 * MINUTE, 24 * 60 * MINUTE),
        };
        (Duration::from_secs(first), Duration::from_secs(longest))
    }
}

/// When the next attempt is made after the `failures`th in a row, the first being 1: after a wait that doubles, plus up to
/// a quarter of it by `chance` (of 2^32), but not before the authority wants to be asked.
pub(super) fn next_attempt(
    reason: Reason,
    failures: u32,
    asked_until: Option<Wall>,
    chance: u32,
    now: Wall,
) -> Wall {
    let (first, longest) = reason.waits();
    let doubled = first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let wait = doubled.min(longest);
    let jitter = part(wait / 4, chance);
    let next = now.saturating_add(wait).saturating_add(jitter);
    match asked_until {
        Some(until) => next.max(until.min(now.saturating_add(RETRY_AFTER_MAX)).saturating_add(jitter)),
        None => next,
    }
}

/// When a certificate is renewed: once less than `percent` of its lifetime are left, earlier by up to 2 % of it by `chance`
/// (of 2^32), which is to be the same for a certificate whenever it is asked. Never before a tenth of the time is over that
/// was left when it was issued: an authority that dates it back must not be asked in a loop.
pub(super) fn renewal(
    (not_before, not_after): (Wall, Wall),
    issued_at: Wall,
    percent: u32,
    chance: u32,
) -> Wall {
    let lifetime = not_after.saturating_since(not_before);
    let ahead = lifetime / 100 * percent + part(lifetime / 100 * SPREAD_PERCENT, chance);
    let earliest = issued_at.saturating_add(not_after.saturating_since(issued_at) / 10);
    not_after.saturating_sub(ahead).max(earliest)
}

/// When a certificate is renewed whose authority suggests from when to when: at the instant between them that `chance` (of
/// 2^32) picks, at once where that is over (RFC 9773 §4.2). Not in the first hour, nor while a tenth of its time isn't over:
/// an authority that always says "now" must not be asked in a loop. At the latest when a tenth of its time is left.
pub(super) fn suggested((from, until): (Wall, Wall), not_after: Wall, issued_at: Wall, chance: u32) -> Wall {
    let at = from.saturating_add(part(until.saturating_since(from), chance));
    let tenth = not_after.saturating_since(issued_at) / 10;
    at.min(not_after.saturating_sub(tenth)).max(issued_at.saturating_add(tenth.min(SUGGESTED_AFTER)))
}

/// When the authority is asked again when it wants a certificate to be renewed, if it wants to be asked after `wait`: within
/// a day, and not every minute (RFC 9773 §4.3.2). Where it gave no answer, after six hours (§4.3.3).
pub(super) fn next_question(wait: Option<Duration>, now: Wall) -> Wall {
    const MINUTE: Duration = Duration::from_secs(60);
    let wait = wait.map_or(UNANSWERED, |wait| wait.clamp(MINUTE, RETRY_AFTER_MAX));
    now.saturating_add(wait)
}

/// When another certificate is ordered in the place of one that was issued but can't be served.
pub(super) fn replacement(issued_at: Wall) -> Wall {
    issued_at.saturating_add(REPLACED_AFTER)
}

fn part(of: Duration, chance: u32) -> Duration {
    of.mul_f64(f64::from(chance) / 4_294_967_296.0)
}

/// Reads `Retry-After` (RFC 9110 §10.2.3): seconds, or a date. Nothing where it is neither; at most a day.
pub(super) fn retry_after(value: &str, now: Wall) -> Option<Wall> {
    let value = value.trim();
    let latest = now.saturating_add(RETRY_AFTER_MAX);
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        let wait = value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs);
        return Some(now.saturating_add(wait).min(latest));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Wall::from_unix_seconds(0).saturating_add(date).clamp(now, latest))
}

#[cfg(test)]
mod tests;

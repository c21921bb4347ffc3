//! The times of renewals and of retries. Pure: time and randomness are arguments.

use std::time::{Duration, SystemTime};

use cardea_clock::Wall;

/// The longest accepted `Retry-After` of an authority. Longer ones are reduced to it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The delay before a certificate that was issued but can't be served is replaced. An immediate attempt would not help.
const REPLACED_AFTER: Duration = Duration::from_secs(3_600);

/// The shortest time after which a certificate is replaced, whatever the authority suggests.
const SUGGESTED_AFTER: Duration = Duration::from_secs(3_600);

/// When an authority is asked again that gave no renewal information.
const UNANSWERED: Duration = Duration::from_secs(6 * 3_600);

/// The part of a lifetime over which renewals are spread, in percent, so that certificates with the same start are
/// renewed at different times.
const SPREAD_PERCENT: u32 = 2;

/// Why an attempt failed, as far as it affects the next attempt and the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureReason {
    /// The authority can't be reached: network, name resolution, TLS or timeout.
    Unreachable,
    /// The authority failed (5xx).
    AuthorityFailed,
    /// The rate limit of the authority was exceeded (RFC 8555 §6.6).
    RateLimited,
    /// The authority does not know or accept the account.
    Account,
    /// The authority refuses to issue: an excluded host, or a CAA record.
    Refused,
    /// The validation of a challenge failed.
    Challenge,
    /// The response violates the protocol, or the issued certificate can't be served.
    BadAnswer,
    /// A local error: the database, a key.
    Internal,
}

impl FailureReason {
    /// All reasons, for metrics.
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

    /// The name in logs, metrics and the database.
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

    /// The first and the longest delay. Attempts without cost for the authority are repeated soon; others are not,
    /// because public authorities allow five failed validations per host and hour.
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

/// When the next attempt is made after the `failures`th consecutive failure, counted from 1: after a delay that
/// doubles, plus up to a quarter of it by `chance` (of 2^32), but not before the time that the authority requested.
pub(super) fn next_attempt(
    reason: FailureReason,
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

/// When a certificate is renewed: when less than `percent` of its lifetime is left, minus up to 2 % of the lifetime by
/// `chance` (of 2^32), which must be constant for a certificate. Never before a tenth of the lifetime that was left at
/// its issuance, to prevent a loop with an authority that backdates certificates.
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

/// When a certificate is renewed whose authority suggests a window: at the instant in it that `chance` (of 2^32)
/// selects, or at once if the window has passed (RFC 9773 §4.2). Not in the first hour, nor in the first tenth of its
/// lifetime, to prevent a loop with an authority that always suggests "now". At the latest when a tenth of its lifetime
/// is left.
pub(super) fn suggested((from, until): (Wall, Wall), not_after: Wall, issued_at: Wall, chance: u32) -> Wall {
    let at = from.saturating_add(part(until.saturating_since(from), chance));
    let tenth = not_after.saturating_since(issued_at) / 10;
    at.min(not_after.saturating_sub(tenth)).max(issued_at.saturating_add(tenth.min(SUGGESTED_AFTER)))
}

/// When the authority is asked again for renewal information, if it requested `wait`: within a day, and not every
/// minute (RFC 9773 §4.3.2). Without an answer, after six hours (§4.3.3).
pub(super) fn next_question(wait: Option<Duration>, now: Wall) -> Wall {
    const MINUTE: Duration = Duration::from_secs(60);
    let wait = wait.map_or(UNANSWERED, |wait| wait.clamp(MINUTE, RETRY_AFTER_MAX));
    now.saturating_add(wait)
}

/// When a certificate that was issued but can't be served is replaced.
pub(super) fn replacement(issued_at: Wall) -> Wall {
    issued_at.saturating_add(REPLACED_AFTER)
}

fn part(of: Duration, chance: u32) -> Duration {
    of.mul_f64(f64::from(chance) / 4_294_967_296.0)
}

/// Parses `Retry-After` (RFC 9110 §10.2.3): seconds or a date, at most a day; `None` if it is neither.
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

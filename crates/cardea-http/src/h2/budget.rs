//! What a peer may do that costs us more than it (RFC 9113 §10.5), and how often.

use core::time::Duration;

/// A kind of behaviour that is normal now and then, and an attack in bulk. Each has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abuse {
    /// Streams that the peer reset before their end, or that it made us reset: malformed requests, window errors, streams
    /// above the limit.
    Resets,
    /// SETTINGS.
    Settings,
    /// PING.
    Pings,
    /// DATA without content or end, and fragments of blocks without content.
    EmptyFrames,
    /// WINDOW_UPDATE, beyond those that our DATA can have caused.
    WindowUpdates,
    /// DATA that the peer's window forces to be tiny.
    TinyWindows,
    /// Frames without an effect: of closed streams, priorities, unknown types.
    UselessFrames,
    /// Heads above the limits, and lines with an empty name.
    OversizedHeads,
    /// A block in more CONTINUATION frames, or more bytes, than any head needs.
    Continuations,
    /// Answers to the peer's frames that it doesn't read.
    UnreadAnswers,
}

impl Abuse {
    /// The stable reason code, for logs and metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Resets => "http2_resets",
            Self::Settings => "http2_settings_flood",
            Self::Pings => "http2_ping_flood",
            Self::EmptyFrames => "http2_empty_frames",
            Self::WindowUpdates => "http2_window_updates",
            Self::TinyWindows => "http2_tiny_windows",
            Self::UselessFrames => "http2_useless_frames",
            Self::OversizedHeads => "http2_oversized_heads",
            Self::Continuations => "http2_continuations",
            Self::UnreadAnswers => "http2_unread_answers",
        }
    }
}

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many at once.
    pub burst: u32,
    /// So many a second in the long run; at least 1.
    pub per_second: u32,
}

/// The budgets of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbuseLimits {
    /// [`Abuse::Resets`]. Default 200, then 20 a second: a browser that leaves a page resets all of its streams at once.
    pub resets: Rate,
    /// [`Abuse::Settings`]. Default 20, then 1 a second.
    pub settings: Rate,
    /// [`Abuse::Pings`]. Default 500, then 100 a second: clients of gRPC measure the bandwidth with them.
    pub pings: Rate,
    /// [`Abuse::EmptyFrames`]. Default 100, then 10 a second.
    pub empty_frames: Rate,
    /// [`Abuse::WindowUpdates`]. Default 1000, then 200 a second; each DATA frame that we send allows two more.
    pub window_updates: Rate,
    /// [`Abuse::TinyWindows`]. Default 500, then 50 a second.
    pub tiny_windows: Rate,
    /// [`Abuse::UselessFrames`]. Default 1000, then 200 a second.
    pub useless_frames: Rate,
    /// [`Abuse::OversizedHeads`]. Default 20, then 1 a second.
    pub oversized_heads: Rate,
}

impl Default for AbuseLimits {
    fn default() -> Self {
        let rate = |burst, per_second| Rate { burst, per_second };
        Self {
            resets: rate(200, 20),
            settings: rate(20, 1),
            pings: rate(500, 100),
            empty_frames: rate(100, 10),
            window_updates: rate(1000, 200),
            tiny_windows: rate(500, 50),
            useless_frames: rate(1000, 200),
            oversized_heads: rate(20, 1),
        }
    }
}

impl AbuseLimits {
    /// The rate of a kind, and the place of its budget. `None` for those that have a bound instead of a rate.
    const fn rate(&self, abuse: Abuse) -> Option<(usize, Rate)> {
        Some(match abuse {
            Abuse::Resets => (0, self.resets),
            Abuse::Settings => (1, self.settings),
            Abuse::Pings => (2, self.pings),
            Abuse::EmptyFrames => (3, self.empty_frames),
            Abuse::WindowUpdates => (4, self.window_updates),
            Abuse::TinyWindows => (5, self.tiny_windows),
            Abuse::UselessFrames => (6, self.useless_frames),
            Abuse::OversizedHeads => (7, self.oversized_heads),
            Abuse::Continuations | Abuse::UnreadAnswers => return None,
        })
    }
}

/// What a connection has used of its budgets: for each, the time at which all of it will be there again.
#[derive(Debug, Default)]
pub(super) struct Budgets([Duration; 8]);

impl Budgets {
    /// Charges one. False if the budget is exceeded.
    pub(super) fn charge(&mut self, now: Duration, abuse: Abuse, limits: &AbuseLimits) -> bool {
        let Some((place, rate)) = limits.rate(abuse) else { return false };
        let Some(full_at) = self.0.get_mut(place) else { return false };
        let each = Duration::from_secs(1) / rate.per_second.max(1);
        *full_at = (*full_at).max(now).saturating_add(each);
        full_at.saturating_sub(now) <= each.saturating_mul(rate.burst)
    }

    /// Gives back what the peer may have spent because of us.
    pub(super) fn refund(&mut self, abuse: Abuse, count: u32, limits: &AbuseLimits) {
        let Some((place, rate)) = limits.rate(abuse) else { return };
        let Some(full_at) = self.0.get_mut(place) else { return };
        *full_at = full_at.saturating_sub(Duration::from_secs(1) / rate.per_second.max(1) * count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_a_rate() {
        let (mut budgets, limits) = (Budgets::default(), AbuseLimits::default());
        let mut at = Duration::from_secs(5);
        let mut charge = |at| budgets.charge(at, Abuse::Resets, &limits);
        assert!((0..200).all(|_| charge(at)) && !charge(at));
        at += Duration::from_secs(1);
        // The refused one was charged too.
        assert!((0..19).all(|_| charge(at)) && !charge(at));
        assert!((0..100).all(|_| charge(Duration::from_secs(100))));
    }

    #[test]
    fn a_refund_is_bounded_by_what_was_spent() {
        let (mut budgets, limits) = (Budgets::default(), AbuseLimits::default());
        let now = Duration::from_secs(5);
        budgets.refund(Abuse::WindowUpdates, 1_000_000, &limits);
        assert!((0..1000).all(|_| budgets.charge(now, Abuse::WindowUpdates, &limits)));
        assert!(!budgets.charge(now, Abuse::WindowUpdates, &limits));
        budgets.refund(Abuse::WindowUpdates, 3, &limits);
        assert!((0..2).all(|_| budgets.charge(now, Abuse::WindowUpdates, &limits)));
        assert!(!budgets.charge(now, Abuse::WindowUpdates, &limits));
        assert!(!budgets.charge(now, Abuse::Continuations, &limits));
    }
}

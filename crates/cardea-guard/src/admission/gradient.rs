//! An adaptive limit: how many requests may be in flight, by how long a service takes to begin its responses.
//!
//! With more requests than a service processes at once, further ones only wait there. The times of responses then grow with the
//! number in flight, and nothing is gained. So the limit is lowered while responses take longer than [`TOLERANCE`] times the
//! *baseline*, and raised while they do not and the limit keeps requests waiting. The method is that of TCP Vegas (Brakmo,
//! O'Malley and Peterson, SIGCOMM 1994), as in Envoy and in Netflix's concurrency limits.
//!
//! **The baseline** is the least mean time of the last [`HISTORY`] windows. A service that is always at its limit would show
//! no time without waiting. Others admit next to no requests from time to time, to measure it. Here the limit is instead lowered to
//! nine tenths of what the service seems to process at once, for one window: the service stays busy. If responses were faster than
//! ever then, requests still waited there, and it is lowered further.
//!
//! **A slower service** is no reason for a lower limit, if what it needs for each request grew and not the wait. The two differ in what
//! a lower limit changes. If the limit is halved and the times stay, the baseline is forgotten.
//!
//! **Windows** end by count, so that a small service is not judged by few requests, and not before the service had time to respond
//! under a changed limit. **Classes** are requests of the same kind, each with its own baseline: that more requests take a route that is
//! slow is no overload.

use std::time::Duration;

use cardea_clock::Mono;

/// Times up to this multiple of the baseline are no sign of overload: means of windows vary.
const TOLERANCE: f64 = 1.5;
/// A window lasts for so long at least.
const WINDOW_MIN: Duration = Duration::from_millis(100);
/// A window has so many responses at least.
const RESPONSES_MIN: u64 = 100;
/// With fewer responses than this, those of a class are kept for the next window.
const CLASS_RESPONSES_MIN: u64 = 8;
/// The windows of the baseline.
const HISTORY: usize = 12;
/// After so many windows in a row at the limit, the baseline is measured.
const LOADED_MAX: usize = HISTORY - 3;
/// The share of what a service seems to process at once that is admitted to measure the baseline.
const MEASURING: f64 = 0.9;
/// While the measured baseline falls by more than this, it is measured with still fewer requests.
const GAIN_MIN: f64 = 1.05;
/// A limit is lowered to this share at once at most.
const CUT_MAX: f64 = 0.5;
/// A limit is raised by this share at once, where responses take as long as the baseline.
const GROWTH_MAX: f64 = 0.25;
/// If a limit is lowered to half and the times remain above this share, they are not due to the number in flight.
const REMAINING: f64 = 0.75;
/// A limit that is out of reach falls by this share in a window.
const DECAY: f64 = 1.0 / 256.0;
/// A limit that nobody knows yet. Not the ceiling, so that many gateways do not all begin with too much.
const INITIAL: f64 = 32.0;
/// More requests in flight than this multiple of those in the window before are a surge.
const SURGE: f64 = 1.5;
/// After a surge, the first responses are those of quick requests. So a window counts once the surge is so many times its mean ago.
const SURGE_MEANS: f64 = 6.0;
/// The longest time given to a service to respond under a changed limit.
const SETTLING_MAX: Duration = Duration::from_secs(1);

/// The least and the greatest value of an adaptive limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveBounds {
    /// Requests in flight that are admitted however long the service takes.
    pub floor: u32,
    /// The most requests in flight.
    pub ceiling: u32,
}

impl Default for AdaptiveBounds {
    fn default() -> Self {
        // The floor is low enough for a small service, and high enough that a limit can be measured.
        Self { floor: 8, ceiling: 10_000 }
    }
}

/// The responses of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Responses {
    /// How many.
    pub count: u64,
    /// What they have taken together.
    pub nanos: u64,
}

impl Responses {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    fn mean(self) -> f64 {
        self.nanos as f64 / self.count.max(1) as f64
    }
}

/// What a limit counts, when a window ends.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// A request has found no permit since the window began.
    pub is_full: bool,
    /// Requests in flight.
    pub in_flight: u32,
}

/// The windows of an adaptive limit, and what follows from them.
#[derive(Debug)]
pub struct Gradient {
    bounds: AdaptiveBounds,
    limit: f64,
    classes: Vec<Class>,
    window: u64,
    /// Windows in a row that had no permit left.
    loaded: usize,
    phase: Phase,
    /// The limit and the relative time from which it is being lowered.
    cut_from: Option<(f64, f64)>,
    opens: Mono,
    /// When there were last many more requests in flight than before, and how many there were in the last window.
    surged: Mono,
    in_flight: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The limit is doubled until responses take longer.
    Search,
    Follow,
    /// The baseline is measured, under another limit.
    Measure(f64),
}

#[derive(Debug, Clone)]
struct Class {
    responses: Responses,
    means: [f64; HISTORY],
}

impl Class {
    const NEW: Self = Self { responses: Responses { count: 0, nanos: 0 }, means: [f64::INFINITY; HISTORY] };

    const fn is_due(&self) -> bool {
        self.responses.count >= CLASS_RESPONSES_MIN
    }

    fn baseline(&self) -> f64 {
        self.means.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

impl Gradient {
    /// A limit of which nothing is known, or which was in force before.
    #[must_use]
    pub fn new(bounds: AdaptiveBounds, classes: usize, in_force: Option<u32>, now: Mono) -> Self {
        let limit = in_force.map_or(INITIAL, f64::from);
        Self {
            bounds,
            limit: clamp(limit, bounds),
            classes: vec![Class::NEW; classes],
            window: 0,
            loaded: 0,
            phase: Phase::Search,
            cut_from: None,
            opens: now,
            surged: now,
            in_flight: 0.0,
        }
    }

    /// The limit of a service of which nothing is known.
    #[must_use]
    pub fn initial(bounds: AdaptiveBounds) -> u32 {
        whole(INITIAL, bounds)
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> u32 {
        let limit = match self.phase {
            Phase::Measure(limit) => limit,
            Phase::Search | Phase::Follow => self.limit,
        };
        whole(limit, self.bounds)
    }

    /// From when on responses count. Those before it were still under another limit.
    #[must_use]
    pub const fn opens(&self) -> Mono {
        self.opens
    }

    /// When the window ends, if there are enough responses then.
    #[must_use]
    pub fn closes(&self) -> Mono {
        self.opens.saturating_add(WINDOW_MIN)
    }

    /// Adds the responses of each class since this was last called.
    pub fn add(&mut self, responses: &[Responses]) {
        for (class, new) in self.classes.iter_mut().zip(responses) {
            class.responses.add(*new);
        }
    }

    /// Whether the window can end.
    #[must_use]
    pub fn is_due(&self, now: Mono) -> bool {
        let count: u64 = self.classes.iter().map(|class| class.responses.count).sum();
        now >= self.closes() && count >= RESPONSES_MIN && self.classes.iter().any(Class::is_due)
    }

    /// Ends a window that is due: then there may be another limit.
    pub fn end_window(&mut self, usage: Usage, now: Mono) {
        let before = self.limit();
        let mean = self.mean();
        let in_flight = f64::from(usage.in_flight);
        let is_surge = in_flight > SURGE * self.in_flight;
        self.in_flight = in_flight;
        if is_surge {
            self.surged = self.opens;
        }
        if (now.saturating_since(self.surged).as_nanos() as f64) < SURGE_MEANS * mean {
            self.classes.iter_mut().for_each(|class| class.responses = Responses::default());
            self.opens = now;
            return;
        }
        let (ratio, gain) = self.take_window();
        match self.phase {
            // There were still requests that waited in the service.
            Phase::Measure(limit) if gain > GAIN_MIN => self.phase = Phase::Measure(limit * MEASURING),
            Phase::Measure(_) => {
                self.phase = Phase::Follow;
                self.loaded = 0;
            }
            Phase::Search | Phase::Follow if usage.is_full => self.follow(ratio),
            Phase::Search | Phase::Follow => self.decay(usage.in_flight),
        }
        self.limit = clamp(self.limit, self.bounds);
        self.opens = now;
        if self.limit() != before {
            let settling = Duration::from_nanos(mean as u64).min(SETTLING_MAX);
            self.opens = now.saturating_add(settling);
        }
    }

    /// The mean time of all responses of the window, in nanoseconds.
    fn mean(&self) -> f64 {
        let mut all = Responses::default();
        self.classes.iter().for_each(|class| all.add(class.responses));
        all.mean()
    }

    /// Enters the window in the history. How long responses took, as a multiple of the baseline; and the baseline before, as a
    /// multiple of how long they took.
    fn take_window(&mut self) -> (f64, f64) {
        let at = (self.window % HISTORY as u64) as usize;
        self.window += 1;
        let (mut count, mut ratios, mut gains) = (0.0, 0.0, 0.0);
        for class in &mut self.classes {
            let before = class.baseline();
            class.means[at] = f64::INFINITY;
            if class.is_due() {
                let responses = std::mem::take(&mut class.responses);
                let (weight, mean) = (responses.count as f64, responses.mean().max(1.0));
                class.means[at] = mean;
                count += weight;
                ratios += weight * mean / class.baseline();
                gains += weight * if before.is_finite() { before / mean } else { 1.0 };
            }
        }
        (ratios / count, gains / count)
    }

    /// The limit kept requests waiting.
    fn follow(&mut self, ratio: f64) {
        self.loaded += 1;
        if self.loaded > LOADED_MAX {
            self.phase = Phase::Measure(self.limit * MEASURING / ratio);
            return;
        }
        if ratio > TOLERANCE {
            self.phase = Phase::Follow;
            self.lower(ratio);
            return;
        }
        self.cut_from = None;
        let growth = match self.phase {
            Phase::Search => 1.0,
            _ => GROWTH_MAX * (TOLERANCE - ratio) / (TOLERANCE - 1.0),
        };
        // Small limits must grow, too.
        self.limit += (self.limit * growth).max(1.0);
    }

    fn lower(&mut self, ratio: f64) {
        let (from, first) = *self.cut_from.get_or_insert((self.limit, ratio));
        if self.limit <= from / 2.0 {
            self.cut_from = None;
            if ratio > first * REMAINING {
                self.forget();
                return;
            }
        }
        self.limit *= (TOLERANCE / ratio).max(CUT_MAX);
    }

    /// The service itself takes longer.
    fn forget(&mut self) {
        let last = (self.window.wrapping_sub(1) % HISTORY as u64) as usize;
        for class in &mut self.classes {
            let mean = class.means[last];
            class.means = [f64::INFINITY; HISTORY];
            class.means[last] = mean;
        }
    }

    /// The limit was not reached. It stays within reach, so that it is soon reached under overload.
    fn decay(&mut self, in_flight: u32) {
        self.loaded = 0;
        self.cut_from = None;
        let reach = (2.0 * f64::from(in_flight)).max(INITIAL);
        if self.limit > reach {
            self.limit = (self.limit * (1.0 - DECAY)).max(reach);
            self.phase = Phase::Search;
        }
    }
}

fn whole(limit: f64, bounds: AdaptiveBounds) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the bounds")]
    {
        clamp(limit, bounds).round() as u32
    }
}

fn clamp(limit: f64, bounds: AdaptiveBounds) -> f64 {
    // A floor above the ceiling gives way.
    limit.max(f64::from(bounds.floor)).min(f64::from(bounds.ceiling)).max(1.0)
}

#[cfg(test)]
mod tests;

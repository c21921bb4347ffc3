//! Resource pressure: what is given up ahead of a shortage of descriptors or memory.
//!
//! Once descriptors or memory are short, it is by chance who gets none: a connection, a request, or the gateway's own files. So the use
//! of both is watched, and from a part of what there is on, the gateway gives up what is of the least use, in [stages](Stage). A stage
//! ends only well below where it began, so that it does not come and go. [`Shortage`](crate::shortage::Shortage) is what remains where
//! that was not enough.

mod usage;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::Mono;

use self::usage::Usage;
use crate::gateway::Gateway;

/// How often the use of memory is read, which takes several files.
const MEMORY_EVERY: Duration = Duration::from_millis(500);

/// A stage ends so many hundredths below where it began.
const HYSTERESIS: u32 = 5;

/// How many idle connections are closed at a time at most, several times a second.
const CLOSED_AT_ONCE: usize = 256;

/// Under pressure a stream ends whose other side has taken nothing of it for so long.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// How often stalled streams are looked for.
const STALLED_EVERY: Duration = Duration::from_secs(1);

/// What may become short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// File descriptors: `RLIMIT_NOFILE`.
    Descriptors,
    /// Memory: `memory.max` and `memory.high` of the control groups, `RLIMIT_AS`.
    Memory,
}

impl Resource {
    /// All of them, in the order of their figures.
    pub const ALL: [Self; 2] = [Self::Descriptors, Self::Memory];

    /// The name in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
        }
    }
}

/// What is given up; each stage includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Nothing.
    #[default]
    None,
    /// Idle connections are closed: those to services first, then those of clients that have been idle for the longest.
    Idle,
    /// Nothing is held in the tarpit.
    Tarpit,
    /// Streams end whose other side has taken nothing of what is ready for it for a while.
    Stalled,
    /// Of clients from which there is a connection already, no further ones are accepted.
    Further,
    /// No new connections of clients are accepted, but for those of trusted proxies and Unix sockets.
    New,
}

impl Stage {
    /// All but the first.
    const ALL: [Self; 5] = [Self::Idle, Self::Tarpit, Self::Stalled, Self::Further, Self::New];

    /// The name in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Idle => "idle connections",
            Self::Tarpit => "tarpit",
            Self::Stalled => "stalled streams",
            Self::Further => "further connections",
            Self::New => "new connections",
        }
    }

    /// The use from which on it is in force, in percent, where the first one begins at `from`. The others divide what is left.
    fn begins(self, from: u32) -> u32 {
        let left = 100_u32.saturating_sub(from);
        from + left * (self as u32).saturating_sub(1) / Self::ALL.len() as u32
    }

    /// The stage after this one, at a use in percent.
    fn next(self, used: u32, from: u32) -> Self {
        let begun = Self::ALL.into_iter().rfind(|stage| used >= stage.begins(from)).unwrap_or_default();
        let kept =
            Self::ALL.into_iter().rfind(|stage| *stage <= self && used + HYSTERESIS >= stage.begins(from));
        begun.max(kept.unwrap_or_default())
    }

    fn of(number: u8) -> Self {
        Self::ALL.into_iter().find(|stage| *stage as u8 == number).unwrap_or_default()
    }
}

/// The use of each resource, and what is given up for it.
#[derive(Debug, Default)]
pub struct Pressure {
    /// By resource, in ten thousandths of what there is.
    used: [AtomicU32; Resource::ALL.len()],
    /// A [`Stage`], by resource.
    stages: [AtomicU8; Resource::ALL.len()],
    usage: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    usage: Usage,
    memory_from: Mono,
    stalled_from: Mono,
}

impl Pressure {
    /// The use of a resource, from 0 to 1 or more; a gauge. None where it has no limit.
    #[must_use]
    pub fn used(&self, resource: Resource) -> Option<f64> {
        let used = self.used[resource as usize].load(Relaxed);
        (used > 0).then(|| f64::from(used) / 10_000.0)
    }

    /// What is given up for a resource.
    #[must_use]
    pub fn stage(&self, resource: Resource) -> Stage {
        Stage::of(self.stages[resource as usize].load(Relaxed))
    }

    /// What is given up now.
    pub(crate) fn highest(&self) -> Stage {
        Resource::ALL.into_iter().map(|resource| self.stage(resource)).max().unwrap_or_default()
    }

    /// How many connections a client may have that may have `max` otherwise.
    pub(crate) fn connections_per_prefix(&self, max: u32) -> u32 {
        match self.highest() {
            Stage::New => 0,
            Stage::Further => max.min(1),
            _ => max,
        }
    }

    /// Whether a stream ends whose other side has taken nothing of it for so long.
    pub(crate) fn ends_stalled(&self, stalled: Duration) -> bool {
        stalled >= STALLED_AFTER && self.highest() >= Stage::Stalled
    }

    fn note(&self, resource: Resource, used: f64, from: u32) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100,000")]
        let hundredths = (used.clamp(0.0, 10.0) * 10_000.0) as u32;
        self.used[resource as usize].store(hundredths, Relaxed);
        let before = self.stage(resource);
        // All is in use of nothing, too: 100 switches it off.
        let stage = if from >= 100 { Stage::None } else { before.next(hundredths / 100, from) };
        self.stages[resource as usize].store(stage as u8, Relaxed);
        if stage > before {
            tracing::warn!(
                resource = resource.as_str(),
                used_percent = hundredths / 100,
                gives_up = stage.as_str(),
                "a resource is nearly exhausted"
            );
        } else if stage == Stage::None && before != stage {
            tracing::info!(resource = resource.as_str(), "a resource is no longer nearly exhausted");
        }
    }
}

/// Looks at what is in use, and gives up what is due. To be called several times a second, where files may be read.
pub(crate) fn relieve(gateway: &Gateway) {
    let pressure = &gateway.pressure;
    let from = gateway.model().limits.pressure_percent;
    let now = gateway.clock.precise_mono();
    let mut closed_max = CLOSED_AT_ONCE;
    let calls_stalled = {
        let mut watched = pressure.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let Watched { usage, memory_from, stalled_from } = &mut *watched;
        if let Some((open, limit)) = usage.descriptors() {
            pressure.note(Resource::Descriptors, open as f64 / limit as f64, from);
            // Just enough to end the first stage.
            let kept = limit.saturating_mul(u64::from(from.saturating_sub(HYSTERESIS))) / 100;
            let excess = usize::try_from(open.saturating_sub(kept)).unwrap_or(usize::MAX).saturating_add(1);
            closed_max = closed_max.min(excess);
        }
        if now >= *memory_from {
            *memory_from = now.saturating_add(MEMORY_EVERY);
            if let Some(used) = usage.memory() {
                pressure.note(Resource::Memory, used, from);
            }
        }
        let is_due = pressure.highest() >= Stage::Stalled && now >= *stalled_from;
        if is_due {
            *stalled_from = now.saturating_add(STALLED_EVERY);
        }
        is_due
    };
    let stage = pressure.highest();
    if stage >= Stage::Idle {
        gateway.close_idle(if pressure.stage(Resource::Memory) == Stage::None {
            closed_max
        } else {
            CLOSED_AT_ONCE
        });
    }
    if stage >= Stage::Tarpit {
        gateway.tarpit.suspend(now);
    }
    if calls_stalled {
        gateway.streams.call_holders();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_divide_what_is_left() {
        let begins = |from| Stage::ALL.map(|stage| stage.begins(from));
        assert_eq!(begins(85), [85, 88, 91, 94, 97]);
        assert_eq!(begins(50), [50, 60, 70, 80, 90]);
        assert_eq!(begins(99), [99; 5]);
    }

    #[test]
    fn a_stage_begins_at_once_and_ends_well_below() {
        let mut stage = Stage::None;
        let mut at = |used| {
            stage = stage.next(used, 85);
            stage
        };
        assert_eq!(at(84), Stage::None);
        assert_eq!(at(85), Stage::Idle);
        assert_eq!(at(96), Stage::Further);
        assert_eq!(at(93), Stage::Further, "as it was");
        assert_eq!(at(89), Stage::Further);
        assert_eq!(at(88), Stage::Stalled);
        assert_eq!(at(97), Stage::New);
        assert_eq!(at(80), Stage::Idle);
        assert_eq!(at(79), Stage::None);
        assert_eq!(at(84), Stage::None);
        assert_eq!(at(400), Stage::New);
    }

    #[test]
    fn at_a_hundred_nothing_is_given_up() {
        let pressure = Pressure::default();
        pressure.note(Resource::Memory, 1.0, 85);
        assert_eq!((pressure.stage(Resource::Memory), pressure.highest()), (Stage::New, Stage::New));
        assert_eq!(pressure.stage(Resource::Descriptors), Stage::None);
        pressure.note(Resource::Memory, 1.0, 100);
        assert_eq!(pressure.highest(), Stage::None);
        assert_eq!(
            (pressure.used(Resource::Memory), pressure.used(Resource::Descriptors)),
            (Some(1.0), None)
        );
    }
}

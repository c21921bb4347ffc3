//! Who is refused while a limit has more arrivals than it can admit for a while: the least important callers.
//!
//! A full queue refuses whoever comes next, so that under overload all callers lose some of their requests. A shedder refuses
//! all requests below a threshold instead, before they wait. Its levels are priorities, and within them *cohorts*: callers by
//! a hash. So the same callers are refused, and the others are served as if there were no overload (Cinnamon: Uber, 2023).
//!
//! The share that is to be refused follows from what arrived and what was admitted in a period, and from how many wait. A
//! proportional-integral controller approaches it. The arrivals by level then give the threshold.

use std::{fmt, time::Duration};

use cardea_clock::Mono;

use super::Priority;

/// The cohorts of a priority.
const COHORTS: u16 = 128;
/// All levels.
const LEVELS: usize = Priority::ALL.len() * COHORTS as usize;
/// A period lasts for so long at least, and has so many arrivals.
const PERIOD_MIN: Duration = Duration::from_millis(500);
const ARRIVALS_MIN: u32 = 50;
/// A period without enough arrivals ends after this.
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// The part of the difference that a period corrects. Arrivals of a period vary by several percent; with more, callers near the
/// threshold would be refused and admitted in turn.
const GAIN: f64 = 0.25;
/// What remains of the share after a period in which all requests found a permit.
const RELEASE: f64 = 0.5;
/// A smaller share is none.
const SHARE_MIN: f64 = 0.01;
/// The time in the queue that is aimed at, as a part of the greatest age. Without a queue, permits that come back would find nobody.
const AGE_TARGET: f64 = 0.1;
/// How long a caller stays in its cohort. Then others are refused first.
const EPOCH: Duration = Duration::from_secs(600);

/// Some of the callers: which, is by chance, and changes every ten minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cohort(u8);

impl Cohort {
    /// The cohort of a caller, by a hash of its name that nobody can predict.
    #[must_use]
    pub fn of(caller: u64, now: Mono) -> Self {
        let epoch = now.nanos() / EPOCH.as_nanos() as u64;
        // Any odd number with many bits: the upper bits of the product depend on all bits of the factor.
        let mixed = (caller ^ epoch.wrapping_mul(0xD1B5_4A32_D192_ED03)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self((mixed >> 57) as u8)
    }
}

/// From which level on requests are refused; the greater the level, the less important is the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Threshold(u16);

impl Threshold {
    /// Nobody is refused.
    pub const NONE: Self = Self(LEVELS as u16);

    /// The priorities that are admitted: 4 for all of them, 3.25 for a quarter of the callers of the lowest.
    #[must_use]
    pub fn priorities(self) -> f64 {
        f64::from(self.0) / f64::from(COHORTS)
    }

    fn level(priority: Priority, cohort: Cohort) -> u16 {
        priority as u16 * COHORTS + u16::from(cohort.0)
    }

    /// Whether a request is refused.
    pub(super) fn refuses(self, priority: Priority, cohort: Cohort) -> bool {
        Self::level(priority, cohort) >= self.0
    }
}

impl Default for Threshold {
    fn default() -> Self {
        Self::NONE
    }
}

/// Who is refused: `none`, `25 % of low`, `low`, `50 % of normal and all below`.
impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(priority) = Priority::ALL.get(usize::from(self.0 / COHORTS)) else {
            return f.write_str("none");
        };
        let admitted = self.0 % COHORTS;
        if admitted > 0 {
            write!(f, "{} % of ", (COHORTS - admitted) * 100 / COHORTS)?;
        }
        f.write_str(priority.as_str())?;
        if *priority == Priority::Low { Ok(()) } else { f.write_str(" and all below") }
    }
}

/// What a limit has at the end of a period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Requests that wait.
    pub(super) waiting: u32,
    pub(super) max_queue: u32,
    pub(super) max_age: Duration,
}

/// The shedder of one limit.
#[derive(Debug)]
pub(super) struct Shedder {
    /// Since the period began, by level.
    arrivals: Box<[u32]>,
    arrived: u32,
    admitted: u32,
    was_full: bool,
    since: Mono,
    share: f64,
    threshold: Threshold,
}

impl Shedder {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            arrivals: vec![0; LEVELS].into_boxed_slice(),
            arrived: 0,
            admitted: 0,
            was_full: false,
            since: now,
            share: 0.0,
            threshold: Threshold::NONE,
        }
    }

    pub(super) const fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// A request arrives, which may be refused.
    pub(super) fn arrive(&mut self, priority: Priority, cohort: Cohort, standing: Standing, now: Mono) {
        let lasted = now.saturating_since(self.since);
        if lasted >= PERIOD_MIN && (self.arrived >= ARRIVALS_MIN || lasted >= PERIOD_MAX) {
            self.end_period(standing, lasted);
            self.since = now;
        }
        self.arrived = self.arrived.saturating_add(1);
        if let Some(count) = self.arrivals.get_mut(usize::from(Threshold::level(priority, cohort))) {
            *count = count.saturating_add(1);
        }
    }

    /// A request has got its permit.
    pub(super) const fn admit(&mut self) {
        self.admitted = self.admitted.saturating_add(1);
    }

    /// A request has found no permit.
    pub(super) const fn note_full(&mut self) {
        self.was_full = true;
    }

    fn end_period(&mut self, standing: Standing, lasted: Duration) {
        let (arrived, admitted) = (f64::from(self.arrived), f64::from(self.admitted));
        if self.was_full && arrived > 0.0 {
            let aim = admitted * standing.max_age.as_secs_f64() * AGE_TARGET / lasted.as_secs_f64();
            let aim = aim.min(f64::from(standing.max_queue) / 2.0);
            let wanted = (arrived - admitted + f64::from(standing.waiting) - aim) / arrived;
            self.share += GAIN * (wanted.clamp(0.0, 1.0) - self.share);
        } else {
            self.share *= RELEASE;
        }
        if self.share < SHARE_MIN {
            self.share = 0.0;
        }
        self.threshold = self.find_threshold(self.share * arrived);
        self.arrivals.fill(0);
        (self.arrived, self.admitted, self.was_full) = (0, 0, false);
    }

    /// The threshold that refuses at most so many of the arrivals, and none of the highest priority.
    fn find_threshold(&self, quota: f64) -> Threshold {
        let mut threshold = Threshold::NONE;
        if quota <= 0.0 {
            return threshold;
        }
        let mut refused = 0.0;
        for (level, count) in (0..LEVELS as u16).zip(&*self.arrivals).skip(usize::from(COHORTS)).rev() {
            refused += f64::from(*count);
            if refused > quota {
                break;
            }
            threshold = Threshold(level);
        }
        threshold
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Poll, Waker};

    use proptest::prelude::*;

    use super::{
        super::{Admission, AdmissionBounds, AdmissionRefusal, Arrival, Entry, Gate},
        *,
    };

    const STANDING: Standing = Standing { waiting: 25, max_queue: 100, max_age: Duration::from_secs(1) };

    fn at(milliseconds: u64) -> Mono {
        Mono::from_nanos((1_000_000 + milliseconds) * 1_000_000)
    }

    /// Periods of a second with a thousand arrivals of each of these priorities, of which 100 per second of those that are not
    /// refused are admitted.
    fn overload(shedder: &mut Shedder, priorities: &[Priority], seconds: u64, from: u64) -> Vec<u32> {
        let mut kept = Vec::new();
        for second in from..from + seconds {
            let mut passed = 0;
            for number in 0..1_000_u64 {
                for priority in priorities {
                    let cohort = Cohort((number % 128) as u8);
                    let now = at(second * 1_000 + number);
                    shedder.arrive(*priority, cohort, STANDING, now);
                    if shedder.threshold().refuses(*priority, cohort) {
                        continue;
                    }
                    passed += 1;
                    shedder.note_full();
                    if number % 10 == 0 {
                        shedder.admit();
                    }
                }
            }
            kept.push(passed);
        }
        kept
    }

    #[test]
    fn nobody_is_refused_without_overload() {
        let mut shedder = Shedder::new(at(0));
        for number in 0..10_000 {
            shedder.arrive(Priority::Low, Cohort(127), STANDING, at(number));
            shedder.admit();
            assert_eq!(shedder.threshold(), Threshold::NONE);
        }
    }

    #[test]
    fn the_lowest_levels_are_refused_first_and_the_highest_priority_never() {
        let mut shedder = Shedder::new(at(0));
        overload(&mut shedder, &[Priority::Critical, Priority::Low], 5, 0);
        assert!(shedder.threshold().refuses(Priority::Low, Cohort(127)));
        overload(&mut shedder, &[Priority::Critical, Priority::High], 20, 10);
        assert!(shedder.threshold().refuses(Priority::High, Cohort(127)));
        overload(&mut shedder, &[Priority::Critical], 20, 50);
        assert!(!shedder.threshold().refuses(Priority::Critical, Cohort(127)));
    }

    #[test]
    fn nobody_is_refused_any_more_soon_after_an_overload() {
        let mut shedder = Shedder::new(at(0));
        overload(&mut shedder, &Priority::ALL, 10, 0);
        assert!(shedder.threshold() < Threshold::NONE);
        for number in 0..8_000 {
            shedder.arrive(Priority::Low, Cohort(127), STANDING, at(20_000 + number));
            shedder.admit();
        }
        assert_eq!(shedder.threshold(), Threshold::NONE);
    }

    #[test]
    fn a_caller_stays_in_its_cohort_for_a_while_and_callers_spread_evenly() {
        let now = at(0);
        let mut counts = [0; COHORTS as usize];
        let mut moved = 0;
        for caller in 0..12_800_u64 {
            let cohort = Cohort::of(caller.wrapping_mul(0xA24B_AED4_963E_E407), now);
            counts[usize::from(cohort.0)] += 1;
            let later = Cohort::of(caller.wrapping_mul(0xA24B_AED4_963E_E407), now.saturating_add(EPOCH));
            moved += usize::from(later != cohort);
        }
        assert!(counts.iter().all(|count| (40..200).contains(count)), "{counts:?}");
        assert!(moved > 12_000, "{moved}");
    }

    #[test]
    fn a_threshold_says_who_is_refused() {
        for (threshold, text) in [
            (Threshold::NONE, "none"),
            (Threshold(3 * COHORTS), "low"),
            (Threshold(3 * COHORTS + 96), "25 % of low"),
            (Threshold(2 * COHORTS + 64), "50 % of normal and all below"),
            (Threshold(COHORTS), "high and all below"),
        ] {
            assert_eq!(threshold.to_string(), text);
        }
    }

    /// Requests of 40 callers, one in a millisecond, at a limit that admits one in ten milliseconds. By caller: how many were
    /// asked for, and refused at once, by the threshold and otherwise.
    fn run(gate: &Gate) -> Vec<[u32; 3]> {
        let (mut tickets, mut in_flight) = (Vec::new(), 0);
        let mut callers = vec![[0; 3]; 40];
        let mut random = 1_u64;
        for millisecond in 0..15_000 {
            let now = at(millisecond);
            if millisecond % 10 == 0 && in_flight > 0 {
                gate.leave(0, || now);
                in_flight -= 1;
            }
            tickets.retain(|ticket| match gate.poll(ticket, now, Waker::noop()) {
                Poll::Ready(admitted) => {
                    in_flight += u32::from(admitted.is_ok());
                    false
                }
                Poll::Pending => true,
            });
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let caller = (random >> 33) as usize % 40;
            let priority = if caller == 0 { Priority::Critical } else { Priority::Low };
            let cohort = Cohort::of((caller as u64).wrapping_mul(0xA24B_AED4_963E_E407), at(0));
            callers[caller][0] += 1;
            match gate.enter(0, || Arrival { cohort, ..Arrival::new(priority, now) }) {
                Entry::Admitted => in_flight += 1,
                Entry::Waits(ticket) => tickets.push(ticket),
                Entry::Refused(AdmissionRefusal::Shed) => callers[caller][1] += 1,
                Entry::Refused(_) => callers[caller][2] += 1,
            }
        }
        callers
    }

    #[test]
    fn during_an_overload_the_same_callers_are_refused_at_once() {
        let bounds =
            AdmissionBounds { max_in_flight: 10, max_queue: 20, max_age: Duration::from_millis(100) };
        let make = |sheds| {
            let admission = Admission::new(1);
            admission.set_shedding(sheds);
            let gate = admission.gate([admission.limit(bounds)]);
            let callers = run(&gate);
            (callers, gate.limits()[0].figures().threshold)
        };
        let (callers, threshold) = make(true);
        assert!(threshold < Threshold::NONE);
        assert_eq!(callers[0][1..], [0, 0], "critical");
        let never = callers.iter().filter(|[_, shed, _]| *shed == 0).count();
        let mostly = callers.iter().filter(|[asked, shed, _]| shed * 10 >= asked * 7).count();
        assert!(never >= 2 && mostly >= 20, "{callers:?}");
        // The control: everybody loses a part.
        let (callers, threshold) = make(false);
        assert_eq!(threshold, Threshold::NONE);
        assert!(callers.iter().all(|[_, shed, _]| *shed == 0), "{callers:?}");
        let some = callers.iter().filter(|[asked, _, refused]| *refused > 0 && refused < asked).count();
        assert!(some >= 39, "{callers:?}");
    }

    proptest! {
        /// Whatever arrived: never more than the quota, and a level more would be.
        #[test]
        fn a_threshold_refuses_at_most_its_quota(
            counts in proptest::collection::vec(0..50_u32, LEVELS),
            quota in 0.0..30_000.0,
        ) {
            let mut shedder = Shedder::new(at(0));
            shedder.arrivals.copy_from_slice(&counts);
            let threshold = shedder.find_threshold(quota).0;
            prop_assert!(threshold >= COHORTS);
            let refused = |from: u16| counts[usize::from(from)..].iter().map(|count| f64::from(*count)).sum::<f64>();
            prop_assert!(refused(threshold) <= quota);
            prop_assert!(threshold == COHORTS || refused(threshold - 1) > quota);
        }
    }
}

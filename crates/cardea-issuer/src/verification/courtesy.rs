//! How a hash thread shares its processor with the threads that serve requests.

use std::{thread, time::Duration};

use cardea_clock::Stopwatch;

/// The part of a busy processor that hashes keep: an eighth of the time for which others had it.
const SHARE: u32 = 8;

/// How much of its part it may have had beforehand: what has run so much more than its part lets others have the
/// processor for eight times as long before it keeps it.
const CREDIT: Duration = Duration::from_millis(10);

/// Lets others have the processor between two steps of a hash.
///
/// The kernel would let a hash go on for milliseconds, and a request that wakes up meanwhile would wait for as long.
/// So the thread yields after each step, which costs nothing to speak of where nobody waits. Where somebody does, the
/// kernel may put it off for a whole slice (Linux 6.18: what yields forfeits its slice), and on a processor that is never
/// idle, steps of a few microseconds and slices of milliseconds would come to nothing. Therefore it then keeps the
/// processor for a part of the time that it was put off: but only where it had less than that part of late, so that
/// nobody waits for it on a processor that is idle now and then.
pub(super) struct Courtesy {
    stopwatch: Stopwatch,
    /// By how much it has had less than its part, and `CREDIT` more than that.
    due: Duration,
}

impl Courtesy {
    pub(super) fn new() -> Self {
        Self { stopwatch: Stopwatch::start(), due: Duration::ZERO }
    }

    /// After each step.
    pub(super) fn step(&mut self) {
        let ran = self.stopwatch.lap();
        self.account(ran, |stopwatch| {
            thread::yield_now();
            stopwatch.lap()
        });
    }

    fn account(&mut self, ran: Duration, give_way: impl FnOnce(&mut Stopwatch) -> Duration) {
        self.due = self.due.saturating_sub(ran);
        if self.due <= CREDIT {
            // Bounded, for who was put off because the whole machine stood still.
            self.due = (self.due + give_way(&mut self.stopwatch) / SHARE).min(CREDIT * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(12);

    /// How much of the time it has, and its longest stretch without giving way, where each time others have the processor
    /// for so long.
    fn share(put_off: Duration) -> (f64, Duration) {
        let mut courtesy = Courtesy::new();
        let (mut own, mut others) = (Duration::ZERO, Duration::ZERO);
        let (mut stretch, mut longest) = (Duration::ZERO, Duration::ZERO);
        while own + others < Duration::from_secs(2) {
            own += STEP;
            stretch += STEP;
            courtesy.account(STEP, |_| {
                others += put_off;
                longest = longest.max(stretch);
                stretch = Duration::ZERO;
                put_off
            });
        }
        (own.as_secs_f64() / (own + others).as_secs_f64(), longest)
    }

    #[test]
    fn on_a_processor_that_is_idle_now_and_then_it_gives_way_after_each_step() {
        for put_off in [0, 1, 12, 90].map(Duration::from_micros) {
            assert_eq!(share(put_off).1, STEP, "{put_off:?}");
        }
        // A long stretch of others now and then changes nothing.
        let mut courtesy = Courtesy::new();
        for round in 0..10_000 {
            let put_off = if round % 100 == 99 { Duration::from_millis(4) } else { Duration::ZERO };
            let mut gave_way = false;
            courtesy.account(STEP, |_| {
                gave_way = true;
                put_off
            });
            assert!(gave_way, "{round}");
        }
    }

    #[test]
    fn on_a_processor_that_is_never_idle_it_keeps_its_part() {
        for put_off in [200, 3_000, 20_000].map(Duration::from_micros) {
            let (share, longest) = share(put_off);
            assert!((0.10..0.12).contains(&share), "{put_off:?}: {share}");
            assert!(longest <= put_off / SHARE + STEP, "{put_off:?}: {longest:?}");
        }
    }
}

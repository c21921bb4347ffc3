//! How a hash thread shares its processor with the threads that serve requests.

use std::{thread, time::Duration};

use cardea_clock::Stopwatch;

/// The part of a busy processor that hashes keep: an eighth of the time for which others had it.
const SHARE: u32 = 8;

/// Lets others have the processor between two steps of a hash.
///
/// The kernel would let a hash go on for milliseconds, and a request that wakes up meanwhile would wait for as long.
/// So the thread yields after each step, which costs nothing to speak of where nobody waits. Where somebody does, the
/// kernel may put it off for a whole slice (Linux 6.18: what yields forfeits its slice), and on a processor that is never
/// idle, steps of a few microseconds and slices of milliseconds would come to nothing. Therefore it then keeps the
/// processor for a part of the time that it was put off.
pub(super) struct Courtesy {
    stopwatch: Stopwatch,
    /// What it still keeps the processor for.
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
        if self.due.is_zero() {
            self.due = give_way(&mut self.stopwatch) / SHARE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_put_off_keeps_the_processor_for_a_part_of_the_time() {
        let step = Duration::from_micros(12);
        let steps_until_way_is_given = |put_off: Duration| {
            let mut courtesy = Courtesy::new();
            courtesy.account(step, |_| put_off);
            let mut steps = 0;
            let mut again = false;
            while !again {
                steps += 1;
                courtesy.account(step, |_| {
                    again = true;
                    Duration::ZERO
                });
            }
            steps
        };
        assert_eq!(steps_until_way_is_given(Duration::from_nanos(300)), 1, "nobody waited");
        assert_eq!(steps_until_way_is_given(Duration::from_micros(50)), 1, "a request was served");
        assert_eq!(steps_until_way_is_given(Duration::from_millis(3)), 32, "others are never done");
    }
}

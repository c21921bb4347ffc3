//! The least rate at which a body has to move while its client is waited for.
//!
//! A client that sends or takes a byte now and then keeps an exchange from being idle, and what that holds: permits, buffers and a
//! connection to the service. So the bytes of a window are compared with a rate. Time in which the service is waited for does not count.

use std::time::Duration;

use cardea_clock::Mono;

/// The window in which the rate of a body is being measured. Two words, since each request has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateWindow {
    /// When it began; never while the client is not waited for.
    begun: Mono,
    /// What had moved by then, in bytes.
    before: u64,
}

/// Less has moved in a window than has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl RateWindow {
    pub(crate) const fn new() -> Self {
        Self { begun: Mono::MAX, before: 0 }
    }

    /// Notes how many bytes have moved so far, and whether the client is waited for. When to look again; `least` is in bytes per
    /// second, and nothing is measured where it is 0.
    ///
    /// # Errors
    /// If the client was waited for in a whole window of this `length`, in which too little has moved.
    pub(crate) fn look(
        &mut self,
        (least, length): (u32, Duration),
        moved: u64,
        waits: bool,
        now: Mono,
    ) -> Result<Mono, TooSlow> {
        if least == 0 || !waits {
            self.begun = Mono::MAX;
            return Ok(Mono::MAX);
        }
        if self.begun == Mono::MAX {
            *self = Self { begun: now, before: moved };
        }
        let ends = self.begun.saturating_add(length);
        if now < ends {
            return Ok(ends);
        }
        let bytes = u128::from(least) * length.as_millis() / 1_000;
        if u128::from(moved.saturating_sub(self.before)) < bytes {
            return Err(TooSlow);
        }
        *self = Self { begun: now, before: moved };
        Ok(now.saturating_add(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Mono {
        Mono::from_nanos((1_000_000 + milliseconds) * 1_000_000)
    }

    #[test]
    fn each_window_needs_its_bytes() {
        let (mut rate, least) = (RateWindow::new(), (100, Duration::from_secs(10)));
        assert_eq!(rate.look(least, 0, true, at(0)), Ok(at(10_000)));
        assert_eq!(rate.look(least, 999, true, at(9_999)), Ok(at(10_000)));
        assert_eq!(rate.look(least, 1_000, true, at(10_000)), Ok(at(20_000)));
        assert_eq!(rate.look(least, 1_999, true, at(19_999)), Ok(at(20_000)));
        assert_eq!(rate.look(least, 1_999, true, at(20_000)), Err(TooSlow));
        assert_eq!(rate.look(least, 2_000, true, at(20_000)), Ok(at(30_000)));
    }

    #[test]
    fn time_in_which_the_service_is_waited_for_does_not_count() {
        let (mut rate, least) = (RateWindow::new(), (100, Duration::from_secs(10)));
        assert_eq!(rate.look(least, 0, true, at(0)), Ok(at(10_000)));
        assert_eq!(rate.look(least, 0, false, at(9_000)), Ok(Mono::MAX));
        assert_eq!(rate.look(least, 0, true, at(60_000)), Ok(at(70_000)));
        assert_eq!(rate.look(least, 999, true, at(70_000)), Err(TooSlow));
    }

    #[test]
    fn without_a_rate_nothing_is_too_slow() {
        let (mut rate, least) = (RateWindow::new(), (0, Duration::from_secs(10)));
        assert_eq!(rate.look(least, 0, true, at(0)), Ok(Mono::MAX));
        assert_eq!(rate.look(least, 0, true, at(1_000_000)), Ok(Mono::MAX));
    }
}

//! The least rate at which a body has to move while its client is waited for.
//!
//! A client that sends or takes a byte now and then keeps an exchange from being idle, and what that holds: permits, buffers and a
//! connection to the service. So the bytes of a window are compared with a rate. Time in which the service is waited for does not count.

use std::time::Duration;

use cardea_clock::Mono;

/// The least rate of a body, and the window in which it is being measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeastRate {
    /// In a window; nothing is measured where it is 0.
    bytes_min: u64,
    window: Duration,
    /// When the window began, and what had moved by then. None while the client is not waited for.
    begun: Option<(Mono, u64)>,
}

/// Less has moved in a window than has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl LeastRate {
    /// So many bytes per second, in windows of this length.
    pub(crate) fn new(bytes_per_second: u32, window: Duration) -> Self {
        let bytes = u128::from(bytes_per_second) * window.as_millis() / 1_000;
        Self { bytes_min: u64::try_from(bytes).unwrap_or(u64::MAX), window, begun: None }
    }

    /// Notes how many bytes have moved so far, and whether the client is waited for. When to look again.
    ///
    /// # Errors
    /// If it was waited for in a whole window, in which too little has moved.
    pub(crate) fn look(&mut self, moved: u64, waits: bool, now: Mono) -> Result<Mono, TooSlow> {
        if self.bytes_min == 0 || !waits {
            self.begun = None;
            return Ok(Mono::MAX);
        }
        let (begun, before) = *self.begun.get_or_insert((now, moved));
        let ends = begun.saturating_add(self.window);
        if now < ends {
            return Ok(ends);
        }
        if moved.saturating_sub(before) < self.bytes_min {
            return Err(TooSlow);
        }
        self.begun = Some((now, moved));
        Ok(now.saturating_add(self.window))
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
        let mut rate = LeastRate::new(100, Duration::from_secs(10));
        assert_eq!(rate.look(0, true, at(0)), Ok(at(10_000)));
        assert_eq!(rate.look(999, true, at(9_999)), Ok(at(10_000)));
        assert_eq!(rate.look(1_000, true, at(10_000)), Ok(at(20_000)));
        assert_eq!(rate.look(1_999, true, at(19_999)), Ok(at(20_000)));
        assert_eq!(rate.look(1_999, true, at(20_000)), Err(TooSlow));
        assert_eq!(rate.look(2_000, true, at(20_000)), Ok(at(30_000)));
    }

    #[test]
    fn time_in_which_the_service_is_waited_for_does_not_count() {
        let mut rate = LeastRate::new(100, Duration::from_secs(10));
        assert_eq!(rate.look(0, true, at(0)), Ok(at(10_000)));
        assert_eq!(rate.look(0, false, at(9_000)), Ok(Mono::MAX));
        assert_eq!(rate.look(0, true, at(60_000)), Ok(at(70_000)));
        assert_eq!(rate.look(999, true, at(70_000)), Err(TooSlow));
    }

    #[test]
    fn without_a_rate_nothing_is_too_slow() {
        let mut rate = LeastRate::new(0, Duration::from_secs(10));
        assert_eq!(rate.look(0, true, at(0)), Ok(Mono::MAX));
        assert_eq!(rate.look(0, true, at(1_000_000)), Ok(Mono::MAX));
    }
}

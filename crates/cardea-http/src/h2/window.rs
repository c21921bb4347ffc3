//! Flow-control windows (RFC 9113 §5.2, §6.9).

use super::frame::MAX_31;

/// What may still be sent in one direction, in bytes. It falls below 0 when the initial size is reduced
/// (RFC 9113 §6.9.2), and never exceeds 2^31-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window(i32);

/// The initial size before any settings (RFC 9113 §6.9.2).
pub(super) const WINDOW_DEFAULT: u32 = 65_535;

impl Window {
    /// A window of `size` bytes, at most 2^31-1.
    pub(super) const fn new(size: u32) -> Self {
        Self(if size > MAX_31 { i32::MAX } else { size as i32 })
    }

    /// The bytes that may be sent now.
    pub(super) const fn available(self) -> usize {
        if self.0 > 0 { self.0 as usize } else { 0 }
    }

    /// The size, which may be negative.
    pub(super) const fn size(self) -> i64 {
        self.0 as i64
    }

    /// The window after `bytes` were sent, or `None` if it doesn't allow that many.
    pub(super) fn spend(self, bytes: usize) -> Option<Self> {
        let bytes = i32::try_from(bytes).ok().filter(|&bytes| bytes == 0 || bytes <= self.0)?;
        self.0.checked_sub(bytes).map(Self)
    }

    /// The window after an update, or `None` if it would exceed 2^31-1 (RFC 9113 §6.9.1).
    pub(super) fn grow(self, increment: u32) -> Option<Self> {
        self.0.checked_add(i32::try_from(increment).ok()?).map(Self)
    }

    /// The window after the initial size was changed (RFC 9113 §6.9.2), or `None` if it would exceed 2^31-1.
    pub(super) fn shift(self, from: u32, to: u32) -> Option<Self> {
        let size = i64::from(self.0) + i64::from(to) - i64::from(from);
        i32::try_from(size).ok().map(Self)
    }
}

/// The receiving side of a window: what the peer may send, and what was received and is still held.
///
/// The sum of both is the promise of memory; it is kept at a target. The peer gets credit back when half of the target can be
/// announced, so that updates are few and the peer isn't stopped.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveWindow {
    window: Window,
    held: u32,
    target: u32,
}

impl ReceiveWindow {
    /// A window that the peer takes to be of `size`, and that is to become `target`.
    pub(super) const fn new(size: u32, target: u32) -> Self {
        let target = if target > MAX_31 { MAX_31 } else { target };
        Self { window: Window::new(size), held: 0, target }
    }

    /// Changes the promise. A smaller one takes effect as held bytes are released.
    pub(super) const fn set_target(&mut self, target: u32) {
        self.target = if target > MAX_31 { MAX_31 } else { target };
    }

    /// Counts received bytes. False if the peer ignored the window.
    pub(super) fn receive(&mut self, bytes: usize) -> bool {
        let Some(window) = self.window.spend(bytes) else { return false };
        self.window = window;
        // What is received was in the window, so it fits.
        self.held = self.held.saturating_add(bytes as u32);
        true
    }

    /// Counts bytes that are no longer held; no more than are. Returns their number.
    pub(super) fn release(&mut self, bytes: usize) -> usize {
        let released = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.held);
        self.held -= released;
        released as usize
    }

    /// The received bytes that are still held.
    pub(super) const fn held(&self) -> usize {
        self.held as usize
    }

    /// The increment that is worth an update, which the caller must send.
    pub(super) fn take_update(&mut self) -> Option<u32> {
        self.take_credit(self.target / 2)
    }

    /// The increment up to the target if it is at least `least`, which the caller must send.
    pub(super) fn take_credit(&mut self, least: u32) -> Option<u32> {
        let credit = i64::from(self.target) - i64::from(self.held) - self.window.size();
        let increment = u32::try_from(credit).ok().filter(|&credit| credit >= least.max(1))?;
        self.window = self.window.grow(increment)?;
        Some(increment)
    }

    /// Applies our new initial window size once the peer has acknowledged it.
    pub(super) fn shift(&mut self, from: u32, to: u32) {
        if let Some(window) = self.window.shift(from, to) {
            self.window = window;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_has_its_bounds() {
        let window = Window::new(10);
        assert_eq!(window.spend(11), None);
        assert_eq!(window.spend(10).unwrap().spend(0), Some(Window(0)));
        assert_eq!(window.grow(MAX_31), None);
        assert_eq!(window.grow(MAX_31 - 10), Some(Window(i32::MAX)));
        assert_eq!(Window::new(u32::MAX), Window(i32::MAX));
        // Below 0 after a reduction: nothing may be sent, and an empty frame may.
        let negative = Window::new(5).shift(100, 0).unwrap();
        assert_eq!(
            (negative.available(), negative.spend(1), negative.spend(0)),
            (0, None, Some(Window(-95)))
        );
        assert_eq!(Window(0).shift(MAX_31, 0), Some(Window(-i32::MAX)));
        assert_eq!(Window::new(MAX_31).shift(0, 1), None);
    }

    #[test]
    fn credit_comes_back_by_halves() {
        let mut window = ReceiveWindow::new(100, 100);
        assert!(window.receive(60) && !window.receive(41));
        assert_eq!((window.held(), window.take_update()), (60, None));
        assert_eq!(window.release(49), 49);
        assert_eq!(window.take_update(), None);
        assert_eq!(window.release(1), 1);
        assert_eq!(window.take_update(), Some(50));
        assert_eq!((window.release(70), window.held()), (10, 0));
    }

    proptest! {
        #[test]
        fn the_promise_never_exceeds_its_targets(steps in proptest::collection::vec((0..4_u8, 0..2000_u32), 0..200)) {
            let mut window = ReceiveWindow::new(WINDOW_DEFAULT, 1000);
            let mut highest = i64::from(WINDOW_DEFAULT);
            for (kind, amount) in steps {
                match kind {
                    0 => { window.receive(amount as usize); }
                    1 => { window.release(amount as usize); }
                    2 => { window.set_target(amount); highest = highest.max(i64::from(amount)); }
                    _ => { window.take_update(); }
                }
                prop_assert!(window.window.size() + i64::from(window.held) <= highest);
                prop_assert!(window.window.size() >= 0);
            }
        }
    }
}

//! Permits for connections: how many there may be to one endpoint, and how many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the connections to an endpoint against their limit.
#[derive(Debug)]
pub(crate) struct Permits {
    in_use: AtomicUsize,
    /// `usize::MAX`: no limit.
    limit: AtomicUsize,
}

impl Permits {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { in_use: AtomicUsize::new(0), limit: AtomicUsize::new(limit.unwrap_or(usize::MAX)) }
    }

    /// A lower limit takes back nothing: it only lets nothing new in until enough has gone.
    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        self.limit.store(limit.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_use() < self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let limit = self.limit.load(Ordering::Relaxed);
        // Relaxed: the count guards no other memory.
        self.in_use
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < limit).then_some(count + 1))
            .ok()?;
        Some(ConnectionPermit { permits: Arc::clone(self) })
    }
}

/// The right to have one connection to an endpoint. Keep it beside the connection: dropping it gives the
/// right back.
#[derive(Debug)]
#[must_use = "dropping the permit gives it back"]
pub struct ConnectionPermit {
    permits: Arc<Permits>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.permits.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_end_at_the_limit_and_come_back() {
        let permits = Arc::new(Permits::new(Some(2)));
        let (one, two) = (permits.try_acquire(), permits.try_acquire());
        assert!(one.is_some() && two.is_some());
        assert!(permits.try_acquire().is_none());
        drop(one);
        assert_eq!(permits.in_use(), 1);
        assert!(permits.try_acquire().is_some());
        permits.set_limit(Some(1));
        assert!(permits.try_acquire().is_none());
        permits.set_limit(None);
        assert!(permits.try_acquire().is_some());
        drop(two);
        assert_eq!(permits.in_use(), 0);
    }
}

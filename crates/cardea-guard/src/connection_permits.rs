//! Permits to serve connections. Their number may change at any time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// The permits of a gateway.
#[derive(Debug)]
pub struct ConnectionPermits {
    free: Semaphore,
    limit: Mutex<Limit>,
}

#[derive(Debug)]
struct Limit {
    max: usize,
    /// Permits that were taken back while they were in use: so many are not freed when they are given up.
    owed: usize,
}

/// The permit to serve one connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<ConnectionPermits>);

impl ConnectionPermits {
    /// `max` permits.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let max = max.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { free: Semaphore::new(max), limit: Mutex::new(Limit { max, owed: 0 }) })
    }

    /// Changes how many there are. Connections beyond the new number go on, and no other begins until they have ended.
    pub fn set_max(&self, max: usize) {
        let max = max.min(Semaphore::MAX_PERMITS);
        let mut limit = self.limit();
        let (more, fewer) = (max.saturating_sub(limit.max), limit.max.saturating_sub(max));
        limit.max = max;
        let kept = more.min(limit.owed);
        limit.owed -= kept;
        self.free.add_permits(more - kept);
        limit.owed += fewer - self.free.forget_permits(fewer);
    }

    /// Takes a permit, if one is free.
    #[must_use]
    pub fn try_take(self: &Arc<Self>) -> Option<ConnectionPermit> {
        self.free.try_acquire().ok()?.forget();
        Some(ConnectionPermit(Arc::clone(self)))
    }

    /// Waits for a permit. `None` never comes: the permits are never closed.
    pub async fn take(self: &Arc<Self>) -> Option<ConnectionPermit> {
        self.free.acquire().await.ok()?.forget();
        Some(ConnectionPermit(Arc::clone(self)))
    }

    fn limit(&self) -> MutexGuard<'_, Limit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut limit = self.0.limit();
        match limit.owed {
            0 => self.0.free.add_permits(1),
            _ => limit.owed -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many can be taken at most, which are given up again.
    fn free(permits: &Arc<ConnectionPermits>) -> usize {
        std::iter::from_fn(|| permits.try_take()).collect::<Vec<_>>().len()
    }

    #[test]
    fn the_number_may_change_while_permits_are_in_use() {
        let permits = ConnectionPermits::new(3);
        let mut taken: Vec<_> = (0..3).map(|_| permits.try_take().unwrap()).collect();
        assert!(permits.try_take().is_none());
        permits.set_max(1);
        drop(taken.pop());
        assert_eq!(free(&permits), 0, "two are in use, of one");
        // Back and forth changes nothing about those in use.
        permits.set_max(4);
        assert_eq!(free(&permits), 2);
        permits.set_max(2);
        assert_eq!(free(&permits), 0);
        permits.set_max(0);
        taken.clear();
        assert_eq!(free(&permits), 0);
        permits.set_max(5);
        assert_eq!(free(&permits), 5);
        permits.set_max(2);
        assert_eq!(free(&permits), 2);
        permits.set_max(usize::MAX);
        permits.set_max(1);
        assert_eq!(free(&permits), 1);
    }

    #[tokio::test]
    async fn waiting_requests_are_served_after_the_limit_is_raised() {
        let permits = ConnectionPermits::new(1);
        let _first = permits.try_take().unwrap();
        let waiting = Arc::clone(&permits);
        let waiting = tokio::spawn(async move { waiting.take().await });
        tokio::task::yield_now().await;
        permits.set_max(2);
        assert!(waiting.await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_loses_no_permit() {
        let permits = ConnectionPermits::new(1);
        let first = permits.try_take().unwrap();
        {
            let mut waiting = std::pin::pin!(permits.take());
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx).is_pending()))
                    .await
            );
            drop(first);
        }
        assert_eq!(free(&permits), 1);
    }
}

//! Bounds what handshakes may cost: how many are under way, and how many of one address prefix.
//!
//! A client that means it is done within a few round trips. So where there are too many handshakes it is the oldest that
//! gives way: those who open connections and say nothing push out each other, and nobody else.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::{
    model::Limits,
    prefix::{Counted, PrefixCounts, TooMany},
};

/// Handshakes under way, by age and by where they come from.
#[derive(Debug)]
pub(crate) struct Handshakes {
    /// How many of each prefix are under way.
    prefixes: Arc<PrefixCounts>,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    /// In the order in which they began.
    by_age: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One handshake; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Handshake {
    all: Arc<Handshakes>,
    _of_prefix: Counted,
    number: u64,
    /// Ready when this handshake must give way.
    pub(crate) given_way: oneshot::Receiver<()>,
}

impl Handshakes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { prefixes: Arc::default(), under_way: Mutex::default() })
    }

    /// Begins a handshake. Where there are too many, the oldest of all is told to give way.
    pub(crate) fn begin(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        limits: &Limits,
    ) -> Result<Handshake, TooMany> {
        let of_prefix = self.prefixes.enter(from, limits.handshakes_per_prefix_max)?;
        let (give_way, given_way) = oneshot::channel();
        let mut under_way = self.lock();
        let number = under_way.next;
        under_way.next += 1;
        under_way.by_age.insert(number, give_way);
        let oldest =
            if under_way.by_age.len() > limits.handshakes_max { under_way.by_age.pop_first() } else { None };
        drop(under_way);
        if let Some((_, oldest)) = oldest {
            // Nobody hears it where the handshake has just come to its end.
            let _ = oldest.send(());
        }
        Ok(Handshake { all: Arc::clone(self), _of_prefix: of_prefix, number, given_way })
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_age.len()
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(handshakes_max: usize, handshakes_per_prefix_max: u32) -> Limits {
        Limits { handshakes_max, handshakes_per_prefix_max, ..Limits::default() }
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_oldest_gives_way() {
        let all = Handshakes::new();
        let limits = limits(2, 100);
        let mut begun: Vec<_> = (0..4).map(|_| all.begin(None, &limits).unwrap()).collect();
        assert_eq!(all.count(), 2);
        let told: Vec<bool> = begun.iter_mut().map(|one| one.given_way.try_recv().is_ok()).collect();
        assert_eq!(told, [true, true, false, false]);
        drop(begun);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn a_prefix_has_so_many_handshakes_under_way_and_no_more() {
        let all = Handshakes::new();
        let limits = limits(100, 2);
        let one = all.begin(address("192.0.2.1"), &limits).unwrap();
        let _two = all.begin(address("::ffff:192.0.2.1"), &limits).unwrap();
        assert_eq!(all.begin(address("192.0.2.1"), &limits).err(), Some(TooMany));
        let _other = all.begin(address("192.0.2.2"), &limits).unwrap();
        drop(one);
        let _again = all.begin(address("192.0.2.1"), &limits).unwrap();
        // Whoever has one address of IPv6 has them all up to the next prefix.
        let _a = all.begin(address("2001:db8::1"), &limits).unwrap();
        let _b = all.begin(address("2001:db8::ffff:0:1:2"), &limits).unwrap();
        assert!(all.begin(address("2001:db8::3"), &limits).is_err());
        assert!(all.begin(address("2001:db8:0:1::3"), &limits).is_ok());
    }

    #[test]
    fn nothing_is_kept_of_a_prefix_without_handshakes() {
        let all = Handshakes::new();
        let limits = limits(10, 2);
        let kept = || all.prefixes.prefixes();
        let begun =
            ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|from| all.begin(address(from), &limits).unwrap());
        assert_eq!(kept(), 2);
        drop(begun);
        assert_eq!(kept(), 0);
    }
}

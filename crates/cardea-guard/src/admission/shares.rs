//! Fair shares: what one client may have of a limit while others lack permits.
//!
//! A limit that is found out by the times of responses can't tell a slow service from slow requests. So a client that keeps many
//! slow requests in flight would take the permits of all others, and hold the limit down besides.
//!
//! Whenever a client that has little finds no permit, one more is *reserved*. A client gets what is not reserved, and its *share* in any
//! case: twice what it would have if all clients with requests had the same, but no more than a quarter of the limit. The reserve falls
//! by an eighth in two seconds, so that it follows what clients need that have less than their share, and a client that is alone has the
//! whole limit.
//!
//! While permits are reserved, responses to clients that have more than their share teach an adaptive limit nothing: those of all others
//! show by their times, too, if the service has too much to do.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use cardea_clock::Mono;
use smallvec::SmallVec;

use super::super::in_flight::{InFlightPlace, InFlightTable};

/// The greatest share of a limit that a client has in any case, in percent.
pub const CLIENT_SHARE_PERCENT: u32 = 25;
/// The whole limit.
const ALL_PERCENT: u32 = 100;
/// Clients with requests in flight that a limit tells apart. With more, some share a count.
const CLIENTS_EXPECTED: usize = 4_096;
/// How often the reserve falls, and by which part.
const FALL_EVERY: Duration = Duration::from_secs(2);
const FALL_PART: u32 = 8;

/// What the clients of one limit have of it.
#[derive(Debug, Default)]
pub(super) struct ClientShares {
    /// Whether clients are told apart.
    is_on: AtomicBool,
    /// The limit in force.
    limit: AtomicU32,
    clients: OnceLock<Arc<InFlightTable>>,
    reserve: AtomicU32,
    /// How many clients had requests when the reserve last fell.
    active: AtomicU32,
    /// When it last fell. Who changes the reserve has the lock.
    fallen: Mutex<Mono>,
}

impl ClientShares {
    pub(super) fn set_on(&self, is_on: bool) {
        if is_on {
            self.clients();
        }
        self.is_on.store(is_on, Release);
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    pub(super) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Relaxed);
    }

    /// The permits that heavy clients do not get.
    pub(super) fn reserve(&self) -> u32 {
        if self.is_on() { self.reserve.load(Relaxed) } else { 0 }
    }

    fn clients(&self) -> &Arc<InFlightTable> {
        self.clients.get_or_init(|| Arc::new(InFlightTable::new(CLIENTS_EXPECTED)))
    }

    /// What a client may have in any case.
    fn share(&self, percent: u32) -> u32 {
        let active = self.active.load(Relaxed);
        let limit = u64::from(self.limit.load(Relaxed));
        let fair = (2 * limit).div_ceil(u64::from(active.max(1)));
        let most = limit * u64::from(percent.min(ALL_PERCENT)) / u64::from(ALL_PERCENT);
        u32::try_from(fair.min(most)).unwrap_or(u32::MAX).max(1)
    }

    /// Counts a request of a client, unless others need the permits.
    pub(super) fn enter(
        &self,
        client: u64,
        percent: u32,
        now: impl FnOnce() -> Mono,
    ) -> Option<InFlightPlace> {
        let max = if self.reserve.load(Relaxed) > 0 { self.most(percent, now()) } else { u32::MAX };
        self.clients().enter(client, max)
    }

    /// Whether a client has more than its share, and others lack permits.
    pub(super) fn is_over(&self, holding: &Holding, percent: u32) -> bool {
        if self.reserve() == 0 || percent >= ALL_PERCENT {
            return false;
        }
        let place = holding.0.iter().find(|place| place.is_of(self.clients()));
        place.is_some_and(|place| place.count() > self.share(percent))
    }

    /// What a client may have while permits are reserved.
    fn most(&self, percent: u32, now: Mono) -> u32 {
        let mut fallen = self.lock();
        let reserve = self.fall(&mut fallen, now);
        if reserve == 0 || percent >= ALL_PERCENT {
            return u32::MAX;
        }
        self.limit.load(Relaxed).saturating_sub(reserve).max(self.share(percent))
    }

    /// A request of a client has found no permit. It is counted already.
    pub(super) fn note_lack(&self, client: u64, percent: u32, now: Mono) {
        let mut fallen = self.lock();
        let reserve = self.fall(&mut fallen, now);
        let share = self.share(percent);
        if self.clients().count(client) <= share {
            let most = self.limit.load(Relaxed).saturating_sub(share);
            self.reserve.store(reserve.saturating_add(1).min(most), Relaxed);
        }
    }

    /// Lowers the reserve by what time has passed.
    fn fall(&self, fallen: &mut Mono, now: Mono) -> u32 {
        let mut reserve = self.reserve.load(Relaxed);
        if reserve > 0 && now.saturating_since(*fallen) < FALL_EVERY {
            return reserve;
        }
        while reserve > 0 && now.saturating_since(*fallen) >= FALL_EVERY {
            reserve -= reserve.div_ceil(FALL_PART);
            *fallen = fallen.saturating_add(FALL_EVERY);
        }
        if reserve == 0 {
            *fallen = now;
        }
        self.active.store(u32::try_from(self.clients().keys()).unwrap_or(u32::MAX), Relaxed);
        self.reserve.store(reserve, Relaxed);
        reserve
    }

    fn lock(&self) -> MutexGuard<'_, Mono> {
        self.fallen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request counts for its client, at the limits that tell clients apart. It ends when this is dropped.
#[derive(Debug, Default)]
pub struct Holding(SmallVec<[InFlightPlace; 1]>);

impl Holding {
    pub(super) fn push(&mut self, place: InFlightPlace) {
        self.0.push(place);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Poll, Waker};

    use super::{
        super::{
            AdaptiveBounds, AdaptiveLimit, Admission, AdmissionRefusal, AdmissionSettings, Arrival, Entry,
            Gate, MaxInFlight, Priority, Ticket,
        },
        *,
    };

    fn at(milliseconds: u64) -> Mono {
        Mono::from_nanos((1_000_000 + milliseconds) * 1_000_000)
    }

    fn settings(floor: u32, ceiling: u32) -> AdmissionSettings {
        let max_in_flight = MaxInFlight::Adaptive(AdaptiveBounds { floor, ceiling });
        AdmissionSettings { max_in_flight, max_queue: None, max_age: Duration::from_secs(1) }
    }

    /// Some clients that each keep requests of the same kind under way.
    struct Kind {
        clients: u64,
        each: usize,
        takes: u64,
    }

    enum Request {
        Idle { until: u64 },
        Waits { since: u64, ticket: Ticket, holding: Holding },
        Runs { since: u64, until: u64, holding: Holding },
    }

    /// How many requests of the first kind are served in each of so many periods of 5 s, and the limit at the end. The service
    /// has no limit of its own.
    fn run(kinds: &[Kind], percent: u32, periods: u64) -> (Vec<u32>, u32) {
        let admission = Admission::new(2);
        admission.set_client_share(percent);
        let limit = admission.limit(settings(8, 10_000).initial());
        let gate = admission.gate([Arc::clone(&limit)]);
        let adaptive = AdaptiveLimit::new(Arc::clone(&limit), settings(8, 10_000), 1, None, at(0));
        adaptive.enforce(at(0));
        let mut served = vec![0; periods as usize];
        let mut requests: Vec<(u64, usize, u64, Request)> = Vec::new();
        let mut clients = 0;
        for (kind, Kind { clients: count, each, takes }) in kinds.iter().enumerate() {
            for client in clients..clients + count {
                requests.extend((0..*each).map(|_| (client, kind, *takes, Request::Idle { until: client })));
            }
            clients += count;
        }
        for millisecond in 0..periods * 5_000 {
            let now = at(millisecond);
            for (client, kind, takes, request) in &mut requests {
                let runs = |since, holding| Request::Runs { since, until: millisecond + *takes, holding };
                *request = match std::mem::replace(request, Request::Idle { until: 0 }) {
                    Request::Idle { until } if until <= millisecond => match gate.hold(|| *client, || now) {
                        Ok(holding) => {
                            let client = Some(*client);
                            match gate.enter(0, || Arrival { client, ..Arrival::new(Priority::Normal, now) })
                            {
                                Entry::Admitted => runs(millisecond, holding),
                                Entry::Waits(ticket) => {
                                    Request::Waits { since: millisecond, ticket, holding }
                                }
                                Entry::Refused(_) => Request::Idle { until: millisecond + 50 },
                            }
                        }
                        Err(refusal) => {
                            assert_eq!(refusal, AdmissionRefusal::OverShare);
                            Request::Idle { until: millisecond + 50 }
                        }
                    },
                    Request::Waits { since, ticket, holding } => match gate.poll(&ticket, now, Waker::noop())
                    {
                        Poll::Ready(Ok(())) => runs(millisecond, holding),
                        Poll::Ready(Err(_)) => Request::Idle { until: millisecond + 50 },
                        Poll::Pending => Request::Waits { since, ticket, holding },
                    },
                    Request::Runs { since, until, holding } if until <= millisecond => {
                        adaptive.note_of(&holding, 0, 0, Duration::from_millis(until - since), now);
                        gate.leave(0, || now);
                        if *kind == 0 {
                            served[(millisecond / 5_000) as usize] += 1;
                        }
                        Request::Idle { until: millisecond + 1 }
                    }
                    other => other,
                };
            }
        }
        (served, limit.figures().max_in_flight)
    }

    #[test]
    fn slow_requests_of_two_clients_take_little_from_twenty_others() {
        let good = || Kind { clients: 20, each: 1, takes: 50 };
        let slow = || Kind { clients: 2, each: 300, takes: 2_000 };
        let (alone, _) = run(&[good()], 25, 6);
        let (beside, _) = run(&[good(), slow()], 25, 6);
        assert!(
            beside[4..].iter().zip(&alone[4..]).all(|(beside, alone)| beside * 10 >= alone * 9),
            "{beside:?}"
        );
        // The control: without shares they take nearly all.
        let (taken, _) = run(&[good(), slow()], 100, 6);
        assert!(taken[4..].iter().zip(&alone[4..]).all(|(taken, alone)| taken * 10 < *alone), "{taken:?}");
    }

    fn enter(gate: &Gate, client: u64, now: Mono) -> Result<Entry, AdmissionRefusal> {
        let holding = gate.hold(|| client, || now)?;
        let client = Some(client);
        let entry = gate.enter(0, || Arrival { client, ..Arrival::new(Priority::Normal, now) });
        // For as long as the test lasts.
        std::mem::forget(holding);
        Ok(entry)
    }

    #[test]
    fn a_client_has_the_whole_limit_until_another_one_lacks_permits() {
        let admission = Admission::new(1);
        let limit = admission.limit(settings(8, 8).initial());
        let gate = admission.gate([Arc::clone(&limit)]);
        let adaptive = AdaptiveLimit::new(Arc::clone(&limit), settings(8, 8), 1, None, at(0));
        adaptive.enforce(at(0));
        (0..8).for_each(|_| assert_eq!(enter(&gate, 1, at(0)), Ok(Entry::Admitted)));
        assert!(matches!(enter(&gate, 1, at(0)), Ok(Entry::Waits(_))));
        assert_eq!(limit.figures().reserved, 0, "it has more than its share");
        assert!(matches!(enter(&gate, 2, at(0)), Ok(Entry::Waits(_))));
        assert_eq!(limit.figures().reserved, 1);
        assert_eq!(enter(&gate, 1, at(1)), Err(AdmissionRefusal::OverShare));
        // A client that has little is not refused, and the reserve ends.
        assert!(matches!(enter(&gate, 3, at(1)), Ok(Entry::Waits(_))));
        assert_eq!(limit.figures().reserved, 2);
        assert!(matches!(enter(&gate, 1, at(5_000)), Ok(Entry::Waits(_))));
        assert_eq!(limit.figures().reserved, 0);
        // A fixed limit tells nobody apart.
        limit.set_bounds(settings(8, 8).bounds(8), at(5_000));
        assert!(gate.hold(|| 1, || at(5_000)).unwrap().0.is_empty());
    }

    #[test]
    fn all_but_its_share_is_reserved_for_others_at_most() {
        let shares = ClientShares::default();
        shares.set_limit(100);
        shares.set_on(true);
        let mut held: Vec<_> = (0..60).map(|_| shares.enter(1, 25, || at(0)).unwrap()).collect();
        for _ in 0..200 {
            shares.note_lack(2, 25, at(0));
        }
        assert_eq!(shares.reserve(), 75);
        assert!(shares.enter(1, 25, || at(0)).is_none());
        let holding = |place| Holding([place].into_iter().collect());
        let (one, other) = (holding(held.remove(0)), holding(shares.enter(2, 25, || at(0)).unwrap()));
        assert!(shares.is_over(&one, 25) && !shares.is_over(&other, 25) && !shares.is_over(&one, 100));
        drop((held, one, other));
        let held: Vec<_> = (0..25).map(|_| shares.enter(1, 25, || at(0)).unwrap()).collect();
        assert!(shares.enter(1, 25, || at(0)).is_none());
        drop(held);
        // Beside many clients, twice the mean.
        let others: Vec<_> = (10..49).map(|client| shares.enter(client, 25, || at(1)).unwrap()).collect();
        let _one = shares.enter(1, 25, || at(1)).unwrap();
        shares.note_lack(2, 25, at(2_100));
        (0..200).for_each(|_| shares.note_lack(2, 25, at(2_100)));
        assert_eq!(shares.reserve(), 95);
        let held: Vec<_> = (0..4).map(|_| shares.enter(1, 25, || at(2_100)).unwrap()).collect();
        assert!(shares.enter(1, 25, || at(2_100)).is_none());
        drop((held, others));
    }
}

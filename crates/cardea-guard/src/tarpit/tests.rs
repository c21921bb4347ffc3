//! The tarpit against a list, with virtual time.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::Wake,
};

use proptest::{collection::vec, prelude::*};

use super::*;

const LIMIT: OffenceLimit = OffenceLimit { offences: 3, memory: Duration::from_secs(30) };
const BOUNDS: TarpitBounds = TarpitBounds { held_max: 6, per_prefix_max: 4, per_identity_max: 2 };

fn at(milliseconds: u64) -> Mono {
    Mono::from_nanos((1_000_000_000 + milliseconds) * 1_000_000)
}

fn prefix(number: u8) -> AddressPrefix {
    AddressPrefix::of([192, 0, 2, number].into())
}

fn identity(number: u8) -> Arc<Identity> {
    Arc::new(Identity { issuer: "https://login.example".into(), subject: number.to_string().into() })
}

fn from(number: u8) -> Origin {
    Origin { prefix: Some(prefix(number)), identity: None }
}

fn poll(place: &HeldPlace) -> Poll<Released> {
    place.poll(Waker::noop())
}

#[test]
fn more_offences_than_are_tolerated_make_a_repeat_offender() {
    let tarpit = Tarpit::new(10);
    let offender = Offender::Prefix(prefix(1));
    let noted: Vec<bool> = (0..5).map(|_| tarpit.offend(&offender, LIMIT, at(0))).collect();
    assert_eq!(noted, [false, false, false, true, true]);
    assert!(!tarpit.is_repeat_offender(&Offender::Prefix(prefix(2)), LIMIT, at(0)));
    // Five were noted, and one is forgiven every ten seconds.
    for (seconds, expected) in [(0, true), (20, true), (29, true), (30, false), (60, false)] {
        let is = tarpit.is_repeat_offender(&offender, LIMIT, at(seconds * 1_000));
        assert_eq!(is, expected, "{seconds} s later");
    }
    // However many there were, they are forgiven in twice the memory.
    for _ in 0..1_000 {
        tarpit.offend(&offender, LIMIT, at(0));
    }
    assert!(tarpit.is_repeat_offender(&offender, LIMIT, at(39_999)));
    assert!(!tarpit.is_repeat_offender(&offender, LIMIT, at(40_000)));
    assert!(!tarpit.offend(&offender, LIMIT, at(60_000)));
    // Slower than they are forgiven.
    let slow = Offender::Identity(identity(1));
    assert!((0..100).all(|number| !tarpit.offend(&slow, LIMIT, at(number * 10_000))));
}

#[test]
fn those_who_are_forgotten_begin_anew() {
    let tarpit = Tarpit::new(2);
    let offenders: Vec<_> = (0..3).map(|number| Offender::Prefix(prefix(number))).collect();
    for offender in &offenders {
        for _ in 0..9 {
            tarpit.offend(offender, LIMIT, at(0));
        }
    }
    assert_eq!(tarpit.offenders(), 2);
    let repeat = |offender| tarpit.is_repeat_offender(offender, LIMIT, at(0));
    assert_eq!(offenders.iter().map(repeat).collect::<Vec<_>>(), [false, true, true]);
    tarpit.release(Some(&offenders[1]));
    assert_eq!(offenders.iter().map(repeat).collect::<Vec<_>>(), [false, false, true]);
    tarpit.release(None);
    assert!(!offenders.iter().any(repeat));
}

#[test]
fn an_identity_and_its_address_are_bounded_apart() {
    let tarpit = Tarpit::new(10);
    let hold = |address: Option<u8>, subject: Option<u8>| {
        let origin = Origin { prefix: address.map(prefix), identity: subject.map(identity) };
        tarpit.hold(origin, BOUNDS, at(5_000), at(0))
    };
    let held: Vec<_> = [(1, 1), (2, 1)].map(|(one, other)| hold(Some(one), Some(other)).unwrap()).into();
    assert_eq!(hold(None, Some(1)).err(), Some(TarpitFull::Identity));
    let more: Vec<_> = (0..3).map(|_| hold(Some(1), None).unwrap()).collect();
    assert_eq!(hold(Some(1), None).err(), Some(TarpitFull::Prefix));
    assert_eq!(hold(Some(1), Some(2)).err(), Some(TarpitFull::Prefix));
    let last = hold(None, Some(2)).unwrap();
    assert_eq!(hold(Some(9), None).err(), Some(TarpitFull::Total));
    let listed: Vec<_> = tarpit.list().into_iter().map(|one| (one.offender, one.held)).collect();
    assert_eq!(listed.len(), 3);
    for (offender, held) in [
        (Offender::Identity(identity(1)), 2),
        (Offender::Prefix(prefix(1)), 3),
        (Offender::Identity(identity(2)), 1),
    ] {
        assert!(listed.contains(&(offender, held)), "{listed:?}");
    }
    // Those of the address that have proven no identity.
    assert_eq!(tarpit.release(Some(&Offender::Prefix(prefix(1)))), 3);
    assert!(more.iter().all(|place| poll(place) == Poll::Ready(Released::Early)));
    assert!(held.iter().chain([&last]).all(|place| poll(place).is_pending()));
    drop((held, more, last));
    let state = tarpit.lock();
    assert_eq!((state.held.len(), state.prefixes.len(), state.identities.len()), (0, 0, 0));
}

#[test]
fn prefixes_are_shown_as_they_are_written() {
    for (address, shown) in [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::1", "::/64"),
    ] {
        assert_eq!(AddressPrefix::of(address.parse().unwrap()).to_string(), shown);
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn whoever_waits_is_woken_once() {
    let tarpit = Tarpit::new(1);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let place = tarpit.hold(from(1), BOUNDS, at(250), at(0)).unwrap();
    for (now, expected) in [(0, 0), (200, 0), (299, 0), (300, 1), (400, 1), (60_000, 1)] {
        let _ = place.poll(&waker);
        tarpit.advance(at(now));
        let is_ready = place.poll(&waker).is_ready();
        assert_eq!((woken.0.load(SeqCst), is_ready), (expected, expected > 0), "{now} ms");
    }
    assert_eq!(place.held_for(at(300)), Duration::from_millis(300));
    place.hold_again(at(61_000), at(60_000));
    assert!(place.poll(&waker).is_pending());
    assert_eq!(tarpit.evict(9), 1);
    assert_eq!((place.poll(&waker), woken.0.load(SeqCst)), (Poll::Ready(Released::Evicted), 2));
    place.hold_again(at(70_000), at(60_000));
    assert!(place.poll(&waker).is_ready(), "what was evicted is not held again");
    assert_eq!(tarpit.evict(9), 0);
}

/// What happens in a run.
#[derive(Debug, Clone)]
enum Step {
    /// Somebody is to be held for so many milliseconds.
    Hold { who: u8, identity: Option<u8>, milliseconds: u64 },
    /// One of the held leaves.
    Leave(prop::sample::Index),
    /// So much time passes.
    Pass(u64),
    /// An offender is released, or all are.
    Release(Option<u8>),
    /// Room is made.
    Evict(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..3, prop::option::of(0_u8..3), 1_u64..30_000)
            .prop_map(|(who, identity, milliseconds)| Step::Hold { who, identity, milliseconds }),
        2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        // Now and then nobody looks at the wheel for longer than it takes to go around.
        4 => prop_oneof![9 => 0_u64..4_000, 1 => 0_u64..200_000].prop_map(Step::Pass),
        1 => prop::option::of(0_u8..3).prop_map(Step::Release),
        1 => (0_usize..3).prop_map(Step::Evict),
    ]
}

/// One that is held, in the list.
struct Known {
    place: HeldPlace,
    origin: Origin,
    until: u64,
    released: Option<Released>,
}

proptest! {
    #[test]
    fn the_tarpit_does_what_a_list_would(steps in vec(step(), 0..120)) {
        let tarpit = Tarpit::new(1);
        let mut list: Vec<Known> = Vec::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Hold { who, identity: subject, milliseconds } => {
                    let origin = Origin { identity: subject.map(identity), ..from(who) };
                    let of = |is_same: &dyn Fn(&Origin) -> bool| list.iter().filter(|one| is_same(&one.origin)).count();
                    let expected = if list.len() >= 6 {
                        Some(TarpitFull::Total)
                    } else if of(&|other| other.prefix == origin.prefix) >= 4 {
                        Some(TarpitFull::Prefix)
                    } else if subject.is_some() && of(&|other| other.identity == origin.identity) >= 2 {
                        Some(TarpitFull::Identity)
                    } else {
                        None
                    };
                    let held = tarpit.hold(origin.clone(), BOUNDS, at(now + milliseconds), at(now));
                    prop_assert_eq!(held.as_ref().err().copied(), expected);
                    if let Ok(place) = held {
                        list.push(Known { place, origin, until: now + milliseconds, released: None });
                    }
                }
                Step::Leave(which) if !list.is_empty() => drop(list.remove(which.index(list.len()))),
                Step::Leave(_) => {}
                Step::Pass(milliseconds) => {
                    now += milliseconds;
                    tarpit.advance(at(now));
                    // What is due is noticed at the next whole tick.
                    let tick = now / 100 * 100;
                    for one in &mut list {
                        if one.until <= tick {
                            one.released.get_or_insert(Released::Due);
                        }
                    }
                }
                Step::Release(who) => {
                    let offender = who.map(|who| Offender::Prefix(prefix(who)));
                    let is_meant = |one: &Known| {
                        who.is_none_or(|who| one.origin.identity.is_none() && one.origin.prefix == Some(prefix(who)))
                    };
                    let mut count = 0;
                    for one in list.iter_mut().filter(|one| one.released.is_none() && is_meant(one)) {
                        one.released = Some(Released::Early);
                        count += 1;
                    }
                    prop_assert_eq!(tarpit.release(offender.as_ref()), count);
                }
                Step::Evict(most) => {
                    let waiting = list.iter().filter(|one| one.released.is_none()).count();
                    prop_assert_eq!(tarpit.evict(most), most.min(waiting));
                    let mut evicted = 0;
                    for one in list.iter_mut().filter(|one| one.released.is_none()) {
                        if poll(&one.place) == Poll::Ready(Released::Evicted) {
                            one.released = Some(Released::Evicted);
                            evicted += 1;
                        }
                    }
                    prop_assert_eq!(evicted, most.min(waiting));
                }
            }
            prop_assert_eq!(tarpit.held(), list.len());
            for one in &list {
                let expected = one.released.map_or(Poll::Pending, Poll::Ready);
                prop_assert_eq!(poll(&one.place), expected, "until {}, now {}", one.until, now);
            }
        }
    }
}

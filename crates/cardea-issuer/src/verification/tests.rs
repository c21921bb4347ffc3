//! Whether rightful clients authenticate during a flood of wrong secrets: the failure budgets and the queue together,
//! in virtual time.
//!
//! Guesses arrive at ten times the rate that can be hashed, beside attempts with the right secret, which is not cached.

use std::net::{Ipv4Addr, Ipv6Addr};

use cardea_kdf::{Password, Prf};
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

use super::{
    failures::Outcome,
    queue::{Queue, Work},
    *,
};

/// The time of a hash in one of [`LANES`] lanes: 115 hashes per second, as with one thread, eight lanes and 210,000
/// iterations.
const LANES: usize = 8;
const HASH: Duration = Duration::from_micros(69_565);
const TICK: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Ten times the capacity of the lanes.
const GUESSES_PER_SECOND: f64 = 1_140.0;
/// Attempts with the right secret.
const RIGHT_PER_SECOND: f64 = 5.0;
/// How long the flood lasts before the first right attempt: each of 509 addresses has caused a hash by then.
const BEFORE: Duration = Duration::from_secs(6);
/// How long both last after that.
const TIME: Duration = Duration::from_secs(8);
const VICTIM: &str = "victim";

/// An attempt: the client, the address, and whether the secret is right.
type Attempt = (String, IpAddr, bool);

/// An attempt in the queue or in a lane.
struct UnderWay<'a> {
    since: Duration,
    is_counted: bool,
    id: String,
    from: IpAddr,
    answer: Receiver<bool>,
    charge: Option<failures::Charge<'a>>,
}

/// The results of the right attempts on the victim.
#[derive(Debug, Default)]
struct Served {
    made: u32,
    served: u32,
    /// Attempts after the first one that was served.
    made_since: u32,
}

impl Served {
    fn percent(&self) -> u32 {
        self.served * 100 / self.made.max(1)
    }
}

/// A server with one hash thread.
struct Simulation<'a> {
    failures: &'a Failures,
    queue: Queue,
    lanes: Vec<(Duration, Work)>,
    under_way: Vec<UnderWay<'a>>,
    served: Served,
}

fn mono(since_start: Duration) -> Mono {
    Mono::from_nanos(1).saturating_add(since_start)
}

impl<'a> Simulation<'a> {
    fn new(failures: &'a Failures) -> Self {
        let queue = Queue::new(256, WAIT_MAX);
        Self { failures, queue, lanes: Vec::new(), under_way: Vec::new(), served: Served::default() }
    }

    fn attempt(&mut self, (id, from, is_right): Attempt, now: Duration) {
        let is_counted = is_right && id == VICTIM;
        self.served.made += u32::from(is_counted);
        self.served.made_since += u32::from(is_counted && self.served.served > 0);
        let Ok(charge) = self.failures.charge(&[&id], None, Some(from), mono(now)) else { return };
        let (sender, answer) = tokio::sync::oneshot::channel();
        let work = Work::Verify {
            stored: StoredSecret::dummy("pbkdf2-sha512;i=1;l=64").unwrap(),
            secret: Arc::new(Password::new(Zeroizing::new(vec![u8::from(is_right)]))),
            taken: Arc::clone(&charge.taken),
            answer: sender,
        };
        if self.queue.push(vec![work], charge.priority, mono(now)) {
            let charge = Some(charge);
            self.under_way.push(UnderWay { since: now, is_counted, id, from, answer, charge });
        }
    }

    /// The work of the hash threads.
    fn hash(&mut self, now: Duration) {
        for (_, work) in self.lanes.extract_if(.., |(until, _)| *until <= now) {
            let Work::Verify { secret, answer, .. } = work else { continue };
            let _ = answer.send(secret.as_bytes() == [1]);
        }
        while self.lanes.len() < LANES {
            let Some(work) = self.queue.pop_for(Prf::HmacSha512) else { return };
            self.lanes.push((now + HASH, work));
        }
    }

    /// The reaction of those that wait.
    fn answer(&mut self, now: Duration) {
        let (failures, served) = (self.failures, &mut self.served);
        self.under_way.retain_mut(|attempt| {
            let outcome = match attempt.answer.try_recv() {
                Ok(true) => Outcome::Right,
                Ok(false) => Outcome::Wrong,
                Err(TryRecvError::Empty) if now - attempt.since < WAIT_MAX => return true,
                Err(_) => Outcome::Unanswered,
            };
            if outcome == Outcome::Right {
                failures.record_success(&attempt.id, None, Some(attempt.from), mono(now));
                served.served += u32::from(attempt.is_counted);
            }
            if let Some(charge) = attempt.charge.take() {
                charge.settle(outcome);
            }
            false
        });
    }
}

/// Runs both sequences of attempts and returns the results of the right ones on the victim. After `known`, it has
/// authenticated before.
fn simulate(flood: &dyn Fn(u32) -> Attempt, right: fn(u32) -> IpAddr, known: Option<IpAddr>) -> Served {
    let failures = Failures::new(&[3; 32], 20, Duration::from_secs(6));
    failures.record_success(VICTIM, None, known, Mono::MIN);
    let mut simulation = Simulation::new(&failures);
    let (mut guesses, mut rights) = (0, 0);
    let mut now = Duration::ZERO;
    while now < BEFORE + TIME {
        loop {
            let (guess, genuine) = (due(guesses, GUESSES_PER_SECOND), BEFORE + due(rights, RIGHT_PER_SECOND));
            if guess.min(genuine) > now {
                break;
            }
            if guess <= genuine {
                simulation.attempt(flood(guesses), now);
                guesses += 1;
            } else {
                simulation.attempt((VICTIM.to_owned(), right(rights), true), now);
                rights += 1;
            }
        }
        simulation.hash(now);
        simulation.answer(now);
        now += TICK;
    }
    simulation.served
}

/// When an attempt is made: evenly spaced, plus a delay of up to one interval, so that no two sequences are in step.
fn due(number: u32, per_second: f64) -> Duration {
    let late = (f64::from(number) * 0.618_034).fract();
    Duration::from_secs_f64((f64::from(number) + late) / per_second)
}

/// One of `of` guessing addresses.
fn guessing(number: u32, of: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0001 + number % of).into()
}

/// A /64 that was not used before.
fn fresh(number: u32) -> IpAddr {
    Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | (u128::from(number) << 64)).into()
}

fn same(_: u32) -> IpAddr {
    "192.0.2.1".parse().unwrap()
}

/// A new address for each attempt, which never authenticated before.
fn new_each_time(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xc633_6401 + number).into()
}

/// A third of the guesses is on the victim, a third on another client, a third on a client that doesn't exist.
fn on_all(number: u32) -> String {
    match number % 3 {
        0 => VICTIM.to_owned(),
        1 => "other".to_owned(),
        _ => format!("nobody-{number}"),
    }
}

#[test]
fn the_attacked_client_gets_in_from_elsewhere() {
    type Target = fn(u32) -> String;
    type From = fn(u32) -> IpAddr;
    let on_victim: Target = |_| VICTIM.to_owned();
    let on_nobody: Target = |number| format!("nobody-{number}");
    let cases: [(&str, Target, u32, From); 8] = [
        ("victim", on_victim, 509, same),
        ("victim", on_victim, 509, new_each_time),
        ("nobody", on_nobody, 509, same),
        ("nobody", on_nobody, 509, new_each_time),
        ("all", on_all, 509, same),
        ("all", on_all, 509, new_each_time),
        ("all", on_all, 16, new_each_time),
        ("all", on_all, 1, new_each_time),
    ];
    for (what, target, addresses, from) in cases {
        let flood = |number| (target(number), guessing(number, addresses), false);
        let served = simulate(&flood, from, None);
        assert!(served.made >= 35 && served.percent() >= 95, "{what} {addresses}: {served:?}");
    }
}

#[test]
fn from_where_it_was_right_before_no_number_of_new_addresses_keeps_it_out() {
    let flood = |number| (on_all(number), fresh(number), false);
    let served = simulate(&flood, same, Some(same(0)));
    assert_eq!(served.percent(), 100, "{served:?}");
    // At first it competes with all attempts of equal priority; after one success it is a known pair.
    let first = simulate(&flood, same, None);
    assert!(first.served > 0 && first.served > first.made_since, "{first:?}");
}

#[test]
fn guesses_do_not_lock_out_a_client_that_authenticated_from_the_address() {
    let flood = |number: u32| (format!("nobody-{number}"), same(0), false);
    let served = simulate(&flood, same, Some(same(0)));
    assert_eq!(served.percent(), 100, "{served:?}");
    let first = simulate(&flood, same, None);
    assert!(first.served > 0 && first.served > first.made_since, "{first:?}");
}

#[test]
fn a_client_with_frequent_valid_attempts_does_not_starve_others() {
    let flood = |_| ("insider".to_owned(), guessing(0, 1), true);
    let served = simulate(&flood, new_each_time, None);
    assert!(served.percent() >= 95, "{served:?}");
}

//! Tickets between the nodes of a fleet, over time, and between listeners.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use proptest::prelude::*;
use rustls::server::ProducesTickets as _;
use tempfile::TempDir;

use super::{HEAD_LEN, STEP, TicketSecrets, Ticketer};
use crate::config::{StatelessTickets, TicketKeys, TicketSecretConfig};
use crate::error::TlsError;

const BEGIN: i64 = 1_800_000_000;
const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);
const HOUR: Duration = STEP;

/// A node of a fleet, with its own copy of the secret and its own clock.
struct Node {
    folder: TempDir,
    clock: ManualClock,
    secrets: Arc<TicketSecrets>,
}

impl Node {
    fn start(text: &str, after: Duration) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tickets.secret");
        fs::write(&file, text).unwrap();
        let clock = ManualClock::new(Wall::from_unix_seconds(BEGIN).saturating_add(after));
        let keys = TicketKeys::Fleet(TicketSecretConfig { file, context: String::new() });
        match TicketSecrets::load(&keys, LIFETIME, &clock.clock()) {
            Ok(secrets) => Ok(Self { folder, clock, secrets }),
            Err(TlsError::Certificates(errors)) => Err(errors[0].problem.to_string()),
            Err(error) => panic!("{error}"),
        }
    }

    fn after(duration: Duration) -> Self {
        Self::start(&format!("{BEGIN} {DIGITS}\n"), duration).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("tickets.secret")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn ticketer(&self) -> Arc<Ticketer> {
        fleet(&self.secrets, "public", b"a.example=one")
    }
}

/// A listener's tickets, in both versions.
fn fleet(secrets: &Arc<TicketSecrets>, context: &str, domains: &[u8]) -> Arc<Ticketer> {
    let keys = TicketKeys::Fleet(TicketSecretConfig { file: PathBuf::new(), context: context.to_owned() });
    Ticketer::new(secrets, &StatelessTickets { keys, tls12: true }, domains)
}

/// A listener whose ticket keys belong to its process.
fn process(clock: &ManualClock) -> (Arc<TicketSecrets>, Arc<Ticketer>) {
    let secrets = TicketSecrets::load(&TicketKeys::Process, LIFETIME, &clock.clock()).unwrap();
    let config = StatelessTickets { keys: TicketKeys::Process, tls12: true };
    let ticketer = Ticketer::new(&secrets, &config, b"a.example=one");
    (secrets, ticketer)
}

#[test]
fn every_node_opens_what_any_node_has_sealed() {
    let (old, new) = (Node::after(Duration::ZERO), Node::after(100 * HOUR));
    old.clock.advance(100 * HOUR);
    let ticket = old.ticketer().encrypt(b"a session").unwrap();
    assert_eq!(new.ticketer().decrypt(&ticket).as_deref(), Some(b"a session".as_slice()));
    let ticket = new.ticketer().encrypt(b"").unwrap();
    assert_eq!(old.ticketer().decrypt(&ticket).as_deref(), Some(b"".as_slice()));
}

#[test]
fn a_ticket_expires_within_an_hour_after_its_lifetime() {
    let node = Node::after(100 * HOUR);
    let ticket = node.ticketer().encrypt(b"a session").unwrap();
    assert_eq!(u64::from(node.ticketer().lifetime()), LIFETIME.as_secs());
    node.clock.advance(LIFETIME);
    assert!(node.ticketer().decrypt(&ticket).is_some());
    node.clock.advance(HOUR);
    assert_eq!(node.ticketer().decrypt(&ticket), None);
    // It doesn't become valid again when the clock is set back: its secret was wiped.
    node.clock.step_wall_back(5 * HOUR);
    assert_eq!(node.ticketer().decrypt(&ticket), None);
    assert!(
        node.ticketer()
            .encrypt(b"a session")
            .is_some_and(|ticket| node.ticketer().decrypt(&ticket).is_some())
    );
}

#[test]
fn clocks_may_differ_by_an_hour() {
    let (node, ahead) = (Node::after(10 * HOUR), Node::after(11 * HOUR));
    let ticket = ahead.ticketer().encrypt(b"a session").unwrap();
    assert!(node.ticketer().decrypt(&ticket).is_some());
    ahead.clock.advance(HOUR);
    let ticket = ahead.ticketer().encrypt(b"a session").unwrap();
    assert_eq!(node.ticketer().decrypt(&ticket), None);
}

#[test]
fn tickets_are_good_for_one_listener_with_its_trust_domains() {
    let node = Node::after(HOUR);
    let ticket = node.ticketer().encrypt(b"a session").unwrap();
    assert!(fleet(&node.secrets, "public", b"a.example=one").decrypt(&ticket).is_some(), "the control");
    for (context, domains) in
        [("admin", "a.example=one"), ("public", "a.example=two"), ("publica", ".example=one")]
    {
        let other = fleet(&node.secrets, context, domains.as_bytes());
        assert_eq!(other.decrypt(&ticket), None, "{context} {domains}");
    }
    let stranger = Node::start(&format!("{BEGIN} {}\n", DIGITS.replace('a', "b")), HOUR).unwrap();
    assert_eq!(stranger.ticketer().decrypt(&ticket), None);
}

#[test]
fn equal_sessions_have_tickets_that_share_nothing() {
    let node = Node::after(HOUR);
    let [one, other] = [(); 2].map(|()| node.ticketer().encrypt(&[7; 100]).unwrap());
    assert_ne!(one[8..HEAD_LEN], other[8..HEAD_LEN]);
    assert_ne!(one[HEAD_LEN..], other[HEAD_LEN..]);
}

#[test]
fn the_file_moves_on_and_opens_no_more_than_the_node_does() {
    let node = Node::after(2 * HOUR);
    assert_eq!(node.text(), format!("{BEGIN} {DIGITS}\n"), "all since its begin counts");
    let old = node.ticketer().encrypt(b"an old session").unwrap();
    node.clock.advance(30 * HOUR);
    node.secrets.tick(node.clock.clock().wall()).unwrap();
    let moved = node.text();
    let begin: i64 = moved.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(begin, BEGIN + (32 - 12) * 3_600);
    // A node that starts with this copy opens valid tickets and no older ones, whatever its clock.
    let ticket = node.ticketer().encrypt(b"a session").unwrap();
    let copy = Node::start(&moved, 32 * HOUR).unwrap();
    assert!(copy.ticketer().decrypt(&ticket).is_some());
    assert!(Node::start(&moved, 2 * HOUR).is_err(), "the old hours can't be had from it");
    assert_eq!(copy.ticketer().decrypt(&old), None);
}

#[test]
fn a_new_secret_is_taken_from_its_file_and_a_bad_one_is_not() {
    let node = Node::after(HOUR);
    let now = node.clock.clock().wall();
    let ticket = node.ticketer().encrypt(b"a session").unwrap();
    fs::write(node.file(), "not a secret").unwrap();
    assert!(node.secrets.tick(now).unwrap_err().to_string().contains("is no ticket secret"));
    assert!(node.ticketer().decrypt(&ticket).is_some());
    fs::write(node.file(), format!("{BEGIN} {}\n", "ab".repeat(32))).unwrap();
    node.secrets.tick(now).unwrap();
    assert_eq!(node.ticketer().decrypt(&ticket), None);
}

/// A wrong answer of a time server, for a few seconds.
#[test]
fn a_clock_that_is_ahead_for_a_moment_moves_nothing_on() {
    for ahead in [30 * 24 * HOUR, 5_000 * 24 * HOUR] {
        // Right after the start, and when the clock has been right for long.
        for before in [Duration::ZERO, 20 * HOUR] {
            let node = Node::after(2 * HOUR);
            node.clock.advance(before);
            let tick = || node.secrets.tick(node.clock.clock().wall()).unwrap();
            tick();
            let (file, ticket) = (node.text(), node.ticketer().encrypt(b"a session").unwrap());

            node.clock.step_wall_forward(ahead);
            tick();
            assert_eq!(node.ticketer().decrypt(&ticket), None, "it has expired by this clock");
            node.clock.advance(Duration::from_secs(5));
            tick();
            assert_eq!(node.text(), file, "{ahead:?} {before:?}");
            node.clock.step_wall_back(ahead);
            tick();
            assert_eq!(node.text(), file, "{ahead:?} {before:?}");
            assert!(node.ticketer().decrypt(&ticket).is_some(), "{ahead:?} {before:?}");
            let restarted = Node::start(&node.text(), 2 * HOUR + before).unwrap();
            assert!(restarted.ticketer().decrypt(&ticket).is_some(), "{ahead:?} {before:?}");
        }
    }
}

/// A machine that was suspended: the clock is right, and time has passed that the monotonic clock doesn't count.
#[test]
fn a_clock_that_stays_ahead_moves_the_secret_on() {
    let node = Node::after(2 * HOUR);
    let tick = || node.secrets.tick(node.clock.clock().wall()).unwrap();
    node.clock.advance(2 * HOUR);
    tick();
    let old = node.ticketer().encrypt(b"a session").unwrap();
    node.clock.step_wall_forward(72 * HOUR);
    tick();
    let ticket = node.ticketer().encrypt(b"a session").unwrap();
    let other = Node::after(76 * HOUR);
    assert!(other.ticketer().decrypt(&ticket).is_some(), "it has the fleet's tickets at once");
    assert_eq!(node.text(), format!("{BEGIN} {DIGITS}\n"));
    node.clock.advance(HOUR);
    tick();
    let begin: i64 = node.text().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(begin, BEGIN + (77 - 12) * 3_600);
    node.clock.step_wall_back(73 * HOUR);
    assert_eq!(node.ticketer().decrypt(&old), None, "its secret was wiped");
}

#[test]
fn faults_of_the_file_are_named() {
    let start = |text: &str| Node::start(text, HOUR).err().unwrap();
    for text in
        ["x", &format!("x {DIGITS}"), &format!("1 {DIGITS}0"), &format!("1 {}", &DIGITS[2..]), "1 \u{e9}"]
    {
        assert!(start(text).starts_with("is no ticket secret"), "{text}");
    }
    assert!(start(&format!("{} {DIGITS}", BEGIN + 10 * 3_600)).starts_with("begins in the future"));
    assert!(start(&format!("1 {DIGITS}")).starts_with("is older than ten years"));
    assert!(start("").starts_with("is empty"));
}

#[test]
fn debug_output_shows_no_secret() {
    let node = Node::after(HOUR);
    let shown = format!("{:?}", node.ticketer());
    assert!(shown.contains("TicketSecrets") && !shown.contains("ring"));
}

#[test]
fn keys_of_a_process_move_on_and_end_with_it() {
    let clock = ManualClock::new(Wall::from_unix_seconds(BEGIN));
    let (secrets, ticketer) = process(&clock);
    let ticket = ticketer.encrypt(b"a session").unwrap();
    assert_eq!(ticketer.decrypt(&ticket).as_deref(), Some(b"a session".as_slice()));
    assert_eq!(process(&clock).1.decrypt(&ticket), None, "another process");
    clock.advance(LIFETIME);
    secrets.tick(clock.clock().wall()).unwrap();
    assert!(ticketer.decrypt(&ticket).is_some());
    clock.advance(HOUR);
    assert_eq!(ticketer.decrypt(&ticket), None);
    assert!(format!("{secrets:?}").contains("file: None"));
}

#[test]
fn a_process_whose_clock_is_put_right_has_tickets_again() {
    // A machine without a real-time clock begins in 1970; the other clock was wrong by a year.
    for (begin, right) in [(0, BEGIN), (BEGIN + 365 * 24 * 3_600, BEGIN)] {
        let clock = ManualClock::new(Wall::from_unix_seconds(begin));
        let (secrets, ticketer) = process(&clock);
        assert!(ticketer.encrypt(b"a session").is_some());
        let apart = Duration::from_secs(begin.abs_diff(right));
        if begin < right {
            clock.step_wall_forward(apart)
        } else {
            clock.step_wall_back(apart)
        }
        assert_eq!(ticketer.encrypt(b"a session"), None, "{begin}");
        secrets.tick(clock.clock().wall()).unwrap();
        let ticket = ticketer.encrypt(b"a session").unwrap();
        assert!(ticketer.decrypt(&ticket).is_some());
        // Nothing is generated without need.
        secrets.tick(clock.clock().wall()).unwrap();
        assert!(ticketer.decrypt(&ticket).is_some());
    }
}

#[test]
fn sessions_of_tls_1_2_are_sealed_and_opened_only_where_that_is_configured() {
    let clock = ManualClock::new(Wall::from_unix_seconds(BEGIN));
    let (secrets, both) = process(&clock);
    let config = StatelessTickets { keys: TicketKeys::Process, tls12: false };
    let tls13 = Ticketer::new(&secrets, &config, b"a.example=one");
    for name in [b"\0".as_slice(), b"\x01\x09a.example"] {
        let session = |version: &[u8]| [name, version, b"the rest"].concat();
        let new = session(b"\x03\x04");
        assert_eq!(both.decrypt(&tls13.encrypt(&new).unwrap()), Some(new.clone()));
        assert_eq!(tls13.decrypt(&both.encrypt(&new).unwrap()), Some(new));
        let old = session(b"\x03\x03");
        assert_eq!(tls13.encrypt(&old), None);
        assert_eq!(tls13.decrypt(&both.encrypt(&old).unwrap()), None);
    }
    for odd in [b"".as_slice(), b"\x01", b"\x01\xff\x03\x04", b"\x02\x03\x04", b"\0\x03"] {
        assert_eq!(tls13.encrypt(odd), None, "{odd:?}");
    }
}

proptest! {
    #[test]
    fn changed_or_invented_tickets_are_refused(
        at in any::<prop::sample::Index>(), bit in 0..8, made_up: Vec<u8>, cut in any::<prop::sample::Index>()
    ) {
        let node = Node::after(HOUR);
        let ticket = node.ticketer().encrypt(b"a session").unwrap();
        let mut changed = ticket.clone();
        changed[at.index(ticket.len())] ^= 1_u8 << bit;
        prop_assert_eq!(node.ticketer().decrypt(&changed), None);
        prop_assert_eq!(node.ticketer().decrypt(&ticket[..cut.index(ticket.len())]), None);
        prop_assert_eq!(node.ticketer().decrypt(&made_up), None);
        prop_assert!(node.ticketer().decrypt(&ticket).is_some());
    }
}

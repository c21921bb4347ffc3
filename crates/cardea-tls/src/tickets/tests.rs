//! Tickets between nodes of a fleet, over time, and between listeners.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use proptest::prelude::*;
use rustls::server::ProducesTickets as _;
use tempfile::TempDir;

use super::{HEAD_LEN, STEP, TicketSecrets, Ticketer};
use crate::config::TicketSecretConfig;

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
        let config = TicketSecretConfig { file, context: "public".to_owned() };
        match TicketSecrets::load(&config, LIFETIME, &clock.clock()) {
            Ok(secrets) => Ok(Self { folder, clock, secrets }),
            Err(error) => Err(error.problem.to_string()),
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
        Ticketer::new(&self.secrets, "public", b"a.example=one")
    }
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
fn a_ticket_is_good_for_its_lifetime_and_ends_within_an_hour_after_it() {
    let node = Node::after(100 * HOUR);
    let ticket = node.ticketer().encrypt(b"a session").unwrap();
    assert_eq!(u64::from(node.ticketer().lifetime()), LIFETIME.as_secs());
    node.clock.advance(LIFETIME);
    assert!(node.ticketer().decrypt(&ticket).is_some());
    node.clock.advance(HOUR);
    assert_eq!(node.ticketer().decrypt(&ticket), None);
    // Nor does it come back with the clock: its secret is gone.
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
    assert!(
        Ticketer::new(&node.secrets, "public", b"a.example=one").decrypt(&ticket).is_some(),
        "the control"
    );
    for (context, domains) in
        [("admin", "a.example=one"), ("public", "a.example=two"), ("publica", ".example=one")]
    {
        let other = Ticketer::new(&node.secrets, context, domains.as_bytes());
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
    // A node that is started with this copy resumes what counts, and nothing older, whatever its clock says.
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

proptest! {
    #[test]
    fn what_is_changed_or_made_up_opens_nothing(
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
